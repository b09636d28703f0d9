"""A node: the machines on a real clock, with threads, sockets and a disk.

`Node` is what the API uses, and `NodeConfig` holds all its settings. Other packages use only the names that are
exported here."""

from kvstore.node.config import PRESETS, ConfigError, NodeConfig, Preset, preset_for
from kvstore.node.exported_rows import Row, exported_row, revision_after
from kvstore.node.http_figures import CLIENT_CLOSED, HttpFigures, RouteFigures
from kvstore.node.learning import LearningStatus
from kvstore.node.log_export import Beginning, LogExport
from kvstore.node.metrics import Metrics, MetricsSummary
from kvstore.node.milestones import Milestone, Milestones
from kvstore.node.node import Node
from kvstore.node.open_snapshots import OpenSnapshots, SnapshotConfig, TooManySnapshots
from kvstore.node.snapshot_format import (
    SNAPSHOT_TABLES,
    DamagedSnapshot,
    FrameWriter,
    Header,
    Kind,
    LineageEntry,
    batches,
    frames,
    grouped,
    messages_of,
    messages_to_bytes,
    snapshot_id,
)
from kvstore.node.snapshot_progress import SnapshotProgress
from kvstore.node.snapshot_source import SnapshotSource
from kvstore.node.snapshot_target import SnapshotTarget, discard, settle
from kvstore.node.status import LogEntry, LogPage, NodeStatus
from kvstore.node.survivors import Survivor, best, survey
from kvstore.node.synced_numbers import SyncedNumberError, begin_after

__all__ = [
    "Node",
    "NodeStatus",
    "LearningStatus",
    "Metrics",
    "MetricsSummary",
    "HttpFigures",
    "RouteFigures",
    "CLIENT_CLOSED",
    "LogEntry",
    "LogPage",
    "Milestone",
    "Milestones",
    "NodeConfig",
    "ConfigError",
    "PRESETS",
    "Preset",
    "preset_for",
    "SyncedNumberError",
    # Snapshots
    "SnapshotConfig",
    "OpenSnapshots",
    "TooManySnapshots",
    "SnapshotSource",
    "SnapshotProgress",
    "SnapshotTarget",
    "begin_after",
    "discard",
    "settle",
    "messages_of",
    "messages_to_bytes",
    "snapshot_id",
    "SNAPSHOT_TABLES",
    "DamagedSnapshot",
    "Header",
    "FrameWriter",
    "Kind",
    "frames",
    "batches",
    "grouped",
    "LineageEntry",
    "Survivor",
    "best",
    "survey",
    # The log as rows
    "LogExport",
    "Beginning",
    "Row",
    "exported_row",
    "revision_after",
]

"""A node: the machines on a real clock, with threads, sockets and a disk.

`Node` is what the API uses, and `NodeConfig` holds all its settings. Other packages use only the names that are
exported here."""

from kvstore.node.config import PRESETS, ConfigError, NodeConfig, Preset, preset_for
from kvstore.node.exported_rows import Row, exported_row, revision_after
from kvstore.node.http_figures import CLIENT_CLOSED, HttpFigures, RouteFigures
from kvstore.node.log_export import ExportedMessage, LogExport
from kvstore.node.metrics import Metrics, MetricsSummary
from kvstore.node.milestones import Milestone, Milestones
from kvstore.node.node import Node
from kvstore.node.status import LogEntry, LogPage, NodeStatus
from kvstore.node.synced_numbers import SyncedNumberError

__all__ = [
    "Node",
    "NodeStatus",
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
    # The log as rows
    "LogExport",
    "ExportedMessage",
    "Row",
    "exported_row",
    "revision_after",
]

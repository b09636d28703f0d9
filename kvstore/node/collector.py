"""Everything that `/metrics` shows of a node, made when it is asked for.

The texts say what a rise means, as far as the name does not. `docs/monitoring/` has a dashboard and alerts that
use these names; a test checks that they do."""

from __future__ import annotations

import errno
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version

from prometheus_client.core import Metric

from corel import Cause, Color, Stage
from kvstore.node.config import NodeConfig
from kvstore.node.families import (
    Labels,
    counter,
    counters,
    gauge,
    gauges,
    histogram,
    histograms,
    info,
    single,
)
from kvstore.node.learning import Hindrance
from kvstore.node.metrics import Metrics
from kvstore.node.status import NodeStatus
from kvstore.store import ConflictKind, Trouble
from membership import CHANGE_CAUSES
from transport import FlowFigures

_DISK_ERRORS = ("DiskError", "DiskFull", "StalledDisk", "DamagedLog", "UnusableLog")
_STAGE_CHANGES = (
    *((str(Stage.RECOVERING), str(Cause.VIEW_CHANGED)), (str(Stage.ESTABLISHING), str(Cause.MAJORITY))),
    *((str(Stage.PRIMARY), str(Cause.COMMITTED_BY_ALL)), (str(Stage.NON_PRIMARY), str(Cause.NO_MAJORITY))),
    *((str(Stage.NON_PRIMARY), str(Cause.CONTRADICTION)), (str(Stage.NON_PRIMARY), str(Cause.ORDERS_DIFFER))),
)
_SOCKET_OPERATIONS = {"send_errors_": "send", "receive_errors_": "receive", "network_errors_": "network"}


def build_families(config: NodeConfig) -> Iterator[Metric]:
    try:
        release = version("corelkv")
    except PackageNotFoundError:  # run from a folder that is not installed
        release = "unknown"
    python = ".".join(map(str, sys.version_info[:3]))
    yield info("corelkv_build", "What this node runs.", {"version": release, "python": python})
    yield info("corelkv_node", "Which node this is.", {"node": config.node, "cluster": config.cluster})


def write_families(metrics: Metrics, status: NodeStatus) -> Iterator[Metric]:
    """Writes and their colours, and the lines of the log."""
    answers = single(metrics.store.answers, (*Color, *Trouble))
    yield counters(
        "corelkv_writes_answered",
        "Writes of this node's clients by the answer: the colour that they had, or why they failed. Red: there is "
        "no primary component here. undecided and overloaded: this node cannot keep up.",
        ("answer",),
        answers,
    )
    yield counter("corelkv_green_messages", "Messages of all nodes that became green.", metrics.messages_green)
    yield counter(
        "corelkv_green_writes", "Writes of all nodes, applied to the green state.", metrics.store.green_writes
    )
    yield counters(
        "corelkv_merge_conflicts",
        "Writes whose effect a merge changed, by what became of them. A rise: both sides of a partition write the "
        "same keys. /v1/conflicts lists them.",
        ("kind",),
        single(metrics.store.conflicts, tuple(ConflictKind)),
    )
    times = metrics.times
    yield histogram(
        "corelkv_message_logged_seconds",
        "From handing a message of this node to the log until it is on this node's disk. A rise: a slow disk or a "
        "full window.",
        times.logged,
    )
    yield histogram(
        "corelkv_message_yellow_seconds",
        "The same until it is also at its place in the primary component's order. A rise: a member is slow to "
        "answer.",
        times.yellow,
    )
    yield histogram(
        "corelkv_message_green_seconds",
        "The same until its place is final. A rise: a member's disk is slow, because all of them must have it.",
        times.green,
    )
    yield histogram(
        "corelkv_message_merged_seconds",
        "The same for messages that were red: how long clients on the smaller side waited for a merge.",
        times.merged,
    )
    yield histogram(
        "corelkv_message_writes",
        "Writes per message of this node. A rise: more load, shared by fewer messages.",
        metrics.store.batch_writes,
    )
    yield histogram("corelkv_message_bytes", "Size of this node's messages.", metrics.store.batch_bytes)
    yield gauge("corelkv_green_line", "Green messages in the log; the same at all nodes soon.", status.green_line)
    yield gauge("corelkv_applied_line", "Green messages that are applied to the state.", status.applied_line)
    yield gauge(
        "corelkv_yellow_messages",
        "Messages about to be green. A rise that stays: a member does not acknowledge them.",
        status.yellow_line - status.green_line,
    )
    yield gauge(
        "corelkv_red_messages",
        "Messages without a place in the order of all nodes. A rise: writes outside a primary component.",
        status.red,
    )
    yield gauge("corelkv_revision", "Revision of the green state.", status.revision)
    yield gauge("corelkv_oldest_revision", "The oldest revision that can be read.", status.oldest_revision)
    yield gauge("corelkv_log_first", "The first position of the log that can be read.", status.log_first)
    yield gauge(
        "corelkv_log_bytes",
        "Size of the log on disk. A rise beyond log.bytes_kept: messages that are not green, or a disk that does "
        "not keep up.",
        status.log_bytes,
    )


def group_families(metrics: Metrics, status: NodeStatus, now: float) -> Iterator[Metric]:
    """Who is connected, and what changes that."""
    group = metrics.group
    yield gauge("corelkv_in_primary", "1 if writes through this node can become green.", status.is_primary)
    yield gauge("corelkv_voter", "0 if this node's disk is new and has not recovered yet.", status.is_voter)
    yield gauge(
        "corelkv_without_primary_seconds",
        "For how long there has been no primary component here; 0 while there is one.",
        group.seconds_without_primary(now),
    )
    yield gauges(
        "corelkv_stage",
        "1 for the stage that this node is in.",
        ("stage",),
        {(str(stage),): float(stage is status.stage) for stage in Stage},
    )
    present = {member.name for member in status.view.members}
    yield gauges(
        "corelkv_peer_connected",
        "1 for each node of the roster that is in this node's view.",
        ("peer",),
        {(name,): float(name in present) for name in status.weights},
    )
    yield gauge(
        "corelkv_committed_primary", "Number of the last primary component.", status.last_committed_primary
    )
    yield counters(
        "corelkv_view_changes",
        "Changes of this node's view, by what began them. A rise of silent or unresponsive: the network, or nodes "
        "that pause.",
        ("reason",),
        single(group.view_changes, CHANGE_CAUSES),
    )
    yield counters(
        "corelkv_primary_losses",
        "Times that this node was in a primary component no more, by what began that; away: its own disk. Where a "
        "majority is left, the next one follows at once.",
        ("reason",),
        single(group.primary_losses, (*CHANGE_CAUSES, "away")),
    )
    yield counters(
        "corelkv_stage_changes",
        "Stages entered, by cause. A rise of contradiction or orders_differ: read the log of this node.",
        ("stage", "reason"),
        {pair: group.stage_changes[pair] for pair in dict.fromkeys((*_STAGE_CHANGES, *group.stage_changes))},
    )
    yield counters(
        "corelkv_suspicions",
        "Times that communication with other nodes counted as broken, by cause.",
        ("reason",),
        single(group.suspicions, CHANGE_CAUSES),
    )
    yield counter(
        "corelkv_window_stuck", "Times that nothing moved, because members did not answer.", group.stuck_windows
    )
    yield histogram(
        "corelkv_merge_seconds",
        "From a view with new members to the primary component with them. A rise: more to exchange.",
        group.merges,
    )
    yield histogram(
        "corelkv_primary_outage_seconds",
        "From the loss of a primary component, or the start, to the next one: for so long no write became green "
        "here.",
        group.outages,
    )


def disk_families(metrics: Metrics, status: NodeStatus, sync_under_way_seconds: float) -> Iterator[Metric]:
    usage = status.disk_usage
    yield histogram(
        "corelkv_sync_seconds",
        "Duration of a synced write of the log. A rise slows the writes of all nodes down.",
        metrics.syncs,
    )
    yield histogram(
        "corelkv_sync_messages", "Messages per synced write: those that shared the sync.", metrics.sync_records
    )
    yield histogram(
        "corelkv_checkpoint_seconds", "Duration of a checkpoint with a sync of its own.", metrics.checkpoints
    )
    yield gauge(
        "corelkv_sync_under_way_seconds",
        "How long the write under way has taken. Beyond log.sync_stall_ms the node leaves the others.",
        sync_under_way_seconds,
    )
    yield gauge("corelkv_disk_used_bytes", "Size of the log and the state.", usage.used_bytes)
    yield gauge("corelkv_disk_limit_bytes", "log.map_bytes: most that they can have.", usage.map_bytes)
    yield gauge("corelkv_file_system_bytes", "Size of the data directory's file system.", usage.file_system_bytes)
    yield gauge("corelkv_file_system_free_bytes", "What it has left.", usage.free_bytes)
    yield gauge(
        "corelkv_away",
        "1 while this node has left the others because of its disk, or to start again with what it has learned.",
        status.trouble is not None,
    )
    yield counters(
        "corelkv_disk_failures",
        "Times that this node left the others, by the kind of error.",
        ("kind",),
        single(metrics.disk_failures, _DISK_ERRORS),
    )
    yield counter(
        "corelkv_incarnations", "Incarnations of this process. A rise: it came back.", metrics.incarnations
    )


def learning_families(metrics: Metrics, status: NodeStatus) -> Iterator[Metric]:
    """State taken over from another node, because too much was missing for a view (decision 28)."""
    learning = status.learning
    yield gauge("corelkv_learning", "1 while this node takes over the state of another.", learning is not None)
    yield gauge(
        "corelkv_learning_bytes",
        "How much of that state has been fetched.",
        0 if learning is None else learning.bytes,
    )
    yield gauge(
        "corelkv_learning_limit_bytes", "How large it is.", 0 if learning is None else learning.total_bytes
    )
    yield counters(
        "corelkv_transfers",
        "Transfers of a state by their outcome: switched, given_up (no longer needed), or what hindered them. A "
        "rise of anything but switched: read the log of this node.",
        ("outcome",),
        single(metrics.transfers, ("switched", "given_up", *map(str, Hindrance))),
    )


def network_families(metrics: Metrics, flow: FlowFigures) -> Iterator[Metric]:
    counts = metrics.counts()
    yield histogram("corelkv_datagram_sent_bytes", "Datagrams handed to the network.", metrics.sent_bytes)
    yield histogram("corelkv_datagram_received_bytes", "Datagrams of other nodes.", metrics.received_bytes)
    for name, key, text in _PLAIN_COUNTS:
        yield counter(name, text, counts[key])
    yield counters(
        "corelkv_datagrams_dropped",
        "Datagrams and frames of peers that broke a rule. foreign_cluster is harmless; a rise of others: nodes of "
        "different versions or settings, or a network that damages datagrams.",
        ("reason",),
        single(_with_prefix(counts, "peer_errors_")),
    )
    yield counters(
        "corelkv_socket_errors",
        "Datagrams that the kernel refused to send or receive. ENOBUFS, EAGAIN: buffers too small. ECONNREFUSED: "
        "no process listens at a peer's address.",
        ("operation", "error"),
        _socket_errors(counts),
    )
    yield counters(
        "corelkv_flow_blocked",
        "Times that flow control stopped this node from sending, by reason.",
        ("reason",),
        single(_with_prefix(counts, "blocked_"), ("window_full", "share_used", "backlog")),
    )
    yield gauge(
        "corelkv_window_messages",
        "Messages in the window: received, and not acknowledged by all. A rise: a member is slow to answer.",
        flow.window_messages,
    )
    yield gauge("corelkv_window_limit_messages", "At so many, sending stops.", flow.window_messages_max)
    yield gauge("corelkv_window_bytes", "The same in bytes.", flow.window_bytes)
    yield gauge(
        "corelkv_window_limit_bytes",
        "At so many, sending stops: what the smallest receive buffer holds.",
        flow.window_bytes_max,
    )
    yield gauge(
        "corelkv_flow_is_blocked", "1 while something waits and may not be sent.", flow.blocked is not None
    )
    yield gauge("corelkv_round_trip_seconds", "How long the members take to answer.", flow.round_trip_ms / 1_000.0)


_PLAIN_COUNTS = (
    ("corelkv_packets_sent", "packets_sent", "Packets of messages that this node sent."),
    ("corelkv_packets_received", "packets_received", "Packets of messages, retransmitted ones included."),
    (
        "corelkv_packets_retransmitted",
        "packets_retransmitted",
        "Packets that this node sent again for others. A rise: datagrams are lost.",
    ),
    (
        "corelkv_packets_duplicate",
        "duplicates",
        "Packets that were here already. A rise without losses: requests come too early.",
    ),
    ("corelkv_nacks_sent", "nacks_sent", "Requests for what is missing here. A rise: this node loses datagrams."),
    ("corelkv_statuses_sent", "statuses_sent", "Acknowledgements and heartbeats."),
    ("corelkv_controls_resent", "controls_resent", "Messages of the membership that were repeated for others."),
    ("corelkv_recovery_batches_sent", "batches_sent", "Batches of messages sent to nodes that lacked them."),
    ("corelkv_recovery_messages_received", "retransmissions_received", "Messages received in such batches."),
    ("corelkv_demoted_messages", "demoted", "Yellow messages that became red, because a primary component ended."),
    (
        "corelkv_refused_messages",
        "refused",
        "Messages that the log did not take. A rise: nodes of different versions.",
    ),
    (
        "corelkv_journal_entries_lost",
        "journal_lost",
        "Journal entries that were not written: its disk is slow or full.",
    ),
)
"""The metric, the name under which a machine counts, and what it means."""


def http_families(metrics: Metrics) -> Iterator[Metric]:
    routes = metrics.http.routes
    yield counters(
        "corelkv_http_requests",
        "Requests by call and status. 499: the client had gone before the answer.",
        ("method", "route", "status"),
        {
            (method, template, str(status)): count
            for (method, template), figures in routes.items()
            for status, count in figures.statuses.items()
        },
    )
    yield histograms(
        "corelkv_http_request_seconds",
        "Time from the request's headers to the end of the answer, without requests that wait for a change: "
        "watches, wait_revision, wait=green.",
        ("method", "route"),
        {tuple(route): figures.seconds for route, figures in routes.items() if figures.statuses},
    )
    yield counters(
        "corelkv_http_refusals",
        "Connections and requests refused before they reached a call, by error code.",
        ("code",),
        single(metrics.http.refusals),
    )


def queue_families(depths: dict[str, tuple[int, int]]) -> Iterator[Metric]:
    """`depths` are how full each queue is, and its bound."""
    yield gauges(
        "corelkv_queue_depth",
        "What waits in a queue that has a bound. At the bound, more is refused or waits before it.",
        ("queue",),
        {(queue,): depth for queue, (depth, _) in depths.items()},
    )
    yield gauges(
        "corelkv_queue_limit", "The bound.", ("queue",), {(queue,): limit for queue, (_, limit) in depths.items()}
    )


def loop_families(metrics: Metrics) -> Iterator[Metric]:
    yield histogram(
        "corelkv_event_loop_lag_seconds",
        "How late a timer was, ten times a second. A rise: something keeps this node from answering clients and "
        "peers, or the machine is overloaded.",
        metrics.loop.lags,
    )


def _socket_errors(counts: Counter[str]) -> Mapping[Labels, float]:
    found: Counter[Labels] = Counter()
    for prefix, operation in _SOCKET_OPERATIONS.items():
        for number, count in _with_prefix(counts, prefix).items():
            found[operation, errno.errorcode.get(int(number), "other")] += count
    return found


def _with_prefix(counts: Counter[str], prefix: str) -> dict[str, int]:
    return {name.removeprefix(prefix): count for name, count in counts.items() if name.startswith(prefix)}

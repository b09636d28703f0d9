"""The status of a node, its view of the cluster, and its log, as JSON."""

from __future__ import annotations

import time
from collections.abc import Mapping

from kvstore.node import LearningStatus, LogEntry, LogPage, Milestone, NodeStatus
from kvstore.store import (
    Append,
    Delete,
    Increment,
    Operation,
    Put,
    WriteError,
    decode_batch,
    decode_write,
    write_id,
)


def status_json(status: NodeStatus) -> dict[str, object]:
    return {
        "node": status.me.name,
        "incarnation": status.me.incarnation,
        "roster": list(status.weights),
        "weights": dict(status.weights),
        "view": _view_json(status),
        "state": str(status.stage),
        "phase": str(status.phase),
        "primary": status.is_primary,
        "voter": status.is_voter,
        "green": {"line": status.green_line, "revision": status.revision, "applied_line": status.applied_line},
        "yellow": {"line": status.yellow_line},
        "red": status.red,
        "last_committed_primary": status.last_committed_primary,
        "last_attempted_primary": status.last_attempted_primary,
        "held_writes": status.held_writes,
        "watchers": status.watchers,
        "oldest_revision": status.oldest_revision,
        "log": {"first": status.log_first, "bytes": status.log_bytes},
        "disk": status.trouble or "ok",
        "learning": _learning_json(status.learning),
        "disk_used": status.disk_usage._asdict(),
        "warnings": list(status.warnings),
        "dropped_datagrams": dict(status.dropped_datagrams),
        "chaos": status.is_disturbed,
        "uptime_s": round(status.uptime_s, 1),
        "lineage": [
            {
                "generation": entry.generation.hex(),
                "line": entry.line,
                "digest": entry.digest.hex(),
                "ended_ms": entry.ended_ms,
                "reason": entry.reason,
            }
            for entry in status.lineage
        ],
    }


def cluster_json(status: NodeStatus, urls: Mapping[str, str]) -> dict[str, object]:
    return {
        "view": _view_json(status),
        "state": str(status.stage),
        "primary": status.is_primary,
        "nodes": members_json(status, urls),
    }


def members_json(status: NodeStatus, urls: Mapping[str, str]) -> list[dict[str, object]]:
    """Returns what a node knows of every node of the roster: if it is connected, or when it was last heard."""
    present = {member.name: member for member in status.view.members}
    now_ms = time.time() * 1_000.0
    nodes: list[dict[str, object]] = []
    for name, weight in status.weights.items():
        member = present.get(name)
        nodes.append(
            {
                "name": name,
                "weight": weight,
                "url": urls.get(name),
                "me": name == status.me.name,
                "connected": member is not None,
                "incarnation": None if member is None else member.incarnation,
                "last_heard_ms": _last_heard(name, status, now_ms) if member is None else None,
            }
        )
    return nodes


def _last_heard(name: str, status: NodeStatus, now_ms: float) -> int | None:
    """Returns when a node that is not connected was last heard, by the wall clock. Rounded, so that it stays the
    same while nothing is heard."""
    silent_ms = status.silent_ms.get(name)
    return None if silent_ms is None else round((now_ms - silent_ms) / 100.0) * 100


def milestone_json(milestone: Milestone) -> dict[str, object]:
    return {
        "number": milestone.number,
        "time_ms": round(milestone.time_ms, 1),
        "event": milestone.event,
        "view": milestone.view,
        "reason": milestone.reason,
        "details": milestone.details,
    }


def _learning_json(learning: LearningStatus | None) -> dict[str, object] | None:
    if learning is None:
        return None
    return {
        "source": learning.source,
        "phase": str(learning.phase),
        "bytes": learning.bytes,
        "total_bytes": learning.total_bytes,
        "line": learning.line,
        "target": learning.target,
    }


def _view_json(status: NodeStatus) -> dict[str, object]:
    return {"id": str(status.view.id), "members": [member.name for member in status.view.members]}


def log_json(page: LogPage) -> dict[str, object]:
    return {"entries": [_entry_json(entry) for entry in page.entries], "next": page.following}


def _entry_json(entry: LogEntry) -> dict[str, object]:
    inspected = entry.inspected
    return {
        "position": inspected.position,
        "id": str(inspected.id),
        "color": str(inspected.color),
        "timestamp": inspected.timestamp.clock,
        "sender": inspected.id.stream.name,
        "view": str(inspected.view),
        "bytes": inspected.size_bytes,
        "acknowledged": [member.name for member in inspected.acknowledged],
        "operations": _operations_json(entry),
    }


def _operations_json(entry: LogEntry) -> list[dict[str, object]]:
    """Returns the operations of a message of the log, without the values."""
    try:
        writes = [decode_write(data) for data in decode_batch(entry.body).writes]
    except WriteError as error:
        return [{"undecodable": str(error)}]
    return [
        {"write": write_id(entry.inspected.id, index), **_operation_json(operation)}
        for index, write in enumerate(writes)
        for operation in (*write.then, *(write.otherwise or ()))
    ]


def _operation_json(operation: Operation) -> dict[str, object]:
    content: dict[str, object] = {"key": operation.key}
    if isinstance(operation, (Put, Append)):
        content["bytes"] = len(operation.value)
        return {"put" if isinstance(operation, Put) else "append": content}
    if isinstance(operation, Increment):
        return {"increment": {**content, "by": operation.by}}
    return {"delete" if isinstance(operation, Delete) else "get": content}

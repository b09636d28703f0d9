"""What a node says of itself and of the others, as JSON."""

from __future__ import annotations

import time
from collections.abc import Mapping

from corel.corel import Corel
from corel.inspection import Inspected
from kvstore.green_state import write_id
from kvstore.operations import Append, Delete, Increment, Operation, Put
from kvstore.service import Service
from kvstore.write_codec import WriteError, decode_batch, decode_write


def status_json(service: Service) -> dict[str, object]:
    log, node, queue = service.log, service.node, service.log.queue
    trouble = service.participant.trouble
    green = service.machine.green
    return {
        "node": log.me.name,
        "incarnation": log.me.incarnation,
        "roster": list(log.roster.weights),
        "weights": dict(log.roster.weights),
        "view": {"id": str(log.view.id), "members": [member.name for member in log.view.members]},
        "state": str(log.stage),
        "phase": log.phase,
        "primary": service.is_primary,
        "voter": log.is_voter,
        "green": {"line": queue.green, "revision": green.revision, "applied_line": green.line},
        "yellow": {"line": queue.yellow_line},
        "red": len(queue.red),
        "last_committed_primary": log.committed,
        "last_attempted_primary": log.attempted,
        "held_writes": service.machine.held,
        "disk": "ok" if trouble is None else str(trouble),
        "dropped_datagrams": {str(reason): count for reason, count in node.peer_errors.counts.items()},
        "chaos": node.chaos is not None and node.chaos.chaos != type(node.chaos.chaos)(),
        "uptime_s": round(time.time() - service.started_at, 1),
    }


def cluster_json(service: Service, urls: Mapping[str, str]) -> dict[str, object]:
    log = service.log
    present = {member.name: member for member in log.view.members}
    nodes: list[dict[str, object]] = []
    for name, weight in log.roster.weights.items():
        member = present.get(name)
        nodes.append(
            {
                "name": name,
                "weight": weight,
                "url": urls.get(name),
                "me": name == log.me.name,
                "connected": member is not None,
                "incarnation": None if member is None else member.incarnation,
            }
        )
    return {
        "view": {"id": str(log.view.id), "members": [member.name for member in log.view.members]},
        "state": str(log.stage),
        "primary": service.is_primary,
        "nodes": nodes,
    }


def log_json(service: Service, first: int, limit: int) -> dict[str, object]:
    entries = service.entries(first, limit)
    following = entries[-1].position + 1 if entries else min(first, len(service.log.queue))
    return {"entries": [_entry_json(service.log, entry) for entry in entries], "next": following}


def _entry_json(log: Corel, inspected: Inspected) -> dict[str, object]:
    return {
        "position": inspected.position,
        "id": str(inspected.id),
        "color": str(inspected.color),
        "timestamp": inspected.timestamp.clock,
        "sender": inspected.id.stream.name,
        "view": str(inspected.view),
        "bytes": inspected.size_bytes,
        "acknowledged": [member.name for member in inspected.acknowledged],
        "operations": _operations_json(log, inspected),
    }


def _operations_json(log: Corel, inspected: Inspected) -> list[dict[str, object]]:
    """What is asked for, without the values."""
    try:
        writes = [decode_write(data) for data in decode_batch(log.body_of(inspected.entry))]
    except WriteError as error:
        return [{"undecodable": str(error)}]
    return [
        {"write": write_id(inspected.id, index), **_operation_json(operation)}
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

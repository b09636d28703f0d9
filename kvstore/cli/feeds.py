"""The commands that print as they go: lists, changes, history and conflicts. With --json, one object to a line."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import islice
from typing import Any

from kvstore.cli.commands import client_of
from kvstore.cli.output import Exit, UsageError, on_one_line, print_json_line, shown_value
from kvstore.client import (
    Change,
    Client,
    Conflict,
    Decided,
    Event,
    Item,
    Operation,
    Preview,
    Recolored,
    Reconnected,
    Tentative,
    Version,
    WatchEvent,
)

# Lists


def list_keys(options: argparse.Namespace) -> int:
    """A page is asked for when the one before has been printed: `corelkv list | head` reads one."""
    asked: Any = {name: getattr(options, name) for name in ("prefix", "start", "end", "read", "revision")}
    asked = {name: value for name, value in asked.items() if value is not None}
    if options.reverse:
        asked["reverse"] = True
    if options.limit:
        asked["page_size"] = min(options.limit, 1_000)
    with client_of(options) as client:
        if options.count:
            return _print_count(options, client, asked)
        if options.keys_only:
            for key in islice(client.keys(**asked), options.limit):
                _print(options, key.key, {"key": key.key, "revision": key.revision})
        else:
            for item in islice(client.list(**asked), options.limit):
                _print(options, f"{item.key}\t{on_one_line(item.value)}", _item_json(item))
    return Exit.OK


def _print_count(options: argparse.Namespace, client: Client, asked: Any) -> int:
    found = client.count(**asked)
    _print(options, str(found.count), {"count": found.count, "revision": found.revision})
    return Exit.OK


def _item_json(item: Item) -> dict[str, object]:
    content: dict[str, object] = {
        "key": item.key,
        "value": shown_value(item.value),
        "revision": item.revision,
        "content_type": item.content_type,
    }
    return content if item.color == "green" else {**content, "color": item.color}


# Changes


def watch(options: argparse.Namespace) -> int:
    if options.key is not None and options.prefix:
        raise UsageError("watch takes prefixes or one --key, not both")
    asked: Any = {"previous": True} if options.prev else {}
    if options.prefix:
        asked["prefix"] = options.prefix
    if options.key is not None:
        asked["key"] = options.key
    if options.first is not None:
        asked["from_revision"] = options.first
    with client_of(options) as client:
        events: Iterator[WatchEvent] = (
            client.watch_tentative(**asked) if options.tentative else client.watch(**asked)
        )
        for event in islice(events, options.count):
            if options.json:
                print_json_line(_event_json(event))
            else:
                for line in _event_lines(event, with_write=options.tentative):
                    print(line, flush=True)
    return Exit.OK


def _event_lines(event: WatchEvent, with_write: bool) -> list[str]:
    """Returns what to show of an event. Beside tentative writes, a change says which of them it is."""
    if isinstance(event, Event):
        write = f"\t(write {event.write})" if with_write else ""
        return [f"{event.revision}\t{_change_line(change)}{write}" for change in event.changes]
    if isinstance(event, Tentative):
        return [f"{event.color}\t{_operation_line(one)}\t(write {event.write})" for one in event.operations]
    if isinstance(event, Recolored):
        return [f"{event.color}\t(write {event.write})"]
    if isinstance(event, Decided):
        why = "" if event.reason is None else f": {event.reason}"
        return [f"{event.outcome}{why}\t(write {event.write})"]
    return [f"reconnected\t{event.url}"]


def _change_line(change: Change) -> str:
    what = f"delete\t{change.key}" if change.is_deletion else f"put\t{change.key}\t{on_one_line(change.value)}"
    before = change.previous
    return what if before is None else f"{what}\t(before: {on_one_line(before.value)})"


def _operation_line(operation: Operation) -> str:
    what = f"{operation.kind}\t{operation.key}"
    if operation.by is not None:
        return f"{what}\t{operation.by}"
    return what if operation.value is None else f"{what}\t{on_one_line(operation.value)}"


def _event_json(event: WatchEvent) -> dict[str, object]:
    if isinstance(event, Reconnected):
        return {"event": "reconnected", "url": event.url}
    content: dict[str, object] = {"write": event.write}
    if isinstance(event, Event):
        content = {"revision": event.revision, **content}
    elif isinstance(event, Decided):
        details = {"outcome": event.outcome, "reason": event.reason, "key": event.key}
        return {"event": "outcome", **content, **{name: one for name, one in details.items() if one is not None}}
    else:
        name = "tentative" if isinstance(event, Tentative) else "recolored"
        content = {"event": name, **content, "color": event.color}
    if isinstance(event, Event):
        content["changes"] = [_change_json(change) for change in event.changes]
    elif isinstance(event, Tentative):
        content["operations"] = [_operation_json(operation) for operation in event.operations]
    return content


def _operation_json(operation: Operation) -> dict[str, object]:
    """As transactions and the API have it."""
    content: dict[str, object] = {"key": operation.key}
    if operation.value is not None:
        content["value"] = shown_value(operation.value)
    if operation.content_type is not None:
        content["content_type"] = operation.content_type
    if operation.by is not None:
        content["by"] = operation.by
    return {operation.kind: content}


def _change_json(change: Change) -> dict[str, object]:
    content: dict[str, object] = {"key": change.key}
    if change.value is None:
        content["deleted"] = True
    else:
        content |= {"value": shown_value(change.value), "content_type": change.content_type}
    if (before := change.previous) is not None:
        content["prev"] = {"value": shown_value(before.value), "revision": before.revision}
    return content


# What was, and what a merge changed


def history(options: argparse.Namespace) -> int:
    with client_of(options) as client:
        for version in islice(client.history(options.key), options.limit):
            _print(options, _version_line(version), _version_json(version))
    return Exit.OK


def _version_line(version: Version) -> str:
    what = "delete" if version.value is None else f"put\t{on_one_line(version.value)}"
    return f"{version.revision}\t{what}\t(write {version.write})"


def _version_json(version: Version) -> dict[str, object]:
    content: dict[str, object] = {"key": version.key, "revision": version.revision, "write": version.write}
    if version.value is None:
        return {**content, "deleted": True}
    return {**content, "value": shown_value(version.value), "content_type": version.content_type}


def conflicts(options: argparse.Namespace) -> int:
    if options.preview and options.first is not None:
        raise UsageError("a preview has no revisions yet: leave --from out")
    with client_of(options) as client:
        if options.preview:
            for preview in islice(client.preview(options.prefix), options.limit):
                _print(options, _preview_line(preview), preview.details)
        else:
            for conflict in islice(client.conflicts(options.first, options.prefix), options.limit):
                _print(options, _conflict_line(conflict), conflict.details)
    return Exit.OK


def _conflict_line(conflict: Conflict) -> str:
    value = "" if conflict.value is None else f" {on_one_line(conflict.value)}"
    if (operation := conflict.operation) is not None:
        value = f" {operation.kind} {on_one_line(operation.value) if operation.by is None else operation.by}"
    line = f"{conflict.kind}\t{conflict.key}\t{conflict.write}{value}"
    if conflict.other_write is None:
        return line
    other = "" if conflict.other_value is None else f" {on_one_line(conflict.other_value)}"
    return f"{line}\t(other: {conflict.other_write}{other})"


def _preview_line(preview: Preview) -> str:
    keys = ", ".join(str(change.get("key")) for change in preview.details.get("changes", ()))
    return f"{preview.color}\t{preview.outcome}\t{keys}\t(write {preview.write})"


def _print(options: argparse.Namespace, line: str, content: object) -> None:
    if options.json:
        print_json_line(content)
    else:
        print(line)

"""The commands that print as they go: lists, changes, history and conflicts. With --json, one object to a line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from typing import Any, TypeVar

from kvstore.cli.commands import client_of
from kvstore.cli.output import Exit, UsageError, on_one_line, print_json_line, shown_value
from kvstore.cli.progress import Advance, is_shown, progress
from kvstore.cli.tables import Row, print_rows
from kvstore.client import (
    Change,
    Client,
    Conflict,
    Decided,
    Event,
    Item,
    KeyRevision,
    Operation,
    Preview,
    Recolored,
    Reconnected,
    Tentative,
    Version,
    WatchEvent,
)

T = TypeVar("T")

_COUNT_STEP = 100
"""After how many keys the bar moves: drawing takes longer than printing a key."""

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
        with _progress(options, client, asked) as advance:
            if options.keys_only:
                keys = _counted(islice(client.keys(**asked), options.limit), advance)
                _print_all(options, ("key", "revision"), keys, _key_row, _key_json)
            else:
                items = _counted(islice(client.list(**asked), options.limit), advance)
                _print_all(options, ("key", "revision", "value"), items, _item_row, _item_json)
    return Exit.OK


def _print_count(options: argparse.Namespace, client: Client, asked: Any) -> int:
    found = client.count(**asked)
    if options.json:
        print_json_line({"count": found.count, "revision": found.revision})
    else:
        print(found.count)
    return Exit.OK


def _progress(options: argparse.Namespace, client: Client, asked: Any) -> AbstractContextManager[Advance]:
    """A list that goes to a file says how far it is. On a terminal the list itself shows that."""
    if sys.stdout.isatty() or not is_shown():
        return nullcontext(lambda done: None)
    count = client.count(**{name: value for name, value in asked.items() if name != "page_size"}).count
    return progress("keys", count if options.limit is None else min(count, options.limit))


def _counted(items: Iterable[T], advance: Advance) -> Iterator[T]:
    for done, item in enumerate(items, 1):
        yield item
        if done % _COUNT_STEP == 0:
            advance(done)


def _key_row(key: KeyRevision) -> Row:
    return Row((key.key, str(key.revision or "")), key.key)


def _key_json(key: KeyRevision) -> object:
    return {"key": key.key, "revision": key.revision}


def _item_row(item: Item) -> Row:
    value = on_one_line(item.value)
    return Row((item.key, str(item.revision or ""), value), f"{item.key}\t{value}")


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
        versions = islice(client.history(options.key), options.limit)
        _print_all(options, ("revision", "what", "value", "write"), versions, _version_row, _version_json)
    return Exit.OK


def _version_row(version: Version) -> Row:
    value = on_one_line(version.value)
    what, line = ("delete", "delete") if version.value is None else ("put", f"put\t{value}")
    line = f"{version.revision}\t{line}\t(write {version.write})"
    return Row((str(version.revision), what, value, version.write), line)


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
            previews = islice(client.preview(options.prefix), options.limit)
            previewed = ("color", "outcome", "keys", "write")
            _print_all(options, previewed, previews, _preview_row, lambda preview: preview.details)
        else:
            found = islice(client.conflicts(options.first, options.prefix), options.limit)
            header = ("kind", "key", "write", "value", "other write", "other")
            _print_all(options, header, found, _conflict_row, lambda conflict: conflict.details)
    return Exit.OK


def _conflict_row(conflict: Conflict) -> Row:
    value = on_one_line(conflict.value)
    if (operation := conflict.operation) is not None:
        value = f"{operation.kind} {on_one_line(operation.value) if operation.by is None else operation.by}"
    other = on_one_line(conflict.other_value)
    line = f"{conflict.kind}\t{conflict.key}\t{_side(conflict.write, value)}"
    if conflict.other_write is not None:
        line += f"\t(other: {_side(conflict.other_write, other)})"
    return Row((conflict.kind, conflict.key, conflict.write, value, conflict.other_write or "", other), line)


def _side(write: str, value: str) -> str:
    return f"{write} {value}" if value else write


def _preview_row(preview: Preview) -> Row:
    keys = ", ".join(str(change.get("key")) for change in preview.details.get("changes", ()))
    line = f"{preview.color}\t{preview.outcome}\t{keys}\t(write {preview.write})"
    return Row((preview.color, preview.outcome, keys, preview.write), line)


def _print_all(
    options: argparse.Namespace,
    header: Sequence[str],
    items: Iterable[T],
    row: Callable[[T], Row],
    content: Callable[[T], object],
) -> None:
    if options.json:
        for item in items:
            print_json_line(content(item))
    else:
        print_rows(header, map(row, items))

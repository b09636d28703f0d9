"""The commands that send requests to nodes. They print the result as text or JSON and return an exit status."""

from __future__ import annotations

import argparse
import json
import mimetypes
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from kvstore.cli.node_state import NodeState, NotAStatus
from kvstore.cli.output import Exit, UsageError, fail, print_json, shown_value
from kvstore.cli.progress import progress
from kvstore.cli.tables import print_table
from kvstore.client import ANSWER_SECONDS, Client, ClientError, Reply, Request, RetryPolicy, Unreachable, key_path

DEFAULT_URL = "http://127.0.0.1:8001"
NOTICE_SECONDS = 10.0
"""How long `partition` and `heal` wait until every node has its new view."""
_SHOWN_OPERATIONS_MAX = 4
_OF_STATUS = {202: Exit.NOT_FINAL, 412: Exit.CONDITION_FAILED, 404: Exit.NOT_FOUND}


# Keys


def put(options: argparse.Namespace) -> int:
    value, guessed = _value(options)
    headers = {"Content-Type": options.content_type or guessed}
    return _send_write(options, "PUT", headers, value)


def _value(options: argparse.Namespace) -> tuple[bytes, str]:
    """Returns the value to put, and its content type as far as that can be guessed."""
    if (options.value is None) == (options.file is None):
        raise UsageError("put takes one value: as an argument, - for stdin, or --file")
    if options.file is not None:
        try:
            value = options.file.read_bytes()
        except OSError as error:
            raise UsageError(f"cannot read {options.file}: {error.strerror}") from None
        return value, mimetypes.guess_type(options.file.name)[0] or "application/octet-stream"
    if options.value == "-":
        return sys.stdin.buffer.read(), "application/octet-stream"
    return os.fsencode(options.value), "text/plain; charset=utf-8"


def delete(options: argparse.Namespace) -> int:
    return _send_write(options, "DELETE", {}, None)


def _send_write(options: argparse.Namespace, method: str, headers: dict[str, str], body: bytes | None) -> int:
    if options.if_match is not None:
        headers["If-Match"] = _quoted(options.if_match)
    if options.if_none_match is not None:
        headers["If-None-Match"] = options.if_none_match
    if options.idempotency_key is not None:
        headers["Idempotency-Key"] = options.idempotency_key
    query = _query(ack=options.ack, timeout_ms=options.timeout_ms, merge=options.merge)
    request = Request(method, key_path(options.key), query, headers, body, _answer_seconds(options))
    return _report(options, _send(options, request), _fate)


def get(options: argparse.Namespace) -> int:
    query = _query(
        read=options.read,
        min_revision=options.min_revision,
        wait_revision=options.wait_revision,
        revision=options.revision,
        timeout_ms=options.timeout_ms,
    )
    request = Request("GET", key_path(options.key), query, answer_seconds=_answer_seconds(options))
    reply = _send(options, request)
    if reply.status == 304:
        return fail(f"{options.key} did not change after revision {options.wait_revision} in time", Exit.FAILED)
    if reply.status != 200:
        return _report(options, reply, _fate)
    if options.output is not None:
        try:
            options.output.write_bytes(reply.body)
        except OSError as error:
            return fail(f"cannot write {options.output}: {error.strerror}", Exit.FAILED)
    if options.json:
        print_json(_item(options.key, reply, with_value=options.output is None))
    elif options.output is None:
        sys.stdout.buffer.write(reply.body)
        if sys.stdout.isatty() and not reply.body.endswith(b"\n"):
            sys.stdout.buffer.write(b"\n")
        sys.stdout.buffer.flush()
    return Exit.OK


def _item(key: str, reply: Reply, with_value: bool) -> dict[str, object]:
    revision = reply.headers.get("corel-revision")
    item: dict[str, object] = {
        "key": key,
        "revision": None if revision is None else int(revision),
        "color": reply.headers.get("corel-color"),
        "etag": reply.headers.get("etag"),
        "content_type": reply.headers.get("content-type"),
    }
    if with_value:
        item["value"] = shown_value(reply.body)
    return item


# Inspection


def write(options: argparse.Namespace) -> int:
    query = _query(wait="green" if options.wait else None, timeout_ms=options.timeout_ms)
    path = f"/v1/writes/{quote(options.id, safe='')}"
    reply = _send(options, Request("GET", path, query, answer_seconds=_answer_seconds(options)))
    status = _report(options, reply, _fate)
    if status is not Exit.OK:
        return status
    content = reply.json()
    return _EXITS_OF_OUTCOMES.get(content.get("duplicate_outcome") or content.get("outcome"), Exit.OK)


_EXITS_OF_OUTCOMES = {
    "pending": Exit.NOT_FINAL,
    "rejected": Exit.CONDITION_FAILED,
    "yielded": Exit.CONDITION_FAILED,
    "expired": Exit.FAILED,
}


def _fate(content: Mapping[str, Any]) -> str:
    """Returns one line that says what became of a write, and how to wait for it if it is not final yet."""
    color, outcome, write_id = content.get("color"), content.get("outcome"), content.get("id")
    if outcome == "pending":
        return f"{color}, accepted (write {write_id}); to wait until it is final: corelkv write --wait {write_id}"
    if outcome == "rejected":
        return f"{color}, rejected: {content.get('reason')} (write {write_id})"
    if outcome == "yielded":
        return f"{color}, yielded to write {content.get('beaten_by')}; nothing was changed (write {write_id})"
    if outcome == "expired":
        return f"{color}, expired: read the key before writing again with a new idempotency key (write {write_id})"
    if content.get("duplicate_outcome") in ("rejected", "yielded"):
        ended = (
            "yielded" if content["duplicate_outcome"] == "yielded" else f"was rejected: {content.get('reason')}"
        )
        return f"{color}, duplicate of {content.get('duplicate_of')}, which {ended} (write {write_id})"
    what = f"duplicate of {content.get('duplicate_of')}" if outcome == "duplicate" else str(outcome)
    where = f" at revision {content['revision']}" if content.get("revision") else ""
    return f"{color}, {what}{where} (write {write_id})"


def log(options: argparse.Namespace) -> int:
    query = _query(limit=options.limit)
    if options.first is not None:
        query["from"] = str(options.first)
    reply = _send(options, Request("GET", "/v1/log", query))
    if options.json or not reply.is_success:
        status = _report(options, reply, str)
        if isinstance(first := reply.problem.get("first"), int) and not options.json:
            print(f"corelkv: what is kept: corelkv log --from {first}", file=sys.stderr)
        return status
    _print_log(reply.json())
    return Exit.OK


def _print_log(page: Mapping[str, Any]) -> None:
    rows = [
        (str(entry["position"]), entry["color"], entry["id"], _operations(entry["operations"]))
        for entry in page["entries"]
    ]
    if not rows:
        print(f"there is nothing from position {page['next']} on")
        return
    print_table(("position", "color", "message", "operations"), rows)
    print(f"\nwhat follows: corelkv log --from {page['next']}")


def _operations(operations: Sequence[Mapping[str, Any]]) -> str:
    """Returns operations as text, such as `put greeting, delete x`. In an operation's object, the one key other
    than `write` says what it does."""
    shown = []
    for operation in operations[:_SHOWN_OPERATIONS_MAX]:
        [(what, details)] = [item for item in operation.items() if item[0] != "write"]
        shown.append(f"{what} {details.get('key', '') if isinstance(details, dict) else details}")
    more = len(operations) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def status_of(name: str, url: str | None) -> dict[str, Any]:
    """Returns what a node says of itself, with its URL, or `error`."""
    found = {"node": name, "url": url or None}
    if not url:
        return {**found, "error": "its URL is not known: start nodes with --urls"}
    try:
        with Client(url) as client:
            reply = client.send(Request("GET", "/v1/status", answer_seconds=5.0))
        if not reply.is_success:
            return {**found, "error": reply.message}
        NodeState.of(content := reply.json())
        return {**content, "url": url}
    except (ClientError, Unreachable, NotAStatus) as error:
        return {**found, "error": str(error)}


# Chaos


def partition(options: argparse.Namespace) -> int:
    sides = [[name.strip() for name in side.split(",") if name.strip()] for side in options.sides.split("|")]
    sides = [side for side in sides if side]
    nodes = cluster_of(options)
    check_sides(sides, [node["name"] for node in nodes])
    spoiled = {}
    for side in sides:
        others = [node["name"] for node in nodes if node["name"] not in side]
        for name in side:
            spoiled[name] = json.dumps({"drop_from": others, "drop_to": others}).encode()
    requests = {
        name: Request("PUT", "/v1/chaos", {}, {"Content-Type": "application/json"}, body)
        for name, body in spoiled.items()
    }
    return _apply_chaos(options, nodes, requests, sides)


def check_sides(sides: Sequence[Sequence[str]], names: Sequence[str]) -> None:
    """Raises `UsageError` unless every node is on exactly one side, and there are at least two sides."""
    named = [name for side in sides for name in side]
    if unknown := [name for name in named if name not in names]:
        raise UsageError(f"there is no node {unknown[0]}; there are {', '.join(names)}")
    if twice := [name for name in names if named.count(name) > 1]:
        raise UsageError(f"{twice[0]} is named twice: a node is on one side")
    if missing := [name for name in names if name not in named]:
        raise UsageError(f"every node is on some side, and {', '.join(missing)} is not: add it")
    if len(sides) < 2:
        raise UsageError('a partition has at least two sides, like "a,b|c"')


def heal(options: argparse.Namespace) -> int:
    nodes = cluster_of(options)
    requests = {node["name"]: Request("DELETE", "/v1/chaos") for node in nodes}
    return _apply_chaos(options, nodes, requests, [[node["name"] for node in nodes]])


def _apply_chaos(
    options: argparse.Namespace,
    nodes: Sequence[Mapping[str, Any]],
    requests: Mapping[str, Request],
    sides: Sequence[Sequence[str]],
) -> int:
    """Sends every node its new chaos settings, then waits until the views match the sides."""
    done = f"cut: {' | '.join(map(','.join, sides))}" if len(sides) > 1 else f"mended: {','.join(sides[0])}"
    status = _send_to_all(options, nodes, requests)
    if status is not Exit.OK or options.json or options.no_wait:
        return status
    if _await_notice(nodes, sides):
        print(f"{done}; every node has noticed")
    else:
        print(f"{done}; not every node has noticed yet: see corelkv status")
    return Exit.OK


def _await_notice(nodes: Sequence[Mapping[str, Any]], sides: Sequence[Sequence[str]]) -> bool:
    """Returns whether every node has its new view before `NOTICE_SECONDS` are over."""
    end = time.monotonic() + NOTICE_SECONDS
    with progress("nodes that have noticed", len(nodes)) as advance:
        while (count := sum(_has_noticed(node, sides) for node in nodes)) < len(nodes):
            advance(count)
            if time.monotonic() > end:
                return False
            time.sleep(0.1)
    return True


def _has_noticed(node: Mapping[str, Any], sides: Sequence[Sequence[str]]) -> bool:
    status = status_of(node["name"], node["url"])
    [side] = [side for side in sides if node["name"] in side]
    if "error" in status or sorted(status["view"]["members"]) != sorted(side):
        return False
    return status["state"] in ("primary", "non_primary")


def _send_to_all(
    options: argparse.Namespace, nodes: Iterable[Mapping[str, Any]], requests: Mapping[str, Request]
) -> Exit:
    """Sends each node its request, also after one has failed: the more nodes know of a partition or its end, the
    better."""
    answers: dict[str, Any] = {}
    status = Exit.OK
    for node in nodes:
        name = node["name"]
        try:
            if not node.get("url"):
                raise Unreachable("its URL is not known: start nodes with --urls")
            with Client(node["url"]) as client:
                reply = client.send(requests[name])
        except Unreachable as error:
            answers[name] = {"error": "unreachable", "message": str(error)}
            status = fail(f"node {name}: {error}", Exit.UNREACHABLE)
        else:
            answers[name] = reply.json()
            if not reply.is_success:
                status = fail(f"node {name}: {reply.message}", Exit.FAILED)
    if options.json:
        print_json(answers)
    return status


# Requests and output


def client_of(options: argparse.Namespace) -> Client:
    """Returns a client of the nodes that were named, and of no others: each is asked once."""
    given = options.url or [os.environ.get("CORELKV_URL") or DEFAULT_URL]
    urls = [url.strip() for text in given for url in text.split(",") if url.strip()]
    return Client(urls, discover=False, retry=RetryPolicy(attempts_max=max(len(urls), 1)))


def _send(options: argparse.Namespace, request: Request) -> Reply:
    with client_of(options) as client:
        return client.send(request)


def cluster_of(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Returns every node of the roster, as the node that was asked knows it; its own URL is the one that it was
    asked by."""
    reply = _send(options, Request("GET", "/v1/cluster"))
    if not reply.is_success:
        raise ClientError(reply.message)
    return [{**node, "url": reply.url} if node.get("me") else node for node in reply.json()["nodes"]]


def _query(**parameters: object) -> dict[str, str]:
    return {name: str(value) for name, value in parameters.items() if value is not None}


def _answer_seconds(options: argparse.Namespace) -> float:
    return ANSWER_SECONDS if options.timeout_ms is None else options.timeout_ms / 1_000.0 + 10.0


def _quoted(tag: str) -> str:
    return tag if tag == "*" or tag.startswith('"') else f'"{tag}"'


def _report(options: argparse.Namespace, reply: Reply, show: Callable[[Mapping[str, Any]], str]) -> Exit:
    """Prints an answer of the API, be it a success or an error, and returns the exit status for it."""
    content = reply.json()
    if options.json:
        print_json(content)
    elif reply.is_success:
        print(show(content))
    else:
        fail(reply.message, Exit.FAILED)
    if content.get("error") == "yielded":
        return Exit.CONDITION_FAILED
    return _OF_STATUS.get(reply.status, Exit.OK if reply.is_success else Exit.FAILED)

"""`/v1/kv/{key}`, the calls that must be fast: plain ASGI, without the layers that would cost most of their time.
`kv_openapi` describes them for the OpenAPI document."""

from __future__ import annotations

from collections.abc import Mapping

from api.answers import (
    Response,
    etag,
    json_response,
    not_modified,
    problem_response,
    unchanged,
    value_response,
    write_response,
)
from api.measuring import UNTIMED
from api.problems import Problem, problem_of
from api.reads import Read, past_revision, until_changed, wait_for
from api.requests import (
    BodyBudget,
    Receive,
    Scope,
    Send,
    body_of,
    choice,
    conditions,
    headers_of,
    json_of,
    key_of,
    matches,
    number,
    parameters,
    timeout_ms,
    value_of,
    whole_number,
)
from corel import Color
from kvstore.node import Node
from kvstore.store import (
    NUMBER_MAX,
    VALUE_BYTES_MAX,
    Ack,
    Append,
    Compacted,
    Delete,
    Increment,
    InvalidWrite,
    Merge,
    Operation,
    Overloaded,
    Put,
    Write,
)

PREFIX = b"/v1/kv/"
PATCH_BYTES_MAX = 2 * VALUE_BYTES_MAX

_WRITE_PARAMETERS = ("ack", "timeout_ms", "merge")
_READ_PARAMETERS = ("read", "min_revision", "revision", "wait_revision", "timeout_ms")
_WRITE_HEADERS = (b"if-match", b"if-none-match", b"idempotency-key", b"content-type")
_METHODS = "GET, HEAD, PUT, PATCH, DELETE"
_PATCH_MERGES = "PATCH takes no merge policy: increment and append merge by themselves. Leave merge out."


class KeyValueApp:
    """An ASGI application for paths below `PREFIX`."""

    def __init__(self, node: Node, budget: BodyBudget) -> None:
        self._node = node
        self._budget = budget

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> int:
        """Answers a request, and returns the status."""
        method = scope["method"]
        try:
            if not scope["raw_path"].startswith(PREFIX):
                raise Problem(404, "no_such_path", "Only the key may be percent-encoded: write /v1/kv/ as it is.")
            key = key_of(scope["raw_path"][len(PREFIX) :])
            if method in ("GET", "HEAD"):
                response = await self._read(key, scope)
            elif method in ("PUT", "PATCH", "DELETE"):
                response = await self._write(method, key, scope, receive)
            else:
                raise Problem(
                    405,
                    "method_not_allowed",
                    f"A key takes {_METHODS}, not {method}.",
                    headers={"Allow": _METHODS},
                )
        except (Problem, InvalidWrite, Overloaded, Compacted) as error:
            response = problem_response(problem_of(error, self._node.revision))
        await response.send(send, with_body=method != "HEAD")
        return response.status

    # Reading

    async def _read(self, key: str, scope: Scope) -> Response:
        found = parameters(scope["query_string"], _READ_PARAMETERS) if scope["query_string"] else {}
        color = Color.GREEN
        level, past = Read.GREEN, None
        if found:
            level = choice(found, "read", Read, Read.GREEN)
            past = past_revision(found, level)
            least = max(past or 0, number(found, "min_revision", 0, 0, NUMBER_MAX))
            changed_after = _changed_after(found, level)
            await wait_for(self._node, level, least, timeout_ms(found))
            if changed_after is not None:
                scope["state"][UNTIMED] = True
                if not await until_changed(self._node, key, changed_after, timeout_ms(found)):
                    return unchanged(self._node.find(key))
        if past is not None:
            item = self._node.find_at(key, past)
        elif level is Read.RED:
            item, color = self._node.find_red(key)
        else:
            item = self._node.find(key)
        if item is None:
            where = "at this read level" if past is None else f"at revision {past}"
            return json_response(
                404,
                {"error": "not_found", "message": f"There is no key {key!r} {where}."},
                {"Corel-Color": str(color), "Corel-Revision": str(self._node.revision)},
            )
        for name, value in scope["headers"]:
            if name == b"if-none-match" and matches(value.decode("latin-1"), etag(item)):
                return not_modified(item, color)
        return value_response(item, color)

    # Writing

    async def _write(self, method: str, key: str, scope: Scope, receive: Receive) -> Response:
        query = scope["query_string"]
        found = parameters(query, _WRITE_PARAMETERS) if query else {}
        ack = choice(found, "ack", Ack, Ack.AUTO)
        merge = choice(found, "merge", Merge, Merge.LAST)
        if method == "PATCH" and "merge" in found:
            raise Problem(400, "invalid_parameter", _PATCH_MERGES)
        wait_ms = timeout_ms(found)
        headers = headers_of(scope, _WRITE_HEADERS)
        write_conditions = conditions(key, headers.get(b"if-match"), headers.get(b"if-none-match"))
        operation = await self._operation(method, key, headers, scope, receive)
        write = Write((operation,), write_conditions, None, headers.get(b"idempotency-key"), merge)
        return write_response(await self._node.write(write, ack, wait_ms))

    async def _operation(
        self, method: str, key: str, headers: Mapping[bytes, str], scope: Scope, receive: Receive
    ) -> Operation:
        if method == "PUT":
            value = await body_of(scope, receive, VALUE_BYTES_MAX, self._budget)
            return Put(key, value, headers.get(b"content-type", "application/octet-stream"))
        if method == "DELETE":
            await body_of(scope, receive, VALUE_BYTES_MAX, self._budget)
            return Delete(key)
        return change_of(key, await body_of(scope, receive, PATCH_BYTES_MAX, self._budget))


def change_of(key: str, body: bytes) -> Operation:
    """Returns the operation of a PATCH body: {"increment": n} or {"append": text}."""
    change = json_of(body)
    if not isinstance(change, dict) or len(change) != 1 or not {"increment", "append"} & set(change):
        raise Problem(400, "invalid_change", 'A change is {"increment": number} or {"append": "text"}.')
    if "increment" in change:
        return Increment(key, whole_number(change["increment"], "increment"))
    return Append(key, value_of(change["append"]))


def _changed_after(found: Mapping[str, str], level: Read) -> int | None:
    """Returns the revision after which the key is to have changed; None if the read does not wait for a change."""
    if "wait_revision" not in found:
        return None
    if level is not Read.GREEN or "revision" in found:
        raise Problem(
            400,
            "contradictory_parameters",
            "wait_revision waits for a change of the green state: leave read and revision out.",
        )
    return number(found, "wait_revision", 0, 0, NUMBER_MAX)

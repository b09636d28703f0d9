"""`/v1/kv/{key}`, the calls that must be fast: plain ASGI, without the layers that would cost most of their time.
`kv_openapi` describes them for the OpenAPI document."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from api.answers import (
    Response,
    etag,
    json_response,
    not_modified,
    problem_response,
    value_response,
    write_response,
)
from api.problems import Problem, problem_of, trouble
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
    Delete,
    Increment,
    InvalidWrite,
    Operation,
    Overloaded,
    Put,
    Trouble,
    Write,
)

PREFIX = b"/v1/kv/"
PATCH_BYTES_MAX = 2 * VALUE_BYTES_MAX

_WRITE_PARAMETERS = ("ack", "timeout_ms")
_READ_PARAMETERS = ("read", "min_revision", "timeout_ms")
_WRITE_HEADERS = (b"if-match", b"if-none-match", b"idempotency-key", b"content-type")
_METHODS = "GET, HEAD, PUT, PATCH, DELETE"


class Read(StrEnum):
    GREEN = "green"
    RED = "red"
    LINEARIZABLE = "linearizable"


class KeyValueApp:
    """An ASGI application for paths below `PREFIX`."""

    def __init__(self, node: Node, budget: BodyBudget) -> None:
        self._node = node
        self._budget = budget

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
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
        except (Problem, InvalidWrite, Overloaded) as error:
            response = problem_response(problem_of(error))
        await response.send(send, with_body=method != "HEAD")

    # Reading

    async def _read(self, key: str, scope: Scope) -> Response:
        found = parameters(scope["query_string"], _READ_PARAMETERS) if scope["query_string"] else {}
        color = Color.GREEN
        if found:
            level = choice(found, "read", Read, Read.GREEN)
            await self._wait_for(level, found)
        else:
            level = Read.GREEN
        if level is Read.RED:
            item, color = self._node.find_red(key)
        else:
            item = self._node.find(key)
        if item is None:
            return json_response(
                404,
                {"error": "not_found", "message": f"There is no key {key!r} at this read level."},
                {"Corel-Color": str(color)},
            )
        for name, value in scope["headers"]:
            if name == b"if-none-match" and matches(value.decode("latin-1"), etag(item)):
                return not_modified(item, color)
        return value_response(item, color)

    async def _wait_for(self, level: Read, found: Mapping[str, str]) -> None:
        wait_ms = timeout_ms(found)
        least = number(found, "min_revision", 0, 0, NUMBER_MAX)
        if level is Read.LINEARIZABLE:
            failed = await self._node.until_linearizable(wait_ms)
            if failed is not None:
                raise trouble(failed)
        failed = await self._node.until_revision(least, wait_ms) if least else None
        if failed is Trouble.TIMEOUT:
            at = self._node.revision
            raise Problem(
                504,
                "revision_not_reached",
                f"This node is at revision {at}, and did not reach {least} within timeout_ms. Wait longer, or "
                "ask a node that is further ahead.",
                {"revision": at},
                {"Retry-After": "1"},
            )
        if failed is not None:
            raise trouble(failed)

    # Writing

    async def _write(self, method: str, key: str, scope: Scope, receive: Receive) -> Response:
        query = scope["query_string"]
        found = parameters(query, _WRITE_PARAMETERS) if query else {}
        ack = choice(found, "ack", Ack, Ack.AUTO)
        wait_ms = timeout_ms(found)
        headers = headers_of(scope, _WRITE_HEADERS)
        write_conditions = conditions(key, headers.get(b"if-match"), headers.get(b"if-none-match"))
        operation = await self._operation(method, key, headers, scope, receive)
        write = Write((operation,), write_conditions, None, headers.get(b"idempotency-key"))
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

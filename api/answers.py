"""The responses to clients: statuses, headers and JSON bodies."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from typing import NamedTuple

from api.problems import Problem, trouble
from api.requests import Send
from corel import Color
from kvstore.store import (
    Accepted,
    Answer,
    Append,
    Delete,
    Done,
    Failed,
    Increment,
    Item,
    Operation,
    Outcome,
    Put,
    Trouble,
    Verdict,
    Why,
    Write,
)

_JSON = b"application/json"
to_json = json.JSONEncoder(separators=(",", ":")).encode
"""The encoder is made once: `json.dumps` would make a new one for each call."""
quoted = json.encoder.encode_basestring_ascii
"""Returns a text as JSON."""


class Response(NamedTuple):
    status: int
    body: bytes
    headers: list[tuple[bytes, bytes]]

    async def send(self, send: Send, with_body: bool = True) -> None:
        await send({"type": "http.response.start", "status": self.status, "headers": self.headers})
        await send({"type": "http.response.body", "body": self.body if with_body else b""})


def json_response(status: int, content: object, headers: Mapping[str, str] | None = None) -> Response:
    body = to_json(content).encode()
    lines = [(b"content-type", _JSON), (b"content-length", b"%d" % len(body))]
    for name, value in (headers or {}).items():
        lines.append((name.lower().encode(), value.encode("latin-1")))
    return Response(status, body, lines)


def problem_response(problem: Problem) -> Response:
    return json_response(problem.status, problem.body(), problem.headers)


def value_response(item: Item, color: Color) -> Response:
    """Returns the response with the value of a key, as its writer sent it."""
    headers = [
        (b"content-type", item.content_type.encode("latin-1", errors="replace")),
        (b"content-length", b"%d" % len(item.value)),
        (b"etag", etag(item).encode()),
        (b"corel-color", color.encode()),
    ]
    if item.revision is not None:
        headers.append((b"corel-revision", b"%d" % item.revision))
    return Response(200, item.value, headers)


def not_modified(item: Item, color: Color) -> Response:
    return Response(304, b"", [(b"etag", etag(item).encode()), (b"corel-color", color.encode())])


def unchanged(item: Item | None) -> Response:
    """Returns the response to a client that waited for a change in vain."""
    return Response(304, b"", []) if item is None else not_modified(item, Color.GREEN)


def etag(item: Item) -> str:
    """Returns the ETag of a value: its revision, or the id of its write while it has no revision yet."""
    return f'"{item.write_id if item.revision is None else item.revision}"'


def text_or_base64(value: bytes) -> object:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(value).decode()}


def item_json(key: str, item: Item) -> dict[str, object]:
    return {
        "key": key,
        "value": text_or_base64(item.value),
        "revision": item.revision,
        "content_type": item.content_type,
    }


def operation_json(operation: Operation) -> dict[str, object]:
    """Returns an operation with its value, as transactions have it."""
    content: dict[str, object] = {"key": operation.key}
    if isinstance(operation, Put):
        value, kind = text_or_base64(operation.value), operation.content_type
        return {"put": {**content, "value": value, "content_type": kind}}
    if isinstance(operation, Append):
        return {"append": {**content, "value": text_or_base64(operation.value)}}
    if isinstance(operation, Increment):
        return {"increment": {**content, "by": operation.by}}
    return {"delete" if isinstance(operation, Delete) else "get": content}


def write_response(answer: Answer, txn: Write | None = None) -> Response:
    """Returns the response to a write. That to a transaction has the results of its operations."""
    if isinstance(answer, Done):
        return _done(answer, txn)
    if isinstance(answer, Accepted):
        return _accepted(answer)
    return _failed(answer)


def _done(answer: Done, txn: Write | None) -> Response:
    outcome = answer.applied.outcome
    content = {"id": answer.write_id, **outcome_json(Color.GREEN, outcome)}
    headers = {"Corel-Color": "green", "Location": f"/v1/writes/{answer.write_id}"}
    if outcome.revision:
        headers["Corel-Revision"] = str(outcome.revision)
        if outcome.verdict is Verdict.APPLIED:
            headers["ETag"] = f'"{outcome.revision}"'
    status = status_of(outcome)
    if status != 200:
        content = {"error": _error_of(outcome), "message": _why(outcome), **content}
    elif txn is not None:
        content["succeeded"] = outcome.branch
        if outcome.verdict is Verdict.DUPLICATE:
            return json_response(status, content, headers)  # the results of the first are not kept
        operations = txn.then if outcome.branch else txn.otherwise or ()
        content["results"] = [
            None if item is None else item_json(operation.key, item)
            for operation, item in zip(operations, answer.applied.results, strict=False)
        ]
    return json_response(status, content, headers)


def status_of(outcome: Outcome) -> int:
    verdict = _decisive(outcome)
    if verdict is Verdict.APPLIED:
        return 200
    if verdict in (Verdict.EXPIRED, Verdict.YIELDED):
        return 409
    return _STATUSES.get(outcome.why, 412)


_STATUSES = {
    Why.NOT_A_NUMBER: 409,
    Why.OUT_OF_RANGE: 409,
    Why.VALUE_TOO_LARGE: 409,
    Why.IDEMPOTENCY_KEY_REUSED: 422,
}


def _error_of(outcome: Outcome) -> str:
    verdict = _decisive(outcome)
    if verdict in (Verdict.EXPIRED, Verdict.YIELDED):
        return str(verdict)
    return str(outcome.why or Why.CONDITION_FAILED)


def outcome_json(color: Color, outcome: Outcome | None) -> dict[str, object]:
    """Returns the outcome of a write, as its own answer and `/v1/writes/{id}` have it."""
    if outcome is None:
        return {"color": str(color), "outcome": "pending"}
    content: dict[str, object] = {
        "color": str(color),
        "revision": outcome.revision,
        "outcome": str(outcome.verdict),
    }
    if outcome.verdict is Verdict.DUPLICATE:
        content["duplicate_of"] = outcome.first_id
        content["duplicate_outcome"] = str(outcome.first_verdict)
    elif outcome.verdict is Verdict.YIELDED:
        content["beaten_by"] = outcome.first_id
    if outcome.why is not Why.NONE:
        content["reason"] = str(outcome.why)
    if outcome.key:
        content["key"] = outcome.key
    if _decisive(outcome) is Verdict.APPLIED and not outcome.branch:
        content["succeeded"] = False
    return content


def _decisive(outcome: Outcome) -> Verdict:
    """Returns what became of the write, or of the one that it is a duplicate of."""
    return outcome.first_verdict if outcome.verdict is Verdict.DUPLICATE else outcome.verdict


def _why(outcome: Outcome) -> str:
    key, revision = outcome.key, outcome.revision
    if outcome.verdict is Verdict.DUPLICATE and outcome.first_verdict is Verdict.YIELDED:
        return (
            f"This repeats write {outcome.first_id}, which yielded to another write of {key!r}. Nothing was "
            "changed. Read the key; if the write is still needed, send it with a new Idempotency-Key."
        )
    if outcome.verdict is Verdict.DUPLICATE:
        return (
            f"This repeats write {outcome.first_id}, which was rejected because of {key!r} ({outcome.why}). "
            "Nothing was changed. Read the key; if the write is still needed, send it with a new Idempotency-Key."
        )
    if outcome.verdict is Verdict.YIELDED:
        return (
            f"Write {outcome.first_id} changed {key!r} on the other side of a partition, and this write was to "
            "yield to such a change (merge=keep_green). Nothing was changed. Read the key; if the write is still "
            "needed, send it again."
        )
    if outcome.verdict is Verdict.EXPIRED:
        return (
            "This copy of the write got its final place too late: whether its Idempotency-Key was used before is "
            "forgotten. It changed nothing, but an earlier copy may have. Read the key; if the write is still "
            "needed, send it with a new Idempotency-Key."
        )
    if outcome.why is Why.CONDITION_FAILED:
        now = f"it is at revision {revision}" if revision else "it does not exist"
        return (
            f"The condition on {key!r} does not hold: {now}. Nothing was changed. Read it again, then try again."
        )
    if outcome.why is Why.NOT_A_NUMBER:
        return f"The value of {key!r} is not a decimal number of 64 bits, so nothing can be added to it."
    if outcome.why is Why.OUT_OF_RANGE:
        return f"The counter {key!r} would leave the range of signed 64-bit numbers. Nothing was changed."
    if outcome.why is Why.VALUE_TOO_LARGE:
        return f"The value of {key!r} would become larger than a value may be. Nothing was changed."
    return "This Idempotency-Key was used for another write before. Use a new key for a new write."


def _accepted(answer: Accepted) -> Response:
    content = {"id": answer.write_id, "color": str(answer.color), "outcome": "pending"}
    headers = {"Corel-Color": str(answer.color), "Location": f"/v1/writes/{answer.write_id}"}
    return json_response(202, content, headers)


def _failed(answer: Failed) -> Response:
    problem = trouble(answer.trouble)
    if answer.trouble is Trouble.UNDECIDED:
        where = f"/v1/writes/{answer.write_id}"
        problem.details["id"] = answer.write_id
        problem.headers["Location"] = where
    return problem_response(problem)

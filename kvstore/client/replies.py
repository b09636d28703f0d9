"""A node's answer, or why there is none, and the errors that follow from it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kvstore.client.errors import (
    ClientError,
    Compacted,
    ConditionFailed,
    CorelError,
    Expired,
    Happened,
    KeyReused,
    NoPrimary,
    NotFound,
    Overloaded,
    Refused,
    Rejected,
    RevisionNotReached,
    Unavailable,
    Undecided,
    Yielded,
)
from kvstore.client.requests import Request


@dataclass(frozen=True, slots=True)
class Reply:
    """A node's response. Header names are in lower case."""

    url: str
    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300

    def json(self) -> Any:
        try:
            return json.loads(self.body)
        except ValueError:
            raise self.not_understood("something that is not JSON") from None

    def fields(self) -> dict[str, Any]:
        """Returns the JSON object that the answer is. Raises `ClientError` if it is something else."""
        content = self.json()
        if not isinstance(content, dict):
            raise self.not_understood("JSON that is not an object")
        return content

    def not_understood(self, what: str) -> ClientError:
        return ClientError(
            f"{self.url} answered {self.status} with {what}: is it a corelkv node?",
            Happened.UNKNOWN,
            status=self.status,
        )

    @property
    def problem(self) -> dict[str, Any]:
        """What an error response says; empty if it is not one of a node, such as a proxy's."""
        with contextlib.suppress(ClientError):
            return self.fields()
        return {}

    @property
    def message(self) -> str:
        """The message of an error response, or the status and the beginning of the body if it has none."""
        if "message" in (content := self.problem):
            return str(content["message"])
        return f"{self.url} answered {self.status}: {self.body[:200].decode(errors='replace')}"

    @property
    def revision(self) -> int | None:
        """The revision that the answer is of, if it says so."""
        text = self.headers.get("corel-revision", "")
        return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None

    @property
    def retry_after(self) -> float | None:
        """For how many seconds the node asks not to be asked again."""
        text = self.headers.get("retry-after", "")
        return float(text) if text.isascii() and text.isdigit() and len(text) < 7 else None


@dataclass(frozen=True, slots=True)
class Failure:
    """There is no answer. `may_have_arrived` is whether anything was sent before that was known."""

    url: str
    reason: str
    may_have_arrived: bool

    @property
    def sentence(self) -> str:
        if self.may_have_arrived:
            return f"{self.url} did not answer ({self.reason})"
        return f"cannot reach {self.url} ({self.reason})"


@dataclass(frozen=True, slots=True)
class Judgement:
    """What an answer means for the request: whether the write happened, and whether to ask again."""

    happened: Happened
    is_final: bool
    """Whether this answer settles the request. If not, it is repeated where it may be."""
    once_each: bool = False
    """Whether every node is asked once at most: waiting would not change its answer."""
    settles_copies: bool = False
    """Whether it also says what became of copies of the same write that were sent before."""


def judge(request: Request, answer: Reply | Failure) -> Judgement:
    """Returns what an answer says about the request, if this is the only copy of it that was sent."""
    if isinstance(answer, Failure):
        is_open = answer.may_have_arrived and not request.is_read
        return Judgement(Happened.UNKNOWN if is_open else Happened.NO, False)
    if request.is_read:
        return _judge_read(request, answer)
    return _judge_write(answer)


def _judge_read(request: Request, reply: Reply) -> Judgement:
    if reply.status == 404 and request.path.startswith("/v1/writes/"):  # another node may know the write
        return Judgement(Happened.NO, False, once_each=True)
    if reply.problem.get("error") in ("revision_not_reached", "compacted"):  # another may be further, or keep more
        return Judgement(Happened.NO, False, once_each=True)
    return Judgement(Happened.NO, reply.status not in _REPEATED)


def _judge_write(reply: Reply) -> Judgement:
    status = reply.status
    if status in (200, 202):
        return Judgement(Happened.YES, True, settles_copies=True)
    if status in (409, 412, 422):
        outcome = reply.problem.get("outcome")
        if outcome == "expired":  # it changed nothing, but a copy of an earlier call may have
            return Judgement(Happened.UNKNOWN, True)
        return Judgement(Happened.NO, True, settles_copies=outcome in _DECIDED)
    if status in (408, 429, 503):  # a node has accepted nothing; a proxy between may have passed the write on
        return Judgement(Happened.NO if reply.problem.get("error") else Happened.UNKNOWN, False)
    if status in _REPEATED:
        return Judgement(Happened.UNKNOWN, False)
    return Judgement(Happened.NO if 400 <= status < 500 else Happened.UNKNOWN, True)


_REPEATED = frozenset({408, 429, 500, 502, 503, 504})
"""Statuses after which the same request may have another answer, from another node or later."""

_DECIDED = frozenset({"rejected", "yielded", "duplicate"})
"""Outcomes at a write's final place that hold for every copy with the same Idempotency-Key. `expired` is not one:
another copy may have been applied."""


def error_of(reply: Reply, happened: Happened) -> CorelError:
    """Returns the error that an answer other than a success is."""
    content = reply.problem
    code = str(content.get("error", ""))
    details = {name: value for name, value in content.items() if name not in ("error", "message")}
    if reply.status == 404 and (revision := reply.revision) is not None:
        details["revision"] = revision
    kind = _BY_CODE.get(code) or _BY_STATUS.get(reply.status)
    if kind is None:
        kind = Refused if 400 <= reply.status < 500 else Unavailable if reply.status >= 500 else ClientError
    return kind(reply.message, happened, code=code, status=reply.status, details=details)


_BY_CODE: dict[str, type[CorelError]] = {
    "no_primary": NoPrimary,
    "overloaded": Overloaded,
    "revision_not_reached": RevisionNotReached,
    "undecided": Undecided,
    "condition_failed": ConditionFailed,
    "idempotency_key_reused": KeyReused,
    "yielded": Yielded,
    "expired": Expired,
    "compacted": Compacted,
}

_BY_STATUS: dict[int, type[CorelError]] = {
    404: NotFound,
    409: Rejected,
    410: Compacted,
    412: ConditionFailed,
    422: KeyReused,
    429: Overloaded,
}


def outcome_error(content: Mapping[str, Any], message: str) -> CorelError | None:
    """Returns the error that a write's final outcome is, or `None` if it was applied."""
    outcome = content.get("outcome")
    if outcome not in ("rejected", "yielded", "expired"):
        return None
    code = str(content.get("reason") or outcome)
    kind = _BY_CODE.get(code, Rejected)
    happened = Happened.UNKNOWN if kind is Expired else Happened.NO
    return kind(message, happened, code=code, details=content)

"""Error responses: a status, a code for programs, and a sentence that says what to do next."""

from __future__ import annotations

from collections.abc import Mapping

from corel.disk_errors import DiskError, Truncated, UnusableLog
from kvstore.store import Compacted, FateForgotten, InvalidWrite, Overloaded, Trouble


class Problem(Exception):
    """Ends a request with an error. `details` are added to the body, and `headers` to the response."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        details: Mapping[str, object] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.details = dict(details or {})
        self.headers = dict(headers or {})

    def body(self) -> dict[str, object]:
        return {"error": self.code, "message": str(self), **self.details}


def problem_of(error: Exception, revision: int | None = None) -> Problem:
    """Returns the response to an error that any request can run into; raises every other error again. `revision`
    is that of the node."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, InvalidWrite):
        status = 413 if error.code in ("value_too_large", "txn_too_large") else 400
        return Problem(status, error.code, str(error))
    if isinstance(error, Compacted):
        return Problem(
            410,
            "compacted",
            f"The past is kept from revision {error.oldest} on: states from that one, changes and conflicts from "
            "the next. Ask for a later revision, or begin again without a revision and without a cursor.",
            {"oldest": error.oldest, "revision": revision},
        )
    if isinstance(error, Truncated):
        return Problem(
            410,
            "compacted",
            f"The log is kept from position {error.first} on. Ask for that one or a later one, or begin without "
            "`from`.",
            {"first": error.first},
        )
    if isinstance(error, FateForgotten):
        return Problem(
            410,
            "compacted",
            "This write is green, or there was none of this id, and that is so long ago that what became of it is "
            "no longer kept. Read the keys that it was to change.",
        )
    if isinstance(error, UnusableLog):
        return trouble(Trouble.AWAY, f"{error} Nothing was accepted. Try again in a second, or another node.")
    if isinstance(error, DiskError):
        return Problem(500, "damaged", f"What is on this node's disk cannot be read: {error}")
    if isinstance(error, Overloaded):
        return overloaded()
    raise error


def overloaded() -> Problem:
    return Problem(
        429,
        "overloaded",
        "Too much waits on this node already; nothing was accepted. Try again in a second, or another node.",
        headers={"Retry-After": "1"},
    )


def trouble(kind: Trouble, what: str = "") -> Problem:
    """Returns the response to a request that was not served. `what` replaces the usual sentence."""
    status, message = _SENTENCES[kind]
    return Problem(status, str(kind), what or message, headers={"Retry-After": "1"})


_SENTENCES = {
    Trouble.NO_PRIMARY: (
        503,
        "This node is not in a primary component: the nodes that are connected with it, and have votes, are no "
        "majority. Nothing was accepted. Try another node, or write with ack=auto or ack=red, and read with "
        "read=green or read=red.",
    ),
    Trouble.TIMEOUT: (
        503,
        "The nodes are agreeing on who is connected, and that took longer than timeout_ms. Nothing was accepted. "
        "Try again.",
    ),
    Trouble.OVERLOADED: (429, "Too much waits on this node already. Try again in a second."),
    Trouble.AWAY: (
        503,
        "This node takes no writes now: it is stopping, or its disk is full or does not answer (see /v1/status). "
        "Nothing was accepted. Try another node.",
    ),
    Trouble.UNDECIDED: (
        504,
        "The write was sent, but is not on this node's disk yet: it may be accepted, or not.",
    ),
}

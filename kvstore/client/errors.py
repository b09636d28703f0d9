"""What can go wrong for a client, as classes. Each error says whether the write that it is about happened.

`happened` is the one question that a program must answer before it goes on. `NO`: the write changed nothing and
never will, so it may be repeated or given up. `YES`: it took effect. `UNKNOWN`: it may have taken effect or may
still do so; to repeat it with the same Idempotency-Key is safe, to repeat it without one is not. Of a read,
`happened` is always `NO`."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any


class Happened(Enum):
    """Whether a write took effect."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


class CorelError(Exception):
    """The base of everything that this package raises. The text is a sentence that says what to do next."""

    def __init__(
        self,
        message: str,
        happened: Happened = Happened.NO,
        *,
        code: str = "",
        status: int | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.happened = happened
        self.code = code
        """The error code of the API, such as `no_primary`; empty if no node said one."""
        self.status = status
        """The HTTP status; `None` if no node answered."""
        self.details: dict[str, Any] = dict(details or {})
        """Everything else that the answer said."""

    @property
    def write_id(self) -> str | None:
        """The id of the write, if it got one: `client.write(id)` tells what became of it."""
        found = self.details.get("id")
        return found if isinstance(found, str) else None

    @property
    def key(self) -> str | None:
        """The key that the error is about, where the node named one."""
        found = self.details.get("key")
        return found if isinstance(found, str) else None

    @property
    def revision(self) -> int | None:
        """The revision that the answer named: that of the key for a failed condition (0: there is none)."""
        found = self.details.get("revision")
        return found if isinstance(found, int) else None


class ClientError(CorelError):
    """The request cannot be sent, or the answer is not one that a corelkv node gives."""


class Unreachable(CorelError):
    """No node answered. The message names those that were tried, and why each did not. `happened` is `NO` if no
    connection could be made, and `UNKNOWN` if the request may have arrived."""


# The node does not serve the request now


class Unavailable(CorelError):
    """No node that answered can serve the request now: it is stopping, its disk is full, or the nodes are agreeing
    on who is connected. The client has asked others, and waited, before it raises this. A node that says so
    accepted nothing; `happened` is `UNKNOWN` if another copy of the write may have been accepted."""


class NoPrimary(Unavailable):
    """A green write or a linearizable read needs a primary component, and no node that answered is in one."""


class Overloaded(Unavailable):
    """Too much waits on the node already."""


class RevisionNotReached(Unavailable):
    """No node that answered had the revision in time. `revision` is how far the last one was."""


class Undecided(CorelError):
    """The write had been sent to the other nodes, but was not on the node's disk in time. `client.write(write_id)`
    tells what became of it."""


class NotGreen(CorelError):
    """The write is accepted and durable, and did not become green in time. It stands: whether it applies is
    decided when it becomes green."""


# The node refused the request, or the write has its outcome


class Refused(CorelError):
    """The node did not take the request: a parameter, key or value is wrong, or something is too large."""


class NotFound(CorelError):
    """The node has no such write or path. Reads of a key do not raise this; they return `None`."""


class Rejected(CorelError):
    """The write got its final place, and could not be applied there: `code` says why, such as `not_a_number`. It
    changed nothing."""


class ConditionFailed(Rejected):
    """The write's condition did not hold at its final place. `key` and `revision` say what is there."""


class KeyReused(Rejected):
    """The Idempotency-Key was used for another write before. That one counts; this one changed nothing."""


class Yielded(Rejected):
    """The write asked for `merge="keep_green"`, and another write of the key became green before it."""

    @property
    def beaten_by(self) -> str | None:
        """The id of the write that it yielded to."""
        found = self.details.get("beaten_by")
        return found if isinstance(found, str) else None


class Expired(CorelError):
    """This copy of the write got its final place too late, and changed nothing. An earlier copy with the same
    Idempotency-Key may have been applied, so `happened` is `UNKNOWN`: read the key before writing again."""


class Compacted(CorelError):
    """What was asked for is older than what the nodes keep: a revision, a position of the log, or what became of a
    write. `oldest` is the first revision that the node still has, if a revision was asked for."""

    @property
    def oldest(self) -> int | None:
        found = self.details.get("oldest")
        return found if isinstance(found, int) else None


class Unchanged(CorelError):
    """The key that was waited for did not change in time."""


class LockLost(CorelError):
    """The lock is held by somebody else now, or the lease ran out before it could be renewed."""


class LockTimeout(CorelError):
    """Somebody else held the lock for as long as the caller was ready to wait."""

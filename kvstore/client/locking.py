"""A lock on a key, as steps, and the election of a leader by the same means.

The lock is a key. Who creates it (If-None-Match: *) holds it, and renews its lease by writing it again over the
revision that it wrote last. Who wants it waits for it to change; if it does not for as long as its value says that
a lease lasts, measured on the observer's own clock from the moment when it first saw that revision, the observer
writes itself into it over that revision (If-Match). All these writes are `ack=green`: of several that race, the
one order of all writes lets one through.

What that guarantees. Of all successful acquisitions, each has a revision of its own, and a later one a higher one:
`token`. A resource that remembers the highest token it has seen and refuses lower ones is never changed by a
former holder. That is the safety, and it needs no clock. That two holders do not *believe* that they hold the lock
at the same time is only as sure as clocks and schedulers are: a holder stops to believe when its own clock says
that the lease is over, counted from before its last renewal was sent, and the others begin to count later than
that, after they saw it; but a process that is paused between a look at `is_held` and what it does next knows
nothing of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from kvstore.client.calls import Calls
from kvstore.client.errors import ConditionFailed, CorelError, Happened, LockLost, LockTimeout, Refused
from kvstore.client.requests import PutOptions
from kvstore.client.results import Item
from kvstore.client.steps import Pause, Steps
from kvstore.client.transactions import Txn

LEASE_SECONDS = 10.0
RENEWALS_PER_LEASE = 3
LOOKS_PER_LEASE = 20
LOOK_SECONDS_MAX = 0.5


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a lock, as its key says."""

    owner: str
    """The name that the holder gave itself."""
    nonce: str
    """What is different each time that somebody wants the lock: names may be given twice."""
    renewal: int
    lease_seconds: float
    revision: int

    @staticmethod
    def of(item: Item) -> Holder:
        """Raises `LockLost` if the key holds something else than a lock."""
        try:
            content = json.loads(item.value)
            return Holder(
                str(content["owner"]),
                str(content["nonce"]),
                int(content["renewal"]),
                int(content["lease_ms"]) / 1_000.0,
                item.revision or 0,
            )
        except (ValueError, KeyError, TypeError):
            raise LockLost(f"{item.key!r} holds something else than a lock: use another key.") from None


class LockSteps:
    """One that wants, or holds, the lock. It is used by one thread or task at a time, which the shells see to."""

    def __init__(self, calls: Calls, key: str, owner: str, lease_seconds: float, draw: Callable[[], str]) -> None:
        if lease_seconds <= 0.0:
            raise ValueError("a lease lasts longer than nothing")
        self.key = key
        self.owner = owner
        self.lease_seconds = lease_seconds
        self.token: int | None = None
        """The revision of the acquisition: the fencing token. `None` if the lock is not held."""
        self._calls = calls
        self._clock = calls.session.clock
        self._draw = draw
        self._nonce = ""
        self._renewal = 0
        self._revision = 0
        self._held_until = 0.0
        self._seen = 0
        self._seen_at = 0.0
        """The revision of somebody else's lock, and since when it is known. Both outlast an attempt: who tries
        again and again, each time for less than a lease, takes over from a dead holder, too."""
        self._nodes_tell = True
        """Whether nodes answer a read as soon as the key changes."""

    @property
    def is_held(self) -> bool:
        """Whether the lease has not run out yet on this machine's clock."""
        return self.token is not None and self._clock() < self._held_until

    @property
    def renewal_seconds(self) -> float:
        return self.lease_seconds / RENEWALS_PER_LEASE

    def guard(self, txn: Txn) -> Txn:
        """Adds the condition that the lock has not been touched since its last renewal: a transaction of the same
        store then needs no other fencing. A renewal in between makes it fail, too: if `is_held`, try again."""
        return txn.if_revision(self.key, self._revision)

    # Acquiring

    def acquire(self, timeout: float | None) -> Steps[int]:
        """Waits for the lock, and returns its token. Raises `LockTimeout`."""
        self.token, self._nonce, self._renewal = None, self._draw(), 0
        end = None if timeout is None else self._clock() + timeout
        while True:
            holder = yield from self.look()
            if holder is not None and holder.nonce == self._nonce:  # written by an attempt whose answer was lost
                self._hold(holder.revision, self._held_until)
                yield from self.renew()
                return holder.revision
            if holder is not None and holder.revision != self._seen:
                self._seen, self._seen_at = holder.revision, self._clock()
            if holder is None or self._clock() - self._seen_at >= holder.lease_seconds:
                token = yield from self._try(None if holder is None else holder.revision)
                if token is not None:
                    return token
            if end is not None and self._clock() >= end:
                raise LockTimeout(f"Somebody else held {self.key!r} for all of {timeout:g} s.")
            yield from self._wait(holder, end)

    def _wait(self, holder: Holder | None, end: float | None) -> Steps[None]:
        """Waits until it is worth to look again. Nodes tell when the key changes; from those that do not, or fail,
        that is found out by looking often."""
        if holder is not None and self._nodes_tell:
            until = self._seen_at + holder.lease_seconds
            left = (until if end is None else min(until, end)) - self._clock()
            try:
                if left > 0.0:
                    changed = yield from self._calls.changed_within(self.key, holder.revision, left)
                    if changed is not None or self._clock() >= until:
                        return
            except Refused:  # it does not know that parameter
                self._nodes_tell = False
            except CorelError:
                pass
        yield Pause(self._look_seconds * (0.5 + 0.5 * self._calls.session.rng.random()))

    def _try(self, over: int | None) -> Steps[int | None]:
        """Writes the lock if nobody else has meanwhile. Returns the token, or `None`."""
        began = self._clock()
        try:
            revision = yield from self._put(over)
        except ConditionFailed:
            return None
        except CorelError as error:
            if error.happened is Happened.NO:
                raise
            self._held_until = began + self.lease_seconds  # if it was accepted, the next look finds it
            return None
        self._hold(revision, began + self.lease_seconds)
        return revision

    def _hold(self, revision: int, until: float) -> None:
        self.token = self._revision = revision
        self._held_until = until

    # Holding

    def renew(self) -> Steps[None]:
        """Writes the lock again, so that the lease begins anew. Raises `LockLost` if somebody else has it; other
        errors mean that it may be tried again while `is_held`."""
        if self.token is None:
            raise LockLost(f"{self.key!r} is not held.")
        began = self._clock()
        self._renewal += 1
        try:
            self._revision = yield from self._put(self._revision)
        except ConditionFailed:
            yield from self._renew_again()
        self._held_until = began + self.lease_seconds

    def _renew_again(self) -> Steps[None]:
        """The lock is somebody else's now, or an own renewal, whose answer was lost, has changed its revision."""
        holder = yield from self.look()
        try:
            if holder is not None and holder.nonce == self._nonce:
                self._revision = yield from self._put(holder.revision)
                return
        except ConditionFailed:
            pass
        self.token = None
        raise LockLost(f"{self.key!r} was taken over by somebody else.")

    def release(self) -> Steps[None]:
        """Removes the lock if it is still one's own. That it is not any more is no error."""
        if self.token is None:
            return
        self.token = None
        try:
            yield from self._calls.delete(self.key, {"if_match": self._revision, "ack": "green"})
        except ConditionFailed:
            holder = yield from self.look()
            if holder is not None and holder.nonce == self._nonce:
                yield from self._calls.delete(self.key, {"if_match": holder.revision, "ack": "green"})

    # The key

    def look(self) -> Steps[Holder | None]:
        """Returns who holds the lock, or `None` if nobody does."""
        item = yield from self._calls.get(self.key, {"read": "linearizable"})
        return None if item is None else Holder.of(item)

    def _put(self, over: int | None) -> Steps[int]:
        """Writes the lock over that revision, or creates it, and returns its new revision."""
        lease_ms = round(self.lease_seconds * 1_000)
        content = {"owner": self.owner, "nonce": self._nonce, "renewal": self._renewal, "lease_ms": lease_ms}
        options: PutOptions = {"ack": "green"}
        if over is None:
            options["if_absent"] = True
        else:
            options["if_match"] = over
        receipt = yield from self._calls.put(self.key, json.dumps(content), "application/json", options)
        if not receipt.is_green:
            receipt = yield from self._calls.wait_green(receipt, self.lease_seconds)
        return receipt.revision or 0

    @property
    def _look_seconds(self) -> float:
        return min(self.lease_seconds / LOOKS_PER_LEASE, LOOK_SECONDS_MAX)


class Holding:
    """What a lock says of itself, without waiting."""

    def __init__(self, steps: LockSteps) -> None:
        self._steps = steps

    @property
    def is_held(self) -> bool:
        """Whether the lease has not run out yet on this machine's clock."""
        return self._steps.is_held

    @property
    def token(self) -> int:
        """The fencing token: the revision of the acquisition. Raises `LockLost` if the lock is not held any
        more."""
        token = self._steps.token
        if token is None or not self._steps.is_held:
            raise LockLost(f"{self._steps.key!r} is not held.")
        return token

    def guard(self, txn: Txn) -> Txn:
        """Adds the condition that the lock is still held to a transaction of the same store. A renewal meanwhile
        makes the condition fail, too: if `is_held`, build the transaction again."""
        return self._steps.guard(txn)


class Leading:
    """What a candidate of an election says of itself, without waiting."""

    def __init__(self, lock: Holding) -> None:
        self._holding = lock

    @property
    def is_leader(self) -> bool:
        return self._holding.is_held

    @property
    def token(self) -> int:
        """The fencing token of this term. Raises `LockLost` if this candidate does not lead any more."""
        return self._holding.token

"""The two machines that a driver drives, as it sees them: the protocol stack, and the store above the log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from corel import ReplicaEffect
from kvstore.store import Checkpoint
from transport import NEVER, Datagram, Machine, Milliseconds, View


class Stack(Protocol):
    """The protocol machines below the store: a `Replica`, or in tests a part of one."""

    @property
    def me(self) -> Machine: ...

    @property
    def view(self) -> View: ...

    @property
    def clock(self) -> int:
        """The highest clock that anything sent so far can have."""

    def receive(self, datagram: Datagram, now: Milliseconds) -> Sequence[ReplicaEffect]: ...

    def port_unreachable(self, machine: Machine, now: Milliseconds) -> None: ...

    def tick(self, now: Milliseconds) -> Sequence[ReplicaEffect]: ...

    def next_deadline(self) -> Milliseconds: ...


class StoreMachine(Protocol):
    """The machine above the log, as the driver sees it: a `Store`."""

    def handle(self, report: ReplicaEffect) -> None:
        """Takes any report of the layers below; those that the store does not need are ignored."""

    def dispatch(self) -> None: ...

    def tick(self, now: Milliseconds) -> None: ...

    def next_deadline(self) -> Milliseconds: ...

    def take_checkpoint(self, green_on_disk: int, now: Milliseconds) -> Checkpoint | None: ...

    def checkpoint_written(self, checkpoint: Checkpoint) -> None: ...


class NoStore:
    """The store of a driver that has none: before `Driver.start`, and after `Driver.leave_store`."""

    def handle(self, report: ReplicaEffect) -> None: ...

    def dispatch(self) -> None: ...

    def tick(self, now: Milliseconds) -> None: ...

    def next_deadline(self) -> Milliseconds:
        return NEVER

    def take_checkpoint(self, green_on_disk: int, now: Milliseconds) -> Checkpoint | None:
        return None

    def checkpoint_written(self, checkpoint: Checkpoint) -> None: ...

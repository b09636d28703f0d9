"""The causal graph of control messages: those of the members, and behind their cut-counters those of foreign
machines (the paper's completion-DAG).

A control message enters when its sender's previous one has, and everything it acknowledges, as far as we follow
the machines concerned. Of a suspected machine only what somebody else has may still enter. The caller adds the
third condition, that the messages of the view it covers are here.

What has been heard is kept a while to be repeated to whoever lacks it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from membership.messages import Control
from transport.messages import Acks, Machine


class ControlStream:
    """One machine's control messages, from its cut-counter on."""

    __slots__ = ("inserted_through", "latest", "pending")

    def __init__(self, after: int) -> None:
        self.inserted_through = after
        self.pending: dict[int, Control] = {}
        self.latest: Control | None = None
        """The last we have, in the graph or not. Its acknowledgements include those of all before it but for
        machines
        that its sender follows no longer."""


class ControlDag:
    """One machine's graph. `log_max` bounds what is kept of each sender to repeat."""

    def __init__(self, me: Machine, log_max: int) -> None:
        self.me = me
        self.streams = {me: ControlStream(0)}
        self._pending_count = 0
        self._log_max = log_max
        self._log: dict[Machine, dict[int, Control]] = {me: {}}
        self._heard_through: dict[Machine, int] = {me: 0}
        self._kept: set[Machine] = {me}

    @property
    def own_sequence(self) -> int:
        return self.streams[self.me].inserted_through

    def track(self, machine: Machine, after: int) -> None:
        """Follows a machine's messages from here on, if we do not already."""
        if machine not in self.streams:
            self.streams[machine] = ControlStream(after)

    def keep_only(self, machines: Collection[Machine]) -> None:
        """Follows nobody else any more."""
        self.streams = {machine: stream for machine, stream in self.streams.items() if machine in machines}
        self._pending_count = sum(len(stream.pending) for stream in self.streams.values())

    def forget_all_but_these(self) -> None:
        """There is a new view. What those sent whom we follow now, who took part in it, is kept until the next but
        one: some member may not be as far as we are."""
        self._log = {m: log for m, log in self._log.items() if m in self.streams or m in self._kept}
        self._heard_through = {machine: self._heard_through[machine] for machine in self._log}
        self._kept = set(self.streams)

    def add_own(self, control: Control) -> None:
        own = self.streams[self.me]
        own.inserted_through = control.sequence
        own.latest = control
        self._remember(control)

    def is_new(self, control: Control) -> bool:
        """Whether we lack it and can keep it: what is further ahead than anybody's log is of no use yet."""
        stream = self.streams[control.sender]
        ahead = control.sequence - stream.inserted_through
        return 0 < ahead <= self._log_max and control.sequence not in stream.pending

    def store(self, control: Control) -> None:
        stream = self.streams[control.sender]
        stream.pending[control.sequence] = control
        self._pending_count += 1
        if stream.latest is None or control.sequence > stream.latest.sequence:
            stream.latest = control
        self._remember(control)

    def has_pending(self) -> bool:
        return self._pending_count > 0

    def pending(self) -> Iterator[Control]:
        for stream in self.streams.values():
            yield from stream.pending.values()

    def take_next(self, suspects: Collection[Machine], may_enter: Callable[[Control], bool]) -> Control | None:
        """Moves into the graph, and returns, a message that may enter."""
        for stream in self.streams.values():
            control = stream.pending.get(stream.inserted_through + 1)
            if control is None or not self._follows_only_known(control):
                continue
            if not self.is_wanted(control, suspects):
                continue
            if may_enter(control):
                del stream.pending[control.sequence]
                self._pending_count -= 1
                stream.inserted_through = control.sequence
                return control
        return None

    def acks(self) -> Acks:
        """What is in the graph of others."""
        return tuple(
            (machine, stream.inserted_through)
            for machine, stream in sorted(self.streams.items())
            if machine != self.me
        )

    def positions(self) -> Acks:
        """What is in the graph of everybody, ourselves too."""
        return tuple((machine, stream.inserted_through) for machine, stream in sorted(self.streams.items()))

    def since(self, machine: Machine, after: int) -> list[Control]:
        """What we have heard of a machine after this, in order."""
        log = self._log.get(machine, {})
        return [log[sequence] for sequence in sorted(log) if sequence > after]

    def logged(self) -> list[Machine]:
        """Everybody whose messages we can repeat."""
        return list(self._log)

    def heard_through(self, machine: Machine) -> int:
        """The last of them."""
        return self._heard_through[machine]

    def _follows_only_known(self, control: Control) -> bool:
        for machine, sequence in control.acks:
            stream = self.streams.get(machine)
            if stream is not None and stream.inserted_through < sequence:
                return False
        return True

    def is_wanted(self, control: Control, suspects: Collection[Machine]) -> bool:
        """Whether it may enter as far as its sender is concerned: a suspect's only if others have it."""
        sender = control.sender
        if sender not in suspects:
            return True
        for machine, stream in self.streams.items():
            if machine not in suspects:
                followers = (
                    stream.pending.values() if stream.latest is None else (stream.latest, *stream.pending.values())
                )
                if any(dict(follower.acks).get(sender, 0) >= control.sequence for follower in followers):
                    return True
        return False

    def _remember(self, control: Control) -> None:
        log = self._log.setdefault(control.sender, {})
        log[control.sequence] = control
        last = self._heard_through.get(control.sender, 0)
        self._heard_through[control.sender] = max(last, control.sequence)
        if len(log) > self._log_max:
            del log[min(log)]

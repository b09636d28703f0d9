"""The causal graph of control messages: those of the members, and behind their cut-counters those of foreign
machines (the paper's completion-DAG).

A control message enters when its sender's previous one has, and everything it acknowledges, as far as we follow
the machines concerned. Of a suspected machine's messages only those that another machine has may still enter. The
caller adds the third condition, that the messages of the view which it covers are here.

Messages that were heard are kept for some time, to be repeated to machines that lack them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from membership.messages import Control
from transport import Acks, Machine


class ControlStream:
    """One machine's control messages, from its cut-counter on."""

    __slots__ = ("acknowledged", "inserted_through", "latest", "pending")

    def __init__(self, after: int) -> None:
        self.inserted_through = after
        self.pending: dict[int, Control] = {}
        self.latest: Control | None = None
        """The last message we have, in the graph or not. Its acknowledgements include those of all before it,
        except of machines that its sender follows no longer."""
        self.acknowledged: dict[Machine, int] = {}
        """Up to which sequence the last message here, and those that are not in the graph yet, acknowledge other
        machines' messages. It is needed much more often than messages come."""

    def store(self, control: Control) -> None:
        self.pending[control.sequence] = control
        if self.latest is None or control.sequence > self.latest.sequence:
            self.latest = control
        self._collect_acks()

    def insert(self, control: Control) -> None:
        """Moves the next message into the graph."""
        del self.pending[control.sequence]
        self.inserted_through = control.sequence
        self._collect_acks()

    def _collect_acks(self) -> None:
        acknowledged = dict(self.latest.acks) if self.latest is not None else {}
        for control in self.pending.values():
            for machine, sequence in control.acks:
                if sequence > acknowledged.get(machine, 0):
                    acknowledged[machine] = sequence
        self.acknowledged = acknowledged

    @property
    def received_through(self) -> int:
        """The last message we have without a gap before it, in the graph or not."""
        through = self.inserted_through
        while through + 1 in self.pending:
            through += 1
        return through


class ControlDag:
    """One machine's graph. `log_max` bounds how many messages of each sender are kept to be repeated."""

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
        """Follows a machine's messages after the given sequence, unless the machine is followed already."""
        if machine not in self.streams:
            self.streams[machine] = ControlStream(after)

    def keep_only(self, machines: Collection[Machine]) -> None:
        """Stops following all other machines."""
        self.streams = {machine: stream for machine, stream in self.streams.items() if machine in machines}
        self._pending_count = sum(len(stream.pending) for stream in self.streams.values())

    def prune_log(self) -> None:
        """Drops logged messages when a view is installed. Those of machines that took part in making it, which are
        the ones followed now, are kept until the next view but one: some member may not be as far as we are."""
        self._log = {m: log for m, log in self._log.items() if m in self.streams or m in self._kept}
        self._heard_through = {machine: self._heard_through[machine] for machine in self._log}
        self._kept = set(self.streams)

    def add_own(self, control: Control) -> None:
        own = self.streams[self.me]
        own.store(control)
        own.insert(control)
        self._remember(control)

    def is_new(self, control: Control) -> bool:
        """Whether we lack the message and can keep it. One that is further ahead than any machine's log reaches is
        of no use yet."""
        stream = self.streams[control.sender]
        ahead = control.sequence - stream.inserted_through
        return 0 < ahead <= self._log_max and control.sequence not in stream.pending

    def store(self, control: Control) -> None:
        self.streams[control.sender].store(control)
        self._pending_count += 1
        self._remember(control)

    def has_pending(self) -> bool:
        return self._pending_count > 0

    def pending(self) -> Iterator[Control]:
        for stream in self.streams.values():
            yield from stream.pending.values()

    def take_next(self, suspects: Collection[Machine], may_enter: Callable[[Control], bool]) -> Control | None:
        """Moves a message that may enter into the graph and returns it; returns None if no message may."""
        for stream in self.streams.values():
            control = stream.pending.get(stream.inserted_through + 1)
            if control is None or not self._follows_only_known(control):
                continue
            if not self.is_wanted(control, suspects):
                continue
            if may_enter(control):
                stream.insert(control)
                self._pending_count -= 1
                return control
        return None

    def acks(self) -> Acks:
        """Up to which sequence each other machine's messages are in the graph."""
        return tuple(
            (machine, stream.inserted_through)
            for machine, stream in sorted(self.streams.items())
            if machine != self.me
        )

    def positions(self) -> Acks:
        """Up to which sequence each machine's messages are in the graph, our own included."""
        return tuple((machine, stream.inserted_through) for machine, stream in sorted(self.streams.items()))

    def received(self) -> Acks:
        """Up to which sequence we have each machine's messages, in the graph or not: nobody need repeat those."""
        return tuple((machine, stream.received_through) for machine, stream in sorted(self.streams.items()))

    def since(self, machine: Machine, after: int) -> list[Control]:
        """Returns the messages heard of a machine after the given sequence, in order, as far as they are kept."""
        log = self._log.get(machine, {})
        return [log[sequence] for sequence in sorted(log) if sequence > after]

    def logged(self) -> list[Machine]:
        """The machines whose messages we can repeat."""
        return list(self._log)

    def heard_through(self, machine: Machine) -> int:
        """The sequence of the last message heard of a machine."""
        return self._heard_through[machine]

    def _follows_only_known(self, control: Control) -> bool:
        for machine, sequence in control.acks:
            stream = self.streams.get(machine)
            if stream is not None and stream.inserted_through < sequence:
                return False
        return True

    def is_wanted(self, control: Control, suspects: Collection[Machine]) -> bool:
        """Whether the message may enter as far as its sender is concerned: a suspect's only if a machine that is
        not suspected has it."""
        sender = control.sender
        if sender not in suspects:
            return True
        return any(
            machine not in suspects and stream.acknowledged.get(sender, 0) >= control.sequence
            for machine, stream in self.streams.items()
        )

    def _remember(self, control: Control) -> None:
        log = self._log.setdefault(control.sender, {})
        log[control.sequence] = control
        last = self._heard_through.get(control.sender, 0)
        self._heard_through[control.sender] = max(last, control.sequence)
        if len(log) > self._log_max:
            del log[min(log)]

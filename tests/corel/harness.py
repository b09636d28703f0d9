"""A few logs over an ideal group communication: no network, no time, nothing happens that is not asked for.

    cluster = LogCluster("abcde")
    cluster.settle("abc", "de")
    cluster.submit("a", "x y")
    cluster.submit("d", "z")
    cluster.run()
    assert cluster.picture("a") == "x y||"        # green | yellow | red
    assert cluster.picture("d") == "||z"

What can happen next at a node is an `Act`: it sends what its log wants sent, receives a message of its view,
delivers one whose place is known, hears how far another's disk is, or completes a write. `step` performs one,
`run` all, in an order that the cluster's `urgency` decides. An act that is in `hold` is not performed.

The messages of a view are received in the order of their sending, except those of senders to which a node is
`deaf`, and delivered in the order of their timestamps, once every member has received them. When a view ends, the
nodes that go on together get what any of them has, as `is_closing`; what none of them has is lost. Every node has
a clock of its own, which rises when it receives a message, and by `advance_clock`.

Every step is checked against the invariants of section 3.4, by the simulator's checkers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from typing import NamedTuple, TypeAlias, TypeVar

from corel import codec
from corel.config import CorelConfig
from corel.corel import Corel
from corel.effects import (
    CorelEffect,
    CorelEvent,
    Greened,
    Logged,
    Mark,
    Multicast,
    Persist,
    PrimaryConfirmed,
    Queued,
    Reordered,
    StageChanged,
    Yellowed,
)
from corel.messages import Entry, MessageId, Payload
from corel.quorum import Roster
from corel.stages import Stage
from corel.storage import Lines, LogWrite
from tests.simulator.checkers.acknowledged import Acknowledged
from tests.simulator.checkers.agreed_green import AgreedGreen
from tests.simulator.checkers.causal_log import CausalLog
from tests.simulator.checkers.log import History, LogChecker
from tests.simulator.checkers.primaries import Primaries
from tests.simulator.checkers.yellow_kept import YellowKept
from tests.simulator.corel.memory_log import MemoryLog
from transport.effects import Journal
from transport.messages import Machine, Message, Service, View, ViewId

Kind = TypeVar("Kind")

STEPS_MAX = 20_000
"""More steps than any story takes."""


class Do(StrEnum):
    """What a node can do next."""

    SYNC = "complete its write"
    SEND = "send"
    RECEIVE = "receive"
    HEAR = "hear of a disk"
    DELIVER = "deliver"


class Act(NamedTuple):
    """The next thing that may happen at a node."""

    name: str
    do: Do


Urgency: TypeAlias = Callable[[Act], tuple[int, int]]
"""Of the acts that are possible, the one with the lowest value comes first."""

_KINDS = {do: place for place, do in enumerate(Do)}


def in_step(act: Act) -> tuple[int, int]:
    """All nodes do the same at about the same time."""
    return _KINDS[act.do], ord(act.name)


def one_by_one(act: Act) -> tuple[int, int]:
    """a does all that it can before b does anything."""
    return ord(act.name), _KINDS[act.do]


class Component:
    """A view, and what was sent in it."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.sent: list[Message] = []
        self.holders: list[set[Machine]] = []
        """The members that have received each message."""
        self.pasts: list[frozenset[int]] = []
        """The messages that the sender of each message had received before."""


class Disk:
    """The disk of one node. A write is under way until `complete`."""

    def __init__(self, name: str, cluster: LogCluster, lines: Lines) -> None:
        self.log = MemoryLog(lines, f"{name} at first")
        self.under_way: Persist | None = None
        self._name = name
        self._cluster = cluster

    def hold(self) -> None:
        """Lets no write complete until `release`."""
        self._cluster.hold.add(Act(self._name, Do.SYNC))

    def release(self) -> None:
        self._cluster.hold.discard(Act(self._name, Do.SYNC))

    def complete(self) -> None:
        """Completes the write under way, and reports it to the log."""
        self._cluster.perform(Act(self._name, Do.SYNC))

    def crash(self, is_kept: bool) -> None:
        """Keeps the write under way, or loses all of it."""
        if self.under_way is not None and is_kept:
            self._cluster.write(self._name, self.under_way.write)
        self.under_way = None


class Node:
    """One log, and what is on its way to it."""

    def __init__(self, machine: Machine, log: Corel, component: Component, clock: int) -> None:
        self.machine = machine
        self.log = log
        self.component = component
        self.clock = clock
        self.outbox: deque[bytes] = deque()
        self.received: set[int] = set()
        """The messages of the view that it has received, numbered in the order of their sending."""
        self.received_through = 0
        """All messages before this number have been received."""
        self.undelivered: list[Message] = []
        self.heard: dict[Machine, tuple[int, ...]] = {}
        """The marks on their way to this node."""
        self.is_closing = False
        self.sequence = 0


class LogCluster:
    """Nodes named by the letters given, each in a view of its own at first."""

    def __init__(
        self,
        everybody: str,
        config: CorelConfig | None = None,
        roster: Roster | None = None,
        urgency: Urgency = in_step,
        in_bursts: bool = False,
    ) -> None:
        self.everybody = everybody
        self.config = config or CorelConfig(write_gather_ms=0.0, debug_invariants=True)
        self.roster = roster or Roster.of(everybody)
        self.hold: set[Act] = set()
        self.deaf: set[tuple[str, str]] = set()
        """Pairs of nodes of which the first does not hear the second while this view lasts."""
        self.in_bursts = in_bursts
        """Whether one step receives, or delivers, all messages that are there."""
        self.history = History()
        self.acknowledged = Acknowledged(self.history)
        self.checkers: list[LogChecker] = [
            AgreedGreen(self.history),
            CausalLog(self.history),
            YellowKept(self.history),
            Primaries(self.history),
            self.acknowledged,
        ]
        self.nodes: dict[str, Node] = {}
        self.disks = {name: Disk(name, self, Lines(is_voter=True)) for name in everybody}
        self.logged: set[MessageId] = set()
        """The ids of all messages that are on any disk."""
        self.bodies: dict[MessageId, str] = {}
        self.effects: dict[str, list[CorelEffect]] = {name: [] for name in everybody}
        self._acts = sorted((Act(name, do) for name in everybody for do in Do), key=urgency)
        self._incarnations = dict.fromkeys(everybody, 0)
        self._clocks = dict.fromkeys(everybody, 0)
        for name in everybody:
            self.start(name)

    def __getitem__(self, name: str) -> Corel:
        return self.nodes[name].log

    # What goes in

    def submit(self, name: str, bodies: str) -> list[MessageId]:
        """Submits a message for each word."""
        log = self[name]
        ids = [log.submit(body.encode()) for body in bodies.split()]
        self.bodies.update(zip(ids, bodies.split(), strict=True))
        self._execute(self.nodes[name], log.send())
        return ids

    def check_primary(self, name: str, number: int) -> None:
        """Has the node ask whether its component is still the primary one."""
        self._execute(self.nodes[name], self[name].check_primary(number))

    def confirmed(self, name: str) -> list[int]:
        """Returns the numbers of the primary checks that were answered."""
        return [effect.number for effect in self.effects[name] if isinstance(effect, PrimaryConfirmed)]

    def views(self, *components: str) -> None:
        """Ends the views of all these nodes, and begins the next ones. No node is in both an old and a new one."""
        old = {name: self.nodes[name].component for names in components for name in names}
        for names in components:
            groups = {id(old[name]): [n for n in names if old[n] is old[name]] for name in names}
            for group in groups.values():
                self._close([self.nodes[name] for name in group])
        self.deaf.clear()
        for names in components:
            nodes = [self.nodes[name] for name in sorted(names)]
            clock = max(node.clock for node in nodes) + 1
            members = tuple(node.machine for node in nodes)
            component = Component(View(ViewId(clock, *members[0]), members))
            for node in nodes:
                node.component, node.clock, node.is_closing = component, clock, False
                node.outbox.clear()
                node.heard.clear()
                node.undelivered.clear()
                node.received = set()
                node.received_through = node.sequence = 0
            for node in nodes:
                self._execute(node, node.log.view_changed(component.view))

    def settle(self, *components: str) -> None:
        self.views(*components)
        self.run()

    def flush(self, names: str) -> None:
        """Writes what has become green."""
        for name in names:
            self._execute(self.nodes[name], self.nodes[name].log.flush())
        self.run()

    def advance_clock(self, name: str, by: int) -> None:
        self.nodes[name].clock += by

    def disk(self, name: str) -> Disk:
        return self.disks[name]

    def crash(self, name: str, is_kept: bool = False) -> None:
        """Crashes a node, whose write under way is kept or lost. The story has to end the others' view."""
        node = self.nodes.pop(name)
        self._clocks[name] = node.clock
        self.disks[name].crash(is_kept)

    def start(self, name: str, incarnation: int | None = None) -> None:
        """Starts a node in a view of its own, as another incarnation if it has crashed, or as this one."""
        self._incarnations[name] = incarnation or self._incarnations[name] + 1
        me = Machine(name, self._incarnations[name])
        disk = self.disks[name]
        clock = max(self._clocks[name], disk.log.lines.clock) + 1
        component = Component(View(ViewId(clock, *me), (me,)))
        log = Corel(me, component.view, self.roster, self.config, disk.log.load(), disk.log)
        self.nodes[name] = node = Node(me, log, component, clock)
        self._watch(log)
        for checker in self.checkers:
            checker.started(name, log)
        self._execute(node, log.start())

    def restart(self, name: str, is_kept: bool = False) -> None:
        self.crash(name, is_kept)
        self.start(name)

    def replace_disk(self, name: str) -> None:
        """Replaces the disk by an empty one. What was nowhere else is lost."""
        self.disks[name].log = MemoryLog(Lines(), f"{name} replaced, {self._incarnations[name]}")
        self.acknowledged.disk_replaced(name)

    def begin_with(self, other: LogCluster, names: str) -> None:
        """Tells the checkers that these nodes begin with what another cluster has made green."""
        for message_id in other.history.order:
            self.history.positions[message_id] = len(self.history.order)
            self.history.order.append(message_id)
            self.history.bodies[message_id] = other.history.bodies[message_id]
            self.bodies[message_id] = other.bodies[message_id]
        for name in names:
            for checker in self.checkers:
                checker.took_over(name, self.disks[name].log.lines)

    def put_back_disk(self, name: str, log: MemoryLog) -> None:
        """Puts an earlier copy of a disk in place of the disk. What only the disk had is lost."""
        self.disks[name].log = log
        self.acknowledged.disk_replaced(name)

    # What happens

    def step(self) -> Act | None:
        """Performs the most urgent of the acts that are possible, and returns it."""
        for act in self._acts:
            node = self.nodes.get(act.name)
            if node is not None and act not in self.hold and self._is_possible(node, act.do):
                self.perform(act)
                return act
        return None

    def run(self) -> int:
        """Performs acts until none is possible. Returns how many steps it took."""
        for count in range(STEPS_MAX):
            if self.step() is None:
                return count
        raise AssertionError("no end")

    def run_until(self, is_done: Callable[[], object]) -> None:
        while not is_done():
            assert self.step() is not None, f"nothing moves: {self}"

    def perform(self, act: Act) -> None:
        name, do = act
        node = self.nodes[name]
        assert self._is_possible(node, do), f"{name} has nothing to {do}"
        if do is Do.SYNC:
            self._sync(node)
        elif do is Do.SEND:
            self._send(node)
        elif do is Do.RECEIVE:
            self._receive_next(node)
        elif do is Do.HEAR:
            sender = min(node.heard)
            self._execute(node, node.log.marked(sender, node.heard.pop(sender)))
        else:
            self._deliver(node)

    def each(self, do: Do, names: str, count: int = 1) -> None:
        """Has each of these nodes in turn do this so many times."""
        for name in names:
            for _ in range(count):
                self.perform(Act(name, do))

    # What came of it

    def stages(self, names: str = "") -> set[Stage]:
        return {self[name].stage for name in names or self.everybody}

    def picture(self, name: str) -> str:
        """Returns the bodies of green | yellow | red messages."""
        queue = self[name].queue
        ids = [self.history.order[: queue.green], [e.id for e in queue.yellow], [e.id for e in queue.red]]
        return "|".join(" ".join(self.bodies[message_id] for message_id in zone) for zone in ids)

    def pictures(self, names: str = "") -> set[str]:
        """Returns the pictures of all these nodes: one, if they agree."""
        return {self.picture(name) for name in names or self.everybody}

    def colors(self, name: str) -> str:
        queue = self[name].queue
        return "g" * queue.green + "y" * len(queue.yellow) + "r" * len(queue.red)

    def on_disk(self, name: str) -> str:
        """Returns what a crash now would leave if it lost the write under way, as `picture` shows it."""
        log = self.disks[name].log
        queue = log.load().queue
        green = [entry.id for entry in log.green(0, queue.green)]
        zones = [green, [e.id for e in queue.yellow], [e.id for e in queue.red]]
        return "|".join(" ".join(self.bodies[message_id] for message_id in zone) for zone in zones)

    def payloads(self, kind: type[Kind], name: str = "") -> list[Kind]:
        """Returns the payloads of this kind that any member sent in the view of this node, or in all views."""
        components = {id(node.component): node.component for node in self.nodes.values()}
        if name:
            components = {0: self.nodes[name].component}
        sent = [message for component in components.values() for message in component.sent]
        return [payload for message in sent if isinstance(payload := codec.decode(message.payload), kind)]

    def outgoing(self, name: str) -> list[Payload]:
        """Returns the payloads that its log wants sent and that have not left yet."""
        return [codec.decode(payload) for payload in self.nodes[name].outbox]

    def journal(self, name: str, event: CorelEvent) -> list[Journal]:
        entries = [e.journal() if isinstance(e, StageChanged) else e for e in self.effects[name]]
        return [e for e in entries if isinstance(e, Journal) and e.event is event]

    def check_finished(self) -> None:
        """Checks that all nodes are in one primary component, and that everything that was ever on a disk, or
        accepted by a node that has not crashed since, is green."""
        assert self.stages() == {Stage.PRIMARY}, str(self)
        for checker in self.checkers:
            checker.finished({name: node.log for name, node in self.nodes.items()})
        machines = {node.machine for node in self.nodes.values()}
        accepted = {message_id for message_id in self.bodies if message_id.stream in machines}
        lost = (self.logged | accepted) - set(self.history.order)
        assert not lost, f"lost: {sorted(self.bodies.get(message_id, str(message_id)) for message_id in lost)}"

    def __str__(self) -> str:
        return ", ".join(f"{name}: {self.picture(name)} {node.log.phase}" for name, node in self.nodes.items())

    # Inside

    def write(self, name: str, write: LogWrite) -> None:
        self.disks[name].log.apply(write)
        self.logged.update(record.id for record in write.records)

    def _is_possible(self, node: Node, do: Do) -> bool:
        if do is Do.SYNC:
            return self.disks[node.machine.name].under_way is not None
        if do is Do.SEND:
            return bool(node.outbox)
        if do is Do.RECEIVE:
            return self._next_to_receive(node) is not None
        if do is Do.HEAR:
            return bool(node.heard)
        return self._is_deliverable(node)

    def _next_to_receive(self, node: Node) -> int | None:
        """Returns the first message that the node has not received and can: it hears its sender, and has
        everything that the message follows."""
        sent, received = node.component.sent, node.received
        while node.received_through in received:
            node.received_through += 1
        for number in range(node.received_through, len(sent)):
            if number in received or (node.machine.name, sent[number].sender.name) in self.deaf:
                continue
            if not self.deaf or node.component.pasts[number] <= received:
                return number
        return None

    def _is_deliverable(self, node: Node) -> bool:
        """Returns whether every member has the node's first undelivered message, and no message before it is still
        on its way to the node."""
        if not node.undelivered:
            return False
        component, first = node.component, node.undelivered[0]
        missing = (n for n in range(node.received_through, len(component.sent)) if n not in node.received)
        if any(component.sent[number] < first for number in missing):
            return False
        return len(component.holders[component.sent.index(first)]) == len(component.view.members)

    def _sync(self, node: Node) -> None:
        disk = self.disks[node.machine.name]
        persist, disk.under_way = disk.under_way, None
        assert persist is not None
        self.write(node.machine.name, persist.write)
        self._execute(node, node.log.persisted(persist.token))

    def _send(self, node: Node) -> None:
        """Sends the next payload of a node, which receives it at once."""
        component = node.component
        node.clock += 1
        node.sequence += 1
        payload = node.outbox.popleft()
        view = component.view.id
        component.sent.append(Message(node.clock, node.machine, node.sequence, Service.AGREED, view, payload))
        component.holders.append(set())
        component.pasts.append(frozenset(node.received))
        self._receive(node, [len(component.sent) - 1])

    def _receive_next(self, node: Node) -> None:
        numbers: list[int] = []
        while not numbers or self.in_bursts:
            number = self._next_to_receive(node)
            if number is None:
                break
            numbers.append(number)
            node.received.add(number)
        self._receive(node, numbers)

    def _receive(self, node: Node, numbers: list[int]) -> None:
        if not numbers:
            return
        component = node.component
        messages = [component.sent[number] for number in numbers]
        for number in numbers:
            component.holders[number].add(node.machine)
        node.received.update(numbers)
        node.clock = max(node.clock, *[message.clock for message in messages])
        node.undelivered = sorted([*node.undelivered, *messages])
        self._execute(node, node.log.received(messages))

    def _deliver(self, node: Node) -> None:
        messages = [node.undelivered.pop(0)]
        while self.in_bursts and self._is_deliverable(node):
            messages.append(node.undelivered.pop(0))
        self._execute(node, node.log.delivered(messages, is_closing=False))

    def _close(self, group: list[Node]) -> None:
        """Gives the nodes that go on together what any of them has, and delivers it."""
        for node in group:
            node.is_closing = True
        together = set().union(*[node.received for node in group])
        for node in group:
            self._receive(node, sorted(together - node.received))
            if node.undelivered:
                self._execute(node, node.log.delivered(node.undelivered, is_closing=True))

    def _execute(self, node: Node, effects: list[CorelEffect]) -> None:
        name, log = node.machine.name, node.log
        self.effects[name] += effects
        for effect in effects:
            if isinstance(effect, Persist):
                disk = self.disks[name]
                assert disk.under_way is None, "one write at a time"
                disk.under_way = effect
            elif isinstance(effect, Multicast):
                if effect.view == node.component.view.id and not node.is_closing:
                    node.outbox.append(effect.payload)
            elif isinstance(effect, Mark):
                self._tell(node, effect)
            elif isinstance(effect, Greened):
                self._on_greened(name, log, effect)
            elif isinstance(effect, Logged):
                for checker in self.checkers:
                    checker.logged(name, log, effect)
            elif isinstance(effect, Journal):
                assert effect.event is not CorelEvent.REFUSED, f"{name} refused {effect.id}: {effect.reason}"
            else:
                assert isinstance(effect, (Queued, Yellowed, Reordered, PrimaryConfirmed, StageChanged))
        for checker in self.checkers:
            checker.stepped(name, log)

    def _tell(self, node: Node, mark: Mark) -> None:
        if mark.view != node.component.view.id or node.is_closing:
            return
        for other in self.nodes.values():
            if other.component is node.component and other is not node:
                other.heard[node.machine] = mark.marks

    def _on_greened(self, name: str, log: Corel, greened: Greened) -> None:
        for checker in self.checkers:
            checker.greened(name, log, greened)
        for position, entry in enumerate(greened.entries, greened.position):
            if position == len(self.history.order):
                self.history.order.append(entry.id)
                self.history.positions[entry.id] = position

    def _watch(self, log: Corel) -> None:
        for method in ("add_yellow", "add_red"):
            setattr(log.queue, method, partial(self._add, log, getattr(log.queue, method)))

    def _add(self, log: Corel, add: Callable[[Entry], None], entry: Entry) -> None:
        """Records what a node has when a message of its own is about to enter its queue: that is the message's
        past."""
        if entry.id.stream == log.me:
            self.history.pasts[entry.id] = {**log.queue.green_last, **dict(log.queue.have())}
            self.history.bodies[entry.id] = entry.body or b""
        add(entry)

"""A few machines in memory, as whole groups or as bare protocols.

`Cluster` runs whole groups: every datagram goes through the codec, and time jumps from event to event.

    cluster = Cluster("abcde")
    cluster.run_until_views("abcde")
    cluster.partition("ab|cde")
    cluster.run_until_views("ab", "cde")

`Table` runs bare protocols, without time or network: every control message waits until the test hands it over.

    table = Table("abc")
    table.break_with("a", "c")
    table.hand("a:1", "b")
    assert table["b"].stage is Stage.FAULTS
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from random import Random
from typing import NamedTuple, TypeAlias, TypeVar

from membership.config import MembershipConfig
from membership.effects import MembershipEffect, MembershipEvent, Unicast, ViewChanged
from membership.group import Group
from membership.messages import AttemptJoin, Body, Control
from membership.protocol import MembershipProtocol
from membership.stages import Cause, Emitted, Entered, Installed, Output, Stage, Suspected
from tests.membership.builders import group_frame_in, machine, machines, names, short_id
from transport.codec import Codec
from transport.config import TransportConfig
from transport.effects import Broadcast, Delivered, Journal
from transport.messages import Acks, Datagram, Frame, Machine, Packet, Retransmission, Service, View, ViewId

Kind = TypeVar("Kind")
DropRule: TypeAlias = Callable[[str, str, Frame], bool]

CLUSTER = "harness"
SETTLE_MS = 3_000.0
"""Within about this time a cut must have led to new views, and a healed cut to a merged one."""
ROUNDS_MAX = 100
"""After far fewer rounds, in each of which every message reaches every machine, a change has ended."""


class Sent(NamedTuple):
    """A datagram that was sent; `target` is empty if it was broadcast."""

    at: float
    source: str
    target: str
    datagram: Datagram


class Cluster:
    """Groups named by single group_frames, on a network with a constant delay that loses only what it is told
    to."""

    def __init__(
        self,
        everybody: str,
        config: MembershipConfig | None = None,
        transport_config: TransportConfig | None = None,
        seed: int = 1,
        delay_ms: float = 0.1,
    ) -> None:
        self.now = 0.0
        self.config = config or MembershipConfig()
        self.transport_config = transport_config or TransportConfig()
        self.random = Random(seed)
        self.groups: dict[str, Group] = {}
        self.sent: list[Sent] = []
        self.views: dict[str, list[View]] = {name: [] for name in everybody}
        """Every view that each name has been in, in all of its incarnations."""
        self.log: dict[str, list[tuple[float, MembershipEffect]]] = {name: [] for name in everybody}
        self._incarnations = dict.fromkeys(everybody, 0)
        self._paused: set[str] = set()
        self._delay_ms = delay_ms
        self._in_flight: deque[tuple[float, str, bytes]] = deque()
        self._codec = Codec(CLUSTER)
        self._components: list[str] = []
        self._is_dropped: DropRule = lambda source, target, frame: False
        for name in everybody:
            self.start(name)

    def __getitem__(self, name: str) -> Group:
        return self.groups[name]

    # Faults

    def start(self, name: str) -> None:
        """Starts a machine, after a crash as its next incarnation, with a clock above that of all its views."""
        self._incarnations[name] += 1
        me = Machine(name, self._incarnations[name])
        clock = max((view.id.clock for view in self.views[name]), default=0) + 1
        self.groups[name] = Group(me, self.config, self.transport_config, self.random, self.now, clock)
        self.views[name].append(self.groups[name].view)

    def crash(self, name: str) -> None:
        del self.groups[name]

    def restart(self, name: str) -> None:
        self.crash(name)
        self.start(name)

    def pause(self, name: str) -> None:
        """Stops a machine as SIGSTOP does: datagrams sent to it wait in its sockets."""
        self._paused.add(name)

    def resume(self, name: str) -> None:
        self._paused.remove(name)

    def partition(self, components: str) -> None:
        """Cuts the network into components, such as `"ab|cde"`. A machine in none of them hears no other."""
        self._components = components.split("|")

    def drop(self, rule: DropRule) -> None:
        """Drops from now on the frames for which the rule holds. It replaces an earlier rule."""
        self._is_dropped = rule

    def cut(self, *links: str) -> None:
        """Cuts one-way links: with `"ab"`, nothing that a sends reaches b."""
        self.drop(lambda source, target, frame: source + target in links)

    def heal(self) -> None:
        self._components = []
        self.drop(lambda source, target, frame: False)

    # What goes in

    def multicast(self, name: str, payload: bytes, service: Service = Service.AGREED, bound: bool = False) -> None:
        """Multicasts a message; a bound one is for the current view only."""
        group = self.groups[name]
        self._execute(name, group.multicast(service, payload, group.view.id if bound else None))

    def inject(self, target: str, datagram: Datagram) -> list[MembershipEffect]:
        """Hands a datagram to a machine, whether or not another has sent it, and returns the effects."""
        effects = self.groups[target].receive(datagram, self.now)
        self._execute(target, effects)
        return effects

    # Time

    def tick(self, name: str) -> list[MembershipEffect]:
        effects = self.groups[name].tick(self.now)
        self._execute(name, effects)
        return effects

    def run(self, duration_ms: float) -> None:
        self._run_until(self.now + duration_ms, lambda: False)

    def run_until(self, is_done: Callable[[], bool], within_ms: float = SETTLE_MS) -> float:
        """Runs until the condition holds and returns how long it took; fails if it does not hold in time."""
        began = self.now
        self._run_until(self.now + within_ms, is_done)
        assert is_done(), f"not after {within_ms} ms: {self.picture()}"
        return self.now - began

    def run_until_views(self, *components: str, within_ms: float = SETTLE_MS) -> float:
        """Runs until each component is one view, agreed on by all its members, and none of them is changing it."""
        return self.run_until(lambda: all(map(self.is_view, components)), within_ms)

    # Results

    def is_view(self, component: str) -> bool:
        """Whether exactly these machines are in one view, and no change is pending at any of them."""
        groups = [self.groups[name] for name in component]
        members = tuple(sorted(group.me for group in groups))
        is_agreed = all(group.view.members == members and group.view.id == groups[0].view.id for group in groups)
        return is_agreed and all(group.stage is Stage.IDLE for group in groups)

    def picture(self) -> str:
        return ", ".join(f"{name}: {names(g.view.members)} {g.stage}" for name, g in self.groups.items())

    def effects(self, kind: type[Kind], name: str) -> list[Kind]:
        return [effect for _, effect in self.log[name] if isinstance(effect, kind)]

    def delivered(self, name: str) -> list[bytes]:
        return [message.payload for effect in self.effects(Delivered, name) for message in effect.messages]

    def history(self, name: str) -> list[str | bytes]:
        """Returns the views, as their members' names, and the messages, in the order of delivery."""
        history: list[str | bytes] = []
        for _, effect in self.log[name]:
            if isinstance(effect, ViewChanged):
                history.append(names(effect.view.members))
            elif isinstance(effect, Delivered):
                history += [message.payload for message in effect.messages]
        return history

    def journal(self, name: str, event: MembershipEvent) -> list[Journal]:
        return [entry for entry in self.effects(Journal, name) if entry.event is event]

    def causes(self, name: str, event: MembershipEvent) -> list[str]:
        return [str(entry.reason) for entry in self.journal(name, event)]

    def group_frames(self, kind: type[Kind], source: str) -> list[Kind]:
        """Returns every membership frame of this kind that the source has sent so far."""
        frames = [frame for sent in self.sent if sent.source == source for frame in sent.datagram.frames]
        return [group_frame for group_frame in map(group_frame_in, frames) if isinstance(group_frame, kind)]

    # Inside

    def _run_until(self, end: float, is_done: Callable[[], bool]) -> None:
        while not is_done() and (upcoming := self._next_event()) <= end:
            self.now = max(self.now, upcoming)
            arrived = [item for item in self._in_flight if item[0] <= self.now and item[1] not in self._paused]
            for item in arrived:
                self._in_flight.remove(item)
                if item[1] in self.groups:
                    self.inject(item[1], self._codec.decode(item[2]))
            for name in self._awake():
                while self.groups[name].next_deadline() <= self.now:
                    self.tick(name)
        if not is_done():
            self.now = end

    def _awake(self) -> list[str]:
        return [name for name in self.groups if name not in self._paused]

    def _next_event(self) -> float:
        deadlines = [self.groups[name].next_deadline() for name in self._awake()]
        arrivals = (at for at, target, _ in self._in_flight if target not in self._paused)
        return min([*deadlines, next(arrivals, float("inf"))])

    def _execute(self, source: str, effects: list[MembershipEffect]) -> None:
        for effect in effects:
            self.log[source].append((self.now, effect))
            if isinstance(effect, ViewChanged):
                self.views[source].append(effect.view)
            elif isinstance(effect, Broadcast):
                self.sent.append(Sent(self.now, source, "", effect.datagram))
                for target in self.groups:
                    self._carry(source, target, effect.datagram)
            elif isinstance(effect, Unicast):
                self.sent.append(Sent(self.now, source, effect.target.name, effect.datagram))
                self._carry(source, effect.target.name, effect.datagram)

    def _carry(self, source: str, target: str, datagram: Datagram) -> None:
        is_cut = self._components and not any(source in part and target in part for part in self._components)
        if target == source or is_cut:
            return
        frames = tuple(frame for frame in datagram.frames if not self._is_dropped(source, target, frame))
        if frames:
            data = self._codec.encode(Datagram(datagram.sender, frames))
            self._in_flight.append((self.now + self._delay_ms, target, data))


def settled(
    component: str, config: MembershipConfig | None = None, transport_config: TransportConfig | None = None
) -> Cluster:
    """Returns a cluster in one view, of which every member knows that all the others are in it."""
    cluster = Cluster(component, config, transport_config)
    cluster.run_until_views(component)
    cluster.run(300.0)
    return cluster


def is_packet(frame: Frame) -> bool:
    return isinstance(frame, Packet | Retransmission)


def is_ending(frame: Frame) -> bool:
    """Whether the frame carries a FA or JOIN, which ends its sender's view."""
    group_frame = group_frame_in(frame)
    return isinstance(group_frame, Control) and not isinstance(group_frame.body, AttemptJoin)


class FakePlane:
    """A data plane that only counts how many messages of each member are here. As in a Lansis, of a suspect's only
    those may still be taken in that a machine which is not suspected has."""

    def __init__(self, me: Machine, members: Iterable[Machine]) -> None:
        self.me = me
        self.clock = 1
        self.here = dict.fromkeys(members, 0)
        self.required: dict[Machine, int] = {}
        """How many messages of each suspect others have."""

    def next_clock(self) -> int:
        self.clock += 1
        return self.clock

    def cover(self) -> Acks:
        return tuple(self.here.items())

    def has(self, cover: Acks) -> bool:
        return all(self.here.get(member, -1) >= sequence for member, sequence in cover)

    def take_in(self, member: Machine, sequence: int) -> None:
        """Notes that a member's messages up to this one have arrived."""
        allowed = min(sequence, self.required.get(member, sequence))
        self.here[member] = max(self.here[member], allowed)

    def suspect(self, members: Iterable[Machine]) -> None:
        self.required.update((member, self.here[member]) for member in members if member in self.here)

    def require(self, cover: Acks) -> None:
        """Takes in the messages of a cover, which a machine that is not suspected has and sends us."""
        for member, sequence in cover:
            if member in self.required:
                self.required[member] = max(self.required[member], sequence)
            if member in self.here:
                self.take_in(member, sequence)

    def enter(self, view: View, expected: dict[Machine, int]) -> None:
        self.here = {member: expected[member] for member in view.members}
        self.required = {}


class Table:
    """Bare protocols. Each component begins as a view, and no message arrives unless the test hands it over."""

    def __init__(self, *components: str) -> None:
        self.protocols: dict[str, MembershipProtocol] = {}
        self.planes: dict[str, FakePlane] = {}
        self.controls: dict[str, Control] = {}
        """Every control message that was broadcast, by its id without the incarnation: `a:1`."""
        self.outputs: dict[str, list[Output]] = {}
        self.first_views: dict[str, View] = {}
        self.strangers: set[str] = set()
        """Pairs of machines that do not hear each other: `"ac"`, the earlier name first."""
        self.members_max = 64
        for component in components:
            members = machines(component)
            view = View(ViewId(1, *members[0]), members, members)
            for me in members:
                plane = FakePlane(me, members)
                self.planes[me.name] = plane
                self.outputs[me.name] = []
                self.first_views[me.name] = view
                may_join = partial(self.may_join, me.name)
                self.protocols[me.name] = MembershipProtocol(me, view, plane, may_join, self.is_room_for)

    def __getitem__(self, name: str) -> MembershipProtocol:
        return self.protocols[name]

    # Inputs

    def hand(self, ids: str, *targets: str) -> None:
        """Hands messages to machines in this order: `hand("a:1 b:1", "c", "d")`."""
        for target in targets:
            for name in ids.split():
                self.offer(self.controls[name], target)

    def offer(self, control: Control, target: str) -> None:
        self.planes[target].clock = max(self.planes[target].clock, control.clock)
        self.execute(target, self.protocols[target].offer(control))

    def break_with(self, name: str, others: str, cause: Cause = Cause.SILENT) -> None:
        self.execute(name, self.protocols[name].break_with(machines(others), cause))

    def attempt(self, name: str) -> None:
        self.execute(name, self.protocols[name].attempt())

    def alpha(self, *everybody: str) -> None:
        for name in everybody:
            self.execute(name, self.protocols[name].alpha_expired())

    def say(self, sender: str, heard_by: str = "") -> None:
        """Sends a message of the view, which only these members receive."""
        plane = self.planes[sender]
        plane.here[plane.me] += 1
        plane.clock += 1
        for name in heard_by:
            self.hear(name, sender, plane.here[plane.me])

    def hear(self, name: str, sender: str, sequence: int) -> None:
        """Lets messages of the sender up to this one arrive, late or again."""
        self.planes[name].take_in(machine(sender), sequence)
        self.execute(name, self.protocols[name].advance())

    def recover(self, name: str) -> None:
        """Lets a machine request the messages that pending control messages cover, and receive them."""
        for cover in list(self.protocols[name].covers_to_require()):
            self.planes[name].require(cover)
        self.execute(name, self.protocols[name].advance())

    def repeat(self, source: str, *targets: str) -> None:
        """Lets a machine repeat the control messages that others lack, as `Group` does after a heartbeat, and lets
        them recover the messages of the view that these cover."""
        for target in targets:
            for control in self.lacked(source, target):
                self.offer(control, target)
            self.recover(target)

    def lacked(self, source: str, target: str) -> list[Control]:
        """Returns the control messages that the source would repeat to the target, as `Repetition` decides it."""
        protocol, positions = self.protocols[source], dict(self.protocols[target].dag.positions())
        me, other = protocol.me, self.protocols[target].me
        is_concerned = other in protocol.join_machines | protocol.current
        lacked: list[Control] = []
        if other in protocol.suspects:
            return lacked
        if is_concerned:
            followed = sorted(member for member in protocol.dag.logged() if member in positions)
            lacked += [control for member in followed for control in protocol.dag.since(member, positions[member])]
        is_inviting = protocol.stage is Stage.GATHERING or (protocol.stage is Stage.COMMITTED and is_concerned)
        if is_inviting and me not in positions:
            lacked += protocol.dag.since(me, dict(protocol.sets[protocol.view.id].cut_vector)[me])
        return lacked

    def settle(self, everybody: str) -> None:
        """Lets every message reach all of these machines and α expire for all, until nothing changes any more."""
        for _ in range(ROUNDS_MAX):
            before = [len(self.outputs[name]) for name in everybody]
            for source in everybody:
                self.repeat(source, *everybody.replace(source, ""))
            if before == [len(self.outputs[name]) for name in everybody]:
                self.alpha(*everybody)
            if before == [len(self.outputs[name]) for name in everybody]:
                return
        raise AssertionError(f"no rest after {ROUNDS_MAX} rounds")

    # Results

    def execute(self, name: str, outputs: list[Output]) -> None:
        """Executes the outputs of a protocol as `Group` does."""
        self.outputs[name] += outputs
        plane = self.planes[name]
        for output in outputs:
            if isinstance(output, Emitted):
                self.controls[short_id(output.control)] = output.control
            elif isinstance(output, Suspected):
                plane.suspect(output.machines)
            elif isinstance(output, Installed):
                assert plane.here == output.covered, f"{name} has {plane.here} of the view, not {output.covered}"
                plane.enter(output.view, output.expected)
        if any(isinstance(output, Installed) for output in outputs):
            self.execute(name, self.protocols[name].advance())

    def sent(self, name: str) -> list[Control]:
        return [output.control for output in self.outputs[name] if isinstance(output, Emitted)]

    def last(self, name: str) -> Control:
        return self.sent(name)[-1]

    def installed(self, name: str) -> list[Installed]:
        return [output for output in self.outputs[name] if isinstance(output, Installed)]

    def views(self, name: str) -> list[str]:
        """Returns the views that a machine has installed, as their members' names."""
        return [names(installed.view.members) for installed in self.installed(name)]

    def entered(self, name: str) -> list[tuple[Stage, Cause]]:
        return [(output.stage, output.cause) for output in self.outputs[name] if isinstance(output, Entered)]

    def is_room_for(self, everybody: frozenset[Machine]) -> bool:
        return len(everybody) <= self.members_max

    def may_join(self, me: str, others: frozenset[Machine]) -> bool:
        return bool(others) and not any("".join(sorted((me, other.name))) in self.strangers for other in others)


def gathered(*components: str) -> Table:
    """Returns a table where every machine is in Stage 1 and has the AJ of every other, its sender's message 1."""
    table = Table(*components)
    everybody = "".join(components)
    for name in everybody:
        table.attempt(name)
    for name in everybody:
        table.hand(f"{name}:1", *everybody.replace(name, ""))
    return table


def committed(*components: str) -> Table:
    """Returns a table where every machine has the AJ of every other, and a alone has sent its JOIN."""
    table = gathered(*components)
    table.alpha("a")
    return table


def suspicions(table: Table, name: str) -> list[tuple[str, Cause]]:
    """Returns whom a machine has begun to suspect, in order, and why."""
    outputs = table.outputs[name]
    return [(names(output.machines), output.cause) for output in outputs if isinstance(output, Suspected)]


def bodies(table: Table, name: str) -> list[Body]:
    """Returns the bodies of all control messages that a machine has sent, in order."""
    return [sent.body for sent in table.sent(name)]

"""Disks that are replaced again and again, and clusters that are bootstrapped anew while some nodes keep their
disks of before (decision 20): what a plan draws of it, what an operator may do, and what datagrams say of
generations."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from random import Random

from corel.quorum import Roster
from tests.simulator.membership.plan import MembershipPlan
from transport.codec import Codec, DecodeError
from transport.effects import Reason
from transport.messages import Datagram, Machine

WALL_CLOCK_MS = 1_794_787_200_000
"""The wall clock at the start of a run, in milliseconds: incarnations are its time (decision 7)."""

BOOTSTRAP_DOWN_MS = 300.0
"""How long the nodes of a cluster are down that is bootstrapped anew: whatever was in flight has arrived."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """A node crashes and comes back with an empty disk, if the operator's guide allows it then."""

    at_ms: float
    node: str
    down_ms: float


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """All nodes are stopped, and all but some are bootstrapped as a new cluster. Those which were forgotten come
    back with their old disks once the others are bound to their new generation."""

    at_ms: float
    left_over: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Restore:
    """The new cluster of a `Bootstrap` begins with the green messages that a node of the old one has on its disk:
    its members are restored from a copy of that, but for some, whose disks are empty."""

    source: str
    empty: tuple[str, ...]


def draw_replacements(seed: int, below: MembershipPlan) -> tuple[Replacement, ...]:
    random = Random(f"replaced disks {seed}")
    replacements = []
    at_ms = random.uniform(200.0, below.duration_ms)
    for _ in range(random.choice((0, 0, 1, 3, 8))):
        replacements.append(Replacement(at_ms, random.choice(below.nodes), random.choice((1.0, 50.0, 300.0))))
        at_ms += random.choice((5.0, 60.0, 300.0, 800.0)) * (0.5 + random.random())
    return tuple(one for one in replacements if one.at_ms < below.duration_ms)


def draw_bootstrap(seed: int, below: MembershipPlan, roster: Roster) -> Bootstrap | None:
    """Returns None in most seeds. Those that are bootstrapped are a majority, or there would be no new cluster."""
    random = Random(f"generations {seed}")
    if random.random() > 0.2:
        return None
    nodes = random.sample(below.nodes, len(below.nodes))
    wanted = random.randint(1, len(nodes) - 1)
    left_over: list[str] = []
    for name in nodes[:wanted]:
        if roster.is_majority(set(nodes) - {*left_over, name}):
            left_over.append(name)
    if not left_over:
        return None
    return Bootstrap(random.uniform(0.2, 0.8) * below.duration_ms, tuple(sorted(left_over)))


def draw_restore(seed: int, nodes: tuple[str, ...], roster: Roster, bootstrap: Bootstrap) -> Restore | None:
    """Returns None in some seeds. Those that are restored are a majority: only they vote at first."""
    random = Random(f"restored clusters {seed}")
    if random.random() > 0.7:
        return None
    new = [name for name in random.sample(nodes, len(nodes)) if name not in bootstrap.left_over]
    empty: list[str] = []
    for name in new[: random.randint(0, 2)]:
        if roster.is_majority(set(new) - {*empty, name}):
            empty.append(name)
    return Restore(random.choice(nodes), tuple(sorted(empty)))


@dataclass(frozen=True, slots=True)
class HeadedDatagram(Datagram):
    """A datagram with the header that the codec gives it. The rest is not encoded, for speed."""

    header: bytes
    address: str
    """Where it comes from."""


class Headers:
    """What one node's codec does with the headers of datagrams: it says which generation the node is bound to, and
    refuses the datagrams of another one."""

    def __init__(self, roster: Roster, address: str) -> None:
        self._address = address
        self.dropped: Counter[Reason] = Counter()
        self._codec = Codec("simulated", roster.digest())
        self._header = b""
        self._of: Machine | None = None
        self._admitted: set[bytes] = set()
        """The headers that the codec has admitted since it was bound."""

    def bind(self, generation: bytes) -> None:
        self._codec.bind(generation)
        self._of = None
        self._admitted.clear()

    def put(self, datagram: Datagram) -> Datagram:
        if self._of != datagram.sender:
            self._of = datagram.sender
            self._header = self._codec.encode(Datagram(datagram.sender, ()))
        return HeadedDatagram(datagram.sender, datagram.frames, self._header, self._address)

    def admits(self, datagram: Datagram) -> bool:
        assert isinstance(datagram, HeadedDatagram)
        if datagram.header in self._admitted:
            return True
        try:
            self._codec.decode(datagram.header)
        except DecodeError as error:
            self.dropped[error.reason] += 1
            return False
        self._admitted.add(datagram.header)
        return True

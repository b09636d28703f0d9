"""What travels between machines and what is handed upward: identities, messages, packets, control frames.

Terms of the Lansis paper (section 3.1) keep their names. The unit that is numbered, acknowledged and asked
for again is a *unit*: one whole message, or one fragment of a message too large for a datagram. A *packet* is
a run of consecutive units of one sender that travel, and are lost and retransmitted, together; it is the node
of the causal DAG. Units of a packet have consecutive sequences and consecutive Lamport clocks, so a run is
described by its first sequence, its first clock and its length.

Everything here is checked when it is built, whether by the codec after decoding what a peer sent or by our own
code. Only the codec knows the encoding.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple, TypeAlias

NAME_BYTES_MAX = 64
"""The longest name of a machine. Names repeat in every acknowledgement, so short ones save bytes."""

SEQUENCE_MAX = 2**63 - 1
"""Sequences, clocks and incarnations fit a signed 64-bit integer; none is ever reused, so none may wrap."""


class Machine(NamedTuple):
    """A participant. A restarted process is a different machine: its incarnation is higher."""

    name: str
    incarnation: int

    def __str__(self) -> str:
        return f"{self.name}.{self.incarnation}"


class ViewId(NamedTuple):
    """The identity of a view: the timestamp of the last membership message that made it, and so unique. The ids of
    one machine's views ascend. The transport only compares them for equality."""

    clock: int
    name: str
    incarnation: int

    def __str__(self) -> str:
        return f"{self.clock}.{self.name}.{self.incarnation}"


Acks: TypeAlias = tuple[tuple[Machine, int], ...]
"""`(machine, sequence)`: everything of that machine up to and including that sequence is in the sender's DAG."""


class Service(IntEnum):
    """The four delivery criteria over the one DAG, in the order of the delay they cost."""

    BASIC = 0
    CAUSAL = 1
    AGREED = 2
    SAFE = 3


ORDERED = (Service.AGREED, Service.SAFE)
"""The services whose messages share the one total order."""


class Timestamp(NamedTuple):
    """A place in the agreed order: globally unique, and consistent with causality (COREL's TS)."""

    clock: int
    name: str
    incarnation: int


class Message(NamedTuple):
    """What the layer above receives. Clock and sender come first: messages compare as their timestamps do."""

    clock: int
    sender: Machine
    sequence: int
    service: Service
    view: ViewId
    payload: bytes

    @property
    def timestamp(self) -> Timestamp:
        return Timestamp(self.clock, *self.sender)

    @property
    def id(self) -> str:
        return f"{self.sender}.{self.sequence}"


@dataclass(frozen=True, slots=True)
class View:
    """The machines that currently send to each other, in order of name. `transitional` are those of them that come
    from the same view as this machine, and so have delivered the same messages in it."""

    id: ViewId
    members: tuple[Machine, ...]
    transitional: tuple[Machine, ...] = ()

    def __post_init__(self) -> None:
        if not self.members:
            raise ValueError("a view has at least one member")
        for machine in self.members:
            if not 0 < len(machine.name.encode()) <= NAME_BYTES_MAX:
                raise ValueError(f"a name has 1 to {NAME_BYTES_MAX} bytes, not {machine.name!r}")
        names = [machine.name for machine in self.members]
        if names != sorted(set(names)):
            raise ValueError(f"the members of a view are distinct names in order, not {names}")


class Fragment(NamedTuple):
    """Which part of a message a packet's single unit is. How many parts there will be is not said: each takes what
    its packet's acknowledgements leave of a datagram, and no receiver needs to know."""

    part: int
    is_last: bool


@dataclass(frozen=True, slots=True)
class Packet:
    """A run of units of one sender: a node of the causal DAG. It is never changed, and not packed anew when any
    machine that holds it retransmits it."""

    sender: Machine
    view: ViewId
    sequence: int
    clock: int
    service: Service
    acks: Acks
    payloads: tuple[bytes, ...]
    fragment: Fragment | None = None
    last_sequence: int = field(init=False, repr=False, compare=False)
    last_clock: int = field(init=False, repr=False, compare=False)
    payload_bytes: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.payloads:
            raise ValueError("a packet carries at least one unit")
        if self.sequence < 1 or self.clock < 1:
            raise ValueError("sequences and clocks count from 1")
        if self.fragment is not None:
            if len(self.payloads) != 1 or not self.payloads[0]:
                raise ValueError("a fragment is one unit, and not an empty one")
            if not 0 <= self.fragment.part < self.sequence:
                raise ValueError(f"part {self.fragment.part} cannot be unit {self.sequence}")
        following = len(self.payloads) - 1
        object.__setattr__(self, "last_sequence", self.sequence + following)
        object.__setattr__(self, "last_clock", self.clock + following)
        object.__setattr__(self, "payload_bytes", sum(map(len, self.payloads)))

    @property
    def id(self) -> str:
        """`a.1.17`, or `a.1.17-29` for a run."""
        run = "" if len(self.payloads) == 1 else f"-{self.last_sequence}"
        return f"{self.sender}.{self.sequence}{run}"


@dataclass(frozen=True, slots=True)
class Status:
    """Acknowledgements without data to carry them; also the heartbeat. It is not part of the DAG and not
    retransmitted, and therefore complete: it has all of its sender's acknowledgements, not only the new ones.

    It promises that every message of its sender after `sequence` has a clock above `clock`. `window_bytes` is the
    window that the sender's receive buffer can hold. `solicit` names machines whose acknowledgement the sender
    waits for, because it may have been lost.
    """

    view: ViewId
    clock: int
    sequence: int
    window_bytes: int
    acks: Acks
    solicit: tuple[Machine, ...] = ()
    marks: tuple[int, ...] = ()
    """Up to which sequence the layer above has processed each member's messages (COREL: logged them), in the
    members' order. The transport only carries this. It is empty until the layer above has set marks."""


Ranges: TypeAlias = tuple[tuple[int, int], ...]
"""Inclusive `(first, last)` runs of sequences, ascending."""


@dataclass(frozen=True, slots=True)
class Nack:
    """Asks for these units of `machine` to be broadcast again: the machine itself at first, and any holder
    once the request has to be repeated."""

    machine: Machine
    ranges: Ranges
    is_repeated: bool

    def __post_init__(self) -> None:
        previous = 0
        for first, last in self.ranges:
            if not previous < first <= last:
                raise ValueError(f"ranges must ascend, not {self.ranges}")
            previous = last


@dataclass(frozen=True, slots=True)
class Retransmission:
    """A packet sent again on request, by its sender or by another machine that holds it."""

    packet: Packet


@dataclass(frozen=True, slots=True)
class Envelope:
    """A frame of the membership layer, which alone can decode it."""

    body: bytes


Frame: TypeAlias = Packet | Retransmission | Status | Nack | Envelope


@dataclass(frozen=True, slots=True)
class Datagram:
    """What one send puts on the network. `sender` transmits it, and is not always the sender of each packet."""

    sender: Machine
    frames: tuple[Frame, ...]

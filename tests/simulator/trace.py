"""Writes what happens in a run, a line each: datagrams on the network, and what the machines journal."""

from __future__ import annotations

from collections.abc import Callable

from membership import codec
from membership.messages import AttemptJoin, Control, GroupFrame, Join, Presence
from tests.simulator.world import World
from transport.effects import Journal
from transport.messages import Acks, Datagram, Envelope, Frame, Packet, Retransmission, Status


class Trace:
    """Writes lines of `time  node  event  details`, times in simulated milliseconds."""

    def __init__(self, world: World, write: Callable[[str], None]) -> None:
        self._world = world
        self._write = write

    def on_network(self, what: str, source: str, target: str, datagram: Datagram) -> None:
        frames = ", ".join(map(describe_frame, datagram.frames))
        self._write(f"{self._world.now:10.3f}  {source}->{target}  {what:13} {frames}")

    def on_journal(self, node: str, journal: Journal) -> None:
        details = " ".join(f"{key}={value}" for key, value in journal.details.items())
        line = f"{self._world.now:10.3f}  {node:4}  {journal.event:13} {journal.id} ({journal.reason}) {details}"
        self._write(line.rstrip())


def describe_frame(frame: Frame) -> str:
    if isinstance(frame, Packet):
        part = f" part {frame.fragment.part}" if frame.fragment else ""
        return f"{frame.service.name} {frame.id}{part} @{frame.clock} acks [{_describe_acks(frame.acks)}]"
    if isinstance(frame, Retransmission):
        return f"again {describe_frame(frame.packet)}"
    if isinstance(frame, Status):
        solicits = f" solicits {' '.join(map(str, frame.solicit))}" if frame.solicit else ""
        return f"STATUS @{frame.clock} last {frame.sequence} acks [{_describe_acks(frame.acks)}]{solicits}"
    if isinstance(frame, Envelope):
        return describe_group_frame(codec.decode(frame.body))
    ranges = " ".join(f"{first}-{last}" for first, last in frame.ranges)
    return f"NACK {frame.machine} {ranges}{' again' if frame.is_repeated else ''}"


def describe_group_frame(group_frame: GroupFrame) -> str:
    if isinstance(group_frame, Presence):
        hears = " ".join(map(str, group_frame.heard))
        return f"PRESENCE {group_frame.view} hears [{hears}] has [{_describe_acks(group_frame.controls)}]"
    if not isinstance(group_frame, Control):
        return f"{type(group_frame).__name__.upper()} {group_frame.number}"
    body = group_frame.body
    if isinstance(body, AttemptJoin):
        what = f"AJ cut [{_describe_acks(body.joining.cut_vector)}]"
    elif isinstance(body, Join):
        what = f"JOIN [{' '.join(sorted(map(str, body.machines)))}] faults [{' '.join(map(str, body.faults))}]"
    else:
        what = f"FA [{' '.join(map(str, body.faults))}]"
    follows = f"acks [{_describe_acks(group_frame.acks)}] covers [{_describe_acks(group_frame.cover)}]"
    return f"{what} {group_frame.id} @{group_frame.clock} in {group_frame.view} {follows}"


def _describe_acks(acks: Acks) -> str:
    return " ".join(f"{machine}.{sequence}" for machine, sequence in acks)

"""Machines, views and control messages for tests, written with single group_frames: `machine("a")`,
`fault("c")`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from membership import codec
from membership.messages import AttemptJoin, Body, Control, Fault, GroupFrame, Join, JoiningSet, Machines
from transport.messages import Envelope, Frame, Machine, ViewId


def machine(name: str, incarnation: int = 1) -> Machine:
    return Machine(name, incarnation)


def machines(names: str) -> Machines:
    return tuple(machine(name) for name in sorted(names))


def names(members: Iterable[Machine]) -> str:
    return "".join(sorted(member.name for member in members))


def view_id(component: str, clock: int = 1) -> ViewId:
    """Returns the id of the view that a component of a `Table` begins in."""
    return ViewId(clock, *machines(component)[0])


def joining(component: str, **cuts: int) -> JoiningSet:
    """Returns the joining set of a component, with cut-counters of 0 unless they are given by name."""
    return JoiningSet(
        view_id(component), tuple((member, cuts.get(member.name, 0)) for member in machines(component))
    )


def attempt(component: str, **cuts: int) -> AttemptJoin:
    return AttemptJoin(joining(component, **cuts))


def join(*components: str, faults: str = "") -> Join:
    return Join(tuple(joining(component) for component in components), machines(faults))


def fault(faults: str) -> Fault:
    return Fault(machines(faults))


def control(
    sender: str,
    sequence: int,
    body: Body,
    view: ViewId | None = None,
    acks: Mapping[str, int] | None = None,
    cover: Mapping[str, int] | None = None,
    clock: int | None = None,
) -> Control:
    """Returns a control message, by default of a machine that is alone in its view and has sent nothing in it."""
    covered = {sender: 0, **(cover or {})}
    return Control(
        machine(sender),
        sequence,
        clock or sequence + 1,
        view or view_id(sender),
        tuple((machine(name), acked) for name, acked in (acks or {}).items()),
        () if isinstance(body, AttemptJoin) else tuple((machine(name), count) for name, count in covered.items()),
        body,
    )


def group_frame_in(frame: Frame) -> GroupFrame | None:
    """Returns the membership frame in an envelope; None if the frame is of the transport."""
    return codec.decode(frame.body) if isinstance(frame, Envelope) else None


def short_id(control: Control) -> str:
    """Returns the id of a control message without the incarnation: `a:1`."""
    return f"{control.sender.name}:{control.sequence}"


def ids(controls: Iterable[Control]) -> Iterator[str]:
    return map(short_id, controls)

"""Encodes the frames of the membership as the bytes of an envelope, and decodes them.

    [kind, [name, incarnation, name, incarnation, ...], field, field, ...]

Machines are named once, in the table; fields refer to them by their place in it. Whatever arrives, decoding
returns a frame of which every part has been checked, or raises the transport's `DecodeError`.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgpack

from membership.messages import (
    AttemptJoin,
    Control,
    Fault,
    GroupFrame,
    Join,
    JoiningSet,
    Machines,
    Presence,
    Probe,
    ProbeReply,
    Progress,
)
from transport import DECODE_ARRAY_MAX, NAME_BYTES_MAX, SEQUENCE_MAX, Acks, DecodeError, Machine, ViewId

_ATTEMPT, _JOIN, _FAULT, _PRESENCE, _PROBE, _PROBE_REPLY = range(6)


def encode(group_frame: GroupFrame) -> bytes:
    table = _Table()
    if isinstance(group_frame, Control):
        kind, fields = _control_fields(group_frame, table)
    elif isinstance(group_frame, Presence):
        kind = _PRESENCE
        fields = [table.view(group_frame.view), table.all(group_frame.members), table.all(group_frame.heard)]
        fields += [table.acks(group_frame.controls), list(group_frame.progress)]
    else:
        kind = _PROBE if isinstance(group_frame, Probe) else _PROBE_REPLY
        fields = [group_frame.number]
    packed: bytes = msgpack.packb([kind, table.flat(), *fields])
    return packed


def decode(body: bytes) -> GroupFrame:
    try:
        items = msgpack.unpackb(body, max_array_len=DECODE_ARRAY_MAX, max_map_len=0, max_ext_len=0)
        kind, flat, *fields = _list(items)
        return _group_frame(kind, _Places(flat), fields)
    except Exception as error:  # msgpack raises classes of its own, RecursionError, MemoryError …
        raise DecodeError(f"malformed membership frame: {type(error).__name__}: {error}") from None


def _control_fields(control: Control, table: _Table) -> tuple[int, list[object]]:
    fields: list[object] = [
        table.place(control.sender),
        control.sequence,
        control.clock,
        table.view(control.view),
        table.acks(control.acks),
        table.acks(control.cover),
    ]
    body = control.body
    if isinstance(body, AttemptJoin):
        return _ATTEMPT, [*fields, table.set(body.joining)]
    if isinstance(body, Join):
        return _JOIN, [*fields, [table.set(joining) for joining in body.sets], table.all(body.faults)]
    return _FAULT, [*fields, table.all(body.faults)]


def _group_frame(kind: object, places: _Places, fields: list[object]) -> GroupFrame:
    if kind == _PRESENCE:
        view, members, heard, controls, progress = fields
        return Presence(
            places.view(view),
            places.all(members),
            places.all(heard),
            places.acks(controls),
            _progress(progress),
        )
    if kind in (_PROBE, _PROBE_REPLY):
        (number,) = fields
        return Probe(_natural(number)) if kind == _PROBE else ProbeReply(_natural(number))
    sender, sequence, clock, view, acks, cover, *rest = fields
    body: AttemptJoin | Join | Fault
    if kind == _ATTEMPT:
        (joining,) = rest
        body = AttemptJoin(places.set(joining))
    elif kind == _JOIN:
        sets, faults = rest
        body = Join(tuple(map(places.set, _list(sets))), places.all(faults))
    elif kind == _FAULT:
        (faults,) = rest
        body = Fault(places.all(faults))
    else:
        raise ValueError(f"unknown kind {kind!r}")
    return Control(
        places.machine(sender),
        _natural(sequence),
        _natural(clock),
        places.view(view),
        places.acks(acks),
        places.acks(cover),
        body,
    )


class _Table:
    """Encodes machines as places in the table, which it builds on the way."""

    def __init__(self) -> None:
        self._places: dict[Machine, int] = {}

    def place(self, machine: Machine) -> int:
        return self._places.setdefault(machine, len(self._places))

    def all(self, machines: Machines) -> list[int]:
        return [self.place(machine) for machine in machines]

    def acks(self, acks: Acks) -> list[int]:
        return [number for machine, sequence in acks for number in (self.place(machine), sequence)]

    def view(self, view: ViewId) -> list[int]:
        return [view.clock, self.place(Machine(view.name, view.incarnation))]

    def set(self, joining: JoiningSet) -> list[list[int]]:
        return [self.view(joining.view), self.acks(joining.cut_vector)]

    def flat(self) -> list[object]:
        return [part for machine in self._places for part in machine]


class _Places:
    """Decodes places in the table as machines."""

    def __init__(self, flat: object) -> None:
        self._machines = [_machine(name, incarnation) for name, incarnation in _pairs(_list(flat))]

    def machine(self, place: object) -> Machine:
        return self._machines[_natural(place)]

    def all(self, places: object) -> Machines:
        return tuple(self.machine(place) for place in _list(places))

    def acks(self, flat: object) -> Acks:
        return tuple((self.machine(place), _natural(sequence)) for place, sequence in _pairs(_list(flat)))

    def view(self, pair: object) -> ViewId:
        clock, place = _list(pair)
        return ViewId(_natural(clock), *self.machine(place))

    def set(self, pair: object) -> JoiningSet:
        view, cut_vector = _list(pair)
        return JoiningSet(self.view(view), self.acks(cut_vector))


def _machine(name: object, incarnation: object) -> Machine:
    if type(name) is not str or not 0 < len(name.encode()) <= NAME_BYTES_MAX:
        raise ValueError("a machine's name is text of 1 to 64 bytes")
    return Machine(name, _natural(incarnation))


def _progress(item: object) -> Progress:
    epoch, decided, line, known, floor = map(_natural, _list(item))
    return Progress(epoch, decided, line, known, floor)


def _natural(item: object) -> int:
    if type(item) is not int or not 0 <= item <= SEQUENCE_MAX:
        raise ValueError("expected a natural number")
    return item


def _list(item: object) -> list[object]:
    if type(item) is not list:
        raise ValueError("expected an array")
    return item


def _pairs(items: list[object]) -> Iterator[tuple[object, object]]:
    if len(items) % 2:
        raise ValueError("expected pairs")
    return zip(items[::2], items[1::2], strict=True)

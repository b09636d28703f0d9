"""Payloads as bytes: msgpack arrays that begin with their kind. Bytes that do not decode are a peer's error."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

import msgpack

from corel.messages import (
    DIGEST_BYTES,
    IDENTITY_BYTES,
    NO_VIEW,
    Attempt,
    Commit,
    Copy,
    GreenDigests,
    MessageId,
    Payload,
    PrimaryCheck,
    Priority,
    Reds,
    Regular,
    State,
    Vector,
)
from corel.participation import Participant, Participants
from transport import NAME_BYTES_MAX, SEQUENCE_MAX, Machine, ViewId

_REGULAR, _STATE, _ATTEMPT, _COMMIT, _PRIORITY, _REDS, _PRIMARY_CHECK, _GREEN_DIGESTS = range(8)

IDS_MAX = 262_144
"""The most ids in a payload. Far fewer are under way in a view; without this bound a few bytes could announce any
number."""

COPY_OVERHEAD_BYTES = 2 * NAME_BYTES_MAX + 64
"""The most bytes that a copy takes besides its body."""


class PayloadError(Exception):
    """The bytes are not a payload of ours."""


def encode(payload: Payload) -> bytes:
    packed: bytes = msgpack.packb(_to_list(payload))
    return packed


def decode(payload: bytes) -> Payload:
    """Returns the payload, every part of it checked, or raises `PayloadError`."""
    try:
        fields = msgpack.unpackb(payload, strict_map_key=True, max_map_len=0, max_ext_len=0)
        return _from_list(_list(fields))
    except PayloadError:
        raise
    except Exception as error:  # msgpack raises ValueError, its own classes, RecursionError …
        raise PayloadError(f"not a payload of the log: {type(error).__name__}: {error}") from None


def _to_list(payload: Payload) -> list[object]:
    if isinstance(payload, Regular):
        return [_REGULAR, payload.sequence, payload.body]
    if isinstance(payload, State):
        return [
            _STATE,
            payload.committed,
            payload.attempted,
            payload.green,
            payload.green_digest,
            payload.base,
            payload.base_digest,
            pack_ids(payload.tail),
            [part for stream, last in payload.have for part in (*stream, last)],
            payload.is_voter,
            payload.roster,
            payload.generation,
            list(payload.attempted_view),
            payload.disk,
            [part for participant in payload.participants for part in participant],
            payload.cut,
            payload.is_learned,
            payload.established,
            payload.established_base,
            payload.voter_since,
            [part for pair in payload.folded for part in pair],
        ]
    if isinstance(payload, Attempt):
        return [_ATTEMPT, payload.number, payload.digest]
    if isinstance(payload, Commit):
        return [_COMMIT, payload.number]
    if isinstance(payload, Priority):
        return [_PRIORITY, payload.position, *_copies_to_lists(payload.copies)]
    if isinstance(payload, PrimaryCheck):
        return [_PRIMARY_CHECK, payload.number]
    if isinstance(payload, GreenDigests):
        return [_GREEN_DIGESTS, *payload.digests]
    return [_REDS, payload.is_last, *_copies_to_lists(payload.copies)]


def _from_list(fields: list[object]) -> Payload:
    kind, *rest = fields
    if kind == _REGULAR:
        sequence, body = rest
        return Regular(_positive(sequence), _bytes(body))
    if kind == _STATE:
        return _state(*rest)
    if kind == _ATTEMPT:
        number, digest = rest
        return Attempt(_positive(number), _digest(digest))
    if kind == _COMMIT:
        (number,) = rest
        return Commit(_positive(number))
    if kind == _GREEN_DIGESTS:
        return GreenDigests(tuple(map(_digest, rest)))
    if kind == _PRIORITY:
        position, names, copies = rest
        return Priority(_natural(position), _copies(_list(names), _list(copies)))
    if kind == _REDS:
        is_last, names, copies = rest
        return Reds(_copies(_list(names), _list(copies)), _boolean(is_last))
    if kind == _PRIMARY_CHECK:
        (number,) = rest
        return PrimaryCheck(_natural(number))
    raise PayloadError(f"unknown kind {kind!r}")


def _state(*fields: object) -> State:
    committed, attempted, green, green_digest, base, base_digest, tail, have, is_voter, roster, *identity = fields
    generation, attempted_view, disk, participants, cut, is_learned, *knowledge = identity
    established, established_base, voter_since, folded = knowledge
    return State(
        _natural(committed),
        _natural(attempted),
        _natural(green),
        _digest(green_digest),
        _natural(base),
        _digest(base_digest),
        unpack_ids(_list(tail)),
        _vector(_list(have)),
        _boolean(is_voter),
        _identity(roster),
        _identity(generation),
        _view_id(_list(attempted_view)),
        _identity(disk),
        _participants(_list(participants)),
        _natural(cut),
        _boolean(is_learned),
        _natural(established),
        _natural(established_base),
        _natural(voter_since),
        _folded(_list(folded)),
    )


# Ids: runs of consecutive sequences of one stream


def pack_ids(ids: Iterable[MessageId]) -> list[object]:
    """Returns ids as runs, [name, incarnation, first, count, …]: a sender's messages mostly follow each other."""
    flat: list[object] = []
    for (stream, _), run in groupby(enumerate(ids), key=lambda item: (item[1].stream, item[1].sequence - item[0])):
        first, *more = [message.sequence for _, message in run]
        flat += [*stream, first, 1 + len(more)]
    return flat


def unpack_ids(flat: list[object]) -> tuple[MessageId, ...]:
    if len(flat) % 4:
        raise PayloadError("ids come in fours")
    ids: list[MessageId] = []
    for name, incarnation, first, count in zip(*[iter(flat)] * 4, strict=True):
        stream, start = _machine(name, incarnation), _positive(first)
        end = start + _positive(count)
        if len(ids) + end - start > IDS_MAX or end > SEQUENCE_MAX:
            raise PayloadError(f"more than {IDS_MAX} ids, or beyond the largest sequence")
        ids += [MessageId(stream, sequence) for sequence in range(start, end)]
    return tuple(ids)


# Copies: a payload names each stream and view once, since they repeat


def _copies_to_lists(copies: tuple[Copy, ...]) -> tuple[list[object], list[object]]:
    numbers: dict[Machine | ViewId, int] = {}
    names: list[object] = []
    flat: list[object] = []

    def number_of(subject: Machine | ViewId) -> int:
        number = numbers.get(subject)
        if number is None:
            number = numbers[subject] = len(numbers)
            names.append(list(subject))
        return number

    for copy in copies:
        stream, sequence = copy.id
        flat += [number_of(stream), sequence, copy.clock, number_of(copy.view), copy.body]
    return names, flat


def _copies(names: list[object], flat: list[object]) -> tuple[Copy, ...]:
    if len(flat) % 5:
        raise PayloadError("copies come in fives")
    subjects = [_subject(_list(name)) for name in names]
    copies: list[Copy] = []
    for stream, sequence, clock, view, body in zip(*[iter(flat)] * 5, strict=True):
        sender, origin = subjects[_natural(stream)], subjects[_natural(view)]
        if type(sender) is not Machine or type(origin) is not ViewId:
            raise PayloadError("a copy without a stream or a view")
        content = None if body is None else _bytes(body)
        copies.append(Copy(MessageId(sender, _positive(sequence)), _positive(clock), origin, content))
    return tuple(copies)


def _subject(fields: list[object]) -> Machine | ViewId:
    if len(fields) == 2:
        return _machine(*fields)
    clock, name, incarnation = fields
    return ViewId(_natural(clock), *_machine(name, incarnation))


def _view_id(fields: list[object]) -> ViewId:
    """Returns a view id, or `NO_VIEW`."""
    clock, name, incarnation = fields
    if name == "":
        return NO_VIEW
    return ViewId(_natural(clock), *_machine(name, incarnation))


def _vector(flat: list[object]) -> Vector:
    if len(flat) % 3:
        raise PayloadError("a vector comes in threes")
    groups = zip(*[iter(flat)] * 3, strict=True)
    return tuple((_machine(name, incarnation), _positive(last)) for name, incarnation, last in groups)


def _participants(flat: list[object]) -> Participants:
    if len(flat) % 4:
        raise PayloadError("participants come in fours")
    groups = zip(*[iter(flat)] * 4, strict=True)
    return tuple(Participant(_name(name), *map(_natural, numbers)) for name, *numbers in groups)


def _folded(flat: list[object]) -> tuple[tuple[str, int], ...]:
    if len(flat) % 2:
        raise PayloadError("what is folded comes in pairs")
    return tuple((_name(name), _natural(incarnation)) for name, incarnation in zip(*[iter(flat)] * 2, strict=True))


def _machine(name: object, incarnation: object) -> Machine:
    return Machine(_name(name), _natural(incarnation))


def _name(name: object) -> str:
    if type(name) is not str or not 0 < len(name.encode()) <= NAME_BYTES_MAX:
        raise PayloadError("a name is text of 1 to 64 bytes")
    return name


def _natural(item: object) -> int:
    if type(item) is not int or not 0 <= item <= SEQUENCE_MAX:
        raise PayloadError("expected a natural number")
    return item


def _positive(item: object) -> int:
    if _natural(item) < 1:
        raise PayloadError("expected a positive number")
    return item  # type: ignore[return-value]  # checked by _natural


def _bytes(item: object) -> bytes:
    if type(item) is not bytes:
        raise PayloadError("expected bytes")
    return item


def _digest(item: object) -> bytes:
    if len(_bytes(item)) != DIGEST_BYTES:
        raise PayloadError(f"a digest has {DIGEST_BYTES} bytes")
    return item  # type: ignore[return-value]  # checked by _bytes


def _identity(item: object) -> bytes:
    if len(_bytes(item)) != IDENTITY_BYTES:
        raise PayloadError(f"an identity has {IDENTITY_BYTES} bytes")
    return item  # type: ignore[return-value]  # checked by _bytes


def _boolean(item: object) -> bool:
    if type(item) is not bool:
        raise PayloadError("expected true or false")
    return item


def _list(item: object) -> list[object]:
    if type(item) is not list:
        raise PayloadError("expected an array")
    return item

"""Records of the log, lines and arrivals, as items that msgpack packs, and as bytes."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from sys import byteorder
from typing import Any

from corel.checked_values import Bytes
from corel.messages import MessageId
from corel.participation import Participant
from corel.storage import Lines, Record
from transport import Machine, ViewId

_LINES_OF_FORMAT_5 = 15


def arrivals_to_bytes(arrivals: Sequence[int]) -> bytes:
    numbers = array("Q", arrivals)
    if byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()


def arrivals(content: Bytes) -> list[int]:
    numbers = array("Q", bytes(content))
    if byteorder == "big":
        numbers.byteswap()
    return numbers.tolist()


def records_to_list(records: Sequence[Record]) -> list[object]:
    """Returns records as lists that name each stream and view once, since they repeat."""
    numbers: dict[Machine | ViewId, int] = {}
    flat: list[object] = []
    for record in records:
        stream, sequence = record.id
        flat += [
            numbers.setdefault(stream, len(numbers)),
            sequence,
            record.clock,
            numbers.setdefault(record.view, len(numbers)),
            record.primary,
            record.body,
        ]
    return [[list(subject) for subject in numbers], flat]


def records(start: int, item: Any) -> list[Record]:
    names, flat = item
    subjects = [ViewId(*name) if len(name) == 3 else Machine(*name) for name in names]
    sixes = zip(*[iter(flat)] * 6, strict=True)
    return [
        Record(arrival, MessageId(subjects[stream], sequence), clock, subjects[view], primary, body)
        for arrival, (stream, sequence, clock, view, primary, body) in enumerate(sixes, start)
    ]


def lines_to_list(lines: Lines) -> list[object]:
    return [
        lines.committed,
        lines.attempted,
        lines.is_voter,
        lines.green,
        lines.green_digest,
        lines.base,
        lines.base_digest,
        [part for stream, last in lines.streams for part in (*stream, last)],
        [part for pair in lines.folded for part in pair],
        lines.next_arrival,
        lines.open_from,
        lines.tail_from,
        lines.clock,
        list(lines.attempted_view),
        lines.generation,
        [part for participant in lines.participants for part in participant],
        lines.cut,
        lines.is_learned,
        lines.established,
        lines.established_base,
        lines.voter_since,
    ]


def lines(item: Any) -> Lines:
    """Reads lines of this format, or of format 5, whose logs began at 0 and remembered no participants."""
    if len(item) == _LINES_OF_FORMAT_5:
        item = [*item, [], 0, False, 0, 0, 0]
    flat = item[7]
    streams = tuple((Machine(name, number), last) for name, number, last in zip(*[iter(flat)] * 3, strict=True))
    folded = tuple(zip(item[8][::2], item[8][1::2], strict=True))
    *numbers, attempted_view, generation, flat = item[9 : _LINES_OF_FORMAT_5 + 1]
    participants = tuple(Participant(*four) for four in zip(*[iter(flat)] * 4, strict=True))
    begun = [*item[:7], streams, folded, *numbers, ViewId(*attempted_view), generation, participants]
    return Lines(*begun, *item[_LINES_OF_FORMAT_5 + 1 :])

"""What the journal says of each event: functions that run in its thread, and return records as fields of the
schema.

Events that name many messages are spread over several records, so that no line grows without bound."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple, TypeAlias

from corel import Color, MessageId
from kvstore.journal_schema import SCHEMA
from kvstore.store import ConflictKind, Outcome, Verdict
from transport import Journal, Machine, TransportEvent

RECORD_MESSAGES_MAX = 512
"""Most messages that one record names."""

Fields: TypeAlias = dict[str, Any]

_PACKET_EVENTS = frozenset(
    {
        TransportEvent.PACKET_SENT,
        TransportEvent.PACKET_RECEIVED,
        TransportEvent.PACKET_STABLE,
        TransportEvent.PACKET_DELIVERED,
        TransportEvent.RETRANSMITTED,
    }
)

_SUBJECTS = {
    "nacked": "machine",
    "links": "machine",
    "probed": "machine",
    "refused": "id",
    "control_sent": "control",
    "control_resent": "control",
}
"""The field that `Journal.id` is, by event; for all others it is the view."""


Told: TypeAlias = tuple[MessageId, int, Outcome | Color | None]
"""What a client was told of the write at this place in a message: its outcome, or the colour with which it was
accepted, or that it may stand or not."""


class Met(NamedTuple):
    """What a merge did to a write."""

    write_id: str
    outcome: Outcome
    kind: ConflictKind
    key: str
    other: str
    other_revision: int | None


def entry(journal: Journal) -> Iterator[Fields]:
    """An effect of a machine that says itself what to journal."""
    name = str(journal.event)
    fields: Fields = {"event": name}
    if journal.event in _PACKET_EVENTS:
        machine, _, run = journal.id.rpartition(".")
        first, _, last = run.partition("-")
        fields |= {"machine": machine, "first": int(first), "last": int(last or first)}
    elif journal.id:
        fields[_SUBJECTS.get(name, "view")] = journal.id
    if "reason" in SCHEMA.events[name].fields:
        fields["reason"] = str(journal.reason)
    fields |= journal.details
    ranges = fields.pop("ranges", None)
    if ranges is not None:
        fields["firsts"] = [first for first, _ in ranges]
        fields["counts"] = [last - first + 1 for first, last in ranges]
    ids = fields.pop("ids", None)
    if ids is None:
        yield fields
        return
    for start in range(0, len(ids), RECORD_MESSAGES_MAX):
        yield {**fields, "ids": _texts(ids[start : start + RECORD_MESSAGES_MAX])}


def plain(event: str, fields: Fields) -> Iterator[Fields]:
    """An event that is told as it is."""
    yield {"event": event, **fields}


def messages(
    event: str, ids: Sequence[MessageId], parallel: Mapping[str, Sequence[int]], fields: Fields
) -> Iterator[Fields]:
    """An event of messages. `parallel` has a value for each message; a `position` is that of the first."""
    if len(ids) <= RECORD_MESSAGES_MAX:
        yield {"event": event, **fields, "ids": _texts(ids), **parallel}
        return
    position = fields.get("position")
    for start in range(0, len(ids), RECORD_MESSAGES_MAX):
        part = slice(start, start + RECORD_MESSAGES_MAX)
        record = {"event": event, **fields, "ids": _texts(ids[part])}
        for name, values in parallel.items():
            record[name] = values[part]
        if position is not None:
            record["position"] = position + start
        yield record


def queued(
    me: Machine,
    is_recovered: bool,
    ids: Sequence[MessageId],
    parallel: Mapping[str, Sequence[int]],
    fields: Fields,
) -> Iterator[Fields]:
    """Messages that are new in the queue."""
    if is_recovered or len(ids) == 1:
        event = "recovered" if is_recovered else "sent" if ids[0].stream == me else "received"
        yield from messages(event, ids, parallel, fields)
        return
    start = 0
    for is_mine, group in groupby(ids, key=lambda one: one.stream == me):
        part = slice(start, start := start + len(list(group)))
        event = "sent" if is_mine else "received"
        yield from messages(event, ids[part], {name: values[part] for name, values in parallel.items()}, fields)


def logged(ids: Sequence[MessageId], primaries: Sequence[int]) -> Iterator[Fields]:
    """Messages on disk: yellow if they were received in a primary component."""
    for is_yellow, group in groupby(zip(ids, primaries, strict=True), key=lambda pair: pair[1] > 0):
        fields = {"color": "yellow" if is_yellow else "red"}
        yield from messages("logged", [message_id for message_id, _ in group], {}, fields)


def acknowledged(told: Sequence[Told]) -> Iterator[Fields]:
    """Answers, in the order in which they were given."""
    for (message_id, color), group in groupby(told, key=_message_and_color):
        runs = _runs(group)
        yield {
            "event": "acknowledged",
            "id": str(message_id),
            "color": color,
            "firsts": [run[0] for run in runs],
            "counts": [run[1] for run in runs],
            "outcomes": [run[2] for run in runs],
            "revisions": [run[3] for run in runs],
        }


def _message_and_color(told: Told) -> tuple[MessageId, str | None]:
    message_id, _, what = told
    return message_id, "green" if isinstance(what, Outcome) else what


def _runs(told: Iterable[Told]) -> list[list[Any]]:
    """Run-length codes answers of one message and colour: first index, how many, outcome, first revision."""
    runs: list[list[Any]] = []
    next_index, last_outcome = -1, ""
    next_revision: int | None = None
    for _, index, what in told:
        if isinstance(what, Outcome):
            outcome, revision = str(what.verdict), what.revision
        else:
            outcome, revision = "undecided" if what is None else "pending", None
        if index == next_index and outcome == last_outcome and revision == next_revision:
            runs[-1][1] += 1
        else:
            runs.append([index, 1, outcome, revision])
        next_index, next_revision, last_outcome = index + 1, revision, outcome
        if revision is not None and outcome == Verdict.APPLIED:
            next_revision = revision + 1
    return runs


def outcomes_changed(position: int, met: Sequence[Met]) -> Iterator[Fields]:
    """What a merge changed of the writes of one message."""
    for one in met:
        yield {
            "event": "outcome_changed",
            "write": one.write_id,
            "position": position,
            "kind": str(one.kind),
            "key": one.key,
            "outcome": str(one.outcome.verdict),
            "revision": one.outcome.revision if one.outcome.verdict is Verdict.APPLIED else None,
            "other": one.other,
            "other_revision": one.other_revision,
        }


def _texts(ids: Iterable[MessageId]) -> list[str]:
    return [f"{name}.{incarnation}.{sequence}" for (name, incarnation), sequence in ids]

"""Hypothesis strategies: valid writes over so few keys that they conflict, and values at the edges of rules."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import strategies as st

from corel import MessageId
from kvstore.store.operations import (
    KEY_BYTES_MAX,
    NUMBER_MAX,
    Append,
    Condition,
    Delete,
    Exists,
    Get,
    Increment,
    Merge,
    Operation,
    Put,
    RevisionIs,
    ValueIs,
    Write,
    WrittenBy,
)
from transport import Machine

KEYS = ("a", "a/b", "日本/🗝")
IDEMPOTENCY_KEYS = ("once", "once/é")

keys = st.sampled_from(KEYS)
letters = st.characters(codec="utf-8")
any_keys = st.text(letters, min_size=1, max_size=KEY_BYTES_MAX // 4) | st.sampled_from(
    ("/", "//", "a b", "x" * KEY_BYTES_MAX, "é" * (KEY_BYTES_MAX // 2))
)

_numbers = st.sampled_from((0, 1, -1, 7, NUMBER_MAX - 1, NUMBER_MAX, -NUMBER_MAX)) | st.integers(-20, 20)
_texts = st.sampled_from((b"", b"x", b"-", b"-0", b"007", b"+1", b" 1", b"1.5", b"9" * 19, b"0" * 20, b"\xff\0"))
values = _numbers.map(lambda number: str(number).encode()) | _texts | st.binary(max_size=6)
content_types = st.sampled_from(("application/octet-stream", "text/plain", "x"))

revisions = st.integers(0, 12)
write_ids = st.builds("{}.1.{}.{}".format, st.sampled_from("abc"), st.integers(1, 4), st.integers(0, 1))


def operations_on(some_keys: st.SearchStrategy[str]) -> st.SearchStrategy[Operation]:
    return (
        st.builds(Put, some_keys, values, content_types)
        | st.builds(Delete, some_keys)
        | st.builds(Increment, some_keys, _numbers)
        | st.builds(Append, some_keys, values)
        | st.builds(Get, some_keys)
    )


def conditions_on(some_keys: st.SearchStrategy[str]) -> st.SearchStrategy[Condition]:
    return (
        st.builds(Exists, some_keys, st.booleans())
        | st.builds(RevisionIs, some_keys, revisions)
        | st.builds(WrittenBy, some_keys, write_ids)
        | st.builds(ValueIs, some_keys, values)
    )


operations = operations_on(keys)
conditions = conditions_on(keys)
merges = st.sampled_from(Merge)


def _some(parts: st.SearchStrategy[Operation], most: int) -> st.SearchStrategy[tuple[Operation, ...]]:
    return st.lists(parts, max_size=most).map(tuple)


single_writes = st.builds(lambda operation: Write((operation,)), operations)
transactions = st.builds(
    Write,
    _some(operations, 4),
    st.lists(conditions, max_size=2).map(tuple),
    st.none() | _some(operations, 2),
    st.none() | st.sampled_from(IDEMPOTENCY_KEYS),
    merges,
)
retried = st.builds(
    lambda key, by: Write((Increment("a", by),), idempotency_key=key),
    st.sampled_from(IDEMPOTENCY_KEYS),
    st.integers(1, 2),
)
"""So few that the same write occurs again, and another write under the same idempotency key."""

writes = single_writes | transactions | retried
batches = st.lists(writes, min_size=1, max_size=3)
"""The writes of one message."""

any_writes = st.builds(
    Write,
    _some(operations_on(any_keys), 4),
    st.lists(conditions_on(any_keys), max_size=3).map(tuple),
    st.none() | _some(operations_on(any_keys), 3),
    st.none() | st.text(letters, min_size=1, max_size=255),
    merges,
)
"""Writes with keys of every kind, for tests without a state."""


# Messages of several senders, in an order that their merge may come to


class Sent(NamedTuple):
    """A message, and what its sender knew."""

    id: MessageId
    writes: list[Write]
    expires: int
    knew: frozenset[str] | None
    """The names of all messages that its sender had; None in a primary component."""
    line: int
    """How many messages its sender knew as green, the first ones of the order."""
    known: dict[str, int]
    """The last message that its sender had of each stream with others than those."""


@st.composite
def merged_orders(draw: st.DrawFn, most: int = 9) -> list[Sent]:
    """Draws some messages that were sent in a primary component, then others that nodes sent while each had some
    of all messages, and merges those in any order in which no message comes before one that its sender had."""
    counts = dict.fromkeys(_NODES, 0)
    order: list[Sent] = []
    for name in draw(_senders(most // 3)):
        counts[name] += 1
        order.append(_sent(draw, MessageId(Machine(name, 1), counts[name]), None, 0, {}))
    lines = {name: draw(st.integers(0, len(order))) for name in _NODES}
    has: dict[str, dict[str, MessageId]] = {}
    for name in _NODES:
        own = [place for place, one in enumerate(order, start=1) if one.id.stream.name == name]
        extent = max(lines[name], *own, draw(st.integers(0, len(order))))
        has[name] = {str(one.id): one.id for one in order[:extent]}
    waiting: list[Sent] = []
    for name in draw(_senders(most)):
        has[name].update(has[draw(st.sampled_from(_NODES))])
        green = {str(one.id) for one in order[: lines[name]]}
        known: dict[str, int] = {}
        for message, (machine, sequence) in has[name].items():
            if message not in green:
                stream = f"{machine.name}.{machine.incarnation}"
                known[stream] = max(sequence, known.get(stream, 0))
        counts[name] += 1
        message_id = MessageId(Machine(name, 1), counts[name])
        sent = _sent(draw, message_id, frozenset(has[name]), lines[name], known)
        has[name][str(sent.id)] = sent.id
        waiting.append(sent)
    while waiting:
        names = {str(one.id) for one in waiting}
        free = [one for one in waiting if one.knew is not None and not one.knew & names]
        order.append(draw(st.sampled_from(free)))
        waiting.remove(order[-1])
    return order


_NODES = "abc"


def _senders(most: int) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(_NODES), max_size=most)


def _sent(
    draw: st.DrawFn, message_id: MessageId, knew: frozenset[str] | None, line: int, known: dict[str, int]
) -> Sent:
    return Sent(message_id, draw(batches), draw(st.integers(0, 14)), knew, line, known)

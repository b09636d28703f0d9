"""Hypothesis strategies: valid writes over so few keys that they conflict, and values at the edges of rules."""

from __future__ import annotations

from hypothesis import strategies as st

from kvstore.store.operations import (
    KEY_BYTES_MAX,
    NUMBER_MAX,
    Append,
    Condition,
    Delete,
    Exists,
    Get,
    Increment,
    Operation,
    Put,
    RevisionIs,
    ValueIs,
    Write,
    WrittenBy,
)

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


def _some(parts: st.SearchStrategy[Operation], most: int) -> st.SearchStrategy[tuple[Operation, ...]]:
    return st.lists(parts, max_size=most).map(tuple)


single_writes = st.builds(lambda operation: Write((operation,)), operations)
transactions = st.builds(
    Write,
    _some(operations, 4),
    st.lists(conditions, max_size=2).map(tuple),
    st.none() | _some(operations, 2),
    st.none() | st.sampled_from(IDEMPOTENCY_KEYS),
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
)
"""Writes with keys of every kind, for tests without a state."""

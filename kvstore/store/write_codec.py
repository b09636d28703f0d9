"""Writes as bytes, and many of them as the body of one message of the log.

    body    msgpack [FORMAT, expires, write, write, …]
    write   msgpack, as binary: [then, conditions, otherwise or nil, idempotency key or nil]
    part    [code, key, …]

A write is encoded once, where it is accepted. Two requests are the same exactly if their bytes are. When a write
with an idempotency key expires is said once for the whole message and is not part of these bytes: copies of one
write that expire at different positions are still the same write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgpack

from kvstore.store.operations import (
    NUMBER_MAX,
    Append,
    Condition,
    Delete,
    Exists,
    Get,
    Increment,
    InvalidWrite,
    Operation,
    Put,
    RevisionIs,
    ValueIs,
    Write,
    WrittenBy,
    check,
)

FORMAT = 2
BATCH_OVERHEAD_BYTES = 16
WRITE_OVERHEAD_BYTES = 5
"""Most bytes that a write takes in a body besides its own."""
WRITE_BYTES_MAX = 1_113_000
"""Large enough for the largest value with the largest of everything else in a write of one operation, and small
enough for a write to fit a message of the log (`CorelConfig.body_bytes_max`)."""

_PUT, _DELETE, _INCREMENT, _APPEND, _GET = range(5)
_REVISION_IS, _WRITTEN_BY, _EXISTS, _VALUE_IS = range(4)


class WriteError(ValueError):
    """The bytes are not a write, or not a batch of writes."""


class Batch(NamedTuple):
    """The writes of one message, encoded."""

    writes: list[bytes]
    expires: int
    """The last position of the log at which those with an idempotency key may still be decided."""


def encode_write(write: Write) -> bytes:
    """Raises `InvalidWrite` if the write may not be accepted, or is too large for a message."""
    check(write)
    otherwise = None if write.otherwise is None else [_operation_to_list(one) for one in write.otherwise]
    packed: bytes = msgpack.packb(
        [
            [_operation_to_list(one) for one in write.then],
            [_condition_to_list(one) for one in write.conditions],
            otherwise,
            write.idempotency_key,
        ]
    )
    if len(packed) > WRITE_BYTES_MAX:
        raise InvalidWrite(
            "txn_too_large",
            f"A write takes at most {WRITE_BYTES_MAX:,} bytes, with all its keys and values; this takes "
            f"{len(packed):,}. Send several.",
        )
    return packed


def decode_write(data: bytes) -> Write:
    """Raises `WriteError` if this is not a write."""
    try:
        then, conditions, otherwise, idempotency_key = msgpack.unpackb(data)
        if not (idempotency_key is None or type(idempotency_key) is str):
            raise TypeError("an idempotency key is a text")
        return Write(
            tuple(map(_operation, then)),
            tuple(map(_condition, conditions)),
            None if otherwise is None else tuple(map(_operation, otherwise)),
            idempotency_key,
        )
    except (ValueError, TypeError, IndexError, KeyError, AttributeError) as error:
        raise WriteError(f"not a write: {error}") from None


def encode_batch(writes: Sequence[bytes], expires: int) -> bytes:
    """Returns the body of a message with these encoded writes."""
    packed: bytes = msgpack.packb([FORMAT, expires, *writes])
    return packed


def decode_batch(body: bytes) -> Batch:
    """Returns the encoded writes of a message. Raises `WriteError` if its body is not a batch."""
    try:
        batch = msgpack.unpackb(body, max_array_len=len(body))
        if type(batch) is not list:
            raise TypeError("it is not a list")
        form, *rest = batch
    except (ValueError, TypeError) as error:
        raise WriteError(f"not a batch of writes: {error}") from None
    if type(form) is not int or form != FORMAT:
        raise WriteError(f"a batch of format {form!r:.100}; we know {FORMAT}")
    expires, *writes = rest or [None]
    if type(expires) is not int or not 0 <= expires <= NUMBER_MAX:
        raise WriteError(f"a batch that expires at {expires!r:.100}")
    if any(type(write) is not bytes for write in writes):
        raise WriteError("a batch holds something that is not a write")
    return Batch(writes, expires)


def _operation_to_list(operation: Operation) -> list[object]:
    if isinstance(operation, Put):
        return [_PUT, operation.key, operation.value, operation.content_type]
    if isinstance(operation, Delete):
        return [_DELETE, operation.key]
    if isinstance(operation, Increment):
        return [_INCREMENT, operation.key, operation.by]
    if isinstance(operation, Append):
        return [_APPEND, operation.key, operation.value]
    return [_GET, operation.key]


_OPERATIONS: dict[int, tuple[type[Any], tuple[type, ...]]] = {
    _PUT: (Put, (int, str, bytes, str)),
    _DELETE: (Delete, (int, str)),
    _INCREMENT: (Increment, (int, str, int)),
    _APPEND: (Append, (int, str, bytes)),
    _GET: (Get, (int, str)),
}


def _operation(item: Any) -> Operation:
    make, types = _OPERATIONS[item[0]]
    if tuple(map(type, item)) != types:
        raise TypeError(f"{make.__name__} of {item!r:.100}")
    made: Operation = make(*item[1:])
    return made


def _condition_to_list(condition: Condition) -> list[object]:
    if isinstance(condition, RevisionIs):
        return [_REVISION_IS, condition.key, condition.revision]
    if isinstance(condition, WrittenBy):
        return [_WRITTEN_BY, condition.key, condition.write_id]
    if isinstance(condition, Exists):
        return [_EXISTS, condition.key, condition.is_there]
    return [_VALUE_IS, condition.key, condition.value]


_CONDITIONS: dict[int, tuple[type[Any], tuple[type, ...]]] = {
    _REVISION_IS: (RevisionIs, (int, str, int)),
    _WRITTEN_BY: (WrittenBy, (int, str, str)),
    _EXISTS: (Exists, (int, str, bool)),
    _VALUE_IS: (ValueIs, (int, str, bytes)),
}


def _condition(item: Any) -> Condition:
    make, types = _CONDITIONS[item[0]]
    if tuple(map(type, item)) != types:
        raise TypeError(f"{make.__name__} of {item!r:.100}")
    made: Condition = make(*item[1:])
    return made

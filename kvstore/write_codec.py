"""Writes as bytes, and many of them as the body of one message of the log.

    body    msgpack [FORMAT, write, write, …]
    write   msgpack, as binary: [then, conditions, otherwise or nil, idempotency key or nil]
    part    [code, key, …]

A write is encoded once, where it was accepted; its bytes say whether two requests are the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgpack

from kvstore.operations import (
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

FORMAT = 1
BATCH_OVERHEAD_BYTES = 16
WRITE_OVERHEAD_BYTES = 5
"""What a write takes in a body besides its own bytes."""

_PUT, _DELETE, _INCREMENT, _APPEND, _GET = range(5)
_REVISION_IS, _WRITTEN_BY, _EXISTS, _VALUE_IS = range(4)


class WriteError(ValueError):
    """These bytes are not writes of ours."""


def encode_write(write: Write) -> bytes:
    otherwise = None if write.otherwise is None else [_operation_to_list(one) for one in write.otherwise]
    packed: bytes = msgpack.packb(
        [
            [_operation_to_list(one) for one in write.then],
            [_condition_to_list(one) for one in write.conditions],
            otherwise,
            write.idempotency_key,
        ]
    )
    return packed


def decode_write(data: bytes) -> Write:
    try:
        then, conditions, otherwise, idempotency_key = msgpack.unpackb(data)
        return Write(
            tuple(map(_operation, then)),
            tuple(map(_condition, conditions)),
            None if otherwise is None else tuple(map(_operation, otherwise)),
            idempotency_key,
        )
    except (ValueError, TypeError, IndexError, KeyError, AttributeError) as error:
        raise WriteError(f"not a write: {error}") from None


def encode_batch(writes: Sequence[bytes]) -> bytes:
    packed: bytes = msgpack.packb([FORMAT, *writes])
    return packed


def decode_batch(body: bytes) -> list[bytes]:
    try:
        form, *writes = msgpack.unpackb(body, max_array_len=len(body))
    except (ValueError, TypeError) as error:
        raise WriteError(f"not a batch of writes: {error}") from None
    if form != FORMAT:
        raise WriteError(f"a batch of format {form}; we know {FORMAT}")
    made: list[bytes] = writes
    return made


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


_OPERATIONS: dict[int, type[Any]] = {_PUT: Put, _DELETE: Delete, _INCREMENT: Increment, _APPEND: Append, _GET: Get}


def _operation(item: Any) -> Operation:
    made: Operation = _OPERATIONS[item[0]](*item[1:])
    return made


def _condition_to_list(condition: Condition) -> list[object]:
    if isinstance(condition, RevisionIs):
        return [_REVISION_IS, condition.key, condition.revision]
    if isinstance(condition, WrittenBy):
        return [_WRITTEN_BY, condition.key, condition.write_id]
    if isinstance(condition, Exists):
        return [_EXISTS, condition.key, condition.is_there]
    return [_VALUE_IS, condition.key, condition.value]


_CONDITIONS: dict[int, type[Any]] = {
    _REVISION_IS: RevisionIs,
    _WRITTEN_BY: WrittenBy,
    _EXISTS: Exists,
    _VALUE_IS: ValueIs,
}


def _condition(item: Any) -> Condition:
    made: Condition = _CONDITIONS[item[0]](*item[1:])
    return made

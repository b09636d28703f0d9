"""Writes as bytes, and many of them as the body of one message of the log.

    body    msgpack [FORMAT, expires, accepted at, basis or nil, write, write, …]
    basis   [line or nil, revision, stream, last sequence, stream, last sequence, …]
    write   msgpack, as binary: [then, conditions, otherwise or nil, idempotency key or nil, merge policy]
    part    [code, key, …]

A write is encoded once, where it is accepted. Two requests are the same exactly if their bytes are. When a write
with an idempotency key expires, when it was accepted and what its node knew then is said once for the whole
message and is not part of these bytes: copies of one write that differ in that are still the same write."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
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
    Merge,
    Operation,
    Put,
    RevisionIs,
    ValueIs,
    Write,
    WrittenBy,
    check,
)
from kvstore.store.state import Basis

FORMAT = 4
BASIS_STREAMS_MAX = 64
BASIS_BYTES_MAX = BASIS_STREAMS_MAX * 96
"""A stream and its last message take up to 96 bytes."""
BATCH_OVERHEAD_BYTES = 32
"""Most bytes that a body takes for what it says of all its writes, but for its basis."""
WRITE_OVERHEAD_BYTES = 5
"""Most bytes that a write takes in a body besides its own."""
WRITE_BYTES_MAX = 1_106_000
"""Large enough for the largest value with the largest of everything else in a write of one operation, and small
enough for a write to fit a message of the log (`CorelConfig.body_bytes_max`)."""

_PUT, _DELETE, _INCREMENT, _APPEND, _GET = range(5)
_REVISION_IS, _WRITTEN_BY, _EXISTS, _VALUE_IS = range(4)
_MERGES = (Merge.LAST, Merge.KEEP_GREEN)


class WriteError(ValueError):
    """The bytes are not a write, or not a batch of writes."""


class Batch(NamedTuple):
    """The writes of one message, encoded."""

    writes: list[bytes]
    expires: int
    """The last position of the log at which those with an idempotency key may still be decided."""
    accepted_ms: int = 0
    """When the message was sent, by the wall clock of its node in milliseconds: for people, and nothing else."""
    basis: Basis | None = None
    """What its node knew; None if it is taken to have known everything before it."""


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
            _MERGES.index(write.merge),
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
        then, conditions, otherwise, idempotency_key, merge = msgpack.unpackb(data)
        if not (idempotency_key is None or type(idempotency_key) is str):
            raise TypeError("an idempotency key is a text")
        if type(merge) is not int or merge not in range(len(_MERGES)):
            raise TypeError(f"there is no merge policy {merge!r:.100}")
        return Write(
            tuple(map(_operation, then)),
            tuple(map(_condition, conditions)),
            None if otherwise is None else tuple(map(_operation, otherwise)),
            idempotency_key,
            _MERGES[merge],
        )
    except (ValueError, TypeError, IndexError, KeyError, AttributeError) as error:
        raise WriteError(f"not a write: {error}") from None


def encode_batch(writes: Sequence[bytes], expires: int, accepted_ms: int = 0, basis: Basis | None = None) -> bytes:
    """Returns the body of a message with these encoded writes."""
    known = None
    if basis is not None:  # with some streams left out it seems to know less, and a write may yield in vain
        streams = sorted(basis.known.items())[-BASIS_STREAMS_MAX:]
        known = [basis.line, basis.revision, *chain.from_iterable(streams)]
    packed: bytes = msgpack.packb([FORMAT, expires, accepted_ms, known, *writes])
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
    if len(rest) < 3:
        raise WriteError(f"a batch of {len(rest)} parts")
    expires, accepted_ms, known, *writes = rest
    for number in (expires, accepted_ms):
        if type(number) is not int or not 0 <= number <= NUMBER_MAX:
            raise WriteError(f"a batch that was accepted at {accepted_ms!r:.100} and expires at {expires!r:.100}")
    if any(type(write) is not bytes for write in writes):
        raise WriteError("a batch holds something that is not a write")
    return Batch(writes, expires, accepted_ms, None if known is None else _basis(known))


def _basis(item: Any) -> Basis:
    if type(item) is not list or len(item) < 2 or len(item) % 2:
        raise WriteError(f"a basis of {item!r:.100}")
    line, revision, *known = item
    streams, numbers = known[::2], [*known[1::2], revision]
    if not (line is None or type(line) is int) or any(type(number) is not int for number in numbers):
        raise WriteError(f"a basis of {item!r:.100}")
    if any(type(stream) is not str for stream in streams):
        raise WriteError(f"a basis of {item!r:.100}")
    return Basis(revision, dict(zip(streams, known[1::2], strict=True)), line)


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

"""What clients can ask for: typed, and independent of any state.

A write is one request. It has one place in the order, and takes effect there as a whole or not at all. `check`
decides whether a write may be accepted. Writes in the log have been accepted and are not checked again, because
the limits may have changed since."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, TypeAlias

KEY_BYTES_MAX = 480
VALUE_BYTES_MAX = 1_048_576
CONTENT_TYPE_CHARACTERS_MAX = 255
IDEMPOTENCY_KEY_CHARACTERS_MAX = 255
WRITE_ID_CHARACTERS_MAX = 255
TXN_OPERATIONS_MAX = 10_000
NUMBER_MAX = 2**63 - 1
"""Counters and revisions are signed 64-bit numbers."""


class InvalidWrite(ValueError):
    """The write can never be accepted. `code` is for programs, the message says what to do."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Put:
    key: str
    value: bytes
    content_type: str = "application/octet-stream"


@dataclass(frozen=True, slots=True)
class Delete:
    key: str


@dataclass(frozen=True, slots=True)
class Increment:
    """Adds to a counter, whose value is its decimal text. A counter that does not exist is 0."""

    key: str
    by: int


@dataclass(frozen=True, slots=True)
class Append:
    """Adds to the end of a value, or makes this the value of a key that does not exist."""

    key: str
    value: bytes


@dataclass(frozen=True, slots=True)
class Get:
    """Reads a key. It occurs in transactions only, and reads what the key holds at the transaction's place in the
    order, after the operations before it."""

    key: str


Operation: TypeAlias = Put | Delete | Increment | Append | Get


@dataclass(frozen=True, slots=True)
class RevisionIs:
    """Holds if the key was last changed at this revision; 0 means that the key does not exist."""

    key: str
    revision: int


@dataclass(frozen=True, slots=True)
class WrittenBy:
    """Holds if the key was last changed by this write. It is for tentative values, which have no revision."""

    key: str
    write_id: str


@dataclass(frozen=True, slots=True)
class Exists:
    key: str
    is_there: bool


@dataclass(frozen=True, slots=True)
class ValueIs:
    key: str
    value: bytes


Condition: TypeAlias = RevisionIs | WrittenBy | Exists | ValueIs


class Merge(StrEnum):
    """What a write does that merges, if others changed its keys meanwhile."""

    LAST = "last"
    """It is applied at its place in the order, over what is there."""
    KEEP_GREEN = "keep_green"
    """It yields: it changes nothing."""


class Write(NamedTuple):
    """One request. If all `conditions` hold, it does `then`, else `otherwise`; if that is None, it is rejected."""

    then: tuple[Operation, ...]
    conditions: tuple[Condition, ...] = ()
    otherwise: tuple[Operation, ...] | None = None
    idempotency_key: str | None = None
    merge: Merge = Merge.LAST


# Limits


def check(write: Write) -> None:
    """Raises `InvalidWrite` if the write may not be accepted."""
    parts = len(write.then) + len(write.conditions) + len(write.otherwise or ())
    if parts > TXN_OPERATIONS_MAX:
        raise InvalidWrite(
            "txn_too_large",
            f"A transaction has at most {TXN_OPERATIONS_MAX:,} operations and conditions; this has {parts:,}. "
            "Send several.",
        )
    for part in (*write.then, *write.conditions, *(write.otherwise or ())):
        check_key(part.key)
        _check_content(part)
    key = write.idempotency_key
    if key is not None and not (1 <= len(key) <= IDEMPOTENCY_KEY_CHARACTERS_MAX and _is_text(key)):
        raise InvalidWrite(
            "invalid_idempotency_key",
            f"An Idempotency-Key has 1 to {IDEMPOTENCY_KEY_CHARACTERS_MAX} characters.",
        )


def check_key(key: str) -> None:
    """Raises `InvalidWrite` if this may not be a key."""
    if not key:
        raise InvalidWrite("empty_key", "A key has at least one character.")
    if not _is_text(key):
        raise InvalidWrite("invalid_key", "A key is valid UTF-8, which this is not.")
    if len(key) > KEY_BYTES_MAX // 4 and (size := len(key.encode())) > KEY_BYTES_MAX:
        raise InvalidWrite("key_too_large", f"A key has at most {KEY_BYTES_MAX} bytes of UTF-8; this has {size}.")


def _check_content(part: Operation | Condition) -> None:
    if isinstance(part, (Put, Append, ValueIs)):
        if len(part.value) > VALUE_BYTES_MAX:
            raise InvalidWrite(
                "value_too_large",
                f"A value has at most {VALUE_BYTES_MAX:,} bytes; this has {len(part.value):,}.",
            )
        if isinstance(part, Put):
            _check_content_type(part.content_type)
    elif isinstance(part, Increment):
        if not -NUMBER_MAX <= part.by <= NUMBER_MAX:
            raise InvalidWrite("number_too_large", "Counters are signed 64-bit numbers.")
    elif isinstance(part, RevisionIs):
        if not 0 <= part.revision <= NUMBER_MAX:
            raise InvalidWrite("invalid_revision", "A revision is a number from 0 on.")
    elif isinstance(part, WrittenBy) and not (
        1 <= len(part.write_id) <= WRITE_ID_CHARACTERS_MAX and _is_text(part.write_id)
    ):
        raise InvalidWrite("invalid_write_id", "A write id is what a write was answered with, such as a.1.17.0.")


def _check_content_type(content_type: str) -> None:
    if len(content_type) > CONTENT_TYPE_CHARACTERS_MAX:
        raise InvalidWrite(
            "content_type_too_long", f"A content type has at most {CONTENT_TYPE_CHARACTERS_MAX} characters."
        )
    if not (content_type and content_type.isascii() and content_type.isprintable()):
        raise InvalidWrite("invalid_content_type", "A content type is printable ASCII, such as text/plain.")


def _is_text(text: str) -> bool:
    """Whether the text can be encoded as UTF-8, which half of a surrogate pair cannot."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True

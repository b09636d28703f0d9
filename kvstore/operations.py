"""What clients ask for: typed, checked when it is made, and independent of any state.

A write is one request. It has one place in the order, and all of it happens there or nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

KEY_BYTES_MAX = 480
VALUE_BYTES_MAX = 1_048_576
CONTENT_TYPE_CHARACTERS_MAX = 255
IDEMPOTENCY_KEY_CHARACTERS_MAX = 255
TXN_OPERATIONS_MAX = 10_000
TXN_BYTES_MAX = 1_048_576
"""Of all keys and values in it together: a write must fit a message of the log."""
NUMBER_MAX = 2**63 - 1
"""Counters and revisions are signed 64-bit numbers."""


class InvalidWrite(ValueError):
    """The write can never be accepted. `code` is for programs, the message says what to do."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def check_key(key: str) -> None:
    if not key:
        raise InvalidWrite("empty_key", "A key has at least one character.")
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        raise InvalidWrite("invalid_key", "A key is valid UTF-8, which this is not.") from None
    if size > KEY_BYTES_MAX:
        raise InvalidWrite("key_too_large", f"A key has at most {KEY_BYTES_MAX} bytes of UTF-8; this has {size}.")


def check_value(value: bytes) -> None:
    if len(value) > VALUE_BYTES_MAX:
        raise InvalidWrite(
            "value_too_large", f"A value has at most {VALUE_BYTES_MAX:,} bytes; this has {len(value):,}."
        )


@dataclass(frozen=True, slots=True)
class Put:
    key: str
    value: bytes
    content_type: str = "application/octet-stream"

    def __post_init__(self) -> None:
        check_key(self.key)
        check_value(self.value)
        if len(self.content_type) > CONTENT_TYPE_CHARACTERS_MAX:
            raise InvalidWrite(
                "content_type_too_long", f"A content type has at most {CONTENT_TYPE_CHARACTERS_MAX} characters."
            )
        if not (self.content_type and self.content_type.isascii() and self.content_type.isprintable()):
            raise InvalidWrite("invalid_content_type", "A content type is printable ASCII, such as text/plain.")


@dataclass(frozen=True, slots=True)
class Delete:
    key: str

    def __post_init__(self) -> None:
        check_key(self.key)


@dataclass(frozen=True, slots=True)
class Increment:
    """A counter's value is its decimal text. One that does not exist is 0."""

    key: str
    by: int

    def __post_init__(self) -> None:
        check_key(self.key)
        if not -NUMBER_MAX <= self.by <= NUMBER_MAX:
            raise InvalidWrite("number_too_large", "Counters are signed 64-bit numbers.")


@dataclass(frozen=True, slots=True)
class Append:
    """At the end of the value, or as the value of a key that does not exist."""

    key: str
    value: bytes

    def __post_init__(self) -> None:
        check_key(self.key)
        check_value(self.value)


@dataclass(frozen=True, slots=True)
class Get:
    """In a transaction only: what is there at its place in the order, after the operations before."""

    key: str

    def __post_init__(self) -> None:
        check_key(self.key)


Operation: TypeAlias = Put | Delete | Increment | Append | Get


@dataclass(frozen=True, slots=True)
class RevisionIs:
    """The key was last changed at this revision; 0 means that it does not exist."""

    key: str
    revision: int

    def __post_init__(self) -> None:
        check_key(self.key)
        if not 0 <= self.revision <= NUMBER_MAX:
            raise InvalidWrite("invalid_revision", "A revision is a number from 0 on.")


@dataclass(frozen=True, slots=True)
class WrittenBy:
    """The key was last changed by this write: how a value without a revision is known."""

    key: str
    write_id: str

    def __post_init__(self) -> None:
        check_key(self.key)


@dataclass(frozen=True, slots=True)
class Exists:
    key: str
    is_there: bool

    def __post_init__(self) -> None:
        check_key(self.key)


@dataclass(frozen=True, slots=True)
class ValueIs:
    key: str
    value: bytes

    def __post_init__(self) -> None:
        check_key(self.key)
        check_value(self.value)


Condition: TypeAlias = RevisionIs | WrittenBy | Exists | ValueIs


@dataclass(frozen=True, slots=True)
class Write:
    """If all `conditions` hold, `then`; else `otherwise`, or, if that is None, a rejection."""

    then: tuple[Operation, ...]
    conditions: tuple[Condition, ...] = ()
    otherwise: tuple[Operation, ...] | None = None
    idempotency_key: str | None = None

    def __post_init__(self) -> None:
        parts = len(self.then) + len(self.conditions) + len(self.otherwise or ())
        if parts > TXN_OPERATIONS_MAX:
            raise InvalidWrite(
                "txn_too_large",
                f"A transaction has at most {TXN_OPERATIONS_MAX:,} operations and conditions; this has {parts:,}. "
                "Send several.",
            )
        if self.idempotency_key is not None and not (
            1 <= len(self.idempotency_key) <= IDEMPOTENCY_KEY_CHARACTERS_MAX
        ):
            raise InvalidWrite(
                "invalid_idempotency_key",
                f"An Idempotency-Key has 1 to {IDEMPOTENCY_KEY_CHARACTERS_MAX} characters.",
            )
        if parts > 1:
            size = sum(map(_bytes_of, (*self.then, *self.conditions, *(self.otherwise or ()))))
            if size > TXN_BYTES_MAX + KEY_BYTES_MAX:
                raise InvalidWrite(
                    "txn_too_large",
                    f"A transaction's keys and values have at most {TXN_BYTES_MAX:,} bytes together; these have "
                    f"{size:,}. Send several.",
                )


def _bytes_of(part: Operation | Condition) -> int:
    size = len(part.key.encode())
    if isinstance(part, (Put, Append, ValueIs)):
        size += len(part.value)
    return size

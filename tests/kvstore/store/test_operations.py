"""What may be asked for: every limit, with values just inside it and just beyond."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from corel.config import CorelConfig
from kvstore.store.operations import (
    CONTENT_TYPE_CHARACTERS_MAX,
    IDEMPOTENCY_KEY_CHARACTERS_MAX,
    KEY_BYTES_MAX,
    NUMBER_MAX,
    TXN_OPERATIONS_MAX,
    VALUE_BYTES_MAX,
    WRITE_ID_CHARACTERS_MAX,
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
    check_key,
)
from kvstore.store.write_codec import BASIS_BYTES_MAX, encode_batch, encode_write

PARTS_WITH_A_KEY: list[Callable[[str], object]] = [
    lambda key: Put(key, b""),
    Delete,
    lambda key: Increment(key, 1),
    lambda key: Append(key, b""),
    Get,
    lambda key: RevisionIs(key, 1),
    lambda key: WrittenBy(key, "a.1.1.0"),
    lambda key: Exists(key, True),
    lambda key: ValueIs(key, b""),
]
PARTS_WITH_A_VALUE: list[Callable[[bytes], object]] = [
    lambda value: Put("k", value),
    lambda value: Append("k", value),
    lambda value: ValueIs("k", value),
]
GETS = (Get("k"),)


def accept(part: object) -> None:
    """Checks a write, or an operation or condition in a write of its own."""
    if isinstance(part, Operation):
        check(Write((part,)))
    elif isinstance(part, Condition):
        check(Write((), (part,)))
    else:
        assert isinstance(part, Write)
        check(part)


def code_of(make: Callable[[], object]) -> str:
    """Returns the code of the error with which it is refused."""
    with pytest.raises(InvalidWrite) as caught:
        accept(make())
    assert str(caught.value).endswith(".")  # a sentence
    return caught.value.code


# Keys


@pytest.mark.parametrize("key", ["a", "a/b", "/", " ", "\0", "日本", "é" * 240, "🗝" * 120, "x" * 480])
def test_a_key_is_any_text_of_480_bytes(key: str) -> None:
    check_key(key)


@pytest.mark.parametrize(
    ("key", "code"),
    [
        ("", "empty_key"),
        ("x" * (KEY_BYTES_MAX + 1), "key_too_large"),
        ("é" * 240 + "x", "key_too_large"),
        ("\ud800", "invalid_key"),
    ],
)
def test_no_other_key_is_taken(key: str, code: str) -> None:
    assert code_of(lambda: Get(key)) == code


@pytest.mark.parametrize("make", PARTS_WITH_A_KEY)
def test_every_operation_and_condition_looks_at_its_key(make: Callable[[str], object]) -> None:
    accept(make("k" * KEY_BYTES_MAX))
    assert code_of(lambda: make("")) == "empty_key"


# Values and numbers


@pytest.mark.parametrize("make", PARTS_WITH_A_VALUE)
def test_a_value_has_at_most_a_mebibyte(make: Callable[[bytes], object]) -> None:
    accept(make(b""))
    accept(make(bytes(VALUE_BYTES_MAX)))
    assert code_of(lambda: make(bytes(VALUE_BYTES_MAX + 1))) == "value_too_large"


def test_a_content_type_has_at_most_255_characters() -> None:
    accept(Put("k", b"", "x" * CONTENT_TYPE_CHARACTERS_MAX))
    assert code_of(lambda: Put("k", b"", "x" * (CONTENT_TYPE_CHARACTERS_MAX + 1))) == "content_type_too_long"


@pytest.mark.parametrize("content_type", ["", "é", "text/plain\r\nX: y", "\0", "\ud800"])
def test_a_content_type_can_be_said_in_a_header(content_type: str) -> None:
    assert code_of(lambda: Put("k", b"", content_type)) == "invalid_content_type"


@pytest.mark.parametrize("by", [0, NUMBER_MAX, -NUMBER_MAX])
def test_a_counter_is_changed_by_a_64_bit_number(by: int) -> None:
    accept(Increment("k", by))


@pytest.mark.parametrize("by", [NUMBER_MAX + 1, -NUMBER_MAX - 1, 2**70])
def test_a_counter_is_not_changed_by_more(by: int) -> None:
    assert code_of(lambda: Increment("k", by)) == "number_too_large"


def test_a_revision_is_a_number_from_0_on() -> None:
    accept(RevisionIs("k", 0))
    accept(RevisionIs("k", NUMBER_MAX))
    assert code_of(lambda: RevisionIs("k", -1)) == "invalid_revision"
    assert code_of(lambda: RevisionIs("k", NUMBER_MAX + 1)) == "invalid_revision"


# Whole writes


@pytest.mark.parametrize("length", [1, IDEMPOTENCY_KEY_CHARACTERS_MAX])
def test_an_idempotency_key_has_1_to_255_characters(length: int) -> None:
    accept(Write(GETS, idempotency_key="é" * length))


@pytest.mark.parametrize("key", ["", "x" * (IDEMPOTENCY_KEY_CHARACTERS_MAX + 1), "\ud800"])
def test_no_other_idempotency_key_is_taken(key: str) -> None:
    assert code_of(lambda: Write(GETS, idempotency_key=key)) == "invalid_idempotency_key"


@pytest.mark.parametrize("write_id", ["", "x" * (WRITE_ID_CHARACTERS_MAX + 1), "\ud800"])
def test_a_write_id_is_a_short_text(write_id: str) -> None:
    accept(WrittenBy("k", "x" * WRITE_ID_CHARACTERS_MAX))
    assert code_of(lambda: WrittenBy("k", write_id)) == "invalid_write_id"


def test_a_transaction_has_at_most_10_000_parts_of_all_kinds_together() -> None:
    conditions = (Exists("k", True),) * 3_000
    accept(Write(GETS * (TXN_OPERATIONS_MAX - 5_000), conditions, GETS * 2_000))
    for more in (
        lambda: Write(GETS * (TXN_OPERATIONS_MAX + 1)),
        lambda: Write(GETS * (TXN_OPERATIONS_MAX - 5_000), conditions, GETS * 2_001),
        lambda: Write(GETS * (TXN_OPERATIONS_MAX - 2_999), conditions),
    ):
        assert code_of(more) == "txn_too_large"


@pytest.mark.parametrize(
    "write",
    [
        Write(tuple([Put(f"{number:04}", bytes(100)) for number in range(TXN_OPERATIONS_MAX)])),
        Write((Put("k", bytes(VALUE_BYTES_MAX)), Append("k", bytes(VALUE_BYTES_MAX // 8)))),
        Write((Put("k", bytes(VALUE_BYTES_MAX)),), (ValueIs("k", bytes(VALUE_BYTES_MAX)),)),
        Write((), (), (Put("k", bytes(VALUE_BYTES_MAX)), Put("k", bytes(VALUE_BYTES_MAX)))),
        Write(tuple([Put("k", b"", "x" * 255)] * 5_000)),
    ],
)
def test_a_write_must_fit_a_message_of_the_log_whatever_fills_it(write: Write) -> None:
    check(write)
    with pytest.raises(InvalidWrite, match="Send several") as caught:
        encode_write(write)
    assert caught.value.code == "txn_too_large"


def test_the_largest_of_everything_in_a_write_of_one_operation_fits() -> None:
    largest = Put("k" * KEY_BYTES_MAX, bytes(VALUE_BYTES_MAX), "x" * CONTENT_TYPE_CHARACTERS_MAX)
    condition = WrittenBy("k" * KEY_BYTES_MAX, "x" * WRITE_ID_CHARACTERS_MAX)
    write = Write((largest,), (condition,), None, "é" * IDEMPOTENCY_KEY_CHARACTERS_MAX)
    body = encode_batch([encode_write(write)], NUMBER_MAX, NUMBER_MAX)
    assert len(body) + BASIS_BYTES_MAX <= CorelConfig().body_bytes_max


def test_a_write_may_do_nothing() -> None:
    assert Write(()) == Write((), (), None, None) != Write((), (), ())

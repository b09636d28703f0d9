"""The state machine, rule by rule, and then compared with a naive model."""

from __future__ import annotations

import pytest
from hypothesis import given

from kvstore.store import state
from kvstore.store.operations import (
    NUMBER_MAX,
    VALUE_BYTES_MAX,
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
from kvstore.store.state import (
    IDEMPOTENCY_POSITIONS,
    TEXT,
    Applied,
    Basis,
    Item,
    LastChange,
    Outcome,
    Remembered,
    Tombstone,
    Verdict,
    Why,
    apply,
    expiry_of,
)
from kvstore.store.write_codec import encode_write
from tests.kvstore.store.naive_store import NaiveStore
from tests.kvstore.store.strategies import Sent, merged_orders
from tests.transport.strategies import thorough

NUMBER = "application/x-number"


class Run:
    """A state to which writes are applied one after the other, each a message of its own: the first is `w1`."""

    def __init__(self, is_final: bool = True) -> None:
        self.items: dict[str, Item] = {}
        self.memories: dict[str, Remembered] = {}
        self.tombstones: dict[str, Tombstone] = {}
        self.revision = 0
        self.position = 0
        self._is_final = is_final

    def item(self, key: str) -> Item | None:
        return self.items.get(key)

    def remembered(self, idempotency_key: str) -> Remembered | None:
        return self.memories.get(idempotency_key)

    def last_change(self, key: str, position: int) -> LastChange | None:
        item = self.items.get(key)
        if item is not None:
            return LastChange(item.write_id, item.revision)
        return self.tombstones[key].seen_from(position) if key in self.tombstones else None

    def write(
        self, write: Write, name: str | None = None, expires: int = NUMBER_MAX, basis: Basis | None = None
    ) -> Applied:
        self.position += 1
        revision = self.revision + 1 if self._is_final else None
        data, name = encode_write(write), name or f"w{self.position}"
        done = apply(self, write, data, name, self.position, revision, expires, basis)
        self.revision += bool(done.changes)
        for key, item in done.changes.items():
            self.items.pop(key, None)
            if item is not None:
                self.items[key] = item
            else:
                self.tombstones[key] = Tombstone(name, self.revision, self.position)
        if done.remembered is not None and write.idempotency_key is not None:
            self.memories[write.idempotency_key] = done.remembered
        return done

    def do(self, *operations: Operation) -> Applied:
        return self.write(Write(operations))

    def value(self, key: str) -> bytes | None:
        return self.items[key].value if key in self.items else None


def rejected(why: Why, key: str, revision: int | None) -> Outcome:
    return Outcome(Verdict.REJECTED, revision, why, key, False)


# Single operations


def test_a_put_holds_its_value_its_type_its_revision_and_its_write() -> None:
    run = Run()
    assert run.do(Put("k", b"v", "text/plain")).outcome == Outcome(Verdict.APPLIED, 1)
    assert run.items == {"k": Item(b"v", "text/plain", 1, "w1")}
    assert run.do(Put("k", b"v", "text/plain")).changes == {"k": Item(b"v", "text/plain", 2, "w2")}


def test_a_delete_leaves_nothing() -> None:
    run = Run()
    run.do(Put("k", b"v"))
    done = run.do(Delete("k"))
    assert (done.outcome, done.changes) == (Outcome(Verdict.APPLIED, 2), {"k": None})
    assert run.items == {}


def test_a_delete_of_nothing_is_applied_and_gets_no_revision() -> None:
    run = Run()
    assert run.do(Delete("k")) == Applied(Outcome(Verdict.APPLIED, None), {}, (None,))
    assert run.do(Put("k", b"")).outcome.revision == 1


def test_a_write_without_a_final_place_gets_no_revision() -> None:
    run = Run(is_final=False)
    assert run.do(Put("k", b"v")).outcome == Outcome(Verdict.APPLIED, None)
    assert run.items["k"].revision is None
    assert run.write(Write((), (Exists("k", False),))).outcome == rejected(Why.CONDITION_FAILED, "k", None)


# Counters


@pytest.mark.parametrize(
    ("before", "by", "after"),
    [
        (b"5", 3, b"8"),
        (b"-5", 3, b"-2"),
        (b"5", -5, b"0"),
        (b"-0", 1, b"1"),
        (b"007", 1, b"8"),
        (b"0", NUMBER_MAX, b"9223372036854775807"),
        (b"9223372036854775807", -1, b"9223372036854775806"),
        (b"-1", -NUMBER_MAX + 1, b"-9223372036854775807"),
        (b"-9223372036854775807", NUMBER_MAX, b"0"),
    ],
)
def test_a_counter_is_decimal_text(before: bytes, by: int, after: bytes) -> None:
    run = Run()
    run.do(Put("n", before, NUMBER))
    assert run.do(Increment("n", by)).outcome == Outcome(Verdict.APPLIED, 2)
    assert run.items["n"] == Item(after, NUMBER, 2, "w2")


@pytest.mark.parametrize("operation", [Increment("n", 0), Append("n", b"")])
def test_what_changes_nothing_gets_no_revision(operation: Operation) -> None:
    run = Run()
    run.do(Put("n", b"5", NUMBER))
    assert run.do(operation).outcome == Outcome(Verdict.APPLIED, None)
    assert run.items["n"] == Item(b"5", NUMBER, 1, "w1")


def test_a_counter_that_does_not_exist_is_0() -> None:
    run = Run()
    run.do(Increment("n", -7))
    assert run.items == {"n": Item(b"-7", TEXT, 1, "w1")}


@pytest.mark.parametrize(
    "value", [b"", b"-", b"--1", b"+1", b" 1", b"1 ", b"1.0", b"1_0", b"0x1", b"\xd9\xa1", b"0" * 20, b"x"]
)
def test_what_is_not_a_number_is_not_counted_on(value: bytes) -> None:
    run = Run()
    run.do(Put("n", value))
    done = run.do(Increment("n", 1))
    assert (done.outcome, done.changes, done.results) == (rejected(Why.NOT_A_NUMBER, "n", 1), {}, ())
    assert run.value("n") == value


@pytest.mark.parametrize("sign", [1, -1])
def test_a_counter_stays_within_64_bits(sign: int) -> None:
    run = Run()
    run.do(Put("n", str(sign * (NUMBER_MAX - 1)).encode()))
    assert run.do(Increment("n", sign)).outcome.verdict is Verdict.APPLIED
    assert run.do(Increment("n", sign)).outcome == rejected(Why.OUT_OF_RANGE, "n", 2)
    assert run.value("n") == str(sign * NUMBER_MAX).encode()


# Appends


def test_an_append_keeps_the_content_type() -> None:
    run = Run()
    run.do(Put("k", b"a\0", "text/html"))
    run.do(Append("k", b"b"))
    assert run.items["k"] == Item(b"a\0b", "text/html", 2, "w2")


def test_an_append_to_nothing_makes_a_text() -> None:
    run = Run()
    run.do(Append("k", b"b"))
    assert run.items == {"k": Item(b"b", TEXT, 1, "w1")}


def test_an_append_fills_a_value_up_and_not_beyond() -> None:
    run = Run()
    run.do(Put("k", bytes(VALUE_BYTES_MAX - 1)))
    assert run.do(Append("k", b"xx")).outcome == rejected(Why.VALUE_TOO_LARGE, "k", 1)
    assert run.do(Append("k", b"x")).outcome == Outcome(Verdict.APPLIED, 2)
    assert run.do(Append("k", b"x")).outcome == rejected(Why.VALUE_TOO_LARGE, "k", 2)
    assert len(run.items["k"].value) == VALUE_BYTES_MAX


# Conditions


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        (RevisionIs("k", 2), True),
        (RevisionIs("k", 1), False),
        (RevisionIs("k", 3), False),
        (RevisionIs("k", 0), False),
        (RevisionIs("gone", 0), True),
        (RevisionIs("gone", 1), False),
        (WrittenBy("k", "w2"), True),
        (WrittenBy("k", "w1"), False),
        (WrittenBy("gone", "w1"), False),
        (Exists("k", True), True),
        (Exists("k", False), False),
        (Exists("gone", True), False),
        (Exists("gone", False), True),
        (ValueIs("k", b"v"), True),
        (ValueIs("k", b"x"), False),
        (ValueIs("k", b""), False),
        (ValueIs("gone", b""), False),
        (ValueIs("empty", b""), True),
    ],
)
def test_a_condition_is_about_what_is_there(condition: Condition, holds: bool) -> None:
    run = Run()
    run.do(Put("k", b"old"), Put("gone", b"v"))
    run.do(Put("k", b"v"), Delete("gone"), Put("empty", b""))
    outcome = run.write(Write((Put("new", b""),), (condition,))).outcome
    if holds:
        assert outcome == Outcome(Verdict.APPLIED, 3)
    else:
        revision = 0 if condition.key == "gone" else 2
        assert outcome == rejected(Why.CONDITION_FAILED, condition.key, revision)
        assert run.value("new") is None


def test_a_tentative_value_has_no_revision_to_compare_but_a_write() -> None:
    run = Run(is_final=False)
    run.do(Put("k", b"v"))
    for condition, holds in (
        (RevisionIs("k", 1), False),
        (RevisionIs("k", 0), False),
        (WrittenBy("k", "w1"), True),
    ):
        done = run.write(Write((Get("k"),), (condition,)))
        assert (done.outcome.verdict is Verdict.APPLIED) == holds


def test_the_first_condition_that_fails_is_in_the_way() -> None:
    run = Run()
    run.do(Put("a", b""))
    run.do(Put("b", b""))
    conditions = (Exists("a", True), Exists("b", False), Exists("a", False))
    assert run.write(Write((), conditions)).outcome == rejected(Why.CONDITION_FAILED, "b", 2)


def test_conditions_are_about_the_state_before_the_write() -> None:
    run = Run()
    run.write(Write((Put("k", b"v"),), (Exists("k", False),)))
    assert run.value("k") == b"v"


# Transactions


def test_operations_see_those_before_them() -> None:
    run = Run()
    done = run.do(
        Get("n"),
        Put("n", b"1", NUMBER),
        Increment("n", 4),
        Append("n", b"0"),
        Get("n"),
        Delete("n"),
        Increment("n", 1),
    )
    found = [None if item is None else item.value for item in done.results]
    assert found == [None, b"1", b"5", b"50", b"50", None, b"1"]
    assert done.changes == {"n": Item(b"1", TEXT, 1, "w1")}


def test_what_a_transaction_deleted_is_gone_for_the_rest_of_it() -> None:
    run = Run()
    run.do(Put("n", b"5", NUMBER))
    done = run.do(Delete("n"), Get("n"), Increment("n", 1))
    assert done.results == (None, None, Item(b"1", TEXT, 2, "w2"))


def test_a_transaction_counts_once() -> None:
    run = Run()
    assert run.do(Put("a", b""), Put("b", b""), Increment("c", 1)).outcome == Outcome(Verdict.APPLIED, 1)
    assert {item.revision for item in run.items.values()} == {1}
    assert run.do(Put("a", b"")).outcome.revision == 2


def test_the_other_branch_is_taken_if_a_condition_fails() -> None:
    run = Run()
    write = Write((Put("k", b"then"),), (Exists("k", False),), (Append("k", b" else"), Get("x")))
    assert run.write(write).outcome == Outcome(Verdict.APPLIED, 1, branch=True)
    done = run.write(write)
    assert done.outcome == Outcome(Verdict.APPLIED, 2, branch=False)
    assert (run.value("k"), len(done.results)) == (b"then else", 2)


def test_an_empty_other_branch_is_applied_and_gets_no_revision() -> None:
    run = Run()
    done = run.write(Write((Put("k", b""),), (Exists("k", True),), ()))
    assert done == Applied(Outcome(Verdict.APPLIED, None, branch=False), {})


def test_a_transaction_that_only_looks_gets_no_revision() -> None:
    run = Run()
    run.do(Put("k", b"v"))
    assert run.do(Get("k"), Get("x")) == Applied(Outcome(Verdict.APPLIED, None), {}, (run.items["k"], None))


@pytest.mark.parametrize(
    ("operation", "why"),
    [
        (Increment("text", 1), Why.NOT_A_NUMBER),
        (Increment("most", 1), Why.OUT_OF_RANGE),
        (Append("full", b"x"), Why.VALUE_TOO_LARGE),
    ],
)
def test_nothing_of_a_transaction_happens_if_one_operation_cannot(operation: Operation, why: Why) -> None:
    run = Run()
    run.do(Put("text", b"x"), Put("most", b"%d" % NUMBER_MAX), Put("full", bytes(VALUE_BYTES_MAX)))
    before = dict(run.items)
    done = run.do(Put("a", b"1"), Delete("text"), Put("text", b"y"), operation, Put("b", b"2"))
    assert (done.outcome, done.changes, done.results) == (rejected(why, operation.key, 1), {}, ())
    assert run.items == before
    assert run.do(Put("a", b"")).outcome.revision == 2


def test_what_is_in_the_way_is_said_by_its_revision_before_the_write() -> None:
    run = Run()
    run.do(Put("other", b""))
    assert run.do(Put("n", b"x"), Increment("n", 1)).outcome == rejected(Why.NOT_A_NUMBER, "n", 0)


def test_the_other_branch_can_be_rejected_too() -> None:
    run = Run()
    run.do(Put("n", b"x"))
    write = Write((), (Exists("n", False),), (Put("a", b""), Increment("n", 1)))
    assert run.write(write).outcome == rejected(Why.NOT_A_NUMBER, "n", 1)
    assert run.value("a") is None


def test_keys_that_come_and_go_within_a_write_were_never_there() -> None:
    run = Run()
    assert run.do(Put("k", b""), Delete("k")).outcome == Outcome(Verdict.APPLIED, None)
    done = run.do(Put("k", b""), Put("l", b""), Delete("k"))
    assert (done.outcome.revision, list(done.changes)) == (1, ["l"])
    assert run.do(Increment("m", 1), Delete("m"), Put("m", b"")).changes.keys() == {"m"}


def test_a_key_that_was_there_and_goes_comes_and_goes_is_gone() -> None:
    run = Run()
    run.do(Put("k", b""))
    done = run.do(Delete("k"), Put("k", b""), Delete("k"))
    assert (done.outcome, done.changes) == (Outcome(Verdict.APPLIED, 2), {"k": None})


# Idempotency keys


def test_the_same_write_under_the_same_key_happens_once() -> None:
    run = Run()
    write = Write((Increment("n", 1),), idempotency_key="once")
    assert run.write(write).outcome == Outcome(Verdict.APPLIED, 1)
    run.do(Put("other", b""))
    done = run.write(write)
    assert done == Applied(Outcome(Verdict.DUPLICATE, 1, first_id="w1", first_verdict=Verdict.APPLIED), {})
    assert run.value("n") == b"1"


def test_a_duplicate_of_a_rejected_write_is_not_tried_again() -> None:
    run = Run()
    write = Write((Put("k", b""),), (Exists("k", True),), idempotency_key="once")
    run.write(write)
    run.do(Put("k", b"v"))
    outcome = run.write(write).outcome
    assert outcome == Outcome(Verdict.DUPLICATE, 0, Why.CONDITION_FAILED, "k", False, "w1", Verdict.REJECTED)
    assert run.value("k") == b"v"


def test_a_duplicate_of_a_write_that_changed_nothing_has_no_revision() -> None:
    run = Run()
    write = Write((Delete("k"),), idempotency_key="once")
    run.write(write)
    run.do(Put("k", b""))
    assert run.write(write).outcome == Outcome(Verdict.DUPLICATE, None, first_id="w1")
    assert run.value("k") == b""


@pytest.mark.parametrize(
    "other",
    [
        Write((Put("k", b"2"),), idempotency_key="once"),
        Write((Put("k", b"1"),), (Exists("k", False),), idempotency_key="once"),
        Write((Put("k", b"1"),), otherwise=(), idempotency_key="once"),
    ],
)
def test_another_write_under_the_same_key_is_rejected(other: Write) -> None:
    run = Run()
    first = Write((Put("k", b"1"),), idempotency_key="once")
    run.write(first)
    assert run.write(other) == Applied(Outcome(Verdict.REJECTED, 0, Why.IDEMPOTENCY_KEY_REUSED), {})
    assert run.value("k") == b"1"
    assert run.write(first).outcome.first_id == "w1"  # the rejected attempt did not change that


def test_other_keys_and_none_are_other_writes() -> None:
    run = Run()
    for key in ("once", "twice", None, None):
        run.write(Write((Increment("n", 1),), idempotency_key=key))
    assert run.value("n") == b"4"
    assert run.memories.keys() == {"once", "twice"}


def test_a_key_is_forgotten_by_position_alone() -> None:
    run = Run()
    write = Write((Increment("n", 1),), idempotency_key="once")
    run.write(write)
    run.position += IDEMPOTENCY_POSITIONS - 1
    assert run.write(write).outcome.verdict is Verdict.DUPLICATE  # which does not extend its time
    assert run.position == 1 + IDEMPOTENCY_POSITIONS
    assert run.write(write, "again").outcome == Outcome(Verdict.APPLIED, 2)
    assert run.write(write).outcome.first_id == "again"


def test_a_forgotten_key_is_free_for_another_write() -> None:
    run = Run()
    run.write(Write((Put("k", b"1"),), idempotency_key="once"))
    run.position += IDEMPOTENCY_POSITIONS
    assert run.write(Write((Put("k", b"2"),), idempotency_key="once")).outcome == Outcome(Verdict.APPLIED, 2)


# Expiry


def test_a_copy_expires_after_its_position_and_does_nothing_then() -> None:
    run = Run()
    write = Write((Increment("n", 1),), idempotency_key="once")
    run.position = 10
    assert run.write(write, expires=10) == Applied(Outcome(Verdict.EXPIRED, None), {})
    assert (run.items, run.memories) == ({}, {})
    assert run.write(write, expires=12).outcome == Outcome(Verdict.APPLIED, 1)  # this is position 12


def test_a_copy_whose_key_is_remembered_is_a_duplicate_however_late_it_is() -> None:
    run = Run()
    write = Write((Increment("n", 1),), idempotency_key="once")
    run.write(write)
    run.position += IDEMPOTENCY_POSITIONS - 1
    assert run.write(write, expires=0).outcome == Outcome(Verdict.DUPLICATE, 1, first_id="w1")
    other = Write((Increment("n", 2),), idempotency_key="once")
    run.position -= 1
    assert run.write(other, expires=0).outcome.why is Why.IDEMPOTENCY_KEY_REUSED
    assert run.write(write, expires=0).outcome == Outcome(Verdict.EXPIRED, None)
    assert run.value("n") == b"1"


def test_writes_without_a_key_do_not_expire() -> None:
    run = Run()
    run.position = 10
    assert run.write(Write((Put("k", b"v"),)), expires=0).outcome == Outcome(Verdict.APPLIED, 1)


@pytest.mark.parametrize("late_by", [0, 1, IDEMPOTENCY_POSITIONS // 2])
@pytest.mark.parametrize("waits", [1, IDEMPOTENCY_POSITIONS // 2, IDEMPOTENCY_POSITIONS, 10**9])
def test_whoever_retries_in_time_is_applied_once_wherever_the_copies_get_their_places(
    late_by: int, waits: int
) -> None:
    """The proof in the docstring of `state`, at its edges: the copy that gets its place second was accepted when
    `late_by` more messages than the first copy were green, and waits for its place."""
    run = Run()
    write = Write((Increment("n", 1),), idempotency_key="once")
    run.write(write, expires=expiry_of(0))
    first = run.position
    run.position += late_by + waits - 1
    run.write(write, expires=expiry_of(first + late_by))
    assert run.value("n") == b"1"


# All of it together


def comparable(outcome: Outcome) -> Outcome:
    """Returns the outcome without its branch, which is undefined for a write that was not applied."""
    return outcome if outcome.verdict is Verdict.APPLIED else outcome._replace(branch=True)


@thorough
@given(merged_orders(most=12))
def test_any_writes_come_to_what_a_naive_store_makes_of_them(order: list[Sent]) -> None:
    """The naive store is told all messages that a sender had, the real one the sender's basis."""
    run, naive = Run(), NaiveStore(memory_length=4)
    revisions = [0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state, "IDEMPOTENCY_POSITIONS", 4)
        for number, (message_id, writes, expires, knew, line, known) in enumerate(order, 1):
            basis = None if knew is None else Basis(revisions[line], known)
            expected = naive.message(str(message_id), writes, expires - 1, knew)  # it counts from 0
            for index, write in enumerate(writes):
                run.position = number - 1  # where `write` counts from
                done = run.write(write, f"{message_id}.{index}", expires, basis)
                assert comparable(done.outcome) == comparable(expected[index])
                assert list(done.conflicts) == naive.conflicts[index]
            assert (run.items, run.revision) == (naive.items, naive.revision)
            revisions.append(naive.revision)

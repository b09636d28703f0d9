"""The green state and its checkpoints. Whichever checkpoints are written, and wherever a node stops, nothing is
lost or applied twice, and the state equals that of a node that never stopped and never wrote a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Protocol, TypeAlias

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from corel.lmdb_log import LmdbLog
from corel.messages import MessageId
from kvstore.node import lmdb_tree
from kvstore.node.lmdb_tree import LmdbTree
from kvstore.store import green_state, state
from kvstore.store.green_state import CHECKPOINT_ITEMS_MAX, Checkpoint, Fate, GreenState, Tree, write_id
from kvstore.store.history import ConflictPlace
from kvstore.store.operations import Append, Delete, Exists, Get, Increment, Operation, Put, Write
from kvstore.store.state import (
    IDEMPOTENCY_POSITIONS,
    Applied,
    Basis,
    Item,
    Outcome,
    Remembered,
    Verdict,
    Why,
    expiry_of,
)
from kvstore.store.write_codec import encode_batch, encode_write
from tests.kvstore.store.naive_store import NaiveStore
from tests.kvstore.store.strategies import IDEMPOTENCY_KEYS, KEYS, Sent, batches, merged_orders
from tests.simulator.store.memory_tree import MemoryTree
from tests.transport.strategies import thorough
from transport.messages import Machine, ViewId

A = Machine("a", 1)
EVERYTHING = 10**9
"""A line that bounds nothing."""
FIRST_PLACE = ConflictPlace(0, 0, 0, 0)


class Disk(Tree, Protocol):
    """A tree to which checkpoints are written."""

    def apply(self, checkpoint: Checkpoint) -> None: ...

    def reopened(self) -> Disk:
        """Returns the tree as the node finds it when it starts again."""
        ...

    def close(self) -> None: ...


class MemoryDisk(MemoryTree):
    def reopened(self) -> MemoryDisk:
        return deepcopy(self)

    def close(self) -> None:
        pass


class LmdbDisk(LmdbTree):
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.log = LmdbLog(directory, "test", "a", is_new_cluster=True, map_bytes=64 * 2**20)
        super().__init__(self.log, fates_kept=EVERYTHING)

    def apply(self, checkpoint: Checkpoint) -> None:
        self.log.update(lambda transaction: self.write(transaction, checkpoint))

    def reopened(self) -> LmdbDisk:
        self.close()
        return LmdbDisk(self.directory)

    def close(self) -> None:
        self.log.close()

    def size(self, name: str) -> int:
        with self.log.read(self.log.table(name)) as transaction:
            return int(transaction.stat(self.log.table(name))["entries"])


def message(sequence: int) -> MessageId:
    return MessageId(A, sequence)


def body(*writes: Write, expires: int = EVERYTHING, accepted_ms: int = 0, basis: Basis | None = None) -> bytes:
    return encode_batch([encode_write(write) for write in writes], expires, accepted_ms, basis)


class Node:
    """A green state over a disk, with the log that was applied to it and what each message did."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.green = GreenState(disk)
        self.log: list[tuple[MessageId, bytes, ViewId]] = []
        self.applied: list[list[Applied]] = []
        self.taken: Checkpoint | None = None
        self.is_on_disk = False
        """Whether the taken checkpoint has been written."""

    def apply(
        self,
        *writes: Write,
        expires: int = EVERYTHING,
        sender: str = "a",
        basis: Basis | None = None,
        view: int = 1,
    ) -> list[Applied]:
        """Applies the next message of a sender."""
        sequence = 1 + sum(message_id.stream.name == sender for message_id, _, _ in self.log)
        message_id = MessageId(Machine(sender, 1), sequence)
        data = body(*writes, expires=expires, accepted_ms=len(self.log), basis=basis)
        return self.take_in(message_id, data, view)

    def take_in(self, message_id: MessageId, body: bytes, view: int = 1) -> list[Applied]:
        """Applies the next message, which was sent in the view of this number."""
        self.log.append((message_id, body, ViewId(view, "a", 1)))
        self.applied.append(self.green.apply(*self.log[-1]))
        return self.applied[-1]

    def do(self, *operations: Operation) -> Applied:
        return self.apply(Write(operations))[0]

    def take(self, line_max: int = EVERYTHING, only_full: bool = False) -> Checkpoint | None:
        taken = self.green.take_checkpoint(line_max, only_full)
        if taken is not None:
            self.taken, self.is_on_disk = taken, False
        return taken

    def write(self) -> None:
        """Writes the taken checkpoint to disk, without telling the green state."""
        if self.taken is not None and not self.is_on_disk:
            self.disk.apply(self.taken)
            self.is_on_disk = True

    def written(self) -> None:
        if self.taken is not None:
            self.write()
            self.green.written(self.taken)
            self.taken = None

    def checkpoint(self) -> None:
        self.take()
        self.written()

    def restart(self, green_of: Callable[[Disk], GreenState] = GreenState) -> None:
        """Starts again with nothing but the disk and the log."""
        self.disk = self.disk.reopened()
        self.green, self.taken = green_of(self.disk), None
        for place in range(self.green.line, len(self.log)):
            assert self.green.apply(*self.log[place]) == self.applied[place]

    def picture(self) -> tuple[object, ...]:
        """Everything that can be read of the state."""
        green = self.green
        return (
            (green.line, green.revision, green.run),
            [green.item(key) for key in KEYS],
            [green.remembered(key) for key in IDEMPOTENCY_KEYS],
            [green.fate(message_id) for message_id, _, _ in self.log],
            [green.last_change(key, green.line) for key in KEYS],
            green.conflicts(FIRST_PLACE, EVERYTHING),
        )


@pytest.fixture(params=["memory", "lmdb"])
def node(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Node]:
    made = Node(MemoryDisk() if request.param == "memory" else LmdbDisk(tmp_path))
    yield made
    made.disk.close()


# Applying


def test_a_message_advances_the_line_and_its_changes_the_revision(node: Node) -> None:
    node.apply(Write((Put("k", b"1"),)), Write((Delete("x"),)), Write((Put("k", b"2"),)))
    node.apply()
    assert (node.green.line, node.green.revision) == (2, 2)
    assert node.green.item("k") == Item(b"2", "application/octet-stream", 2, "a.1.1.2")
    assert node.green.fate(message(1)) == Fate(0, tuple([done.outcome for done in node.applied[0]]))
    assert node.green.fate(message(2)) == Fate(1, ())
    assert node.green.fate(message(3)) is None


def test_a_write_is_known_by_its_message_and_its_place_in_it() -> None:
    assert write_id(MessageId(Machine("b", 7), 12), 3) == "b.7.12.3"


def test_writes_of_one_message_see_each_other(node: Node) -> None:
    once = Write((Increment("n", 1),), idempotency_key="once")
    done = node.apply(once, once, Write((Increment("n", 10),), (Exists("n", True),)))
    assert [one.outcome.verdict for one in done] == [Verdict.APPLIED, Verdict.DUPLICATE, Verdict.APPLIED]
    assert done[1].outcome.first_id == "a.1.1.0"
    assert node.green.item("n") == Item(b"11", state.TEXT, 2, "a.1.1.2")


def test_a_red_copy_that_merges_after_its_key_was_forgotten_is_not_applied_again(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "IDEMPOTENCY_POSITIONS", 10)
    once = Write((Increment("n", 1),), idempotency_key="once")
    node.apply(once, expires=expiry_of(0))  # the retry, in the primary component
    for _ in range(10):
        node.do(Put("other", b""))
    assert node.apply(once, expires=expiry_of(0))[0].outcome == Outcome(Verdict.EXPIRED, None)
    node.checkpoint()
    node.restart()
    assert node.green.item("n") == Item(b"1", state.TEXT, 1, "a.1.1.0")
    fate = node.green.fate(message(12))
    assert fate == Fate(11, (Outcome(Verdict.EXPIRED, None),))


# Checkpoints


def test_a_checkpoint_is_what_changed_up_to_its_line(node: Node) -> None:
    node.do(Put("a", b"1"), Put("b", b"1"))
    node.do(Delete("b"))
    checkpoint = node.take()
    assert checkpoint is not None
    assert (checkpoint.line, checkpoint.revision) == (2, 2)
    assert checkpoint.items == {"a": node.green.item("a"), "b": None}
    assert list(checkpoint.fates) == [message(1), message(2)]


def test_what_was_taken_does_not_change_while_writes_go_on(node: Node) -> None:
    node.do(Put("a", b"1"))
    checkpoint = node.take()
    assert checkpoint is not None
    node.do(Put("a", b"2"), Put("b", b"2"))
    assert (checkpoint.line, checkpoint.revision, set(checkpoint.items)) == (1, 1, {"a"})
    node.written()
    assert [node.green.item(key) for key in "ab"] == [node.applied[1][0].changes[key] for key in "ab"]
    node.restart()
    assert node.green.revision == 2


def test_one_checkpoint_at_a_time_is_on_its_way(node: Node) -> None:
    assert node.take() is None
    node.do(Put("a", b"1"))
    assert node.take() is not None
    node.do(Put("a", b"2"))
    assert node.green.take_checkpoint(EVERYTHING, only_full=False) is None
    assert node.green.unwritten == 2
    node.written()
    assert node.green.unwritten == 1
    node.checkpoint()
    assert node.green.unwritten == 0
    assert node.take() is None


def test_the_last_use_of_an_idempotency_key_is_remembered(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "IDEMPOTENCY_POSITIONS", 0)
    once = Write((Increment("n", 1),), idempotency_key="once")
    for position in range(3):  # in the tree, in a checkpoint being written, and in memory
        assert node.apply(once)[0].remembered == node.green.remembered("once")
        assert [one.outcome.first_id for one in node.apply(once, once)[1:]] == [f"a.1.{2 * position + 2}.0"]
        if position < 2:
            node.written()
            node.take()


@pytest.mark.parametrize("stop_after", range(1, 6))
def test_a_key_that_goes_comes_and_goes_across_checkpoints_is_what_it_is_last(node: Node, stop_after: int) -> None:
    steps: list[Operation] = [Put("k", b"1"), Delete("k"), Put("k", b"2"), Append("k", b"3"), Delete("k")]
    for operation in steps[:stop_after]:
        done = node.do(operation)
        assert node.green.item("k") == done.changes["k"]
        node.written()  # the previous checkpoint; the key has changed since
        assert node.green.item("k") == done.changes["k"]
        node.take()
    node.restart()
    assert node.green.item("k") == done.changes["k"]
    node.checkpoint()
    assert node.green.item("k") == done.changes["k"]


def test_no_checkpoint_goes_beyond_the_line_that_the_log_has_on_disk(node: Node) -> None:
    for number in range(3):
        node.do(Put("k", b"%d" % number))
    assert node.take(line_max=2) is None
    assert node.take(line_max=3) is not None


def test_a_full_checkpoint_grows_no_more(node: Node) -> None:
    assert node.take(only_full=True) is None
    writes = [Write((Put(f"k{number}", b""),)) for number in range(CHECKPOINT_ITEMS_MAX // 2)]
    node.apply(*writes[1:])
    assert node.take(only_full=True) is None
    node.apply(writes[0])  # one more item and one more outcome fill it
    node.apply(Write((Put("more", b""),)))
    first = node.take(line_max=2, only_full=True)
    assert first is not None
    assert (first.line, len(first.items), node.green.unwritten) == (2, CHECKPOINT_ITEMS_MAX // 2, 2)
    node.written()
    assert node.take(only_full=True) is None
    node.checkpoint()


def test_a_checkpoint_is_full_of_idempotency_keys_and_outcomes_too() -> None:
    node = Node(MemoryDisk())
    for first in range(0, CHECKPOINT_ITEMS_MAX, 512):
        node.apply(*[Write((Get("k"),), idempotency_key=f"i{first + n}") for n in range(512)])
    assert node.green.unwritten == 2


def test_a_checkpoint_is_full_of_few_large_values_too() -> None:
    node = Node(MemoryDisk())
    for number in range(5):
        node.do(Put(f"k{number}", bytes(2**20)))
    first = node.take(only_full=True)
    assert first is not None
    assert (first.line, node.green.unwritten) == (4, 2)


# The tree

OUTCOMES = (
    Outcome(Verdict.APPLIED, 7),
    Outcome(Verdict.APPLIED, None),
    Outcome(Verdict.APPLIED, 2**63 - 1, branch=False),
    Outcome(Verdict.REJECTED, 0, Why.CONDITION_FAILED, "日本/🗝", False),
    Outcome(Verdict.REJECTED, 0, Why.IDEMPOTENCY_KEY_REUSED),
    Outcome(Verdict.DUPLICATE, None, first_id="b.2.3.4", first_verdict=Verdict.REJECTED),
    Outcome(Verdict.DUPLICATE, 3, first_id="b.2.3.4"),
    Outcome(Verdict.EXPIRED, None),
)


def test_everything_in_a_checkpoint_comes_back_from_the_disk_as_it_was(node: Node) -> None:
    items = {
        "k" * 480: Item(b"", "text/plain", 1, "a.1.1.0"),
        "/": Item(b"\xff\0", "x", 2**63 - 1, "b.1.1.0"),
        "é": Item(b"2", "x", 3, ""),
    }
    fates = {MessageId(Machine("ä", 2**40), 2**62): Fate(5, OUTCOMES), message(1): Fate(2**40, ())}
    memories = {
        key: Remembered(f"a.1.1.{place}", bytes(16), place, verdict, revision)
        for place, (key, verdict, revision) in enumerate(
            [("é" * 255, Verdict.APPLIED, 2**40), ("é" * 254, Verdict.REJECTED, 0), ("y", Verdict.APPLIED, None)]
        )
    }
    node.disk.apply(Checkpoint(9, 4, dict(items), fates=fates, memories=memories))
    again = node.disk = node.disk.reopened()
    assert (again.line, again.revision) == (9, 4)
    assert {key: again.item(key) for key in items} == items
    assert {message_id: again.fate(message_id) for message_id in fates} == fates
    assert {key: again.remembered(key) for key in memories} == memories
    assert (again.item("k"), again.fate(message(2)), again.remembered("z")) == (None, None, None)


def test_verdicts_come_back_as_such_and_not_as_their_names(node: Node) -> None:
    once = Write((Increment("n", 1),), idempotency_key="once")
    node.apply(once, once, Write((), (Exists("x", True),)))
    node.checkpoint()
    fate, memory = node.green.fate(message(1)), node.green.remembered("once")
    assert fate is not None
    assert memory is not None
    verdicts = [*[one.verdict for one in fate.outcomes], fate.outcomes[1].first_verdict, memory.verdict]
    assert {type(verdict) for verdict in verdicts} == {Verdict}
    assert {type(one.why) for one in fate.outcomes} == {Why}


def memory(position: int) -> Remembered:
    return Remembered("a.1.1.0", bytes(16), position, Verdict.APPLIED, 1)


def test_memories_leave_the_disk_when_they_count_no_more(tmp_path: Path) -> None:
    disk = LmdbDisk(tmp_path)
    disk.apply(Checkpoint(3, 3, memories={"old": memory(0), "young": memory(2)}))
    disk.apply(Checkpoint(IDEMPOTENCY_POSITIONS, 3))
    assert disk.remembered("old") == memory(0)  # it is still valid for the next message, which is at this line
    disk.apply(Checkpoint(IDEMPOTENCY_POSITIONS + 2, 3))
    assert (disk.remembered("old"), disk.remembered("young")) == (None, memory(2))
    assert (disk.size("memories"), disk.size("ages")) == (1, 1)
    disk.close()


def test_a_tree_says_how_far_it_has_come_when_it_is_loaded(tmp_path: Path) -> None:
    disk = LmdbDisk(tmp_path)
    disk.apply(Checkpoint(3, 2))
    assert (disk.line, disk.revision) == (0, 0)
    disk.load()
    assert (disk.line, disk.revision) == (3, 2)
    disk.close()


def test_a_memory_that_was_renewed_stays(tmp_path: Path) -> None:
    disk = LmdbDisk(tmp_path)
    disk.apply(Checkpoint(1, 1, memories={"once": memory(0)}))
    disk.apply(Checkpoint(IDEMPOTENCY_POSITIONS + 2, 2, memories={"once": memory(IDEMPOTENCY_POSITIONS + 1)}))
    assert disk.remembered("once") == memory(IDEMPOTENCY_POSITIONS + 1)
    assert disk.size("ages") == 1
    disk.close()


# Any history

Step: TypeAlias = list[Write] | str | tuple[int, bool]
"""A message; or "write", "written" or "restart"; or to take a checkpoint: how far behind the line at least, and
whether only if it is full."""

steps: st.SearchStrategy[Step] = (
    batches
    | batches
    | st.sampled_from(("write", "written", "restart"))
    | st.tuples(st.sampled_from((0, 0, 1, 2)), st.booleans())
)


def follow(node: Node, script: list[Step]) -> None:
    """Takes every step, and compares everything after it with a node that never stopped."""
    never_stopped = Node(MemoryDisk())
    for step in script:
        if isinstance(step, list):
            assert node.apply(*step) == never_stopped.apply(*step)
        elif isinstance(step, tuple):
            line_max = node.green.line - step[0]
            taken = node.take(line_max, only_full=step[1])
            assert taken is None or taken.line <= line_max
        else:
            {"write": node.write, "written": node.written, "restart": node.restart}[step]()
        assert node.picture() == never_stopped.picture()


@thorough
@given(st.lists(steps, max_size=20))
def test_a_node_that_writes_and_restarts_is_as_if_it_never_had(script: list[Step]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(green_state, "CHECKPOINT_ITEMS_MAX", 4)
        patch.setattr(state, "IDEMPOTENCY_POSITIONS", 2)
        follow(Node(MemoryDisk()), script)


@settings(thorough, max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(steps, max_size=20))
def test_so_is_one_with_a_real_disk(tmp_path_factory: pytest.TempPathFactory, script: list[Step]) -> None:
    node = Node(LmdbDisk(tmp_path_factory.mktemp("store")))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(green_state, "CHECKPOINT_ITEMS_MAX", 4)
        follow(node, script)
    node.disk.close()


@settings(thorough, max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(batches, min_size=1, max_size=6), st.data())
def test_a_start_from_any_checkpoint_comes_to_the_same(
    tmp_path_factory: pytest.TempPathFactory, messages: list[list[Write]], data: st.DataObject
) -> None:
    ends = sorted(data.draw(st.sets(st.integers(1, len(messages)), min_size=1)))
    makers: list[Callable[[], Disk]] = [MemoryDisk, lambda: LmdbDisk(tmp_path_factory.mktemp("store"))]
    for make in makers:
        for stop in ends:
            node, whole = Node(make()), Node(MemoryDisk())
            for line, writes in enumerate(messages, 1):
                whole.apply(*writes)
                node.apply(*writes)
                if line in ends and line <= stop:
                    node.checkpoint()
            node.restart()
            assert node.disk.line == stop
            assert node.picture() == whole.picture()
            node.disk.close()


@settings(thorough, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(merged_orders(), st.sets(st.integers(0, 12)))
def test_forgetting_on_disk_changes_no_outcome(
    tmp_path_factory: pytest.TempPathFactory, order: list[Sent], checkpoints: set[int]
) -> None:
    node, naive = Node(LmdbDisk(tmp_path_factory.mktemp("store"))), NaiveStore(memory_length=2)
    revisions = [0]
    with pytest.MonkeyPatch.context() as patch:
        for module in (state, lmdb_tree):
            patch.setattr(module, "IDEMPOTENCY_POSITIONS", 2)
        for number, (message_id, writes, expires, knew, line, known) in enumerate(order):
            basis = None if knew is None else Basis(revisions[line], known)
            done = node.take_in(message_id, body(*writes, expires=expires, basis=basis))
            expected = naive.message(str(message_id), writes, expires, knew)
            outcomes = [one.outcome._replace(branch=True) for one in done]
            assert outcomes == [outcome._replace(branch=True) for outcome in expected]
            assert [list(one.conflicts) for one in done] == naive.conflicts
            if number in checkpoints:
                node.checkpoint()
                node.restart()
            assert {key: item for key in KEYS if (item := node.green.item(key))} == naive.items
            revisions.append(naive.revision)
            assert node.green.revision == naive.revision
    node.disk.close()

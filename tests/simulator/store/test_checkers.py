"""Every checker of the store accepts a history that keeps its property, and catches one that does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from corel.messages import Color, MessageId
from kvstore.store import state
from kvstore.store.feed import Interest
from kvstore.store.history import Change, Span
from kvstore.store.operations import Append, Delete, Exists, Increment, Merge, Put, RevisionIs, Write
from kvstore.store.red_state import Preview
from kvstore.store.replies import Accepted, Ack, Answer, Done, Failed, Trouble
from kvstore.store.state import Applied, Basis, Item, Outcome, Verdict, Why
from kvstore.store.store import Store
from kvstore.store.tentative_feed import Recolored, Settled, TentativeEvent, TentativeWrite
from kvstore.store.write_codec import encode_batch, encode_write
from tests.simulator.checkers import Violation
from tests.simulator.checkers.acknowledged_writes import AcknowledgedWrites
from tests.simulator.checkers.answered import Answered, Asked
from tests.simulator.checkers.conflicts_found import FIRST, ConflictsFound
from tests.simulator.checkers.durable_tree import DurableTree
from tests.simulator.checkers.equal_states import EqualStates
from tests.simulator.checkers.idempotency import Idempotency
from tests.simulator.checkers.kept_past import KeptPast
from tests.simulator.checkers.linearizable import Linearizable
from tests.simulator.checkers.log import History
from tests.simulator.checkers.past_is_past import PastIsPast
from tests.simulator.checkers.previewed import Previewed
from tests.simulator.checkers.read_levels import ReadLevels
from tests.simulator.checkers.refused import Refused
from tests.simulator.checkers.store import (
    Attempt,
    ConflictPage,
    Level,
    NoLongerKept,
    Page,
    PreviewLook,
    Read,
    Request,
    StoreHistory,
    TentativeLook,
    Versions,
    Watch,
)
from tests.simulator.checkers.tentative_seen import TentativeSeen
from tests.simulator.checkers.watched_once import WatchedOnce
from tests.simulator.store.memory_tree import MemoryTree
from tests.simulator.store.model import Knowledge, Replay
from tests.simulator.store.test_directed import EmptyLog
from transport.messages import Machine, ViewId

ONE, TWO = Put("k", b"1"), Put("k", b"2")
VIEW, OTHER_VIEW = ViewId(1, "a", 1), ViewId(2, "a", 1)
APPLIED = Outcome(Verdict.APPLIED, 1)
NEVER_EXPIRES = 10**9


def written(*writes: Put | Delete | Append | Increment | Write) -> list[bytes]:
    return [encode_write(one if isinstance(one, Write) else Write((one,))) for one in writes]


def name(number: int) -> MessageId:
    return MessageId(Machine("a", 1), number)


def history(*writes: Put | Delete | Append | Increment | Write) -> StoreHistory:
    """Returns a history with these in the order, a message each, from a.1.1 on."""
    log = History()
    for number, data in enumerate(written(*writes), start=1):
        log.order.append(name(number))
        log.positions[name(number)] = number - 1
        log.bodies[name(number)], log.views[name(number)] = encode_batch([data], NEVER_EXPIRES), VIEW
    replay = Replay(log)
    replay.advance()
    return StoreHistory(log, replay)


def store(*writes: Put | Delete | Append | Increment | Write) -> Store:
    """Returns the store of a node that has applied these."""
    applied = Store(EmptyLog(), MemoryTree(), lambda body: name(0), lambda number: None)
    for number, data in enumerate(written(*writes), start=1):
        applied.green.apply(name(number), encode_batch([data], NEVER_EXPIRES), VIEW)
    return applied


def request(
    write: Put | Delete | Append | Increment | Write, answer: Answer | None, at: tuple[float, float] = (0.0, 1.0)
) -> Request:
    made = write if isinstance(write, Write) else Write((write,))
    return Request(made, encode_write(made), [Attempt("a", Ack.AUTO, at[0], answer, at[1])])


def done(number: int, outcome: Outcome = APPLIED, results: tuple[Item | None, ...] = ()) -> Done:
    return Done(f"a.1.{number}.0", Applied(outcome, {}, results))


def last_attempt(asked: Request) -> tuple[Request, Attempt]:
    return asked, asked.attempts[-1]


# Acknowledged writes


def test_acknowledged_writes_accepts_what_is_in_the_order() -> None:
    checker = AcknowledgedWrites(history(ONE, TWO))
    checker.answered(*last_attempt(request(ONE, done(1))))
    checker.answered(*last_attempt(request(TWO, Accepted("a.1.2.0", Color.RED))))
    checker.reported("b", name(2), 0, Outcome(Verdict.APPLIED, 2))
    checker.finished({"a": store(ONE, TWO), "b": store(ONE, TWO)})


def test_acknowledged_writes_catches_one_that_is_not() -> None:
    checker = AcknowledgedWrites(history(ONE))
    checker.answered(*last_attempt(request(TWO, Accepted("a.1.2.0", Color.RED))))
    with pytest.raises(Violation, match=r"a\.1\.2\.0 was acknowledged and lost"):
        checker.finished({"a": store(ONE)})


def test_acknowledged_writes_forgives_what_was_on_a_replaced_disk_only() -> None:
    checker = AcknowledgedWrites(history(ONE))
    checker.answered(*last_attempt(request(TWO, Accepted("a.1.2.0", Color.RED))))
    checker.disk_replaced("a", {name(2)})
    checker.finished({"a": store(ONE)})


def test_acknowledged_writes_catches_another_write_of_that_id() -> None:
    checker = AcknowledgedWrites(history(ONE))
    checker.answered(*last_attempt(request(TWO, Accepted("a.1.1.0", Color.RED))))
    with pytest.raises(Violation, match="another write"):
        checker.finished({"a": store(ONE)})


def test_acknowledged_writes_catches_an_id_used_twice() -> None:
    checker = AcknowledgedWrites(history(ONE))
    checker.answered(*last_attempt(request(ONE, done(1))))
    with pytest.raises(Violation, match=r"a second write a\.1\.1\.0"):
        checker.answered(*last_attempt(request(TWO, done(1))))


def test_acknowledged_writes_catches_another_outcome_than_was_answered() -> None:
    checker = AcknowledgedWrites(history(ONE))
    checker.answered(*last_attempt(request(ONE, done(1, Outcome(Verdict.APPLIED, 7)))))
    with pytest.raises(Violation, match="was reported before"):
        checker.finished({"a": store(ONE)})


def test_acknowledged_writes_catches_two_nodes_that_say_different_things() -> None:
    checker = AcknowledgedWrites(history(ONE))
    checker.reported("a", name(1), 0, APPLIED)
    with pytest.raises(Violation, match="was reported before"):
        checker.reported("b", name(1), 0, Outcome(Verdict.REJECTED, 0))


def test_acknowledged_writes_catches_a_node_without_it() -> None:
    checker = AcknowledgedWrites(history(ONE))
    checker.answered(*last_attempt(request(ONE, done(1))))
    with pytest.raises(Violation, match=r"b does not know a\.1\.1\.0 as green"):
        checker.finished({"a": store(ONE), "b": store()})


# Idempotency

KEYED = Write((ONE,), idempotency_key="i")
OTHER = Write((TWO,), idempotency_key="i")


def test_idempotency_accepts_one_and_its_duplicates() -> None:
    copies = (KEYED, OTHER, KEYED)
    Idempotency(history(*copies)).finished({"a": store(*copies)})


@pytest.mark.parametrize(
    ("copy", "applied", "complaint"),
    [
        (KEYED, Write((ONE,)), r"a has a\.1\.2\.0 as"),
        (OTHER, Write((TWO,)), "a accepts another write with i"),
    ],
)
def test_idempotency_catches_a_second_copy_that_is_applied(copy: Write, applied: Write, complaint: str) -> None:
    with pytest.raises(Violation, match=complaint):
        Idempotency(history(KEYED, copy)).finished({"a": store(KEYED, applied)})


def late(window: int = 2) -> StoreHistory:
    """Returns a history of two copies, of which the second has expired."""
    log = History()
    bodies = [encode_batch(written(one), expires=1) for one in (KEYED, ONE, ONE, KEYED)]
    for number, body in enumerate(bodies, start=1):
        log.order.append(name(number))
        log.bodies[name(number)] = body
    replay = Replay(log, 2)
    replay.advance()
    return StoreHistory(log, replay, window)


def store_of(past: StoreHistory) -> Store:
    """Returns the store of a node that has applied this history."""
    applied = Store(EmptyLog(), MemoryTree(), lambda body: name(0), lambda number: None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state, "IDEMPOTENCY_POSITIONS", 2)
        for message_id in past.log.order:
            applied.green.apply(message_id, past.log.bodies[message_id], VIEW)
    return applied


def test_idempotency_accepts_a_copy_that_has_expired() -> None:
    past = late()
    assert past.replay.by_id["a.1.4.0"].outcome == Outcome(Verdict.EXPIRED, None)
    Idempotency(past).finished({"a": store_of(past)})


def test_idempotency_catches_a_late_copy_that_is_applied() -> None:
    with pytest.raises(Violation, match=r"a has a\.1\.4\.0 as"):
        Idempotency(late()).finished({"a": store(KEYED, ONE, ONE, Write((ONE,)))})


@pytest.mark.parametrize(("window", "complaint"), [(3, r"should remember a\.1\.1\.0"), (8, "too early")])
def test_idempotency_catches_a_copy_that_expires_too_early(window: int, complaint: str) -> None:
    past = late(window)
    with pytest.raises(Violation, match=complaint):
        Idempotency(past).finished({"a": store_of(past)})


def test_idempotency_catches_a_node_where_no_copy_is_the_first() -> None:
    machine = Store(EmptyLog(), MemoryTree(), lambda body: name(0), lambda number: None)
    machine.green.apply(name(0), encode_batch(written(KEYED), NEVER_EXPIRES), VIEW)
    machine.green.apply(name(1), encode_batch(written(KEYED), NEVER_EXPIRES), VIEW)
    with pytest.raises(Violation, match="a has no first copy of i"):
        Idempotency(history(KEYED)).finished({"a": machine})


# Read levels

ITEM_1 = Item(b"1", "application/octet-stream", 1, "a.1.1.0")
ITEM_2 = Item(b"2", "application/octet-stream", 2, "a.1.2.0")


def read(level: Level, item: Item | None, revision: int, node: str = "a", key: str = "k", least: int = 0) -> Read:
    return Read(level, key, node, 1, 0.0, least, 1.0, item, Color.GREEN, revision, revision)


def test_read_levels_accepts_states_in_order() -> None:
    events = history(ONE, TWO)
    checker = ReadLevels(events)
    events.reads += [read(Level.GREEN, None, 0), read(Level.GREEN, ITEM_1, 1), read(Level.MIN_REVISION, ITEM_2, 2)]
    for one in events.reads:
        checker.read(one)
    checker.finished({})


def test_read_levels_catches_a_state_that_never_was() -> None:
    events = history(ONE, TWO)
    events.reads.append(read(Level.GREEN, ITEM_1, 2))
    with pytest.raises(Violation, match="at revision 2"):
        ReadLevels(events).finished({})


def test_read_levels_catches_a_node_that_goes_back() -> None:
    checker = ReadLevels(history(ONE, TWO))
    checker.read(read(Level.GREEN, ITEM_2, 2))
    checker.read(read(Level.GREEN, ITEM_1, 1, node="b"))
    with pytest.raises(Violation, match="a shows revision 1, and was at 2"):
        checker.read(read(Level.GREEN, ITEM_1, 1))


def test_read_levels_catches_a_revision_that_is_too_low() -> None:
    with pytest.raises(Violation, match="asked for 2"):
        ReadLevels(history(ONE)).read(read(Level.MIN_REVISION, ITEM_1, 1, least=2))


def red(value: bytes) -> Read:
    made = read(Level.RED, Item(value, "", None, "a.1.1.0"), 0, key="log")
    made.color = Color.RED
    return made


def test_read_levels_catches_a_red_read_without_what_the_node_has_acknowledged() -> None:
    checker = ReadLevels(history())
    checker.answered(*last_attempt(request(Append("log", b"x,"), Accepted("a.1.1.0", Color.RED))))
    checker.read(red(b"y,x,"))
    with pytest.raises(Violation, match=r"a does not show \[b'x'\] of log"):
        checker.read(red(b"y,"))


def test_read_levels_forgives_what_has_expired_in_the_end() -> None:
    append = Write((Append("log", b"x,"),), idempotency_key="i")
    past = history(append)
    checker = ReadLevels(past)
    checker.answered(*last_attempt(request(append, Accepted("a.1.1.0", Color.RED))))
    checker.read(red(b""))
    with pytest.raises(Violation, match=r"a does not show b'x' of log, and a\.1\.1\.0 is"):
        checker.finished({})
    placed = past.replay.by_id["a.1.1.0"]
    past.replay.by_id["a.1.1.0"] = placed._replace(outcome=Outcome(Verdict.EXPIRED, None))
    past.reads.clear()
    checker.finished({})


def test_read_levels_catches_what_is_there_twice() -> None:
    with pytest.raises(Violation, match=r"a shows \[b'x'\] of log more than once"):
        ReadLevels(history()).read(red(b"x,y,x,"))


# Refused


@pytest.mark.parametrize("trouble", [Trouble.NO_PRIMARY, Trouble.TIMEOUT, Trouble.OVERLOADED, Trouble.AWAY])
def test_refused_catches_a_write_that_is_there_nevertheless(trouble: Trouble) -> None:
    events = history(ONE)
    events.requests.append(request(ONE, Failed(trouble)))
    with pytest.raises(Violation, match=r"a\.1\.1\.0 was refused"):
        Refused(events).finished({})


@pytest.mark.parametrize("answer", [None, Failed(Trouble.UNDECIDED, "a.1.1.0"), Accepted("a.1.1.0", Color.RED)])
def test_refused_accepts_whatever_was_not_refused(answer: Answer | None) -> None:
    events = history(ONE)
    events.requests.append(request(ONE, answer))
    Refused(events).finished({})


def test_refused_catches_more_copies_than_were_sent() -> None:
    events = history(ONE, ONE)
    events.requests.append(request(ONE, None))
    with pytest.raises(Violation, match=r"a\.1\.2\.0 was refused, or never asked for"):
        Refused(events).finished({})


# Equal states


def test_equal_states_accepts_what_the_order_comes_to() -> None:
    checker = EqualStates(history(ONE, KEYED, TWO))
    checker.started("a", store(ONE), MemoryTree(), 1)
    checker.finished({"a": store(ONE, KEYED, TWO)})


@pytest.mark.parametrize(
    ("writes", "complaint"),
    [
        ((ONE,), "a is at 1, the order at 2"),
        ((Delete("k"), KEYED), "revision 1, and should be at 2"),
        ((ONE, OTHER), "a has .* as k"),
        ((Put("j", b""), OTHER), "a has .* as k"),
        ((ONE, Write((ONE,))), "a remembers None of i"),
    ],
)
def test_equal_states_catches_a_node_that_differs(writes: Sequence[Put | Delete | Write], complaint: str) -> None:
    with pytest.raises(Violation, match=complaint):
        EqualStates(history(ONE, KEYED)).finished({"a": store(*writes)})


def test_equal_states_catches_another_outcome() -> None:
    """The state is the same, but the reason is another."""
    failing = Write((TWO,), (Exists("k", False),))
    with pytest.raises(Violation, match="says"):
        EqualStates(history(ONE, failing)).finished({"a": store(ONE, Delete("j"))})


def test_equal_states_catches_a_start_before_where_the_log_is() -> None:
    with pytest.raises(Violation, match="begins with a state at 1, and its log is at 2"):
        EqualStates(history(ONE, TWO)).started("a", store(ONE), MemoryTree(), 2)


# The tree on disk


def tree(*writes: Put | Delete | Write) -> MemoryTree:
    made = MemoryTree()
    machine = store(*writes)
    checkpoint = machine.green.take_checkpoint(len(writes), only_full=False)
    assert checkpoint is not None
    made.apply(checkpoint)
    return made


def test_durable_tree_accepts_the_state_at_its_line() -> None:
    checker = DurableTree(history(ONE, KEYED, TWO))
    checker.written("a", tree(ONE, KEYED), 2)
    checker.written("a", tree(ONE, KEYED), 3)


def test_durable_tree_catches_one_beyond_the_log() -> None:
    with pytest.raises(Violation, match="a state at 2, and a green order to 1"):
        DurableTree(history(ONE, KEYED)).written("a", tree(ONE, KEYED), 1)


def test_durable_tree_catches_an_item_that_is_missing() -> None:
    made = tree(ONE, KEYED)
    del made.items["k"]
    with pytest.raises(Violation, match="has None as k"):
        DurableTree(history(ONE, KEYED)).written("a", made, 2)


def test_durable_tree_catches_a_wrong_revision() -> None:
    made = tree(ONE)
    made.revision = 2
    with pytest.raises(Violation, match="revision 2 at 1, not 1"):
        DurableTree(history(ONE)).written("a", made, 1)


def test_durable_tree_catches_a_fate_and_a_memory_that_are_missing() -> None:
    made = tree(ONE, KEYED)
    made.memories.clear()
    with pytest.raises(Violation, match="remembers too much or too little"):
        DurableTree(history(ONE, KEYED)).written("a", made, 2)
    made.fates.clear()
    with pytest.raises(Violation, match="knows what became of 0 messages"):
        DurableTree(history(ONE, KEYED)).written("a", made, 2)


# Watchers

K, L = Interest(frozenset({"k"})), Interest(prefixes=("l",))


def watched(interest: Interest, first: int, *seen: Change) -> StoreHistory:
    """Returns a history of three puts, and of a watcher that has seen these."""
    events = history(ONE, Put("l", b"l"), TWO)
    events.watches.append(Watch(interest, first, 1, list(seen)))
    return events


CHANGE_1, CHANGE_3 = (Change(number, f"a.1.{number}.0", ()) for number in (1, 3))
SEEN_1 = CHANGE_1._replace(items=(("k", ITEM_1),))
SEEN_3 = CHANGE_3._replace(items=(("k", Item(b"2", "application/octet-stream", 3, "a.1.3.0")),))


def test_watched_once_accepts_the_sequence_from_the_first_revision_on() -> None:
    WatchedOnce(watched(K, 1, SEEN_1, SEEN_3)).finished({})
    WatchedOnce(watched(K, 2, SEEN_3)).finished({})
    WatchedOnce(watched(K, 9)).finished({})


@pytest.mark.parametrize(
    "seen", [(), (SEEN_1,), (SEEN_1, SEEN_1, SEEN_3), (SEEN_3, SEEN_1), (SEEN_1, SEEN_3, SEEN_3)]
)
def test_watched_once_catches_what_is_missed_repeated_or_in_another_order(seen: tuple[Change, ...]) -> None:
    with pytest.raises(Violation, match="watcher 0 of"):
        WatchedOnce(watched(K, 1, *seen)).finished({})


def test_watched_once_catches_what_is_of_no_interest_and_another_value() -> None:
    with pytest.raises(Violation, match="should have seen"):
        WatchedOnce(watched(L, 1, SEEN_1)).finished({})
    other = SEEN_1._replace(items=(("k", ITEM_2),))
    with pytest.raises(Violation, match="should have seen"):
        WatchedOnce(watched(K, 1, other, SEEN_3)).finished({})


def test_watched_once_asks_of_a_watch_that_has_ended_what_it_had_come_to() -> None:
    events = watched(K, 1, SEEN_1)
    events.watches[0].next, events.watches[0].has_ended = 3, True
    WatchedOnce(events).finished({})
    events.watches[0].next = 4
    with pytest.raises(Violation, match="saw 1 changes of 2"):
        WatchedOnce(events).finished({})


# The past


def page(revision: int, *items: tuple[str, Item], count: int = 9, is_reverse: bool = False) -> Page:
    return Page("b", revision, Span(b"k"), is_reverse, count, items)


def test_past_is_past_accepts_lists_and_histories_as_they_were() -> None:
    past = history(Put("a", b""), ONE, Put("l", b"l"), TWO, Delete("k"))
    checker = PastIsPast(past)
    first, second = (Item(b"%d" % n, "application/octet-stream", 2 * n, f"a.1.{2 * n}.0") for n in (1, 2))
    other = Item(b"l", "application/octet-stream", 3, "a.1.3.0")
    for one in (page(1), page(2, ("k", first)), page(5, ("l", other)), page(4, ("k", second), count=1)):
        checker.listed(one)
    checker.listed(page(3, ("l", other), ("k", first), is_reverse=True))
    found = ((4, "a.1.4.0", second), (2, "a.1.2.0", first))
    checker.dated(Versions("b", "k", 5, 9, 0, 5, found))
    checker.dated(Versions("b", "k", 9, 1, 0, 4, found[:1]))
    checker.dated(Versions("b", "k", 9, 9, 2, 4, found[:1]))
    checker.finished({"a": store(Put("a", b""), ONE, Put("l", b"l"), TWO, Delete("k"))})


@pytest.mark.parametrize("wrong", [page(1), page(2, ("k", ITEM_1)), page(1, ("k", ITEM_1), ("l", ITEM_1))])
def test_past_is_past_catches_a_list_of_another_revision(wrong: Page) -> None:
    with pytest.raises(Violation, match="b lists"):
        PastIsPast(history(ONE, TWO)).listed(wrong)


def test_past_is_past_catches_a_revision_that_is_in_no_order() -> None:
    with pytest.raises(Violation, match="a revision 2, of 1"):
        PastIsPast(history(ONE)).listed(page(2))


@pytest.mark.parametrize("found", [(), ((1, "a.1.1.0", ITEM_2),), ((2, "a.1.2.0", ITEM_2),)])
def test_past_is_past_catches_another_history_of_a_key(found: tuple[tuple[int, str, Item | None], ...]) -> None:
    with pytest.raises(Violation, match="as the past of k"):
        PastIsPast(history(ONE, TWO)).dated(Versions("b", "k", 9, 9, 0, 2, found))


def test_past_is_past_catches_a_node_with_another_past_in_the_end() -> None:
    with pytest.raises(Violation, match="a lists"):
        PastIsPast(history(ONE, TWO)).finished({"a": store(TWO, TWO)})


def kept(asked: int, oldest: int, revision: int, is_pinned: bool = False) -> None:
    past = history()
    past.history_revisions = 5
    KeptPast(past).compacted(NoLongerKept("b", asked, oldest, revision, is_pinned))


def test_kept_past_accepts_refusals_of_what_is_long_past() -> None:
    kept(9, 10, 15)
    kept(9, 10, 60, is_pinned=True)


@pytest.mark.parametrize(
    ("asked", "oldest", "revision", "is_pinned", "complaint"),
    [
        (10, 10, 15, False, "keeps revision 10, and refuses 10"),
        (9, 10, 14, False, "must keep 5 revisions"),
        (9, 10, 59, True, "must keep 50 revisions"),
    ],
)
def test_kept_past_catches_others(asked: int, oldest: int, revision: int, is_pinned: bool, complaint: str) -> None:
    with pytest.raises(Violation, match=complaint):
        kept(asked, oldest, revision, is_pinned)


# Conflicts

B = MessageId(Machine("b", 1), 1)
YIELDING = Write((TWO,), merge=Merge.KEEP_GREEN)


def merged(
    write: Put | Write, knowledge: Knowledge, basis: Basis, view: ViewId = OTHER_VIEW
) -> tuple[StoreHistory, Store]:
    """Returns a history in which a put of k is followed by a write of b, which knew this and was sent in this
    view, and a node's store that goes by this basis."""
    past = history(ONE)
    past.log.order.append(B)
    past.log.views[B] = view
    past.log.bodies[B] = encode_batch(written(write), NEVER_EXPIRES, 7, basis)
    past.replay = Replay(past.log, knowledge={name(1): IN_PRIMARY, B: knowledge})
    past.replay.advance()
    applied = store(ONE)
    applied.green.apply(B, past.log.bodies[B], view)
    return past, applied


NOTHING = Knowledge(0, frozenset())
IN_PRIMARY = Knowledge(0, frozenset(), base=0)


@pytest.mark.parametrize(
    ("knowledge", "basis", "view", "count"),
    [
        (NOTHING, Basis(0, {}), OTHER_VIEW, 1),
        (Knowledge(1, frozenset()), Basis(1, {}), OTHER_VIEW, 0),
        (Knowledge(0, frozenset({name(1)})), Basis(0, {"a.1": 1}), OTHER_VIEW, 0),
        (IN_PRIMARY, Basis(0, {}, line=0), VIEW, 0),
        (IN_PRIMARY, Basis(0, {}, line=0), OTHER_VIEW, 1),
    ],
)
@pytest.mark.parametrize("write", [TWO, YIELDING, Write((TWO,), (Exists("k", False),))])
def test_conflicts_found_accepts_what_follows_from_what_senders_knew(
    write: Put | Write, knowledge: Knowledge, basis: Basis, view: ViewId, count: int
) -> None:
    past, applied = merged(write, knowledge, basis, view)
    assert len(past.replay.conflicts) == count
    ConflictsFound(past).finished({"a": applied})
    EqualStates(past).finished({"a": applied})


@pytest.mark.parametrize("write", [TWO, YIELDING])
def test_conflicts_found_catches_a_node_that_does_not_know_or_invents_one(write: Put | Write) -> None:
    past, applied = merged(write, NOTHING, Basis(1, {}))
    with pytest.raises(Violation, match="a does not show"):
        ConflictsFound(past).finished({"a": applied})
    past, applied = merged(write, Knowledge(1, frozenset()), Basis(0, {}))
    with pytest.raises(Violation, match="which is no conflict"):
        ConflictsFound(past).finished({"a": applied})
    past, applied = merged(write, IN_PRIMARY, Basis(0, {}, line=1))
    with pytest.raises(Violation, match="a does not show"):
        ConflictsFound(past).finished({"a": applied})


def test_equal_states_catches_a_write_that_yields_in_vain() -> None:
    past, applied = merged(YIELDING, Knowledge(1, frozenset()), Basis(0, {}))
    with pytest.raises(Violation, match="revision 1, and should be at 2"):
        EqualStates(past).finished({"a": applied})


def test_conflicts_found_forgives_what_is_no_longer_kept_and_catches_repetitions() -> None:
    past, applied = merged(TWO, NOTHING, Basis(0, {}))
    found = tuple(applied.green.conflicts(FIRST, 9))
    checker = ConflictsFound(past)
    for shown, oldest in ((found, 0), ((), 2), (found, 2)):
        checker.conflicts_shown(ConflictPage("a", FIRST, 9, oldest, 2, shown))
    checker.conflicts_shown(ConflictPage("a", FIRST, 9, 0, 1, ()))
    with pytest.raises(Violation, match="twice or in another order"):
        checker.conflicts_shown(ConflictPage("a", FIRST, 9, 0, 2, found * 2))


# What is not green

SHOWN = TentativeWrite("a.1.1.0", Color.RED, (ONE,))
YELLOW, RED = Recolored("a.1.1.0", Color.YELLOW), Recolored("a.1.1.0", Color.RED)


def tentative(
    *events: TentativeEvent,
    changes: tuple[Change, ...] = (),
    now: Mapping[MessageId, Color] | None = None,
    line: int = 0,
    interest: Interest = K,
    reads_changes: bool = True,
) -> TentativeLook:
    return TentativeLook((0, 1), "b", interest, reads_changes, events, changes, now or {}, line, now is not None)


def see(*looks: TentativeLook, write: Put | Write = ONE) -> None:
    checker = TentativeSeen(history(write))
    for look in looks:
        checker.tentative_seen(look)


def test_tentative_seen_accepts_what_appears_changes_its_colour_and_becomes_green() -> None:
    red, yellow = {name(1): Color.RED}, {name(1): Color.YELLOW}
    see(tentative(SHOWN, now=red), tentative(YELLOW, now=yellow), tentative(changes=(SEEN_1,), now={}, line=1))
    see(tentative(SHOWN, YELLOW, RED, now=red), tentative(), tentative(changes=(SEEN_1,), now={}, line=1))
    see(tentative(now=red, interest=L), tentative(now={}, line=1, interest=L))
    see(tentative(SHOWN, Settled("a.1.1.0", APPLIED), now={}, line=1, reads_changes=False))


def test_tentative_seen_accepts_the_outcome_of_what_changed_nothing() -> None:
    rejected = Write((ONE,), (Exists("k", True),))
    end = Settled("a.1.1.0", history(rejected).replay.writes[0].outcome)
    see(tentative(SHOWN, now={name(1): Color.RED}), tentative(end, now={}, line=1), write=rejected)


@pytest.mark.parametrize(
    ("look", "complaint"),
    [
        (tentative(SHOWN, SHOWN), "again"),
        (tentative(SHOWN._replace(operations=(TWO,))), "which should be"),
        (tentative(SHOWN, interest=L), "which should be None"),
        (tentative(YELLOW), "has not appeared, or has ended"),
        (tentative(SHOWN, RED), "is red now, which it was"),
        (tentative(SHOWN, Settled("a.1.1.0", APPLIED)), "which is the change"),
        (tentative(SHOWN, Settled("a.1.1.0", Outcome(Verdict.EXPIRED, None))), "ended as"),
        (tentative(SHOWN, now={}, line=1), "has not said how a.1.1.0 ended"),
        (tentative(now={name(1): Color.RED}), "it was shown as None"),
        (tentative(SHOWN, now={name(1): Color.YELLOW}), "it was shown as red"),
    ],
)
def test_tentative_seen_catches_what_does_not_follow(look: TentativeLook, complaint: str) -> None:
    with pytest.raises(Violation, match=complaint):
        see(look)


FORESEEN = Preview(
    "a.1.2.0",
    0,
    Color.RED,
    Outcome(Verdict.APPLIED, None),
    (("k", ITEM_1, Item(b"2", "application/octet-stream", None, "a.1.2.0")),),
)


def foresee(*found: Preview, write: Put | Write = TWO, color: Color = Color.RED) -> None:
    """Checks the preview of a node that has applied the first of two messages."""
    Previewed(history(ONE, write)).previewed(PreviewLook("b", 1, ((name(2), color),), found))


def test_previewed_accepts_what_the_model_foresees() -> None:
    foresee(FORESEEN)
    foresee(FORESEEN._replace(color=Color.YELLOW), color=Color.YELLOW)
    conditional = Write((TWO,), (RevisionIs("k", 9),))
    rejected = Outcome(Verdict.REJECTED, 1, Why.CONDITION_FAILED, "k", False)
    foresee(FORESEEN._replace(outcome=rejected, changes=()), write=conditional)


@pytest.mark.parametrize(
    "found",
    [
        (),
        (FORESEEN, FORESEEN),
        (FORESEEN._replace(color=Color.YELLOW),),
        (FORESEEN._replace(changes=()),),
        (FORESEEN._replace(changes=(("k", None, FORESEEN.changes[0][2]),)),),
        (FORESEEN._replace(outcome=Outcome(Verdict.EXPIRED, None)),),
    ],
)
def test_previewed_catches_what_the_model_does_not_foresee(found: tuple[Preview, ...]) -> None:
    with pytest.raises(Violation, match="b foresees"):
        foresee(*found)


# Linearizability


def check(events: StoreHistory) -> None:
    Linearizable(events, lambda key: key).finished({})


def timed(item: Item | None, began_at: float, ended_at: float) -> Read:
    return Read(Level.LINEARIZABLE, "k", "b", 1, began_at, 0, ended_at, item)


DONE_1 = request(ONE, done(1, APPLIED, (ITEM_1,)), (0.0, 1.0))
DONE_2 = request(TWO, done(2, Outcome(Verdict.APPLIED, 2), (ITEM_2,)), (2.0, 3.0))


def test_linearizable_accepts_reads_of_what_is_done() -> None:
    events = history(ONE, TWO)
    events.requests += [DONE_1, DONE_2]
    events.reads += [timed(ITEM_1, 1.5, 2.5), timed(ITEM_2, 3.5, 4.0)]
    check(events)


def test_linearizable_catches_a_stale_read() -> None:
    events = history(ONE, TWO)
    events.requests += [DONE_1, DONE_2]
    events.reads.append(timed(ITEM_1, 3.5, 4.0))
    with pytest.raises(Violation, match="k is not linearizable"):
        check(events)


def test_linearizable_catches_an_order_against_real_time() -> None:
    events = history(TWO, ONE)
    first = Item(b"2", "application/octet-stream", 1, "a.1.1.0")
    events.requests.append(request(ONE, done(2, Outcome(Verdict.APPLIED, 2), (ITEM_1,)), (0.0, 1.0)))
    events.requests.append(request(TWO, done(1, APPLIED, (first,)), (2.0, 3.0)))
    events.reads.append(timed(Item(b"1", "application/octet-stream", 2, "a.1.2.0"), 4.0, 5.0))
    with pytest.raises(Violation, match="k is not linearizable"):
        check(events)


@pytest.mark.parametrize("answer", [None, Accepted("a.1.2.0", Color.RED)])
def test_linearizable_lets_what_is_not_known_to_be_green_happen_late(answer: Answer | None) -> None:
    events = history(ONE, TWO)
    events.requests += [DONE_1, request(TWO, answer, (2.0, 3.0))]
    events.reads += [timed(ITEM_1, 10.0, 11.0), timed(ITEM_2, 12.0, 13.0)]
    check(events)


def test_linearizable_knows_that_a_write_that_yielded_has_no_effect() -> None:
    past, _ = merged(YIELDING, NOTHING, Basis(0, {}))
    yielded = past.replay.by_id["b.1.1.0"].outcome
    assert yielded.verdict is Verdict.YIELDED
    past.requests += [DONE_1, request(YIELDING, Done("b.1.1.0", Applied(yielded, {})), (2.0, 3.0))]
    past.reads.append(timed(ITEM_1, 4.0, 5.0))
    check(past)


def test_linearizable_catches_two_swaps_of_one_revision() -> None:
    events = history(ONE, Write((TWO,), (RevisionIs("k", 1),)), Write((ONE,), (RevisionIs("k", 1),)))
    events.requests.append(DONE_1)
    for number, put, item in ((2, TWO, ITEM_2), (3, ONE, ITEM_1)):
        answer = done(number, Outcome(Verdict.APPLIED, number), (item,))
        events.requests.append(request(Write((put,), (RevisionIs("k", 1),)), answer, (2.0, 9.0)))
    with pytest.raises(Violation, match="k is not linearizable"):
        check(events)


# Answers in time


def test_answered_accepts_answers_in_time_and_after_a_stop() -> None:
    checker = Answered(history())
    for deadline in (10.0, 20.0):
        asked = Asked("a write", "a", 1, deadline)
        checker.asked(asked)
        checker.answered_one(asked, 20.0, 20.0)
    assert checker.waiting == 0


def test_answered_catches_a_late_answer() -> None:
    checker = Answered(history())
    asked = Asked("a write", "a", 1, 10.0)
    checker.asked(asked)
    with pytest.raises(Violation, match=r"a did not answer a write by 10\.000"):
        checker.answered_one(asked, 20.0, 0.0)


def test_answered_catches_one_that_never_comes_unless_the_node_crashed() -> None:
    checker = Answered(history())
    for node in "ab":
        checker.asked(Asked("a write", node, 1, 10.0))
    checker.crashed("b")
    with pytest.raises(Violation, match="a did not answer"):
        checker.check(20.0, {"a": 0.0, "b": 0.0})
    checker.crashed("a")
    checker.check(20.0, {"a": 0.0, "b": 0.0})

"""How a node takes over the state of another, without clock, threads, network and disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import pytest

from corel import NotAhead
from corel.disk_errors import DiskFull
from kvstore.node.learning import (
    ATTEMPTS_MAX,
    DISK_PAUSE_SECONDS,
    PAUSE_SECONDS,
    PAUSE_SECONDS_MAX,
    Fetched,
    Hindrance,
    Learning,
    LearningStatus,
    Opened,
    Pacing,
    Phase,
    SnapshotGone,
    SourceError,
)

CHUNK = 100
LINE = 1_000
"""Where the snapshots of all sources are, and how many messages the sources have at first."""
REFUSED = SourceError("connection refused")
FULL = DiskFull("no room")


class World:
    """Sources that hand out a snapshot of some chunks each, and fail as a script says: `script` maps a call (its
    name and its source) to the errors that it raises, one by one; None lets it pass."""

    def __init__(self, sources: str = "ab", chunks: int = 4, busy_for: float = 1e9) -> None:
        self.clock = 0.0
        self.script: dict[tuple[str, str], list[Exception | None]] = {}
        self.calls: list[str] = []
        """Every call that went well, with its source."""
        self.sleeps: list[float] = []
        self.reasons: list[tuple[str, str]] = []
        self.hindrances: list[Hindrance] = []
        self.switched_to: list[tuple[str, int]] = []
        self.green = dict.fromkeys(sources, LINE)
        self.grow: Callable[[], None] = lambda: None
        """What happens at the sources between two pages of messages."""
        self.page = 400
        self.staged: tuple[str, int] | None = None
        """Of which snapshot the copy is, and how many chunks of it it has."""
        self.on_sleep: Callable[[], None] = lambda: None
        self._sources = sources
        self._chunks = chunks
        self._left_behind_until = busy_for
        self._line = 0

    def fail(self, call: str, source: str, errors: Iterable[Exception | None]) -> World:
        self.script[call, source] = list(errors)
        return self

    def _do(self, call: str, source: str) -> None:
        errors = self.script.get((call, source))
        error = errors.pop(0) if errors else None
        if error is not None:
            if isinstance(error, SnapshotGone):
                self.staged = None
            raise error
        self.calls.append(f"{call} {source}")

    def now(self) -> float:
        return self.clock

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.clock += seconds
        self.on_sleep()

    def is_left_behind(self) -> bool:
        return self.clock < self._left_behind_until

    def sources(self) -> str:
        return self._sources

    async def open(self, source: str) -> Opened:
        self._do("open", source)
        if self.staged is None or self.staged[0] != source:
            self.staged = (source, 0)
        self._line = LINE
        done = self.staged[1]
        return Opened(LINE, self.green[source], done * CHUNK, self._chunks * CHUNK)

    async def fetch_chunk(self) -> int:
        assert self.staged is not None
        source, done = self.staged
        if done == self._chunks:
            return 0
        self._do("chunk", source)
        self.staged = (source, done + 1)
        return CHUNK

    async def fetch_messages(self) -> Fetched:
        assert self.staged is not None
        source = self.staged[0]
        self._do("messages", source)
        on_disk = self.green[source]
        before, self._line = self._line, min(self._line + self.page, on_disk)
        self.grow()
        return Fetched(self._line, self.green[source], self._line - before, self._line == on_disk)

    async def switch(self) -> None:
        assert self.staged is not None
        self._do("switch", self.staged[0])
        self.switched_to.append((self.staged[0], self._line))

    def began(self, source: str, opened: Opened) -> None:
        self.calls.append(f"began {source} at {opened.bytes}")

    def switched(self, status: LearningStatus, seconds: float) -> None:
        self.calls.append(f"switched after {status.bytes} bytes")

    def cannot_learn(self, source: str, hindrance: Hindrance, reason: str) -> None:
        self.hindrances.append(hindrance)
        self.reasons.append((source, reason))


def learn(world: World, reach: int = 100, bytes_per_s: int = 10**9) -> tuple[bool, Learning]:
    learning = Learning(bytes_per_s, reach)
    return asyncio.run(learning.run(world)), learning


def test_a_node_fetches_the_state_then_the_messages_and_switches() -> None:
    world = World()
    has_switched, learning = learn(world)
    assert has_switched
    chunks = ["chunk a"] * 4
    told = ["messages a", "switch a", "switched after 400 bytes"]
    assert world.calls == ["open a", "began a at 0", *chunks, *told]
    assert (world.reasons, learning.status, learning.fetched_bytes) == ([], None, 400)


def test_a_source_that_fails_once_is_asked_again_and_goes_on_where_it_was() -> None:
    world = World().fail("chunk", "a", [None, None, REFUSED])
    assert learn(world)[0]
    assert world.calls.count("chunk a") == 4
    assert "began a at 200" in world.calls
    assert world.reasons == [("a", "connection refused. It is asked again")]


def test_a_source_that_dies_is_replaced_by_the_next_which_begins_anew() -> None:
    world = World().fail("chunk", "a", [None, None, *[REFUSED] * ATTEMPTS_MAX])
    assert learn(world)[0]
    assert (world.calls.count("chunk a"), world.calls.count("chunk b")) == (2, 4)
    assert world.switched_to == [("b", LINE)]
    assert world.reasons[-1] == ("a", "connection refused")


def test_a_source_that_dies_while_the_messages_are_fetched_is_replaced_too() -> None:
    world = World().fail("messages", "a", [REFUSED] * ATTEMPTS_MAX)
    assert learn(world)[0]
    assert world.switched_to == [("b", LINE)]


def test_a_source_that_has_closed_the_snapshot_hands_out_another() -> None:
    world = World().fail("chunk", "a", [None, SnapshotGone("the snapshot is gone")])
    assert learn(world)[0]
    assert world.calls.count("chunk a") == 5  # one of them for nothing
    assert world.switched_to == [("a", LINE)]


def test_a_source_that_closes_every_snapshot_too_soon_is_left_for_another() -> None:
    world = World().fail("chunk", "a", [None, SnapshotGone("gone")] * ATTEMPTS_MAX)
    assert learn(world)[0]
    assert world.switched_to == [("b", LINE)]


def test_a_source_that_is_itself_left_behind_or_of_another_generation_is_not_asked_again() -> None:
    world = World().fail("open", "a", [NotAhead("the other node belongs to another generation of the cluster")])
    assert learn(world)[0]
    assert world.switched_to == [("b", LINE)]
    assert world.reasons == [("a", "the other node belongs to another generation of the cluster")]


def test_a_source_that_has_too_many_learners_is_asked_again_after_a_pause() -> None:
    world = World("a").fail("open", "a", [SourceError("2 snapshots are open already")] * (2 * ATTEMPTS_MAX))
    assert learn(world)[0]
    assert [pause for pause in world.sleeps if pause >= PAUSE_SECONDS] == [PAUSE_SECONDS, 2 * PAUSE_SECONDS]


def test_pauses_grow_up_to_a_bound_while_nobody_answers() -> None:
    world = World("a").fail("open", "a", [REFUSED] * 10 * ATTEMPTS_MAX)
    assert learn(world)[0]
    pauses = [pause for pause in world.sleeps if pause >= PAUSE_SECONDS]
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, *[PAUSE_SECONDS_MAX] * 5]


def test_a_node_that_knows_no_address_says_what_to_set_and_looks_again() -> None:
    world = World("", busy_for=10.0)
    assert not learn(world)[0]
    assert "Set urls" in world.reasons[0][1]
    assert set(world.hindrances) == {Hindrance.NO_URLS}
    assert world.calls == []


def test_a_full_disk_ends_the_attempt_whoever_could_be_asked_and_it_goes_on_later() -> None:
    world = World()
    put = world.fetch_chunk
    refusals = [FULL]

    async def fetch_chunk() -> int:
        if world.staged == ("a", 2) and refusals:
            raise refusals.pop()
        return await put()

    world.fetch_chunk = fetch_chunk  # type: ignore[method-assign]
    assert learn(world)[0]
    assert world.sleeps.count(DISK_PAUSE_SECONDS) == 1
    assert world.reasons == [("", "this node's own disk does not take the copy: no room")]
    assert world.switched_to == [("a", LINE)]
    assert world.calls.count("chunk a") == 4


@pytest.mark.parametrize("error", [FULL, REFUSED, NotAhead("this node knows of the same primary component")])
def test_a_switch_that_fails_leaves_the_node_as_it_was_and_is_tried_again(error: Exception) -> None:
    world = World("a").fail("switch", "a", [error])
    assert learn(world)[0]
    assert len(world.switched_to) == 1
    assert world.calls.count("chunk a") == 4


def test_a_node_that_is_no_longer_left_behind_gives_up() -> None:
    world = World(busy_for=0.5).fail("open", "a", [REFUSED] * 99).fail("open", "b", [REFUSED] * 99)
    assert not learn(world)[0]
    assert world.calls == []
    assert world.clock < PAUSE_SECONDS


@pytest.mark.parametrize(("busy_for", "last"), [(2.0, "chunk a"), (4.5, "messages a")])
def test_a_node_that_was_brought_up_meanwhile_does_not_switch(busy_for: float, last: str) -> None:
    world = World("a", chunks=4, busy_for=busy_for)
    world.green["a"] += CHUNK
    has_switched, learning = learn(world, bytes_per_s=CHUNK)
    assert (has_switched, learning.status) == (False, None)
    assert world.calls[-1] == last


def test_messages_are_fetched_until_the_node_is_in_reach_while_the_source_goes_on() -> None:
    world = World("a")
    world.green["a"], world.page = LINE + 1_500, 10_000
    rises = [300, 200, 100, 60, 40]
    world.grow = lambda: world.green.update(a=world.green["a"] + rises.pop(0))
    assert learn(world, reach=100)[0]
    assert rises == []
    assert world.switched_to == [("a", LINE + 1_500 + 300 + 200 + 100 + 60)]


def test_a_source_whose_disk_does_not_follow_is_left_for_another() -> None:
    world = World()

    async def fetch_messages() -> Fetched:
        assert world.staged is not None
        source = world.staged[0]
        return Fetched(LINE, LINE + 9_999 if source == "a" else LINE, 0, True)

    world.fetch_messages = fetch_messages  # type: ignore[method-assign]
    assert learn(world)[0]
    assert [source for source, _ in world.switched_to] == ["b"]


def test_chunks_are_fetched_no_faster_than_the_rate() -> None:
    world = World(chunks=20)
    assert learn(world, bytes_per_s=10 * CHUNK)[0]
    assert world.clock == pytest.approx(2.0)


def test_a_pause_of_the_source_is_not_made_up_for() -> None:
    pacing = Pacing(100)
    assert pacing.pause_after(50, 0.0) == 0.5
    assert pacing.pause_after(50, 0.5) == 0.5
    assert pacing.pause_after(50, 60.0) == 0.5


def test_the_status_says_how_far_the_transfer_is() -> None:
    world, seen = World("a"), []
    learning = Learning(CHUNK, 100)
    world.on_sleep = lambda: seen.append(learning.status)
    assert asyncio.run(learning.run(world))
    states = [LearningStatus("a", Phase.STATE, done * CHUNK, 400, LINE, LINE) for done in range(1, 5)]
    assert seen == states

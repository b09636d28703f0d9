"""Nodes that are left behind take over the state of a node that is ahead, beside the view (decision 28), by the
code of a real node (`kvstore.node.learning`), in simulated time.

A real node fetches the state over HTTP. Here the disk of the source is copied at the moment when the transfer
begins, and its parts arrive one after the other, unless the source has crashed, is cut off, or what arrives is
damaged. Then come the messages that have become green since, from the same source or another one. The node goes on
meanwhile, in a view of its own or of others that are behind too. In the end it stops, takes the state over, and
starts again. What was fetched is on its disk, so that it goes on with that after a crash."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import Any

from corel.disk_errors import DiskError
from corel.learning import NotAhead, check_ahead
from kvstore.node import learning as product
from kvstore.node.learner import LEFT_BEHIND_SECONDS
from kvstore.node.learning import Fetched, Hindrance, LearningStatus, Opened, SnapshotGone, SourceError
from tests.simulator.checkers.learned_seldom import LearnedSeldom
from tests.simulator.corel.absence import Pause
from tests.simulator.corel.process import CorelProcess
from tests.simulator.corel.snapshot import Snapshot, is_damaged_from
from tests.simulator.corel.truncation import TRANSFER_MS_MAX, TRANSFER_MS_MIN, Truncation
from tests.simulator.network import Network
from tests.simulator.world import World
from transport.messages import Datagram, Machine

SWITCH_MS_MAX = 20.0
"""How long it takes at most to put the new disk in place of the old one."""

ANSWER_MS_MAX = 20.0
"""How long a source takes at most to answer a short request."""

FULL_MS = 700.0
"""For how long there is no room on the disk of a node that learns."""

CHUNK_BYTES = 1_000
BYTES_PER_S = 1_000_000_000


class Learning:
    """The transfers of one run."""

    def __init__(
        self,
        plan: Truncation,
        random: Random,
        world: World,
        network: Network[Datagram],
        processes: Mapping[str, CorelProcess],
        count: Callable[[str], None],
    ) -> None:
        self.plan = plan
        self.random = random
        self.world = world
        self.processes = processes
        self.seldom = LearnedSeldom()
        self._network = network
        self._count = count
        self._has_faults = True
        self._learners: dict[str, Learner] = {}

    def end_faults(self) -> None:
        """From now on, transfers succeed as long as their sources are there."""
        self._has_faults = False

    def left_behind(self, process: CorelProcess, ahead: Machine) -> None:
        """A node hears that it is too far behind this machine to join it."""
        learner = self._learners.get(process.address)
        if learner is None:
            learner = self._learners[process.address] = Learner(process, self)
        learner.left_behind(ahead)

    def crashed(self, process: CorelProcess) -> None:
        if process.address in self._learners:
            self._learners[process.address].crashed()

    def count(self, what: str) -> None:
        self._count(f"learning: {what}")

    def happens(self, share: float) -> bool:
        return self._has_faults and self.random.random() < share

    def are_others_learning(self, learner: Learner) -> bool:
        return any(one.is_learning for one in self._learners.values() if one is not learner)

    def can_be_asked(self, process: CorelProcess, other: CorelProcess) -> bool:
        return (
            other.replica is not None
            and not other.is_paused()
            and self._network.carries(process.address, other.address)
            and self._network.carries(other.address, process.address)
        )

    def kill(self, process: CorelProcess, lives: int) -> None:
        if process.lives == lives and self._has_faults and (process.replica is not None or process.is_away):
            process.crash()
            self.world.after(100.0, process.start)


class Learner:
    """The learner of one node. It is the surroundings that the product's code asks for."""

    def __init__(self, process: CorelProcess, run: Learning) -> None:
        self._process = process
        self._run = run
        self._learning = product.Learning(BYTES_PER_S, process.corel.recovery_messages_max)
        self._steps: Any = None
        self._heard_at = 0.0
        self._ahead = ""
        self._source: CorelProcess | None = None
        self._staged: Snapshot | None = None
        """What has been fetched, or is being."""
        self._staged_from: CorelProcess | None = None
        self._staged_at = (0, 0)
        """The start of the source that has the snapshot open, and the disk on which it is staged."""
        self._chunks_left = 0
        self._chunk_ms = 0.0
        self._is_switching = False

    @property
    def is_learning(self) -> bool:
        return self._steps is not None

    def left_behind(self, ahead: Machine) -> None:
        self._heard_at, self._ahead = self.now(), ahead.name
        if self._steps is None:
            if self._run.are_others_learning(self):
                self._run.count("two or more at once")
            self._steps = self._learning.run(self)
            self._go_on(self._steps)

    def crashed(self) -> None:
        """The process was killed. What is staged stays."""
        if self._steps is not None:
            self._run.count("killed while it switches" if self._is_switching else "killed while it learns")
            self._steps.close()
            self._steps, self._is_switching = None, False

    def _go_on(self, steps: Any) -> None:
        if steps is not self._steps:
            return
        if self._process.is_paused():
            self._run.world.at(self._process.paused_until, partial(self._go_on, steps))
            return
        try:
            seconds = steps.send(None)
        except StopIteration as stopped:
            self._steps = None
            if not stopped.value:
                self._run.count("not needed any more")
        else:
            self._run.world.after(1_000.0 * seconds, partial(self._go_on, steps))

    def _check_source(self) -> CorelProcess:
        source = self._source
        if source is None or not self._run.can_be_asked(self._process, source):
            self._run.count("the source died" if source and source.replica is None else "the source is cut off")
            raise SourceError("it does not answer")
        return source

    # What the product's code asks for

    def now(self) -> float:
        return self._run.world.now / 1_000.0

    async def sleep(self, seconds: float) -> None:
        await Pause(seconds)

    def is_left_behind(self) -> bool:
        return self.now() - self._heard_at < LEFT_BEHIND_SECONDS

    def sources(self) -> list[str]:
        """Returns the others in the product's order, but for those of another generation."""
        generation = self._run.processes[self._ahead].log.lines.generation
        names = dict.fromkeys((*([self._staged_from.name] if self._staged_from else []), self._ahead))
        names |= dict.fromkeys(self._run.processes)
        return [
            name
            for name in names
            if name != self._process.name and self._run.processes[name].log.lines.generation == generation
        ]

    async def open(self, source: str) -> Opened:
        run, process = self._run, self._process
        await Pause(run.random.uniform(0.0, ANSWER_MS_MAX) / 1_000.0)
        self._source = run.processes[source]
        other = self._check_source()
        if not self._goes_on_with(other):
            try:
                snapshot = other.snapshot()
            except DiskError as error:
                raise SourceError(f"its disk fails: {error}") from error
            check_ahead(process.log.lines, snapshot.lines)
            self._stage(other, snapshot)
        if self._staged is None:
            raise SourceError("nothing is staged")
        return Opened(self._staged.lines.green, other.log.lines.green, 0, CHUNK_BYTES)

    def _goes_on_with(self, source: CorelProcess) -> bool:
        """Whether what is staged can be completed with this source, as in the product: all of the snapshot is
        here, or the source still has it open."""
        if self._staged is None or self._staged_at[1] != self._process.disks:
            return False
        if self._chunks_left and (self._staged_from is not source or self._staged_at[0] != source.starts):
            return False
        self._run.count("went on with what was staged")
        return True

    def _stage(self, source: CorelProcess, snapshot: Snapshot) -> None:
        run, plan = self._run, self._run.plan
        run.count("begun")
        self._staged, self._staged_from = snapshot, source
        self._staged_at = (source.starts, self._process.disks)
        self._chunks_left = run.random.choice((1, 3, 5))
        is_slow = run.random.random() < plan.slow_share
        transfer_ms = run.random.uniform(TRANSFER_MS_MIN, TRANSFER_MS_MAX * (1.0 if is_slow else 0.1))
        self._chunk_ms = transfer_ms / self._chunks_left
        if run.happens(0.5 * plan.killed_share):
            self._kill_within(transfer_ms)

    def _kill_within(self, duration_ms: float) -> None:
        run, process = self._run, self._process
        run.world.after(duration_ms * run.random.random(), partial(run.kill, process, process.lives))

    async def fetch_chunk(self) -> int:
        if not self._chunks_left:
            return 0
        await Pause(self._chunk_ms / 1_000.0)
        source = self._check_source()
        if source.starts != self._staged_at[0]:
            self._run.count("the source has restarted")
            self._staged = None
            raise SnapshotGone("it has no such snapshot")
        if is_damaged_from(source.log, source.log.lines.cut) or self._run.happens(self._run.plan.damaged_share):
            self._run.count("the snapshot is damaged")
            raise SourceError("a checksum is wrong")
        self._chunks_left -= 1
        return CHUNK_BYTES

    async def fetch_messages(self) -> Fetched:
        run = self._run
        await Pause(run.random.uniform(0.0, ANSWER_MS_MAX) / 1_000.0)
        source, staged = self._check_source(), self._staged
        if staged is None or not staged.is_continued_by(source.log):
            run.count("the source has not, or no longer, what follows the snapshot")
            self._staged = None
            raise SnapshotGone("what follows is truncated")
        if is_damaged_from(source.log, staged.lines.green):
            raise SourceError("a checksum is wrong")
        fetched = source.log.lines.green - staged.lines.green
        check_ahead(self._process.log.lines, source.log.lines)
        self._staged = staged.extended(source.log)
        run.count("caught up with the source" if fetched else "nothing is green that the snapshot does not have")
        if source is not self._staged_from:
            run.count("went on with another source")
        if run.random.random() >= run.plan.catch_up_share:
            await Pause(run.random.uniform(0.0, TRANSFER_MS_MAX) / 1_000.0)  # and more becomes green meanwhile
        green = self._staged.lines.green
        return Fetched(green, green, CHUNK_BYTES, is_whole=True)

    async def switch(self) -> None:
        run, process, staged = self._run, self._process, self._staged
        if process.replica is None or staged is None:
            run.count("away when it is to switch")
            raise DiskError("the node is away")
        was_empty = not process.log.lines.green
        outcome: list[NotAhead | DiskError | None] = []
        switch_ms = SWITCH_MS_MAX * run.random.random()
        if run.happens(0.5 * run.plan.killed_share):
            self._kill_within(switch_ms)
        if run.happens(run.plan.full_share):
            process.log.space.limit(0)
            run.world.after(FULL_MS, process.log.space.heal)
        self._is_switching = True
        process.learn(staged, switch_ms, outcome.append)
        while not outcome:
            await Pause(0.001)
        self._is_switching = False
        self._staged = None
        if (error := outcome[0]) is not None:
            run.count(f"{type(error).__name__} when it switched")
            raise error
        if was_empty:
            run.count("empty disks that learned")
        if process.log.lines.next_arrival > process.log.lines.open_from:
            run.count("learned, with messages of its own that are not green")

    def began(self, source: str, opened: Opened) -> None: ...

    def switched(self, status: LearningStatus, seconds: float) -> None:
        self._run.count("learned")
        self._run.seldom.learned(self._process.address)

    def cannot_learn(self, source: str, hindrance: Hindrance, reason: str) -> None:
        self._run.count(f"cannot: {hindrance}")

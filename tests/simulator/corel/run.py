"""The log in the simulated world: all faults of the layers below, disks that stall, and crashes between any two
effects.

A run has a phase in which everything the plan holds happens, and the invariants are checked after every step. Then
the network heals, every process is up, and within a bounded time all of them must be in one primary component with
everything that was ever acknowledged green."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from random import Random

from corel.corel import Corel
from corel.disk_errors import DamagedLog, DiskError
from corel.effects import CorelEvent, Greened, Logged
from corel.messages import Entry
from corel.outbox import TooMuch
from corel.recovery_plan import ReplacedDisk
from corel.stages import Stage
from corel.storage import LogWrite
from kvstore.node.back_off import BACK_OFF_SECONDS_MAX
from kvstore.node.coming_back import RETRY_SECONDS
from kvstore.node.learning import DISK_PAUSE_SECONDS, PAUSE_SECONDS_MAX
from tests.simulator.checkers import Violation
from tests.simulator.checkers.flapping import Flapping
from tests.simulator.checkers.log import LogChecker
from tests.simulator.corel.disk_failures import DiskFailures
from tests.simulator.corel.generations import Replacement
from tests.simulator.corel.judges import Jury
from tests.simulator.corel.learning import Learning
from tests.simulator.corel.left_over import LeftOver
from tests.simulator.corel.plan import CorelPlan, DiskFault, PhaseFault
from tests.simulator.corel.process import CorelProcess
from tests.simulator.corel.truncation import TRANSFER_MS_MAX
from tests.simulator.corel.twins import Twins
from tests.simulator.membership.group_run import GroupRun
from transport.effects import Journal
from transport.messages import Machine, View, ViewId

SETTLE_MS_MAX = 12_000.0
"""After the last fault, all processes are in one primary component with everything green by then."""

BACK_MS_MAX = 1_000.0 * (BACK_OFF_SECONDS_MAX + RETRY_SECONDS) + 2_000.0
"""When no disk fails any more, every node that is away has come back by then."""

LEARN_MS_MAX = 1_000.0 * max(PAUSE_SECONDS_MAX, DISK_PAUSE_SECONDS) + 4.0 * TRANSFER_MS_MAX
"""How much longer it takes if nodes have to take over a state first: they may pause after failures."""

JOIN_MS = 1_000.0
"""A node that has taken over a state and starts again has joined the others by then, mostly. If more than
`recovery_messages_max` messages become green meanwhile, it is behind again: such a load never lets it in."""

QUIET_MS = 1_500.0


class CorelRun(GroupRun[CorelProcess]):
    """One seed's run: logs on disks. One that is not judged goes on after a violation, as far as it can."""

    process_type: type[CorelProcess] = CorelProcess

    def __init__(
        self, plan: CorelPlan, write: Callable[[str], None] | None = None, is_judged: bool = True
    ) -> None:
        super().__init__(f"corel run {plan.seed}", plan.below, write)
        self.plan = plan
        self.is_judged = is_judged
        self.jury = Jury(plan.below.nodes, is_judged)
        self.history = self.jury.last().history
        self._has_faults = True
        """Whether the phase of faults is not over."""
        self._phases: dict[str, str] = {}
        self._visits: Counter[str] = Counter()
        self._sent = 0
        self._origins: dict[ViewId, set[ViewId]] = {}
        """The views that the members of each view came from."""
        self._views: dict[str, ViewId] = {}
        self.flapping = Flapping()
        self.processes = {name: self._make(name) for name in plan.below.nodes}
        self.disk_failures = DiskFailures(
            plan.disk_failures, self.world, self.processes, self._may_lose_disk, self._replace_disk, self._count
        )
        self._learning: Learning | None = None
        if plan.truncation is not None:
            random = Random(f"learning {plan.seed}")
            self._learning = Learning(
                plan.truncation, random, self.world, self.network, self.processes, self._count
            )
        self._left_over: LeftOver | None = None
        if plan.bootstrap is not None:
            self._left_over = LeftOver(
                plan.bootstrap, plan.restore, self.world, self.processes, self.jury, self.coverage
            )
        self._twins: Twins | None = None
        if plan.twin is not None:
            self._twins = Twins(
                plan.twin,
                self.world,
                self.network,
                self.processes,
                self.jury,
                self._may_lose_disk,
                self._make,
                self._schedule_send,
                self._count,
            )

    def run(self) -> None:
        self._schedule_starts()
        self._schedule_faults()
        self.world.run_until(self.plan.below.duration_ms)
        self._heal()
        if self._twins is not None:
            self._twins.check_stopped()
        self._await_disks()
        if self._left_over is not None:
            self._demand(
                self._left_over.is_kept_out, "one component of the new cluster, without nodes that were left over"
            )
            self._left_over.check_reported()
            self._left_over.replace_disks()
        self._demand(self._is_one_primary, "one primary component of all")
        self._is_sending = False
        if self._learning is not None:
            self._learning.seldom.becomes_quiet()
        for process in self.processes.values():
            process.submit(b"last of " + process.name.encode())
        self._demand(self._is_all_green, "everything green everywhere")
        self.world.run_until(self.world.now + QUIET_MS)
        self._finish()

    def _heal(self) -> None:
        """Ends all faults."""
        self._has_faults = False
        self._end_network_faults()
        self.network.heal()
        for process in self.processes.values():
            process.crash_after_effects = None
        self.disk_failures.end()
        if self._twins is not None:
            self._twins.end_faults()
        if self._learning is not None:
            self._learning.end_faults()
            if self._load_per_second() * JOIN_MS > 1_000.0 * self.plan.config.recovery_messages_max:
                self._stop_load()

    def _load_per_second(self) -> float:
        """How many messages are submitted in a second, at most."""
        return self.plan.below.messages_per_second

    def _stop_load(self) -> None:
        """Ends a load that a node which has taken over a state cannot keep up with."""
        self._is_sending = False

    def _await_disks(self) -> None:
        """Waits until no disk stalls any more and every node has come back to its disk. A node that started on a
        disk that stalled already notices it, and leaves, only after the phase of faults."""
        stall_ends = max(one.stall_ends for one in self.processes.values())
        self.world.run_until(max(self.world.now, stall_ends))
        if not self._settles(lambda: not any(one.is_away for one in self.processes.values()), BACK_MS_MAX):
            away = {name: str(one.trouble) for name, one in self.processes.items() if one.is_away}
            raise Violation(f"not back after {BACK_MS_MAX} ms: {away}")

    def _finish(self) -> None:
        self.disk_failures.forgive_rot()
        logs = {process.address: process.machine_log for process in self.processes.values()}
        for checker in self.jury.last().checkers:
            checker.finished(logs)

    def _demand(self, condition: Callable[[], bool], what: str) -> None:
        within_ms = SETTLE_MS_MAX + (LEARN_MS_MAX if self._learning is not None else 0.0)
        if not self._settles(condition, within_ms):
            states = {
                name: process.replica
                and f"{process.machine_log.stage} {process.machine_log.view.id} {process.machine_log.queue.green}"
                f"/{len(process.machine_log.queue)}"
                for name, process in self.processes.items()
            }
            raise Violation(f"not {what} after {within_ms} ms: {states}")

    def _is_one_primary(self) -> bool:
        for process in self.processes.values():
            if process.replica is None or process.is_paused():
                return False
            log = process.machine_log
            if log.stage is not Stage.PRIMARY or len(log.view.members) < len(self.processes):
                return False
        return len({process.machine_log.view.id for process in self.processes.values()}) == 1

    def _is_all_green(self) -> bool:
        lengths = set()
        for process in self.processes.values():
            if process.replica is None or len(process.machine_log.queue) > process.machine_log.queue.green:
                return False
            lengths.add(process.machine_log.queue.green)
        is_sent = all(not process.machine_log.waiting for process in self.processes.values())
        return is_sent and len(lengths) == 1

    # Applications

    def _send(self, process: CorelProcess) -> None:
        size = self.random.randint(0, 60)
        if self.random.random() < self.plan.below.large_share:
            size = 3 * self.plan.below.config.datagram_bytes_max
        self._sent += 1
        try:
            process.submit(b"%d " % self._sent + bytes(size))
        except TooMuch:
            self.coverage["refused"] += 1

    def _count(self, what: str) -> None:
        self.coverage[what] += 1

    # What happens at the processes

    def _make(self, name: str, address: str | None = None) -> CorelProcess:
        process = self._prepare(self._new_process(name, address), name)
        process.carry = lambda datagram: process.headers.put(self._through_codec(datagram))
        process.on_greened = partial(self._on_greened, process)
        process.on_logged = partial(self._on_logged, process)
        process.on_step = partial(self._on_step, process)
        process.on_started = partial(self._on_started, process)
        process.on_crash = partial(self._on_crash, process)
        process.on_left = partial(self._on_left, process)
        process.on_returned = partial(self._on_returned, process)
        process.on_twin = partial(self._on_twin, process)
        process.on_replaced = partial(self._on_replaced, process)
        process.on_own = partial(self._on_own, process)
        process.on_left_behind = partial(self._on_left_behind, process)
        process.on_truncated = partial(self._on_truncated, process)
        process.on_out_of_reach = partial(self._count, "left a view that had truncated what they lacked")
        process.on_written = partial(self._on_written, process)
        process.on_view = partial(self._on_view, process)
        process.on_journal = partial(self._on_journal, process)
        return process

    def _new_process(self, name: str, address: str | None = None) -> CorelProcess:
        return self.process_type(name, self.environment, self.plan, address)

    def _on_started(self, process: CorelProcess, log: Corel) -> None:
        checkers = self.jury.of(process.address, log).checkers
        taken_over, process.taken_over = process.taken_over, None
        for checker in checkers:
            if taken_over is not None:
                checker.took_over(process.address, taken_over)
            checker.started(process.address, log)
        self._check_cut(process, checkers)

    def _on_truncated(self, process: CorelProcess, count: int) -> None:
        self.coverage["truncated messages"] += count
        self._check_cut(process, self.jury.of(process.address).checkers)

    def _check_cut(self, process: CorelProcess, checkers: Iterable[LogChecker]) -> None:
        cut = process.log.lines.cut
        if cut > process.tree_line and self.is_judged:
            raise Violation(f"{process.name} has truncated what is before {cut}, of {process.tree_line} applied")
        for checker in checkers:
            checker.truncated(process.address, cut, process.log.digests[cut])

    def _on_left_behind(self, process: CorelProcess, ahead: Machine) -> None:
        if self._learning is not None:
            self._learning.left_behind(process, ahead)

    def _on_greened(self, process: CorelProcess, greened: Greened) -> None:
        log = process.machine_log
        self.jury.of(process.address, log).greened(process.address, log, greened)

    def _on_logged(self, process: CorelProcess, logged: Logged) -> None:
        log = process.machine_log
        for checker in self.jury.of(process.address, log).checkers:
            checker.logged(process.address, log, logged)

    def _on_step(self, process: CorelProcess) -> None:
        log = process.machine_log
        self.jury.of(process.address, log).stepped(process.address, log)
        if (phase := log.phase) != self._phases.get(process.address):
            self._phases[process.address] = phase
            self._visits[phase] += 1
            for fault in self.plan.phase_faults:
                if fault.phase == phase and fault.count == self._visits[phase] and self._has_faults:
                    self.world.after(fault.after_ms, partial(self._apply_in_phase, fault))

    def _on_own(self, process: CorelProcess, log: Corel, entry: Entry) -> None:
        self.jury.own(process.address, log, entry)

    def _on_written(self, process: CorelProcess) -> None:
        if self.plan.seed % 4 == 1 and self.is_judged:
            judges = self.jury.of(process.address, process.machine_log if process.replica is not None else None)
            judges.restorable.check(process.address, process.log.load())

    def _on_view(self, process: CorelProcess, view: View) -> None:
        if process.replica is not None:
            self.coverage[f"view change while {self._phases.get(process.address, 'starting')}"] += 1
            origins = self._origins.setdefault(view.id, set())
            origins.add(self._views[process.address])
            if len(origins) == 3:
                self.coverage["merges of three or more components"] += 1
        self._views[process.address] = view.id

    def _on_crash(self, process: CorelProcess, write: LogWrite | None, was_written: bool) -> None:
        if write is not None:
            fate = "written" if was_written else "lost"
            kind = "yellow" if write.yellow is not None else "messages" if write.records else "lines"
            self.coverage[f"crash during a write of {kind}, {fate}"] += 1

        if self._twins is not None:
            self._twins.crashed(process)
        if self._learning is not None:
            self._learning.crashed(process)

    def _on_twin(self, process: CorelProcess, twin: Machine) -> None:
        if self._twins is None:
            raise Violation(f"{process.me} hears {twin}, and was the only one of its name")
        self._twins.stopped(process, twin)

    def _on_replaced(self, process: CorelProcess, error: ReplacedDisk) -> None:
        if self._twins is None:
            raise Violation(f"{process.me} stops, and its disk was not replaced: {error}")
        self._twins.stopped_as_replaced(process, error)

    def _on_left(self, process: CorelProcess, error: DiskError) -> None:
        self.coverage[f"left: {type(error).__name__}"] += 1
        if isinstance(error, DamagedLog) and self.processes[process.name] is process:
            self.disk_failures.damaged(process.name)

    def _on_returned(self, process: CorelProcess) -> None:
        self.coverage["returns to a disk"] += 1
        if self.is_judged:
            self.flapping.returned(process.address, process.lives, self.world.now)

    def _on_journal(self, process: CorelProcess, journal: Journal) -> None:
        if isinstance(journal.event, CorelEvent):
            words = (f"journal: {journal.event}", str(journal.details.get("stage", "")), str(journal.reason))
            self.coverage[" ".join(filter(None, words))] += 1
            if journal.event is CorelEvent.DEMOTED:
                kind = "yellow retreats" if process.machine_log.is_representative else "demotions in step 6"
                self.coverage[kind] += 1
            if journal.event is CorelEvent.REFUSED and self.is_judged:
                raise Violation(f"{process.name} refused {journal.id}: {journal.reason} {journal.details}")
        if self._trace is not None:
            self._trace.on_journal(process.address, journal)

    # Faults

    def _apply_in_phase(self, fault: PhaseFault) -> None:
        if not self._has_faults:
            return
        if fault.crashing:
            self.coverage[f"crashes when {fault.phase}"] += 1
        for name in fault.crashing:
            if self.processes[name].replica is not None:
                self._crash(self.processes[name], fault.down_ms)
        if fault.cut_off:
            self.coverage[f"cuts when {fault.phase}"] += 1
            others = [name for name in self.processes if name not in fault.cut_off]
            self.network.partition([fault.cut_off, others])
            self.world.after(fault.heal_after_ms, lambda: self.network.heal() if self._has_faults else None)

    def _schedule_faults(self) -> None:
        super()._schedule_faults()
        for fault in self.plan.disk_faults:
            self.world.at(fault.at_ms, partial(self._apply_to_disk, fault))
        for replacement in self.plan.replacements:
            self.world.at(replacement.at_ms, partial(self._replace, replacement))
        if self._left_over is not None:
            self._left_over.schedule()
        if self._twins is not None:
            self._twins.schedule()
        self.disk_failures.schedule()

    def _apply_to_disk(self, fault: DiskFault) -> None:
        process = self.processes[fault.node]
        if fault.stall_ms:
            process.stall(fault.stall_ms)
        elif process.replica is None:
            return
        elif fault.is_wiped:
            self._replace(Replacement(fault.at_ms, fault.node, fault.down_ms))
        else:
            process.down_ms = fault.down_ms
            process.crash_after_effects = fault.crash_after_effects

    def _replace(self, replacement: Replacement) -> None:
        """Replaces a disk, if that is allowed now."""
        process = self.processes[replacement.node]
        judges = self.jury.of(process.address)
        if process.replica is None or judges is not self.jury.last():
            return
        if self._may_lose_disk(process.name):
            have_votes = all(
                one.log.lines.is_voter for one in self.processes.values() if self.jury.of(one.address) is judges
            )
            self._replace_disk(process.name, replacement.down_ms)
            self.coverage["disks replaced" + ("" if have_votes else ", others without a vote yet")] += 1
        else:
            self.coverage["disks not replaced: the others could not restore a vote"] += 1

    def _may_lose_disk(self, node: str) -> bool:
        """Whether an operator may replace this disk, and the disk may be damaged: the voters of its cluster that
        remain must be able to restore its vote, and those of disks that were replaced before. Otherwise there is
        no primary component any more."""
        judges = self.jury.of(self.processes[node].address)
        others = [one for name, one in self.processes.items() if name != node]
        return self.plan.roster.restores_vote(
            one.name
            for one in others
            if self.jury.of(one.address) is judges and one.log.lines.is_voter and not one.log.rotten
        )

    def _replace_disk(self, node: str, down_ms: float = 1.0) -> None:
        process = self.processes[node]
        process.crash()
        process.wipe()
        self.jury.replaced(process.address)
        self.world.after(down_ms, process.start)

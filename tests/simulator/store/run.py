"""The store in the simulated world: all faults of the layers below, and clients that write, read and retry all the
while.

A run ends as one of the log's layer does, healed and with all processes in one primary component. Then requests of
all kinds must be served, and everything that any client was answered must be true."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from random import Random
from types import ModuleType

from corel.messages import MessageId
from corel.storage import LogWrite
from kvstore.store import green_state, state, tentative_feed
from kvstore.store.green_state import Checkpoint
from kvstore.store.operations import Append, Write
from kvstore.store.replies import Accepted, Ack, Answer, Done, Trouble
from kvstore.store.state import Verdict
from kvstore.store.store import Store
from kvstore.store.write_codec import encode_write
from tests.simulator.checkers import Violation
from tests.simulator.checkers.acknowledged_writes import AcknowledgedWrites
from tests.simulator.checkers.answered import Answered
from tests.simulator.checkers.conflicts_found import ConflictsFound
from tests.simulator.checkers.durable_tree import DurableTree
from tests.simulator.checkers.equal_states import EqualStates
from tests.simulator.checkers.idempotency import Idempotency
from tests.simulator.checkers.kept_past import KeptPast
from tests.simulator.checkers.linearizable import Linearizable
from tests.simulator.checkers.past_is_past import PastIsPast
from tests.simulator.checkers.previewed import Previewed
from tests.simulator.checkers.read_levels import APPENDED, SEPARATOR, ReadLevels
from tests.simulator.checkers.refused import Refused
from tests.simulator.checkers.store import Level, Read, Request, StoreChecker, StoreHistory
from tests.simulator.checkers.tentative_seen import TentativeSeen
from tests.simulator.checkers.watched_once import WatchedOnce
from tests.simulator.corel.process import CorelProcess
from tests.simulator.corel.run import QUIET_MS, CorelRun
from tests.simulator.store.client import Client, object_of
from tests.simulator.store.client_gateway import ClientGateway
from tests.simulator.store.looker import Looker
from tests.simulator.store.memory_tree import MemoryTree
from tests.simulator.store.model import Knowledge, Replay
from tests.simulator.store.plan import StorePlan
from tests.simulator.store.process import StoreProcess
from tests.simulator.store.tentative_reader import TentativeReader
from tests.simulator.store.watcher import Watcher
from transport.messages import View

SERVED_MS_MAX = 5_000.0
"""In one primary component of all, with a network that works, a request is served by then."""


class StoreRun(CorelRun):
    """One seed's run: stores, and their clients."""

    store_process_type: type[StoreProcess] = StoreProcess

    def __init__(
        self, plan: StorePlan, write: Callable[[str], None] | None = None, is_judged: bool = True
    ) -> None:
        self.store_plan = plan
        self._write_line = write
        self._stores: dict[str, StoreProcess] = {}
        super().__init__(plan.corel, write, is_judged)
        window = plan.idempotency_positions
        self._knowledge: dict[MessageId, Knowledge] = {}
        replay = Replay(self.history, window, self._knowledge)
        self.store_history = StoreHistory(self.history, replay, window, plan.store.history_revisions)
        self.answered = Answered(self.store_history)
        self.linearizable = Linearizable(self.store_history, object_of)
        self.store_checkers: list[StoreChecker] = [
            AcknowledgedWrites(self.store_history),
            Idempotency(self.store_history),
            ReadLevels(self.store_history),
            Refused(self.store_history),
            EqualStates(self.store_history),
            DurableTree(self.store_history),
            WatchedOnce(self.store_history),
            PastIsPast(self.store_history),
            KeptPast(self.store_history),
            ConflictsFound(self.store_history),
            TentativeSeen(self.store_history),
            Previewed(self.store_history),
            self.linearizable,
        ]
        if not is_judged:
            self.store_checkers.clear()
        self.gateway = ClientGateway(
            self.world,
            self._stores,
            self.store_history,
            self.store_checkers,
            self.answered,
            self.coverage,
            self._note,
            self._on_accepted,
        )
        self._client_random = Random(f"store clients {plan.seed}")
        self._unserved = 0
        self._clients: list[Client] = []
        self._tentative: dict[str, Verdict] = {}
        """What the outcomes of writes were when they were accepted, which the final order may change."""

    def run(self) -> None:
        plan = self.store_plan
        with (
            _set_to(green_state, "CHECKPOINT_ITEMS_MAX", plan.checkpoint_items_max),
            _set_to(state, "IDEMPOTENCY_POSITIONS", plan.idempotency_positions),
            _set_to(tentative_feed, "EVENTS_MAX", plan.tentative_events_max),
        ):
            self._run()

    def _run(self) -> None:
        clients = self._clients = [
            Client(number, self.gateway, self.store_plan, Random(f"store client {number} {self.plan.seed}"))
            for number in range(1, self.store_plan.clients + 1)
        ]
        readers: list[Watcher | Looker | TentativeReader] = [
            Watcher(self.gateway, self.store_plan, Random(f"feeds {self.plan.seed} watcher {number}"))
            for number in range(self.store_plan.watchers)
        ]
        readers += [
            Looker(self.gateway, self.store_plan, Random(f"feeds {self.plan.seed} looker {number}"))
            for number in range(self.store_plan.lookers)
        ]
        readers += [
            TentativeReader(
                number, self.gateway, self.store_plan, Random(f"tentative {self.plan.seed} reader {number}")
            )
            for number in range(self.store_plan.tentative_readers)
        ]
        self._schedule_starts()
        for client in clients:
            client.think()
        for reader in readers:
            reader.begin()
        self._schedule_faults()
        self.world.run_until(self.plan.below.duration_ms)
        self._heal()
        self._await_disks()
        self._demand(self._is_one_primary, "one primary component of all")
        for one in (*clients, *readers):
            one.is_working = False
        self.world.run_until(self.world.now + QUIET_MS)  # a view may still end because of what was before
        self._demand(self._is_one_primary, "one primary component of all again")
        self._request_the_last()
        served = self.world.run_until(self.world.now + SERVED_MS_MAX, stop=lambda: not self._unserved)
        if not served:
            raise Violation(f"{self._unserved} requests are not served after {SERVED_MS_MAX} ms, and all is well")
        self._demand(self._is_all_green, "everything green everywhere")
        self._demand(self._is_quiet, "all clients answered, and all trees written")
        self.world.run_until(self.world.now + QUIET_MS)
        self._finish()

    def _load_per_second(self) -> float:
        return 1_000.0 * self.store_plan.clients / self.store_plan.think_ms

    def _stop_load(self) -> None:
        for client in self._clients:
            client.is_working = False

    def _is_quiet(self) -> bool:
        self.answered.check(self.world.now, {name: one.held_up_until for name, one in self._stores.items()})
        stores = [process.store for process in self._stores.values()]
        are_written = all(store is not None and not store.green.unwritten for store in stores)
        return are_written and not self.gateway.waiting

    def _finish(self) -> None:
        super()._finish()
        self.store_history.replay.advance()
        stores = {name: process.store for name, process in self._stores.items() if process.store is not None}
        for store_checker in self.store_checkers:
            store_checker.finished(stores)
        self._count_what_happened()

    def _count_what_happened(self) -> None:
        history, coverage = self.store_history, self.coverage
        coverage["linearizable operations"] += self.linearizable.operations
        coverage["changes seen by watchers"] += sum(len(watch.seen) for watch in history.watches)
        for found in history.replay.conflicts:
            coverage[f"conflict: {found.conflict.kind}"] += 1
        for placed in history.replay.writes:
            coverage[
                f"order: {placed.outcome.verdict}{' ' + placed.outcome.why if placed.outcome.why else ''}"
            ] += 1
        for request in history.requests:
            for attempt in request.attempts:
                coverage["attempts without any answer"] += attempt.answer is None
                if isinstance(attempt.answer, Accepted) and attempt.answer.write_id in history.replay.by_id:
                    outcome = history.replay.by_id[attempt.answer.write_id].outcome
                    coverage[f"accepted, and in the end {outcome.verdict}"] += 1
        for write_id, verdict in self._tentative.items():
            if write_id in history.replay.by_id:
                in_the_end = history.replay.by_id[write_id].outcome.verdict
                coverage["outcomes changed by a merge"] += verdict != in_the_end

    # The last requests

    def _request_the_last(self) -> None:
        """Asks every node for a write and for reads, which must be served now that nothing fails."""
        revision = max(process.store.green.revision for process in self._stores.values() if process.store)
        for name in self._stores:
            write = Write((Append(f"{APPENDED}0", b"last of " + name.encode() + SEPARATOR),))
            request = Request(write, encode_write(write))
            self.store_history.requests.append(request)
            self._unserved += 3
            waits_ms = 10.0 * SERVED_MS_MAX
            self.gateway.write(request, name, Ack.GREEN, SERVED_MS_MAX, waits_ms, self._on_last)
            for level in (Level.LINEARIZABLE, Level.MIN_REVISION):
                self.gateway.read(level, f"{APPENDED}0", name, revision, SERVED_MS_MAX, waits_ms, self._on_last)

    def _on_last(self, answer: Answer | Read | Trouble | None) -> None:
        if not isinstance(answer, (Done, Read)):
            raise Violation(f"all is well, and the answer is {answer}")
        self._unserved -= 1

    # What happens at the processes

    def _new_process(self, name: str, address: str | None = None) -> StoreProcess:
        assert address is None, "the store's plans have no twins"
        process = self.store_process_type(name, self.environment, self.plan, self.store_plan.store)
        process.on_store_started = partial(self._on_store_started, process)
        process.on_checkpoint = partial(self._on_checkpoint, process)
        process.on_primary_check = partial(self._count, "probes")
        process.on_log_full = partial(self._count, "no room in the log")
        process.on_sent = self._on_sent
        process.on_took_over = partial(self._on_took_over, process)
        self._stores[name] = process
        return process

    def _on_sent(self, message_id: MessageId, knowledge: Knowledge) -> None:
        self._knowledge[message_id] = knowledge

    def _on_store_started(self, process: StoreProcess, store: Store) -> None:
        self.coverage["starts with a tree"] += process.tree.line > 0
        self.coverage["starts that replay"] += process.tree.line < store.green.line
        for checker in self.store_checkers:
            checker.started(process.name, store, process.tree, process.log.lines.green)

    def _on_checkpoint(self, process: StoreProcess, checkpoint: Checkpoint, how: str) -> None:
        self.coverage[f"checkpoint {how}"] += 1
        for checker in self.store_checkers:
            checker.written(process.name, process.tree, process.log.lines.green)

    def _on_took_over(self, process: StoreProcess, tree: MemoryTree) -> None:
        for checker in self.store_checkers:
            checker.took_over(process.name, tree)

    def _on_accepted(self, node: str, write_id: str) -> None:
        store = self._stores[node].store
        if store is not None:
            store._refresh_red()
            outcome = store._red.outcome(write_id)
            if outcome is not None:
                self._tentative[write_id] = outcome.verdict

    def _on_view(self, process: CorelProcess, view: View) -> None:
        before = len(self._origins.get(view.id, ()))
        super()._on_view(process, view)
        if before == 1 and len(self._origins[view.id]) == 2:
            self.coverage["merges"] += 1

    def _on_crash(self, process: CorelProcess, write: LogWrite | None, was_written: bool) -> None:
        super()._on_crash(process, write, was_written)
        self._note(process.name, "crashes")
        self.gateway.crashed(process.name)

    # Faults

    def _crash(self, process: CorelProcess, down_ms: float) -> None:
        if self._client_random.random() < self.store_plan.orderly_share:
            self.coverage["orderly stops"] += 1
            self._stores[process.name].leave()
        if process.replica is not None:
            super()._crash(process, down_ms)

    def _replace_disk(self, node: str, down_ms: float = 1.0) -> None:
        promised = self.jury.last().acknowledged.promised
        before = set(promised)
        super()._replace_disk(node, down_ms)
        lost = before - set(promised)
        for checker in self.store_checkers:
            checker.disk_replaced(node, lost)

    def _note(self, node: str, what: str) -> None:
        if self._write_line is not None:
            self._write_line(f"{self.world.now:10.3f}  {node:4}  {what}")


@contextmanager
def _set_to(module: ModuleType, name: str, value: int) -> Iterator[None]:
    """Gives a bound this value while a run lasts."""
    before = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, before)

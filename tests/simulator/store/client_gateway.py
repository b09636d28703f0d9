"""Between simulated clients and nodes: it hands requests over, brings answers back, and records both for the
checkers.

A client whose node crashes, or that has waited for too long, gets no answer (None), whatever became of its
request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeAlias, TypeVar

from corel.disk_errors import DiskError
from corel.messages import Color, MessageId
from kvstore.store.replies import Accepted, Ack, Answer, Done, Failed, Overloaded, Trouble
from kvstore.store.state import Outcome
from kvstore.store.store import Store
from tests.simulator.checkers.answered import Answered, Asked
from tests.simulator.checkers.store import (
    Attempt,
    Level,
    NoLongerKept,
    Read,
    Request,
    StoreChecker,
    StoreHistory,
)
from tests.simulator.store.process import StoreProcess
from tests.simulator.world import World

Result = TypeVar("Result")

Fate: TypeAlias = tuple[Color, Outcome | None] | None


class _Call(Generic[Result]):
    """A call of a client that waits for a node; `on_end` is called once, with the answer or None."""

    def __init__(self, on_end: Callable[[Result | None], None]) -> None:
        self._on_end = on_end
        self.is_over = False

    def end(self, result: Result | None) -> None:
        if not self.is_over:
            self.is_over = True
            self._on_end(result)


class ClientGateway:
    """The way of all clients to all nodes."""

    def __init__(
        self,
        world: World,
        processes: Mapping[str, StoreProcess],
        history: StoreHistory,
        checkers: Sequence[StoreChecker],
        answered: Answered,
        coverage: Counter[str],
        note: Callable[[str, str], None],
        on_accepted: Callable[[str, str], None],
    ) -> None:
        self.world = world
        self.processes = processes
        self.history = history
        self.coverage = coverage
        self.checkers = checkers
        self._answered = answered
        self._note = note
        self._on_accepted = on_accepted
        self._calls: dict[str, list[_Call[object]]] = {name: [] for name in processes}

    @property
    def waiting(self) -> int:
        """How many requests the nodes have not answered."""
        return self._answered.waiting

    def is_up(self, node: str) -> bool:
        """Whether the node's process runs, be it away because of its disk."""
        return self.processes[node].store is not None or self.processes[node].away_store is not None

    def crashed(self, node: str) -> None:
        """Ends the calls that wait for this node, a moment later."""
        self._answered.crashed(node)
        calls, self._calls[node] = self._calls[node], []
        for call in calls:
            if not call.is_over:
                self.world.after(1.0, lambda call=call: call.end(None))  # type: ignore[misc]

    # Writes

    def write(
        self,
        request: Request,
        node: str,
        ack: Ack,
        timeout_ms: float,
        wait_ms: float,
        on_end: Callable[[Answer | None], None],
    ) -> None:
        """Sends a write to a node, which must be up."""
        process, call = self.processes[node], self._call(node, wait_ms, on_end)
        attempt = Attempt(node, ack, self.world.now)
        request.attempts.append(attempt)
        asked = Asked("a write", node, process.starts, 0.0)

        def reply(answer: Answer) -> None:
            if not self._is_alive(process, asked):
                return
            self._answered.answered_one(asked, self.world.now, process.held_up_until)
            attempt.answer, attempt.answered_at = answer, self.world.now
            self.coverage[f"write {ack}: {describe(answer)}"] += 1
            self._note(node, f"answers {describe(answer)} to {request.write}")
            for checker in self.checkers:
                checker.answered(request, attempt)
            if isinstance(answer, Accepted):
                write_id = answer.write_id
                self.world.after(0.0, lambda: self._on_accepted(node, write_id))
            self.world.after(0.0, lambda: call.end(answer))

        def submit(store: Store) -> None:
            nonlocal asked
            deadline = self.world.now + timeout_ms
            asked = Asked("a write", node, process.starts, deadline)
            self._answered.asked(asked)
            if self._is_forgotten(request, store):
                self.coverage["writes given up, because their key is being forgotten"] += 1
                reply(Failed(Trouble.TIMEOUT))
                return
            try:
                store.write(request.data, ack, deadline, reply)
            except Overloaded:
                reply(Failed(Trouble.OVERLOADED))

        self._note(node, f"is asked for {request.write} ack={ack}")
        if self._is_away(process):
            attempt.answer, attempt.answered_at = Failed(Trouble.AWAY), self.world.now
            self.coverage["writes refused while away"] += 1
            for checker in self.checkers:
                checker.answered(request, attempt)
            self.world.after(0.0, lambda: call.end(attempt.answer))
        else:
            process.ask(submit)

    def _is_forgotten(self, request: Request, store: Store) -> bool:
        """Whether the node would accept this copy so long after another one that the store promises nothing. A
        client of a real cluster gives up by time, before half a million messages have become green."""
        key, history = request.write.idempotency_key, self.history
        if key is None:
            return False
        history.replay.advance()
        decided = history.replay.decided.get(key)
        if not decided:
            return False
        return store._log.queue.green > decided[-1].position + history.idempotency_positions // 2

    # Reads

    def read(
        self,
        level: Level,
        key: str,
        node: str,
        min_revision: int,
        timeout_ms: float,
        wait_ms: float,
        on_end: Callable[[Read | Trouble | None], None],
    ) -> None:
        """Sends a read to a node, which must be up."""
        process, call = self.processes[node], self._call(node, wait_ms, on_end)
        read = Read(level, key, node, process.starts, self.world.now, min_revision)

        def look(store: Store) -> None:
            if process.starts != read.starts:
                return
            if level is Level.RED:
                read.item, read.color = store.find_red(key)
            else:
                read.item = store.find(key)
            read.revision, read.line, read.ended_at = store.green.revision, store.green.line, self.world.now
            color = f", {read.color}" if level is Level.RED else ""
            self.coverage[f"read {level}: answered{color}"] += 1
            self._note(node, f"reads {key} ({level}) as {read.item} at {read.revision}")
            for checker in self.checkers:
                checker.read(read)
            self.history.reads.append(read)
            self.world.after(0.0, lambda: call.end(read))

        def begin(store: Store) -> None:
            deadline = self.world.now + timeout_ms
            asked = Asked(f"a read {level}", node, process.starts, deadline)
            ready = self._ready(process, asked, look, lambda trouble: call.end(trouble))
            if level is Level.LINEARIZABLE:
                self._answered.asked(asked)
                store.when_linearizable(deadline, ready)
            elif level is Level.MIN_REVISION:
                self._answered.asked(asked)
                store.when_revision(min_revision, deadline, ready)
            else:
                look(store)

        away = process.away_store
        if away is None or not self._is_away(process):
            process.ask(begin)
        elif level is Level.LINEARIZABLE or away.green.revision < min_revision:
            self.world.after(0.0, lambda: call.end(Trouble.AWAY))
        else:
            try:
                look(away)
            except DiskError:
                self.coverage[f"read {level} while away: refused by the disk"] += 1
                self.world.after(0.0, lambda: call.end(Trouble.AWAY))
            else:
                self.coverage[f"read {level} while away: answered"] += 1

    def _is_away(self, process: StoreProcess) -> bool:
        """Whether the node answers reads only, because of its disk."""
        return process.store is None and process.away_store is not None and not process.is_paused()

    def follow(
        self,
        message_id: MessageId,
        index: int,
        node: str,
        timeout_ms: float,
        on_end: Callable[[Fate | Trouble], None],
    ) -> None:
        """Asks what became of a write, and waits for it to be green. The node must be up."""
        process, call = self.processes[node], self._call(node, timeout_ms + 100.0, on_end)

        def look(store: Store) -> None:
            fate = store.outcome(message_id, index)
            if fate is not None and fate[1] is not None:
                for checker in self.checkers:
                    checker.reported(node, message_id, index, fate[1])
            self.coverage[f"follower: {'unknown' if fate is None else fate[0]}"] += 1
            self.world.after(0.0, lambda: call.end(fate))

        def begin(store: Store) -> None:
            fate = store.outcome(message_id, index)
            if fate is not None and fate[0] is Color.GREEN:
                look(store)
                return
            deadline = self.world.now + timeout_ms
            asked = Asked("a follower", node, process.starts, deadline)
            self._answered.asked(asked)
            ready = self._ready(process, asked, look, lambda trouble: process.ask(look))
            store.when_green(message_id, deadline, ready)

        if self._is_away(process):
            self.world.after(0.0, lambda: call.end(Trouble.AWAY))
        else:
            process.ask(begin)

    # The past

    def look(self, node: str, look: Callable[[Store], None]) -> None:
        """Reads what a node knows, as soon as its process runs; nothing happens if that is not to be."""
        process = self.processes[node]
        away = process.away_store
        if away is not None and self._is_away(process):
            self.coverage["looks while away"] += 1
            look(away)
        else:
            process.ask(look)

    def no_longer_kept(self, refusal: NoLongerKept) -> None:
        self.coverage["compacted, though pinned" if refusal.is_pinned else "compacted"] += 1
        for checker in self.checkers:
            checker.compacted(refusal)

    # Calls

    def _ready(
        self,
        process: StoreProcess,
        asked: Asked,
        look: Callable[[Store], None],
        fail: Callable[[Trouble], None],
    ) -> Callable[[Trouble | None], None]:
        """Returns what the store calls when the read may be made, or cannot be."""

        def ready(trouble: Trouble | None) -> None:
            if not self._is_alive(process, asked):
                return
            self._answered.answered_one(asked, self.world.now, process.held_up_until)
            if trouble is None:
                self.world.after(0.0, lambda: process.ask(look))
            else:
                self.coverage[f"{asked.what.removeprefix('a ')}: {trouble}"] += 1
                self.world.after(0.0, lambda: fail(trouble))

        return ready

    def _is_alive(self, process: StoreProcess, asked: Asked) -> bool:
        """Whether the node still runs as it did when it was asked."""
        return process.store is not None and process.starts == asked.starts

    def _call(self, node: str, wait_ms: float, on_end: Callable[[Result | None], None]) -> _Call[Result]:
        call: _Call[Result] = _Call(on_end)
        calls = self._calls[node] = [one for one in self._calls[node] if not one.is_over]
        calls.append(call)  # type: ignore[arg-type]
        self.world.after(wait_ms, lambda: call.end(None))
        return call


def describe(answer: Answer) -> str:
    if isinstance(answer, Done):
        outcome = answer.applied.outcome
        return f"done, {outcome.verdict}{f' ({outcome.why})' if outcome.why else ''}"
    if isinstance(answer, Accepted):
        return f"accepted, {answer.color}"
    return f"failed, {answer.trouble}"

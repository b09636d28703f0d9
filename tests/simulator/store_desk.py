"""Between simulated clients and nodes: hands requests over, brings answers back, and keeps the books of both for
the checkers.

A client whose node crashes, or that has waited for too long, gets no answer (None), whatever became of its
request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeAlias, TypeVar

from corel.messages import Color, MessageId
from kvstore.machine import Accepted, Ack, Answer, Done, Failed, Machine, Overloaded, Trouble
from kvstore.state import Outcome
from tests.simulator.checkers.answered import Answered, Asked
from tests.simulator.checkers.store import Attempt, Level, Read, Request, StoreChecker, StoreHistory
from tests.simulator.store_process import StoreProcess
from tests.simulator.world import World

Result = TypeVar("Result")

Fate: TypeAlias = tuple[Color, Outcome | None] | None


class _Call(Generic[Result]):
    """Somebody waits at a node."""

    def __init__(self, told: Callable[[Result | None], None]) -> None:
        self._told = told
        self.is_over = False

    def end(self, result: Result | None) -> None:
        if not self.is_over:
            self.is_over = True
            self._told(result)


class Desk:
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
        self._checkers = checkers
        self._answered = answered
        self._note = note
        self._on_accepted = on_accepted
        self._calls: dict[str, list[_Call[object]]] = {name: [] for name in processes}

    @property
    def waiting(self) -> int:
        """Requests that nodes have not answered."""
        return self._answered.waiting

    def is_up(self, node: str) -> bool:
        return self.processes[node].store is not None

    def crashed(self, node: str) -> None:
        """Everybody who waits there finds out."""
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
        patience_ms: float,
        told: Callable[[Answer | None], None],
    ) -> None:
        """The node must be up."""
        process, call = self.processes[node], self._call(node, patience_ms, told)
        attempt = Attempt(node, ack, self.world.now)
        request.attempts.append(attempt)
        asked = Asked("a write", node, process.starts, 0.0)

        def reply(answer: Answer) -> None:
            if not self._is_alive(process, asked):
                return
            self._answered.answered_one(asked, self.world.now, process.paused_until)
            attempt.answer, attempt.answered_at = answer, self.world.now
            self.coverage[f"write {ack}: {describe(answer)}"] += 1
            self._note(node, f"answers {describe(answer)} to {request.write}")
            for checker in self._checkers:
                checker.answered(request, attempt)
            if isinstance(answer, Accepted):
                write_id = answer.write_id
                self.world.after(0.0, lambda: self._on_accepted(node, write_id))
            self.world.after(0.0, lambda: call.end(answer))

        def submit(store: Machine) -> None:
            nonlocal asked
            deadline = self.world.now + timeout_ms
            asked = Asked("a write", node, process.starts, deadline)
            self._answered.asked(asked)
            try:
                store.write(request.data, ack, deadline, reply)
            except Overloaded:
                reply(Failed(Trouble.OVERLOADED))

        self._note(node, f"is asked for {request.write} ack={ack}")
        process.ask(submit)

    # Reads

    def read(
        self,
        level: Level,
        key: str,
        node: str,
        min_revision: int,
        timeout_ms: float,
        patience_ms: float,
        told: Callable[[Read | Trouble | None], None],
    ) -> None:
        """The node must be up."""
        process, call = self.processes[node], self._call(node, patience_ms, told)
        read = Read(level, key, node, process.starts, self.world.now, min_revision)

        def look(store: Machine) -> None:
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
            for checker in self._checkers:
                checker.read(read)
            self.history.reads.append(read)
            self.world.after(0.0, lambda: call.end(read))

        def begin(store: Machine) -> None:
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

        process.ask(begin)

    def follow(
        self,
        message_id: MessageId,
        index: int,
        node: str,
        timeout_ms: float,
        told: Callable[[Fate | Trouble], None],
    ) -> None:
        """Asks what became of a write, and waits for it to be green. The node must be up."""
        process, call = self.processes[node], self._call(node, timeout_ms + 100.0, told)

        def look(store: Machine) -> None:
            fate = store.outcome(message_id, index)
            if fate is not None and fate[1] is not None:
                for checker in self._checkers:
                    checker.told(node, message_id, index, fate[1])
            self.coverage[f"follower: {'unknown' if fate is None else fate[0]}"] += 1
            self.world.after(0.0, lambda: call.end(fate))

        def begin(store: Machine) -> None:
            fate = store.outcome(message_id, index)
            if fate is not None and fate[0] is Color.GREEN:
                look(store)
                return
            deadline = self.world.now + timeout_ms
            asked = Asked("a follower", node, process.starts, deadline)
            self._answered.asked(asked)
            ready = self._ready(process, asked, look, lambda trouble: process.ask(look))
            store.when_green(message_id, deadline, ready)

        process.ask(begin)

    # Both

    def _ready(
        self,
        process: StoreProcess,
        asked: Asked,
        look: Callable[[Machine], None],
        fail: Callable[[Trouble], None],
    ) -> Callable[[Trouble | None], None]:
        def ready(trouble: Trouble | None) -> None:
            if not self._is_alive(process, asked):
                return
            self._answered.answered_one(asked, self.world.now, process.paused_until)
            if trouble is None:
                self.world.after(0.0, lambda: process.ask(look))
            else:
                self.coverage[f"{asked.what.removeprefix('a ')}: {trouble}"] += 1
                self.world.after(0.0, lambda: fail(trouble))

        return ready

    def _is_alive(self, process: StoreProcess, asked: Asked) -> bool:
        """Whether the node that was asked can still say something."""
        return process.store is not None and process.starts == asked.starts

    def _call(self, node: str, patience_ms: float, told: Callable[[Result | None], None]) -> _Call[Result]:
        call: _Call[Result] = _Call(told)
        calls = self._calls[node] = [one for one in self._calls[node] if not one.is_over]
        calls.append(call)  # type: ignore[arg-type]
        self.world.after(patience_ms, lambda: call.end(None))
        return call


def describe(answer: Answer) -> str:
    if isinstance(answer, Done):
        outcome = answer.applied.outcome
        return f"done, {outcome.verdict}{f' ({outcome.why})' if outcome.why else ''}"
    if isinstance(answer, Accepted):
        return f"accepted, {answer.color}"
    return f"failed, {answer.trouble}"

"""A simulated reader of what is not green at a node: it watches the tentative feed beside the changes of the green
state, as `/v1/watch` does, and asks for previews. What is tentative cannot be resumed, so it begins anew wherever
it goes."""

from __future__ import annotations

from functools import partial
from random import Random

from corel.messages import Color, MessageId
from kvstore.store.feed import Interest
from kvstore.store.history import Change, Compacted
from kvstore.store.replies import Overloaded
from kvstore.store.store import Store
from kvstore.store.tentative_feed import TentativeWatcher
from tests.simulator.checkers.store import PreviewLook, TentativeLook
from tests.simulator.store.client_gateway import ClientGateway
from tests.simulator.store.plan import StorePlan
from tests.simulator.store.watcher import INTERESTS

PREVIEWS_MAX = 4
"""Most previews of a reader that are compared with the model in a run: the model begins with an empty state."""


class TentativeReader:
    """One reader, which goes wherever its own random numbers send it."""

    def __init__(self, number: int, gateway: ClientGateway, plan: StorePlan, random: Random) -> None:
        self._number = number
        self._gateway = gateway
        self._plan = plan
        self._random = random
        self._nodes = plan.corel.below.nodes
        self._node = self._nodes[0]
        self._store: Store | None = None
        self._watcher: TentativeWatcher | None = None
        self._stay = 0
        """How many times it has begun anew."""
        self._next = 1
        """The next revision to read."""
        self._previews = 0
        self.is_working = True

    def begin(self) -> None:
        """Goes to some node, and on from there later, as long as it works."""
        self._leave()
        if self.is_working:
            node = self._random.choice(self._nodes)
            self._gateway.processes[node].ask(lambda store: self._arrive(node, store))
            self._gateway.world.after(self._random.expovariate(1.0 / self._plan.hop_ms), self.begin)

    def _leave(self) -> None:
        if self._store is not None and self._watcher is not None:
            self._store.tentative_feed.remove(self._watcher)
        self._store = self._watcher = None

    def _arrive(self, node: str, store: Store) -> None:
        self._leave()  # two nodes may have been asked
        self._stay += 1
        self._node, self._store, self._next = node, store, store.green.revision + 1
        interest, reads_changes = self._random.choice(INTERESTS), self._random.random() < 0.7
        self._watcher = store.tentative_feed.add(interest, lambda: None, reads_changes)
        self._read(self._stay, store)

    def _read(self, stay: int, store: Store) -> None:
        """Reads a part of what there is, and more of it later."""
        watcher = self._watcher
        if stay != self._stay or watcher is None or store is not self._store:
            return  # it went on, or its node began anew
        if watcher.is_behind:
            self._gateway.coverage["tentative watchers that fell behind"] += 1
            self._arrive(self._node, store)
            return
        events = tuple(watcher.take(self._random.choice((1, 3, 1_000))))
        changes: tuple[Change, ...] = ()
        if not watcher.has_events and watcher.reads_changes:
            try:
                changes = self._changes(store, watcher.interest)
            except Compacted:
                self._arrive(self._node, store)
                return
        has_changes = watcher.reads_changes and self._next <= store.green.revision
        is_all = not watcher.has_events and not has_changes
        look = TentativeLook(
            (self._number, stay),
            self._node,
            watcher.interest,
            watcher.reads_changes,
            events,
            changes,
            self._colors(store),
            store.green.line,
            is_all,
        )
        self._gateway.coverage["tentative events"] += len(events)
        for checker in self._gateway.checkers:
            checker.tentative_seen(look)
        if self._random.random() < 0.2:
            self._preview(store)
        process = self._gateway.processes[self._node]
        pause_ms = self._random.choice((1.0, 20.0, 100.0))
        self._gateway.world.after(pause_ms, lambda: process.ask(partial(self._read, stay)))

    def _changes(self, store: Store, interest: Interest) -> tuple[Change, ...]:
        found = store.green.changes(self._next, self._random.choice((1, 3, 1_000)), 10**6)
        if found:
            self._next = found[-1].revision + 1
        return tuple([change for each in found if (change := interest.of(each)) is not None])

    def _colors(self, store: Store) -> dict[MessageId, Color]:
        """Returns the colours of the node's messages that are reported as logged, and not green."""
        queue, logged = store._log.queue, self._gateway.processes[self._node].logged
        yellow = {entry.id for entry in queue.yellow}
        return {one.id: Color.YELLOW if one.id in yellow else Color.RED for one in queue if one.id in logged}

    def _preview(self, store: Store) -> None:
        queue = store._log.queue
        if self._previews >= PREVIEWS_MAX or len(queue) == queue.green:
            return
        try:
            found = tuple(store.preview())
        except Overloaded:
            self._gateway.coverage["previews that take several calls"] += 1
            return
        self._previews += 1
        self._gateway.coverage["writes previewed"] += len(found)
        settled = [*store._backlog, *queue.yellow]
        order = [(one.id, Color.YELLOW) for one in settled] + [(one.id, Color.RED) for one in queue.red]
        look = PreviewLook(self._node, store.green.line, tuple(order), found)
        for checker in self._gateway.checkers:
            checker.previewed(look)

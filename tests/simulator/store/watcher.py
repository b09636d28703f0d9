"""A simulated watcher: it reads changes by revision, waits in the feed of a node when there are none, and goes to
another node every now and then, or when its node is gone, with the last revision that it has seen."""

from __future__ import annotations

from random import Random

from kvstore.store.feed import EVERYTHING, Interest, Waiting
from kvstore.store.history import Compacted
from kvstore.store.store import Store
from tests.simulator.checkers.store import NoLongerKept, Watch
from tests.simulator.store.client_gateway import ClientGateway
from tests.simulator.store.plan import StorePlan

CHECK_MS = 200.0
"""How often it looks whether its node is still there."""

INTERESTS = (
    EVERYTHING,
    Interest(prefixes=("k",)),
    Interest(frozenset({"k0"})),
    Interest(prefixes=("t",)),
    Interest(frozenset({"t0", "n0"}), ("lo", "log0")),
    Interest(frozenset({"n1"}), ("k1", "x")),
)


class Watcher:
    """One watcher, which goes wherever its own random numbers send it."""

    def __init__(self, gateway: ClientGateway, plan: StorePlan, random: Random) -> None:
        self._gateway = gateway
        self._plan = plan
        self._random = random
        self._nodes = plan.corel.below.nodes
        self._node = random.choice(self._nodes)
        self._stay = 0
        """How many times it has gone to a node."""
        self._asked_at: float | None = None
        """Since when it waits to be served by its node."""
        self._store: Store | None = None
        self._waiting: Waiting | None = None
        first = random.choice((1, 1, 1, 8, 40))
        self._is_skipping = random.random() < 0.5
        """Whether it goes on from the revision that it is woken with: nothing of interest is before that."""
        self._watch = Watch(random.choice(INTERESTS), first, first)
        gateway.history.watches.append(self._watch)
        self.is_working = True

    def begin(self) -> None:
        self._hop()
        self._check()

    def _check(self) -> None:
        """Goes to another node if its node is gone, or does not answer."""
        now = self._gateway.world.now
        is_gone = self._store is not None and self._gateway.processes[self._node].store is not self._store
        if is_gone or (self._asked_at is not None and now > self._asked_at + CHECK_MS):
            self._gateway.coverage["watchers whose node is gone"] += 1
            self._go()
        self._gateway.world.after(CHECK_MS, self._check)

    def _hop(self) -> None:
        """Goes to some node, and on from there later, as long as it works."""
        if self.is_working:
            self._go()
            self._gateway.world.after(self._random.expovariate(1.0 / self._plan.hop_ms), self._hop)

    def _go(self) -> None:
        if self._store is not None and self._waiting is not None:
            self._store.feed.cancel(self._waiting)
        self._store = self._waiting = None
        self._stay += 1
        self._asked_at = self._gateway.world.now
        up = [node for node in self._nodes if self._gateway.processes[node].store is not None]
        if up:
            self._node = self._random.choice(up)
            self._gateway.coverage["watchers resume"] += 1
            self._ask()

    def _ask(self) -> None:
        stay = self._stay
        self._asked_at = self._gateway.world.now
        self._gateway.processes[self._node].ask(lambda store: self._read(store, stay))

    def _read(self, store: Store, stay: int) -> None:
        """Reads a part of what there is; waits if there is nothing."""
        if stay != self._stay:
            return
        watch, self._asked_at, self._store = self._watch, None, store
        try:
            part = store.green.changes(
                watch.next, self._random.choice((1, 3, 1_000)), self._random.choice((1, 10**6))
            )
        except Compacted as compacted:
            self._begin_anew(store, compacted.oldest)
            self._ask()
            return
        if part:
            watch.seen += [found for change in part if (found := watch.interest.of(change)) is not None]
            watch.next = part[-1].revision + 1
            self._gateway.world.after(self._random.choice((0.0, 5.0)), lambda: self._go_on(stay))
            return
        self._gateway.coverage["watchers at a node that is behind"] += watch.next > store.green.revision + 1
        self._waiting = store.feed.wait(watch.interest, lambda revision: self._wake(revision, stay))

    def _begin_anew(self, store: Store, oldest: int) -> None:
        asked = self._watch.next - 1
        self._gateway.no_longer_kept(NoLongerKept(self._node, asked, oldest, store.green.revision, False))
        self._watch.has_ended = True
        self._watch = Watch(self._watch.interest, oldest + 1, oldest + 1)
        self._gateway.history.watches.append(self._watch)

    def _wake(self, revision: int, stay: int) -> None:
        if stay != self._stay or self._waiting is None:
            raise AssertionError("a watcher is woken that has cancelled, or was woken before")
        self._gateway.coverage["watchers woken"] += 1
        self._waiting = None
        if self._is_skipping:
            self._watch.next = max(self._watch.next, revision)
        self._gateway.world.after(0.0, lambda: self._go_on(stay))

    def _go_on(self, stay: int) -> None:
        if stay == self._stay:
            self._ask()

"""A simulated reader of lists, of the past and of conflicts. A list is read in pages, all of one revision, which
may be an earlier one; between two pages the reader pauses, and it may go on at another node."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import islice
from random import Random

from kvstore.store.history import Compacted, ConflictPlace, Snapshot, Span, span_of
from kvstore.store.store import Store
from tests.simulator.checkers.store import ConflictPage, NoLongerKept, Page, StoreChecker, Versions
from tests.simulator.store.client_gateway import ClientGateway
from tests.simulator.store.plan import StorePlan

SPANS = (Span(), span_of(b"k"), span_of(b"", b"k1", b"n1"), span_of(b"t"), span_of(b"log", b"log1"))


@dataclass(slots=True)
class _List:
    """A list that is being read."""

    node: str
    store: Store
    snapshot: Snapshot
    span: Span
    is_reverse: bool
    count: int
    pin: ExitStack
    is_kept: bool
    """Whether its revision had to be kept when it was pinned at its node."""


class Looker:
    """One reader, whose looks are drawn from its own random numbers."""

    def __init__(self, gateway: ClientGateway, plan: StorePlan, random: Random) -> None:
        self._gateway = gateway
        self._plan = plan
        self._random = random
        self._nodes = plan.corel.below.nodes
        self._list: _List | None = None
        self._place = ConflictPlace(0, 0, 0, 0)
        """Where in the conflicts it is, on whichever node."""
        self.is_working = True

    def begin(self) -> None:
        """Looks again and again."""
        if not self.is_working:
            self._end_list()
            return
        going_on = self._list
        if going_on is not None:
            node = going_on.node if self._random.random() < 0.8 else self._random.choice(self._nodes)
            self._gateway.look(node, lambda store: self._turn_page(node, store))
        else:
            node = self._random.choice(self._nodes)
            look = self._random.choice(
                (self._begin_list, self._begin_list, self._look_at_key, self._look_at_conflicts)
            )
            self._gateway.look(node, lambda store: look(node, store))
        self._gateway.world.after(self._random.expovariate(1.0 / 60.0), self.begin)

    def _tell(self, tell: Callable[[StoreChecker], None]) -> None:
        for checker in self._gateway.checkers:
            tell(checker)

    def _some_revision(self, store: Store) -> int:
        """Returns a revision that may not be kept any more, or not be reached yet."""
        newest, kept = store.green.revision, min(self._plan.store.history_revisions, 200)
        return max(0, newest + self._random.choice((0, 0, 2, -kept, -self._random.randrange(2 * kept + 2))))

    # Lists

    def _begin_list(self, node: str, store: Store) -> None:
        if self._list is not None:
            return  # one that was asked for twice
        snapshot = store.green.snapshot(self._some_revision(store) if self._random.random() < 0.7 else None)
        span, is_reverse = self._random.choice(SPANS), self._random.random() < 0.4
        one = self._open_list(node, store, snapshot, span, is_reverse, self._random.choice((1, 2, 100)))
        self._read_page(one)

    def _open_list(
        self, node: str, store: Store, snapshot: Snapshot, span: Span, is_reverse: bool, count: int
    ) -> _List:
        self._end_list()
        is_pinned = self._random.random() < 0.7
        is_kept = is_pinned and snapshot.revision >= store.green.revision - self._plan.store.history_revisions
        pin = ExitStack()
        if is_pinned:
            pin.enter_context(store.green.pinned(snapshot.revision))
        self._list = _List(node, store, snapshot, span, is_reverse, count, pin, is_kept)
        return self._list

    def _turn_page(self, node: str, store: Store) -> None:
        one = self._list
        if one is None:
            return
        if store is not one.store:  # another node, or another start of the same
            if store.green.revision < one.snapshot.revision:
                return  # it is behind
            self._gateway.coverage["lists that go on at another node"] += 1
            snapshot = store.green.snapshot(one.snapshot.revision)
            one = self._open_list(node, store, snapshot, one.span, one.is_reverse, one.count)
        self._read_page(one)

    def _read_page(self, one: _List) -> None:
        green, revision = one.store.green, one.snapshot.revision
        try:
            found = tuple(islice(one.snapshot.scan(one.span, one.is_reverse), one.count))
        except Compacted as compacted:
            refusal = NoLongerKept(one.node, revision, compacted.oldest, green.revision, one.is_kept)
            self._gateway.no_longer_kept(refusal)
            self._end_list()
            return
        self._gateway.coverage[f"pages {'of the past' if revision < green.revision else 'of now'}"] += 1
        page = Page(one.node, revision, one.span, one.is_reverse, one.count, found)
        self._tell(partial(_listed, page))
        if len(found) < one.count:
            self._end_list()
        else:
            last = found[-1][0].encode()
            one.span = one.span.before(last) if one.is_reverse else one.span.after(last)

    def _end_list(self) -> None:
        if self._list is not None:
            self._list.pin.close()
            self._list = None

    # A key, conflicts

    def _look_at_key(self, node: str, store: Store) -> None:
        green = store.green
        kind = self._random.choice(("k", "n", "t", "log"))
        key = f"{kind}{self._random.randrange(self._plan.keys)}"
        before, count = self._some_revision(store), self._random.choice((1, 3, 1_000))
        found = tuple(green.versions(key, before, count))
        self._gateway.coverage["histories of a key"] += 1
        versions = Versions(node, key, before, count, green.oldest(), green.revision, found)
        self._tell(lambda checker: checker.dated(versions))
        try:
            item = green.item_at(key, before)
            from_snapshot = green.snapshot(before).item(key)
        except Compacted as compacted:
            self._gateway.no_longer_kept(NoLongerKept(node, before, compacted.oldest, green.revision, False))
            return
        span = Span(key.encode(), key.encode() + b"\0")
        for held in (item, from_snapshot):
            page = Page(node, min(before, green.revision), span, False, 1, () if held is None else ((key, held),))
            self._tell(partial(_listed, page))

    def _look_at_conflicts(self, node: str, store: Store) -> None:
        green = store.green
        count = self._random.choice((1, 4, 1_000))
        found = tuple(green.conflicts(self._place, count))
        self._gateway.coverage["conflicts shown"] += len(found)
        page = ConflictPage(node, self._place, count, green.oldest(), green.line, found)
        self._tell(lambda checker: checker.conflicts_shown(page))
        begins_anew = not found or self._random.random() < 0.2
        self._place = ConflictPlace(0, 0, 0, 0) if begins_anew else found[-1].place


def _listed(page: Page, checker: StoreChecker) -> None:
    checker.listed(page)

"""Who waits for the next change of which keys.

A watcher reads changes by revision, at its own pace, from where they are kept (`GreenState.changes`); nothing is
queued for it. Only when there is nothing left to read does it wait here. A change that no watcher is interested in
costs a few lookups, however many watchers wait."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from itertools import chain
from typing import NamedTuple, TypeAlias

from kvstore.store.history import Change


class Interest(NamedTuple):
    """The keys that a watcher is interested in: these, and all that begin with one of these prefixes."""

    keys: frozenset[str] = frozenset()
    prefixes: tuple[str, ...] = ()

    def has(self, key: str) -> bool:
        return key in self.keys or key.startswith(self.prefixes)

    def of(self, change: Change) -> Change | None:
        """The part of the change that is of interest; None if there is none."""
        if self.prefixes == ("",):
            return change
        items = tuple([pair for pair in change.items if self.has(pair[0])])
        if len(items) == len(change.items):
            return change
        return change._replace(items=items) if items else None


EVERYTHING = Interest(prefixes=("",))


class Waiting:
    """A watcher that waits. `wake` is called once, with the revision of the first change of interest."""

    __slots__ = ("interest", "wake")

    def __init__(self, interest: Interest, wake: Callable[[int], None]) -> None:
        self.interest = interest
        self.wake = wake


_Groups: TypeAlias = dict[str, dict[Waiting, None]]
"""Watchers in the order in which they came, which is the order in which they are woken."""


class Feed:
    """The watchers that wait for a change."""

    def __init__(self) -> None:
        self._by_key: _Groups = {}
        self._by_prefix: _Groups = {}
        self._prefixes_of_length: Counter[int] = Counter()
        self._prefix_lengths: tuple[int, ...] = ()
        """The lengths that prefixes have, in order."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def wait(self, interest: Interest, wake: Callable[[int], None]) -> Waiting:
        """Calls `wake` with the next change of interest, unless it is cancelled before."""
        waiting = Waiting(interest, wake)
        for key in interest.keys:
            self._by_key.setdefault(key, {})[waiting] = None
        for prefix in interest.prefixes:
            if prefix not in self._by_prefix:
                self._by_prefix[prefix] = {}
                self._count_prefix(len(prefix), 1)
            self._by_prefix[prefix][waiting] = None
        self._count += 1
        return waiting

    def cancel(self, waiting: Waiting) -> bool:
        """Ends a wait, and returns whether it had not ended before."""
        is_known = False
        for key in waiting.interest.keys:
            is_known |= _discard(self._by_key, key, waiting)
        for prefix in waiting.interest.prefixes:
            is_known |= (was_there := _discard(self._by_prefix, prefix, waiting))
            if was_there and prefix not in self._by_prefix:
                self._count_prefix(len(prefix), -1)
        self._count -= is_known
        return is_known

    def changed(self, revision: int, keys: Iterable[str]) -> None:
        """Wakes the watchers that are interested in a change of these keys."""
        self._wake(self._interested(keys), revision)

    def wake_all(self, revision: int) -> None:
        """Wakes every watcher: the node stops."""
        groups = (*self._by_key.values(), *self._by_prefix.values())
        self._wake(list(dict.fromkeys(chain.from_iterable(groups))), revision)

    def _wake(self, some: list[Waiting], revision: int) -> None:
        for waiting in some:
            if self.cancel(waiting):  # one that was woken before may have cancelled it
                waiting.wake(revision)

    def _interested(self, keys: Iterable[str]) -> list[Waiting]:
        found: dict[Waiting, None] = {}
        for key in keys:
            found.update(self._by_key.get(key, {}))
            for length in self._prefix_lengths:
                if length > len(key):
                    break
                found.update(self._by_prefix.get(key[:length], {}))
        return list(found)

    def _count_prefix(self, length: int, change: int) -> None:
        self._prefixes_of_length[length] += change
        if not self._prefixes_of_length[length]:
            del self._prefixes_of_length[length]
        if len(self._prefixes_of_length) != len(self._prefix_lengths):
            self._prefix_lengths = tuple(sorted(self._prefixes_of_length))


def _discard(groups: _Groups, name: str, waiting: Waiting) -> bool:
    group = groups.get(name)
    if group is None or waiting not in group:
        return False
    del group[waiting]
    if not group:
        del groups[name]
    return True

"""A simulated broadcast domain: it loses, duplicates, delays and reorders, may be cut one way or both ways, keeps
datagrams back for long, and has links that are slow in one direction.

A host lives on when its process has crashed, and refuses datagrams that are sent to it alone (or, where each peer
is sent a copy of its own, all datagrams). Whoever sent them is told so, sometimes so late that another process
listens there by then.

A receiver with limited bandwidth works through its datagrams at that rate; what arrives while its buffer is
full is lost, as in a kernel's socket buffer. That is how bursts lose messages in reality.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Generic, TypeVar

from tests.simulator.world import World

Item = TypeVar("Item")

REFUSAL_LATE_SHARE = 0.1
REFUSAL_LATE_MS_MAX = 1_000.0
"""How late refusals are that have lain in a queue on their way."""


@dataclass(frozen=True, slots=True)
class Weather:
    """How badly the network behaves. Probabilities are per datagram and receiver."""

    loss: float = 0.0
    duplication: float = 0.0
    delay_ms: float = 0.1
    jitter_ms: float = 0.0
    """Mean of an exponential extra delay: anything above the time between sends reorders."""
    bytes_per_ms: float = 0.0
    """The bandwidth of a receiver; 0 means that it handles any amount at once."""
    buffer_bytes: int = 0
    late: float = 0.0
    """How often a datagram is kept back for `late_ms_min` to `late_ms_max`, long enough to arrive in another view,
    or after its sender or its target has started again."""
    late_ms_min: float = 100.0
    late_ms_max: float = 100.0

    def cleared(self) -> Weather:
        """Returns the same network without faults: its delay and its bandwidth remain."""
        return replace(self, loss=0.0, duplication=0.0, jitter_ms=0.0, late=0.0)


class Network(Generic[Item]):
    """Carries items, which are what the processes exchange, between named hosts."""

    def __init__(self, world: World, random: Random, weather: Weather, size_of: Callable[[Item], int]) -> None:
        self.weather = weather
        self._world = world
        self._random = random
        self._size_of = size_of
        self._handlers: dict[str, Callable[[Item], None]] = {}
        self._on_refused: dict[str, Callable[[str], None]] = {}
        self._refusals = Random(0)
        self._unicasts_refused = self._broadcasts_refused = 0.0
        self._cuts: set[tuple[str, str]] = set()
        self._beside: dict[str, str] = {}
        """The hosts that are cut off where, and when, another one is."""
        self._busy_until: dict[str, float] = {}
        self._link_delays_ms: dict[tuple[str, str], float] = {}
        self._starts: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        """How often each of the rarer faults happened."""
        self.trace: Callable[[str, str, str, Item], None] | None = None
        """Called with (what happened, source, target, item) for every datagram and receiver."""

    def attach(self, name: str, handler: Callable[[Item], None]) -> None:
        self._handlers[name] = handler
        self._starts[name] += 1

    def detach(self, name: str) -> None:
        self._handlers.pop(name, None)

    def refuse(self, unicasts: float, broadcasts: float, random: Random) -> None:
        """From now on, the hosts of crashed processes refuse these shares of what is sent to them. The generator
        is the refusals' own, so that they change nothing else of a run."""
        self._unicasts_refused, self._broadcasts_refused, self._refusals = unicasts, broadcasts, random

    def attach_refusals(self, name: str, on_refused: Callable[[str], None]) -> None:
        """Has this function called with the name of each host that refuses what this one sends."""
        self._on_refused[name] = on_refused

    def cut_one_way(self, source: str, target: str) -> None:
        self._cuts.add((source, target))

    def partition(self, groups: Sequence[Iterable[str]]) -> None:
        """Replaces all cuts: hosts hear each other only within a group."""
        group_of = {name: index for index, group in enumerate(groups) for name in group}
        names = sorted(group_of)
        self._cuts = {(a, b) for a in names for b in names if group_of[a] != group_of[b]}

    def heal(self) -> None:
        self._cuts.clear()

    def place(self, name: str, beside: str) -> None:
        """Puts a host on the same side of all cuts as another one."""
        self._beside[name] = beside

    def carries(self, source: str, target: str) -> bool:
        """Whether what is sent from one host to another is not cut off now."""
        return not self._is_cut(source, target)

    def slow_down(self, source: str, target: str, extra_ms: float) -> None:
        """Delays everything on a link by this time more, in one direction."""
        self._link_delays_ms[source, target] = extra_ms

    def end_link_delays(self) -> None:
        self._link_delays_ms.clear()

    def broadcast(self, source: str, item: Item) -> None:
        self._send(source, [target for target in self._handlers if target != source], item)
        if self._broadcasts_refused:
            for target in self._on_refused:
                if target not in self._handlers and target != source:
                    self._refuse(source, target, item, self._broadcasts_refused)

    def unicast(self, source: str, target: str, item: Item) -> None:
        if target in self._handlers:
            self._send(source, [target], item)
        else:
            self._refuse(source, target, item, self._unicasts_refused)

    def _refuse(self, source: str, target: str, item: Item, share: float) -> None:
        weather, random = self.weather, self._refusals
        is_cut = self._is_cut(source, target) or self._is_cut(target, source)
        if is_cut or source not in self._on_refused or random.random() >= share * (1.0 - weather.loss) ** 2:
            return
        delay_ms = 2.0 * weather.delay_ms
        if random.random() < REFUSAL_LATE_SHARE:
            delay_ms += random.uniform(0.0, REFUSAL_LATE_MS_MAX)
        self._note("refused", source, target, item)
        self._world.after(delay_ms, partial(self._on_refused[source], target))

    def _send(self, source: str, targets: Sequence[str], item: Item) -> None:
        weather, random = self.weather, self._random
        together: list[str] = []
        for target in targets:
            if self._is_cut(source, target):
                self._note("cut", source, target, item)
                continue
            copies = 2 if weather.duplication and random.random() < weather.duplication else 1
            for _ in range(copies):
                if weather.loss and random.random() < weather.loss:
                    self._note("lost", source, target, item)
                    continue
                if weather.late and random.random() < weather.late:
                    self._send_late(source, target, item)
                elif weather.jitter_ms or self._link_delays_ms:
                    delay_ms = weather.delay_ms + self._link_delay_ms(source, target)
                    if weather.jitter_ms:
                        delay_ms += random.expovariate(1.0 / weather.jitter_ms)
                    self._world.after(delay_ms, partial(self._arrive, source, (target,), item))
                else:
                    together.append(target)
        if together:
            self._world.after(weather.delay_ms, partial(self._arrive, source, together, item))

    def _is_cut(self, source: str, target: str) -> bool:
        return (self._beside.get(source, source), self._beside.get(target, target)) in self._cuts

    def _send_late(self, source: str, target: str, item: Item) -> None:
        delay_ms = self._random.uniform(self.weather.late_ms_min, self.weather.late_ms_max)
        starts = self._starts[source], self._starts[target]
        self._note("kept back", source, target, item)
        self._world.after(delay_ms, partial(self._arrive_late, source, target, item, starts))

    def _arrive_late(self, source: str, target: str, item: Item, starts: tuple[int, int]) -> None:
        self.counts["late datagrams"] += 1
        if starts[0] != self._starts[source]:
            self.counts["late datagrams of a former start of their sender"] += 1
        if starts[1] != self._starts[target]:
            self.counts["late datagrams to a former start of their target"] += 1
        self._arrive(source, (target,), item)

    def _link_delay_ms(self, source: str, target: str) -> float:
        delay_ms = self._link_delays_ms.get((source, target), 0.0)
        if delay_ms:
            self.counts["datagrams on slow links"] += 1
        return delay_ms

    def _arrive(self, source: str, targets: Sequence[str], item: Item) -> None:
        for target in targets:
            if self.weather.bytes_per_ms:
                self._work_through(source, target, item)
            else:
                self._hand_over(source, target, item)

    def _work_through(self, source: str, target: str, item: Item) -> None:
        now = self._world.now
        busy_until = max(self._busy_until.get(target, 0.0), now)
        if (busy_until - now) * self.weather.bytes_per_ms > self.weather.buffer_bytes:
            self._note("spilled", source, target, item)
            return
        done = busy_until + self._size_of(item) / self.weather.bytes_per_ms
        self._busy_until[target] = done
        self._world.at(done, partial(self._hand_over, source, target, item))

    def _hand_over(self, source: str, target: str, item: Item) -> None:
        handler = self._handlers.get(target)
        if handler is None:
            self._note("dead", source, target, item)
            return
        self._note("arrives", source, target, item)
        handler(item)

    def _note(self, what: str, source: str, target: str, item: Item) -> None:
        if self.trace is not None:
            self.trace(what, source, target, item)

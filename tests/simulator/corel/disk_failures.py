"""Disks that refuse writes, and records that rot: what a seed draws of them, and how a run applies it.

A disk or a map is full (and a while later it is not), every write of some fails, a write of LMDB's meta page
fails, the small files beside the log cannot be written, a write takes longer than a node waits for it, or all maps
are full together. A record rots in a crash; the operator replaces the disk when the node says that it is damaged,
if the others can restore its vote."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Literal, TypeAlias

from tests.simulator.world import World

if TYPE_CHECKING:
    from tests.simulator.corel.process import CorelProcess

Kind: TypeAlias = Literal["full", "all full", "errors", "meta page", "files", "stall", "rot"]


@dataclass(frozen=True, slots=True)
class DiskFailure:
    """From a time on, for a while, a node's disk fails in one way."""

    at_ms: float
    node: str
    kind: Kind
    for_ms: float = 0.0
    free_bytes: int = 0
    """How much a full disk still takes."""
    count: int = 0
    """How many writes fail."""
    killed_after_ms: float = 0.0
    """When the node is killed while it is away; 0 if it is not."""
    place: float = 0.0
    """Which record rots: 0 is the first, 1 the last."""


def draw_disk_failures(seed: int, nodes: tuple[str, ...], duration_ms: float) -> tuple[DiskFailure, ...]:
    random = Random(f"disk failures {seed}")
    kinds: tuple[Kind, ...] = ("full", "full", "full", "all full", "errors", "meta page", "files", "stall")
    failures = [
        DiskFailure(
            at_ms=random.uniform(100.0, duration_ms),
            node=random.choice(nodes),
            kind=random.choice(kinds),
            for_ms=random.choice((100.0, 700.0, 1_500.0, 4_000.0)),
            free_bytes=random.choice((0, 100, 1_000, 10_000)),
            count=random.choice((1, 1, 2, 5)),
            killed_after_ms=random.choice((0.0, 0.0, 0.0, 300.0, 1_300.0)),
        )
        for _ in range(random.choice((0, 0, 1, 2, 4)))
    ]
    rot = Random(f"rotten records {seed}")
    if rot.random() < 0.25:
        failures.append(
            DiskFailure(
                at_ms=rot.uniform(500.0, duration_ms),
                node=rot.choice(nodes),
                kind="rot",
                for_ms=rot.choice((1.0, 300.0)),
                place=rot.choice((0.0, 0.2, 0.9, 1.0)),
            )
        )
    return tuple(sorted(failures, key=lambda failure: failure.at_ms))


class DiskFailures:
    """Applies the failures of one run. `may_lose_disk` says whether a node's disk may be damaged now; `replace`
    gives it an empty one."""

    def __init__(
        self,
        failures: Iterable[DiskFailure],
        world: World,
        processes: Mapping[str, CorelProcess],
        may_lose_disk: Callable[[str], bool],
        replace: Callable[[str], None],
        count: Callable[[str], None],
    ) -> None:
        self._failures = tuple(failures)
        self._world = world
        self._processes = processes
        self._may_lose_disk = may_lose_disk
        self._replace = replace
        self._count = count
        self._is_over = False

    def schedule(self) -> None:
        for failure in self._failures:
            self._world.at(failure.at_ms, partial(self._apply, failure))

    def end(self) -> None:
        """Ends all failures but rot."""
        self._is_over = True
        for process in self._processes.values():
            process.log.space.heal()

    def forgive_rot(self) -> None:
        """Mends the records whose rot no node has met, so that all other records can be read and judged."""
        for process in self._processes.values():
            for _ in process.log.rotten:
                self._count("rotten records that nobody read")
            process.log.rotten.clear()

    def damaged(self, node: str) -> None:
        """The operator reads that a node's disk is damaged, and replaces it a while later."""
        self._count("disks found damaged")
        self._world.after(500.0, partial(self._replace_damaged, node, self._processes[node].disks))

    def _replace_damaged(self, node: str, disks: int) -> None:
        if self._processes[node].disks == disks:
            self._count("damaged disks replaced")
            self._replace(node)

    def _apply(self, failure: DiskFailure) -> None:
        if self._is_over:
            return
        self._count(f"disk failure: {failure.kind}")
        everybody = list(self._processes) if failure.kind == "all full" else [failure.node]
        for name in everybody:
            self._strike(failure, self._processes[name])

    def _strike(self, failure: DiskFailure, process: CorelProcess) -> None:
        space = process.log.space
        if failure.kind in ("full", "all full"):
            space.limit(failure.free_bytes)
            self._world.after(failure.for_ms, space.heal)
        elif failure.kind == "errors":
            space.failures = failure.count
        elif failure.kind == "meta page":
            process.fail_meta_page()
            space.can_be_opened = failure.count == 1
            self._world.after(failure.for_ms, space.heal)
        elif failure.kind == "files":
            space.has_room_for_files = False
            self._world.after(failure.for_ms, space.heal)
        elif failure.kind == "stall":
            process.stall(process.corel.sync_stall_ms + failure.for_ms)
        elif process.replica is not None and process.log.messages and self._may_lose_disk(failure.node):
            process.crash()
            process.log.rot(failure.place)
            self._world.after(failure.for_ms, process.start)
        if failure.killed_after_ms:
            self._world.after(failure.killed_after_ms, partial(self._kill, process))

    def _kill(self, process: CorelProcess) -> None:
        if process.is_away and not self._is_over:
            self._count("killed while away")
            process.crash()
            self._world.after(100.0, process.start)

"""Where a recorded run is kept: for every disk of a node its journal, and the exports that were made of it.

    DIRECTORY/cluster=NAME/disk-1/<node>/journal/     the journal that is on a disk of a node
    DIRECTORY/cluster=NAME/export-1-1/<node>/…        an export of that disk (`corelkv export --out export-1-1`)

Each generation of the cluster is a cluster of its own (`NAME`, `NAME-g2`): ids and primary components begin anew.
A disk that is replaced takes its journal with it; the exports that were made of it before remain, in directories
that no later export is made to. When a cluster is bootstrapped anew, and when a node that was left over from the
cluster of before gets an empty disk, the operator keeps the old disks: what they hold is exported, and their
journals remain, in the directory of their generation. So nothing is judged that a real audit could not see, and
what an operator destroys is not missed."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from corel.disk_errors import DiskError
from corel.messages import NO_IDENTITY
from kvstore.cli.export_writer import ExportRefused
from tests.simulator.corel.generations import WALL_CLOCK_MS
from tests.simulator.recording.exports import NotExportable, export_disk, generation_of
from tests.simulator.recording.journal import NodeClocks, SimulatedJournal
from tests.simulator.recording.process import RecordedProcess
from tests.simulator.store.process import StoreProcess

SKEW_MS_MAX = 40.0
"""How far the wall clocks of nodes are off."""


@dataclass(slots=True)
class _RecordedDisk:
    """One disk, and where its journal and its exports are until the run is over."""

    node: str
    number: int
    directory: Path
    exports: int = 0
    """How many directories have been exported to."""
    generation: bytes = NO_IDENTITY
    """The generation that it is bound to, when it is known."""
    keeps_journal: bool = True

    @property
    def journal(self) -> Path:
        return self.directory / "journal"

    def export_directory(self, number: int) -> Path:
        return self.directory / f"export-{number}"


@dataclass(slots=True)
class Recording:
    """The recording of one run. `loses` says whether killed processes lose what a real one would have lost;
    `has_bug`, whether a bug is planted, so that there may be disks which cannot be exported."""

    target: Path
    name: str
    now: Callable[[], float] = lambda: 0.0
    loses: bool = True
    has_bug: bool = False
    clusters: list[str] = field(default_factory=list)
    """The clusters that were recorded, one for each generation, when the run is over."""
    _disks_seen: int = 0
    _disks: list[_RecordedDisk] = field(default_factory=list)
    _of: dict[str, _RecordedDisk] = field(default_factory=dict)
    """The disk that each process has now, by its address."""
    _clocks: dict[str, NodeClocks] = field(default_factory=dict)

    @property
    def _work(self) -> Path:
        return self.target / f"_{self.name}"

    def adopt(self, process: RecordedProcess) -> None:
        """Keeps the journal of a process from its first start on."""
        process.new_journal = lambda: self._new_journal(process)
        process.on_wiped = lambda: self.disk_ends(process)

    def _new_journal(self, process: RecordedProcess) -> SimulatedJournal:
        random = Random(f"journal {self.name} {process.address} {process.lives}")
        directory = self._disk_of(process).journal
        return SimulatedJournal(directory, self._clocks_of(process), random, self.now, self.loses)

    def _clocks_of(self, process: RecordedProcess) -> NodeClocks:
        if process.address not in self._clocks:
            random = Random(f"clocks {self.name} {process.address}")
            wall_ms = WALL_CLOCK_MS + random.uniform(-SKEW_MS_MAX, SKEW_MS_MAX)
            self._clocks[process.address] = NodeClocks(random.uniform(0.0, 1e9), wall_ms)
        return self._clocks[process.address]

    def _disk_of(self, process: RecordedProcess) -> _RecordedDisk:
        if process.address not in self._of:
            self._disks_seen += 1
            disk = _RecordedDisk(process.name, self._disks_seen, self._work / f"disk-{self._disks_seen}")
            disk.directory.mkdir(parents=True)
            self._disks.append(disk)
            self._of[process.address] = disk
        return self._of[process.address]

    def export(self, process: RecordedProcess, is_anew: bool) -> bool:
        """Exports what is on the node's disk now, to a new directory or to the one of the last export. Returns
        whether the disk could be read."""
        return self._export(process, self._disk_of(process), is_anew)

    def _export(self, process: RecordedProcess, disk: _RecordedDisk, is_anew: bool) -> bool:
        number = disk.exports + (is_anew or not disk.exports)
        exported_ms = int(self._clocks_of(process).wall_ms + self.now())
        tree = process.tree if isinstance(process, StoreProcess) else None
        try:
            export_disk(process.log, tree, disk.export_directory(number), self.name, process.name, exported_ms)
        except DiskError:
            return False
        except (NotExportable, ExportRefused):
            if not self.has_bug:
                raise
            return False
        disk.exports = number
        return True

    def disk_replaced(self, process: RecordedProcess) -> None:
        """The operator is about to replace the disk of a node, and what is on it is lost."""
        self._disk_of(process).keeps_journal = False

    def disk_ends(self, process: RecordedProcess) -> None:
        """The disk is taken out of the node. Unless it is lost, the operator exports it before. A disk that was
        bound to no generation is forgotten: nobody can say which cluster it was of."""
        disk = self._of.pop(process.address, None)
        if disk is None:
            return
        disk.generation = generation_of(process.log)
        if disk.generation == NO_IDENTITY:
            self._disks.remove(disk)
        elif disk.keeps_journal:
            self._export(process, disk, is_anew=False)

    def finish(self, processes: Iterable[RecordedProcess]) -> None:
        """Ends with the run. These are the nodes; what other processes there were has no disk any more."""
        processes = list(processes)
        for process in processes:
            journal, process.journal, process.recorder = process.journal, None, None
            if journal is not None:
                is_finished = Random(f"end {self.name} {process.address}").random() < 0.5
                journal.end(is_finished)
            self.export(process, is_anew=False)
            self._disk_of(process).generation = generation_of(process.log)
        addresses = {process.address for process in processes}
        for address, disk in self._of.items():
            disk.keeps_journal = disk.keeps_journal and address in addresses
        self._sort_out()

    def _sort_out(self) -> None:
        """Moves what was recorded to the directories of the clusters. A disk that was bound to no generation
        belongs to the last one."""
        bound = [disk.generation for disk in self._disks if disk.generation != NO_IDENTITY]
        generations = list(dict.fromkeys(bound)) or [NO_IDENTITY]
        last = bound[-1] if bound else NO_IDENTITY
        later = [f"{self.name}-g{number}" for number in range(2, len(generations) + 1)]
        self.clusters = [self.name, *later]
        for disk in self._disks:
            generation = last if disk.generation == NO_IDENTITY else disk.generation
            cluster = self.clusters[generations.index(generation)]
            _move(disk, self.target / f"cluster={cluster}")
        shutil.rmtree(self._work)


def _move(disk: _RecordedDisk, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for export in range(1, disk.exports + 1):
        disk.export_directory(export).rename(target / f"export-{disk.number}-{export}")
    if disk.keeps_journal and disk.journal.exists():
        place = target / f"disk-{disk.number}" / disk.node
        place.mkdir(parents=True)
        disk.journal.rename(place / "journal")

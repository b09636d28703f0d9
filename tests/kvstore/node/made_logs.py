"""Data directories like those of nodes, made step by step: messages of all colours, and what became of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from corel import Lines, LogWrite, MessageId, Record
from corel.lmdb_log import LmdbLog
from corel.message_queue import chained
from corel.messages import EMPTY_DIGEST
from corel.storage import Yellow
from kvstore.node.fate_ages import ALL
from kvstore.node.lmdb_tree import LmdbTree
from kvstore.store import Outcome, Put, Write, encode_write
from kvstore.store.green_state import GreenState
from kvstore.store.write_codec import encode_batch
from transport import Machine, ViewId

VIEW = ViewId(3, "a", 1)
GENERATION = b"a generation ..."


def body_of(number: int, writes: int = 1, value: bytes = b"value") -> bytes:
    """The body of a message with so many writes."""
    encoded = [encode_write(Write((Put(f"key {number % 97} {place}", value),))) for place in range(writes)]
    return encode_batch(encoded, expires=500_000 + number, accepted_ms=1_000 + number)


class MadeLog:
    """The log of a node, written as the node would. Close it before it is read."""

    def __init__(self, directory: Path, node: str = "a") -> None:
        self.directory = directory
        self._log = LmdbLog(directory, "test", node, is_new_cluster=True)
        self._tree = LmdbTree(self._log, ALL)
        self.state = GreenState(self._tree)
        image = self._log.load()
        self._lines = image.lines
        self._stream = Machine(node, 1)
        self._sent = max(
            (entry.id.sequence for entry in image.queue), default=dict(image.lines.streams).get(self._stream, 0)
        )
        self.open = [self._log.record(entry.arrival) for entry in image.queue]
        """What is not green, in order."""
        self._cut = image.lines.cut
        self.outcomes: dict[MessageId, tuple[Outcome, ...]] = {}
        """What became of the messages that are applied."""
        self.uuid = self._log.uuid

    def close(self) -> None:
        self._log.close()

    def closed(self) -> Path:
        """Closes it, and returns its directory."""
        self.close()
        return self.directory

    def add(self, bodies: Sequence[bytes], primary: int = 0) -> list[Record]:
        """Logs messages, in one write. Those of primary component 1 are yellow."""
        first = self._lines.next_arrival
        made = [
            Record(first + n, MessageId(self._stream, self._sent + n + 1), 10 + first + n, VIEW, primary, body)
            for n, body in enumerate(bodies)
        ]
        self._sent += len(made)
        self.open += made
        self._write(tuple(made))
        return made

    def turn_green(self, count: int, is_checkpointed: bool = True) -> list[Record]:
        """Turns green the first messages that are not, and applies them. The state goes to disk, or stays behind
        there."""
        turned, self.open = self.open[:count], self.open[count:]
        for record in turned:
            applied = self.state.apply(record.id, record.body, record.view)
            self.outcomes[record.id] = tuple(one.outcome for one in applied)
        self._write((), turned)
        while is_checkpointed and (checkpoint := self.state.take_checkpoint(self._lines.green, only_full=False)):
            self._log.update(partial(self._tree.write, checkpoint=checkpoint))
            self.state.written(checkpoint)
        return turned

    def truncate(self, cut: int) -> None:
        """Cuts off what is before this line, and deletes it as a checkpoint does."""
        self._cut = cut
        self._write(())
        self._log.update(lambda transaction: None)

    def decide_yellow(self, count: int) -> None:
        """Makes the first messages that are not green the yellow zone, as a commitment does."""
        self._write((), yellow=Yellow(self._lines.green, tuple(record.arrival for record in self.open[:count])))

    def _write(
        self, records: tuple[Record, ...], turned: Sequence[Record] = (), yellow: Yellow | None = None
    ) -> None:
        streams = dict(self._lines.streams) | {record.id.stream: record.id.sequence for record in turned}
        next_arrival = self._lines.next_arrival + len(records)
        self._lines = Lines(
            committed=1,
            attempted=2,
            is_voter=True,
            green=self._lines.green + len(turned),
            green_digest=chained(self._lines.green_digest, [record.entry() for record in turned]),
            base_digest=EMPTY_DIGEST,
            streams=tuple(sorted(streams.items())),
            next_arrival=next_arrival,
            open_from=min((record.arrival for record in self.open), default=next_arrival),
            generation=GENERATION,
            cut=self._cut,
        )
        greened = tuple(record.arrival for record in turned)
        self._log.write(LogWrite(records, greened, yellow, self._lines))


def made_log(directory: Path, green: int, batch: int = 100) -> list[Record]:
    """Makes a log of so many green messages, with a state that has them all, and returns the messages."""
    log = MadeLog(directory)
    records: list[Record] = []
    for first in range(0, green, batch):
        records += log.add([body_of(number) for number in range(first, min(green, first + batch))])
        log.turn_green(batch)
    log.close()
    return records

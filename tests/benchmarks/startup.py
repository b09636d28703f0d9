"""How long a node takes to start, and how much memory, beside a long log: it depends on what is not checkpointed.

    python -m tests.benchmarks.startup --messages 1000000 10000000 --open 0 10000

Makes the disk of a node alone in its roster, with so many green messages that are all applied (`--open` more are
logged and not green), starts the node on it, and measures until it is a primary component and answers. Prints
Markdown for `docs/performance.md`."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from corel.lmdb_log import LmdbLog
from corel.message_queue import chained
from corel.messages import EMPTY_DIGEST, MessageId
from corel.storage import Lines, LogWrite, Record
from kvstore.node.fate_ages import ALL
from kvstore.node.lmdb_tree import LmdbTree
from kvstore.store import Checkpoint, Put, Write, encode_write
from kvstore.store.write_codec import encode_batch
from tests.benchmarks.failing_clusters import call, wait_until
from transport import Machine, ViewId

HTTP_PORT, UDP_PORT = 18_691, 7_491
CLUSTER = "startup"
_AT_ONCE = 10_000
_STREAM, _VIEW = Machine("a", 1), ViewId(1, "a", 1)
_START_SECONDS_MAX = 300.0


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    print("| green messages | not green | log on disk MiB | seconds until primary | RSS MiB |")
    print("|---|---|---|---|---|")
    for messages in options.messages:
        for open_messages in options.open:
            with tempfile.TemporaryDirectory(prefix="bench-startup-") as directory:
                make_disk(Path(directory), messages, open_messages)
                seconds, rss = _start(Path(directory))
                size = (Path(directory) / "data.mdb").stat().st_size
            found = f"{size / 2**20:,.0f} | {seconds:.2f} | {rss / 2**20:,.0f}"
            print(f"| {messages:,} | {open_messages:,} | {found} |", flush=True)
    return 0


def make_disk(directory: Path, green: int, open_messages: int) -> None:
    log = LmdbLog(directory, CLUSTER, "a", is_new_cluster=True)
    tree = LmdbTree(log, ALL)
    body = encode_batch([encode_write(Write((Put("key", b"x" * 100),)))], expires=2**40, accepted_ms=1)
    digest, lines = EMPTY_DIGEST, Lines()
    for records in _batches(green + open_messages, body):
        turned = [record for record in records if record.arrival < green]
        digest = chained(digest, [record.entry() for record in turned])
        end = records[-1].arrival + 1
        lines = Lines(
            committed=1,
            attempted=1,
            is_voter=True,
            green=min(end, green),
            green_digest=digest,
            streams=((_STREAM, min(end, green)),),
            next_arrival=end,
            open_from=min(end, green),
            tail_from=end,
            clock=end,
            generation=b"startup".ljust(16),
            established=1,
        )
        log.write(LogWrite(tuple(records), tuple(record.arrival for record in turned), None, lines))
    log.update(lambda transaction: tree.write(transaction, Checkpoint(lines.green, 1)))
    log.close()


def _batches(count: int, body: bytes) -> Iterator[list[Record]]:
    for first in range(0, count, _AT_ONCE):
        numbers = range(first, min(count, first + _AT_ONCE))
        yield [Record(n, MessageId(_STREAM, n + 1), n + 1, _VIEW, 0, body) for n in numbers]


def _start(directory: Path) -> tuple[float, int]:
    """Starts the node; returns the seconds until it is a primary component, and the memory that it has then."""
    command = [sys.executable, "-m", "kvstore", "serve", "--node", "a", "--roster", "a", "--data", str(directory)]
    command += ["--http", f"127.0.0.1:{HTTP_PORT}", "--broadcast", f"127.255.255.255:{UDP_PORT}"]
    command += ["--cluster", CLUSTER]
    started = time.monotonic()
    node = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(_is_primary, "the node is a primary component", _START_SECONDS_MAX)
        seconds = time.monotonic() - started
        pages = int(Path(f"/proc/{node.pid}/statm").read_text().split()[1])
        return seconds, pages * os.sysconf("SC_PAGE_SIZE")
    finally:
        node.terminate()
        node.wait()


def _is_primary() -> bool:
    return bool(json.loads(call("GET", HTTP_PORT, "/v1/status"))["primary"])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--open", type=int, nargs="+", default=[0])
    return parser


if __name__ == "__main__":
    sys.exit(main())

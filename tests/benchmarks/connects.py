"""Watchers that come and go: so many connects a minute to `/v1/watch` of one node, most of them dropped in the
middle of an event, while a client writes to it.

    python -m tests.benchmarks.connects --port 8001 --count 10000 --seconds 60 --pid 4711

Prints as JSON what was answered, how the writes fared, and, with the node's process id, its memory and its open
files before and after."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random

HOST = "127.0.0.1"
_VALUE = b"x" * 20_000
"""Large enough for a client to leave in the middle of its event."""
_STAY_SECONDS = 0.5
"""How long the others watch."""
_SETTLE_SECONDS = 2.0


class Connects:
    """One run against one node."""

    def __init__(self, port: int, query: str, random: Random) -> None:
        self._port = port
        self._query = query
        self._random = random
        self.answers: Counter[str] = Counter()
        self.put_ms: list[float] = []

    async def run(self, count: int, seconds: float) -> None:
        writing = asyncio.create_task(self._write())
        begin = time.monotonic()
        tasks = set()
        for number in range(count):
            await asyncio.sleep(max(0.0, begin + seconds * number / count - time.monotonic()))
            task = asyncio.create_task(self._watch(is_dropped=number % 10 != 0))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        await asyncio.gather(*tasks)
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)

    async def _watch(self, is_dropped: bool) -> None:
        try:
            reader, writer = await asyncio.open_connection(HOST, self._port)
        except OSError as error:
            self.answers[type(error).__name__] += 1
            return
        try:
            writer.write(f"GET /v1/watch?key=connects{self._query} HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            self.answers[head.split(b" ", 2)[1].decode()] += 1
            if is_dropped:
                await reader.readexactly(self._random.randrange(1, 10_000))
                writer.transport.abort()
            else:
                await asyncio.sleep(_STAY_SECONDS)
        except (OSError, asyncio.IncompleteReadError) as error:
            self.answers[type(error).__name__] += 1
        finally:
            writer.close()

    async def _write(self) -> None:
        reader, writer = await asyncio.open_connection(HOST, self._port)
        head = f"PUT /v1/kv/connects HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: {len(_VALUE)}\r\n\r\n"
        try:
            while True:
                began = time.monotonic()
                writer.write(head.encode() + _VALUE)
                answer = await reader.readuntil(b"\r\n\r\n")
                length = int(answer.lower().partition(b"content-length: ")[2].split(b"\r\n", 1)[0])
                await reader.readexactly(length)
                self.answers[f"put {answer.split(b' ', 2)[1].decode()}"] += 1
                self.put_ms.append(1_000.0 * (time.monotonic() - began))
                await asyncio.sleep(0.05)
        finally:
            writer.close()


def usage(pid: int) -> dict[str, int]:
    """Returns the memory and the open files of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    rss_kib = int(status.partition("VmRSS:")[2].split(maxsplit=1)[0])
    return {"rss_mib": rss_kib // 1_024, "files": len(list(Path(f"/proc/{pid}/fd").iterdir()))}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.connects", description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--from", dest="first", type=int, help="the first revision (default: the next)")
    parser.add_argument("--pid", type=int, help="of the node")
    options = parser.parse_args(arguments)
    before = usage(options.pid) if options.pid else None
    query = "" if options.first is None else f"&from={options.first}"
    connects = Connects(options.port, query, Random(1))
    began = time.monotonic()
    asyncio.run(connects.run(options.count, options.seconds))
    took = time.monotonic() - began
    time.sleep(_SETTLE_SECONDS)
    put_ms = sorted(connects.put_ms)
    print(
        json.dumps(
            {
                "connects_per_minute": round(60.0 * options.count / took),
                "answers": dict(sorted(connects.answers.items())),
                "put_ms": {"p50": round(put_ms[len(put_ms) // 2], 1), "max": round(put_ms[-1], 1)},
                "before": before,
                "after": usage(options.pid) if options.pid else None,
            }
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())

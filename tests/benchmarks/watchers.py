"""Many clients of `/v1/watch` in one process, for benchmarks: most of them read, some never do.

    python -m tests.benchmarks.watchers --port 18601 --count 1000 --stalled 100 --prefix key

Prints a line when all watch, reads until its standard input ends, then prints what it received as JSON."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence

_BUFFER_BYTES = 65_536


class Watchers:
    """Watchers of one node. `{}` in a prefix is the number of the watcher."""

    def __init__(self, port: int, count: int, stalled: int, prefix: str) -> None:
        self._port = port
        self._count = count
        self._stalled = stalled
        self._prefix = prefix
        self.events = 0
        self.ended = 0
        self._writers: list[asyncio.StreamWriter] = []
        """Kept, because a connection is closed with its writer."""

    async def run(self, stop: asyncio.Event) -> None:
        readers = []
        for number in range(self._count):
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port, limit=_BUFFER_BYTES)
            prefix = self._prefix.format(number)
            request = f"GET /v1/watch?prefix={prefix} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
            writer.write(request.encode())
            await writer.drain()
            head = await reader.readuntil(b"\r\n\r\n")
            if b" 200 " not in head.partition(b"\r\n")[0]:
                raise SystemExit(f"watcher {number} was refused: {head.decode()}")
            self._writers.append(writer)
            if number < self._stalled:
                writer.transport.pause_reading()  # type: ignore[attr-defined]
            else:
                readers.append(asyncio.create_task(self._read(reader)))
        print(f"{self._count} watch, {self._stalled} of them never read", flush=True)
        await stop.wait()
        for task in readers:
            task.cancel()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        while data := await reader.read(_BUFFER_BYTES):
            self.events += data.count(b"\ndata: ")
        self.ended += 1


async def _main(options: argparse.Namespace) -> None:
    watchers = Watchers(options.port, options.count, options.stalled, options.prefix)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.run_in_executor(None, lambda: (sys.stdin.read(), loop.call_soon_threadsafe(stop.set)))
    await watchers.run(stop)
    print(json.dumps({"events": watchers.events, "ended": watchers.ended}))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.watchers", description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--count", type=int, default=1_000)
    parser.add_argument("--stalled", type=int, default=0, help="how many of them never read")
    parser.add_argument("--prefix", default="", help="what they watch; {} is the number of the watcher")
    asyncio.run(_main(parser.parse_args(arguments)))
    return 0


if __name__ == "__main__":
    sys.exit(main())

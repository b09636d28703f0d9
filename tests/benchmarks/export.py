"""What `corelkv export` takes, and what it costs the node that writes the log meanwhile.

    python -m tests.benchmarks.export --messages 200000

Makes a log, exports it, and prints CPU time and private memory. Then it commits messages to a log, 10 to a
transaction, in turn while nothing is exported, while a copy of the log is, and while the log itself is. The second
and the third compete for CPU and disk in the same way; if the third takes longer, the writer waits for the
reader."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.kvstore.node.made_logs import MadeLog, body_of

_MEASURED = """
import sys, time
from pathlib import Path
from kvstore.cli.export import _export
sizes = []

def tell(**content):
    sizes.append(int(Path("/proc/self/status").read_text().partition("RssAnon:")[2].split()[0]))

_export(Path(sys.argv[1]), Path(sys.argv[2]), True, tell)
print(f"{time.process_time():.1f} s of CPU time, {max(sizes) / 1_000:.0f} MB of private memory")
"""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.export", description=__doc__)
    parser.add_argument("--messages", type=int, default=200_000, help="of the log (default 200,000)")
    parser.add_argument("--writes", type=int, default=1, help="of each message (default 1)")
    parser.add_argument("--value-bytes", type=int, default=100, help="of each write (default 100)")
    parser.add_argument("--rounds", type=int, default=8, help="of commits (default 8)")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement (default 3)")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="bench-export-") as name:
        directory = Path(name)
        _make(directory / "copy", options.messages, options.writes, options.value_bytes)
        shutil.copytree(directory / "copy", directory / "log")
        command = [sys.executable, "-c", _MEASURED, str(directory / "copy"), str(directory / "out")]
        print(subprocess.run(command, check=True, capture_output=True, text=True).stdout, end="", flush=True)
        _compare_commits(directory, options.rounds, options.seconds)
    return 0


def _make(directory: Path, messages: int, writes: int, value_bytes: int) -> None:
    log = MadeLog(directory)
    for first in range(0, messages, 500):
        values = (os.urandom(value_bytes) for _ in range(500))
        log.add([body_of(number, writes, value) for number, value in enumerate(values, first)])
        log.turn_green(500)
    log.close()


def _compare_commits(directory: Path, rounds: int, seconds: float) -> None:
    log = MadeLog(directory / "log")
    kinds = ("nothing", "copy", "log")
    medians: dict[str, list[float]] = {kind: [] for kind in kinds}
    for number in range(rounds):
        for kind in kinds if number % 2 == 0 else reversed(kinds):
            with _exporting(directory, kind):
                medians[kind].append(_commit_ms(log, seconds))
    log.close()
    for kind in kinds:
        print(f"a commit while {kind} is exported: {statistics.median(medians[kind]):.2f} ms")
    for one, other in (("copy", "nothing"), ("log", "nothing"), ("log", "copy")):
        ratios = sorted(a / b for a, b in zip(medians[one], medians[other], strict=True))
        print(f"{one} to {other}: {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})")


def _commit_ms(log: MadeLog, seconds: float) -> float:
    """Returns the median time of a commit."""
    times = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        bodies = [body_of(number) for number in range(10)]
        began = time.perf_counter()
        log.add(bodies)
        times.append(time.perf_counter() - began)
        log.turn_green(10)
    return statistics.median(times) * 1_000.0


@contextmanager
def _exporting(directory: Path, kind: str) -> Iterator[None]:
    if kind == "nothing":
        yield
        return
    out = directory / "out"
    shutil.rmtree(out, ignore_errors=True)
    command = [sys.executable, "-m", "kvstore", "export", str(directory / kind), "--out", str(out)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
    while process.poll() is None and not list(out.glob("a/log/*/_part*")):
        time.sleep(0.02)
    try:
        yield
        if process.poll() is not None:
            print("the export was over before the measurement: take more --messages", file=sys.stderr)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


if __name__ == "__main__":
    sys.exit(main())

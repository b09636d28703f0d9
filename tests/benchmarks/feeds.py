"""What feeds and lists cost: PUT/s and memory of a node beside many watchers; a long list, beside etcd's range.

    python -m tests.benchmarks.feeds                 # all of it
    python -m tests.benchmarks.feeds --keys 100000   # a shorter list

Three nodes on this machine; watchers are on node a, wrk writes to all. Each row is measured in turn with the one
without watchers. Prints Markdown for `docs/performance.md`."""

from __future__ import annotations

import argparse
import http.client
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.benchmarks.store import NodesUnderLoad, etcd_nodes, etcd_ports, rss_mib

CONNECTIONS = 63
_PREFIXES = {"other keys": "other{}/", "about ten keys each": "key{}", "all keys": "key"}


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-feeds-")))
        nodes = NodesUnderLoad(directory)
        stack.enter_context(nodes.running())
        nodes.fill()
        if "watchers" in options.parts:
            _watchers(nodes, options)
        if "list" in options.parts:
            if shutil.which("etcd") is not None:
                stack.enter_context(etcd_nodes(directory))
            _list(nodes, options.keys)
    return 0


# Watchers


def _watchers(nodes: NodesUnderLoad, options: argparse.Namespace) -> None:
    print("| watchers on one node | of | PUT/s without | with | ratio | events/s | RSS MiB before | after |")
    print("|---|---|---|---|---|---|---|---|")
    for count, stalled, what in (
        (100, 0, "other keys"),
        (1_000, 0, "other keys"),
        (100, 0, "about ten keys each"),
        (1_000, 0, "about ten keys each"),
        (10, 0, "all keys"),
        (1_000, 100, "about ten keys each"),
        (100, 100, "all keys"),
    ):
        _measure(nodes, count, stalled, what, options.rounds, options.seconds)


def _measure(nodes: NodesUnderLoad, count: int, stalled: int, what: str, rounds: int, seconds: int) -> None:
    without, beside, events = [], [], []
    before = rss_mib(nodes.process_status("a"))
    after = before
    for _ in range(rounds):
        without.append(nodes.measure("put", CONNECTIONS, seconds).requests_per_second)
        with _watching(nodes.ports[0], count, stalled, _PREFIXES[what]) as found:
            beside.append(nodes.measure("put", CONNECTIONS, seconds).requests_per_second)
            after = max(after, rss_mib(nodes.process_status("a")))
        events.append(found["events"] / seconds)
    ratio = statistics.median(one / other for one, other in zip(beside, without, strict=True))
    name = f"{count}, {stalled} never read" if stalled else str(count)
    figures = [f"{statistics.median(each):,.0f}" for each in (without, beside)]
    print(
        f"| {name} | {what} | {' | '.join(figures)} | {ratio:.2f} | {statistics.median(events):,.0f} "
        f"| {before:.0f} | {after:.0f} |",
        flush=True,
    )


@contextmanager
def _watching(port: int, count: int, stalled: int, prefix: str) -> Iterator[dict[str, Any]]:
    command = [sys.executable, "-m", "tests.benchmarks.watchers", "--port", str(port), "--count", str(count)]
    command += ["--stalled", str(stalled), "--prefix", prefix]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    found: dict[str, Any] = {}
    try:
        print(f"<!-- {process.stdout.readline().strip()} -->", file=sys.stderr)
        yield found
        found.update(json.loads(process.communicate(timeout=30.0)[0]))
    finally:
        process.kill()
        process.wait()


# A long list


def _list(nodes: NodesUnderLoad, keys: int) -> None:
    has_etcd = shutil.which("etcd") is not None
    for first in range(0, keys, 1_000):
        names = [f"list/{number:08}" for number in range(first, min(keys, first + 1_000))]
        puts = [{"put": {"key": name, "value": "x" * 100}} for name in names]
        _request(nodes.ports[0], "POST", "/v1/txn?timeout_ms=60000", {"then": puts})
        if has_etcd:
            for start in range(0, len(names), 100):
                each = [
                    {"requestPut": {"key": _base64(name), "value": _base64("x" * 100)}}
                    for name in names[start : start + 100]
                ]
                _request(etcd_ports()[0], "POST", "/v3/kv/txn", {"success": each})
    print(f"\n| list of {keys:,} keys | seconds | keys/s | RSS MiB before | at most |")
    print("|---|---|---|---|---|")
    _time_list("ours, streamed", lambda: _stream(nodes.ports[0]), nodes.process_status("a"), keys)
    _time_list("ours, pages of 1,000", lambda: _pages(nodes.ports[0]), nodes.process_status("a"), keys)
    if has_etcd:
        pid = int(
            subprocess.run(["pgrep", "-f", "etcd --name n0"], capture_output=True, text=True).stdout.split()[0]
        )
        _time_list("etcd, one range", lambda: _etcd_range(etcd_ports()[0]), Path(f"/proc/{pid}/status"), keys)
        _time_list("etcd, pages of 1,000", lambda: _etcd_pages(etcd_ports()[0]), Path(f"/proc/{pid}/status"), keys)


def _time_list(name: str, read: Callable[[], Iterator[int]], status: Path, keys: int) -> None:
    before = rss_mib(status)
    began = time.monotonic()
    peak = before
    count = 0
    for some in read():
        count += some
        peak = max(peak, rss_mib(status))
    took = time.monotonic() - began
    assert count == keys, f"{name}: {count} of {keys} keys"
    print(f"| {name} | {took:.1f} | {keys / took:,.0f} | {before:.0f} | {peak:.0f} |", flush=True)


def _stream(port: int) -> Iterator[int]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120.0)
    connection.request("GET", "/v1/kv?prefix=list/", headers={"Accept": "application/x-ndjson"})
    response = connection.getresponse()
    while data := response.read(1_048_576):
        yield data.count(b"\n")


def _pages(port: int) -> Iterator[int]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120.0)
    cursor: str | None = ""
    while cursor is not None:
        more = f"&cursor={cursor}" if cursor else ""
        connection.request("GET", f"/v1/kv?prefix=list/&limit=1000{more}")
        page = json.loads(connection.getresponse().read())
        yield len(page["items"])
        cursor = page["cursor"]


def _etcd_range(port: int) -> Iterator[int]:
    body = {"key": _base64("list/"), "range_end": _base64("list0"), "serializable": True}
    yield len(_request(port, "POST", "/v3/kv/range", body)["kvs"])


def _etcd_pages(port: int) -> Iterator[int]:
    start = "list/"
    while True:
        body = {"key": _base64(start), "range_end": _base64("list0"), "limit": 1_000, "serializable": True}
        page = _request(port, "POST", "/v3/kv/range", body)
        items = page.get("kvs", [])
        yield len(items)
        if not page.get("more"):
            return
        start = f"list/{int(_text(items[-1]['key']).rpartition('/')[2]) + 1:08}"


def _request(port: int, method: str, path: str, body: object) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300.0)
    connection.request(method, path, json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    content = response.read()
    if response.status != 200:
        raise SystemExit(f"{path} was answered {response.status}: {content[:300].decode(errors='replace')}")
    return json.loads(content)


def _base64(text: str) -> str:
    return b64encode(text.encode()).decode()


def _text(encoded: str) -> str:
    return b64decode(encoded).decode()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.feeds", description=__doc__)
    parser.add_argument("--parts", nargs="+", choices=("watchers", "list"), default=("watchers", "list"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--keys", type=int, default=1_000_000)
    return parser


if __name__ == "__main__":
    sys.exit(main())

"""One load test from beginning to end: a cluster, Locust, faults, samples, the audit, the report, a verdict."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loadtest.audit import LOST, Audit
from loadtest.cluster import OwnCluster, free_ports, start_process
from loadtest.evidence import SAMPLE, Follower, audit_run
from loadtest.levels import Judged, Levels
from loadtest.nodes import NodeError, Nodes
from loadtest.report import extend_report
from loadtest.samples import Sampler, read_samples, slopes

PROGRESS_SECONDS = 5.0
_STOP_SECONDS = 30.0
_GRACE_SECONDS = 120.0
"""How much longer than its duration Locust may take, before it is stopped."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    hosts: Sequence[str] = ()
    """The nodes; without any, a cluster of its own is started."""
    nodes: int = 3
    http_port: int = 0
    udp_port: int = 0
    duration: float = 60.0
    users: int = 50
    workers: int = 0
    shape: str = "soak"
    chaos: bool = False
    level: Sequence[str] = ()
    levels: Path | None = None
    output: Path | None = None
    web: bool = False
    sample: int = SAMPLE
    locust: Sequence[str] = field(default=())


def say(text: str) -> None:
    print(text, flush=True)


def run(options: RunOptions) -> int:
    """Returns 0 if all service levels are kept and the audit is good, else 1. Raises `NodeError`."""
    levels = Levels.default(options.chaos)
    if options.levels is not None:
        levels = levels.with_file(options.levels)
    levels = levels.with_flags(options.level)
    output = options.output or Path("build/load") / time.strftime("%Y%m%d-%H%M%S")
    if output.exists() and any(output.iterdir()):
        raise NodeError(f"{output} is not empty: choose another --output, so that two runs are not mixed")
    output.mkdir(parents=True, exist_ok=True)
    with _terminating():
        if options.hosts:
            return 0 if _run_on(list(options.hosts), None, options, levels, output) else 1
        return 0 if _run_on_own_cluster(options, levels, output) else 1


def _run_on_own_cluster(options: RunOptions, levels: Levels, output: Path) -> bool:
    """The nodes' directories are kept if something is wrong, and removed if not or if the run is interrupted."""
    data = Path(tempfile.mkdtemp(prefix="corelkv-load-"))
    say(f"starting {options.nodes} nodes in {data}")
    is_wanted = True
    try:
        with OwnCluster(
            options.nodes, data, output / "cluster.log", options.http_port, options.udp_port
        ) as cluster:
            is_good = _run_on(cluster.urls, cluster.supervisor, options, levels, output)
        is_wanted = not is_good
        return is_good
    except KeyboardInterrupt:
        is_wanted = False
        raise
    finally:
        if is_wanted:
            say(f"the nodes' directories are kept in {data}")
        else:
            shutil.rmtree(data)


def _run_on(urls: list[str], supervisor: int | None, options: RunOptions, levels: Levels, output: Path) -> bool:
    with contextlib.closing(Nodes(urls)) as nodes:
        nodes.learn()
        first = nodes.await_quiet(30.0) + 1
        follower = Follower(urls, output / "feed.tsv", first)
        sampler = Sampler(urls, output / "samples.jsonl", supervisor)
        follower.start()
        sampler.start()
        try:
            _run_locust(locust_command(urls, supervisor, options, output), options, output, sampler)
        finally:
            sampler.stop()
        say("the users have stopped; waiting until everything is green everywhere")
        nodes.heal_if_disturbed()
        follower.stop(nodes.await_quiet(90.0, lambda problem: None))
        audit = audit_run(output, nodes, say, options.sample)
    return _conclude(audit, levels, options, output, follower.problem)


def locust_command(urls: Sequence[str], supervisor: int | None, options: RunOptions, output: Path) -> list[str]:
    command = [
        *(sys.executable, "-m", "locust", "-f", str(Path(__file__).parent / "locustfile.py")),
        *("--host", ",".join(urls), "--record", str(output), "--html", str(output / "report.html")),
        *("--users", str(options.users), "--run-time", f"{options.duration:g}s", "--stop-timeout", "10"),
        *("--shape", options.shape, "--only-summary", "--loglevel", "WARNING"),
    ]
    command += ["--web-host", "127.0.0.1", "--autostart", "--autoquit", "1"] if options.web else ["--headless"]
    if options.chaos:
        command += ["--chaos", *(["--supervisor", str(supervisor)] if supervisor else [])]
    if options.workers:
        port = str(free_ports(1))
        command += ["--processes", str(options.workers), "--master-bind-port", port, "--master-port", port]
    return [*command, *options.locust]


def _run_locust(command: list[str], options: RunOptions, output: Path, sampler: Sampler) -> None:
    """Runs Locust until it ends, and shows how it goes. Raises `NodeError` if it fails."""
    with open(output / "locust.log", "wb") as log:
        process = start_process(command, log)
    began = time.monotonic()
    faults_shown = 0
    try:
        while process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(PROGRESS_SECONDS)
            elapsed = time.monotonic() - began
            faults = read_faults(output)
            for fault in faults[faults_shown:]:
                say(f"{'':>7}  -- {fault['text']}")
            faults_shown = len(faults)
            say(progress_line(elapsed, output, sampler.latest))
            if elapsed > options.duration + _GRACE_SECONDS:
                raise NodeError(f"Locust did not end in time; {output}/locust.log may say why")
    finally:
        _stop(process)
    if process.returncode != 0:
        raise NodeError(f"Locust ended with status {process.returncode}; {output}/locust.log says why")


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # workers that a master has left behind


def progress_line(elapsed: float, output: Path, latest: dict[str, dict[str, Any]]) -> str:
    now: dict[str, Any] = {}
    with contextlib.suppress(OSError, ValueError):
        now = json.loads((output / "progress.json").read_text())
    nodes = ", ".join(_brief(name, sample) for name, sample in sorted(latest.items()))
    load = "starting"
    if now:
        load = (
            f"{now['users']} users, {now['requests_per_second']:,.0f} requests/s, "
            f"p99 {now['p99_ms']:.0f} ms, {now['failures']:,} failures"
        )
    return f"{elapsed:6.0f}s  {load}; {nodes}"


def _brief(name: str, sample: dict[str, Any]) -> str:
    red = f" ({sample['red']} red)" if sample.get("red") else ""
    return f"{name} {sample['state']}{red}"


def read_faults(output: Path) -> list[dict[str, Any]]:
    path = output / "faults.jsonl"
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]


def _conclude(audit: Audit, levels: Levels, options: RunOptions, output: Path, feed_problem: str | None) -> bool:
    """Writes the summary and the report, and says how it went."""
    statistics = json.loads((output / "statistics.json").read_text())
    judged = levels.judge(statistics["rows"], audit.offences(LOST))
    samples = read_samples(output / "samples.jsonl")
    problems = [f"a user failed: {text}" for text in statistics["exceptions"]]
    if feed_problem:
        problems.append(f"the feed that was followed: {feed_problem}")
    is_good = audit.is_good and not problems and all(one.is_kept for one in judged)
    chosen = ("users", "duration", "shape", "chaos", "workers")
    summary = {
        "verdict": "good" if is_good else "bad",
        "options": {name: getattr(options, name) for name in chosen},
        "levels": [{"name": one.name, "limit": one.limit, "measured": one.measured} for one in judged],
        "missed": [one.name for one in judged if not one.is_kept],
        "audit": {one.check: {"offences": one.count, "first": list(one.offences)} for one in audit.verdicts},
        "problems": problems,
        "writes": audit.counts,
        "delays": audit.delays,
        "growth": slopes(samples),
        "faults": read_faults(output),
        "statistics": statistics,
    }
    (output / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    extend_report(output / "report.html", summary, samples)
    _show(audit, judged, summary, output)
    return is_good


def _show(audit: Audit, judged: Sequence[Judged], summary: dict[str, Any], output: Path) -> None:
    total = summary["statistics"]["rows"]["all requests"]
    say(
        f"\n{total['requests']:,} requests, {total['requests_per_second']:,.0f}/s, p50 {total['p50_ms']} ms, "
        f"p99 {total['p99_ms']} ms, {total['failures']:,} failures, {len(summary['faults'])} faults"
    )
    if len(phases := summary["statistics"].get("phases", [])) > 1:
        for phase in phases:
            say(
                f"  {phase['users']:>4} users for {phase['seconds']:.0f} s: {phase['requests_per_second']:,.0f} "
                f"requests/s, p50 {phase['p50_ms']} ms, p99 {phase['p99_ms']} ms, {phase['failures']:,} failures"
            )
    say("writes: " + ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in audit.counts.items()))
    for what, delay in audit.delays.items():
        say(f"{what}: p50 {delay['p50_ms']:,.0f} ms, p99 {delay['p99_ms']:,.0f} ms, max {delay['max_ms']:,.0f} ms")
    say("service levels:")
    for one in judged:
        say(f"  {one}")
    say("audit:")
    for line in audit.lines():
        say(line)
    for problem in summary["problems"]:
        say(f"  FAILED {problem}")
    for name, growth in summary["growth"].items():
        say(
            f"{name}: {growth['anonymous_bytes'] / 2**20:.1f} MiB of memory, growing by "
            f"{growth['anonymous_bytes_per_minute'] / 2**20:+.2f} MiB/min; {growth['descriptors']} file "
            f"descriptors, {growth['descriptors_per_minute']:+.1f}/min (over {growth['seconds']} s)"
        )
    say(f"{summary['verdict'].upper()}; {output}/report.html, {output}/summary.json, {output}/record/")


@contextlib.contextmanager
def _terminating() -> Iterator[None]:
    """While a run goes on, SIGTERM ends it as Ctrl-C does, so that what was started is stopped."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)

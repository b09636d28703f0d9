"""`corelkv analyze`: runs the jobs over everything below some directories, and writes what they found.

    OUT/report.html              one page with plots and tables, which needs nothing else
    OUT/summary.json             the verdict, what was read, and all small frames
    OUT/results/<job>/<frame>    every frame, as Parquet

Jobs are lazy; each frame is written once, and what the page and the summary show is read back from there, so that
nothing is computed twice and nothing large comes to the driver."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from spark.audit import Verdict, audit
from spark.audit.rules import RULES
from spark.clocks import clocks
from spark.events import answers, message_events
from spark.files import Files
from spark.latency import latency
from spark.lines import lines
from spark.network import network
from spark.partitions import partitions
from spark.reading import Inputs, read_sources
from spark.report.figures import Row
from spark.report.page import Page, render
from spark.report.sections import audit_section, inputs_section, sections
from spark.session import fit
from spark.sources import SourceError, find
from spark.workload import workload

JOBS = ("audit", "latency", "partitions", "network", "workload")

ROWS_MAX = 20_000
"""Most rows of one frame that come to the driver, for the page."""

SUMMARY_ROWS_MAX = 1_000
"""Most rows of a frame that the summary has."""

CLUSTERS_MAX = 8
"""Most clusters that the page has sections of; the results have all."""

TOLD_MAX = 5
"""Most findings of a kind that are told on a terminal."""

Tell = Callable[[str], None]
"""Takes what is being done now."""

_VERDICTS = {
    Verdict.AGREED: ("The logs prove that the replicas agreed.", "good"),
    Verdict.VIOLATED: ("The logs show that a rule was broken.", "bad"),
    Verdict.NOT_PROVABLE: ("Nothing contradicts, but the logs do not prove everything.", "open"),
    None: ("There was no audit.", "open"),
}


@dataclass(frozen=True, slots=True)
class Request:
    """What to analyse, and where to write."""

    directories: Sequence[str]
    out: str
    jobs: Sequence[str] = JOBS
    previous: str | None = None
    """Where an earlier analysis of the same clusters was written: this one must continue its digests."""


@dataclass(frozen=True, slots=True)
class Analysis:
    """What came of it."""

    verdict: Verdict | None
    """None if there was no audit."""
    lines: Sequence[str]
    """What to tell a person, line by line."""
    report: str


@dataclass(slots=True)
class _Results:
    """Writes frames, and keeps the rows of each that the page and the summary have."""

    spark: SparkSession
    out: str
    rows: dict[str, list[Row]] = field(default_factory=dict)
    totals: dict[str, int] = field(default_factory=dict)

    def add(self, job: str, frames: Mapping[str, DataFrame]) -> None:
        for name, frame in frames.items():
            path = f"{self.out}/results/{job}/{name}"
            frame.repartition(1).write.mode("overwrite").parquet(path)
            written = self.spark.read.schema(frame.schema).parquet(path)
            rows: list[Row] = [row.asDict(recursive=True) for row in written.limit(ROWS_MAX).collect()]
            self.rows[f"{job}.{name}"] = rows
            self.totals[f"{job}.{name}"] = len(rows) if len(rows) < ROWS_MAX else written.count()


def analyze(spark: SparkSession, request: Request, tell: Tell = lambda name: None) -> Analysis:
    """Runs the jobs. Raises `SourceError` if a directory cannot be read, or nothing is in any of them."""
    results = _Results(spark, request.out.rstrip("/"))
    verdict: Verdict | None = None
    with _work_directory(spark, results.out) as work:
        tell("reading")
        found = find(spark, request.directories)
        if found.is_empty:
            raise SourceError(f"there are no journals, exports or records below {', '.join(request.directories)}")
        fit(spark, found.bytes)
        inputs = read_sources(spark, found, work)
        results.add("inputs", {"manifests": inputs.manifests, "skipped": inputs.skipped})
        if "audit" in request.jobs:
            tell("audit")
            earlier = _earlier_lines(spark, request.previous)
            judged = audit(spark, inputs, f"{work}/audit", earlier, progress=lambda rule: tell(f"audit: {rule}"))
            verdict = judged.verdict()
            results.add("audit", judged.frames(spark))
        for name, frames in _other_jobs(inputs, request.jobs):
            tell(name)
            results.add(name, frames())
    tell("report")
    return Analysis(verdict, _told(results, verdict), _write_report(results, request, verdict))


def steps_of(jobs: Sequence[str]) -> int:
    """Returns how often `analyze` says what it does."""
    of_audit = 3 + len(RULES) if "audit" in jobs else 0
    others = len(set(jobs) - {"audit"})
    return 2 + of_audit + (2 + others if others else 0)


def _other_jobs(
    inputs: Inputs, wanted: Sequence[str]
) -> Iterator[tuple[str, Callable[[], Mapping[str, DataFrame]]]]:
    """Yields each job but the audit, with what makes its frames."""
    if not set(wanted) - {"audit"}:
        return
    events, told = message_events(inputs.records), answers(inputs.records)
    found = clocks(events)
    timeline = found.timeline
    yield "clocks", lambda: {"nodes": found.nodes, "offsets": found.offsets, "pairs": found.pairs}
    yield "lines", lambda: {"lines": lines(inputs.records, timeline)}
    jobs: dict[str, Callable[[], Any]] = {
        "latency": lambda: latency(events, told, timeline, inputs.records),
        "partitions": lambda: partitions(inputs.records, timeline),
        "network": lambda: network(inputs.records, timeline),
        "workload": lambda: workload(inputs.logs, inputs.records, events, told, timeline),
    }
    for name, run in jobs.items():
        if name in wanted:
            yield name, lambda run=run: _frames(run())  # type: ignore[misc]


def _frames(result: Any) -> dict[str, DataFrame]:
    """Returns the frames of what a job yields, by name."""
    return {one.name: getattr(result, one.name) for one in fields(result)}


def _earlier_lines(spark: SparkSession, previous: str | None) -> DataFrame | None:
    if previous is None:
        return None
    return spark.read.parquet(f"{previous.rstrip('/')}/results/audit/lines")


@contextmanager
def _work_directory(spark: SparkSession, out: str) -> Iterator[str]:
    """A directory for copies, which goes when the block ends."""
    work = f"{out}/_work"
    try:
        yield work
    finally:
        Files(spark, work).delete(work)


def _write_report(results: _Results, request: Request, verdict: Verdict | None) -> str:
    """Writes the page and the summary, and returns where the page is."""
    page = Page("corelkv: replication logs", *_VERDICTS[verdict], _told(results, verdict))
    if verdict is not None:
        page.sections.append(audit_section(results.rows))
    clusters = sorted({row["cluster"] for rows in results.rows.values() for row in rows})
    for cluster in clusters[:CLUSTERS_MAX]:
        page.sections.extend(sections(cluster, results.rows))
    page.sections.append(inputs_section(results.rows, request.directories, clusters[CLUSTERS_MAX:]))
    report = f"{results.out}/report.html"
    files = Files(results.spark, results.out)
    files.write(report, render(page))
    summary = {
        "version": 1,
        "verdict": verdict,
        "inputs": list(request.directories),
        "rows": results.totals,
        "frames": {name: rows for name, rows in results.rows.items() if len(rows) <= SUMMARY_ROWS_MAX},
    }
    files.write(f"{results.out}/summary.json", json.dumps(summary, default=str, ensure_ascii=False))
    return report


def _told(results: _Results, verdict: Verdict | None) -> list[str]:
    """Returns what a person is told first."""
    if verdict is None:
        return list(_latencies_told(results.rows))
    return [
        f"verdict: {verdict}. {_VERDICTS[verdict][0]}",
        *_audit_told(results.rows),
        *_latencies_told(results.rows),
    ]


def _audit_told(rows: Mapping[str, Sequence[Row]]) -> Iterator[str]:
    for row in rows["audit.counts"]:
        yield f"  {_of(row)}{row['rule']}: {row['count']:,} violations"
    for row in rows["audit.violations"][:TOLD_MAX]:
        where = "" if row["position"] is None else f" at position {row['position']:,}"
        yield f"  {_of(row)}{row['rule']}{where}: {row['id'] or ''} {row['detail'] or ''}".rstrip()
    for row in rows["audit.incomplete"][:TOLD_MAX]:
        yield f"  not provable: {_of(row)}{row['rule']}, {row['node'] or 'all nodes'}: {row['what']}"
    for row in rows["inputs.skipped"][:TOLD_MAX]:
        yield f"  left out: {row['count']:,} {row['what']} ({row['file']})"


def _latencies_told(rows: Mapping[str, Sequence[Row]]) -> Iterator[str]:
    for row in rows.get("latency.latencies", ()):
        if (row["dimension"], row["path"], row["step"]) == ("all", "sender", "sent → answered"):
            percentiles = ", ".join(f"{name} {row[f'{name}_ms']:.2f} ms" for name in ("p50", "p99", "max"))
            yield f"{_of(row)}sent to answered, green at once: {row['messages']:,} messages, {percentiles}"


def _of(row: Row) -> str:
    return f"{row['cluster']}: " if row["cluster"] else ""

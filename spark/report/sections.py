"""The sections of the report, from the rows of summary frames: what each shows, in which order, and how it is to
be read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TypeAlias

import plotly.graph_objects as go

from spark.report import figures
from spark.report.figures import Row
from spark.report.page import Section, Table, table_of

Summaries: TypeAlias = Mapping[str, Sequence[Row]]
"""Rows by the name of their frame, `<job>.<frame>`."""

_Frames: TypeAlias = Callable[[str], Sequence[Row]]
_Content: TypeAlias = tuple[Sequence[go.Figure | None], Sequence[Table]]

_PERCENTILES = "messages mean_ms p50_ms p90_ms p99_ms p999_ms max_ms"

_PATHS = """sender: at the node that sent the message; remote: at another; cluster: as the slowest node takes it;
red: sent without a primary component, and green through a merge; interrupted: its primary component ended first;
recovered: got from others in a recovery."""

_CLOCKS = """How far each wall clock is ahead of the reference's, as estimated from messages in both directions. It
is removed from everything else on this page."""

_MERGES = """merge ms: from the common view until everything is green everywhere. moved: messages that did not keep
the place with which they were accepted, and by how many places at the most. red backlog: the most that one member
had."""


_CHECKED = """What each rule has looked at: a rule that is silent because nothing was there is not one that is
kept."""


def audit_section(summaries: Summaries) -> Section:
    """Returns the section that says which rules are kept in all clusters."""
    of = partial(_rows_of, summaries)
    return Section(
        "Audit",
        tables=[
            table_of("Verdicts", of("audit.verdicts"), "cluster verdict"),
            table_of("Violations", of("audit.counts"), "cluster rule count"),
            table_of("The first of them", of("audit.violations"), "cluster rule position id nodes detail"),
            table_of(
                "What happened to these messages",
                [{**row, "time": _time(row["wall_ms"])} for row in of("audit.histories")],
                "cluster id time node incarnation event color position revision view",
            ),
            table_of("What cannot be proven", of("audit.incomplete"), "cluster rule node what count"),
            table_of("What was checked", of("audit.checked"), "cluster rule what count", _CHECKED),
            table_of("Digests of the order", of("audit.lines"), "cluster line digest nodes"),
        ],
    )


def inputs_section(summaries: Summaries, directories: Sequence[str], not_shown: Sequence[str]) -> Section:
    """Returns the section that says what was read."""
    note = f"Read: {', '.join(directories)}."
    if not_shown:
        note += f" Not on this page, but among the results: {len(not_shown):,} more clusters."
    exports = [
        {**row, "exported_at": _time(row["exported_ms"])} for row in _rows_of(summaries, "inputs.manifests")
    ]
    return Section(
        "Inputs",
        tables=[
            table_of("Left out", _rows_of(summaries, "inputs.skipped"), "cluster file what count"),
            table_of("Exports", exports, "cluster node number exported_at final green yellow length"),
        ],
        note=note,
    )


def _rows_of(summaries: Summaries, frame: str) -> Sequence[Row]:
    return summaries.get(frame, [])


def sections(cluster: str, summaries: Summaries) -> list[Section]:
    """Returns the sections of one cluster."""
    mine = {name: [row for row in rows if row["cluster"] == cluster] for name, rows in summaries.items()}
    before = f"{cluster}: " if cluster else ""
    made = {name: make(partial(_rows_of, mine)) for name, make in _SECTIONS.items()}
    return [
        Section(f"{before}{name}", shown, [table for table in tables if table.rows])
        for name, (shown, tables) in made.items()
    ]


def _lines(of: _Frames) -> _Content:
    rows = of("lines.lines")
    return [figures.lines(rows), figures.backlog(rows)], []


def _latency(of: _Frames) -> _Content:
    rows = of("latency.latencies")
    steps = sorted((row for row in rows if row["dimension"] == "all"), key=_by("path", "step"))
    answered = [row for row in rows if (row["path"], row["step"]) == ("sender", "sent → answered")]
    split = [row for row in answered if row["dimension"] in ("node", "size")]
    return [figures.latency_over_time(rows), figures.waterfall(of("latency.waterfall"))], [
        table_of("Every step", steps, f"path step {_PERCENTILES}", _PATHS),
        table_of(
            "From sent to answered, by node and by size",
            sorted(split, key=_by("dimension", "rank", "value")),
            f"dimension value {_PERCENTILES}",
        ),
        table_of(
            "Clocks",
            sorted(of("clocks.nodes"), key=_by("node")),
            "node state offset_ms error_ms drift_ppm",
            _CLOCKS,
        ),
    ]


def _partitions(of: _Frames) -> _Content:
    merges = [
        {**row, "merged_at": _time(row["merged_ms"])}
        for row in sorted(of("partitions.merges"), key=_by("merged_ms"))
    ]
    primaries = [
        {**row, "attempted_at": _time(row["attempted_ms"])}
        for row in sorted(of("partitions.primaries"), key=_by("number", "attempted_ms"))
    ]
    outages = [
        {**row, "from": _time(row["from_ms"])} for row in sorted(of("partitions.outages"), key=_by("from_ms"))
    ]
    stages, components = of("partitions.stages"), of("partitions.components")
    return [figures.stage_timeline(stages), figures.component_timeline(components)], [
        table_of(
            "Merges, and what the partitions before them cost",
            merges,
            "merged_at members components apart_ms merge_ms red_messages red_backlog moved distance_max demoted "
            "outcomes_changed",
            _MERGES,
        ),
        table_of("Primary components", primaries, "number state members attempted_at reasons"),
        table_of("Times without a primary component", outages, "from duration_ms kind"),
        table_of(
            "Stages",
            sorted(of("partitions.node_stages"), key=_by("node", "stage")),
            "node stage times duration_ms share",
        ),
        table_of("Outcomes changed by merges", of("partitions.outcomes_changed"), "kind outcome prefix writes"),
    ]


def _network(of: _Frames) -> _Content:
    links = sorted(of("network.links"), key=_by("sender", "receiver"))
    return [figures.link_heat_map(links)], [
        table_of(
            "Links",
            links,
            "sender receiver packets bytes lost_packets loss nacks retransmissions duplicates dropped",
        ),
        table_of(
            "Flow control",
            _summed(of("network.blocked"), ("node", "reason"), ("times", "blocked_ms")),
            "node reason times blocked_ms",
        ),
        table_of(
            "Dropped datagrams",
            _summed(of("network.dropped"), ("sender", "receiver", "reason"), ("datagrams",)),
            "sender receiver reason datagrams",
        ),
    ]


def _workload(of: _Frames) -> _Content:
    shown = [
        figures.rates(of("workload.rates")),
        figures.hot_keys(of("workload.keys")),
        figures.operation_mix(of("workload.mix")),
    ]
    return shown, [
        table_of(
            "Outcomes",
            sorted(of("workload.outcomes"), key=_by("source", "node", "outcome")),
            "source node outcome writes",
            "log: what became of each write; journal: what clients were told.",
        ),
        table_of(
            "Writes",
            sorted(of("workload.writes"), key=_by("node")),
            "node messages writes operations transactions conditional with_otherwise keep_green idempotent",
        ),
        table_of("Sizes", sorted(of("workload.sizes"), key=_by("what", "rank")), "what size count bytes largest"),
        table_of(
            "Conflicts",
            sorted(of("workload.conflicts"), key=_by("node", "prefix")),
            "node prefix writes applied rejected yielded expired duplicate undecided changed_by_merge "
            "conflict_rate",
        ),
    ]


_SECTIONS: Mapping[str, Callable[[_Frames], _Content]] = {
    "Lines": _lines,
    "Latency": _latency,
    "Partitions": _partitions,
    "Network": _network,
    "Workload": _workload,
}


def _by(*names: str) -> Callable[[Row], tuple[tuple[bool, str | float], ...]]:
    """Sorts by these columns; rows where one is null come last."""
    return lambda row: tuple((row[name] is None, "" if row[name] is None else row[name]) for name in names)


def _summed(rows: Iterable[Row], keys: Sequence[str], values: Sequence[str]) -> list[Row]:
    """Adds up what is told by window."""
    totals: dict[tuple[str, ...], list[float]] = {}
    for row in rows:
        total = totals.setdefault(tuple(str(row[key]) for key in keys), [0] * len(values))
        for place, value in enumerate(values):
            total[place] += row[value] or 0
    return [dict(zip((*keys, *values), (*names, *totals[names]), strict=True)) for names in sorted(totals)]


def _time(ms: float | None) -> str:
    if ms is None:
        return ""
    return datetime.fromtimestamp(ms / 1_000.0, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]

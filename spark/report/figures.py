"""The plots of the report, each from the rows of one or two summary frames.

A function returns None where there is nothing to show. Names come from users (keys) and from journals (reasons):
`plain` keeps them from being taken for markup, which plotly knows a little of."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias

import plotly.graph_objects as go

Row: TypeAlias = Mapping[str, Any]

GREEN, YELLOW, RED, BLUE, GREY = "#2e7d32", "#f9a825", "#c62828", "#1565c0", "#757575"
PURPLE, TEAL = "#6a1b9a", "#00838f"
_STAGES = {"primary": GREEN, "establishing": YELLOW, "recovering": BLUE, "non_primary": RED, "down": GREY}
_NODES = (BLUE, "#ef6c00", PURPLE, TEAL, "#5d4037", "#ad1457", "#558b2f", "#283593", "#00695c")
_PERCENTILES = {"p50_ms": TEAL, "p90_ms": BLUE, "p99_ms": PURPLE, "max_ms": GREY}

BARS_MAX = 4_000
"""Most bars of one timeline: a browser draws no more in reasonable time."""


def plain(text: object) -> str:
    """Returns the text as plotly shows it literally."""
    return str(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def moment(ms: float) -> datetime:
    return datetime.fromtimestamp(ms / 1_000.0, UTC)


def latency_over_time(latencies: Sequence[Row]) -> go.Figure | None:
    """Percentiles of the time from sending to answering, over time."""
    rows = _windows(latencies, "sent → answered") or _windows(latencies, "sent → green")
    if not rows:
        return None
    figure = _figure(f"{rows[0]['step']} in a primary component, at the node that was asked", "ms")
    times = [moment(row["rank"]) for row in rows]
    for name, color in _PERCENTILES.items():
        values = [row[name] for row in rows]
        figure.add_scatter(
            x=times, y=values, name=name.removesuffix("_ms"), mode="lines+markers", line_color=color
        )
    return figure.update_yaxes(type="log")


def _windows(latencies: Iterable[Row], step: str) -> list[Row]:
    found = [
        row for row in latencies if (row["dimension"], row["path"], row["step"]) == ("window", "sender", step)
    ]
    return sorted(found, key=lambda row: row["rank"])


def waterfall(rows: Iterable[Row]) -> go.Figure | None:
    """What each step contributes to a message, by the slowest node in each."""
    steps = sorted((row for row in rows if row["path"] == "cluster"), key=lambda row: row["place"])
    if not steps:
        return None
    figure = _figure("From sent to answered, step by step, as the slowest node takes it", None)
    names = [plain(row["step"]) for row in steps]
    for name, color in (("mean_ms", TEAL), ("p99_ms", PURPLE)):
        values = [row[name] for row in steps]
        bases = [sum(max(0.0, before) for before in values[:place]) for place in range(len(values))]
        figure.add_bar(
            y=names,
            x=values,
            base=bases,
            orientation="h",
            name=name.removesuffix("_ms"),
            marker_color=color,
            text=[f"{value:.2f} ms" for value in values],
        )
    return figure.update_layout(barmode="group").update_yaxes(autorange="reversed").update_xaxes(title="ms")


def stage_timeline(stages: Sequence[Row]) -> go.Figure | None:
    """What every node was doing when."""
    rows = sorted(stages, key=lambda row: row["duration_ms"], reverse=True)[:BARS_MAX]
    if not rows:
        return None
    figure = _figure("Stages of the nodes", None)
    for stage, color in _STAGES.items():
        of_stage = [row for row in rows if row["stage"] == stage]
        if of_stage:
            figure.add_bar(
                y=[plain(row["node"]) for row in of_stage],
                base=[moment(row["from_ms"]) for row in of_stage],
                x=[max(row["duration_ms"], 1.0) for row in of_stage],
                orientation="h",
                name=stage,
                marker={"color": color, "line": {"width": 0}},
                hovertext=[plain(f"{row['stage']} ({row['reason']}), view {row['view']}") for row in of_stage],
            )
    figure.update_yaxes(autorange="reversed", categoryorder="category ascending")
    return figure.update_layout(barmode="overlay").update_xaxes(type="date")


def component_timeline(components: Sequence[Row]) -> go.Figure | None:
    """Which components there were when; primary ones are green."""
    rows = sorted(components, key=lambda row: row["duration_ms"], reverse=True)[:BARS_MAX]
    if not rows:
        return None
    figure = _figure("Components: who was connected to whom", None)
    for is_primary, name, color in ((True, "primary component", GREEN), (False, "without a primary", RED)):
        shown = [row for row in rows if (row["primary"] is not None) is is_primary]
        figure.add_bar(
            y=[plain(",".join(row["members"])) for row in shown],
            base=[moment(row["from_ms"]) for row in shown],
            x=[max(row["duration_ms"], 1.0) for row in shown],
            orientation="h",
            name=name,
            marker={"color": color, "line": {"width": 0}},
            hovertext=[plain(f"view {row['view']}, primary {row['primary']}") for row in shown],
        )
    return figure.update_layout(barmode="overlay").update_xaxes(type="date")


def lines(rows: Sequence[Row]) -> go.Figure | None:
    """The green line and the whole queue of every node."""
    figure = _figure("Green lines, and how long the queues were", "messages")
    for node, color, of_node in _by_node(rows):
        times = [moment(row["window_ms"]) for row in of_node]
        for name, dash in (("green", "solid"), ("yellow", "dash"), ("length", "dot")):
            values = [row[name] for row in of_node]
            figure.add_scatter(
                x=times,
                y=values,
                name=f"{node} {name}",
                line={"color": color, "dash": dash},
                connectgaps=True,
                visible=True if name != "yellow" else "legendonly",
            )
    return figure if figure.data else None


def backlog(rows: Sequence[Row]) -> go.Figure | None:
    """How many messages were not green yet."""
    figure = _figure("Messages that were not green yet", "messages")
    for node, color, of_node in _by_node(rows):
        times = [moment(row["window_ms"]) for row in of_node]
        values = [row["waiting"] for row in of_node]
        figure.add_scatter(x=times, y=values, name=node, line_color=color, connectgaps=True)
    return figure if figure.data else None


def rates(rows: Sequence[Row]) -> go.Figure | None:
    """Writes a second by the node that took them."""
    sources = {row["source"] for row in rows}
    source = "log" if "log" in sources else "journal"
    figure = _figure(f"Writes a second, from the {source}", "writes/s")
    for node, color, of_node in _by_node([row for row in rows if row["source"] == source]):
        times = [moment(row["window_ms"]) for row in of_node]
        figure.add_scatter(x=times, y=[row["per_second"] for row in of_node], name=node, line_color=color)
    return figure if figure.data else None


def link_heat_map(links: Sequence[Row]) -> go.Figure | None:
    """How much of what was sent did not arrive the first time, by link."""
    if not links:
        return None
    senders = sorted({row["sender"] for row in links})
    receivers = sorted({row["receiver"] for row in links})
    by_link = {(row["sender"], row["receiver"]): row for row in links}
    loss: list[list[float | None]] = []
    told: list[list[str]] = []
    for sender in senders:
        found = [by_link.get((sender, receiver)) for receiver in receivers]
        loss.append([None if row is None or row["loss"] is None else 100.0 * row["loss"] for row in found])
        told.append(["" if row is None else _link(row) for row in found])
    figure = _figure("Packets that did not arrive the first time, by link", None)
    figure.add_heatmap(
        x=[plain(name) for name in receivers],
        y=[plain(name) for name in senders],
        z=loss,
        text=told,
        texttemplate="%{text}",
        colorscale=[[0.0, "#e8f5e9"], [1.0, RED]],
        zmin=0.0,
        zmax=max([1.0, *(value for row in loss for value in row if value is not None)]),
        colorbar_title="% lost",
    )
    return figure.update_xaxes(title="to").update_yaxes(title="from", autorange="reversed")


def _link(row: Row) -> str:
    loss = "" if row["loss"] is None else f"{row['loss']:.2%} of "
    return f"{loss}{row['packets']:,}<br>{row['nacks']:,} NACKs, {row['duplicates']:,} twice"


def hot_keys(rows: Sequence[Row]) -> go.Figure | None:
    """The keys that were used most."""
    top = sorted(rows, key=lambda row: row["rank"])[:20]
    if not top:
        return None
    figure = _figure("Keys with the most operations", None)
    figure.add_bar(
        y=[plain(row["key"][:60]) for row in top],
        x=[row["operations"] for row in top],
        orientation="h",
        marker_color=TEAL,
        text=[f"{row['share']:.1%}" for row in top],
    )
    return figure.update_yaxes(autorange="reversed", type="category", dtick=1).update_xaxes(title="operations")


def operation_mix(rows: Sequence[Row]) -> go.Figure | None:
    """Operations by kind, in each node."""
    if not rows:
        return None
    summed: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for row in rows:
        summed[row["kind"]][row["node"]] += row["operations"]
    nodes = sorted({row["node"] for row in rows})
    figure = _figure("Operations by kind and node", "operations")
    for kind in sorted(summed):
        figure.add_bar(
            x=[plain(node) for node in nodes], y=[summed[kind][node] for node in nodes], name=plain(kind)
        )
    return figure.update_layout(barmode="stack")


def _by_node(rows: Iterable[Row]) -> list[tuple[str, str, list[Row]]]:
    """Returns each node with a color and its rows in the order of time."""
    of_nodes: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        of_nodes[row["node"]].append(row)
    return [
        (plain(node), _NODES[place % len(_NODES)], sorted(of_nodes[node], key=lambda row: row["window_ms"]))
        for place, node in enumerate(sorted(of_nodes))
    ]


def _figure(title: str, unit: str | None) -> go.Figure:
    figure = go.Figure()
    figure.update_layout(
        title={"text": title, "font": {"size": 15}},
        template="plotly_white",
        height=380,
        margin={"l": 60, "r": 20, "t": 50, "b": 40},
        legend={"orientation": "h", "y": -0.18},
        yaxis_title=unit,
    )
    return figure

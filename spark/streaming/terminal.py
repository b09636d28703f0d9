"""What a follower prints."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from spark.streaming.follower import Told
from spark.streaming.picture import Alert


def as_json(told: Told) -> Iterator[str]:
    """A JSON object a line: nodes, then alerts."""
    for node in told.nodes:
        yield json.dumps({"type": "node", **node})
    for alert in told.alerts:
        yield json.dumps({"type": "alert", "batch": told.batch, **alert._asdict()})


def as_text(told: Told) -> Iterator[str]:
    for node in told.nodes:
        yield _node(node)
    for alert in told.alerts:
        yield _alert(alert)


def _node(node: Mapping[str, Any]) -> str:
    where = f"{node['cluster']}/{node['node']}" if node["cluster"] else node["node"]
    lines = f"green {node['green']:,}  red {node['red']:,}  queue {node['length']:,}"
    stage = node["stage"] or "?"
    return f"{_time(node['wall_ms'])} {where}  {stage}  {lines}  {_lags(node['to_green'])}".rstrip()


def _lags(lags: list[dict[str, Any]]) -> str:
    texts = []
    for lag in sorted(lags, key=lambda one: str(one["color"])):
        way = "to green" if lag["color"] != "red" else "to green after a merge"
        texts.append(f"{lag['messages']:,} {way} in {lag['p50_ms']:.1f} ms (p99 {lag['p99_ms']:.1f})")
    return ", ".join(texts)


def _alert(alert: Alert) -> str:
    where = f"{alert.cluster}: " if alert.cluster else ""
    if alert.is_over:
        return f"{_time(alert.wall_ms)} OVER   {where}{alert.text}"
    return f"{_time(alert.wall_ms)} ALERT  {where}{alert.text}. {alert.advice[:1].upper()}{alert.advice[1:]}."


def _time(wall_ms: float) -> str:
    return datetime.fromtimestamp(wall_ms / 1_000, UTC).strftime("%H:%M:%S")

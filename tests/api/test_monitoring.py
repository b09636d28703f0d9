"""The dashboard and the alert rules in `docs/monitoring` use metrics that there are, and every alert has its
paragraph in the runbook."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.api.cluster import Cluster
from tests.api.scraping import scrape

DOCS = Path(__file__).parent.parent.parent / "docs"
ALERTS = DOCS / "monitoring" / "alerts.yml"
DASHBOARD = DOCS / "monitoring" / "dashboard.json"
RUNBOOK = DOCS / "runbook.md"
ROWS = ("Writes and colours", "Lines", "Group", "Disk", "Network", "HTTP and process")

_METRIC = re.compile(r"\b(?:corelkv|process|python)_[a-z_]+\b")
promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool (Debian: prometheus)")


def rules() -> list[dict[str, Any]]:
    [group] = yaml.safe_load(ALERTS.read_text())["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
    return found


def expressions() -> dict[str, str]:
    """Returns every expression, by where it is."""
    found = {f"alert {rule['alert']}": rule["expr"] for rule in rules()}
    for panel in panels():
        for target in panel.get("targets", ()):
            found[f"panel {panel['title']} {target['refId']}"] = target["expr"]
    return found


@pytest.fixture(scope="module")
def names(cluster: Cluster) -> set[str]:
    """The names of all samples of a node that has served a write. Families without samples are named too."""
    cluster["a"].put("monitored", "value")
    found = scrape(cluster["a"])
    counters = {f"{name}_total" for name, family in found.families.items() if family.type == "counter"}
    return found.names | counters


@pytest.mark.parametrize("where", expressions())
def test_an_expression_uses_metrics_that_there_are(where: str, names: set[str]) -> None:
    used = set(_METRIC.findall(expressions()[where]))
    assert used or where == "alert CorelkvNodeDown"
    assert used <= names


def test_every_alert_has_a_paragraph_in_the_runbook_and_says_where() -> None:
    anchors = {line.removeprefix("### ") for line in RUNBOOK.read_text().splitlines() if line.startswith("### ")}
    alerts = [rule["alert"] for rule in rules()]
    assert len(alerts) == len(set(alerts))
    assert set(alerts) == anchors
    for rule in rules():
        assert rule["annotations"]["runbook"] == f"docs/runbook.md#{rule['alert'].lower()}"
        assert rule["labels"]["severity"] in ("info", "warning", "critical")


def test_what_the_runbook_names_is_there(names: set[str]) -> None:
    text = RUNBOOK.read_text()
    families = {re.sub(r"_(bucket|sum|count)$", "", name) for name in names}
    assert set(_METRIC.findall(text)) <= names | families
    links = re.findall(r"\]\(#([a-z]+)\)", text)
    assert links
    assert set(links) <= {rule["alert"].lower() for rule in rules()}


def test_the_dashboard_has_its_rows_and_panels_that_do_not_overlap() -> None:
    found = panels()
    assert tuple(panel["title"] for panel in found if panel["type"] == "row") == ROWS
    assert len({panel["id"] for panel in found}) == len(found)
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in found)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24


@promtool
def test_promtool_accepts_the_rules() -> None:
    run = subprocess.run(["promtool", "check", "rules", str(ALERTS)], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


@promtool
def test_promtool_parses_every_query_of_the_dashboard(tmp_path: Path) -> None:
    queries = [target["expr"] for panel in panels() for target in panel.get("targets", ())]
    variables = {"$job": "corelkv", "$instance": ".*", "$__rate_interval": "20s"}
    rules_ = []
    for number, query in enumerate(queries):
        for name, value in variables.items():
            query = query.replace(name, value)
        assert "$" not in query
        rules_.append({"record": f"query:{number}", "expr": query})
    path = tmp_path / "queries.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules_}]}))
    run = subprocess.run(["promtool", "check", "rules", str(path)], capture_output=True, text=True, check=False)
    assert (run.returncode, f"{len(queries)} rules found" in run.stdout) == (0, True), run.stdout + run.stderr


@promtool
def test_promtool_accepts_the_metrics(cluster: Cluster) -> None:
    body = cluster["a"].get_path("/metrics").body
    run = subprocess.run(["promtool", "check", "metrics"], input=body, capture_output=True, check=False)
    assert (run.returncode, run.stdout, run.stderr) == (0, b"", b"")


@promtool
def test_the_alerts_fire_when_they_should_and_only_then() -> None:
    cases = Path(__file__).parent / "alert_cases.yml"
    run = subprocess.run(["promtool", "test", "rules", str(cases)], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr

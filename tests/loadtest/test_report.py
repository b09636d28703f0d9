from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from loadtest.charts import Axis, fault_chart, node_chart
from loadtest.report import extend_report, section

FAULTS = [
    {"time_ms": 5_000, "kind": "partition", "text": "partition a,b | c"},
    {"time_ms": 12_000, "kind": "heal", "text": "heal"},
    {"time_ms": 15_000, "kind": "kill", "text": "kill -9 a"},
]

PHASE = {
    "users": 4,
    "second": 0.0,
    "seconds": 24.0,
    "requests": 960,
    "failures": 0,
    "requests_per_second": 40.0,
    "p50_ms": 12,
    "p99_ms": 99,
}


def samples() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for second in range(20):
        lines = {"green": second * 10, "yellow": second % 3, "red": 50 if 6 <= second < 12 else 0}
        found.append({"time_ms": second * 1_000, "node": "a", "state": "primary", **lines})
    found[15] = {"time_ms": 15_000, "node": "a", "state": "down"}
    return found


def test_a_chart_shows_lines_states_and_faults() -> None:
    axis = Axis(samples())
    svg = ElementTree.fromstring(node_chart("a", samples(), FAULTS, axis))
    named = "{http://www.w3.org/2000/svg}"
    assert len(svg.findall(f"{named}polygon")) == 2
    assert len(svg.findall(f"{named}polyline")) == 1
    assert [title.text for title in svg.iter(f"{named}title")] == ["primary", "down", "primary"]
    texts = [text.text for text in svg.iter(f"{named}text")]
    assert "node a" in texts
    assert "52" in texts  # the most that was not green at one time


def test_faults_last_until_they_are_healed() -> None:
    axis = Axis(samples())
    svg = ElementTree.fromstring(fault_chart(FAULTS, axis))
    bars = svg.findall("{http://www.w3.org/2000/svg}rect")
    assert [float(bar.attrib["width"]) > 100 for bar in bars] == [True, False]


def test_a_run_without_samples_has_a_report_too() -> None:
    ElementTree.fromstring(fault_chart([], Axis([])))


def test_the_section_is_added_to_locusts_page_and_escapes_what_it_shows(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text("<html><body><div>Locust</div></body></html>")
    offence = {"offences": 1, "first": ["<script>alert(1)</script> is nowhere in the log"]}
    summary = {
        "verdict": "bad",
        "levels": [{"name": "p99_ms", "limit": 500.0, "measured": 700.0}],
        "missed": ["p99_ms"],
        "audit": {"every write is there": offence},
        "problems": ["a user failed: <b>"],
        "writes": {"acknowledged": 1_234},
        "delays": {"watch": {"count": 3, "p50_ms": 1.0, "p99_ms": 2.0, "max_ms": 3.0}},
        "growth": {},
        "faults": FAULTS,
        "statistics": {"phases": [PHASE]},
    }
    extend_report(page, summary, samples())
    text = page.read_text()
    assert text.index("Locust") < text.index('id="corelkv"') < text.index("</body>")
    assert "<script>" not in text
    assert "<b>" not in text
    assert "&lt;script&gt;" in text
    assert "missed" in text
    assert "1,234" in text
    assert "Phases" not in text


def test_a_run_whose_users_change_has_a_table_of_its_phases() -> None:
    nothing: dict[str, Any] = {name: {} for name in ("audit", "writes", "delays", "growth")}
    summary = {
        **nothing,
        "verdict": "good",
        "levels": [],
        "missed": [],
        "problems": [],
        "faults": [],
        "statistics": {"phases": [PHASE, {**PHASE, "users": 40, "requests_per_second": 1_234.5}]},
    }
    text = section(summary, [])
    assert "<h2>Phases</h2>" in text
    assert '<td class="number">40</td>' in text
    assert '<td class="number">1,234.5</td>' in text

"""Puts what Locust does not know of into its report: the lines, the faults, the audit, the service levels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from loadtest.charts import Axis, fault_chart, node_chart

_STYLE = """
#corelkv { background: #fff; color: #222; font-family: sans-serif; font-size: 14px; max-width: 1200px;
  margin: 2em auto; padding: 1em 2em; }
#corelkv table { border-collapse: collapse; margin: 0.5em 0 1.5em; }
#corelkv th, #corelkv td { border-bottom: 1px solid #ddd; padding: 4px 12px 4px 0; text-align: left;
  vertical-align: top; }
#corelkv td.number { text-align: right; font-variant-numeric: tabular-nums; }
#corelkv .bad { color: #b00020; font-weight: bold; }
#corelkv .good { color: #1b5e20; font-weight: bold; }
#corelkv .verdict { font-size: 1.4em; }
"""


def extend_report(path: Path, summary: dict[str, Any], samples: Sequence[dict[str, Any]]) -> None:
    """Adds a section to the end of Locust's page."""
    page = path.read_text()
    head, end, tail = page.rpartition("</body>")
    if not end:
        head, tail = page, ""
    path.write_text(f"{head}{section(summary, samples)}{end}{tail}")


def section(summary: dict[str, Any], samples: Sequence[dict[str, Any]]) -> str:
    verdict = summary["verdict"]
    parts = [
        f'<style>{_STYLE}</style><section id="corelkv"><h1>corelkv</h1>',
        f'<p class="verdict">Verdict: <span class="{verdict}">{verdict}</span></p>',
        "<h2>Service levels</h2>",
        _table(
            ("level", "measured", "limit", ""),
            (
                (
                    one["name"],
                    one["measured"],
                    one["limit"],
                    _mark(one["name"] not in summary["missed"], "kept", "missed"),
                )
                for one in summary["levels"]
            ),
        ),
        "<h2>Audit</h2>",
        _table(("check", "", "first offences"), map(_check, summary["audit"].items())),
        *(f'<p class="bad">{escape(problem)}</p>' for problem in summary["problems"]),
        *_phases(summary["statistics"].get("phases", [])),
        "<h2>Writes</h2>",
        _table(
            ("what", "how many"), ((name.replace("_", " "), count) for name, count in summary["writes"].items())
        ),
        _table(
            ("delay", "how many", "p50 ms", "p99 ms", "max ms"),
            ((what, *delay.values()) for what, delay in summary["delays"].items()),
        ),
        "<h2>Lines and faults</h2>",
        "<p>For each node, sampled once a second: messages that are not green yet (red above yellow, left scale), "
        "the green line (right scale), and its state. Upright lines are faults, dashed ones heals; what they were "
        "is below.</p>",
        *_charts(summary["faults"], samples),
        "<h2>Growth of the processes over the second half</h2>",
        _table(
            ("node", "over s", "memory MiB", "MiB/min", "with files MiB/min", "descriptors", "descriptors/min"),
            (_growth(name, growth) for name, growth in summary["growth"].items()),
        ),
        "</section>",
    ]
    return "\n".join(parts)


def _phases(phases: Sequence[dict[str, Any]]) -> list[str]:
    """Nothing if the number of users was the same all the time."""
    if len(phases) < 2:
        return []
    names = ("users", "second", "seconds", "requests_per_second", "p50_ms", "p99_ms", "failures")
    heads = ("users", "from s", "for s", "requests/s", "p50 ms", "p99 ms", "failures")
    return ["<h2>Phases</h2>", _table(heads, ([phase[name] for name in names] for phase in phases))]


def _charts(faults: Sequence[dict[str, Any]], samples: Sequence[dict[str, Any]]) -> list[str]:
    axis = Axis(samples)
    names = sorted({sample["node"] for sample in samples})
    return [*(node_chart(name, samples, faults, axis) for name in names), fault_chart(faults, axis)]


def _check(found: tuple[str, dict[str, Any]]) -> tuple[object, ...]:
    check, result = found
    return check, _mark(not result["offences"], "ok", f"{result['offences']} offences"), "; ".join(result["first"])


def _growth(name: str, growth: dict[str, Any]) -> tuple[object, ...]:
    mib = 2**20
    return (
        name,
        growth["seconds"],
        f"{growth['anonymous_bytes'] / mib:.1f}",
        f"{growth['anonymous_bytes_per_minute'] / mib:+.2f}",
        f"{growth['resident_bytes_per_minute'] / mib:+.2f}",
        growth["descriptors"],
        f"{growth['descriptors_per_minute']:+.1f}",
    )


class _Html(str):
    """Text that is HTML already."""


def _mark(is_good: bool, good: str, bad: str) -> _Html:
    kind, text = ("good", good) if is_good else ("bad", bad)
    return _Html(f'<span class="{kind}">{escape(text)}</span>')


def _table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def _cell(content: object) -> str:
    if isinstance(content, _Html):
        return f"<td>{content}</td>"
    if isinstance(content, (int, float)):
        return f'<td class="number">{content:,}</td>'
    return f"<td>{escape('not measured' if content is None else str(content))}</td>"

"""Charts of a run as inline SVG: what each node had that was not green, and how far its green line was, over
time; with its state and the faults beneath. Colours are never alone: every band and line has its name beside
it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import Any

WIDTH = 1_100
LEFT, RIGHT = 70, 80
PLOT = WIDTH - LEFT - RIGHT
HEIGHT = 110
BAND = 16
TEXT = 'font-family="sans-serif" font-size="11" fill="#333"'

GREEN, YELLOW, RED, FAULT = "#2e7d32", "#f9a825", "#c62828", "#6a1b9a"
STATES = {
    "primary": "#a5d6a7",
    "establishing": "#fff59d",
    "recovering": "#ffe082",
    "non_primary": "#ef9a9a",
    "down": "#616161",
}


class Axis:
    """Seconds from the beginning of the run, as places on a chart."""

    def __init__(self, samples: Sequence[dict[str, Any]]) -> None:
        self.began = min((sample["time_ms"] for sample in samples), default=0)
        self.seconds = max(1.0, (max((sample["time_ms"] for sample in samples), default=0) - self.began) / 1000)

    def x(self, time_ms: int) -> float:
        return LEFT + PLOT * min(1.0, max(0.0, (time_ms - self.began) / 1000 / self.seconds))


def node_chart(name: str, samples: Sequence[dict[str, Any]], faults: Sequence[dict[str, Any]], axis: Axis) -> str:
    """Returns the chart of one node."""
    mine = [sample for sample in samples if sample["node"] == name]
    lined = [sample for sample in mine if "green" in sample]
    open_max = max((sample["yellow"] + sample["red"] for sample in lined), default=0) or 1
    green_max = max((sample["green"] for sample in lined), default=0) or 1

    def up(share: float) -> float:
        return 20 + (HEIGHT - 20) * (1 - share)

    parts = [_text(LEFT, 13, f"node {name}", "font-weight='bold'")]
    parts += [_fault_line(fault, axis, HEIGHT) for fault in faults]
    parts.append(_area(lined, axis, lambda sample: up((sample["yellow"] + sample["red"]) / open_max), up(0), RED))
    parts.append(_area(lined, axis, lambda sample: up(sample["yellow"] / open_max), up(0), YELLOW))
    parts.append(_line(lined, axis, lambda sample: up(sample["green"] / green_max), GREEN))
    parts += [
        f'<line x1="{LEFT}" y1="{HEIGHT}" x2="{LEFT + PLOT}" y2="{HEIGHT}" stroke="#999"/>',
        _text(LEFT - 6, up(1) + 4, f"{open_max:,}", "text-anchor='end'"),
        _text(LEFT - 6, up(0), "0", "text-anchor='end'"),
        _text(LEFT - 6, up(0.5), "red, yellow", "text-anchor='end'"),
        _text(LEFT + PLOT + 6, up(1) + 4, f"{green_max:,}"),
        _text(LEFT + PLOT + 6, up(0.5), "green line"),
    ]
    parts += _state_band(mine, axis)
    return _svg(HEIGHT + BAND + 6, parts, f"Lines and states of node {name}")


def fault_chart(faults: Sequence[dict[str, Any]], axis: Axis) -> str:
    """Returns the time axis, and the faults as bars: a fault lasts until the next heal; a kill is a moment."""
    parts = []
    rows = 0
    for number, fault in enumerate(faults):
        if fault["kind"] == "heal":
            continue
        begin = end = axis.x(fault["time_ms"])
        if fault["kind"] != "kill":
            later = [other["time_ms"] for other in faults[number + 1 :] if other["kind"] == "heal"]
            end = axis.x(later[0]) if later else LEFT + PLOT
        y = 8 + 15 * rows
        wide = max(3.0, end - begin)
        rows += 1
        parts.append(f'<rect x="{begin:.1f}" y="{y}" width="{wide:.1f}" height="11" fill="{FAULT}" rx="2"/>')
        is_late = end > LEFT + PLOT * 0.75
        place, anchor = (begin - 6, "end") if is_late else (begin + wide + 6, "start")
        parts.append(_text(place, y + 10, fault["text"], f"text-anchor='{anchor}'"))
    bottom = 16 + 15 * rows
    for second in _ticks(axis.seconds):
        x = LEFT + PLOT * second / axis.seconds
        parts.append(f'<line x1="{x:.1f}" y1="{bottom - 4}" x2="{x:.1f}" y2="{bottom}" stroke="#999"/>')
        parts.append(_text(x, bottom + 12, f"{second:g} s", "text-anchor='middle'"))
    return _svg(bottom + 18, parts, "Faults")


def _state_band(samples: Sequence[dict[str, Any]], axis: Axis) -> list[str]:
    parts = [_text(LEFT - 6, HEIGHT + BAND - 1, "state", "text-anchor='end'")]
    begin = 0
    for number in range(1, len(samples) + 1):
        if number < len(samples) and samples[number]["state"] == samples[begin]["state"]:
            continue
        state = samples[begin]["state"]
        left = axis.x(samples[begin]["time_ms"])
        right = axis.x(samples[number]["time_ms"]) if number < len(samples) else LEFT + PLOT
        title = f"<title>{escape(state)}</title>"
        parts.append(
            f'<rect x="{left:.1f}" y="{HEIGHT + 3}" width="{max(1.0, right - left):.1f}" height="{BAND}" '
            f'fill="{STATES.get(state, "#bbb")}">{title}</rect>'
        )
        if right - left > 7 * len(state):
            color = "#fff" if state == "down" else "#222"
            parts.append(_text(left + 4, HEIGHT + BAND - 1, state.replace("_", "-"), f"style='fill:{color}'"))
        begin = number
    return parts


def _area(
    samples: Sequence[dict[str, Any]], axis: Axis, y: Callable[[dict[str, Any]], float], floor: float, color: str
) -> str:
    if not samples:
        return ""
    points = " ".join(f"{axis.x(sample['time_ms']):.1f},{y(sample):.1f}" for sample in samples)
    first, last = axis.x(samples[0]["time_ms"]), axis.x(samples[-1]["time_ms"])
    ends = f"{first:.1f},{floor:.1f} {points} {last:.1f},{floor:.1f}"
    return f'<polygon points="{ends}" fill="{color}" fill-opacity="0.7"/>'


def _line(samples: Sequence[dict[str, Any]], axis: Axis, y: Callable[[dict[str, Any]], float], color: str) -> str:
    points = " ".join(f"{axis.x(sample['time_ms']):.1f},{y(sample):.1f}" for sample in samples)
    return f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="1.5"/>'


def _fault_line(fault: dict[str, Any], axis: Axis, height: int) -> str:
    x = axis.x(fault["time_ms"])
    dash = "4 3" if fault["kind"] == "heal" else "none"
    return f'<line x1="{x:.1f}" y1="18" x2="{x:.1f}" y2="{height}" stroke="{FAULT}" stroke-dasharray="{dash}"/>'


def _ticks(seconds: float) -> list[float]:
    step = next((step for step in (1, 2, 5, 10, 20, 30, 60, 120, 300) if seconds / step <= 12), 600)
    return [float(second) for second in range(0, int(seconds) + 1, step)]


def _text(x: float, y: float, text: str, extra: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {TEXT} {extra}>{escape(text)}</text>'


def _svg(height: float, parts: Sequence[str], label: str) -> str:
    body = "\n".join(part for part in parts if part)
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" width="100%" role="img" aria-label="{escape(label)}" '
        f'xmlns="http://www.w3.org/2000/svg">\n{body}\n</svg>'
    )

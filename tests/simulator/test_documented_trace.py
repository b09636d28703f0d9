"""`docs/trace.md` shows what the command in it prints."""

from __future__ import annotations

from pathlib import Path

from tests.simulator.runner import replay

DOCUMENT = Path(__file__).parents[2] / "docs" / "trace.md"


def test_the_annotated_trace_is_the_trace() -> None:
    shown = [line.strip() for line in DOCUMENT.read_text().splitlines() if line.startswith("    ")]
    command, *events = shown
    assert command.endswith("replay --layer transport --seed 442 --nodes 3")
    printed: list[str] = []
    assert replay("transport", 442, (3, 3), printed.append)
    actual = iter(line.strip() for line in printed)
    for event in events:
        assert event in actual, f"{event!r} does not come next: bring docs/trace.md up to date"
    assert len(events) > 40

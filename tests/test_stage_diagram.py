"""The state diagram in docs/architecture.md is that of the code."""

from __future__ import annotations

import re
from pathlib import Path

from membership.protocol import TRANSITIONS, Stage

ARCHITECTURE = Path(__file__).parent.parent / "docs" / "architecture.md"


def test_the_drawn_stages_are_the_stages_there_are() -> None:
    drawn = set(re.findall(r"^ +(\w+) --> (\w+):", ARCHITECTURE.read_text(), re.MULTILINE))
    assert drawn == {(str(before), str(after)) for before, afters in TRANSITIONS.items() for after in afters}
    assert set(TRANSITIONS) == set(Stage)

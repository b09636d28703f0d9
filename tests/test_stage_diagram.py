"""The state diagrams in docs/architecture.md are those of the code."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

import pytest

from corel import corel
from membership import protocol

ARCHITECTURE = Path(__file__).parent.parent / "docs" / "architecture.md"


@pytest.mark.parametrize(
    ("place", "stages", "transitions"),
    [(0, protocol.Stage, protocol.TRANSITIONS), (1, corel.Stage, corel.TRANSITIONS)],
    ids=["membership", "log"],
)
def test_the_drawn_stages_are_the_stages_there_are(
    place: int, stages: type[StrEnum], transitions: Mapping[StrEnum, tuple[StrEnum, ...]]
) -> None:
    diagram = re.findall(r"```mermaid\n(.*?)```", ARCHITECTURE.read_text(), re.DOTALL)[place]
    drawn = set(re.findall(r"^ +(\w+) --> (\w+):", diagram, re.MULTILINE))
    assert drawn == {(str(before), str(after)) for before, afters in transitions.items() for after in afters}
    assert set(transitions) == set(stages)

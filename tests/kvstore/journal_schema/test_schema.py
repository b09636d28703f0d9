"""The schema is whole, its page says what it says, and every event of the machines is in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from corel.effects import CorelEvent
from kvstore.journal_schema import SCHEMA
from kvstore.journal_schema.document import render_markdown
from membership.effects import MembershipEvent
from tests.journals import Record, faults_of
from transport.effects import TransportEvent

PAGE = Path(__file__).parents[3] / "docs" / "journal.md"


def test_the_page_is_up_to_date() -> None:
    command = "python -m kvstore.journal_schema.document > docs/journal.md"
    assert PAGE.read_text() == render_markdown(), f"bring it up to date: {command}"


def test_every_field_is_used_and_described_and_of_a_known_type() -> None:
    used = {name for event in SCHEMA.events.values() for name in event.fields} | set(SCHEMA.common)
    assert used == set(SCHEMA.fields)
    assert {field.type for field in SCHEMA.fields.values()} == {
        "string",
        "long",
        "double",
        "array<string>",
        "array<long>",
    }
    assert all(field.meaning for field in SCHEMA.fields.values())


@pytest.mark.parametrize("event", [*TransportEvent, *MembershipEvent, *CorelEvent])
def test_every_event_of_a_machine_is_known(event: str) -> None:
    assert event in SCHEMA.events


def test_a_record_that_is_not_as_the_schema_says_is_noticed() -> None:
    common = {"version": 1, "node": "a", "incarnation": 1, "monotonic_ms": 1.0, "wall_ms": 1.0}
    good: Record = {**common, "event": "green", "ids": ["a.1.1"], "position": 3}
    assert list(faults_of(good)) == []
    wrong: list[Record] = [
        {"ids": "a.1.1"},
        {"position": "3"},
        {"sizes": [1]},
        {"event": "greener"},
        {"version": 2},
        {"ids": [1]},
    ]
    assert all(list(faults_of({**good, **one})) for one in wrong)
    assert list(faults_of({name: value for name, value in good.items() if name != "node"}))

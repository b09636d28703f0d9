"""The columns of exported logs are described, and the page says what the code does."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from kvstore.cli.export_files import arrow_type
from kvstore.cli.export_writer import Manifest
from kvstore.log_schema import FIELDS
from kvstore.log_schema.document import _MANIFEST, render_markdown

PAGE = Path(__file__).parents[3] / "docs" / "export.md"


def test_the_page_is_up_to_date() -> None:
    command = "python -m kvstore.log_schema.document > docs/export.md"
    assert PAGE.read_text() == render_markdown(), f"bring it up to date: {command}"


def test_every_column_has_a_type_and_a_meaning() -> None:
    assert all(column.meaning and arrow_type(column.type) for column in FIELDS.values())


def test_every_field_of_a_manifest_is_described() -> None:
    assert list(_MANIFEST) == [field.name for field in fields(Manifest)]


def test_types_are_read_as_spark_spells_them() -> None:
    assert str(arrow_type("array<struct<a:long,b:array<string>,c:binary>>")) == (
        "list<element: struct<a: int64, b: list<element: string>, c: binary>>".replace("element", "item")
    )
    assert str(arrow_type("map<string,long>")) == "map<string, int64>"

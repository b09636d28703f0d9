"""The directory of an exported log: what is in it after each run, and which runs are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from corel import Color
from kvstore.cli import export_writer
from kvstore.cli.export_files import SCHEMA
from kvstore.cli.export_writer import ExportRefused, ExportWriter, Manifest, Place
from kvstore.log_schema import FIELDS, FIRST_DIGEST
from kvstore.node import Row
from tests.kvstore.cli.exports import SOURCE, figures, final_of, final_rows, tail_of, tail_rows


def export(out: Path, rows: list[Row], tail: list[Row] | None = None, bodies: bool = True) -> Manifest:
    tail = tail or []
    end = (rows[-1]["position"] + 1 if rows else 0) + len(tail)
    with ExportWriter(out, SOURCE, bodies) as writer:
        for row in rows[writer.line :]:
            writer.add(row)
        return writer.finish(figures(end, end, end), tail)


def as_read(rows: list[Row]) -> list[Row]:
    """Rows as the files give them: maps are lists of pairs."""
    return [
        {**row, "basis_known": None if row["basis_known"] is None else list(row["basis_known"].items())}
        for row in rows
    ]


@pytest.fixture
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_writer, "SEGMENT_POSITIONS", 8)


def test_the_columns_are_those_of_the_schema(tmp_path: Path) -> None:
    export(tmp_path, final_rows(0, 3))
    assert SCHEMA.names == list(FIELDS)
    path = next(tmp_path.glob("a/log/segment=0/*.parquet"))
    assert path.name == "part-000000000000-000000000002.parquet"
    found = pq.ParquetFile(str(path))
    assert found.schema_arrow.equals(SCHEMA)
    position = found.metadata.row_group(0).column(0)
    assert (position.statistics.min, position.statistics.max, position.compression) == (0, 2, "ZSTD")
    body = found.metadata.row_group(0).column(list(FIELDS).index("body"))
    assert not body.is_stats_set


def test_rows_are_read_as_they_were_written(tmp_path: Path) -> None:
    rows = final_rows(0, 5)
    rows[1]["basis_known"] = {"a.1": 3, "b.7": 1}
    tail = tail_rows(5, [Color.GREEN, Color.YELLOW, Color.RED], rows[-1]["digest"])
    manifest = export(tmp_path, rows, tail)
    assert final_of(tmp_path / "a") == as_read(rows)
    assert tail_of(tmp_path / "a", 1) == as_read(tail)
    assert (manifest.number, manifest.final, manifest.length, manifest.revision) == (1, 5, 8, 5)
    assert manifest.final_digest == rows[-1]["digest"].hex()
    content = json.loads((tmp_path / "a/exports/000001.json").read_text())
    assert content["first_digest"] == FIRST_DIGEST.hex()
    assert {"cluster": "test", "node": "a", "disk": "a disk"}.items() <= content.items()


@pytest.mark.usefixtures("small_segments")
def test_a_later_run_adds_only_what_is_new(tmp_path: Path) -> None:
    rows = final_rows(0, 21)
    export(tmp_path, rows[:5], tail_rows(5, [Color.RED], rows[4]["digest"]))
    before = {path: path.stat() for path in tmp_path.glob("a/log/*/*")}
    manifest = export(tmp_path, rows)
    assert (manifest.number, manifest.final) == (2, 21)
    assert {path: path.stat() for path in before} == before
    names = sorted(f"{path.parent.name}/{path.name[5:-8]}" for path in tmp_path.glob("a/log/*/*"))
    assert names == [
        "segment=0/000000000000-000000000004",
        "segment=0/000000000005-000000000007",
        "segment=1/000000000008-000000000015",
        "segment=2/000000000016-000000000020",
    ]
    assert final_of(tmp_path / "a") == as_read(rows)
    assert tail_of(tmp_path / "a", 1)
    assert not tail_of(tmp_path / "a", 2)


def test_a_log_that_was_cut_begins_where_it_was_cut_also_when_the_cut_moves_on(tmp_path: Path) -> None:
    rows = final_rows(0, 21)
    beginning = Place(5, rows[4]["digest"].hex(), rows[4]["revision"])
    with ExportWriter(tmp_path, SOURCE, beginning=beginning) as writer:
        for row in rows[5:12]:
            writer.add(row)
        first = writer.finish(figures(12, 12, 12), [])
    assert (first.first, first.first_digest, first.final) == (5, rows[4]["digest"].hex(), 12)
    later = Place(9, rows[8]["digest"].hex(), rows[8]["revision"])
    with ExportWriter(tmp_path, SOURCE, beginning=later) as writer:
        assert (writer.line, writer.digest) == (12, rows[11]["digest"])
        for row in rows[12:]:
            writer.add(row)
        second = writer.finish(figures(21, 21, 21), [])
    assert (second.first, second.final, second.final_digest) == (5, 21, rows[20]["digest"].hex())
    assert final_of(tmp_path / "a") == as_read(rows[5:])


def test_after_a_run_without_final_rows_the_next_begins_where_that_ended(tmp_path: Path) -> None:
    rows = final_rows(0, 12)
    beginning = Place(5, rows[4]["digest"].hex(), rows[4]["revision"])
    with ExportWriter(tmp_path, SOURCE, beginning=beginning) as writer:
        writer.finish(figures(5, 5, 5), [])
    later = Place(9, rows[8]["digest"].hex(), rows[8]["revision"])
    with ExportWriter(tmp_path, SOURCE, beginning=later) as writer:
        assert writer.place == beginning


@pytest.mark.usefixtures("small_segments")
def test_a_run_that_does_not_finish_keeps_its_finished_segments_and_nothing_else(tmp_path: Path) -> None:
    rows = final_rows(0, 21)
    with ExportWriter(tmp_path, SOURCE) as writer:
        for row in rows[:13]:
            writer.add(row)
    assert not list(tmp_path.glob("a/exports/*"))
    with ExportWriter(tmp_path, SOURCE) as writer:
        assert (writer.line, writer.revision, writer.digest) == (8, 8, rows[7]["digest"])
    assert export(tmp_path, rows).number == 1
    assert final_of(tmp_path / "a") == as_read(rows)


@pytest.mark.usefixtures("small_segments")
def test_what_a_killed_run_left_is_removed(tmp_path: Path) -> None:
    rows = final_rows(0, 10)
    export(tmp_path, rows, tail_rows(10, [Color.RED], rows[-1]["digest"]))
    left_over = [tmp_path / "a/log/segment=1/_part-000000000010.parquet", tmp_path / "a/exports/_000002.json"]
    left_over += [tmp_path / "a/tail/export=000002/part-000000000010-000000000011.parquet"]
    for path in left_over:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"half")
    with ExportWriter(tmp_path, SOURCE) as writer:
        assert writer.line == 10
    assert [path for path in left_over if path.exists()] == []
    assert export(tmp_path, rows).number == 2
    assert tail_of(tmp_path / "a", 1)


def test_without_bodies_everything_else_is_there(tmp_path: Path) -> None:
    rows = final_rows(0, 2)
    assert not export(tmp_path, rows, bodies=False).bodies
    assert final_of(tmp_path / "a") == [{**row, "body": None} for row in as_read(rows)]


def test_two_runs_at_once_are_refused(tmp_path: Path) -> None:
    with ExportWriter(tmp_path, SOURCE):
        with pytest.raises(ExportRefused, match=r"another export to .* is under way"):
            ExportWriter(tmp_path, SOURCE)
        with ExportWriter(tmp_path, SOURCE._replace(node="b")) as other:
            assert other.line == 0


@pytest.mark.parametrize("name", ["cluster", "disk", "generation"])
@pytest.mark.parametrize("is_finished", [True, False])
def test_another_log_is_refused(tmp_path: Path, name: str, is_finished: bool) -> None:
    export(tmp_path, final_rows(0, 2))
    if not is_finished:
        (tmp_path / "a/exports/000001.json").unlink()
    with pytest.raises(ExportRefused, match=rf"this one is of {name} other\. Export it to another directory"):
        ExportWriter(tmp_path, SOURCE._replace(**{name: "other"}))


def test_a_generation_that_was_not_known_yet_may_become_known(tmp_path: Path) -> None:
    with ExportWriter(tmp_path, SOURCE._replace(generation="00" * 16)) as writer:
        writer.finish(figures(0, 0, 0), [])
    assert export(tmp_path, final_rows(0, 2)).number == 2


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda part: part.unlink(), "positions 0 to 1 are missing"),
        (
            lambda part: part.rename(part.with_name(part.name.replace("00-", "01-"))),
            "positions 0 to 0 are missing",
        ),
        (lambda part: part.write_bytes(part.read_bytes()[:-1]), "cannot be read"),
    ],
)
def test_a_directory_that_others_have_changed_is_refused(
    tmp_path: Path, damage: Callable[[Path], object], why: str
) -> None:
    export(tmp_path, final_rows(0, 2))
    damage(next(tmp_path.glob("a/log/segment=0/*")))
    with pytest.raises(ExportRefused, match=rf"not as the export left it: .*{why}.*Export to another directory"):
        ExportWriter(tmp_path, SOURCE)


def test_another_file_in_the_place_of_the_last_one_is_refused(tmp_path: Path) -> None:
    export(tmp_path / "one", final_rows(0, 2))
    export(tmp_path / "other", final_rows(0, 2, digest=bytes(range(32))))
    (part,) = (tmp_path / "one").glob("a/log/segment=0/*")
    part.write_bytes(next((tmp_path / "other").glob("a/log/segment=0/*")).read_bytes())
    with pytest.raises(ExportRefused, match="is not the file that was written"):
        ExportWriter(tmp_path / "one", SOURCE)


def test_an_export_of_another_version_is_refused(tmp_path: Path) -> None:
    export(tmp_path, [])
    path = tmp_path / "a/exports/000001.json"
    path.write_text(path.read_text().replace('"version": 1', '"version": 99'))
    with pytest.raises(ExportRefused, match="is of version 99"):
        ExportWriter(tmp_path, SOURCE)


def test_rows_must_follow_each_other(tmp_path: Path) -> None:
    rows = final_rows(0, 3)
    with ExportWriter(tmp_path, SOURCE) as writer:
        writer.add(rows[0])
        with pytest.raises(ValueError, match="position 2 cannot follow 0"):
            writer.add(rows[2])
        with pytest.raises(ValueError, match="position 2 cannot follow 0"):
            writer.finish(figures(3, 3, 3), rows[2:])


def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ExportRefused, match="cannot be called"):
        ExportWriter(tmp_path / "out", SOURCE._replace(node="../b"))
    assert list(tmp_path.iterdir()) == []

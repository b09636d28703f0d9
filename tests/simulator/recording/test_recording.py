"""What is recorded of runs is what a real cluster leaves behind, and the runs are those that are not recorded."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.journals import JournalRead, faults_of, read_journal
from tests.simulator.corel.plan import draw_corel_plan
from tests.simulator.corel.run import CorelRun
from tests.simulator.recording.cases import Case, record
from tests.simulator.recording.recording import Recording
from tests.simulator.recording.run import RecordedRun, RecordedStoreRun
from tests.simulator.store.plan import draw_store_plan
from tests.simulator.store.run import StoreRun


def journals_in(cluster: Path) -> Iterator[tuple[str, JournalRead]]:
    """The journals of a cluster, each with the name of its node."""
    for directory in sorted(cluster.glob("disk-*/*/journal")):
        yield directory.parent.name, read_journal(directory)


def greened(journal: JournalRead) -> Iterator[tuple[int, str]]:
    for one in journal.of("green"):
        yield from enumerate(one["ids"], one["position"])


def final_rows(cluster: Path) -> Iterator[tuple[str, int, str]]:
    """The final rows of all exports: where they are, their positions and their messages."""
    for path in sorted(cluster.glob("export-*/*/log/segment=*/*.parquet")):
        for row in pq.ParquetFile(str(path)).read(columns=["position", "id"], use_threads=False).to_pylist():
            yield str(path), row["position"], row["id"]


def test_a_recorded_run_of_the_log_is_the_run_that_is_not_recorded(tmp_path: Path) -> None:
    plan = draw_corel_plan(7, 3, 5)
    plain, recorded = CorelRun(plan), RecordedRun(plan, Recording(tmp_path, "run"))
    plain.run()
    recorded.run()
    assert recorded.random.getstate() == plain.random.getstate()
    assert recorded.world.now == plain.world.now
    assert {what: count for what, count in recorded.coverage.items() if "exports" not in what} == plain.coverage


def test_a_recorded_run_of_the_store_is_the_run_that_is_not_recorded(tmp_path: Path) -> None:
    plan = draw_store_plan(12, 3, 5)
    plain, recorded = StoreRun(plan), RecordedStoreRun(plan, Recording(tmp_path, "run"))
    plain.run()
    recorded.run()
    assert recorded.random.getstate() == plain.random.getstate()
    assert {what: count for what, count in recorded.coverage.items() if "exports" not in what} == plain.coverage


@pytest.mark.parametrize("case", [Case("corel", 9), Case("store", 12)], ids=lambda case: case.name)
def test_journals_are_as_the_schema_says_and_agree_with_exports(case: Case, tmp_path: Path) -> None:
    assert record(case, tmp_path).noticed is None
    cluster = tmp_path / f"cluster={case.name}"
    order: dict[int, str] = {}
    for _, journal in journals_in(cluster):
        assert [fault for one in journal.records for fault in faults_of(one)] == []
        for position, message_id in greened(journal):
            assert order.setdefault(position, message_id) == message_id
    rows = list(final_rows(cluster))
    assert all(order.get(position, message_id) == message_id for _, position, message_id in rows)
    assert len({position for _, position, _ in rows}) > 20


def test_a_store_journals_what_clients_were_told(tmp_path: Path) -> None:
    record(Case("store", 12), tmp_path)
    journals = [journal for _, journal in journals_in(tmp_path / "cluster=store-12")]
    outcomes = {
        outcome for journal in journals for one in journal.of("acknowledged") for outcome in one["outcomes"]
    }
    assert {"applied", "pending"} <= outcomes
    assert any(journal.of("applied") for journal in journals)
    assert any(journal.of("stopped") or journal.of("started")[1:] for journal in journals)


def test_every_generation_is_a_cluster_of_its_own(tmp_path: Path) -> None:
    recorded = record(Case("corel", 8), tmp_path)
    assert recorded.clusters == ("corel-8", "corel-8-g2")
    generations = []
    for cluster in recorded.clusters:
        manifests = (tmp_path / f"cluster={cluster}").glob("export-*/*/exports/*.json")
        found = {json.loads(path.read_text())["generation"] for path in manifests} - {"0" * 32}
        generations.append(found)
        assert any(journals_in(tmp_path / f"cluster={cluster}"))
    assert [len(found) for found in generations] == [1, 1]
    assert generations[0] != generations[1]


def test_a_replaced_disk_takes_its_journal_along(tmp_path: Path) -> None:
    plan = draw_corel_plan(2, 3, 5)
    run = RecordedRun(plan, Recording(tmp_path, "run"))
    run.run()
    assert run.coverage["disks replaced"]
    nodes = [node for node, _ in journals_in(tmp_path / "cluster=run")]
    assert sorted(nodes) == sorted(plan.below.nodes)


def test_a_planted_bug_shows_in_what_is_recorded(tmp_path: Path) -> None:
    case = Case("corel", 6, "priority messages take their place by timestamp")
    assert record(case, tmp_path).noticed is not None
    places: dict[int, set[str]] = {}
    for _, journal in journals_in(tmp_path / f"cluster={case.name}"):
        for position, message_id in greened(journal):
            places.setdefault(position, set()).add(message_id)
    assert any(len(messages) > 1 for messages in places.values())

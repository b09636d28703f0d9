"""The audit is silent on synthetic logs, and convicts them of every violation that is planted.

All are audited at once, each as a cluster of its own."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark.audit import AuditResult, Verdict, audit
from spark.generator import PLANTS, plant
from spark.reading import read

pytestmark = pytest.mark.timeout(900)

CLEAN = "clean"

CONVICTED = {
    "swap": "no_changes_in_green",
    "twice": "no_changes_in_green",
    "overtaken": "causal",
    "missing": "missing_messages",
    "flip": "digests",
    "outcome": "revisions",
    "revision": "revisions",
    "demotion": "colours",
    "primaries": "primaries",
    "told": "acknowledged",
    "lost": "acknowledged",
    "journal-order": "no_changes_in_green",
    "green-demoted": "colours",
}
"""The rule that convicts of each violation; others may, too. Where a node's journal contradicts its exported log,
it has changed what was green."""


@pytest.fixture(scope="module")
def result(spark_session: SparkSession, clean_logs: Path, tmp_path_factory: pytest.TempPathFactory) -> AuditResult:
    root = tmp_path_factory.mktemp("planted")
    for name in (CLEAN, *PLANTS):
        shutil.copytree(clean_logs, root / f"cluster={name}")
        if name != CLEAN:
            plant(spark_session, str(root / f"cluster={name}"), name)
    work = str(root / "work")
    return audit(spark_session, read(spark_session, [str(root)], work), f"{work}/audit")


def rules(result: AuditResult, cluster: str) -> set[str]:
    return {row["rule"] for row in result.violations if row["cluster"] == cluster}


def test_clean_logs_are_proven_to_agree(result: AuditResult) -> None:
    assert rules(result, CLEAN) == set()
    assert [row for row in result.incomplete if row["cluster"] == CLEAN] == []
    assert result.verdict(CLEAN) is Verdict.AGREED


@pytest.mark.parametrize("name", sorted(PLANTS))
def test_a_planted_violation_is_convicted(result: AuditResult, name: str) -> None:
    assert CONVICTED[name] in rules(result, name)
    assert result.verdict(name) is Verdict.VIOLATED

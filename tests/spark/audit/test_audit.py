"""Each rule catches its planted violation, names it, and is silent on a clean history."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from pyspark.sql import Row

from spark.audit import AuditResult, Verdict
from tests.spark.audit.planted import PLANTED


class Offence(NamedTuple):
    """A violation that must be found."""

    rule: str
    position: int | None
    id: str | None
    nodes: tuple[str, ...] | None
    """None if the rule does not name nodes."""


VIOLATED = {
    "two_messages_swapped_in_an_export": [
        Offence("no_changes_in_green", 3, "a.1.2", ("a", "b", "c")),
        Offence("no_changes_in_green", 4, "a.1.2", ("a", "b", "c")),
    ],
    "two_messages_swapped_in_a_journal": [Offence("no_changes_in_green", 5, "a.1.3", ("a", "b", "c"))],
    "two_messages_swapped_at_a_node": [Offence("agreed_green", 5, "a.1.3", ("a", "b", "c"))],
    "green_changed_between_exports": [Offence("no_changes_in_green", 7, "a.1.4", ("a", "b", "c"))],
    "another_body_at_one_node": [Offence("no_changes_in_green", 4, "b.1.2", ("a", "b", "c"))],
    "a_message_twice": [Offence("one_position", 0, "a.1.1", None)],
    "a_message_missing": [Offence("missing_messages", 2, "c.1.1", ("b",))],
    "a_file_damaged": [Offence("damaged_files", 0, None, ("b",)), Offence("missing_messages", 0, "a.1.1", ("b",))],
    "a_byte_flipped_in_a_body": [Offence("digests", 4, "b.1.2", ("c",))],
    "a_byte_flipped_in_a_digest": [Offence("digests", 4, "b.1.2", ("c",)), Offence("digests", 5, "a.1.3", ("c",))],
    "a_manifest_with_another_digest": [Offence("digests", 8, None, ("c",))],
    "another_order_before_a_cut": [Offence("digests", 1, None, ("c",))],
    "another_digest_than_an_earlier_audit": [Offence("digests", 3, None, ("a",))],
    "a_basis_that_is_not_met": [Offence("causal", 1, "b.1.1", None)],
    "a_basis_that_nobody_has": [Offence("causal", 1, "b.1.1", None)],
    "a_gap_in_a_stream_of_a_truncated_log": [Offence("causal", 3, "c.1.9", None)],
    "a_stream_out_of_order": [Offence("causal", 8, "c.1.3", None)],
    "a_message_sent_after_one_that_follows_it": [Offence("causal", 2, "c.1.1", ("c",))],
    "a_message_sent_after_one_that_is_nowhere": [Offence("causal", 2, "c.1.1", ("c",))],
    "a_message_sent_before_what_an_earlier_incarnation_had_logged": [Offence("causal", 9, "c.1.3", ("c",))],
    "a_message_recovered_after_one_that_needs_it": [Offence("causal", None, "c.1.3", ("a",))],
    "a_logged_message_lost": [Offence("durable", None, "b.1.4", ("a",))],
    "messages_forgotten_at_a_start": [Offence("durable", 3, None, ("a",))],
    "two_primaries_of_one_number": [Offence("primaries", None, None, ("a", "b", "c"))],
    "a_primary_without_a_majority": [Offence("primaries", None, None, ("c",))],
    "consecutive_primaries_without_a_common_member": [Offence("primaries", None, None, ("a", "b", "c"))],
    "a_yellow_line_too_low": [Offence("yellow", 4, None, ("c",))],
    "a_yellow_zone_with_another_message": [
        Offence("yellow", 9, "c.1.4", ("b",)),
        Offence("yellow", 10, "c.1.3", ("b",)),
    ],
    "a_green_message_demoted_elsewhere": [Offence("yellow", 4, "b.1.2", ("c",))],
    "an_exported_yellow_message_where_another_is_green": [Offence("yellow", 5, "c.1.2", ("c",))],
    "green_made_red": [Offence("colours", 5, "a.1.3", ("c",))],
    "red_without_being_demoted": [Offence("colours", None, "c.1.2", ("c",))],
    "demoted_without_a_recovery": [Offence("colours", None, "c.1.2", ("c",))],
    "exported_red_without_being_demoted": [Offence("colours", 5, "c.1.2", ("c",))],
    "another_revision_at_one_node": [Offence("revisions", 7, "a.1.4", ("a", "b", "c"))],
    "another_outcome_in_one_export": [Offence("revisions", 4, "b.1.2", ("a", "b", "c"))],
    "another_outcome_than_was_told": [Offence("acknowledged", 4, "b.1.2", ("b",))],
    "another_revision_than_was_told": [Offence("acknowledged", 4, "b.1.2", ("b",))],
    "fewer_writes_than_were_told": [Offence("acknowledged", 3, "a.1.2", ("a",))],
    "an_acknowledged_write_lost": [Offence("acknowledged", None, "a.1.77", ("a",))],
    "a_pending_write_lost": [Offence("acknowledged", None, "c.1.77", ("c",))],
}

NOT_PROVABLE = {
    "a_line_that_is_not_exported": "digests",
    "red_where_the_journal_has_a_gap": "colours",
    "a_pending_write_lost_with_its_disk": "acknowledged",
    "a_write_told_after_the_last_export": "acknowledged",
    "only_journals": "acknowledged",
}

AGREED = (
    *("clean", "the_same_digest_as_an_earlier_audit", "an_undecided_write_that_is_nowhere"),
    *(
        "a_logged_message_lost_with_its_disk",
        "only_exports",
        "a_journal_copied_twice",
        "the_beginning_is_truncated",
        "one_log_is_truncated",
    ),
)


def of_cluster(rows: list[Row], cluster: str) -> list[Row]:
    return [row for row in rows if row["cluster"] == cluster]


@pytest.mark.parametrize(
    ("cluster", "offence"),
    [pytest.param(name, one, id=f"{name}-{one.position}") for name in VIOLATED for one in VIOLATED[name]],
)
def test_a_planted_violation_is_caught(audited: AuditResult, cluster: str, offence: Offence) -> None:
    assert audited.verdict(cluster) is Verdict.VIOLATED
    found = [
        Offence(row["rule"], row["position"], row["id"], None if row["nodes"] is None else tuple(row["nodes"]))
        for row in of_cluster(audited.violations, cluster)
    ]
    assert offence in found


@pytest.mark.parametrize("cluster", VIOLATED)
def test_what_is_found_is_counted(audited: AuditResult, cluster: str) -> None:
    counts = {row["rule"]: row["count"] for row in of_cluster(audited.counts, cluster)}
    found = [row["rule"] for row in of_cluster(audited.violations, cluster)]
    assert counts == {rule: found.count(rule) for rule in found}


@pytest.mark.parametrize("cluster", AGREED)
def test_nothing_is_found_in_a_clean_history(audited: AuditResult, cluster: str) -> None:
    assert of_cluster(audited.violations, cluster) == []
    assert of_cluster(audited.incomplete, cluster) == []
    assert audited.verdict(cluster) is Verdict.AGREED


@pytest.mark.parametrize("cluster", NOT_PROVABLE)
def test_what_cannot_be_proven_is_no_violation(audited: AuditResult, cluster: str) -> None:
    assert of_cluster(audited.violations, cluster) == []
    assert NOT_PROVABLE[cluster] in [row["rule"] for row in of_cluster(audited.incomplete, cluster)]
    assert audited.verdict(cluster) is Verdict.NOT_PROVABLE


def test_every_planted_change_is_expected_to_be_something() -> None:
    assert set(PLANTED) == {*VIOLATED, *NOT_PROVABLE, *AGREED} - {"clean"}


def test_violations_of_other_rules_follow_only_from_what_was_planted(audited: AuditResult) -> None:
    """Swapped messages break one rule, and rules that do not look at the order stay silent."""
    found = {row["rule"] for row in of_cluster(audited.violations, "two_messages_swapped_in_a_journal")}
    assert found == {"no_changes_in_green"}


def test_the_history_of_an_offending_message_is_told(audited: AuditResult) -> None:
    found = [
        row for row in of_cluster(audited.histories, "two_messages_swapped_in_a_journal") if row["id"] == "a.1.3"
    ]
    told = {(row["node"], row["event"]) for row in found}
    assert {("a", "sent"), ("b", "received"), ("c", "recovered"), ("b", "green"), ("c", "exported")} <= told
    assert [row["wall_ms"] for row in found] == sorted(row["wall_ms"] for row in found)


def test_how_much_was_looked_at_is_told(audited: AuditResult) -> None:
    counts = {(row["rule"], row["what"]): row["count"] for row in of_cluster(audited.checked, "clean")}
    assert counts["causal", "messages of the order"] == 11
    assert counts["acknowledged", "writes answered, by journals"] == 13
    assert counts["primaries", "primary components established"] == 3
    assert counts["agreed_green", "nodes"] == 3


def test_the_digests_of_all_lines_are_recorded(audited: AuditResult) -> None:
    lines = {row["line"]: row["nodes"] for row in of_cluster(audited.lines, "clean")}
    assert lines == {3: ["c"], 6: ["a"], 9: ["a", "b", "c"]}

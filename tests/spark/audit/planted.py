"""Planted violations: each changes what is told of a clean history.

The green order of the history, by position: a.1.1 b.1.1 c.1.1 a.1.2 b.1.2 | a.1.3 b.1.3 a.1.4 | c.1.2 c.1.3 c.1.4,
where c.1.2 was yellow at c when it was cut off. Positions 0 to 8 are final in the second export of each node."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from kvstore.log_schema import DIGEST_BYTES
from spark.audit.digests import LINES
from tests.spark.audit.history import ALONE, CUT, MERGED, Fields, Told

PLANTED: dict[str, Callable[[Told], None]] = {}
EARLIER: dict[str, tuple[int, str]] = {}
"""What an earlier audit found: a line, and the digest there."""


def plant(change: Callable[[Told], None]) -> Callable[[Told], None]:
    PLANTED[change.__name__] = change
    return change


def earlier_lines(spark: SparkSession, lines: dict[str, tuple[int, str]]) -> DataFrame:
    return spark.createDataFrame([(cluster, *line, ["a"]) for cluster, line in lines.items()], LINES.ddl)


def _rechain(told: Told, node: str) -> None:
    """Makes the digests of a node's last export right again, after its rows have changed."""
    digest = bytes(DIGEST_BYTES)
    for row in sorted(
        (one for one in told.logs if one["node"] == node and one["run"] in (None, 2)), key=_position
    ):
        digest = row["digest"] = hashlib.sha256(digest + row["id"].encode() + row["body_sha256"]).digest()
    for manifest in told.manifests:
        if manifest["node"] == node:
            manifest["final_digest"] = told.rows(node, manifest["final"] - 1)[0]["digest"].hex()


def _position(row: Fields) -> int:
    return int(row["position"])


def _swap(one: Fields, other: Fields) -> None:
    """Exchanges the places of two rows."""
    for name in ("position", "run", "is_final", "file"):
        one[name], other[name] = other[name], one[name]


def _without(rows: list[Fields], left_out: list[Fields]) -> list[Fields]:
    return [row for row in rows if not any(row is one for one in left_out)]


# The order


@plant
def two_messages_swapped_in_an_export(told: Told) -> None:
    (one,), (other,) = told.rows("b", 3), told.rows("b", 4)
    _swap(one, other)
    _rechain(told, "b")


@plant
def two_messages_swapped_in_a_journal(told: Told) -> None:
    for record in told.of("green", "b", position=5) + told.of("applied", "b", position=5):
        record["ids"] = [record["ids"][1], record["ids"][0], record["ids"][2]]


@plant
def two_messages_swapped_at_a_node(told: Told) -> None:
    two_messages_swapped_in_a_journal(told)
    told.logs = [row for row in told.logs if row["node"] != "b"]
    told.manifests = [one for one in told.manifests if one["node"] != "b"]
    told.files = [one for one in told.files if one["node"] != "b"]


@plant
def green_changed_between_exports(told: Told) -> None:
    """The last green message of the first export's tail is another one in the second export."""
    (row,) = told.rows("a", 7, run=1)
    row["id"] = "b.1.9"
    row["digest"] = None


@plant
def another_body_at_one_node(told: Told) -> None:
    (row,) = told.rows("c", 4)
    row["body"] = b"another"
    row["body_sha256"] = hashlib.sha256(b"another").digest()
    _rechain(told, "c")


@plant
def a_message_twice(told: Told) -> None:
    """All nodes have one message at two positions, instead of another."""
    for row in [row for row in told.logs if row["position"] == 8]:
        row["id"] = "a.1.1"
    for record in told.of("green") + told.of("applied"):
        record["ids"] = ["a.1.1" if one == "c.1.2" else one for one in record["ids"]]
    for node in ("a", "b", "c"):
        _rechain(told, node)


# Exports


@plant
def a_message_missing(told: Told) -> None:
    told.logs = _without(told.logs, told.rows("b", 2))
    for file in told.files:
        if file["node"] == "b":
            file["is_final"] = False


@plant
def a_file_damaged(told: Told) -> None:
    told.logs = [row for row in told.logs if not (row["node"] == "b" and row["is_final"])]


@plant
def a_byte_flipped_in_a_body(told: Told) -> None:
    (row,) = told.rows("c", 4)
    row["body"] = b"?" + row["body"][1:]


@plant
def a_byte_flipped_in_a_digest(told: Told) -> None:
    for node in ("a", "b", "c"):
        for row in told.rows(node, 4):
            row["digest"] = bytes([row["digest"][0] ^ 1]) + row["digest"][1:]


@plant
def a_manifest_with_another_digest(told: Told) -> None:
    told.manifests[-1]["final_digest"] = "ab" * 32


@plant
def another_digest_than_an_earlier_audit(told: Told) -> None:
    EARLIER["another_digest_than_an_earlier_audit"] = (4, "cd" * 32)


@plant
def the_same_digest_as_an_earlier_audit(told: Told) -> None:
    EARLIER["the_same_digest_as_an_earlier_audit"] = (4, told.rows("a", 3)[0]["digest"].hex())


@plant
def a_line_that_is_not_exported(told: Told) -> None:
    EARLIER["a_line_that_is_not_exported"] = (400, "cd" * 32)


# Causal


@plant
def a_basis_that_is_not_met(told: Told) -> None:
    """b.1.1 says that its sender had a.1.2, which comes after it."""
    for node in ("a", "b", "c"):
        for row in told.rows(node, 1):
            row["basis_known"] = {"a.1": 2}


@plant
def a_basis_that_nobody_has(told: Told) -> None:
    for node in ("a", "b", "c"):
        for row in told.rows(node, 1):
            row["basis_known"] = {"c.7": 1}


@plant
def a_stream_out_of_order(told: Told) -> None:
    """Everywhere c.1.3 is before c.1.2."""
    swapped = {"c.1.2": "c.1.3", "c.1.3": "c.1.2"}
    for row in told.logs:
        if row["run"] != 1:
            row["id"] = swapped.get(row["id"], row["id"])
    for record in told.of("green") + told.of("applied"):
        record["ids"] = [swapped.get(one, one) for one in record["ids"]]
    for record in told.of("yellow", view=MERGED):
        record["ids"] = [swapped.get(one, one) for one in record["ids"]]
    for node in ("a", "b", "c"):
        _rechain(told, node)


@plant
def a_message_sent_after_one_that_follows_it(told: Told) -> None:
    """c had received b.1.2 before it sent c.1.1."""
    (received,) = told.of("received", "c", ids=["b.1.2"])
    (sent,) = told.of("sent", "c", ids=["c.1.1"])
    received["monotonic_ms"] = sent["monotonic_ms"] - 0.25


@plant
def a_message_sent_after_one_that_is_nowhere(told: Told) -> None:
    (sent,) = told.of("sent", "c", ids=["c.1.1"])
    early = {**sent, "event": "received", "ids": ["b.7.1"], "monotonic_ms": sent["monotonic_ms"] - 0.25}
    told.records.append(early)


@plant
def a_message_sent_before_what_an_earlier_incarnation_had_logged(told: Told) -> None:
    """c.1.3 is sent by the second incarnation of c, whose first had logged c.1.4 already."""
    for record in told.of("sent", "c", ids=["c.1.3"]):
        record["incarnation"] = 2
        told.records.append({**record, "event": "stopped", "ids": None, "monotonic_ms": 9_000.0})
    told.records = _without(told.records, told.of("sent", "c", ids=["c.1.4"]))


@plant
def a_message_recovered_after_one_that_needs_it(told: Told) -> None:
    """a has c.1.3 and c.1.4 before c.1.2, as if their retransmitters had not waited for each other."""
    (recovered,) = told.of("recovered", "a", ids=["c.1.2", "c.1.3", "c.1.4"])
    told.records.append({**recovered, "ids": ["c.1.2"], "monotonic_ms": recovered["monotonic_ms"] + 0.25})
    recovered["ids"] = ["c.1.3", "c.1.4"]


# Primary components


@plant
def two_primaries_of_one_number(told: Told) -> None:
    for record in told.of("committed", view=MERGED) + told.of("established", view=MERGED):
        record["number"] = 2


@plant
def a_primary_without_a_majority(told: Told) -> None:
    """The node that was cut off established a primary component by itself."""
    (stage,) = told.of("stage", "c", stage="non_primary")
    told.records.append({**stage, "event": "committed", "number": 4})
    told.records.append({**stage, "event": "established", "number": 4, "members": ["c.1"]})


@plant
def consecutive_primaries_without_a_common_member(told: Told) -> None:
    for record in told.of("started"):
        record["weights"] = [1, 1, 3]
    for record in told.of("view", view=MERGED) + told.of("established", view=MERGED):
        record["members"] = ["c.1"]


# Yellow


@plant
def a_yellow_line_too_low(told: Told) -> None:
    (stage,) = told.of("stage", "c", view=ALONE, stage="recovering")
    stage["yellow"] = 4


@plant
def a_yellow_zone_with_another_message(told: Told) -> None:
    """What b committed to in the merged view is not what became green."""
    (zone,) = told.of("yellow", "b", view=MERGED)
    zone["ids"] = [zone["ids"][0], zone["ids"][2], zone["ids"][1]]


@plant
def a_green_message_demoted_elsewhere(told: Told) -> None:
    """c makes a message red that was green in primary component 1."""
    (demoted,) = told.of("demoted")
    demoted["ids"] = ["b.1.2"]


@plant
def an_exported_yellow_message_where_another_is_green(told: Told) -> None:
    for manifest in told.manifests:
        if (manifest["node"], manifest["number"]) == ("c", 1):
            manifest["committed"] = 3


# Colours


@plant
def green_made_red(told: Told) -> None:
    (demoted,) = told.of("demoted")
    demoted["ids"] = ["a.1.3"]


@plant
def red_without_being_demoted(told: Told) -> None:
    told.records = _without(told.records, told.of("demoted"))


@plant
def demoted_without_a_recovery(told: Told) -> None:
    (demoted,) = told.of("demoted")
    demoted["view"] = CUT


@plant
def exported_red_without_being_demoted(told: Told) -> None:
    """The first export of c has its yellow message as red."""
    (row,) = [row for row in told.logs if row["node"] == "c" and row["run"] == 1 and row["id"] == "c.1.2"]
    row["color"] = "red"
    told.records = _without(told.records, told.of("demoted") + told.of("copies_sent", "c"))


@plant
def red_where_the_journal_has_a_gap(told: Told) -> None:
    red_without_being_demoted(told)
    (stage,) = told.of("stage", "c", view=ALONE, stage="recovering")
    told.records.append({**stage, "event": "gap", "count": 3})


# Revisions and writes


@plant
def another_revision_at_one_node(told: Told) -> None:
    (record,) = told.of("applied", "b", position=5)
    record["revisions"] = [6, 7, 9]


@plant
def another_outcome_in_one_export(told: Told) -> None:
    (row,) = told.rows("c", 4)
    row["writes"] = [{**row["writes"][0], "outcome": "rejected"}]


def _all_rows(told: Told, position: int, **changes: Any) -> None:
    for node in ("a", "b", "c"):
        for row in told.rows(node, position):
            row["writes"] = [{**row["writes"][0], **changes}]


@plant
def another_outcome_than_was_told(told: Told) -> None:
    _all_rows(told, 4, outcome="rejected")


@plant
def another_revision_than_was_told(told: Told) -> None:
    _all_rows(told, 4, revision=77)


@plant
def fewer_writes_than_were_told(told: Told) -> None:
    (record,) = told.of("acknowledged", id="a.1.2")
    record["counts"] = [2]


@plant
def an_acknowledged_write_lost(told: Told) -> None:
    told.told.append({**told.told[0], "id": "a.1.77.0"})


@plant
def a_pending_write_lost(told: Told) -> None:
    (record,) = told.of("acknowledged", id="c.1.3", color="red")
    told.records.append({**record, "id": "c.1.77"})


@plant
def a_pending_write_lost_with_its_disk(told: Told) -> None:
    a_pending_write_lost(told)
    (started,) = told.of("started", "c")
    told.records.append({**started, "incarnation": 2, "wall_ms": 5_000.0})
    told.records.append({**started, "incarnation": 2, "wall_ms": 5_001.0, "event": "stopped"})


@plant
def a_write_told_after_the_last_export(told: Told) -> None:
    told.told.append({**told.told[0], "id": "a.1.77.0", "time_ms": 1e9})


@plant
def an_undecided_write_that_is_nowhere(told: Told) -> None:
    (record,) = told.of("acknowledged", id="c.1.3", color="red")
    told.records.append({**record, "id": "c.1.77", "color": None, "outcomes": ["undecided"]})


@plant
def a_logged_message_lost(told: Told) -> None:
    """a had logged a message of b that its export lacks."""
    (record,) = told.of("logged", "a", ids=["b.1.3"])
    record["ids"] = ["b.1.3", "b.1.4"]


@plant
def a_logged_message_lost_with_its_disk(told: Told) -> None:
    a_logged_message_lost(told)
    (started,) = told.of("started", "a")
    told.records.append({**started, "incarnation": 2, "wall_ms": 5_000.0})
    told.records.append({**started, "incarnation": 2, "wall_ms": 5_001.0, "event": "stopped"})


@plant
def messages_forgotten_at_a_start(told: Told) -> None:
    """a starts again with three messages only, and is not exported after that."""
    (started,) = told.of("started", "a")
    lines = {"green": 3, "yellow": 3, "length": 3}
    told.records.append({**started, "incarnation": 2, "wall_ms": 5_000.0, **lines})
    told.records.append({**started, "incarnation": 2, "wall_ms": 5_001.0, "event": "stopped"})


# Not violations


@plant
def only_journals(told: Told) -> None:
    told.logs, told.manifests, told.files, told.told = [], [], [], []


@plant
def only_exports(told: Told) -> None:
    told.records, told.told = [], []


@plant
def the_beginning_is_truncated(told: Told) -> None:
    """Exports begin at position 2, and journals were deleted up to there."""
    digests = {node: told.rows(node, 1)[0]["digest"].hex() for node in ("a", "b", "c")}
    told.logs = [row for row in told.logs if row["position"] >= 2]
    for manifest in told.manifests:
        manifest["first"], manifest["first_digest"] = 2, digests[manifest["node"]]
    for file in told.files:
        file["file"] = file["file"].replace("part-000000000000", "part-000000000002")
    for row in told.logs:
        row["file"] = row["file"].replace("part-000000000000", "part-000000000002")
    cut = told.of("green", "a", position=0)[0]["monotonic_ms"] - 100
    kept = [one for one in told.records if one["event"] not in ("green", "applied") or one["position"] >= 2]
    told.records = [one for one in kept if one["monotonic_ms"] > cut]
    told.told = [one for one in told.told if one["id"] not in ("a.1.1.0", "b.1.1.0")]
    told.records = [one for one in told.records if one.get("id") not in ("a.1.1", "b.1.1")]


@plant
def one_log_is_truncated(told: Told) -> None:
    """The export of c begins at position 2; a and b have all of it."""
    before = told.rows("c", 1)[0]["digest"].hex()
    told.logs = [row for row in told.logs if row["position"] >= 2 or row["node"] != "c"]
    for manifest in told.manifests:
        if manifest["node"] == "c":
            manifest["first"], manifest["first_digest"] = 2, before
    for named in (*told.files, *told.logs):
        if named["node"] == "c":
            named["file"] = named["file"].replace("part-000000000000", "part-000000000002")


@plant
def another_order_before_a_cut(told: Told) -> None:
    """c says that the order has another digest where its log was cut than a and b have there."""
    one_log_is_truncated(told)
    for manifest in told.manifests:
        if manifest["node"] == "c":
            manifest["first_digest"] = "ab" * 32


@plant
def a_gap_in_a_stream_of_a_truncated_log(told: Told) -> None:
    """The log begins at 2, with c.1.1, and has c.1.9 after it instead of a.1.2: c.1.8 cannot be before its
    beginning."""
    the_beginning_is_truncated(told)
    for row in told.logs:
        row["id"] = "c.1.9" if row["id"] == "a.1.2" else row["id"]
    for record in told.of("green") + told.of("applied"):
        record["ids"] = ["c.1.9" if one == "a.1.2" else one for one in record["ids"]]


@plant
def a_journal_copied_twice(told: Told) -> None:
    told.records = told.records + [dict(one) for one in told.records]

"""The story of a group: views, stages, primary components, times without one, and what merges cost."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from spark.merges import MERGES, OUTCOMES_CHANGED
from spark.partitions import COMPONENTS, NODE_STAGES, OUTAGES, PRIMARIES, STAGES, VIEWS, Partitions, partitions
from tests.spark.frames import Fields, at, records_of, rows_of, schema_of, true_clocks

ALL = ["a.1", "b.1", "c.1"]


def view(node: str, ms: float, name: str, members: list[str], came_along: list[str] | None = None) -> Fields:
    return at("view", node, ms, view=name, members=members, transitional=came_along or members, reason="assented")


def stage(
    node: str, ms: float, what: str, name: str, yellow: int = 0, length: int = 0, **fields: object
) -> Fields:
    reason = "view_changed" if what == "recovering" else "states"
    lines = {"green": yellow, "yellow": yellow, "length": length}
    return at("stage", node, ms, view=name, stage=what, **{"reason": reason, **lines, **fields})


def split_and_merged() -> list[Fields]:
    """c is cut off at 1,000 and writes three red messages; the merge begins at 3,000 and is green at 3,500."""
    rows = []
    for node in "abc":
        rows += [view(node, 0, "v1", ALL), stage(node, 10, "primary", "v1")]
    for node in "ab":
        rows += [view(node, 1_000, "v2", ["a.1", "b.1"]), stage(node, 1_000, "recovering", "v2", 5, 5)]
        rows += [at("attempted", node, 1_010, view="v2", number=2), stage(node, 1_020, "establishing", "v2")]
        rows += [at("committed", node, 1_050, view="v2", number=2), stage(node, 1_100, "primary", "v2")]
        rows += [at("established", node, 1_100, view="v2", number=2, members=["a.1", "b.1"])]
    rows += [view("c", 1_000, "v3", ["c.1"]), stage("c", 1_200, "non_primary", "v3", 5, 5)]
    rows += [sent_red(1_500, ["c.1.4"], 6), sent_red(1_600, ["c.1.5", "c.1.6"], 8)]
    for node in "abc":
        along = ["c.1"] if node == "c" else ["a.1", "b.1"]
        rows += [view(node, 3_000 + (node == "b"), "v4", ALL, along)]
        rows += [stage(node, 3_001, "recovering", "v4", 5, 8 if node == "c" else 7)]
        rows += [at("yellow", node, 3_400, view="v4", position=7, ids=["c.1.4", "c.1.5", "c.1.6"])]
        rows += [
            at("established", node, 3_500, view="v4", number=3, members=ALL),
            stage(node, 3_500, "primary", "v4"),
        ]
        rows += [at("logged", node, 4_000, ids=["a.1.9"])]
    return rows


def sent_red(ms: float, ids: list[str], length: int) -> Fields:
    return at("sent", "c", ms, view="v3", color="red", ids=ids, length=length)


def changed(node: str, write: str, key: str, kind: str = "overwrote", outcome: str = "applied") -> Fields:
    return at("outcome_changed", node, 3_600, write=write, key=key, kind=kind, outcome=outcome)


def told(session: SparkSession, *rows: Fields) -> Partitions:
    return partitions(records_of(session, *rows), true_clocks(session))


@pytest.fixture(scope="module")
def story(spark_session: SparkSession) -> Partitions:
    return told(spark_session, *split_and_merged(), *(changed(node, "c.1.4.0", "users/1") for node in "abc"))


def test_views_last_until_the_next_one_or_the_last_record(story: Partitions) -> None:
    assert rows_of(story.views.where("node = 'c'"), "from_ms", "until_ms", "members", "ended_by") == [
        (0.0, 1_000.0, ["a", "b", "c"], "view"),
        (1_000.0, 3_000.0, ["c"], "view"),
        (3_000.0, 4_000.0, ["a", "b", "c"], "ends"),
    ]


def test_components_are_views_of_all_their_members(story: Partitions) -> None:
    assert rows_of(story.components, "view", "told_by", "from_ms", "until_ms", "primary") == [
        ("v1", ["a", "b", "c"], 0.0, 1_000.0, None),
        ("v2", ["a", "b"], 1_000.0, 3_001.0, 2),
        ("v3", ["c"], 1_000.0, 3_000.0, None),
        ("v4", ["a", "b", "c"], 3_000.0, 4_000.0, 3),
    ]


def test_the_cluster_is_without_a_primary_only_if_no_node_has_one(story: Partitions) -> None:
    assert rows_of(story.outages, "from_ms", "until_ms", "kind", "duration_ms") == [
        (0.0, 10.0, "start", 10.0),
        (3_001.0, 3_500.0, "between", 499.0),
    ]


def test_each_node_has_its_own_time_without_a_primary(story: Partitions) -> None:
    stages = {(row["node"], row["stage"]): row["duration_ms"] for row in story.node_stages.collect()}
    assert stages["a", "primary"] == (1_000 - 10) + (3_001 - 1_100) + (4_000 - 3_500)
    assert stages["c", "non_primary"] == 3_001 - 1_200
    assert ("a", "down") not in stages


def test_a_killed_node_was_down_until_its_next_incarnation(spark_session: SparkSession) -> None:
    second = [
        view("a", 0, "v9", ["a.2"]),
        stage("a", 10, "non_primary", "v9"),
        at("stopped", "a", 40, reason="closed"),
    ]
    later = [{**row, "incarnation": 2, "wall_ms": row["wall_ms"] + 5_000.0} for row in second]
    first = [view("a", 0, "v1", ["a.1"]), stage("a", 100, "primary", "v1"), at("logged", "a", 900, ids=["a.1.1"])]
    found = told(spark_session, *first, *later)
    assert rows_of(found.node_stages, "stage", "duration_ms") == [
        ("down", 4_100.0),
        ("non_primary", 30.0),
        ("primary", 800.0),
    ]
    assert rows_of(found.views, "view", "ended_by", "until_ms") == [
        ("v1", "ends", 900.0),
        ("v9", "stopped", 5_040.0),
    ]
    assert rows_of(found.outages, "kind", "from_ms", "until_ms") == [
        ("end", 900.0, 5_040.0),
        ("start", 0.0, 100.0),
    ]


def test_primaries_are_told_with_how_far_they_got(spark_session: SparkSession) -> None:
    rows = [
        *(at("attempted", node, 10, view="v", number=1) for node in "ab"),
        at("committed", "a", 20, view="v", number=1),
        *(at("aborted", node, 30, view="v", number=1, reason="view_changed") for node in "ab"),
        at("attempted", "a", 50, view="w", number=2),
        at("attempted", "c", 60, view="x", number=3),
        at("committed", "c", 61, view="x", number=3),
        at("established", "c", 62, view="x", number=3, members=["c.1"]),
        at("aborted", "b", 63, view="x", number=3, reason="orders_differ"),
    ]
    found = told(spark_session, *rows).primaries
    assert rows_of(found, "number", "state", "attempted_by", "committed_by", "aborted_by", "reasons") == [
        (1, "aborted", ["a", "b"], ["a"], ["a", "b"], ["view_changed"]),
        (2, "attempted", ["a"], [], [], []),
        (3, "established", ["c"], ["c"], ["b"], ["orders_differ"]),
    ]


def test_a_merge_tells_what_the_partition_cost(spark_session: SparkSession) -> None:
    merge = told(
        spark_session, *split_and_merged(), *(changed(node, "c.1.4.0", "users/1") for node in "abc")
    ).merges
    assert [row.asDict() for row in merge.collect()] == [
        {
            "cluster": "", "view": "v4", "primary": 3, "members": ["a", "b", "c"], "components": 2,
            "parted_ms": 1_000.0, "merged_ms": 3_000.0, "all_green_ms": 3_500.0, "apart_ms": 2_000.0,
            "merge_ms": 500.0, "red_backlog": 3, "red_messages": 3, "moved": 3, "distance_mean": 2.0,
            "distance_max": 2, "demoted": 0, "outcomes_changed": 1,
        }
    ]  # fmt: skip


def test_a_merge_that_came_to_nothing_has_no_end(spark_session: SparkSession) -> None:
    rows = [row for row in split_and_merged() if row["wall_ms"] < 3_100]
    demoted = at("demoted", "a", 3_050, view="v4", ids=["a.1.2"], count=4)
    merge = told(spark_session, *rows, demoted).merges.collect()[0]
    assert (merge["primary"], merge["all_green_ms"], merge["merge_ms"]) == (None, None, None)
    assert (merge["red_messages"], merge["red_backlog"], merge["demoted"]) == (0, 3, 4)


def test_the_last_commitment_gives_a_message_its_place(spark_session: SparkSession) -> None:
    later = [
        *(view(node, 5_000, "v5", ALL, [f"{node}.1"]) for node in "abc"),
        at("yellow", "a", 5_500, view="v5", position=20, ids=["c.1.4"]),
    ]
    found = told(spark_session, *split_and_merged(), *later).merges
    assert rows_of(found, "view", "red_messages", "distance_max") == [("v4", 2, 2), ("v5", 1, 15)]


def test_outcomes_that_a_merge_changed_are_counted_once_by_kind_and_prefix(spark_session: SparkSession) -> None:
    rows = [
        changed(node, write, key) for node in "abc" for write, key in (("c.1.4.0", "users/1"), ("c.1.4.1", "k"))
    ]
    rows += [changed("a", "c.1.5.0", "users/2", "rejected", "rejected"), changed("b", "z.1.1.0", "users/2")]
    found = told(spark_session, *split_and_merged(), *rows).outcomes_changed
    assert rows_of(found, "view", "kind", "outcome", "prefix", "writes") == [
        ("v4", "overwrote", "applied", "k", 1),
        ("v4", "overwrote", "applied", "users/", 1),
        ("v4", "rejected", "rejected", "users/", 1),
        (None, "overwrote", "applied", "users/", 1),
    ]


def test_clocks_of_nodes_are_put_right_first(spark_session: SparkSession) -> None:
    ahead = 3_600_000.0
    rows = [{**row, "wall_ms": row["wall_ms"] + ahead * (row["node"] == "c")} for row in split_and_merged()]
    found = partitions(records_of(spark_session, *rows), true_clocks(spark_session, offsets={"c": ahead}))
    assert found.merges.collect()[0]["merge_ms"] == 500.0
    assert found.outages.count() == 2


def test_clusters_do_not_mix(spark_session: SparkSession) -> None:
    other = [{**row, "cluster": "other"} for row in split_and_merged() if row["node"] == "c"]
    found = told(spark_session, *split_and_merged(), *other)
    assert rows_of(found.outages, "cluster", "duration_ms") == [
        *(("", 10.0), ("", 499.0)),
        *(("other", 10.0), ("other", 2_300.0)),
    ]


@pytest.mark.parametrize("node", ["a", ""])
def test_what_is_not_there_is_no_story(spark_session: SparkSession, node: str) -> None:
    rows = [at("logged", node, 5, ids=["a.1.1"])] if node else []
    found = told(spark_session, *rows)
    expected = (VIEWS, COMPONENTS, STAGES, NODE_STAGES, PRIMARIES, OUTAGES, MERGES, OUTCOMES_CHANGED)
    frames = [getattr(found, name) for name in Partitions.__dataclass_fields__]
    assert [schema_of(frame) for frame in frames] == list(expected)
    assert [frame.count() for frame in frames] == [0] * len(frames)

"""What a follower knows of nodes, and what it warns of."""

from __future__ import annotations

from typing import Any

from spark.streaming.picture import BEHIND_MESSAGES, HORIZON_POSITIONS, Picture, passing_partitions, told_changes


def facts(node: str, **known: Any) -> dict[str, Any]:
    nothing: dict[str, Any] = dict.fromkeys(
        ("green", "yellow", "length", "view", "members", "fewest", "stage", "committed", "roster")
    )
    common = {
        "cluster": "k",
        "node": node,
        "incarnation": 1,
        "monotonic_ms": 1.0,
        "wall_ms": 1_000.0,
        "stopped": False,
    }
    return {**nothing, **common, **known}


def together(**known: Any) -> list[dict[str, Any]]:
    return [facts(node, members=list("abc"), roster=list("abc"), stage="primary", **known) for node in "abc"]


def test_nothing_is_told_of_a_cluster_that_is_well() -> None:
    picture = Picture()
    picture.update(together(green=10))
    assert told_changes(picture, 1_000.0) == []


def test_a_partition_is_told_when_it_begins_and_when_it_is_over() -> None:
    picture = Picture()
    picture.update(together(green=10))
    picture.update([facts("c", members=["c"], stage="non_primary")])
    (begun,) = told_changes(picture, 2_000.0)
    assert (begun.kind, begun.subject, begun.is_over) == ("partition", "c", False)
    assert begun.text == "c is connected to nobody, not to a, b"
    assert told_changes(picture, 3_000.0) == []
    picture.update([facts("c", members=list("abc"), stage="primary")])
    (over,) = told_changes(picture, 4_000.0)
    assert (over.kind, over.is_over, over.wall_ms) == ("partition", True, 4_000.0)


def test_a_partition_within_one_batch_is_told() -> None:
    picture = Picture()
    batch = together(green=10, fewest=list("abc"))
    batch[2]["fewest"] = ["c"]
    picture.update(batch)
    begun, over = passing_partitions(picture, batch)
    assert (begun.subject, begun.is_over, over.is_over) == ("c", False, True)
    assert begun.text == "c was not connected to a, b for a while"


def test_a_cluster_without_a_primary_component_is_told_of() -> None:
    picture = Picture()
    picture.update([{**one, "stage": "non_primary"} for one in together()])
    assert [alert.kind for alert in told_changes(picture, 1.0)] == ["no_primary"]


def test_a_node_that_is_behind_or_silent_is_told_of() -> None:
    picture = Picture()
    picture.update(together(green=1))
    picture.update([facts("a", green=BEHIND_MESSAGES + 2, wall_ms=1_000_000.0)])
    picture.update([facts("b", green=BEHIND_MESSAGES + 2, wall_ms=1_000_000.0)])
    assert [(one.kind, one.subject) for one in told_changes(picture, 1.0)] == [("silent", "c"), ("behind", "c")]


def test_nothing_is_told_of_a_node_that_has_stopped_in_order() -> None:
    picture = Picture()
    picture.update(together(green=1))
    picture.update([facts("c", stopped=True)])
    picture.update([facts("a", green=BEHIND_MESSAGES + 2, wall_ms=1e9), facts("b", wall_ms=1e9)])
    assert [alert.subject for alert in told_changes(picture, 1.0)] == ["b"]


def test_the_order_is_kept_from_the_lowest_green_line_on_but_not_for_ever() -> None:
    picture = Picture()
    picture.update([facts("a", green=50), facts("b", green=20)])
    assert picture.bounds() == {"k": 20}
    picture.update([facts("a", green=HORIZON_POSITIONS + 100)])
    assert picture.bounds() == {"k": 100}


def test_a_picture_survives_as_text() -> None:
    picture = Picture()
    picture.update(together(green=10))
    picture.update([facts("c", members=["c"])])
    picture.files["k", "a", 7] = 3
    told_changes(picture, 1.0)
    assert Picture.from_json(picture.to_json()) == picture


def test_a_green_line_never_goes_back() -> None:
    picture = Picture()
    picture.update([facts("a", green=50, length=60, yellow=55)])
    picture.update([facts("a", green=None, length=70)])
    node = picture.nodes["k", "a"]
    assert (node.green, node.yellow, node.length, node.red) == (50, 55, 70, 15)


def test_what_comes_late_is_not_taken_for_new() -> None:
    picture = Picture()
    picture.update([facts("a", green=50, stage="primary", monotonic_ms=9.0)])
    picture.update([facts("a", green=60, stage="non_primary", monotonic_ms=8.0)])
    assert (picture.nodes["k", "a"].green, picture.nodes["k", "a"].stage) == (60, "primary")
    picture.update([facts("a", stage="non_primary", incarnation=2, monotonic_ms=1.0)])
    assert picture.nodes["k", "a"].stage == "non_primary"

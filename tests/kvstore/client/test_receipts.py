"""What becomes of a write, asked for until it is known."""

from __future__ import annotations

import pytest

from kvstore.client import (
    ConditionFailed,
    CorelError,
    Expired,
    Happened,
    NotGreen,
    Receipt,
    Rejected,
    Reply,
    Yielded,
)
from tests.kvstore.client.scripted import GREEN, RED, REFUSED, A, B, C, Scripted, World, problem, reply

PENDING = reply(200, {"id": "c.1.2.0", "color": "red", "outcome": "pending"})


def outcome(name: str, **more: object) -> Reply:
    return reply(200, {"id": "c.1.2.0", "color": "green", "outcome": name, **more})


def waited(world: World, timeout: float = 60.0) -> Receipt:
    return world.run(world.calls().wait_green(Receipt("c.1.2.0", "red", "pending", url=C), timeout))


def test_the_node_that_accepted_it_is_asked_until_it_is_green() -> None:
    world = World({C: [PENDING, PENDING, GREEN]})
    assert waited(world).is_green
    assert world.urls == [C, C, C]
    assert len(world.pauses) == 2  # it answered early, and is not asked without a pause


def test_another_node_is_asked_if_that_one_is_gone() -> None:
    world = World({C: [REFUSED], A: [problem(404, "unknown_write")], B: [GREEN]})
    assert waited(world).is_green
    assert world.urls == [C, A, B]


def test_it_does_not_wait_for_ever() -> None:
    world = World({C: [PENDING]})
    with pytest.raises(NotGreen) as raised:
        waited(world, 5.0)
    assert (raised.value.happened, raised.value.write_id) == (Happened.UNKNOWN, "c.1.2.0")
    assert 5.0 <= world.now - 1_000.0 < 6.0


def test_one_request_waits_no_longer_than_proxies_do() -> None:
    world = World({C: [PENDING]})
    with pytest.raises(NotGreen):
        waited(world, 50.0)
    waits = [int(str(request.query["timeout_ms"])) for _, request in world.asked]
    assert (waits[0], waits[-1]) == (20_000, 0)


@pytest.mark.parametrize(
    ("said", "kind", "happened"),
    [
        (outcome("rejected", reason="condition_failed", key="k"), ConditionFailed, Happened.NO),
        (outcome("rejected", reason="not_a_number"), Rejected, Happened.NO),
        (outcome("yielded", beaten_by="b.1.1.0"), Yielded, Happened.NO),
        (outcome("expired"), Expired, Happened.UNKNOWN),
    ],
)
def test_an_outcome_other_than_applied_is_raised(
    said: Scripted, kind: type[CorelError], happened: Happened
) -> None:
    with pytest.raises(kind) as raised:
        waited(World({C: [said]}))
    assert (type(raised.value), raised.value.happened) == (kind, happened)


def test_of_a_duplicate_what_became_of_the_first_counts() -> None:
    world = World({C: [outcome("duplicate", duplicate_of="a.1.2.0", duplicate_outcome="applied", revision=7)]})
    assert waited(world).outcome == "duplicate"
    assert [request.path for _, request in world.asked] == ["/v1/writes/c.1.2.0"]


@pytest.mark.parametrize(
    ("first", "kind"),
    [
        (outcome("rejected", reason="condition_failed", key="k"), ConditionFailed),
        (outcome("yielded", beaten_by="b.1.1.0"), Yielded),
    ],
)
def test_why_the_first_was_not_applied_is_asked(first: Reply, kind: type[CorelError]) -> None:
    copy = outcome("duplicate", duplicate_of="a.1.2.0", duplicate_outcome=first.fields()["outcome"])
    world = World({C: [copy, first]})
    with pytest.raises(kind):
        waited(world)
    assert [request.path for _, request in world.asked] == ["/v1/writes/c.1.2.0", "/v1/writes/a.1.2.0"]


def test_what_is_asked_about_is_not_raised() -> None:
    world = World({A: [outcome("rejected", reason="condition_failed")]})
    assert world.run(world.calls().write("c.1.2.0", None)).outcome == "rejected"


def test_a_red_write_is_a_receipt() -> None:
    world = World({A: [RED]})
    receipt = world.run(world.calls().put("k", "v", None, {}))
    assert (receipt.color, receipt.outcome, receipt.revision, receipt.is_green) == ("red", "pending", None, False)

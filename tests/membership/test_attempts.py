"""When a machine looks for foreign views to join, and when it need not collect attempts any longer."""

from __future__ import annotations

from membership.config import MembershipConfig
from membership.messages import Control
from membership.stages import Stage
from tests.membership.builders import group_frame_in
from tests.membership.harness import Cluster, settled
from transport.messages import Frame

CONFIG = MembershipConfig()


def healed(*components: str) -> Cluster:
    """Components that have been views for a long time, at the moment when they begin to hear each other."""
    cluster = settled("".join(components))
    cluster.partition("|".join(components))
    cluster.run(5_000.0)
    cluster.heal()
    return cluster


def test_views_are_one_soon_after_their_next_heartbeats() -> None:
    soon_ms = CONFIG.presence_ms + CONFIG.presence_pending_ms + CONFIG.look_again_ms + CONFIG.foreign_stable_ms
    assert healed("ab", "cde").run_until_views("abcde") < soon_ms + 0.5 * CONFIG.alpha_ms


def test_alpha_ends_when_all_who_are_heard_take_part() -> None:
    cluster = healed("a", "b")
    cluster.run_until(lambda: cluster["a"].stage is Stage.GATHERING)
    assert cluster.run_until_views("ab") < 0.5 * CONFIG.alpha_ms


def test_alpha_lasts_while_a_machine_is_heard_that_may_still_attempt() -> None:
    cluster = healed("a", "b", "c")
    cluster.cut("ac", "bc")
    cluster.run_until(lambda: cluster["a"].stage is Stage.GATHERING)
    cluster.run(0.9 * CONFIG.alpha_ms)
    assert cluster["a"].stage is Stage.GATHERING
    cluster.run_until_views("ab")


def test_the_join_of_a_member_that_waits_when_stage_1_ends_leads_to_the_view() -> None:
    """Its machines are still followed, else it would enter without what it follows, and the next commitment would
    be to machines whose messages are ignored."""
    cluster = healed("ab", "c")
    cluster.drop(lambda source, target, frame: target == "b" and _names_c(frame))
    cluster.run_until(lambda: cluster["a"].stage is Stage.COMMITTED)
    cluster.run(2.0 * CONFIG.alpha_ms)
    assert cluster["b"].stage is not Stage.GATHERING
    cluster.heal()
    assert cluster.run_until_views("abc") < 0.5 * CONFIG.response_ms


def _names_c(frame: Frame) -> bool:
    group_frame = group_frame_in(frame)
    return isinstance(group_frame, Control) and group_frame.sender.name == "c"

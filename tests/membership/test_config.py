"""Bounds of the configuration that do not fit each other are refused."""

from __future__ import annotations

import pytest

from membership.config import MembershipConfig


def test_one_lost_heartbeat_is_not_a_fault() -> None:
    MembershipConfig(presence_ms=100.0, suspect_after_ms=300.0)
    with pytest.raises(ValueError, match="three heartbeats"):
        MembershipConfig(presence_ms=100.0, suspect_after_ms=299.0)


def test_a_heartbeat_is_not_overdue_before_it_is_due() -> None:
    MembershipConfig(overdue_gaps=1.0)
    with pytest.raises(ValueError, match="overdue_gaps"):
        MembershipConfig(overdue_gaps=0.9)


def test_adaptation_only_lengthens_patience() -> None:
    with pytest.raises(ValueError, match="suspect_after_ms_max"):
        MembershipConfig(suspect_after_ms=500.0, suspect_after_ms_max=499.0)


def test_the_last_view_is_kept_for_slower_survivors() -> None:
    with pytest.raises(ValueError, match="closed_views_max"):
        MembershipConfig(closed_views_max=0)

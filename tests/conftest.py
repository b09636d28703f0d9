"""Fixtures that several packages' tests use."""

from __future__ import annotations

import pytest

from tests import ports
from tests.small_disks import unmount_left_over


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        unmount_left_over()


@pytest.fixture
def broadcast_port() -> int:
    """A UDP port for one test. Broadcast ports are shared, so parallel tests must not draw the same."""
    return ports.broadcast_port()

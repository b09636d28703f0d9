"""Fixtures that several packages' tests use."""

from __future__ import annotations

import os
from itertools import count

import pytest

_ports = count()


@pytest.fixture
def broadcast_port() -> int:
    """A UDP port for one test. Broadcast ports are shared, so parallel tests must not draw the same."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    return 17_000 + int(worker) * 400 + next(_ports) % 400

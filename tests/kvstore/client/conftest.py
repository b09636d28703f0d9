"""Real clusters for the client: three nodes that know each other's URLs, and may be killed and partitioned."""

from __future__ import annotations

from collections.abc import Iterator
from secrets import token_hex

import pytest

from tests.api.cluster import Cluster

_FORGIVING = ("--set", "membership.back_off_ms=100", "--set", "membership.back_off_ms_max=200")


@pytest.fixture(scope="session")
def _started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster("abc", tmp_path_factory.mktemp("client"), _FORGIVING) as cluster:
        urls = ",".join(f"{node.name}={node.url}" for node in cluster)
        for node in cluster:
            node._flags = (*node._flags, "--urls", urls)
        yield cluster.start()


@pytest.fixture
def three(_started: Cluster) -> Iterator[Cluster]:
    """Three nodes. They are up and connected again for the next test."""
    _started.revive()
    _started.heal()
    yield _started
    _started.revive()
    _started.heal()


@pytest.fixture
def key() -> str:
    """A key that no other test uses."""
    return f"test/{token_hex(6)}"

"""The clusters that the tests of the API share. Each worker starts those that its tests use, once."""

from __future__ import annotations

from collections.abc import Iterator
from secrets import token_hex

import pytest

from tests.api.cluster import Cluster, Node

_PATIENT = ("--set", "membership.suspect_after_ms=3000", "--set", "membership.suspect_after_ms_max=6000")
"""Flags of clusters that no test partitions: load on the machine must not cause a partition either."""

_FORGIVING = ("--set", "membership.back_off_ms=100", "--set", "membership.back_off_ms_max=200")
"""Flags of clusters that are partitioned again and again: their back-off before a merge must stay short."""


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes that no test disturbs."""
    with Cluster("abc", tmp_path_factory.mktemp("cluster"), _PATIENT) as started:
        yield started.start()


@pytest.fixture
def node(cluster: Cluster) -> Node:
    return cluster["a"]


@pytest.fixture(scope="session")
def _cut_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster("abc", tmp_path_factory.mktemp("cut"), _FORGIVING) as started:
        yield started.start()


@pytest.fixture
def three(_cut_cluster: Cluster) -> Iterator[Cluster]:
    """Three nodes that a test may partition. They are connected again for the next test."""
    _cut_cluster.revive()
    _cut_cluster.heal()
    yield _cut_cluster
    _cut_cluster.revive()
    _cut_cluster.heal()


@pytest.fixture(scope="session")
def _cut_cluster_of_five(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster("abcde", tmp_path_factory.mktemp("five"), _FORGIVING) as started:
        yield started.start()


@pytest.fixture
def five(_cut_cluster_of_five: Cluster) -> Iterator[Cluster]:
    _cut_cluster_of_five.heal()
    yield _cut_cluster_of_five
    _cut_cluster_of_five.heal()


@pytest.fixture
def key() -> str:
    """A key that no other test uses."""
    return f"test/{token_hex(6)}"


@pytest.fixture(scope="session")
def _cluster_of_one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster("a", tmp_path_factory.mktemp("alone")) as started:
        yield started.start()


@pytest.fixture
def alone(_cluster_of_one: Cluster) -> Node:
    """The node of a cluster of one, which a test may stop and kill. It is up again for the next test."""
    node = _cluster_of_one["a"]
    if node.process is None:
        node.start()
    node.await_ready()
    return node

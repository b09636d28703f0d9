"""Reads `/metrics` as Prometheus does, with the parsers of its own client."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client.core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from tests.api.cluster import Node

Parse = Callable[[str], Iterable[Metric]]
_parse_text: Parse = parse_text
_parse_openmetrics: Parse = parse_openmetrics

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


class Scrape:
    """The samples of one scrape."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self.families = {family.name: family for family in families}
        self.samples = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in self.families.values()
            for sample in family.samples
        }

    def __call__(self, name: str, **labels: str) -> float:
        """Returns the value of one series, which must be there."""
        return self.samples[name, frozenset(labels.items())]

    def total(self, name: str) -> float:
        """Returns the sum of all series of a name."""
        return sum(value for (found, _), value in self.samples.items() if found == name)

    @property
    def names(self) -> set[str]:
        return {name for name, _ in self.samples}


def scrape(node: Node) -> Scrape:
    answer = node.get_path("/metrics")
    assert answer.status == 200
    return Scrape(_parse_text(answer.body.decode()))


def scrape_openmetrics(node: Node) -> Scrape:
    answer = node.call("GET", "/metrics", headers={"Accept": OPENMETRICS})
    assert answer.status == 200
    return Scrape(_parse_openmetrics(answer.body.decode()))


class Rise:
    """How much counters have risen between two scrapes."""

    def __init__(self, before: Scrape, after: Scrape) -> None:
        self._before = before
        self._after = after

    def __call__(self, name: str, **labels: str) -> float:
        key = (name, frozenset(labels.items()))
        return self._after.samples[key] - self._before.samples.get(key, 0.0)

    def total(self, name: str) -> float:
        return self._after.total(name) - self._before.total(name)

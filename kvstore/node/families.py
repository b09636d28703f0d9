"""Plain numbers as families of Prometheus metrics. A family is made when it is asked for, and kept by nobody."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias, TypeVar

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.utils import floatToGoString

from kvstore.histogram import Histogram

Labels: TypeAlias = tuple[str, ...]
_Value = TypeVar("_Value", bound=str)


def counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(name, text, value)


def counters(name: str, text: str, labels: Labels, values: Mapping[Labels, float]) -> Metric:
    family = CounterMetricFamily(name, text, labels=labels)
    for label_values, value in values.items():
        family.add_metric(label_values, value)
    return family


def gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value)


def gauges(name: str, text: str, labels: Labels, values: Mapping[Labels, float]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=labels)
    for label_values, value in values.items():
        family.add_metric(label_values, value)
    return family


def histogram(name: str, text: str, values: Histogram) -> Metric:
    return histograms(name, text, (), {(): values})


def histograms(name: str, text: str, labels: Labels, values: Mapping[Labels, Histogram]) -> Metric:
    family = HistogramMetricFamily(name, text, labels=labels)
    for label_values, one in values.items():
        names = [*map(floatToGoString, one.bounds), "+Inf"]
        family.add_metric(label_values, list(zip(names, one.cumulative(), strict=True)), one.sum)
    return family


def info(name: str, text: str, values: Mapping[str, str]) -> Metric:
    return InfoMetricFamily(name, text, dict(values))


def single(values: Mapping[_Value, int], known: tuple[_Value, ...] = ()) -> dict[Labels, float]:
    """Returns counts by one label. Those of `known` values are there from the beginning: an increase from nothing
    to 1 is none for Prometheus."""
    return {(str(value),): values.get(value, 0) for value in dict.fromkeys((*known, *values))}

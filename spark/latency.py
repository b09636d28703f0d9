"""Where the time goes between a write that is sent and its answer.

Needs MESSAGE_EVENTS, ANSWERS, a timeline (`clocks`), and RECORDS for the ends of views. Yields `Latency`:
LATENCIES, percentiles of each step by node, sender, size and time window; WATERFALL, what each step contributes to
messages that became green in the primary component they were sent in; and the HISTOGRAMS that both come from.

Steps are told apart by the path of the message:

- `sender`: a message at the node that sent it, green in the primary component it was sent in;
- `remote`: the same message at a node that received it from the network; what begins with `sent` compares two
  clocks;
- `cluster`: the same message, by the slowest node in each step: it is green when all have logged it;
- `red`: a message that was sent outside of a primary component, at its sender, until it is green through a merge;
- `interrupted`: one whose primary component ended before it was green, at its sender;
- `late`: any message at another node that was not with its sender, or not for long enough: it got the message from
  others in a recovery, or had it, and knew only in a later primary component that it is green.

Durations on one node are by its monotonic clock, or, if the node was started again in between, like those between
nodes by the corrected wall clocks. The latter can be negative by as much as the clocks are uncertain: `negative`
counts them. A step whose beginning or end is not in the journals (the process was killed, the journal has a gap)
is not counted. In a primary component a message is yellow when it is logged. A client's answer is the first for
any write of the message.

How it scales: `passages` shuffles the events once, by message. Histograms have the size of nodes² times sizes +
windows and are aggregated before their shuffle; percentiles have their precision (see `percentiles`). They are
kept (`persist`), because both results come from them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark.columns import conform, size_name, size_rank
from spark.passages import IN_PRIMARY, INTERRUPTED, RED, passages
from spark.percentiles import counted, merged, summarized
from spark.schemas import columns
from spark.timeline import Timeline

HISTOGRAMS = columns(
    cluster="string",
    path="string",
    step="string",
    node="string",
    sender="string",
    size="string",
    size_rank="long",
    window_ms="long",
    bucket="int",
    messages="long",
    total_ms="double",
    min_ms="double",
    max_ms="double",
)
"""How often a step took how long: for nodes, senders and sizes (`window_ms` is null), and once more for windows
(the others are null)."""

LATENCIES = columns(
    cluster="string",
    path="string",
    step="string",
    dimension="string",
    value="string",
    rank="long",
    messages="long",
    negative="long",
    mean_ms="double",
    min_ms="double",
    p50_ms="double",
    p90_ms="double",
    p99_ms="double",
    p999_ms="double",
    max_ms="double",
)
"""How long a step took, for all messages (`dimension` is `all`), or by `node`, `sender`, `size` or `window`.
`rank` is what values are sorted by; for windows it is their beginning in milliseconds."""

WATERFALL = columns(
    cluster="string",
    path="string",
    place="int",
    step="string",
    messages="long",
    mean_ms="double",
    p99_ms="double",
)
"""The consecutive steps of a message that is green in its primary component, in order of `place`."""


class Clock(Enum):
    """By which clock the two ends of a step are compared."""

    OWN = "own"
    """The monotonic clock of one incarnation."""
    COMMON = "common"
    """The timeline: the ends are at different nodes."""
    EITHER = "either"
    """The own clock, or the timeline if the node was started again in between."""


class Step(NamedTuple):
    """What is measured of a message, and on which path."""

    path: str
    begin: str
    end: str
    clock: Clock = Clock.OWN
    place: int | None = None
    """Its place in the waterfall of its path, if it is part of that."""

    @property
    def name(self) -> str:
        """`sent → logged`; what is of the slowest node is `logged by all`."""
        return " → ".join(_BY_ALL.get(moment, moment) for moment in (self.begin, self.end))


_BY_ALL = {"all_received": "received by all", "all_logged": "logged by all"}

STEPS = (
    Step("sender", "sent", "logged", place=0),
    Step("sender", "logged", "green", place=1),
    Step("sender", "green", "answered", place=2),
    Step("sender", "green", "applied"),
    Step("sender", "sent", "green"),
    Step("sender", "sent", "answered"),
    Step("cluster", "sent", "all_received", Clock.COMMON, place=0),
    Step("cluster", "all_received", "all_logged", Clock.COMMON, place=1),
    Step("cluster", "all_logged", "green", Clock.COMMON, place=2),
    Step("cluster", "green", "answered", place=3),
    Step("remote", "sent", "received", Clock.COMMON, place=0),
    Step("remote", "received", "logged", place=1),
    Step("remote", "logged", "green", place=2),
    Step("remote", "green", "applied", place=3),
    Step("remote", "sent", "green", Clock.COMMON),
    *(
        step
        for path in (RED, INTERRUPTED)
        for step in (
            Step(path, "sent", "logged"),
            Step(path, "sent", "accepted"),
            Step(path, "sent", "yellow", Clock.EITHER),
            Step(path, "yellow", "green"),
            Step(path, "sent", "green", Clock.EITHER),
        )
    ),
    Step("late", "sent", "green", Clock.COMMON),
)
"""Everything that is measured."""

_STEP = ["cluster", "path", "step"]
_DIMENSION = ["dimension", "value", "rank"]


@dataclass(frozen=True, slots=True)
class Latency:
    """What the job yields."""

    latencies: DataFrame
    waterfall: DataFrame
    histograms: DataFrame


def latency(
    events: DataFrame, answers: DataFrame, timeline: Timeline, records: DataFrame | None = None
) -> Latency:
    """Measures every step of every message. With RECORDS, the ends of views tell which messages were interrupted
    (see `passages`)."""
    durations = step_durations(passages(events, answers, timeline, records), timeline)
    histograms = step_histograms(durations).persist()
    summed = latencies(histograms)
    return Latency(summed, waterfall(summed), histograms)


def step_durations(rows: DataFrame, timeline: Timeline) -> DataFrame:
    """Returns a row for each step of each passage: its place in `STEPS`, how many `ms` it took, and by what it is
    told. Numbers stand for names until everything is counted: rows are many, and names are long."""
    spread = rows.select(
        "cluster",
        "node",
        "sender",
        size_rank(F.col("bytes")).alias("size_rank"),
        timeline.window(F.coalesce("sent_time", "green_time")).alias("window_ms"),
        F.inline(_steps_of_passage()),
    )
    return spread.where(F.col("ms").isNotNull())


def _steps_of_passage() -> Column:
    """The steps of a passage, by what happened to its message; null if it is on none of the paths."""
    is_sender, origin = F.col("node") == F.col("sender"), F.col("origin")
    was_there = F.col("received_ms").isNotNull() & ~F.col("was_interrupted")
    was_late = F.col("recovered_ms").isNotNull() | F.col("was_interrupted")
    return (
        F.when(is_sender & (origin == IN_PRIMARY), _durations("sender", "cluster"))
        .when(is_sender & (origin == RED), _durations(RED))
        .when(is_sender & (origin == INTERRUPTED), _durations(INTERRUPTED))
        .when(~is_sender & (origin == IN_PRIMARY) & was_there, _durations("remote"))
        .when(~is_sender & was_late, _durations("late"))
    )


def _durations(*paths: str) -> Column:
    return F.array(
        *(
            F.struct(F.lit(number).alias("number"), _duration(step).alias("ms"))
            for number, step in enumerate(STEPS, 1)
            if step.path in paths
        )
    )


def _duration(step: Step) -> Column:
    if step.clock is Clock.EITHER:
        return F.coalesce(_between(step, "ms"), _between(step, "time"))
    return _between(step, "ms" if step.clock is Clock.OWN else "time")


def _between(step: Step, clock: str) -> Column:
    return F.col(f"{step.end}_{clock}") - F.col(f"{step.begin}_{clock}")


def step_histograms(durations: DataFrame) -> DataFrame:
    """Returns HISTOGRAMS."""
    nobody = F.lit(None).cast("string")
    by_node = F.struct("node", "sender", "size_rank", F.lit(None).cast("long").alias("window_ms"))
    by_window = F.struct(
        nobody.alias("node"), nobody.alias("sender"), F.lit(None).cast("int").alias("size_rank"), "window_ms"
    )
    spread = durations.select("cluster", "number", "ms", F.inline(F.array(by_node, by_window)))
    histograms = counted(spread, ["cluster", "number", "node", "sender", "size_rank", "window_ms"])
    named = (
        histograms.withColumn(
            "path", F.element_at(F.array(*(F.lit(step.path) for step in STEPS)), F.col("number"))
        )
        .withColumn("step", F.element_at(F.array(*(F.lit(step.name) for step in STEPS)), F.col("number")))
        .withColumn("size", size_name(F.col("size_rank")))
    )
    return conform(named, HISTOGRAMS)


def latencies(histograms: DataFrame) -> DataFrame:
    """Returns LATENCIES."""
    window = F.col("window_ms")
    of_nodes = F.array(
        _dimension("all", F.lit(""), F.lit(0)),
        _dimension("node", F.col("node"), F.lit(0)),
        _dimension("sender", F.col("sender"), F.lit(0)),
        _dimension("size", F.col("size"), F.col("size_rank")),
    )
    of_windows = F.array(_dimension("window", window.cast("string"), window))
    measured = ["bucket", "messages", "total_ms", "min_ms", "max_ms"]
    spread = histograms.select(
        *_STEP, *measured, F.inline(F.when(window.isNull(), of_nodes).otherwise(of_windows))
    )
    keys = [*_STEP, *_DIMENSION]
    return conform(summarized(merged(spread, keys), keys), LATENCIES)


def _dimension(name: str, value: Column, rank: Column) -> Column:
    return F.struct(F.lit(name).alias("dimension"), value.alias("value"), rank.cast("long").alias("rank"))


def waterfall(summed: DataFrame) -> DataFrame:
    """Returns WATERFALL, from LATENCIES."""
    place = F.lit(None)
    for step in STEPS:
        if step.place is not None:
            is_it = (F.col("path") == step.path) & (F.col("step") == step.name)
            place = F.when(is_it, F.lit(step.place)).otherwise(place)
    placed = summed.where(F.col("dimension") == "all").withColumn("place", place)
    return conform(placed.where(F.col("place").isNotNull()), WATERFALL)

"""Keeps generations of a cluster apart: what was bootstrapped anew is another cluster, with an order of its own.

An export says which generation its log is of (all zeros if its node was bound to none yet); a journal does not. If
all exports of a cluster are of one generation, nothing is changed. Otherwise each generation becomes a cluster of
its own, `<cluster>@<generation>`: a node's exports and journals go with its generation. Journals of nodes that
have exports of several, or of none, could be of any, and what clients were told cannot be assigned either: both
are left out, and reported."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TypeAlias

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from spark.reading import Inputs

GENERATIONS = "generations"
SHORT = 8
"""How much of a generation is in the name of its cluster."""


Left: TypeAlias = list[tuple[str, str, str | None, str, int]]
"""Rows of INCOMPLETE."""


def split(spark: SparkSession, inputs: Inputs) -> tuple[Inputs, Left]:
    """Returns the inputs with generations as clusters, and what had to be left out."""
    told = inputs.manifests.select("cluster", "node", "export", "generation").distinct().collect()
    several = _several(told)
    if not several:
        return inputs, []
    of_nodes, of_exports = _names([row for row in told if row["cluster"] in several])
    nodes = spark.createDataFrame(of_nodes, "cluster string, node string, to string")
    exports = spark.createDataFrame(of_exports, "cluster string, export string, to string")
    what = "clusters with several generations, of which some journals and all clients' answers are left out"
    left: Left = [(cluster, GENERATIONS, None, what, 1) for cluster in several]
    renamed = replace(
        inputs,
        records=_renamed(inputs.records, nodes, ["cluster", "node"], several),
        logs=_renamed(inputs.logs, exports, ["cluster", "export"], several),
        manifests=_renamed(inputs.manifests, exports, ["cluster", "export"], several),
        files=_renamed(inputs.files, exports, ["cluster", "export"], several),
        told=inputs.told.where(~F.col("cluster").isin(*several)),
    )
    return renamed, left


def _is_bound(row: Row) -> bool:
    return bool((row["generation"] or "").strip("0"))


def _several(told: list[Row]) -> list[str]:
    found: dict[str, set[str]] = defaultdict(set)
    for row in told:
        if _is_bound(row):
            found[row["cluster"]].add(row["generation"])
    return sorted(cluster for cluster, generations in found.items() if len(generations) > 1)


def _names(told: list[Row]) -> tuple[list[tuple[str, str, str]], list[tuple[str, str, str]]]:
    """Returns the new clusters of nodes, and of exports. An export of a node that was bound to none goes with the
    node's others."""
    generations: dict[tuple[str, str], set[str]] = defaultdict(set)
    exports: dict[tuple[str, str], str] = {}
    for row in filter(_is_bound, told):
        name = f"{row['cluster']}@{row['generation'][:SHORT]}"
        generations[row["cluster"], row["node"]].add(name)
        exports[row["cluster"], row["export"]] = name
    nodes = {node: min(found) for node, found in generations.items() if len(found) == 1}
    for row in told:
        if (row["cluster"], row["node"]) in nodes:
            exports.setdefault((row["cluster"], row["export"]), nodes[row["cluster"], row["node"]])
    return (
        [(cluster, node, name) for (cluster, node), name in sorted(nodes.items())],
        [(cluster, export, name) for (cluster, export), name in sorted(exports.items())],
    )


def _renamed(frame: DataFrame, names: DataFrame, keys: list[str], several: list[str]) -> DataFrame:
    joined = frame.join(F.broadcast(names), keys, "left")
    kept = joined.where(~F.col("cluster").isin(*several) | F.col("to").isNotNull())
    return kept.withColumn("cluster", F.coalesce("to", "cluster")).select(*frame.columns)

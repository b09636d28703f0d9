"""`DATA/cluster.json`: which cluster a data directory of `corelkv cluster` belongs to, and which of its nodes have
been ready."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex

NODES = 3
"""How many nodes a new cluster has, unless `--nodes` says otherwise."""


class ClusterError(Exception):
    """The cluster cannot start. The message says what to do."""


@dataclass(frozen=True, slots=True)
class ClusterFile:
    """The content of `DATA/cluster.json`. A node with an empty disk may vote only if it cannot have lost anything:
    a node is bootstrapped until it has been ready once, and never again, even if its directory is removed."""

    cluster: str
    nodes: int
    bootstrapped: frozenset[str] = frozenset()

    @classmethod
    def open(cls, data: Path, nodes: int | None) -> ClusterFile:
        """Returns the file of the directory, or creates one in an empty directory. Raises `ClusterError`."""
        path = data / "cluster.json"
        if not path.exists():
            return cls._create(data, nodes or NODES)
        try:
            content = json.loads(path.read_text())
            found = cls(content["cluster"], int(content["nodes"]), frozenset(content["bootstrapped"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ClusterError(f"cannot read {path}: {error!r}. Use another --data directory.") from None
        if nodes not in (None, found.nodes):
            raise ClusterError(
                f"{data} is a cluster of {found.nodes} nodes, not of {nodes}: use --nodes {found.nodes}, or "
                "another --data directory"
            )
        return found

    @classmethod
    def _create(cls, data: Path, nodes: int) -> ClusterFile:
        try:
            data.mkdir(parents=True, exist_ok=True)
            if any(data.iterdir()):
                raise ClusterError(
                    f"{data} is not empty, and has no cluster.json that says which cluster it is: choose a new or "
                    "empty directory with --data"
                )
            created = cls(f"dev-{token_hex(4)}", nodes)
            created.save(data)
        except OSError as error:
            raise ClusterError(f"cannot use {data}: {error.strerror}. Choose another --data directory.") from None
        return created

    def save(self, data: Path) -> None:
        content = {"cluster": self.cluster, "nodes": self.nodes, "bootstrapped": sorted(self.bootstrapped)}
        temporary = data / "cluster.json.new"
        with open(temporary, "w") as file:
            file.write(json.dumps(content) + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, data / "cluster.json")

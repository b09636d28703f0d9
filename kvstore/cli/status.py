"""`corelkv status`: one look at every node, or with `--watch` one that goes on."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from kvstore.cli.commands import cluster_of, status_of
from kvstore.cli.node_state import NodeState
from kvstore.cli.output import Exit, UsageError, print_json, printable
from kvstore.cli.tables import print_table

_HEADER = ("node", "state", "view", "green", "yellow", "red", "revision", "url")


def status(options: argparse.Namespace) -> int:
    if options.watch:
        return _watch(options)
    if options.interval is not None:
        raise UsageError("--interval is how often --watch asks: add --watch")
    found = [status_of(node["name"], node.get("url")) for node in cluster_of(options)]
    if options.json:
        print_json(found)
    else:
        print_table(_HEADER, [_row(one) for one in found])
        for one in found:
            for warning in one.get("warnings", ()):
                print(f"{one['node']}: {printable(warning)}")
    return Exit.OK if any("error" not in one for one in found) else Exit.UNREACHABLE


def _row(status: Mapping[str, Any]) -> tuple[str, ...]:
    url = status["url"] or "unknown (see --urls)"
    if "error" in status:
        return (status["node"], "unreachable", "", "", "", "", "", url)
    state = NodeState.of(status)
    numbers = map(str, (state.green, state.yellow, state.red, state.revision))
    return (state.node, state.label, ",".join(state.members), *numbers, url)


def _watch(options: argparse.Namespace) -> int:
    from kvstore.cli.status_watch import INTERVAL_SECONDS, watch_status

    nodes = cluster_of(options)
    asked = next((node["name"] for node in nodes if node.get("me")), nodes[0]["name"])
    urls = [(node["name"], node.get("url")) for node in nodes]
    return watch_status(urls, asked, options.interval or INTERVAL_SECONDS, options.json)

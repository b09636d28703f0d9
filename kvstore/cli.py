"""The `corelkv` command."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from string import ascii_lowercase

from kvstore.demo import DemoError, ServeOptions, run_cluster, serve
from transport.incarnation import IncarnationError
from transport.udp import BroadcastMode, Mode, MulticastMode, PeersMode, UdpError, parse_address


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        if options.command == "cluster":
            names = ascii_lowercase[: options.nodes]
            return run_cluster(names, options.port, options.data, options.every_ms)
        serve(_serve_options(options))
        return 0
    except (DemoError, IncarnationError, UdpError, ValueError) as error:
        print(f"corelkv: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="corelkv",
        description="A replicated key-value store. So far: transport and membership, which the commands show.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    cluster = commands.add_parser("cluster", help="start nodes on this machine and show what each delivers")
    cluster.add_argument("--nodes", type=_node_count, default=3, help="how many (default 3)")
    cluster.add_argument("--port", type=int, default=7400, help="UDP broadcast port (default 7400)")
    cluster.add_argument("--data", type=Path, help="directory for the nodes' files (default: a temporary one)")

    one = commands.add_parser("serve", help="run one node")
    one.add_argument("--node", required=True, help="this node's name")
    one.add_argument("--roster", required=True, help="all nodes' names: a,b,c")
    one.add_argument("--data", type=Path, required=True, help="directory for this node's files")
    one.add_argument("--cluster", default="corelkv", help="clusters of different names ignore each other")
    one.add_argument(
        "--bootstrap",
        action="store_true",
        help="on the very first start of a new cluster: count incarnations from 1",
    )
    reach = one.add_mutually_exclusive_group()
    reach.add_argument("--broadcast", default="127.255.255.255:7400", metavar="ADDRESS:PORT")
    reach.add_argument("--multicast", metavar="GROUP:PORT")
    reach.add_argument("--peers", metavar="HOST:PORT,...", help="all nodes' addresses, this node's (--bind) too")
    one.add_argument("--bind", metavar="HOST:PORT", help="with --peers: where this node listens")
    for command in (cluster, one):
        command.add_argument("--every-ms", type=float, default=500.0, help="pause between messages (default 500)")
    return parser


def _serve_options(options: argparse.Namespace) -> ServeOptions:
    roster = tuple(options.roster.split(","))
    if options.node not in roster:
        raise ValueError(f"--node {options.node} is not in --roster {options.roster}")
    if len(set(roster)) < len(roster):
        raise ValueError(f"--roster needs distinct names, not {options.roster}")
    return ServeOptions(
        node=options.node,
        roster=roster,
        mode=_mode(options),
        data=options.data,
        cluster=options.cluster,
        every_ms=options.every_ms,
        is_new_cluster=options.bootstrap,
    )


def _mode(options: argparse.Namespace) -> Mode:
    if options.peers:
        if not options.bind:
            raise ValueError("--peers needs --bind: which of the addresses is this node's?")
        peers = tuple(parse_address(peer) for peer in options.peers.split(","))
        return PeersMode(parse_address(options.bind), peers)
    if options.multicast:
        return MulticastMode(parse_address(options.multicast))
    return BroadcastMode(parse_address(options.broadcast))


def _node_count(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= len(ascii_lowercase):
        raise argparse.ArgumentTypeError("between 1 and 26")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())

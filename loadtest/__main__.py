"""`python -m loadtest run` runs a load test, and `python -m loadtest audit` judges one that Locust ran by
itself."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path

from loadtest.evidence import SAMPLE, audit_run
from loadtest.levels import LevelError
from loadtest.nodes import NodeError, Nodes
from loadtest.run import RunOptions, run
from loadtest.shapes import SHAPES


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        return _audit(options) if options.command == "audit" else _run(options)
    except (NodeError, LevelError, FileNotFoundError) as error:
        print(f"loadtest: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("loadtest: interrupted; everything that was started has been stopped", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m loadtest", description=__doc__, allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    run_ = commands.add_parser("run", help="load a cluster, audit it, and write a report", allow_abbrev=False)
    run_.add_argument("--host", default="", help="URLs of the nodes, with commas (default: a cluster of its own)")
    run_.add_argument("--nodes", type=int, default=3, help="how many nodes its own cluster has (3)")
    run_.add_argument(
        "--http-port", type=int, default=0, help="first port of its own cluster (default: free ones)"
    )
    run_.add_argument("--udp-port", type=int, default=0, help="broadcast port of its own cluster")
    run_.add_argument("--duration", type=float, default=60.0, metavar="SECONDS", help="how long users work (60)")
    run_.add_argument("--users", type=int, default=50, help="how many there are at most (50)")
    run_.add_argument(
        "--workers", type=int, default=0, help="processes that make the load (0: one, without a master)"
    )
    run_.add_argument("--shape", choices=SHAPES, default="soak", help="how the number of users changes (soak)")
    run_.add_argument("--chaos", action="store_true", help="partition, kill and heal nodes meanwhile")
    run_.add_argument("--level", action="append", default=[], metavar="NAME=LIMIT", help="a service level")
    run_.add_argument("--levels", type=Path, metavar="FILE", help="service levels from a TOML file")
    run_.add_argument(
        "--output", type=Path, metavar="DIR", help="for report and record (default: build/load/TIME)"
    )
    run_.add_argument("--web", action="store_true", help="with Locust's page on port 8089 meanwhile")
    run_.add_argument("locust", nargs="*", metavar="-- OPTION", help="options of the locustfile, after --")
    audit = commands.add_parser("audit", help="judge a run by its record", allow_abbrev=False)
    audit.add_argument("directory", type=Path, help="what the run had as --record")
    audit.add_argument("--host", required=True, help="URLs of all nodes, with commas")
    for command in (run_, audit):
        command.add_argument("--sample", type=int, default=SAMPLE, help=f"writes asked for by id ({SAMPLE})")
    return parser


def _run(options: argparse.Namespace) -> int:
    names = [name for name in vars(options) if name not in ("command", "host")]
    return run(RunOptions(hosts=_hosts(options), **{name: getattr(options, name) for name in names}))


def _audit(options: argparse.Namespace) -> int:
    with contextlib.closing(Nodes(_hosts(options))) as nodes:
        audit = audit_run(options.directory, nodes, lambda text: print(text, flush=True), options.sample)
    print("\n".join(audit.lines()))
    return 0 if audit.is_good else 1


def _hosts(options: argparse.Namespace) -> list[str]:
    return [host.strip().rstrip("/") for host in options.host.split(",") if host.strip()]


if __name__ == "__main__":
    sys.exit(main())

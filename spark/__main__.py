"""`python -m spark generate`: large synthetic logs, for those who work on the analysis itself. What analyses and
follows logs is `corelkv analyze`."""

from __future__ import annotations

import argparse
import sys
import time

from spark.generator import PLANTS, PlantError, generate, plant, shape_of
from spark.session import LOCAL, SparkUnavailable, open_session


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    status: int = options.run(options, dict(one.split("=", 1) for one in options.conf))
    return status


def _generate(options: argparse.Namespace, conf: dict[str, str]) -> int:
    try:
        shape = shape_of(options.events, options.nodes, options.seed)
        session = open_session(options.master, conf, "corelkv generate")
    except (SparkUnavailable, ValueError) as error:
        print(f"corelkv: {error}", file=sys.stderr)
        return 2
    started = time.monotonic()
    try:
        generate(session, shape, options.out, options.bodies)
        for name in options.plant:
            plant(session, options.out, name)
    except PlantError as error:
        print(f"corelkv: {error}", file=sys.stderr)
        return 2
    finally:
        session.stop()
    seconds = time.monotonic() - started
    print(
        f"{shape.events:,} events of {shape.nodes} nodes, {shape.majority_length:,} messages, in {seconds:.0f} s"
    )
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m spark", description="Synthetic logs of a cluster.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    made = commands.add_parser("generate", help="write journals and exported logs")
    made.add_argument("--events", type=int, default=1_000_000, help="about how many there are (1,000,000)")
    made.add_argument("--nodes", type=int, default=3, help="3 to 26 (3)")
    made.add_argument("--seed", type=int, default=1, help="the same seed makes the same logs (1)")
    made.add_argument("--out", required=True, metavar="DIR", help="a directory of any file system of Hadoop's")
    made.add_argument("--bodies", action="store_true", help="with bodies in the exported logs")
    made.add_argument("--plant", action="append", default=[], choices=sorted(PLANTS), help="plant this violation")
    made.add_argument("--master", default=LOCAL, help=f"Spark's master ({LOCAL})")
    made.add_argument("--conf", action="append", default=[], metavar="NAME=VALUE", help="a setting of Spark's")
    made.set_defaults(run=_generate)
    return parser


if __name__ == "__main__":
    sys.exit(main())

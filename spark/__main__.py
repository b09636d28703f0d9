"""`python -m spark generate` and `follow`: large synthetic logs, and what growing journals say, for those who work
on the analysis itself. What analyses logs is `corelkv analyze`."""

from __future__ import annotations

import argparse
import sys
import time

from spark.generator import PLANTS, PlantError, generate, plant, shape_of
from spark.session import LOCAL, SparkUnavailable, open_session
from spark.streaming import FILES_PER_BATCH, CheckpointError, as_json, as_text, follow


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    status: int = options.run(options, dict(one.split("=", 1) for one in options.conf))
    return status


def _follow(options: argparse.Namespace, conf: dict[str, str]) -> int:
    shown = as_json if options.json else as_text
    try:
        session = open_session(options.master, conf, "corelkv follow")
        follow(
            session,
            options.directories,
            options.checkpoint,
            lambda told: print("\n".join(shown(told)), flush=True),
            is_once=options.once,
            seconds=options.seconds,
            files_per_batch=options.files_per_batch,
        )
    except (SparkUnavailable, CheckpointError) as error:
        print(f"corelkv: {error}", file=sys.stderr)
        return 2
    session.stop()
    return 0


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
    made.set_defaults(run=_generate)
    followed = commands.add_parser("follow", help="tell of journals while they grow")
    followed.add_argument("directories", nargs="+", metavar="DIR")
    followed.add_argument("--checkpoint", required=True, metavar="DIR", help="from where it goes on the next time")
    followed.add_argument("--json", action="store_true", help="a JSON object a line")
    followed.add_argument("--once", action="store_true", help="end when what is there has been read")
    followed.add_argument("--for", dest="seconds", type=float, metavar="SECONDS", help="end after this time")
    followed.add_argument("--files-per-batch", type=int, default=FILES_PER_BATCH, metavar="N", help="at the most")
    followed.set_defaults(run=_follow)
    for command in (made, followed):
        command.add_argument("--master", default=LOCAL, help=f"Spark's master ({LOCAL})")
        command.add_argument(
            "--conf", action="append", default=[], metavar="NAME=VALUE", help="a setting of Spark's"
        )
    return parser


if __name__ == "__main__":
    sys.exit(main())

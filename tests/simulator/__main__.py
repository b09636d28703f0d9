"""`python -m tests.simulator run|replay|mutants`."""

from __future__ import annotations

import argparse
import os
import sys

from tests.simulator.hunt import hunt_all
from tests.simulator.runner import LAYERS, NODES_MAX, NODES_MIN, replay, run_seeds


def main() -> int:
    arguments = _parser().parse_args()
    if arguments.command == "run":
        nodes = arguments.nodes
        first, last = arguments.seeds
        failures = run_seeds(arguments.layer, range(first, last + 1), nodes, arguments.jobs)
        return 1 if failures else 0
    if arguments.command == "mutants":
        first, last = arguments.seeds
        return 1 if hunt_all(range(first, last + 1), arguments.jobs) else 0
    try:
        return 0 if replay(arguments.layer, arguments.seed, arguments.nodes, print) else 1
    except BrokenPipeError:  # the reader of the pipe has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.simulator", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run many seeds; exit 1 if any fails")
    run.add_argument("--seeds", type=_span, default=(1, 100), metavar="FIRST-LAST")
    run.add_argument("--jobs", type=int, help="processes (default: one per core)")
    again = commands.add_parser("replay", help="run one seed and print its event trace")
    again.add_argument("--seed", type=int, required=True)
    mutants = commands.add_parser("mutants", help="plant bugs in every layer; exit 1 if any is not noticed")
    mutants.add_argument("--seeds", type=_span, default=(1, 2_000), metavar="FIRST-LAST")
    mutants.add_argument("--jobs", type=int, help="processes (default: one per core)")
    for command in (run, again):
        command.add_argument("--layer", choices=sorted(LAYERS), default="transport")
        command.add_argument("--nodes", type=_span, default=(NODES_MIN, NODES_MAX), metavar="MIN-MAX")
    return parser


def _span(text: str) -> tuple[int, int]:
    """Reads `3-9`, or `5` for `5-5`."""
    first, _, last = text.partition("-")
    try:
        span = (int(first), int(last or first))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number or FIRST-LAST") from None
    if not 1 <= span[0] <= span[1]:
        raise argparse.ArgumentTypeError(f"{text!r} is empty")
    return span


if __name__ == "__main__":
    sys.exit(main())

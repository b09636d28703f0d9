"""`python -m tests.simulator run|replay|mutants|settle|audit`."""

from __future__ import annotations

import argparse
import os
import sys
from functools import partial
from pathlib import Path

from tests.simulator.hunt import hunt_all
from tests.simulator.membership.settling import JITTER_MS, SITUATIONS, cases_of, settle_all
from tests.simulator.recording.campaign import Campaign, run_campaign
from tests.simulator.recording.cases import FAMILIES
from tests.simulator.runner import LAYERS, NODES_MAX, NODES_MIN, replay, run_seeds
from tests.simulator.speed import prepare_for_many_runs


def main() -> int:
    arguments = _parser().parse_args()
    prepare_for_many_runs()
    if arguments.command == "run":
        nodes = arguments.nodes
        first, last = arguments.seeds
        failures = run_seeds(arguments.layer, range(first, last + 1), nodes, arguments.jobs)
        return 1 if failures else 0
    if arguments.command == "mutants":
        first, last = arguments.seeds
        return 1 if hunt_all(range(first, last + 1), arguments.jobs) else 0
    if arguments.command == "settle":
        first, last = arguments.seeds
        losses = [percent / 100.0 for percent in arguments.loss]
        cases = cases_of(arguments.situations, arguments.machines, losses, arguments.jitter_ms, arguments.cpu_us)
        return 0 if settle_all(cases, range(first, last + 1), arguments.jobs, partial(print, flush=True)) else 1
    if arguments.command == "audit":
        first, last = arguments.seeds
        layers, seeds = tuple(arguments.layers), range(first, last + 1)
        campaign = Campaign(layers, seeds, arguments.seeds_per_bug, arguments.jobs)
        return 1 if run_campaign(campaign, arguments.keep) else 0
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
    settle = commands.add_parser(
        "settle", help="time from a stable network to one view, over seeds; exit 1 if never"
    )
    settle.add_argument("--situations", nargs="+", choices=SITUATIONS, default=SITUATIONS)
    settle.add_argument("--machines", nargs="+", type=int, default=(3, 5, 9, 16))
    settle.add_argument("--loss", nargs="+", type=float, default=(0.0, 5.0, 20.0), metavar="PERCENT")
    settle.add_argument("--jitter-ms", type=float, default=JITTER_MS, help="of the stable network")
    settle.add_argument("--cpu-us", type=float, default=0.0, help="that a machine is busy with a datagram")
    settle.add_argument("--seeds", type=_span, default=(1, 1_000), metavar="FIRST-LAST")
    settle.add_argument("--jobs", type=int, help="processes (default: one per core)")
    audit = commands.add_parser(
        "audit", help="record runs, audit them with Spark, compare the verdicts; exit 1 if any differ"
    )
    audit.add_argument("--layers", nargs="+", choices=tuple(FAMILIES), default=tuple(FAMILIES))
    audit.add_argument("--seeds", type=_span, default=(1, 100), metavar="FIRST-LAST", help="of each layer")
    audit.add_argument("--seeds-per-bug", type=int, default=1, help="runs of each planted bug (0: none)")
    audit.add_argument("--keep", type=Path, metavar="DIR", help="keep what was recorded in this directory")
    audit.add_argument("--jobs", type=int, help="processes (default: one per core)")
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

"""`python -m tests.exploration [CASE ...]`: explores cases and prints how many states each has. If a forbidden
state is found, it prints a shortest way to it, and the exit status is 1."""

from __future__ import annotations

import argparse
import sys

from tests.exploration.cases import CASES, Case
from tests.exploration.explorer import Exploration, explore

_COLUMNS = "{:<24}{:<20}{:>11}{:>13}{:>7}{:>9}{:>10}  {:<9}{:>7}"
_HEADING = ("case", "part", "states", "transitions", "depth", "at rest", "timeouts", "complete", "CPU s")


def main() -> int:
    arguments = _arguments()
    if arguments.list:
        for case in CASES:
            print(f"{case.name:<24}{case.about}{' (only if named)' if case.is_large else ''}")
        return 0
    cases = [case for case in CASES if case.name in arguments.cases or not (arguments.cases or case.is_large)]
    print(_COLUMNS.format(*_HEADING), flush=True)
    offences = [_run(case, arguments.depth_max, arguments.states_max) for case in cases]
    return 1 if any(offences) else 0


def _run(case: Case, depth_max: int | None, states_max: int | None) -> bool:
    """Explores the parts of a case up to the first offence, and returns whether there was one."""
    for rules in case.parts:
        depths = [depth for depth in (case.depth_max, depth_max) if depth is not None]
        found = explore(case.start(rules), min(depths, default=None), states_max, _show_progress)
        _clear_progress()
        print(_row(case.name, case.part_name(rules), found), flush=True)
        if found.offence:
            print("\n".join([f"  {found.offence}", *(f"    {line}" for line in found.trace)]), flush=True)
            return True
    return False


def _row(name: str, part: str, found: Exploration) -> str:
    counts = [f"{count:,}" for count in (found.states, found.transitions, found.depth)]
    ends = [f"{count:,}" for count in (found.at_rest, found.timeouts)]
    complete = "OFFENCE" if found.offence else "yes" if found.is_complete else "no"
    return _COLUMNS.format(name, part, *counts, *ends, complete, f"{found.cpu_seconds:.1f}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.exploration", description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", help="default: all but the largest")
    parser.add_argument("--list", action="store_true", help="say which cases there are, and end")
    parser.add_argument("--states-max", type=_positive, metavar="N", help="end after the depth that has so many")
    parser.add_argument("--depth-max", type=_positive, metavar="N", help="end at this depth")
    arguments = parser.parse_args()
    if unknown := set(arguments.cases).difference(case.name for case in CASES):
        parser.error(f"no such case: {', '.join(sorted(unknown))} (--list names all)")
    return arguments


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return int(text)


def _show_progress(states: int, depth: int) -> None:
    if sys.stderr.isatty():
        print(f"\r{states:,} states, depth {depth}", end="", file=sys.stderr, flush=True)


def _clear_progress() -> None:
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())

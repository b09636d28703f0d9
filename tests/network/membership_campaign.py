"""Tells the stories of `test_membership_lan` again and again, and says how long the changes of view took.

    python -m tests.network.membership_campaign --repetitions 20

Needs root, for network namespaces. Prints Markdown for `docs/performance.md`; its exit status is 1 if a story went
wrong or an aim was missed. The logs and journals of what went wrong are kept.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from tests.network import test_membership_lan as stories
from tests.network.membership_lan import Members, Timing, running

SCENARIOS: dict[str, Callable[[Members], None]] = {
    "two sides": stories.test_two_sides_of_a_cut,
    "one alone": stories.test_one_member_alone,
    "three components": stories.test_three_components_merge_at_once,
    "one-way link": stories.test_a_one_way_link,
    "missing link": stories.test_a_link_that_is_missing,
    "killed": stories.test_a_killed_member_comes_back_as_another,
    "restarted": stories.test_a_member_is_restarted_before_it_is_missed,
    "stopped": stories.test_a_stopped_member_comes_back_as_itself,
}
MEDIAN_MS_MAX = 1_500.0
"""The aims, for cuts and heals."""
TOOK_MS_MAX = 3_000.0


@dataclass
class Findings:
    """What all repetitions of a scenario showed."""

    failures: int = 0
    timings: dict[str, list[Timing]] = field(default_factory=dict)
    pauses_ms: list[float] = field(default_factory=list)

    def add(self, members: Members) -> None:
        for timing in members.timings:
            self.timings.setdefault(timing.cause, []).append(timing)
        self.pauses_ms += members.pauses_ms()


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    findings = {name: Findings() for name in options.scenario or SCENARIOS}
    directory = Path(tempfile.mkdtemp(prefix="membership-campaign-"))
    for repetition in range(options.repetitions):
        for name, found in findings.items():
            _tell(name, directory / f"{name.replace(' ', '-')}-{repetition}", found, options.keep)
    print(report(findings, options.repetitions))
    failures = sum(found.failures for found in findings.values())
    if failures or options.keep:
        print(f"{failures} stories went wrong; logs and journals are in {directory}")
    else:
        directory.rmdir()
    return 1 if failures or _missed(findings) else 0


def _tell(name: str, directory: Path, found: Findings, is_kept: bool) -> None:
    directory.mkdir()
    try:
        with running(directory) as members:
            SCENARIOS[name](members)
    except Exception:  # whatever it was, the other repetitions are worth seeing
        found.failures += 1
        print(f"{directory.name} went wrong:", file=sys.stderr)
        traceback.print_exc()
        return
    found.add(members)
    if not is_kept:
        shutil.rmtree(directory)
    took = ", ".join(f"{timing.cause} {timing.took_ms:.0f}" for timing in members.timings)
    print(f"{directory.name}: {took} ms", file=sys.stderr, flush=True)


def report(findings: dict[str, Findings], repetitions: int) -> str:
    lines = [
        f"Five processes on a LAN of network namespaces, {repetitions} repetitions of each scenario.",
        "",
        "| scenario | what was done | views after, median ms | max ms | views on the way, max |",
        "|---|---|---|---|---|",
    ]
    for name, found in findings.items():
        for cause, timings in found.timings.items():
            took_ms = [timing.took_ms for timing in timings]
            views = max(timing.views for timing in timings)
            what = cause.replace("|", "\\|")
            lines.append(f"| {name} | {what} | {median(took_ms):,.0f} | {max(took_ms):,.0f} | {views} |")
    lines += [
        "",
        "| scenario | changes | sending paused, median ms | p99 ms | max ms | repetitions that failed |",
        "|---|---|---|---|---|---|",
    ]
    lines += [_pauses_row(name, found.pauses_ms, found.failures) for name, found in findings.items()]
    everything = [pause_ms for found in findings.values() for pause_ms in found.pauses_ms]
    lines.append(_pauses_row("all", everything, sum(found.failures for found in findings.values())))
    missed = _missed(findings)
    aim = f"Aim, from a cut or heal to the views: median ≤ {MEDIAN_MS_MAX:,.0f} ms, max ≤ {TOOK_MS_MAX:,.0f} ms"
    return "\n".join([*lines, "", f"{aim}: {'missed by ' + ', '.join(missed) if missed else 'reached'}."])


def _pauses_row(name: str, pauses_ms: Sequence[float], failures: int) -> str:
    ordered = sorted(pauses_ms) or [0.0]
    p99_ms = ordered[int(0.99 * (len(ordered) - 1))]
    return (
        f"| {name} | {len(pauses_ms)} | {median(ordered):,.0f} | {p99_ms:,.0f} | {ordered[-1]:,.0f} | {failures} |"
    )


def _missed(findings: dict[str, Findings]) -> list[str]:
    missed = []
    for name, found in findings.items():
        for cause, timings in found.timings.items():
            took_ms = [timing.took_ms for timing in timings]
            is_judged = cause.startswith(("cut", "heal"))
            if is_judged and (median(took_ms) > MEDIAN_MS_MAX or max(took_ms) > TOOK_MS_MAX):
                missed.append(f"{name} ({cause})")
    return missed


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.network.membership_campaign", description=__doc__)
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--scenario", action="append", choices=list(SCENARIOS), help="only this (repeatable)")
    parser.add_argument("--keep", action="store_true", help="keep the logs of what went well, too")
    return parser


if __name__ == "__main__":
    sys.exit(main())

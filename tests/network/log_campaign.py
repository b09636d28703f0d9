"""Tells the stories of `test_log_lan` again and again, and says how long the nodes were without a primary.

    python -m tests.network.log_campaign --repetitions 20

Needs root, for network namespaces. Prints Markdown for `docs/performance.md`; its exit status is 1 if a story went
wrong or an aim was missed. The records, journals and stores of what went wrong are kept.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from corel.corel import Stage
from tests.network import test_log_lan as stories
from tests.network.log_lan import Replicas, Timing, running
from tests.network.log_member import MESSAGES_PER_SECOND

SCENARIOS: dict[str, Callable[[Replicas], None]] = {
    "majority, all killed": stories.test_a_majority_goes_on_and_all_survive_being_killed,
    "three components": stories.test_three_components_without_a_majority,
    "killed catching up": stories.test_a_node_is_killed_while_it_catches_up,
    "empty disk": stories.test_a_node_with_an_empty_disk_has_no_vote,
    "alone, then killed": stories.test_messages_of_a_node_alone_outlive_it,
    "killed establishing": stories.test_all_are_killed_while_they_establish_a_primary,
    "folded streams": stories.test_messages_of_former_incarnations_stay_green,
}
CAUSES = ("cut", "kill", "heal", "restart")
AIMS_MS = {"cut": 3_000.0, "heal": 3_000.0}
"""The longest it may take until there is a primary."""


@dataclass
class Findings:
    """What all repetitions of a scenario showed."""

    failures: int = 0
    logged: int = 0
    green: int = 0
    to_primary_ms: dict[str, list[float]] = field(default_factory=lambda: {cause: [] for cause in CAUSES})

    def add(self, timings: Iterable[Timing], logged: int, green: int) -> None:
        self.logged += logged
        self.green += green
        for timing in timings:
            if timing.stage is Stage.PRIMARY and timing.cause in CAUSES:
                self.to_primary_ms[timing.cause].append(timing.took_ms)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    findings = {name: Findings() for name in options.scenario or SCENARIOS}
    directory = Path(tempfile.mkdtemp(prefix="log-campaign-"))
    for repetition in range(options.repetitions):
        for name, found in findings.items():
            where = directory / f"{name.replace(', ', '-').replace(' ', '-')}-{repetition}"
            _tell(name, where, found, options)
    print(report(findings, options.repetitions))
    failures = sum(found.failures for found in findings.values())
    if failures or options.keep:
        print(f"{failures} stories went wrong; records, journals and stores are in {directory}")
    else:
        directory.rmdir()
    return 1 if failures or _missed(findings) else 0


def _tell(name: str, directory: Path, found: Findings, options: argparse.Namespace) -> None:
    directory.mkdir()
    try:
        with running(directory, options.messages_per_second) as replicas:
            SCENARIOS[name](replicas)
    except Exception:  # whatever it was, the other repetitions are worth seeing
        found.failures += 1
        print(f"{directory.name} went wrong:", file=sys.stderr)
        traceback.print_exc()
        return
    logged, green = replicas.counts()
    found.add(replicas.timings, logged, green)
    if not options.keep:
        shutil.rmtree(directory)
    took = ", ".join(f"{timing.cause} {timing.took_ms:.0f}" for timing in replicas.timings)
    print(f"{directory.name}: {took} ms; {green:,} messages", file=sys.stderr, flush=True)


def report(findings: dict[str, Findings], repetitions: int) -> str:
    causes = [f"{cause} to primary, median / max ms" for cause in CAUSES]
    lines = [
        f"Five processes on a LAN of network namespaces, writing all the time, {repetitions} repetitions of each.",
        "",
        f"| scenario | failures | messages logged | green | {' | '.join(causes)} |",
        "|---|" + "---|" * (3 + len(causes)),
    ]
    for name, found in findings.items():
        times = [_times(found.to_primary_ms[cause]) for cause in CAUSES]
        counts = f"{found.failures} | {found.logged:,} | {found.green:,}"
        lines.append(f"| {name} | {counts} | {' | '.join(times)} |")
    aims = ", ".join(f"{cause} {aim_ms:,.0f} ms" for cause, aim_ms in AIMS_MS.items())
    missed = _missed(findings)
    verdict = f"missed by {', '.join(missed)}" if missed else "reached"
    return "\n".join([*lines, "", f"Aims, from what was done to a primary at the latest: {aims}: {verdict}."])


def _times(took_ms: Sequence[float]) -> str:
    return f"{median(took_ms):,.0f} / {max(took_ms):,.0f}" if took_ms else ""


def _missed(findings: dict[str, Findings]) -> list[str]:
    missed = []
    for name, found in findings.items():
        for cause, aim_ms in AIMS_MS.items():
            if max(found.to_primary_ms[cause], default=0.0) > aim_ms:
                missed.append(f"{name} ({cause})")
    return missed


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.network.log_campaign", description=__doc__)
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--scenario", action="append", choices=list(SCENARIOS), help="only this (repeatable)")
    parser.add_argument("--messages-per-second", type=float, default=MESSAGES_PER_SECOND, help="of each node")
    parser.add_argument("--keep", action="store_true", help="keep the records of what went well, too")
    return parser


if __name__ == "__main__":
    sys.exit(main())

"""The campaign of `test_nine_nodes`: how long nine nodes take to become one primary component.

python -m tests.network.nine_campaign --repetitions 50

*Cold start*: all nine are started at once with empty disks; then all are killed at once and started at once with
the disks that they have. Interpreters that start are most of the work, so the time until the last process is up is
shown apart from the time until all nine are in the primary component. *Storm*: links are cut one way at random, as
a seed says, then all are healed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from statistics import median

from tests.network.campaign import Campaign, new_parser
from tests.network.log_lan import Replicas, Timing, running
from tests.network.test_nine_nodes import MESSAGES_PER_SECOND, NINE, heal_after_storm, start_again_at_once
from tests.simulator.membership.settling import percentile

COLD_START = "cold start"
STORM = "storm"
SITUATIONS = {
    COLD_START: {"start": "started at once, empty disks", "restart": "started at once, existing disks"},
    STORM: {"storm": "healed after a storm"},
}
"""What is measured in each scenario, by the first word of its cause."""
STORM_MS = 10_000.0
_COLUMNS = (
    "situation",
    "repetitions",
    "started to up, p50 / p90 / max ms",
    "up or healed to primary of nine, p50 / p90 / max ms",
    "started to primary of nine, p50 / p90 / max ms",
    "share of start-up, p50",
)


@dataclass
class Findings:
    """What all repetitions of a scenario showed."""

    name: str
    failures: int = 0
    timings: dict[str, list[Timing]] = field(default_factory=dict)
    loads: list[float] = field(default_factory=list)
    """The load average over a minute after each repetition."""

    def add(self, nodes: Replicas) -> str:
        self.loads.append(os.getloadavg()[0])
        for timing in nodes.timings:
            situation = SITUATIONS[self.name].get(timing.cause.partition(" ")[0])
            if situation is not None:
                self.timings.setdefault(situation, []).append(timing)
        took = ", ".join(f"{timing.cause} {_in_words(timing)}" for timing in nodes.timings)
        return f"{took} ms; load average {self.loads[-1]:.1f}"


def main() -> int:
    parser = new_parser("nine_campaign", __doc__, SITUATIONS)
    parser.add_argument("--messages-per-second", type=float, default=MESSAGES_PER_SECOND, help="of each node")
    parser.add_argument("--storm-ms", type=float, default=STORM_MS, help="how long links are cut one way")
    parser.add_argument("--first-seed", type=int, default=1, help="of the storms")
    options = parser.parse_args()
    seeds = count(options.first_seed)
    scenarios: dict[str, Callable[[Replicas], None]] = {
        COLD_START: start_again_at_once,
        STORM: lambda replicas: heal_after_storm(replicas, next(seeds), options.storm_ms),
    }
    findings = {name: Findings(name) for name in options.scenario or scenarios}
    run = partial(running, messages_per_second=options.messages_per_second, names=NINE)
    campaign = Campaign(scenarios, findings, run, options.keep)
    campaign.repeat(options.repetitions)
    print(report(findings, options.repetitions))
    return 1 if campaign.finish() else 0


def report(findings: dict[str, Findings], repetitions: int) -> str:
    lines = [
        f"Nine processes in network namespaces on {os.cpu_count()} cores, {repetitions} repetitions of each.",
        "",
        f"| {' | '.join(_COLUMNS)} |",
        "|---|" + "---|" * (len(_COLUMNS) - 1),
    ]
    for found in findings.values():
        lines += [_row(situation, timings) for situation, timings in found.timings.items()]
    loads = [load for found in findings.values() for load in found.loads] or [0.0]
    failures = ", ".join(f"{name} {found.failures}" for name, found in findings.items())
    load = f"Load average over a minute: {min(loads):.1f} to {max(loads):.1f}"
    return "\n".join([*lines, "", f"{load}. Repetitions that failed: {failures}."])


def _row(situation: str, timings: Sequence[Timing]) -> str:
    starting_ms = [timing.starting_ms for timing in timings if timing.starting_ms]
    took_ms = [timing.took_ms for timing in timings]
    whole_ms = [timing.starting_ms + timing.took_ms for timing in timings if timing.starting_ms]
    shares = [part / whole for part, whole in zip(starting_ms, whole_ms, strict=True)]
    share = f"{median(shares):.0%}" if shares else ""
    times = " | ".join(map(_times, (starting_ms, took_ms, whole_ms)))
    return f"| {situation} | {len(timings)} | {times} | {share} |"


def _times(took_ms: Sequence[float]) -> str:
    return " / ".join(f"{percentile(took_ms, part):,.0f}" for part in (0.5, 0.9, 1.0)) if took_ms else ""


def _in_words(timing: Timing) -> str:
    starting = f"{timing.starting_ms:.0f} + " if timing.starting_ms else ""
    return f"{starting}{timing.took_ms:.0f}"


if __name__ == "__main__":
    sys.exit(main())

"""The campaign of `test_log_lan`: how long the nodes were without a primary component.

python -m tests.network.log_campaign --repetitions 20
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import median

from corel.stages import Stage
from tests.network import test_log_lan as scenarios
from tests.network.campaign import Campaign, new_parser, verdict
from tests.network.log_lan import Replicas, running
from tests.network.log_member import MESSAGES_PER_SECOND

SCENARIOS: dict[str, Callable[[Replicas], None]] = {
    "majority, all killed": scenarios.test_a_majority_goes_on_and_all_survive_being_killed,
    "three components": scenarios.test_three_components_without_a_majority,
    "killed catching up": scenarios.test_a_node_is_killed_while_it_catches_up,
    "empty disk": scenarios.test_a_node_with_an_empty_disk_has_no_vote,
    "alone, then killed": scenarios.test_messages_of_a_node_alone_outlive_it,
    "killed establishing": scenarios.test_all_are_killed_while_they_establish_a_primary,
    "folded streams": scenarios.test_messages_of_former_incarnations_stay_green,
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

    def add(self, nodes: Replicas) -> str:
        logged, green = nodes.counts()
        self.logged += logged
        self.green += green
        for timing in nodes.timings:
            if timing.stage is Stage.PRIMARY and timing.cause in CAUSES:
                self.to_primary_ms[timing.cause].append(timing.took_ms)
        took = ", ".join(f"{timing.cause} {timing.took_ms:.0f}" for timing in nodes.timings)
        return f"{took} ms; {green:,} messages"


def main() -> int:
    parser = new_parser("log_campaign", __doc__, SCENARIOS)
    parser.add_argument("--messages-per-second", type=float, default=MESSAGES_PER_SECOND, help="of each node")
    options = parser.parse_args()
    findings = {name: Findings() for name in options.scenario or SCENARIOS}
    run = partial(running, messages_per_second=options.messages_per_second)
    campaign = Campaign(SCENARIOS, findings, run, options.keep)
    campaign.repeat(options.repetitions)
    print(report(findings, options.repetitions))
    return 1 if campaign.finish() or _missed(findings) else 0


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
    aim = f"Aims, from the cause to a primary component at the latest: {aims}"
    return "\n".join([*lines, "", f"{aim}: {verdict(_missed(findings))}."])


def _times(took_ms: Sequence[float]) -> str:
    return f"{median(took_ms):,.0f} / {max(took_ms):,.0f}" if took_ms else ""


def _missed(findings: dict[str, Findings]) -> list[str]:
    missed = []
    for name, found in findings.items():
        for cause, aim_ms in AIMS_MS.items():
            if max(found.to_primary_ms[cause], default=0.0) > aim_ms:
                missed.append(f"{name} ({cause})")
    return missed


if __name__ == "__main__":
    sys.exit(main())

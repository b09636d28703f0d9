"""The campaign of `test_membership_lan`: how long the changes of view took.

python -m tests.network.membership_campaign --repetitions 20
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

from tests.network import test_membership_lan as scenarios
from tests.network.campaign import Campaign, new_parser, verdict
from tests.network.membership_lan import Members, Timing, running

SCENARIOS: dict[str, Callable[[Members], None]] = {
    "two sides": scenarios.test_two_sides_of_a_cut,
    "one alone": scenarios.test_one_member_alone,
    "three components": scenarios.test_three_components_merge_at_once,
    "one-way link": scenarios.test_a_one_way_link,
    "missing link": scenarios.test_a_link_that_is_missing,
    "killed": scenarios.test_a_killed_member_comes_back_as_another,
    "restarted": scenarios.test_a_member_is_restarted_before_it_is_missed,
    "stopped": scenarios.test_a_stopped_member_comes_back_as_itself,
}
MEDIAN_MS_MAX = 1_500.0
"""The aim for the median time from a cut or heal to the views."""
TOOK_MS_MAX = 3_000.0
"""The aim for the longest such time."""


@dataclass
class Findings:
    """What all repetitions of a scenario showed."""

    failures: int = 0
    timings: dict[str, list[Timing]] = field(default_factory=dict)
    pauses_ms: list[float] = field(default_factory=list)

    def add(self, nodes: Members) -> str:
        for timing in nodes.timings:
            self.timings.setdefault(timing.cause, []).append(timing)
        self.pauses_ms += nodes.pauses_ms()
        return ", ".join(f"{timing.cause} {timing.took_ms:.0f}" for timing in nodes.timings) + " ms"


def main() -> int:
    options = new_parser("membership_campaign", __doc__, SCENARIOS).parse_args()
    findings = {name: Findings() for name in options.scenario or SCENARIOS}
    campaign = Campaign(SCENARIOS, findings, running, options.keep)
    campaign.repeat(options.repetitions)
    print(report(findings, options.repetitions))
    return 1 if campaign.finish() or _missed(findings) else 0


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
    aim = f"Aim, from a cut or heal to the views: median ≤ {MEDIAN_MS_MAX:,.0f} ms, max ≤ {TOOK_MS_MAX:,.0f} ms"
    return "\n".join([*lines, "", f"{aim}: {verdict(_missed(findings))}."])


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


if __name__ == "__main__":
    sys.exit(main())

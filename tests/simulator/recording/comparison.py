"""What the audit and the simulator's checkers say of the same runs, side by side.

The two do not look at the same things. A checker sees every step of every node; the audit sees what is left on
disks and in journals. So they are compared where a log can show what a checker looks at (`VISIBLE`); elsewhere the
audit may convict, because one bug often leads to several violations, and need not."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple

from tests.simulator.recording.cases import Recorded

VISIBLE = {
    "agreed_green": "Agreed Green and No Changes in Green",
    "bodies": "what is green is what was sent",
    "causal_log": "Causal",
    "yellow_kept": "Yellow",
    "primaries": "one primary component per number, and common members",
    "acknowledged": "what is on disk is not lost",
    "acknowledged_writes": "what clients were told is in the order, once, with the outcome told",
}
"""The checkers whose properties logs can show, and what these are."""


class Verdict(StrEnum):
    AGREED_CLEAN = "clean, clean"
    AGREED_CONVICTED = "convicted, convicted"
    ONLY_SIMULATOR = "convicted by the simulator only"
    ONLY_AUDIT = "convicted by the audit only"
    NOT_VISIBLE = "convicted by the simulator, for what logs do not show"


class Comparison(NamedTuple):
    """One run, and what was found in it."""

    recorded: Recorded
    rules: Mapping[str, int]
    """The rules of the audit that the run breaks, and how often."""

    @property
    def verdict(self) -> Verdict:
        noticed = self.recorded.noticed
        if self.rules:
            return Verdict.ONLY_AUDIT if noticed is None else Verdict.AGREED_CONVICTED
        if noticed is None:
            return Verdict.AGREED_CLEAN
        return Verdict.ONLY_SIMULATOR if noticed in VISIBLE else Verdict.NOT_VISIBLE


def compare(recorded: Iterable[Recorded], found: Mapping[str, Mapping[str, int]]) -> list[Comparison]:
    """Compares runs with what the audit found in each cluster, by rule."""
    comparisons = []
    for one in recorded:
        rules: Counter[str] = Counter()
        for cluster in one.clusters:
            rules.update(found.get(cluster, {}))
        comparisons.append(Comparison(one, dict(rules)))
    return comparisons


def disagreements(comparisons: Iterable[Comparison]) -> list[str]:
    """Returns what the two disagree on: runs that only the audit convicts, runs without a planted bug that only
    the simulator convicts, and planted bugs that it notices by what logs can show, and the audit in no run. In
    single runs with a bug the audit may find nothing: what was wrong for a moment may be mended before it is left
    behind anywhere, or be lost with a journal's last moments."""
    comparisons = list(comparisons)
    of_bugs: dict[tuple[str, str], list[Verdict]] = defaultdict(list)
    found = []
    for one in comparisons:
        case = one.recorded.case
        if case.mutant:
            of_bugs[case.layer, case.mutant].append(one.verdict)
        elif one.verdict is not Verdict.AGREED_CLEAN:
            found.append(f"{case.name}: {one.verdict}")
    for (layer, mutant), verdicts in of_bugs.items():
        is_convicted = Verdict.AGREED_CONVICTED in verdicts
        if Verdict.ONLY_AUDIT in verdicts or (Verdict.ONLY_SIMULATOR in verdicts and not is_convicted):
            found.append(f"{layer}, {mutant}: {', '.join(verdicts)}")
    return found


def table(comparisons: Iterable[Comparison]) -> list[str]:
    """Returns the lines of a table of all runs that anybody convicts, and a summary."""
    comparisons = list(comparisons)
    lines = ["| run | planted bug | simulator | audit | |", "|---|---|---|---|---|"]
    for one in comparisons:
        case = one.recorded.case
        if one.verdict is not Verdict.AGREED_CLEAN:
            rules = ", ".join(f"{rule} ({count})" for rule, count in sorted(one.rules.items()))
            noticed = one.recorded.noticed or "clean"
            lines.append(
                f"| {case.layer} {case.seed} | {case.mutant} | {noticed} | {rules or 'clean'} | {one.verdict} |"
            )
    counts = Counter((bool(one.recorded.case.mutant), one.verdict) for one in comparisons)
    for has_bug in (False, True):
        kind = "with a planted bug" if has_bug else "without"
        parts = [f"{counts[has_bug, verdict]} {verdict}" for verdict in Verdict if counts[has_bug, verdict]]
        lines.append(f"{kind}: {'; '.join(parts) or 'none'}")
    found = disagreements(comparisons)
    return [*lines, *found, f"{len(comparisons)} runs, {len(found)} disagreements"]

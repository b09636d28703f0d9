"""The rules of the audit: each puts the transformations of its module together.

Where something is rare, it is found first and named only if there is any: to name it takes another pass over the
logs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from pyspark.sql import DataFrame

from spark.audit import (
    acknowledged,
    agreement,
    causal,
    colours,
    digests,
    durable,
    journals,
    positions,
    primaries,
    queues,
    yellow,
)
from spark.audit.evidence import Evidence


@dataclass(slots=True)
class Findings:
    """The frames that a rule returns."""

    violations: list[DataFrame] = field(default_factory=list)
    incomplete: list[DataFrame] = field(default_factory=list)
    checked: list[DataFrame] = field(default_factory=list)


Rule: TypeAlias = Callable[[Evidence, DataFrame], Findings]
"""Takes the evidence, and LINES of an earlier audit."""


def agreement_rule(evidence: Evidence, _: DataFrame) -> Findings:
    found = Findings(checked=agreement.agreement_checked(evidence.blocks))
    if not evidence.unlike.isEmpty():
        found.violations.append(agreement.disagreements(evidence.unlike_places))
    return found


def positions_rule(evidence: Evidence, _: DataFrame) -> Findings:
    extents = positions.expected_extents(evidence.manifests)
    wrong = evidence.keep(positions.wrong_blocks(extents, evidence.file_blocks))
    found = Findings(checked=positions.positions_checked(evidence, extents))
    found.violations.append(positions.damaged_files(evidence.files, evidence.file_blocks))
    if not wrong.isEmpty():
        found.violations.append(positions.missing_messages(wrong, evidence.logs, evidence.order))
    return found


def digests_rule(evidence: Evidence, earlier: DataFrame) -> Findings:
    suspicious = evidence.keep(digests.suspicious_links(evidence))
    loose = suspicious.where("is_loose")
    lines = digests.lines_of(evidence.manifests).unionByName(earlier)
    begins = digests.beginnings(evidence.manifests).select("cluster", "position")
    wanted = digests.positions_before(loose).unionByName(digests.positions_of_lines(lines)).unionByName(begins)
    at = evidence.keep(digests.digests_at(evidence.logs, wanted))
    found = Findings(checked=digests.digests_checked(evidence, earlier))
    found.violations = [
        digests.broken_links(suspicious),
        digests.broken_loose_links(loose, at, evidence.manifests),
        digests.wrong_manifests(evidence.manifests, at),
        digests.wrong_beginnings(evidence.manifests, at),
        digests.changed_lines(earlier, at),
    ]
    if not evidence.file_blocks.where("bad_bodies > 0").isEmpty():
        found.violations.append(digests.wrong_bodies(evidence.logs, evidence.file_blocks))
    found.incomplete.append(digests.lines_not_found(earlier, at))
    return found


def causal_rule(evidence: Evidence, _: DataFrame) -> Findings:
    order, covered = evidence.order, evidence.covered
    needs = causal.needs_of_streams(order).unionByName(causal.needs_of_bases(evidence.settled))
    bad = evidence.keep(causal.offending(causal.met_needs(order, needs)))
    epochs = causal.disk_epochs(evidence.incarnations)
    moments = evidence.keep(causal.queued_places(evidence.events, order, epochs))
    early = evidence.keep(causal.sent_too_early(causal.queued_before(moments, epochs), epochs))
    found = Findings(checked=causal.causal_checked(evidence))
    if not bad.isEmpty():
        late = causal.late_causes(bad, causal.needs_by_name(order, evidence.settled), order, covered)
        found.violations += [causal.twice_placed(bad, order), causal.causes_missing(late, order)]
        found.incomplete.append(causal.causes_unknown(late))
    if not early.isEmpty():
        found.violations.append(causal.queue_causes_missing(early, order, evidence.events, epochs, covered))
        found.incomplete.append(causal.queue_causes_unknown(early, covered))
    recovered = evidence.keep(queues.recovered_messages(evidence.events))
    if not recovered.isEmpty():
        moments = evidence.keep(queues.sender_moments(evidence.events, recovered, epochs))
        late = queues.recovered_late(recovered, queues.sent_next(moments, epochs), evidence.events)
        found.violations.append(queues.queues_with_gaps(late))
        found.checked.append(queues.queues_checked(evidence))
    return found


def primaries_rule(evidence: Evidence, _: DataFrame) -> Findings:
    components = evidence.keep(primaries.components(evidence.records))
    rosters = primaries.rosters(evidence.records)
    return Findings(
        violations=[
            primaries.two_views_of_a_number(components),
            primaries.no_majorities(components, rosters),
            primaries.without_common_member(components),
        ],
        checked=primaries.primaries_checked(components),
    )


def yellow_rule(evidence: Evidence, _: DataFrame) -> Findings:
    records, events, order, manifests = evidence.records, evidence.events, evidence.order, evidence.manifests
    reached = evidence.keep(yellow.reached_lines(records, manifests))
    zones = yellow.zone_places(events, yellow.view_numbers(records), reached)
    places = evidence.keep(zones.unionByName(yellow.tail_places(evidence.logs, manifests, reached)))
    demoted = evidence.keep(yellow.demoted_lines(events, yellow.known_numbers(records), reached))
    return Findings(
        violations=[
            yellow.low_lines(records, manifests, reached),
            yellow.misplaced(places, order),
            yellow.lost_demoted(demoted, order),
        ],
        checked=yellow.yellow_checked(evidence.event_counts, manifests),
    )


def colours_rule(evidence: Evidence, _: DataFrame) -> Findings:
    records, events, lossy = evidence.records, evidence.events, evidence.lossy
    demoted = evidence.keep(colours.demoted_messages(events))
    copies = evidence.keep(colours.red_copies(records))
    silent = evidence.keep(colours.silently_red(copies, events, demoted))
    red = evidence.keep(colours.exported_red(evidence.logs, demoted))
    whole = colours.whole_journals(evidence.incarnations, lossy, evidence.manifests)
    return Findings(
        violations=[
            colours.demoted_green(demoted, events),
            colours.demoted_green_before(demoted, evidence.order, evidence.incarnations),
            colours.demoted_outside(demoted, records, lossy),
            colours.silent_violations(silent, lossy),
            colours.never_demoted(red, whole, events),
        ],
        incomplete=[colours.colours_unknown(red, whole, silent, lossy)],
        checked=colours.colours_checked(evidence.event_counts, evidence.logs),
    )


def durable_rule(evidence: Evidence, _: DataFrame) -> Findings:
    exports = durable.last_exports(evidence.manifests)
    streams = evidence.keep(durable.logged_streams(evidence.events, exports))
    due = durable.due_in_exports(streams, evidence.incarnations)
    exported = durable.exported_streams(evidence.logs, exports)
    epochs = causal.disk_epochs(evidence.incarnations)
    return Findings(
        violations=[
            durable.lost_logged(due, exported, exports),
            durable.forgotten_at_start(streams, evidence.incarnations, epochs),
        ],
        checked=durable.durable_checked(due),
    )


def acknowledged_rule(evidence: Evidence, _: DataFrame) -> Findings:
    promises = acknowledged.promises_of_answers(evidence.answers).unionByName(
        acknowledged.promises_of_told(evidence.told)
    )
    kept = acknowledged.kept_promises(promises, evidence.placed)
    remaining = evidence.keep(acknowledged.open_promises(kept))
    lost = acknowledged.still_waiting(acknowledged.lost_promises(remaining), evidence.logs)
    exports = acknowledged.last_exports(evidence.manifests)
    judged = evidence.keep(acknowledged.provable(lost, exports, journals.emptied_nodes(evidence.incarnations)))
    return Findings(
        violations=[acknowledged.broken_promises(remaining), acknowledged.lost_writes(judged)],
        incomplete=[acknowledged.writes_unknown(judged, remaining, exports)],
        checked=acknowledged.acknowledged_checked(evidence),
    )


RULES: dict[str, Rule] = {
    "agreement": agreement_rule,
    "positions": positions_rule,
    "digests": digests_rule,
    "causal": causal_rule,
    "primaries": primaries_rule,
    "yellow": yellow_rule,
    "colours": colours_rule,
    "durable": durable_rule,
    "acknowledged": acknowledged_rule,
}
"""In the order in which they are checked: what is wrong with the logs themselves comes first."""

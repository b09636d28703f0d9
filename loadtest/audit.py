"""Judges a run: whether everything that the cluster promised is so. Each check is a question to the ledger, and
lists the first writes that offend against it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from loadtest.ledger import Ledger
from loadtest.record import FeedDigest

SHOWN_MAX = 10
"""How many offences of one kind a verdict lists."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one check has found."""

    check: str
    offences: tuple[str, ...]
    """The first of them."""
    count: int

    @property
    def is_good(self) -> bool:
        return not self.count


@dataclass(frozen=True, slots=True)
class Audit:
    verdicts: tuple[Verdict, ...]
    counts: dict[str, int] = field(default_factory=dict)
    delays: dict[str, dict[str, float]] = field(default_factory=dict)

    @property
    def is_good(self) -> bool:
        return all(verdict.is_good for verdict in self.verdicts)

    def offences(self, check: str) -> int:
        return sum(verdict.count for verdict in self.verdicts if verdict.check == check)

    def lines(self) -> Iterator[str]:
        """The audit for people."""
        for verdict in self.verdicts:
            yield f"  {'ok    ' if verdict.is_good else 'FAILED'} {verdict.check}"
            for offence in verdict.offences:
                yield f"           {offence}"
            if verdict.count > len(verdict.offences):
                yield f"           and {verdict.count - len(verdict.offences):,} more"


def judge(ledger: Ledger, revision: int) -> Audit:
    """Asks all questions. `revision` is the one that the nodes ended with."""
    verdicts = []
    for check, question in CHECKS.items():
        found = question(ledger, revision)
        first = tuple(islice(found, SHOWN_MAX))
        verdicts.append(Verdict(check, first, len(first) + sum(1 for _ in found)))
    return Audit(tuple(verdicts), counts(ledger), ledger.delays())


def counts(ledger: Ledger) -> dict[str, int]:
    asked = {
        "acknowledged": "certainty = 'acknowledged'",
        "green_at_once": "certainty = 'acknowledged' AND color = 'green'",
        "red_at_first": "certainty = 'acknowledged' AND color != 'green'",
        "unknown": "certainty = 'unknown'",
        "refused": "certainty = 'refused'",
    }
    found = {name: ledger.one(f"SELECT count(*) FROM writes WHERE {where}") for name, where in asked.items()}
    found["in_log"] = ledger.one("SELECT count(*) FROM log")
    found["changes_in_feed"] = ledger.one("SELECT count(*) FROM feed")
    return found


# The checks


def _lost(ledger: Ledger, revision: int) -> Iterator[str]:
    question = """
        SELECT w.id, w.operation, w.key, w.status, w.node, w.time_ms, log.color FROM writes w
        LEFT JOIN log ON log.id = w.id
        WHERE w.certainty = 'acknowledged' AND (log.id IS NULL OR log.color != 'green') ORDER BY w.time_ms"""
    for write_id, operation, key, status, node, time_ms, color in ledger.rows(question):
        where = "is nowhere in the log" if color is None else f"is still {color}"
        yield f"{write_id} ({operation} of {key}, answered {status} by {node} at {time_ms}) {where}"


def _doubled(ledger: Ledger, revision: int) -> Iterator[str]:
    for write_id, count in ledger.rows("SELECT id, count(*) FROM log GROUP BY id HAVING count(*) > 1"):
        yield f"{write_id} has {count} places in the log"


def _changed(ledger: Ledger, revision: int) -> Iterator[str]:
    first, last = ledger.feed_range()
    question = """
        SELECT w.id, w.key, w.revision, feed.id FROM writes w LEFT JOIN feed ON feed.revision = w.revision
        WHERE w.color = 'green' AND w.outcome = 'applied' AND w.revision BETWEEN ? AND ?
        AND (feed.id IS NULL OR feed.id != w.id)"""
    for write_id, key, told, found in ledger.rows(question, first, last):
        yield f"{write_id} of {key} was answered applied at revision {told}, which is {found or 'missing'}"
    question = """
        SELECT w.id, w.key, w.outcome, feed.revision FROM writes w JOIN feed ON feed.id = w.id
        WHERE w.color = 'green' AND w.outcome != 'applied'"""
    for write_id, key, outcome, found in ledger.rows(question):
        yield f"{write_id} of {key} was answered {outcome}, but made revision {found}"
    question = """
        SELECT w.id, w.outcome, w.revision, f.node, f.color, f.outcome, f.revision FROM writes w
        JOIN fates f ON f.id = w.id WHERE w.color = 'green'
        AND (f.color IS NOT 'green' OR f.outcome IS NOT w.outcome OR f.revision IS NOT w.revision)"""
    for write_id, told, at, node, color, outcome, found in ledger.rows(question):
        yield f"{write_id} was answered {told} at revision {at}; {node} now says {color} {outcome} at {found}"


def _still_red(ledger: Ledger, revision: int) -> Iterator[str]:
    question = """
        SELECT w.id, w.key, w.color FROM writes w WHERE w.certainty = 'acknowledged' AND w.color != 'green'
        AND NOT EXISTS (SELECT 1 FROM feed WHERE feed.id = w.id)
        AND NOT EXISTS (
            SELECT 1 FROM fates f WHERE f.id = w.id AND f.color = 'green' AND f.outcome != 'pending')"""
    for write_id, key, color in ledger.rows(question):
        yield f"{write_id} of {key} was answered {color}, and no node says what became of it"


def _disagreed(ledger: Ledger, revision: int) -> Iterator[str]:
    question = """
        SELECT id, group_concat(node || ': ' || coalesce(color, 'unknown') || ' ' || coalesce(outcome, ''), ', ')
        FROM fates GROUP BY id HAVING count(DISTINCT coalesce(color, '') || '/' || coalesce(outcome, '') || '/'
        || coalesce(revision, '')) > 1"""
    for write_id, said in ledger.rows(question):
        yield f"of {write_id} the nodes say {said}"


def _counters(ledger: Ledger, revision: int) -> Iterator[str]:
    """The sum of the additions that were acknowledged, each counted once, and at most those that are unknown
    besides."""
    question = """
        WITH additions AS (
            SELECT key, idempotency_key, max(amount) AS amount,
            max(certainty = 'acknowledged' AND outcome IN ('applied', 'duplicate', 'pending')) AS is_known,
            max(certainty = 'unknown') AS is_unknown
            FROM writes WHERE operation = 'increment' GROUP BY key, idempotency_key
        ), sums AS (
            SELECT key, sum(amount * is_known) AS least, sum(amount * (is_known OR is_unknown)) AS most
            FROM additions GROUP BY key
        )
        SELECT c.node, c.key, c.value, s.least, s.most FROM counters c JOIN sums s ON s.key = c.key
        WHERE c.value NOT BETWEEN s.least AND s.most"""
    for node, key, value, least, most in ledger.rows(question):
        bounds = str(least) if least == most else f"{least} to {most}"
        yield f"{key} is {value} at {node}; what was acknowledged comes to {bounds}"


def _swaps(ledger: Ledger, revision: int) -> Iterator[str]:
    question = """
        SELECT key, expected_revision, group_concat(DISTINCT id) FROM writes
        WHERE operation = 'swap' AND color = 'green' AND outcome = 'applied'
        GROUP BY key, expected_revision HAVING count(DISTINCT id) > 1"""
    for key, expected, ids in ledger.rows(question):
        yield f"revision {expected} of {key} was replaced more than once: by {ids}"
    question = """
        WITH chain AS (
            SELECT key, revision, id, lag(revision) OVER (PARTITION BY key ORDER BY revision) AS before
            FROM feed WHERE key IN (SELECT DISTINCT key FROM writes WHERE operation = 'swap')
        )
        SELECT c.id, c.key, c.revision, w.expected_revision, c.before FROM chain c JOIN writes w ON w.id = c.id
        WHERE CASE WHEN c.before IS NULL THEN w.expected_revision >= ? ELSE w.expected_revision != c.before END"""
    first, _ = ledger.feed_range()  # what was replaced before it is not known
    for write_id, key, at, expected, before in ledger.rows(question, first):
        yield f"{write_id} replaced revision {expected} of {key}, but revision {at} came after {before or 'none'}"


def _feeds(ledger: Ledger, revision: int) -> Iterator[str]:
    for watcher, fault in ledger.rows("SELECT watcher, fault FROM feeds WHERE fault IS NOT NULL"):
        yield f"{watcher}: {fault}"
    first, last = ledger.feed_range()
    there = ledger.one("SELECT count(*) FROM feed")
    if there != last - first + 1:
        yield f"the feed that was followed has {there} of the revisions {first} to {last}"
    if last != revision:
        yield f"the feed that was followed ends with revision {last}, and the nodes with {revision}"
    question = "SELECT watcher, first, last, digest FROM feeds WHERE fault IS NULL AND first >= ? AND last <= ?"
    for watcher, begin, end, digest in list(ledger.rows(question, first, last)):
        if digest != feed_digest(ledger, begin, end):
            yield f"{watcher} saw other writes from revision {begin} to {end} than the feed that was followed"


def feed_digest(ledger: Ledger, first: int, last: int) -> str:
    """Returns the digest of a stretch of the feed that was followed."""
    digest = FeedDigest()
    for row in ledger.rows("SELECT revision, id FROM feed WHERE revision BETWEEN ? AND ? ORDER BY 1", first, last):
        digest.add(*row)
    return digest.text


def _digests(ledger: Ledger, revision: int) -> Iterator[str]:
    question = """
        SELECT what, group_concat(node || ': ' || substr(digest, 1, 12), ', ') FROM digests
        GROUP BY what HAVING count(DISTINCT digest) > 1"""
    for what, digests in ledger.rows(question):
        yield f"{what}: {digests}"


def _unfinished(ledger: Ledger, revision: int) -> Iterator[str]:
    for (file,) in ledger.rows("SELECT file FROM unfinished"):
        yield f"{file} has no last line: its generator died, and what it did at the end is not judged"


LOST = "every acknowledged write is in the log, green"
CHECKS: dict[str, Callable[[Ledger, int], Iterator[Any]]] = {
    LOST: _lost,
    "no write has two places": _doubled,
    "outcomes are as they were told": _changed,
    "red writes have become green": _still_red,
    "all nodes tell the same outcomes": _disagreed,
    "counters are exact": _counters,
    "swaps replace one another": _swaps,
    "feeds are gapless, in order and equal": _feeds,
    "all nodes have the same log, feed and state": _digests,
    "the record is complete": _unfinished,
}

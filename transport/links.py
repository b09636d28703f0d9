"""What arrives over each link, counted: per packet, a record in the journal would cost too much."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass

from transport.deadlines import Milliseconds
from transport.effects import Journal
from transport.journal_lines import link
from transport.messages import Machine, Nack, Packet

REPORT_MS = 10_000.0


@dataclass(slots=True)
class LinkCounts:
    """What has come from one machine since the last report, and what was requested of its packets."""

    packets: int = 0
    bytes: int = 0
    retransmissions: int = 0
    duplicates: int = 0
    requested_units: int = 0
    repeated_units: int = 0


class Links:
    """The links to this machine, over all views."""

    def __init__(self, now: Milliseconds) -> None:
        self._counts: dict[Machine, LinkCounts] = {}
        self._report_at = now + REPORT_MS

    def arrived(self, transmitter: Machine, packet: Packet, is_original: bool, is_duplicate: bool) -> None:
        counts = self._of(transmitter)
        counts.packets += 1
        counts.bytes += packet.payload_bytes
        if not is_original:
            counts.retransmissions += 1
        if is_duplicate:
            counts.duplicates += 1

    def requested(self, nack: Nack) -> None:
        counts = self._of(nack.machine)
        units = sum([last - first + 1 for first, last in nack.ranges])
        if nack.is_repeated:
            counts.repeated_units += units
        else:
            counts.requested_units += units

    def reports(self, now: Milliseconds) -> Iterator[Journal]:
        """Yields, at intervals, a record for each link that anything came over, and begins to count again."""
        if now >= self._report_at:
            self._report_at = now + REPORT_MS
            counts, self._counts = self._counts, {}
            for machine in sorted(counts):
                yield link(machine, asdict(counts[machine]))

    def _of(self, machine: Machine) -> LinkCounts:
        counts = self._counts.get(machine)
        if counts is None:
            counts = self._counts[machine] = LinkCounts()
        return counts

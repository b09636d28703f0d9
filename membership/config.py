"""Every bound of the membership, and the trade-off it makes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MembershipConfig:
    """The defaults suit a LAN: new views form about 0.2 s after a process has died, 0.45 s after a cut, and 0.2 s
    after it has healed, or 0.3 s if the network loses a fifth of the datagrams."""

    presence_ms: float = 100.0
    """Interval between heartbeats, which say whom their sender hears. Shorter finds faults and foreign machines
    sooner, and costs every machine one datagram from each of the others per interval."""

    presence_pending_ms: float = 15.0
    """Interval between heartbeats while a change is pending, when they show others which control messages we
    lack."""

    suspect_after_ms: float = 400.0
    """Shortest silence after which a machine counts as faulty. Shorter notices a cut sooner and expels machines
    that are merely slow. It grows with the measured gaps between a machine's heartbeats, up to
    `suspect_after_ms_max`."""

    suspect_after_ms_max: float = 2_000.0
    """Longest silence that a machine is allowed, however irregularly the network carries its heartbeats."""

    overdue_gaps: float = 1.5
    """A machine's heartbeat is overdue when nothing has been heard of it for this many of the usual gaps between
    its heartbeats, and their deviation, or for half of the allowed silence: it is then probed. If its host has
    said since that no process listens at its address, it counts as faulty at once. Smaller notices a dead process
    sooner, probes more machines in vain, and trusts a host (or a firewall that refuses on its behalf) more readily
    when a heartbeat was only lost."""

    probe_ms: float = 60.0
    """Pause between probes of a machine whose heartbeat is overdue. At least two that were sent after half of the
    allowed silence must go unanswered before it is declared faulty."""

    mute_after_ms: float = 4_000.0
    """A machine whose heartbeats have not arrived for this long is declared faulty even if it answers probes: it
    is alive, but its broadcasts do not get through."""

    pause_ms: float = 300.0
    """If we have not looked for silent machines for this long, it was this process that paused: every machine gets
    a new chance to be heard before any is suspected."""

    response_ms: float = 1_000.0
    """A machine that has not agreed to our last FA or JOIN within this time is declared faulty, even if it is
    heard. Shorter ends a change sooner that one machine cannot follow; too short expels slow machines in the
    middle of a change."""

    departed_ms: float = 1_000.0
    """A member whose heartbeats have named another view for this long, while no change is pending here, counts as
    gone."""

    escaped_ms: float = 0.0
    """A machine whose agreement to a change we await counts as gone when its heartbeats have named a later view
    without us for this long. It cannot agree any more, so the default is at once; longer keeps all machines of the
    change waiting, up to `response_ms`."""

    alpha_ms: float = 60.0
    """α: how long to collect join attempts at most before committing to a join; it ends when all machines that are
    heard take part. Longer merges more components at once. If it is shorter than a round trip of the network,
    attempts miss each other, and a merge takes many of them."""

    foreign_stable_ms: float = 50.0
    """How long every member of our view and every member of a foreign one must have heard each other before we
    attempt to join. Shorter merges sooner; longer ignores links that come and go, and merges more views at once.
    Less than a heartbeat is enough, for machines whose links fail again soon have to back off."""

    look_again_ms: float = 10.0
    """Shortest pause between looks for foreign views when heartbeats say something new. Shorter joins them sooner;
    longer costs less CPU while whom machines hear changes often."""

    attempt_again_ms: float = 250.0
    """Shortest pause after an attempt to join that no machine has answered. Each is up to twice as long, at
    random."""

    short_lived_ms: float = 1_000.0
    """A machine that is faulty again within this time of its join has to back off before the next one."""

    back_off_ms: float = 300.0
    """First back-off of a machine. It doubles each time another is needed within ten times its length after it has
    ended."""

    back_off_ms_max: float = 5_000.0
    """Longest back-off of a machine."""

    resend_hold_ms: float = 8.0
    """A control message is not repeated within this time of its last transmission. Shorter repairs a lost one
    sooner and repeats more of them in vain."""

    resend_free: int = 4
    """How often a control message is repeated every `resend_hold_ms` before each pause is twice the last. More
    repairs a lost one sooner in a network that loses much; fewer keeps machines that cannot use a message, or will
    not answer, from having it sent to them again and again."""

    resend_hold_ms_max: float = 256.0
    """Longest pause between repetitions of a control message. Longer makes machines less busy while a change is
    pending; it should be well below `response_ms`, or machines that lack one message too often are expelled."""

    resend_delay_ms: float = 10.0
    """Machines other than its sender repeat a control message after one to two times this delay, unless another
    machine has done so by then."""

    control_log_max: int = 64
    """How many control messages of each machine are kept to be repeated. A machine that lacks older ones has to
    rejoin."""

    early_bytes_max: int = 1_048_576
    """How much is kept of the messages of a view that we are about to install. What exceeds it is dropped, and
    requested again in that view."""

    closed_views_max: int = 3
    """How many earlier views' messages are kept for members that are not as far as we are."""

    closed_view_ms: float = 5_000.0
    """How long the messages of an earlier view are kept at most."""

    machines_max: int = 256
    """How many machines, members or not, are remembered. On a LAN with more, those heard least recently are
    dropped."""

    def __post_init__(self) -> None:
        if self.suspect_after_ms < 3.0 * self.presence_ms:
            raise ValueError(
                "suspect_after_ms must be at least three heartbeats, or one lost one would be a fault"
            )
        if self.overdue_gaps < 1.0:
            raise ValueError("overdue_gaps must be at least 1, or every heartbeat would be overdue")
        if self.suspect_after_ms_max < self.suspect_after_ms:
            raise ValueError("suspect_after_ms_max must not be below suspect_after_ms")
        if self.closed_views_max < 1:
            raise ValueError(
                "closed_views_max must be at least 1: slower survivors ask for the last view's messages"
            )

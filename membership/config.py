"""Every bound of the membership, with what it trades off."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MembershipConfig:
    """Defaults suit a LAN: a cut becomes a view in about 0.7 s, and so does a healed one."""

    presence_ms: float = 100.0
    """How often a machine says whom it hears. Shorter finds faults and foreign machines sooner, and costs each
    machine a datagram from everyone per period."""

    presence_pending_ms: float = 15.0
    """The same while a change is pending: it shows others which control messages we lack."""

    suspect_after_ms: float = 500.0
    """Silence after which a machine counts as faulty, at the least. Shorter notices a cut sooner and expels the
    merely slow. It grows with the measured gaps between a machine's heartbeats, up to `suspect_after_ms_max`."""

    suspect_after_ms_max: float = 2_000.0
    """Most that a bad network may delay suspicion."""

    probe_ms: float = 60.0
    """Pause between probes of a machine that has been silent for more than half of its time. At least two must go
    unanswered before it is declared faulty."""

    mute_after_ms: float = 4_000.0
    """A machine that answers probes but has not been heard by broadcast for this long is declared faulty anyway:
    it is alive, but nobody can work with it."""

    pause_ms: float = 300.0
    """If we have not looked at the time for this long, we were the ones who paused: everybody gets a new chance to
    be heard before anybody is suspected."""

    response_ms: float = 1_000.0
    """A machine that has not agreed to our last FA or JOIN by then is declared faulty, heard or not. Shorter ends
    changes sooner that one machine cannot follow; too short expels the slow in the middle of a change."""

    departed_ms: float = 1_000.0
    """A member whose heartbeats have named another view for so long, while no change is pending here, has left."""

    alpha_ms: float = 60.0
    """α: how long to collect join attempts before committing. Longer merges more components at once. Shorter than
    a round trip of the network, attempts miss each other, and merging takes many of them."""

    foreign_stable_ms: float = 200.0
    """How long everybody here and everybody there must have heard each other before we attempt to join. Shorter
    merges sooner; longer ignores links that come and go."""

    attempt_again_ms: float = 250.0
    """Pause between attempts that nobody answers."""

    short_lived_ms: float = 1_000.0
    """A machine that is faulty again so soon after it joined has to wait before the next join."""

    back_off_ms: float = 300.0
    """How long, the first time. Doubles with every time it happens again within ten times as long."""

    back_off_ms_max: float = 5_000.0
    """Most that a machine has to wait."""

    resend_hold_ms: float = 8.0
    """A control message is not repeated within this time. Less repairs a lost one sooner and repeats more in
    vain."""

    resend_delay_ms: float = 10.0
    """Machines other than its sender repeat a control message after one to two times this, if nobody else has."""

    control_log_max: int = 64
    """Control messages kept of each machine to be repeated. A machine that is further behind rejoins."""

    early_bytes_max: int = 1_048_576
    """What is kept of messages of a view that we are about to install. More is lost and asked for again."""

    closed_views_max: int = 3
    """Earlier views whose messages are kept for members that are not as far as we are."""

    closed_view_ms: float = 5_000.0
    """How long they are kept at most."""

    machines_max: int = 256
    """Machines, members or not, of which anything is remembered. On a LAN with more, the least recently heard are
    forgotten."""

    def __post_init__(self) -> None:
        if self.suspect_after_ms < 3.0 * self.presence_ms:
            raise ValueError(
                "suspect_after_ms must be at least three heartbeats, or one lost one would be a fault"
            )
        if self.suspect_after_ms_max < self.suspect_after_ms:
            raise ValueError("suspect_after_ms_max must not be below suspect_after_ms")
        if self.closed_views_max < 1:
            raise ValueError(
                "closed_views_max must be at least 1: slower survivors ask for the last view's messages"
            )

"""Frames of a view that arrive before we have installed it, from members that have. What does not fit the bound is
dropped and requested again later."""

from __future__ import annotations

from membership.config import MembershipConfig
from transport import Frame, Machine, Packet, Retransmission, Status, ViewId

_OVERHEAD_BYTES = 64


class EarlyFrames:
    """Frames of views that we may be about to install."""

    def __init__(self, config: MembershipConfig) -> None:
        self._bytes_max = config.early_bytes_max
        self._frames: list[tuple[Machine, Frame]] = []
        self.bytes = 0

    def keep(self, sender: Machine, frame: Frame) -> None:
        """Adds a frame, if it fits the bound."""
        size = _OVERHEAD_BYTES + _payload_bytes(frame)
        if self.bytes + size <= self._bytes_max:
            self._frames.append((sender, frame))
            self.bytes += size

    def take(self, view: ViewId) -> list[tuple[Machine, Frame]]:
        """Returns the frames of the view that is being installed, and drops those of views that will not come."""
        frames = [(sender, frame) for sender, frame in self._frames if view_of(frame) == view]
        self.clear()
        return frames

    def clear(self) -> None:
        self._frames = []
        self.bytes = 0


def view_of(frame: Frame) -> ViewId | None:
    """The view that a frame belongs to, if it belongs to one."""
    if isinstance(frame, (Packet, Status)):
        return frame.view
    return frame.packet.view if isinstance(frame, Retransmission) else None


def _payload_bytes(frame: Frame) -> int:
    packet = frame.packet if isinstance(frame, Retransmission) else frame
    return packet.payload_bytes if isinstance(packet, Packet) else 0

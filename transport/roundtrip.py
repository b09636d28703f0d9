"""How long the network takes to answer, measured: every patience of the transport is at least that."""

from __future__ import annotations

from transport.messages import Milliseconds

_SMOOTHING = 0.125
_DEVIATION_SMOOTHING = 0.25


class RoundTrip:
    """A smoothed mean and deviation of observed times, as TCP keeps them (RFC 6298).

    What takes longer than `ceiling_ms` is not the network: a pause of our own, or a repaired loss.
    """

    def __init__(self, ceiling_ms: Milliseconds) -> None:
        self._ceiling_ms = ceiling_ms
        self.smoothed_ms: Milliseconds = 0.0
        self._deviation_ms: Milliseconds = 0.0

    def take_over(self, earlier: RoundTrip) -> None:
        """Goes on with what has been measured before."""
        self.smoothed_ms = earlier.smoothed_ms
        self._deviation_ms = earlier._deviation_ms

    def observe(self, sample_ms: Milliseconds) -> None:
        if sample_ms > self._ceiling_ms:
            return
        if not self.smoothed_ms:
            self.smoothed_ms = sample_ms
            self._deviation_ms = sample_ms / 2.0
            return
        error = sample_ms - self.smoothed_ms
        self._deviation_ms += _DEVIATION_SMOOTHING * (abs(error) - self._deviation_ms)
        self.smoothed_ms += _SMOOTHING * error

    def bound_ms(self) -> Milliseconds:
        """An answer that takes longer than this is probably lost; 0 while nothing has been measured."""
        return min(self.smoothed_ms + 4.0 * self._deviation_ms, self._ceiling_ms)

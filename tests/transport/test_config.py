"""The bounds: the defaults fit together, and what cannot work is refused with a reason."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

from transport import codec
from transport.config import TransportConfig


def test_the_defaults_are_accepted_and_fixed() -> None:
    config = TransportConfig()
    with pytest.raises(FrozenInstanceError):
        config.heartbeat_ms = 1.0  # type: ignore[misc]


def test_the_defaults_fit_together() -> None:
    config = TransportConfig()
    assert config.nack_delay_ms <= config.nack_delay_ms_max
    assert config.nack_retry_ms <= config.nack_retry_ms_max
    assert config.message_bytes_max >= 2**20
    assert config.sequence_jump_max > config.buffer_windows_max * config.window_messages_max
    assert config.undelivered_bytes_max > config.buffer_windows_max * config.window_bytes_max


def test_the_longest_arrays_of_the_defaults_are_within_what_is_decoded() -> None:
    config = TransportConfig()
    assert config.packet_units_max <= codec.DECODE_ARRAY_MAX
    assert 3 * config.members_max <= codec.DECODE_ARRAY_MAX
    assert 2 * config.nack_ranges_max <= codec.DECODE_ARRAY_MAX


@pytest.mark.parametrize("datagram_bytes_max", [0, 255, 65_001])
def test_datagrams_must_be_of_a_size_that_can_be_sent(datagram_bytes_max: int) -> None:
    with pytest.raises(ValueError, match="between 256 and 65,000"):
        TransportConfig(datagram_bytes_max=datagram_bytes_max)


def test_the_smallest_and_the_largest_datagrams_are_accepted() -> None:
    for datagram_bytes_max in (256, 65_000):
        assert TransportConfig(datagram_bytes_max=datagram_bytes_max).datagram_bytes_max == datagram_bytes_max


def test_a_repeated_request_must_not_fall_into_the_hold_time() -> None:
    with pytest.raises(ValueError, match="repeated requests go unheard"):
        TransportConfig(answer_hold_ms=6.0, nack_retry_ms=6.0)


def test_the_window_must_hold_a_datagram() -> None:
    with pytest.raises(ValueError, match="at least one datagram"):
        TransportConfig(datagram_bytes_max=1_000, packet_overhead_bytes=1_000, window_bytes_max=1_999)


def test_the_queue_must_hold_the_largest_message() -> None:
    with pytest.raises(ValueError, match="at least one message"):
        TransportConfig(message_bytes_max=1_000, queue_bytes_max=999)


@pytest.mark.parametrize(("bound", "each"), [("packet_units_max", 1), ("nack_ranges_max", 2), ("members_max", 3)])
def test_arrays_that_no_peer_would_decode_are_refused(bound: str, each: int) -> None:
    with pytest.raises(ValueError, match=bound):
        TransportConfig(**{bound: codec.DECODE_ARRAY_MAX // each + 1})  # type: ignore[arg-type]


@pytest.mark.parametrize("fraction", [-0.1, 1.0, 2.0])
def test_a_window_must_begin_to_delay_before_it_is_full(fraction: float) -> None:
    with pytest.raises(ValueError, match="send_free_fraction"):
        TransportConfig(send_free_fraction=fraction)

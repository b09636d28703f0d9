"""Hypothesis strategies: valid datagrams of every frame kind, and msgpack structures of no kind at all."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st

from transport.messages import (
    NAME_BYTES_MAX,
    SEQUENCE_MAX,
    Acks,
    Datagram,
    Envelope,
    Fragment,
    Frame,
    Machine,
    Nack,
    Packet,
    Retransmission,
    Service,
    Status,
    ViewId,
)

thorough = settings(max_examples=200, deadline=None, derandomize=True)
"""Draws the same examples in every run: running a test again finds its failure again."""

_WIDTHS = (0, 1, 127, 128, 255, 256, 2**16 - 1, 2**16, 2**32 - 1, 2**32, SEQUENCE_MAX)
_LENGTHS = (0, 1, 31, 32, 255, 256, 1_000)

naturals = st.sampled_from(_WIDTHS) | st.integers(0, SEQUENCE_MAX)
"""Every width that msgpack has for an integer, and what lies between."""

_letters = st.characters(codec="utf-8")
names = st.text(_letters, min_size=1, max_size=NAME_BYTES_MAX // 4) | st.text(
    st.characters(max_codepoint=127), min_size=1, max_size=NAME_BYTES_MAX
)
machines = st.builds(Machine, names, naturals)
view_ids = st.builds(ViewId, naturals, names, naturals)
acks: st.SearchStrategy[Acks] = st.lists(st.tuples(machines, naturals), max_size=4).map(tuple)
payloads = st.binary(max_size=40) | st.sampled_from(_LENGTHS).map(bytes)


@st.composite
def packets(draw: st.DrawFn) -> Packet:
    """A run of messages, or one fragment of a message."""
    units = draw(st.lists(payloads, min_size=1, max_size=18))
    lowest, fragment = 1, None
    if units[0] and draw(st.booleans()):
        fragment = draw(st.builds(Fragment, st.integers(0, SEQUENCE_MAX - 1), st.booleans()))
        units, lowest = units[:1], fragment.part + 1
    highest = SEQUENCE_MAX - len(units) + 1
    return Packet(
        draw(machines),
        draw(view_ids),
        draw(st.integers(lowest, highest)),
        draw(st.integers(1, highest)),
        draw(st.sampled_from(Service)),
        draw(acks),
        tuple(units),
        fragment,
    )


statuses = st.builds(
    Status, view_ids, naturals, naturals, naturals, acks, st.lists(machines, max_size=4).map(tuple)
)


@st.composite
def nacks(draw: st.DrawFn) -> Nack:
    bounds = draw(st.lists(st.integers(1, SEQUENCE_MAX), max_size=16, unique=True).map(sorted))
    ranges = tuple(zip(bounds[::2], bounds[1::2], strict=False))
    return Nack(draw(machines), ranges, draw(st.booleans()))


envelopes = st.builds(Envelope, payloads)
frames = packets() | packets().map(Retransmission) | statuses | nacks() | envelopes
_few_frames: st.SearchStrategy[tuple[Frame, ...]] = st.lists(frames, max_size=3).map(tuple)
_many_frames = st.builds(lambda few, times: few * times, _few_frames, st.integers(1, 9))
datagrams = st.builds(Datagram, machines, _many_frames)
"""Frames are repeated because that is the cheap way to more of them than a short msgpack array has."""

_scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(_letters, max_size=5)
    | st.binary(max_size=5)
)
structures = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=16,
)
"""Everything that msgpack can encode."""

_almost_fields = st.sampled_from((0, 1, 2, 3, 4, "a", b"x", True, False)) | st.lists(
    st.sampled_from(("a", 0, 1, 2, b"x")), max_size=6
)
almost_frames = st.lists(_almost_fields | _scalars, max_size=13)
"""Arrays of roughly the right shape, so that some mistakes are found late."""

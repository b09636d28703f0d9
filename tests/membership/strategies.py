"""Hypothesis strategies: valid membership frames of every kind."""

from __future__ import annotations

from hypothesis import strategies as st

from membership.messages import (
    AttemptJoin,
    Control,
    Fault,
    Join,
    JoiningSet,
    Machines,
    Presence,
    Probe,
    ProbeReply,
    Progress,
)
from tests.transport.strategies import acks, machines, naturals, view_ids
from transport.messages import SEQUENCE_MAX

positives = st.sampled_from((1, 128, 2**32, SEQUENCE_MAX)) | st.integers(1, SEQUENCE_MAX)
some_machines: st.SearchStrategy[Machines] = st.lists(machines, max_size=4).map(tuple)
sets = st.builds(JoiningSet, view_ids, acks)
bodies = (
    st.builds(AttemptJoin, sets)
    | st.builds(Join, st.lists(sets, max_size=3).map(tuple), some_machines)
    | st.builds(Fault, some_machines)
)


@st.composite
def controls(draw: st.DrawFn) -> Control:
    sender, body, cover = draw(machines), draw(bodies), draw(acks)
    if not isinstance(body, AttemptJoin):
        cover = (*cover, (sender, draw(naturals)))
    return Control(sender, draw(positives), draw(positives), draw(view_ids), draw(acks), cover, body)


progress = st.builds(Progress, *[naturals] * 5)
presences = st.builds(Presence, view_ids, some_machines, some_machines, acks, progress)
group_frames = controls() | presences | st.builds(Probe, naturals) | st.builds(ProbeReply, naturals)

"""The exploration finds bugs: each of these one-line changes makes an offence reachable in some small case.

Not here, because complete explorations do not notice: the view's id taken from the lowest elector instead of the
highest (`three-crash`, `merge-small`); an accusation overlooked on arrival, but not in the graph
(`three-suspicion`); a JOIN of a member that does not lead to Stage 1 (`merge-small`).

Not here, because what was explored, which was not everything, does not notice: a deferred JOIN dropped
(`scattered`, depth 12); a cut-vector that hides the JOIN behind it (`merge-give-up`, depth 12); everything of a
suspect's control messages let in (`merge-small-suspicion`, depth 21); the transitional set taken from the last
members (`four`, depth 9). What a suspect covers not required makes no difference here: no other machine has it.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

from membership import protocol
from membership.control_dag import ControlDag
from membership.messages import Control
from membership.protocol import MembershipProtocol
from tests.exploration.cases import CASES
from tests.exploration.explorer import explore
from tests.exploration.world import World
from tests.simulator.mutation import Edit, mutated


class Planted(NamedTuple):
    """A bug, the case and part in which it shows, and a text of the offence that it leads to."""

    name: str
    case: str
    part: str
    offence: str
    edits: tuple[Edit, ...]


PLANTED = [
    Planted(
        "a view does not wait for the last to agree",
        "three-crash",
        "",
        "KeyError",
        (Edit(MembershipProtocol, "_assent_if_agreed", "not self.awaited()", "len(self.awaited()) < 2"),),
    ),
    Planted(
        "control messages do not wait for what they cover",
        "three-suspicion",
        "",
        "at the end of",
        (Edit(MembershipProtocol, "_has_what_it_covers", "self._data.has(control.cover)", "True"),),
    ),
    Planted(
        "only our own last message says what is covered",
        "three-suspicion",
        "",
        "at the end of",
        (Edit(MembershipProtocol, "_note", "if control.view == self.view.id:", "if control.sender == self.me:"),),
    ),
    Planted(
        "an accusation is taken for any other message",
        "three-suspicion",
        "",
        "BrokenInvariant",
        (Edit(Control, "accuses", "machine in self.body.faults", "False"),),
    ),
    Planted(
        "a growing set of faults is not told",
        "four",
        "",
        "only a timeout helps",
        (
            Edit(
                MembershipProtocol,
                "_enter_faults",
                "if not self.faults_before <= self._faults_of(self.me)",
                "if not self._faults_of(self.me)",
            ),
        ),
    ),
    Planted(
        "any FA agrees",
        "four",
        "",
        "P.1",
        (
            Edit(
                MembershipProtocol,
                "awaited",
                "self._faults_of(q) & self.current != self.faults_before",
                "not self._faults_of(q)",
            ),
        ),
    ),
    Planted(
        "any JOIN agrees",
        "two-crash",
        "",
        "Theorem 5.5",
        (
            Edit(
                MembershipProtocol, "awaited", "self.last_join.get(q) != configuration", "q not in self.last_join"
            ),
        ),
    ),
    Planted(
        "configurations are compared by machines",
        "two-suspicion",
        "",
        "Theorem 5.5",
        (
            Edit(
                protocol,
                "_configuration_of",
                "frozenset(joining.view for joining in join.sets)",
                "join.machines",
            ),
            Edit(MembershipProtocol, "_configuration", "frozenset(self.sets)", "self.join_machines"),
            Edit(MembershipProtocol, "_on_join", "self.sets.keys()", "self.join_machines"),
        ),
    ),
    Planted(
        "faults after a JOIN need no agreement",
        "merge-small-crash",
        "c tries, c crashes",
        "only a timeout helps",
        (Edit(MembershipProtocol, "awaited", " or not self._faults_of(q) >= self.faults_after", ""),),
    ),
    Planted(
        "nothing of a suspect's control messages is let in",
        "merge-small-crash",
        "c tries, b crashes",
        "only a timeout helps",
        (Edit(ControlDag, "is_wanted", ".get(sender, 0) >= control.sequence", ".get(sender, 0) < 0"),),
    ),
]


def world_of(planted: Planted) -> World:
    [case] = [case for case in CASES if case.name == planted.case]
    [rules] = [rules for rules in case.parts if case.part_name(rules) == planted.part]
    return case.start(rules)


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)
def test_the_exploration_catches(planted: Planted) -> None:
    edits = [(edit, mutated(edit)) for edit in planted.edits]
    with pytest.MonkeyPatch.context() as patch:
        for edit, function in edits:
            patch.setattr(edit.owner, edit.function, function)
        found = explore(world_of(planted), states_max=100_000)
    assert planted.offence in found.offence
    assert found.trace
    assert not explore(world_of(planted), depth_max=found.depth + 1).offence, "not because of the bug"

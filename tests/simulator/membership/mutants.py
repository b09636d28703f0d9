"""The membership layer of the simulator finds bugs: some seed must notice each of these one-line changes.

Not here, because the protocol recovers from them by a view more or a moment later, which no seed demands not to
happen: control messages never repeated, a growing set of faults not told, full buffers closed to the end,
everything of a suspect's control messages let in, what others have of a suspect not required, two incarnations of
a name in one join. Unit tests and the exploration look at these.
"""

from __future__ import annotations

from membership.group import Group
from membership.messages import Control
from membership.protocol import MembershipProtocol
from tests.simulator.membership.plan import draw_membership_plan
from tests.simulator.membership.run import MembershipRun
from tests.simulator.mutation import Edit, Mutant, what_breaks
from transport.delivery import Delivery
from transport.lansis import Lansis

SEEDS_MAX = 60
"""A test run looks at so many seeds for each."""

MUTANTS = [
    Mutant(
        "the transitional set is who was a member before",
        ("view_agreement",),
        (
            Edit(
                MembershipProtocol,
                "_install",
                "if control.view == self.view.id",
                "if control.sender in self.current",
            ),
        ),
    ),
    Mutant(
        "a view does not wait for the last to agree",
        ("view_agreement", "KeyError", "BrokenInvariant", "virtual_synchrony", "membership.run"),
        (Edit(MembershipProtocol, "_assent_if_agreed", "not self.awaited()", "len(self.awaited()) < 2"),),
    ),
    Mutant(
        "control messages do not wait for what they cover",
        ("BrokenInvariant",),
        (Edit(MembershipProtocol, "_has_what_it_covers", "self._data.has(control.cover)", "True"),),
    ),
    Mutant(
        "what a suspect sends is taken in",
        ("BrokenInvariant", "virtual_synchrony"),
        (Edit(Group, "_execute", "self._lansis.suspect(output.machines)", "pass"),),
        first_seed=70,
    ),
    Mutant(
        "messages are sent while the view ends",
        ("BrokenInvariant", "virtual_synchrony", "own_view", "ValueError"),
        (Edit(Lansis, "hold", "self._is_held = True", "pass"),),
    ),
    Mutant(
        "clocks do not rise with control messages",
        ("timestamp_order", "BrokenInvariant"),
        (Edit(Group, "_on_control", "max(self._lansis.clock, control.clock)", "self._lansis.clock"),),
    ),
    Mutant(
        "the rest of the view is not delivered",
        ("nothing_lost", "virtual_synchrony"),
        (Edit(Lansis, "close", "self._delivery.settle() + self._delivery.close()", "self._delivery.settle()"),),
    ),
    Mutant(
        "the rest of the view is delivered in no order",
        ("timestamp_order", "virtual_synchrony"),
        (Edit(Delivery, "close", "self._criterion.drain()", "reversed(self._criterion.drain())"),),
    ),
    Mutant(
        "only our own last message says what is covered",
        ("BrokenInvariant",),
        (Edit(MembershipProtocol, "_note", "if control.view == self.view.id:", "if control.sender == self.me:"),),
    ),
    Mutant(
        "an accusation is taken for any other message",
        ("membership.run", "BrokenInvariant"),
        (Edit(Control, "accuses", "machine in self.body.faults", "False"),),
    ),
    Mutant(
        "a view follows an invitation before all its members have arrived in it",
        ("virtual_synchrony", "BrokenInvariant"),
        (Edit(Group, "_may_join", "not self._is_whole()", "False"),),
        first_seed=91,
        nodes=(3, 9),
    ),
    Mutant(
        "a view invites others before all its members have arrived in it",
        ("virtual_synchrony", "BrokenInvariant"),
        (Edit(Group, "_look_around", " and self._is_whole()", ""),),
        first_seed=150,
        nodes=(3, 9),
    ),
    Mutant(
        "clocks begin at 1 after a restart",
        ("ascending_views",),
        (Edit(Group, "__init__", "alone = View(ViewId(clock, *me)", "alone = View(ViewId(1, *me)"),),
    ),
]


def broken_property(seed: int, nodes: tuple[int, int]) -> str | None:
    return what_breaks(lambda: MembershipRun(draw_membership_plan(seed, *nodes)).run())

"""The checkers of the log, and the history that they share: one set of them for each generation of the cluster."""

from __future__ import annotations

from collections.abc import Iterable

from corel.corel import Corel
from corel.effects import Greened
from corel.messages import Entry, MessageId
from tests.simulator.checkers import Violation
from tests.simulator.checkers.acknowledged import Acknowledged
from tests.simulator.checkers.agreed_green import AgreedGreen
from tests.simulator.checkers.bodies import Bodies
from tests.simulator.checkers.causal_log import CausalLog
from tests.simulator.checkers.log import History, LogChecker
from tests.simulator.checkers.primaries import Primaries
from tests.simulator.checkers.restorable import Restorable
from tests.simulator.checkers.yellow_kept import YellowKept


class Judges:
    """What judges the nodes of one generation. A message of another one is unknown to it, so that its becoming
    green is a violation."""

    def __init__(self) -> None:
        self.generation = b""
        """The generation, as soon as a node is bound to it."""
        self.history = History()
        self.acknowledged = Acknowledged(self.history)
        yellow_kept = YellowKept(self.history)
        self.restorable = Restorable(self.history, yellow_kept)
        self.checkers: list[LogChecker] = [
            AgreedGreen(self.history),
            Bodies(self.history),
            CausalLog(self.history),
            yellow_kept,
            Primaries(self.history),
            self.acknowledged,
        ]
        self._after_steps = [
            checker.stepped for checker in self.checkers if type(checker).stepped is not LogChecker.stepped
        ]
        """What looks at every step, of which there are many."""

    def dismiss(self) -> None:
        """Stops judging."""
        self.checkers.clear()
        self._after_steps.clear()

    def stepped(self, node: str, log: Corel) -> None:
        for look in self._after_steps:
            look(node, log)

    def greened(self, node: str, log: Corel, greened: Greened) -> None:
        for checker in self.checkers:
            checker.greened(node, log, greened)
        order = self.history.order
        for position, entry in enumerate(greened.entries, greened.position):
            if position == len(order):
                order.append(entry.id)
                self.history.positions[entry.id] = position

    def own(self, log: Corel, entry: Entry) -> None:
        """Keeps the past of a message that is about to enter its sender's queue: all that the sender has."""
        assert entry.body is not None
        self.history.bodies[entry.id], self.history.views[entry.id] = entry.body, entry.view
        self.history.pasts[entry.id] = {**log.queue.green_last, **dict(log.queue.have())}

    def take_in(self, entry: Entry, origin: History) -> None:
        """A message that was sent before its node was bound to any generation merges in this one."""
        self.history.bodies[entry.id] = origin.bodies[entry.id]
        self.history.pasts[entry.id] = origin.pasts[entry.id]
        self.history.views[entry.id] = origin.views[entry.id]

    def begin_with(self, history: History, line: int) -> None:
        """The cluster begins with the green messages of another one up to this line."""
        for message_id in history.order[:line]:
            self.history.positions[message_id] = len(self.history.order)
            self.history.order.append(message_id)
            self.history.bodies[message_id] = history.bodies[message_id]
            self.history.pasts[message_id] = history.pasts[message_id]
            self.history.views[message_id] = history.views[message_id]

    def disk_replaced(self, node: str) -> None:
        for checker in self.checkers:
            checker.disk_replaced(node)


class Jury:
    """Knows by whom each node is judged: by the judges of the generation that it is bound to. Until then a disk
    belongs to the cluster for which it was put in, unless it meets another one first, and adopts its
    generation."""

    def __init__(self, nodes: Iterable[str], is_judging: bool = True) -> None:
        """`is_judging` is False for a run that goes on whatever happens."""
        self.is_judging = is_judging
        self.all: list[Judges] = []
        self._appoint()
        self._of = dict.fromkeys(nodes, self.last())
        self._bound: set[str] = set()
        """The nodes that were bound to the generation of their judges when they were looked at last."""
        self._unbound: set[MessageId] = set()
        """The messages of nodes that are bound to none: they merge in whichever one their node meets."""

    def last(self) -> Judges:
        """Returns the judges of the cluster that was bootstrapped last."""
        return self.all[-1]

    def bootstrapped(self, nodes: Iterable[str]) -> None:
        """These nodes were wiped, and are a new cluster."""
        self._appoint()
        for node in nodes:
            self.replaced(node)

    def _appoint(self) -> None:
        self.all.append(Judges())
        if not self.is_judging:
            self.last().dismiss()

    def left_over(self, messages: Iterable[MessageId]) -> None:
        """A node that has these messages, and is bound to none, was forgotten when others were bootstrapped."""
        self._unbound.update(messages)

    def own(self, node: str, log: Corel, entry: Entry) -> None:
        """Keeps what is known of a message that is about to enter its sender's queue."""
        self.of(node, log).own(log, entry)
        if not log.generation:
            self._unbound.add(entry.id)

    def replaced(self, node: str) -> None:
        """A node of any cluster got an empty disk, and belongs to the last one."""
        self._of[node] = self.last()
        self._bound.discard(node)
        for judges in self.all:
            judges.disk_replaced(node)

    def of(self, node: str, log: Corel | None = None) -> Judges:
        if log is None:
            return self._of[node]
        if not log.generation:
            self._bound.discard(node)
            return self._of[node]
        if node not in self._bound or log.generation != self._of[node].generation:
            self._bind(node, log)
        return self._of[node]

    def _bind(self, node: str, log: Corel) -> None:
        """A node is bound to a generation. What it has merges there. It may have taken messages of that generation
        in the same turn: those are known there."""
        before = self._of[node]
        judges = next((one for one in self.all if one.generation == log.generation), before)
        if not judges.generation:
            judges.generation = log.generation
        if judges.generation != log.generation:
            if self.is_judging:
                raise Violation(f"{node} is bound to a generation that was never bootstrapped")
            return
        self._of[node] = judges
        self._bound.add(node)
        if not self.is_judging:
            return
        for entry in (*log.queue.yellow, *log.queue.red):
            if entry.id not in judges.history.bodies:
                judges.take_in(entry, self._origin(node, entry))
        if judges is not before:
            judges.disk_replaced(node)

    def _origin(self, node: str, entry: Entry) -> History:
        for judges in self.all:
            if entry.id in self._unbound and entry.id in judges.history.bodies:
                return judges.history
        raise Violation(f"{node} has {entry.id} of another cluster")

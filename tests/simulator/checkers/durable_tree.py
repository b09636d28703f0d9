"""The tree on disk is the state at its line, and the log on the same disk goes on from there: its green order has
that line, so no crash leaves a state that the log does not lead to."""

from __future__ import annotations

from tests.simulator.checkers.base import Violation
from tests.simulator.checkers.store import StoreChecker
from tests.simulator.store.memory_tree import MemoryTree


class DurableTree(StoreChecker):
    def took_over(self, node: str, tree: MemoryTree) -> None:
        self.written(node, tree, tree.line)

    def written(self, node: str, tree: MemoryTree, log_line: int) -> None:
        if tree.line > log_line:
            raise Violation(f"{node}'s disk has a state at {tree.line}, and a green order to {log_line}")
        replay = self.history.replay
        replay.advance()
        if tree.revision != replay.revisions[tree.line]:
            expected = replay.revisions[tree.line]
            raise Violation(f"{node}'s disk has revision {tree.revision} at {tree.line}, not {expected}")
        for key in replay.keys:
            item = replay.item(key, tree.revision)
            if tree.item(key) != item:
                raise Violation(f"{node}'s disk has {tree.item(key)} as {key} at {tree.line}, not {item}")
        if len(tree.fates) != tree.line:
            raise Violation(f"{node}'s disk knows what became of {len(tree.fates)} messages, at {tree.line}")
        remembered = {key for key, decided in replay.decided.items() if decided[0].position < tree.line}
        if set(tree.memories) != remembered:
            difference = sorted(remembered ^ set(tree.memories))
            raise Violation(f"{node}'s disk at {tree.line} remembers too much or too little: {difference[:3]}")

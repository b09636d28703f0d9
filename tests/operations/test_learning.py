"""What docs/operations.md says of a node while it takes over the state of another."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from pathlib import Path

from corel import Lines, NotAhead, Record
from tests.kvstore.node.nodes import Nodes
from tests.operations.guide import section


class SlowCopy:
    """A copy that is not completed before it may be."""

    def __init__(self) -> None:
        self.is_begun = threading.Event()
        self.may_end = threading.Event()

    def finish_learning(self, own: Lines, own_messages: list[Record]) -> Lines:
        self.is_begun.set()
        self.may_end.wait(20.0)
        raise NotAhead("it is not")

    def close(self) -> None:
        pass


def test_while_a_node_switches_reads_are_answered_from_its_old_disk(broadcast_port: int, tmp_path: Path) -> None:
    text = " ".join(section("A node that lacks much").split())
    assert "it refuses writes and linearizable reads (503 `away`)" in text
    assert "Reads of `green` and `red` are answered from the old disk" in text

    async def scenario() -> None:
        nodes = await Nodes.in_primary("a", broadcast_port, tmp_path)
        node, copy = nodes.nodes["a"], SlowCopy()
        await nodes.done("a", b"before")
        switching = asyncio.create_task(node.switch(copy))  # type: ignore[arg-type]
        await nodes.eventually(copy.is_begun.is_set)
        assert node.running_store is None  # which takes writes and linearizable reads
        assert nodes.value("a") == b"before"
        item, _ = node.store.find_red("key")
        assert item is not None
        copy.may_end.set()
        with contextlib.suppress(NotAhead):
            await switching
        await nodes.close()

    asyncio.run(scenario())

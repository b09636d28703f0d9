"""A few stores over the logs of `tests.corel.harness`, without network and time: nothing happens by itself.

A test reads like this:

    cluster = StoreCluster("abc")
    cluster.settle("ab", "c")
    put = cluster.ask("c", Put("k", b"v"))
    cluster.run()
    assert put.answer == Accepted("c.1.1.0", Color.RED)
"""

from __future__ import annotations

from corel.corel import Corel
from corel.effects import CorelEffect, LogReport
from corel.messages import MessageId
from kvstore.store.config import StoreConfig
from kvstore.store.operations import Operation, Write
from kvstore.store.replies import Ack, Answer, Trouble
from kvstore.store.store import Store
from kvstore.store.write_codec import encode_write
from tests.corel.harness import LogCluster, Node
from tests.simulator.store.memory_tree import MemoryTree

NEVER = 1e9


class Waiter:
    """Records the answer to a request; a second one is an error."""

    def __init__(self) -> None:
        self.answers: list[Answer | Trouble | None] = []

    def __call__(self, answer: Answer | Trouble | None) -> None:
        assert not self.answers, "answered twice"
        self.answers.append(answer)

    @property
    def answer(self) -> Answer | Trouble | None:
        assert self.answers, "no answer yet"
        return self.answers[0]


class StoreCluster(LogCluster):
    """A `LogCluster` with a store on each log."""

    def __init__(self, everybody: str, store_config: StoreConfig | None = None) -> None:
        self.stores: dict[str, Store] = {}
        self.trees = {name: MemoryTree() for name in everybody}
        self._store_config = store_config or StoreConfig()
        super().__init__(everybody)

    def start(self, name: str, incarnation: int | None = None) -> None:
        self.stores.pop(name, None)
        super().start(name, incarnation)
        self.stores[name] = Store(
            self[name],
            self.trees[name],
            lambda body: self._submit(name, body),
            lambda number: self.check_primary(name, number),
            self._store_config,
        )

    def ask(self, name: str, what: Operation | Write, ack: Ack = Ack.AUTO, deadline: float = NEVER) -> Waiter:
        """Sends a write."""
        waiter = Waiter()
        data = encode_write(what if isinstance(what, Write) else Write((what,)))
        self.stores[name].write(data, ack, deadline, waiter)
        self.stores[name].dispatch()
        return waiter

    def read(self, name: str, deadline: float = NEVER) -> Waiter:
        """Begins a linearizable read, which is answered when it may go on."""
        waiter = Waiter()
        self.stores[name].when_linearizable(deadline, waiter)
        return waiter

    def value(self, name: str, key: str) -> bytes | None:
        item = self.stores[name].find(key)
        return None if item is None else item.value

    def _submit(self, name: str, body: bytes) -> MessageId:
        log: Corel = self[name]
        message_id = log.submit(body)
        self.bodies[message_id] = str(message_id)
        self._execute(self.nodes[name], log.send())
        return message_id

    def _execute(self, node: Node, effects: list[CorelEffect]) -> None:
        super()._execute(node, effects)
        store = self.stores.get(node.machine.name)
        if store is None:
            return
        for effect in effects:
            if isinstance(effect, LogReport):
                store.handle(effect)

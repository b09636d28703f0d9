"""A few stores over the logs of `tests.corel.harness`: no network, no time, nothing happens that is not asked for.

cluster = StoreCluster("abc")
cluster.settle("ab", "c")
put = cluster.ask("c", Put("k", b"v"))
cluster.run()
assert put.answer == Accepted("c.1.1.0", Color.RED)
"""

from __future__ import annotations

from corel.corel import Corel
from corel.effects import Effect, Event, Greened, Logged, Proven
from corel.messages import MessageId
from kvstore.green_state import Checkpoint, Fate
from kvstore.machine import Ack, Answer, Machine, Trouble
from kvstore.operations import Operation, Write
from kvstore.state import Item, Remembered
from kvstore.store_config import StoreConfig
from kvstore.write_codec import encode_write
from tests.corel.harness import LogCluster, Node
from transport.effects import Journal

NEVER = 1e9


class MemoryTree:
    """A state on a disk that is written at once."""

    def __init__(self) -> None:
        self.line = self.revision = 0
        self.items: dict[str, Item] = {}
        self.fates: dict[MessageId, Fate] = {}
        self.memories: dict[str, Remembered] = {}

    def item(self, key: str) -> Item | None:
        return self.items.get(key)

    def fate(self, message_id: MessageId) -> Fate | None:
        return self.fates.get(message_id)

    def remembered(self, idempotency_key: str) -> Remembered | None:
        return self.memories.get(idempotency_key)

    def write(self, checkpoint: Checkpoint) -> None:
        for key, item in checkpoint.items.items():
            if item is None:
                self.items.pop(key, None)
            else:
                self.items[key] = item
        self.fates.update(checkpoint.fates)
        self.memories.update(checkpoint.memories)
        self.line, self.revision = checkpoint.line, checkpoint.revision


class Waiter:
    """Who waits for an answer. There is at most one."""

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
    """As a `LogCluster`, with a store on each log."""

    def __init__(self, everybody: str, store: StoreConfig | None = None) -> None:
        self.machines: dict[str, Machine] = {}
        self.trees = {name: MemoryTree() for name in everybody}
        self._store = store or StoreConfig()
        super().__init__(everybody)

    def start(self, name: str) -> None:
        self.machines.pop(name, None)
        super().start(name)
        self.machines[name] = Machine(
            self[name],
            self.trees[name],
            lambda body: self._submit(name, body),
            lambda number: self.probe(name, number),
            self._store,
        )

    def ask(self, name: str, what: Operation | Write, ack: Ack = Ack.AUTO, deadline: float = NEVER) -> Waiter:
        """Writes."""
        waiter = Waiter()
        data = encode_write(what if isinstance(what, Write) else Write((what,)))
        self.machines[name].write(data, ack, deadline, waiter)
        self.machines[name].dispatch()
        return waiter

    def read(self, name: str, deadline: float = NEVER) -> Waiter:
        """When a linearizable read may go on."""
        waiter = Waiter()
        self.machines[name].when_linearizable(deadline, waiter)
        return waiter

    def value(self, name: str, key: str) -> bytes | None:
        item = self.machines[name].find(key)
        return None if item is None else item.value

    def _submit(self, name: str, body: bytes) -> MessageId:
        log: Corel = self[name]
        message_id = log.submit(body)
        self.bodies[message_id] = str(message_id)
        self._execute(self.nodes[name], log.send())
        return message_id

    def _execute(self, node: Node, effects: list[Effect]) -> None:
        super()._execute(node, effects)
        machine = self.machines.get(node.machine.name)
        if machine is None:
            return
        for effect in effects:
            if isinstance(effect, Logged):
                machine.logged(effect)
            elif isinstance(effect, Greened):
                machine.greened(effect)
            elif isinstance(effect, Proven):
                machine.proven(effect.number)
            elif isinstance(effect, Journal) and effect.event is Event.STATE:
                machine.stage_changed()

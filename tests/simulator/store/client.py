"""A simulated client: it sends one request at a time, with pauses, to one node or another. Writes whose outcome it
does not know it retries at another node, with their idempotency keys."""

from __future__ import annotations

from random import Random

from kvstore.store.operations import (
    Append,
    Condition,
    Delete,
    Exists,
    Get,
    Increment,
    Merge,
    Operation,
    Put,
    RevisionIs,
    ValueIs,
    Write,
    WrittenBy,
)
from kvstore.store.replies import Accepted, Ack, Answer, Done, Failed, Trouble
from kvstore.store.state import Item
from kvstore.store.write_codec import encode_write
from tests.simulator.checkers.read_levels import APPENDED, SEPARATOR
from tests.simulator.checkers.store import Level, Read, Request, message_of
from tests.simulator.store.client_gateway import ClientGateway
from tests.simulator.store.plan import StorePlan

ATTEMPTS_MAX = 4
TOGETHER = "t"
"""The prefix of the keys that transactions touch together."""


def object_of(key: str) -> str:
    """Returns the object that a key is part of, for linearizability."""
    return TOGETHER if key.startswith(TOGETHER) else key


class Client:
    """One client, whose requests are drawn from its own random numbers."""

    def __init__(self, number: int, gateway: ClientGateway, plan: StorePlan, random: Random) -> None:
        self._number = number
        self._gateway = gateway
        self._plan = plan
        self._random = random
        self._policies = Random(f"feeds {plan.seed} client {number}")
        self._nodes = plan.corel.below.nodes
        self._node = random.choice(self._nodes)
        self._count = 0
        self._seen: dict[str, Item | None] = {}
        """What it last read of each key."""
        self._revision = 0
        """The highest revision in any answer it got."""
        self._idempotency_key: str | None = None
        """The last key that it used and may use again: not that of an append, which must be applied."""
        self.is_working = True

    def think(self) -> None:
        """Waits a while before the next request."""
        self._gateway.world.after(self._random.expovariate(1.0 / self._plan.think_ms), self._act)

    def _act(self) -> None:
        if not self.is_working:
            return
        if self._random.random() > self._plan.loyal_share:
            self._node = self._random.choice(self._nodes)
        if not self._gateway.is_up(self._node):  # there is no answer from there
            self._node = self._random.choice(self._nodes)
            self.think()
        elif self._random.random() < self._plan.read_share:
            kinds = (Level.GREEN, Level.RED, Level.LINEARIZABLE, Level.LINEARIZABLE, Level.MIN_REVISION)
            self._read(self._any_key(), self._random.choice(kinds))
        else:
            self._write(self._new_request())

    # Reading

    def _read(self, key: str, level: Level) -> None:
        least = 0
        if level is Level.MIN_REVISION:
            least = max(0, self._revision + self._random.choice((-1, 0, 0, 1, 5)))
        timeout_ms = self._random.choice(self._plan.timeouts_ms)
        self._gateway.read(level, key, self._node, least, timeout_ms, self._wait_ms(timeout_ms), self._on_read)

    def _on_read(self, read: Read | Trouble | None) -> None:
        if isinstance(read, Read):
            self._seen[read.key] = read.item
            self._revision = max(self._revision, read.revision)
        self.think()

    # Writing

    def _write(self, request: Request) -> None:
        ack = self._random.choice((Ack.AUTO, Ack.AUTO, Ack.GREEN, Ack.RED))
        timeout_ms = self._random.choice(self._plan.timeouts_ms)
        wait_ms = self._wait_ms(timeout_ms)
        self._gateway.write(
            request, self._node, ack, timeout_ms, wait_ms, lambda answer: self._on_answer(request, answer)
        )

    def _on_answer(self, request: Request, answer: Answer | None) -> None:
        coverage = self._gateway.coverage
        if answer is None:
            coverage["no answer to a write"] += 1
        elif isinstance(answer, Done):
            self._revision = max(self._revision, answer.applied.outcome.revision or 0)
            if self._read_elsewhere(request.write.then[0].key):
                return
        is_certain = isinstance(answer, Done)
        often = 0.05 if is_certain else 0.3 if isinstance(answer, Accepted) else 1.0
        is_retried = self._random.random() < often * self._plan.retry_share
        if self.is_working and is_retried and request.write.idempotency_key is not None:
            others = [node for node in self._nodes if node != self._node and self._gateway.is_up(node)]
            if others and len(request.attempts) < ATTEMPTS_MAX:
                coverage["retries on another node"] += 1
                self._node = self._random.choice(others)
                self._write(request)
                return
        if isinstance(answer, (Accepted, Failed)) and answer.write_id and self._random.random() < 0.3:
            self._follow(answer.write_id)
            return
        self.think()

    def _read_elsewhere(self, key: str) -> bool:
        """Reads at another node at once, or not at all, and returns which: what is green must be seen at every
        node from now on."""
        others = [node for node in self._nodes if node != self._node and self._gateway.is_up(node)]
        if not others or not self.is_working or self._random.random() > self._plan.look_share:
            return False
        self._node = self._random.choice(others)
        self._read(key, Level.LINEARIZABLE)
        return True

    def _follow(self, write_id: str) -> None:
        up = [node for node in self._nodes if self._gateway.is_up(node)]
        if not up or not self.is_working:
            self.think()
            return
        message_id, index = message_of(write_id)
        node = self._random.choice(up)
        timeout_ms = self._random.choice((100.0, 1_000.0))
        self._gateway.follow(message_id, index, node, timeout_ms, lambda fate: self.think())

    # What to request

    def _wait_ms(self, timeout_ms: float) -> float:
        """How long it waits for an answer: sometimes less than the node may take."""
        return timeout_ms * 0.7 if self._random.random() < 0.1 else timeout_ms + 200.0

    def _any_key(self) -> str:
        kind = self._random.choice(("k", "k", "n", APPENDED, TOGETHER))
        return f"{kind}{self._random.randrange(self._plan.keys)}"

    def _token(self) -> bytes:
        """Returns bytes that no other request uses."""
        return b"%d.%d" % (self._number, self._count)

    def _new_request(self) -> Request:
        self._count += 1
        then, conditions, otherwise = self._draw()
        idempotency_key = None
        is_anonymous = isinstance(then[0], Delete)  # else two of them could not be told apart
        if is_anonymous or self._random.random() < self._plan.keyed_share:
            idempotency_key = f"key {self._number}.{self._count}"
            if not is_anonymous and not then[0].key.startswith(APPENDED):
                if self._idempotency_key is not None and self._random.random() < 0.03:
                    idempotency_key = self._idempotency_key  # by mistake
                self._idempotency_key = idempotency_key
        write = Write(then, conditions, otherwise, idempotency_key, self._policy(then[0].key))
        request = Request(write, encode_write(write))
        self._gateway.history.requests.append(request)
        return request

    def _policy(self, key: str) -> Merge:
        """Draws a merge policy; what is appended to the keys for red reads must stay."""
        yields = self._policies.random() < self._plan.keep_green_share and not key.startswith(APPENDED)
        return Merge.KEEP_GREEN if yields else Merge.LAST

    def _draw(self) -> tuple[tuple[Operation, ...], tuple[Condition, ...], tuple[Operation, ...] | None]:
        key = self._any_key()
        if key.startswith(TOGETHER):
            return self._draw_together()
        if key.startswith(APPENDED):
            return (Append(key, self._token() + SEPARATOR),), (), None
        if key.startswith("n") and self._random.random() < 0.8:
            return (Increment(key, self._number * 10_000 + self._count),), (), None
        operation = self._operation(key)
        conditions = (self._condition(key),) if self._random.random() < 0.5 else ()
        return (operation,), conditions, None

    def _draw_together(self) -> tuple[tuple[Operation, ...], tuple[Condition, ...], tuple[Operation, ...] | None]:
        keys = [f"{TOGETHER}{number}" for number in range(self._plan.keys)]
        count = self._random.randint(1, 4)
        operations = [self._operation(self._random.choice(keys)) for _ in range(count)]
        then = (Put(keys[0], self._token()), *operations, Get(self._random.choice(keys)))
        conditions = tuple(self._condition(key) for key in keys if self._random.random() < 0.3)
        otherwise: tuple[Operation, ...] | None = None
        if self._random.random() < 0.5:
            otherwise = (Get(keys[0]), Append(self._random.choice(keys), self._token()))
        return then, conditions, otherwise

    def _operation(self, key: str) -> Operation:
        kind = self._random.choice(("put", "put", "append", "delete", "increment"))
        if kind == "put":
            size = 3_000 if self._random.random() < self._plan.large_share else 0
            if key.startswith("n"):
                return Put(key, b"%d" % (self._number * 10_000 + self._count), "text/plain")
            return Put(key, self._token() + bytes(size), self._random.choice(("a/b", "text/plain")))
        if kind == "append":
            return Append(key, b"+" + self._token())
        return Delete(key) if kind == "delete" else Increment(key, self._number * 10_000 + self._count)

    def _condition(self, key: str) -> Condition:
        """Draws a condition on what it last read of the key."""
        item = self._seen.get(key)
        if item is None:
            return self._random.choice((RevisionIs(key, 0), Exists(key, False)))
        kind = self._random.choice(("known", "known", "exists", "value"))
        if kind == "exists":
            return Exists(key, True)
        if kind == "value":
            return ValueIs(key, item.value)
        return WrittenBy(key, item.write_id) if item.revision is None else RevisionIs(key, item.revision)

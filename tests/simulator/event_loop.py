"""The event loop of a process whose work takes time.

While the process handles one input, others wait for it: datagrams in a socket buffer that spills when it is full,
everything else in a queue. The loop takes turns as `kvstore.node.driver` does: a batch of datagrams, then what is
due, then what else waits. So a process that is sent more than it can handle answers late, ticks late, and loses
datagrams, and what it sends again makes that worse.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from tests.simulator.world import Action, World
from transport.deadlines import AT_ONCE
from transport.messages import Datagram
from transport.udp import DRAIN_DATAGRAMS_MAX, DRAIN_SECONDS_MAX

PAUSE_MS = 50.0
"""A tick that is overdue by more than this comes after the datagrams that wait, as in the driver."""

TICKS_MAX = 4
"""How many ticks there are in a row before other work gets its turn, as in the driver."""


class Cpu(NamedTuple):
    """What a process's work costs, and how many datagrams wait for it."""

    received_ms: float
    """For a datagram that has arrived."""
    sent_ms: float
    """For a datagram that is sent."""
    frame_ms: float
    """For each frame of a datagram, in addition."""
    step_ms: float
    """For a tick, or another input."""
    socket_datagrams_max: int

    @classmethod
    def per_datagram(cls, datagram_us: float, socket_datagrams_max: int) -> Cpu:
        """Returns the costs of a machine that needs so long for a small datagram that has arrived. The proportions
        are those of a Python node: 20 µs for the protocol, 12 µs to decode, 24 µs for a tick, 5 µs to encode, and
        the system calls."""
        cost_ms = datagram_us / 1_000.0
        return cls(0.8 * cost_ms, 0.4 * cost_ms, 0.2 * cost_ms, 0.5 * cost_ms, socket_datagrams_max)


class Host(Protocol):
    """The process that the loop belongs to."""

    def is_paused(self) -> bool: ...

    def take_in(self, datagram: Datagram) -> None: ...

    def tick(self) -> None: ...

    def next_deadline(self) -> float: ...

    def sleep_until(self, deadline: float) -> None: ...


class EventLoop:
    """Lets a process work on one input after the other, each for as long as it takes."""

    def __init__(self, world: World, cpu: Cpu, host: Host, count: Callable[[str], None]) -> None:
        self.cpu = cpu
        self.busy_until = 0.0
        self._world = world
        self._host = host
        self._count = count
        self._socket: deque[Datagram] = deque()
        self._actions: deque[Action] = deque()
        self._turn: Iterator[None] | None = None
        self._is_working = False
        self._will_continue = False

    def clear(self) -> None:
        """Forgets all work: the process has crashed."""
        self.forget_datagrams()
        self._actions.clear()
        self._turn = None
        self.busy_until = self._world.now

    def forget_datagrams(self) -> None:
        """Empties the socket's buffer: the socket is closed."""
        self._socket.clear()

    def is_busy(self) -> bool:
        return self._world.now < self.busy_until

    def spend(self, cost_ms: float) -> None:
        """Makes the process busy for so long, after what it is busy with."""
        self.busy_until = max(self.busy_until, self._world.now) + cost_ms
        self._continue_later()

    def sent(self, datagram: Datagram) -> None:
        self.spend(self.cpu.sent_ms + self.cpu.frame_ms * len(datagram.frames))

    def datagram(self, datagram: Datagram) -> None:
        """Puts a datagram into the socket's buffer, if it has room."""
        if len(self._socket) >= self.cpu.socket_datagrams_max:
            self._count("cpu: datagrams spilled")
            return
        if self.is_busy():
            self._count("cpu: datagrams that waited")
        self._socket.append(datagram)
        self.proceed()

    def acted(self) -> None:
        """Counts the cost of an input that is no datagram."""
        self.spend(self.cpu.step_ms)

    def later(self, action: Action) -> None:
        """Runs an action when its turn comes."""
        self._actions.append(action)
        self.proceed()

    def proceed(self) -> None:
        """Works on what waits until the process is busy, or has nothing to do."""
        if self._is_working:
            return
        self._is_working = True
        try:
            while not self.is_busy() and not self._host.is_paused() and self._has_work():
                self._step()
        finally:
            self._is_working = False
        if not self.is_busy() and not self._host.is_paused():
            self._host.sleep_until(self._host.next_deadline())

    def _step(self) -> None:
        turn = self._turn = self._turn or self._take_turn()
        is_over = next(turn, self) is self
        if is_over and self._turn is turn:  # else it has crashed
            self._turn = None

    def _has_work(self) -> bool:
        return bool(self._turn or self._socket or self._actions) or self._host.next_deadline() <= self._world.now

    def _take_turn(self) -> Iterator[None]:
        """Yields after each input."""
        yield from self._drain()
        yield from self._tick()
        for _ in range(len(self._actions)):
            self._actions.popleft()()
            yield
            yield from self._tick()

    def _drain(self) -> Iterator[None]:
        for _ in range(DRAIN_DATAGRAMS_MAX):
            if not self._socket:
                return
            datagram = self._socket.popleft()
            self._host.take_in(datagram)
            self.spend(self.cpu.received_ms + self.cpu.frame_ms * len(datagram.frames))
            yield

    def _tick(self) -> Iterator[None]:
        for _ in range(TICKS_MAX):
            deadline = self._host.next_deadline()
            if deadline > self._world.now:
                return
            if self._socket and AT_ONCE < deadline < self._world.now - PAUSE_MS:
                self._count("cpu: overdue ticks that waited for datagrams")
                end = self._world.now + 1_000.0 * DRAIN_SECONDS_MAX
                while self._socket and self._world.now < end:
                    yield from self._drain()
            self._host.tick()
            self.spend(self.cpu.step_ms)
            yield

    def _continue_later(self) -> None:
        if not self._will_continue:
            self._will_continue = True
            self._world.at(self.busy_until, self._continue)

    def _continue(self) -> None:
        self._will_continue = False
        if self.is_busy():
            self._continue_later()
        else:
            self.proceed()

"""Watches the processes of a cluster: starts them, shows their output, restarts those that die, stops them all.

A node that dies is started again, with a longer back-off each time. A node that dies too often is given up, and
the others continue without it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import shlex
import shutil
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, TextIO

from kvstore.cli.progress import progress
from kvstore.client import AsyncClient, Request, Unreachable

_LINE_BYTES_MAX = 65_536
_COLORS = (36, 33, 35, 32, 34, 31)
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class NodePlan:
    """How to start one node: `command`, followed by `first` until the node has been ready once."""

    name: str
    url: str
    command: tuple[str, ...]
    first: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WaitTimes:
    """How long the supervisor waits, in seconds, and how many deaths of a node it accepts."""

    stop: float = 5.0
    """Time between asking a node to stop and killing it."""
    back_off: float = 0.5
    """Wait before a node that died is started again. It doubles with each death within `window`."""
    back_off_max: float = 10.0
    window: float = 60.0
    deaths_max: int = 5
    """A node with this many deaths within `window` is given up."""
    poll: float = 0.1
    """Interval between checks whether a node is ready."""
    primary: float = 10.0
    """How long to wait for a primary component once all nodes answer."""


# What people see


class Console:
    """Prints lines, each with the name of the node that it comes from, in colour on a terminal."""

    def __init__(self, output: TextIO | None, names: Sequence[str]) -> None:
        self._output = output
        """`None` is stdout, which is another one while a bar is shown below what is printed."""
        self._width = max(map(len, names), default=1)
        self._colors = dict(zip(names, _COLORS * len(names), strict=False))
        self._has_colors = (output or sys.stdout).isatty() and not os.environ.get("NO_COLOR")
        self.on_lost: Callable[[], None] = lambda: None
        """Called when the output cannot be written any more, as in `corelkv cluster | head`."""

    def say(self, text: str) -> None:
        self._print(f"corelkv: {text}")

    def show(self, text: str) -> None:
        self._print(text)

    def relay(self, name: str, line: str) -> None:
        label = f"{name:<{self._width}} |"
        if self._has_colors:
            label = f"\x1b[{self._colors[name]}m{label}\x1b[0m"
        self._print(f"{label} {line}")

    def _print(self, text: str) -> None:
        try:
            print(text, file=self._output or sys.stdout, flush=True)
        except (BrokenPipeError, ValueError):
            self.on_lost()


def welcome(plans: Sequence[NodePlan], pids: dict[str, int | None]) -> str:
    """Returns a table of the nodes, and commands to try. Each line under 'Try' works as it is."""
    rows = [("node", "url", "pid"), *((plan.name, plan.url, str(pids[plan.name] or "-")) for plan in plans)]
    width = max(len(url) for _, url, _ in rows)
    table = "\n".join(f"  {node:<6}{url:<{width}}  {pid}" for node, url, pid in rows)
    first, second = plans[0].url, plans[min(1, len(plans) - 1)].url
    put = f"curl -sS -X PUT {first}/v1/kv/greeting -d hello"
    get = f"curl -sS '{second}/v1/kv/greeting?read=linearizable'"
    names = [plan.name for plan in plans]
    cut = f"{','.join(names[:-1])}|{names[-1]}"
    me = _own_command()
    own = "" if first == "http://127.0.0.1:8001" else f" --url {first}"
    lines = [
        "",
        table,
        "",
        f"The console of every node is at its URL: {first}/",
        "",
        "Try:",
        f"  {put} && echo && {get}",
        f"  {me} status{own}",
    ]
    if len(plans) > 1:
        lines.append(f"  {me} partition{own} {shlex.quote(cut)}; {me} heal{own}")
    return "\n".join([*lines, "", "Ctrl-C stops all nodes.", ""])


def _own_command() -> str:
    """Returns how this command can be called in a shell."""
    if shutil.which("corelkv"):
        return "corelkv"
    called = Path(sys.argv[0])
    return str(called) if called.name == "corelkv" else f"{sys.executable} -m kvstore"


def describe_status(status: int) -> str:
    if status < 0:
        with contextlib.suppress(ValueError):
            return f"was killed by {signal.Signals(-status).name}"
    return f"ended with status {status}"


# Watching


class _Watched:
    """A node and its current process, if there is one."""

    def __init__(self, plan: NodePlan, window: float) -> None:
        self.plan = plan
        self.process: asyncio.subprocess.Process | None = None
        self.is_given_up = False
        self.was_ready = False
        self.may_run = asyncio.Event()
        """Not set while the node was killed by request: it waits until it is started by request."""
        self.may_run.set()
        self.was_killed = False
        """Whether its process was killed by request, which is no death."""
        self._deaths: deque[float] = deque()
        self._window = window

    def note_death(self, now: float) -> int:
        """Records a death, and returns how many there were within the window, including this one."""
        self._deaths.append(now)
        while self._deaths[0] < now - self._window:
            self._deaths.popleft()
        return len(self._deaths)

    @property
    def pid(self) -> int | None:
        return None if self.process is None else self.process.pid

    def kill(self) -> None:
        """Kills the process, if there is one, as a request asks for."""
        if self.process is not None:
            self.was_killed = True
            self.signal(signal.SIGKILL)

    def signal(self, number: int) -> None:
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(number)


class Supervisor:
    """Keeps the processes of the plans running. `on_ready` is called with a node's name when it first answers."""

    def __init__(
        self,
        plans: Sequence[NodePlan],
        console: Console,
        restart: bool = True,
        on_ready: Callable[[str], None] = lambda name: None,
        waits: WaitTimes | None = None,
    ) -> None:
        self._plans = plans
        self._console = console
        self._restart = restart
        self._on_ready = on_ready
        self._waits = waits or WaitTimes()
        self._nodes = [_Watched(plan, self._waits.window) for plan in plans]
        self._stop = asyncio.Event()
        console.on_lost = self._stop.set

    def interrupt(self) -> None:
        """Stops all nodes; the second time it kills them."""
        if self._stop.is_set():
            for node in self._nodes:
                node.signal(signal.SIGKILL)
        self._stop.set()

    def kill(self, name: str) -> None:
        """Kills a node, which then waits for `start`. Raises `LookupError` if it is not there, or given up."""
        node = self.check(name)
        if node.may_run.is_set():
            self._console.say(f"killing node {name}, as was asked for; it stays down until it is started")
            node.may_run.clear()
            node.kill()

    def start(self, name: str) -> None:
        """Starts a node that was killed by request. Raises as `kill` does."""
        node = self.check(name)
        if not node.may_run.is_set():
            self._console.say(f"starting node {name}, as was asked for")
            node.may_run.set()

    def check(self, name: str) -> _Watched:
        """Returns the node if it can be killed and started. Raises `LookupError`."""
        for node in self._nodes:
            if node.plan.name == name and not node.is_given_up:
                return node
        raise LookupError(f"node {name} is not watched, or was given up: start the cluster again")

    async def run(self) -> int:
        """Returns 0 after an interrupt, or 1 if no node is left. All processes have ended when it returns."""
        keeping = [asyncio.create_task(self._keep(node)) for node in self._nodes]
        announcing = asyncio.create_task(self._announce())
        stopping = asyncio.create_task(self._stop.wait())
        all_ended = asyncio.gather(*keeping)
        try:
            await asyncio.wait((stopping, all_ended), return_when=asyncio.FIRST_COMPLETED)
        finally:
            was_stopped = self._stop.is_set()
            self._stop.set()
            await self._end(all_ended)
            for task in (announcing, stopping):
                task.cancel()
            await asyncio.gather(announcing, stopping, return_exceptions=True)
        self._console.say("all nodes have stopped" if was_stopped else "no node is left")
        return 0 if was_stopped else 1

    async def _end(self, all_ended: asyncio.Future[Any]) -> None:
        """Asks all nodes to stop, and kills those that have not stopped in time."""
        if not all_ended.done():
            self._console.say("stopping all nodes")
        for number in (signal.SIGTERM, signal.SIGKILL):
            for node in self._nodes:
                node.signal(number)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(all_ended), self._waits.stop)
                return

    async def _keep(self, node: _Watched) -> None:
        """Runs a node, and starts it again when it dies, until it is given up or everything stops."""
        name, waits = node.plan.name, self._waits
        while not self._stop.is_set():
            status = await self._run_once(node)
            if self._stop.is_set():
                return
            if node.was_killed:  # it may have been started by request before it had ended
                node.was_killed = False
                await self._until_started(node)
                continue
            how = describe_status(status)
            deaths = node.note_death(time.monotonic())
            if not self._restart:
                self._console.say(f"node {name} {how}, and is not started again (--no-restart)")
            elif deaths >= waits.deaths_max:
                self._console.say(
                    f"node {name} {how}, and died {deaths} times within {waits.window:.0f} s: giving it up. "
                    "Its last lines above say why. The other nodes go on without it"
                )
            else:
                pause = min(waits.back_off * 2 ** (deaths - 1), waits.back_off_max)
                self._console.say(f"node {name} {how}; starting it again in {pause:g} s")
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stop.wait(), pause)
                continue
            node.is_given_up = True
            return

    async def _until_started(self, node: _Watched) -> None:
        """Waits until the node may run again, or everything stops."""
        waits = [asyncio.create_task(event.wait()) for event in (node.may_run, self._stop)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    async def _run_once(self, node: _Watched) -> int:
        """Runs a node's process once, shows its output, and returns its exit status."""
        command = node.plan.command + (() if node.was_ready else node.plan.first)
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            process_group=0,  # Ctrl-C in the terminal reaches only this process, which stops the nodes
            preexec_fn=_die_with_parent,
        )
        node.process = process
        try:
            if self._stop.is_set():
                node.signal(signal.SIGTERM)
            elif not node.may_run.is_set():
                node.kill()  # this was asked for while it began
            assert process.stdout is not None
            await self._relay(node.plan.name, process.stdout)
            return await process.wait()
        finally:
            node.process = None

    async def _relay(self, name: str, stream: asyncio.StreamReader) -> None:
        rest = b""
        while chunk := await stream.read(_LINE_BYTES_MAX):
            *lines, rest = (rest + chunk).split(b"\n")
            if len(rest) > _LINE_BYTES_MAX:
                lines, rest = [*lines, rest], b""
            for line in lines:
                self._console.relay(name, line.decode(errors="replace"))
        if rest:
            self._console.relay(name, rest.decode(errors="replace"))

    async def _announce(self) -> None:
        """Waits until every node answers or is given up, and then for a primary component, but not without end;
        says which nodes are up."""
        await self._await_all("nodes that are up", self._nodes)
        living = [node for node in self._nodes if not node.is_given_up]
        if not living:
            return
        is_primary = False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._waits.primary):
                await self._await_all("nodes in a primary component", living, "?need=primary")
                is_primary = True
        up = (
            "all nodes are up"
            if len(living) == len(self._nodes)
            else f"{len(living)} of {len(self._nodes)} nodes are up"
        )
        state = "" if is_primary else "; there is no primary component yet, so writes are red"
        self._console.say(f"{up}{state}")
        self._console.show(welcome(self._plans, {node.plan.name: node.pid for node in self._nodes}))

    async def _await_all(self, what: str, nodes: Sequence[_Watched], query: str = "") -> None:
        with progress(what, len(nodes)) as advance:
            ready = count(1)

            async def wait(node: _Watched) -> None:
                await self._wait_ready(node, query)
                advance(next(ready))

            await asyncio.gather(*map(wait, nodes))

    async def _wait_ready(self, node: _Watched, query: str = "") -> None:
        request = Request("GET", f"/readyz{query}", answer_seconds=1.0)
        async with AsyncClient(node.plan.url, connect_seconds=1.0) as client:
            while not node.is_given_up:
                with contextlib.suppress(Unreachable):
                    if (await client.send(request)).is_success:
                        if not node.was_ready:
                            node.was_ready = True
                            self._on_ready(node.plan.name)
                        return
                await asyncio.sleep(self._waits.poll)


def _find_prctl() -> Any:
    with contextlib.suppress(OSError, AttributeError):
        return ctypes.CDLL(None).prctl
    return None


_prctl = _find_prctl()


def _die_with_parent() -> None:
    """Runs in the new process: if the supervisor is killed, the node is stopped too (Linux only)."""
    if _prctl is not None:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)

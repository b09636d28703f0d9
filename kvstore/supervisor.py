"""`corelkv cluster`: the nodes of a cluster as processes of this machine, watched until Ctrl-C.

A node that dies is started again, later each time; one that dies too often is given up, and the others go on. The
cluster's name is kept in its data directory, so what was started there goes on there, and two clusters on one
machine do not hear each other.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import shlex
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from secrets import token_hex
from string import ascii_lowercase
from typing import Any, TextIO

from kvstore.client import Client, Request, Unreachable

NODES = 3
HOST = "127.0.0.1"
BROADCAST = "127.255.255.255"

_LINE_BYTES_MAX = 65_536
_COLORS = (36, 33, 35, 32, 34, 31)
_PR_SET_PDEATHSIG = 1


class ClusterError(Exception):
    """The cluster cannot start. The message says what to do."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait for what, in seconds."""

    stop: float = 5.0
    """Between asking a node to stop and killing it."""
    back_off: float = 0.5
    """Before a node that died is started again; doubles with each death within `window`."""
    back_off_max: float = 10.0
    window: float = 60.0
    deaths_max: int = 5
    """So many deaths within `window`, and a node is given up."""
    poll: float = 0.1
    """Between questions whether a node is ready."""
    primary: float = 10.0
    """For a primary component, once all nodes answer."""


@dataclass(frozen=True, slots=True)
class NodePlan:
    """One node of the cluster: `command` starts it; `first` is what to add until it has started once."""

    name: str
    url: str
    command: tuple[str, ...]
    first: tuple[str, ...] = ()


# What is kept in the data directory


@dataclass(frozen=True, slots=True)
class ClusterFile:
    """`DATA/cluster.json`. An empty disk may vote only if it cannot have forgotten anything: a node is
    bootstrapped until it has been seen ready, and never again, even if its directory is removed."""

    cluster: str
    nodes: int
    bootstrapped: frozenset[str] = frozenset()

    @classmethod
    def open(cls, data: Path, nodes: int | None) -> ClusterFile:
        """That of the directory, or a new one for an empty directory. Raises `ClusterError`."""
        path = data / "cluster.json"
        if not path.exists():
            return cls._create(data, nodes or NODES)
        try:
            content = json.loads(path.read_text())
            found = cls(content["cluster"], int(content["nodes"]), frozenset(content["bootstrapped"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ClusterError(f"cannot read {path}: {error!r}. Use another --data directory.") from None
        if nodes not in (None, found.nodes):
            raise ClusterError(
                f"{data} is a cluster of {found.nodes} nodes, not of {nodes}: use --nodes {found.nodes}, or "
                "another --data directory"
            )
        return found

    @classmethod
    def _create(cls, data: Path, nodes: int) -> ClusterFile:
        try:
            data.mkdir(parents=True, exist_ok=True)
            if any(data.iterdir()):
                raise ClusterError(
                    f"{data} is not empty, and has no cluster.json that says which cluster it is: choose a new or "
                    "empty directory with --data"
                )
            created = cls(f"dev-{token_hex(4)}", nodes)
            created.save(data)
        except OSError as error:
            raise ClusterError(f"cannot use {data}: {error.strerror}. Choose another --data directory.") from None
        return created

    def save(self, data: Path) -> None:
        content = {"cluster": self.cluster, "nodes": self.nodes, "bootstrapped": sorted(self.bootstrapped)}
        temporary = data / "cluster.json.new"
        with open(temporary, "w") as file:
            file.write(json.dumps(content) + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, data / "cluster.json")


# Planning


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """As on the command line."""

    nodes: int | None = None
    http_port: int = 8001
    port: int = 7400
    data: Path | None = None
    chaos: bool = True
    restart: bool = True


def run_cluster(options: ClusterOptions, output: TextIO | None = None) -> int:
    """Starts the nodes and watches them until a signal; returns the exit status. Raises `ClusterError`."""
    with contextlib.ExitStack() as stack:
        is_temporary = options.data is None
        if options.data is None:
            data = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="corelkv-")))
        else:
            data = options.data
        file = ClusterFile.open(data, options.nodes)
        check_ports(options.http_port, file.nodes)
        plans = plan_nodes(options, file, data)
        console = Console(output or sys.stdout, [plan.name for plan in plans])
        kept = "removed at the end; keep it with --data DIR" if is_temporary else "kept"
        nodes = "1 node; its" if file.nodes == 1 else f"{file.nodes} nodes; their"
        console.say(f"starting {nodes} files are in {data} ({kept})")
        return asyncio.run(_supervise(plans, file, data, options.restart, console))


async def _supervise(
    plans: Sequence[NodePlan], file: ClusterFile, data: Path, restart: bool, console: Console
) -> int:
    def on_ready(name: str) -> None:
        nonlocal file
        if name not in file.bootstrapped:
            file = replace(file, bootstrapped=file.bootstrapped | {name})
            try:
                file.save(data)
            except OSError as error:
                console.say(f"cannot write {data}/cluster.json: {error.strerror}")

    supervisor = Supervisor(plans, console, restart, on_ready)
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, supervisor.interrupt)
    return await supervisor.run()


def plan_nodes(options: ClusterOptions, file: ClusterFile, data: Path) -> list[NodePlan]:
    names = ascii_lowercase[: file.nodes]
    ports = {name: options.http_port + index for index, name in enumerate(names)}
    urls = {name: f"http://{HOST}:{port}" for name, port in ports.items()}
    common = (
        *("--roster", ",".join(names)),
        *("--cluster", file.cluster),
        *("--broadcast", f"{BROADCAST}:{options.port}"),
        *("--urls", ",".join(f"{name}={url}" for name, url in urls.items())),
        "--chaos" if options.chaos else "--no-chaos",
    )
    plans = []
    for name in names:
        own = ("--node", name, "--http", f"{HOST}:{ports[name]}", "--data", str(data / name))
        command = (sys.executable, "-m", "kvstore", "serve", *own, *common)
        first = () if name in file.bootstrapped else ("--bootstrap",)
        plans.append(NodePlan(name, urls[name], command, first))
    return plans


def check_ports(first: int, count: int) -> None:
    """Before anything starts: a node that finds its port taken would die again and again."""
    if first + count - 1 > 65_535:
        raise ClusterError(f"{count} nodes need ports {first} to {first + count - 1}: choose a lower --http-port")
    for name, port in zip(ascii_lowercase, range(first, first + count), strict=False):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError as error:
                raise ClusterError(
                    f"port {port}, for node {name}'s HTTP, cannot be used ({error.strerror}): is another cluster "
                    f"running? Choose {count} free ports in a row with --http-port"
                ) from None


# What people see


class Console:
    """Lines with the name of who says them, in colour on a terminal."""

    def __init__(self, output: TextIO, names: Sequence[str]) -> None:
        self._output = output
        self._width = max(map(len, names), default=1)
        self._colors = dict(zip(names, _COLORS * len(names), strict=False))
        self._has_colors = output.isatty() and not os.environ.get("NO_COLOR")
        self.on_lost: Callable[[], None] = lambda: None
        """Nobody reads any more (`corelkv cluster | head`)."""

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
            print(text, file=self._output, flush=True)
        except (BrokenPipeError, ValueError):
            self.on_lost()


def welcome(plans: Sequence[NodePlan], pids: dict[str, int | None]) -> str:
    """What there is, and what to do with it. Each line under 'Try' works as it is."""
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
    lines = ["", table, "", "Try:", f"  {put} && echo && {get}", f"  {me} status{own}"]
    if len(plans) > 1:
        lines.append(f"  {me} partition{own} {shlex.quote(cut)}; {me} heal{own}")
    return "\n".join([*lines, "", "Ctrl-C stops all nodes.", ""])


def _own_command() -> str:
    """How this command can be called in a shell."""
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
    """A node, and the process that it is at the moment."""

    def __init__(self, plan: NodePlan, window: float) -> None:
        self.plan = plan
        self.process: asyncio.subprocess.Process | None = None
        self.is_given_up = False
        self.was_ready = False
        self._deaths: deque[float] = deque()
        self._window = window

    def note_death(self, now: float) -> int:
        """How many there were lately, with this one."""
        self._deaths.append(now)
        while self._deaths[0] < now - self._window:
            self._deaths.popleft()
        return len(self._deaths)

    @property
    def pid(self) -> int | None:
        return None if self.process is None else self.process.pid

    def signal(self, number: int) -> None:
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(number)


class Supervisor:
    """Keeps the processes of the plans running. `on_ready` is told when a node first answers."""

    def __init__(
        self,
        plans: Sequence[NodePlan],
        console: Console,
        restart: bool = True,
        on_ready: Callable[[str], None] = lambda name: None,
        patience: Patience | None = None,
    ) -> None:
        self._plans = plans
        self._console = console
        self._restart = restart
        self._on_ready = on_ready
        self._patience = patience or Patience()
        self._nodes = [_Watched(plan, self._patience.window) for plan in plans]
        self._stop = asyncio.Event()
        console.on_lost = self._stop.set

    def interrupt(self) -> None:
        """Stops all nodes; the second time it kills them."""
        if self._stop.is_set():
            for node in self._nodes:
                node.signal(signal.SIGKILL)
        self._stop.set()

    async def run(self) -> int:
        """Until it is interrupted (0), or no node is left (1). When it returns all processes have ended."""
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
        """Asks, waits, kills."""
        if not all_ended.done():
            self._console.say("stopping all nodes")
        for number in (signal.SIGTERM, signal.SIGKILL):
            for node in self._nodes:
                node.signal(number)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(all_ended), self._patience.stop)
                return

    async def _keep(self, node: _Watched) -> None:
        """Starts a node, again and again if need be."""
        name, patience = node.plan.name, self._patience
        while not self._stop.is_set():
            status = await self._run_once(node)
            if self._stop.is_set():
                return
            how = describe_status(status)
            deaths = node.note_death(time.monotonic())
            if not self._restart:
                self._console.say(f"node {name} {how}, and is not started again (--no-restart)")
            elif deaths >= patience.deaths_max:
                self._console.say(
                    f"node {name} {how}, and died {deaths} times within {patience.window:.0f} s: giving it up. "
                    "Its last lines above say why. The other nodes go on without it"
                )
            else:
                pause = min(patience.back_off * 2 ** (deaths - 1), patience.back_off_max)
                self._console.say(f"node {name} {how}; starting it again in {pause:g} s")
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stop.wait(), pause)
                continue
            node.is_given_up = True
            return

    async def _run_once(self, node: _Watched) -> int:
        """One life of a node: its lines are shown; returns its status."""
        command = node.plan.command + (() if node.was_ready else node.plan.first)
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            process_group=0,  # a Ctrl-C in the terminal is for us, who stop the nodes in order
            preexec_fn=_die_with_parent,
        )
        node.process = process
        try:
            if self._stop.is_set():
                node.signal(signal.SIGTERM)
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
        """When all nodes answer (or are given up), and there is a primary component, if one comes."""
        await asyncio.gather(*(self._wait_ready(node) for node in self._nodes))
        living = [node for node in self._nodes if not node.is_given_up]
        if not living:
            return
        is_primary = False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._patience.primary):
                await asyncio.gather(*(self._wait_ready(node, "?need=primary") for node in living))
                is_primary = True
        up = (
            "all nodes are up"
            if len(living) == len(self._nodes)
            else f"{len(living)} of {len(self._nodes)} nodes are up"
        )
        state = "" if is_primary else "; there is no primary component yet, so writes are red"
        self._console.say(f"{up}{state}")
        self._console.show(welcome(self._plans, {node.plan.name: node.pid for node in self._nodes}))

    async def _wait_ready(self, node: _Watched, query: str = "") -> None:
        client = Client([node.plan.url], connect_seconds=1.0)
        request = Request("GET", f"/readyz{query}", answer_seconds=1.0)
        while not node.is_given_up:
            with contextlib.suppress(Unreachable):
                reply = await asyncio.to_thread(client.send, request)
                if reply.is_success:
                    if not node.was_ready:
                        node.was_ready = True
                        self._on_ready(node.plan.name)
                    return
            await asyncio.sleep(self._patience.poll)


def _find_prctl() -> Any:
    with contextlib.suppress(OSError, AttributeError):
        return ctypes.CDLL(None).prctl
    return None


_prctl = _find_prctl()


def _die_with_parent() -> None:
    """In a new process: if whoever watches it is killed, it should not go on unwatched (Linux only)."""
    if _prctl is not None:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)

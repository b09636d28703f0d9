"""`corelkv status --watch`: asks every node again and again, and shows what they say until Ctrl-C.

Each node is asked on its own, so that one that does not answer holds up nobody. Nodes also say where the others
are: one that does not answer where it did is looked for there. On a terminal the picture of `status_screen` is
redrawn; otherwise every change is one line of text, or of JSON."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any

from kvstore.cli.node_state import NodeState, NotAStatus
from kvstore.cli.output import Exit, is_live_terminal, print_json_line, printable
from kvstore.cli.status_model import SeenCluster, SeenNode
from kvstore.client import AsyncClient, CorelError, Request, RetryPolicy

ANSWER_SECONDS = 1.0
"""How long a node has for an answer. Longer tells a busy node from a dead one; shorter notices sooner."""
DRAW_SECONDS = 0.2
"""How often the picture is drawn. What it says of silent nodes changes although no answer comes."""
INTERVAL_SECONDS = 0.5
"""How often each node is asked, unless `--interval` says otherwise."""

URLS_SECONDS = 2.0
"""How often each node is asked where the others are. Longer costs the nodes less; shorter finds one that moved
sooner."""

_STATUS = Request("GET", "/v1/status", answer_seconds=ANSWER_SECONDS)
_ONCE = RetryPolicy(attempts_max=1)
Show = Callable[[], None]


def watch_status(nodes: Sequence[tuple[str, str | None]], asked: str, interval_s: float, as_json: bool) -> int:
    """Watches the nodes, given by name and URL, until a signal; returns the exit status."""
    now = time.monotonic()
    cluster = SeenCluster([SeenNode(name, url, now) for name, url in nodes], asked)
    with contextlib.ExitStack() as stack:
        if not as_json and is_live_terminal(sys.stdout):
            show = stack.enter_context(_screen(cluster))
        else:
            show = _Lines(cluster, as_json)
        asyncio.run(_watch(cluster, interval_s, show))
    return Exit.OK


async def _watch(cluster: SeenCluster, interval_s: float, show: Show) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    tasks = [asyncio.create_task(_Follower(cluster, node).run(interval_s)) for node in cluster.nodes]
    stopping = asyncio.create_task(stop.wait())
    try:
        while not stopping.done():
            show()
            done, _ = await asyncio.wait((stopping, *tasks), timeout=DRAW_SECONDS, return_when="FIRST_COMPLETED")
            for task in done:
                task.result()  # a task that follows a node ends only by an error of ours
    finally:
        for task in (stopping, *tasks):
            task.cancel()
        await asyncio.gather(stopping, *tasks, return_exceptions=True)


class _Follower:
    """Asks one node again and again."""

    def __init__(self, cluster: SeenCluster, node: SeenNode) -> None:
        self._cluster = cluster
        self._node = node
        self._clients: dict[str, AsyncClient] = {}
        self._urls_due = 0.0

    async def run(self, interval_s: float) -> None:
        async with contextlib.AsyncExitStack() as self._stack:
            while True:
                began = time.monotonic()
                if self._node.url is not None:
                    await self._ask(self._node.url)
                await asyncio.sleep(max(began + interval_s - time.monotonic(), 0.0))

    async def _ask(self, url: str) -> None:
        """Asks at this URL, and then wherever else the node may be."""
        problems = []
        for one in (url, *self._node.elsewhere):
            try:
                async with asyncio.timeout(2 * ANSWER_SECONDS):  # an answer that comes byte by byte is none
                    state = await self._status(one)
            except TimeoutError:
                problems.append(f"{one} did not answer (it took too long)")
            except (CorelError, NotAStatus) as error:
                problems.append(str(error))
            else:
                if state.node == self._node.name:
                    self._node.answered(state, time.monotonic(), one)
                    await self._ask_for_urls(one, state.node)
                    return
                problems.append(f"{one} is node {state.node}")
                await self._ask_for_urls(one, state.node)
        self._node.failed("; ".join(problems))

    async def _status(self, url: str) -> NodeState:
        reply = await (await self._client(url)).send(_STATUS)
        if not reply.is_success:
            raise NotAStatus(reply.message)
        return NodeState.of(reply.json())

    async def _ask_for_urls(self, url: str, teller: str) -> None:
        if time.monotonic() < self._urls_due:
            return
        self._urls_due = time.monotonic() + URLS_SECONDS
        with contextlib.suppress(CorelError, TimeoutError):  # the next round will tell
            async with asyncio.timeout(2 * ANSWER_SECONDS):
                cluster = await (await self._client(url)).cluster()
            self._cluster.heard_urls(teller, {node.name: node.url for node in cluster.nodes})

    async def _client(self, url: str) -> AsyncClient:
        if url not in self._clients:
            client = AsyncClient(url, discover=False, retry=_ONCE, connect_seconds=ANSWER_SECONDS)
            self._clients[url] = await self._stack.enter_async_context(client)
        return self._clients[url]


# A picture


@contextlib.contextmanager
def _screen(cluster: SeenCluster) -> Iterator[Show]:
    """Draws on a screen of its own. What the terminal showed before is there again at the end."""
    from rich.console import Console
    from rich.live import Live

    from kvstore.cli.status_screen import StatusScreen

    def picture() -> StatusScreen:
        return StatusScreen(cluster, time.monotonic(), _time_of_day())

    with Live(picture(), console=Console(), screen=True, auto_refresh=False) as live:
        yield lambda: live.update(picture(), refresh=True)


# Lines


class _Lines:
    """Prints what changed since it was last called."""

    def __init__(self, cluster: SeenCluster, as_json: bool) -> None:
        self._cluster = cluster
        self._as_json = as_json
        self._printed: dict[str, str] = {}
        self._notice = ""

    def __call__(self) -> None:
        for node in self._cluster.nodes:
            summary = node.summary()
            is_known = node.url is None or node.state is not None or node.problem
            if is_known and self._printed.get(node.name) != summary:
                self._printed[node.name] = summary
                self._print_change(node, summary)
        notice = self._cluster.notice(time.monotonic())
        headline = "" if notice is None else notice.headline
        if headline != self._notice and not self._as_json:
            cleared = f"the notice is over: {self._notice}"
            print(f"{_time_of_day()} {headline or cleared}", flush=True)
        self._notice = headline

    def _print_change(self, node: SeenNode, summary: str) -> None:
        if self._as_json:
            print_json_line({"time": datetime.now().astimezone().isoformat(), **_json_of(node)})
        else:
            print(f"{_time_of_day()} {printable(summary)}", flush=True)


def _json_of(node: SeenNode) -> dict[str, Any]:
    if not node.is_answering or node.state is None:
        problem = node.problem or "its URL is not known: start nodes with --urls"
        return {"node": node.name, "url": node.url, "error": problem}
    return {**node.state.details, "url": node.url}


def _time_of_day() -> str:
    return datetime.now().strftime("%H:%M:%S")

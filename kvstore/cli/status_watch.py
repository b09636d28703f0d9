"""`corelkv status --watch`: asks every node again and again, and shows what they say until Ctrl-C.

Each node is asked on its own, so that one that does not answer holds up nobody. On a terminal the picture of
`status_screen` is redrawn; otherwise every change is one line of text, or of JSON."""

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
from kvstore.client import AsyncClient, ClientError, Request, Unreachable

ANSWER_SECONDS = 1.0
"""How long a node has for an answer. Longer tells a busy node from a dead one; shorter notices sooner."""
DRAW_SECONDS = 0.2
"""How often the picture is drawn. What it says of silent nodes changes although no answer comes."""
INTERVAL_SECONDS = 0.5
"""How often each node is asked, unless `--interval` says otherwise."""

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
    tasks = [asyncio.create_task(_follow(node, interval_s)) for node in cluster.nodes if node.url is not None]
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


async def _follow(node: SeenNode, interval_s: float) -> None:
    assert node.url is not None
    request = Request("GET", "/v1/status", answer_seconds=ANSWER_SECONDS)
    async with AsyncClient(node.url, discover=False, connect_seconds=ANSWER_SECONDS) as client:
        while True:
            began = time.monotonic()
            try:
                async with asyncio.timeout(2 * ANSWER_SECONDS):  # an answer that comes byte by byte is none
                    reply = await client.send(request)
                if reply.is_success:
                    node.answered(NodeState.of(reply.json()), time.monotonic())
                else:
                    node.failed(reply.message)
            except (ClientError, Unreachable, NotAStatus) as error:
                node.failed(str(error))
            except TimeoutError:
                node.failed(f"{node.url} did not answer (it took too long)")
            await asyncio.sleep(max(began + interval_s - time.monotonic(), 0.0))


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

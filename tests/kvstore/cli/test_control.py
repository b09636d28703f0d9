"""The supervisor's control channel, with small scripts in place of the nodes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from kvstore.cli.control import ControlServer
from tests.kvstore.cli.test_cluster import SLEEPER, Watch, plan


async def ask(path: Path, line: bytes) -> Any:
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(line)
    answer = await reader.readline()
    writer.close()
    return json.loads(answer) if answer else None


async def said(watch: Watch, what: str, times: int) -> None:
    await watch.until(lambda: watch.text.count(what) == times)


def request(action: str, node: str = "a") -> bytes:
    return json.dumps({"node": node, "action": action}).encode() + b"\n"


def supervised(tmp_path: Path, story: Callable[[Watch, Path], Awaitable[None]], restart: bool = True) -> Watch:
    """Runs a story with a supervisor of two nodes and its control channel."""

    async def scenario() -> Watch:
        watch = Watch(plan("a", SLEEPER), plan("b", SLEEPER), restart=restart)
        running = asyncio.create_task(watch.supervisor.run())
        async with ControlServer(watch.supervisor, tmp_path / "control"):
            await watch.until(lambda: watch.text.count("ready") == 2)
            await story(watch, tmp_path / "control")
            watch.supervisor.interrupt()
            assert await running == 0
        return watch

    return asyncio.run(scenario())


def test_a_node_that_was_killed_by_request_stays_down_until_it_is_started(tmp_path: Path) -> None:
    async def story(watch: Watch, control: Path) -> None:
        assert await ask(control, request("kill")) == {"running": False}
        await watch.until(lambda: "killing node a" in watch.text)
        await asyncio.sleep(0.1)  # ten times the pause before a node that died is started again
        assert watch.text.count("ready") == 2
        assert await ask(control, request("start")) == {"running": True}
        await watch.until(lambda: watch.text.count("ready") == 3)

    watch = supervised(tmp_path, story)
    assert "giving it up" not in watch.text


def test_kills_by_request_do_not_count_as_deaths(tmp_path: Path) -> None:
    async def story(watch: Watch, control: Path) -> None:
        for times in range(1, 6):
            await ask(control, request("kill"))
            await said(watch, "killing node a", times)
            await ask(control, request("start"))
            await said(watch, "ready", times + 2)

    assert "giving it up" not in supervised(tmp_path, story).text


def test_to_start_a_node_that_runs_changes_nothing(tmp_path: Path) -> None:
    async def story(watch: Watch, control: Path) -> None:
        assert await ask(control, request("start")) == {"running": True}

    assert supervised(tmp_path, story).text.count("ready") == 2


@pytest.mark.parametrize("line", [b"x\n", b"[]\n", b'{"node": 1, "action": "kill"}\n', request("stop")])
def test_requests_that_make_no_sense_change_nothing(tmp_path: Path, line: bytes) -> None:
    async def story(watch: Watch, control: Path) -> None:
        answer = await ask(control, line)
        assert answer is None or answer["error"] == "invalid_request"

    assert "killing" not in supervised(tmp_path, story).text


def test_nodes_that_nobody_knows_are_refused(tmp_path: Path) -> None:
    async def story(watch: Watch, control: Path) -> None:
        for action in ("kill", "start"):
            assert (await ask(control, request(action, "z")))["error"] == "not_watched"

    supervised(tmp_path, story)

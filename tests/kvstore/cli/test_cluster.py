"""`corelkv cluster`: its plans, its data directory and its supervisor, with small scripts in place of the
nodes."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kvstore.cli.cluster import ClusterOptions, check_ports, plan_nodes
from kvstore.cli.cluster_file import ClusterError, ClusterFile
from kvstore.cli.supervisor import Console, NodePlan, Supervisor, WaitTimes, describe_status, welcome
from tests.ports import free_port

NOWHERE = "http://127.0.0.1:9"
HASTE = WaitTimes(stop=0.3, back_off=0.01, back_off_max=0.05, window=60.0, deaths_max=3, poll=0.02, primary=0.2)

SLEEPER = "print('ready', flush=True); import time; time.sleep(60)"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + SLEEPER
NODE = """
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def log_message(self, *arguments):
        pass
print("started with", sys.argv[2:], flush=True)
HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def plan(name: str, script: str, *arguments: str, url: str = NOWHERE, first: tuple[str, ...] = ()) -> NodePlan:
    return NodePlan(name, url, (sys.executable, "-S", "-c", script, *arguments), first)


class Watch:
    """A supervisor with short waits, and what it prints."""

    def __init__(self, *plans: NodePlan, restart: bool = True, waits: WaitTimes = HASTE) -> None:
        self.output = io.StringIO()
        self.ready: list[str] = []
        console = Console(self.output, [plan.name for plan in plans])
        self.supervisor = Supervisor(plans, console, restart, self.ready.append, waits)

    @property
    def text(self) -> str:
        return self.output.getvalue()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20.0):
            while not condition():
                await asyncio.sleep(0.005)

    async def until_says(self, words: str) -> None:
        await self.until(lambda: words in self.text)

    async def run_until_says(self, words: str) -> int:
        running = asyncio.create_task(self.supervisor.run())
        await self.until_says(words)
        self.supervisor.interrupt()
        return await running


def test_lines_have_the_name_of_their_node() -> None:
    async def scenario() -> None:
        script = "import sys; print('one'); print('two', file=sys.stderr); print('end', end='')"
        watch = Watch(plan("a", script), plan("b", SLEEPER), restart=False)
        assert await watch.run_until_says("b | ready\n") == 0
        await watch.until_says("a | end\n")
        assert {"a | one", "a | two", "a | end", "b | ready"} <= set(watch.text.splitlines())

    asyncio.run(scenario())


def test_a_line_without_end_is_cut() -> None:
    async def scenario() -> None:
        watch = Watch(plan("a", "print('x' * 200_000)"), restart=False)
        assert await watch.supervisor.run() == 1
        shown = [line for line in watch.text.splitlines() if line.startswith("a | ")]
        assert len(shown) > 1
        assert sum(line.count("x") for line in shown) == 200_000

    asyncio.run(scenario())


def test_a_node_that_dies_is_started_again_and_given_up_when_it_dies_too_often() -> None:
    async def scenario() -> None:
        watch = Watch(plan("a", "import sys; print('life'); sys.exit(3)"), plan("b", SLEEPER))
        assert await watch.run_until_says("giving it up") == 0
        assert watch.text.count("a | life") == 3
        assert "node a ended with status 3; starting it again in 0.01 s" in watch.text
        assert "node a ended with status 3; starting it again in 0.02 s" in watch.text
        assert "node a ended with status 3, and died 3 times within 60 s" in watch.text
        assert watch.text.count("b | ready") == 1

    asyncio.run(scenario())


def test_when_no_node_is_left_it_ends_with_1() -> None:
    async def scenario() -> None:
        watch = Watch(plan("a", "raise SystemExit(7)"))
        assert await watch.supervisor.run() == 1
        assert watch.text.endswith("corelkv: no node is left\n")

    asyncio.run(scenario())


def test_without_restart_a_node_stays_dead() -> None:
    async def scenario() -> None:
        watch = Watch(plan("a", "import os; os.kill(os.getpid(), 9)"), plan("b", SLEEPER), restart=False)
        assert await watch.run_until_says("not started again (--no-restart)") == 0
        assert "node a was killed by SIGKILL, and is not" in watch.text

    asyncio.run(scenario())


def test_nodes_are_asked_to_stop() -> None:
    async def scenario() -> None:
        script = (
            "import signal, sys, time\n"
            "def bye(*_):\n    print('bye', flush=True)\n    sys.exit(0)\n"
            "signal.signal(signal.SIGTERM, bye)\nprint('ready', flush=True)\ntime.sleep(60)"
        )
        watch = Watch(plan("a", script))
        assert await watch.run_until_says("a | ready") == 0
        assert watch.text.splitlines()[-3:] == [
            "corelkv: stopping all nodes",
            "a | bye",
            "corelkv: all nodes have stopped",
        ]

    asyncio.run(scenario())


def test_who_does_not_stop_is_killed() -> None:
    async def scenario() -> None:
        watch = Watch(plan("a", STUBBORN))
        assert await watch.run_until_says("a | ready") == 0

    asyncio.run(scenario())


def test_a_second_interrupt_kills_at_once() -> None:
    async def scenario() -> None:
        watch = Watch(plan("a", STUBBORN), waits=WaitTimes(stop=60.0))
        running = asyncio.create_task(watch.supervisor.run())
        await watch.until_says("a | ready")
        watch.supervisor.interrupt()
        await watch.until_says("stopping all nodes")
        watch.supervisor.interrupt()
        assert await asyncio.wait_for(running, 10.0) == 0

    asyncio.run(scenario())


def test_an_interrupt_before_anything_has_started_ends_all() -> None:
    async def scenario() -> None:
        watch = Watch(plan("a", SLEEPER), plan("b", SLEEPER))
        running = asyncio.create_task(watch.supervisor.run())
        await asyncio.sleep(0)
        watch.supervisor.interrupt()
        assert await asyncio.wait_for(running, 10.0) == 0

    asyncio.run(scenario())


def test_an_interrupt_does_not_wait_for_a_node_that_waits_to_be_started_again() -> None:
    async def scenario() -> None:
        watch = Watch(plan("a", "raise SystemExit(1)"), waits=WaitTimes(back_off=60.0, back_off_max=60.0))
        assert await asyncio.wait_for(watch.run_until_says("starting it again"), 10.0) == 0

    asyncio.run(scenario())


def test_when_all_answer_it_says_what_to_do_and_bootstraps_never_again() -> None:
    async def scenario() -> None:
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        watch = Watch(plan("a", NODE, str(port), url=url, first=("--bootstrap",)))
        running = asyncio.create_task(watch.supervisor.run())
        await watch.until_says("Ctrl-C stops all nodes.")
        assert watch.ready == ["a"]
        assert "started with ['--bootstrap']" in watch.text
        row = next(line.split() for line in watch.text.splitlines() if line.startswith("  a "))
        assert row[:2] == ["a", url]
        os.kill(int(row[2]), signal.SIGKILL)
        await watch.until_says("a | started with []")
        watch.supervisor.interrupt()
        assert await running == 0

    asyncio.run(scenario())


def test_the_welcome_counts_only_nodes_that_live() -> None:
    async def scenario() -> None:
        port = free_port()
        alive = plan("a", NODE, str(port), url=f"http://127.0.0.1:{port}")
        watch = Watch(alive, plan("b", "raise SystemExit(1)"))
        assert await watch.run_until_says("Ctrl-C stops all nodes.") == 0
        assert "1 of 2 nodes are up" in watch.text

    asyncio.run(scenario())


def test_commands_in_the_welcome_name_the_first_node_unless_it_is_the_default() -> None:
    plans = [NodePlan(name, f"http://127.0.0.1:{port}", ()) for name, port in (("a", 9001), ("b", 9002))]
    text = welcome(plans, {"a": 1, "b": None})
    assert "PUT http://127.0.0.1:9001/v1/kv/greeting" in text
    assert "partition --url http://127.0.0.1:9001 'a|b'" in text
    assert text.splitlines()[3].split() == ["b", "http://127.0.0.1:9002", "-"]


def test_nobody_reading_is_an_interrupt() -> None:
    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    async def scenario() -> None:
        supervisor = Supervisor([plan("a", SLEEPER)], Console(Closed(), ["a"]), waits=HASTE)
        assert await asyncio.wait_for(supervisor.run(), 10.0) == 0

    asyncio.run(scenario())


@pytest.mark.parametrize(("is_terminal", "line"), [(True, "\x1b[36ma |\x1b[0m x\n"), (False, "a | x\n")])
def test_names_are_coloured_on_a_terminal_only(
    is_terminal: bool, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    output = io.StringIO()
    monkeypatch.setattr(output, "isatty", lambda: is_terminal)
    Console(output, ["a"]).relay("a", "x")
    assert output.getvalue() == line


def test_statuses_are_described() -> None:
    assert describe_status(3) == "ended with status 3"
    assert describe_status(-signal.SIGSEGV) == "was killed by SIGSEGV"
    assert describe_status(-4_000) == "ended with status -4000"


# The data directory


def test_a_directory_keeps_its_cluster(tmp_path: Path) -> None:
    data = tmp_path / "new"
    made = ClusterFile.open(data, 5)
    assert made.nodes == 5
    assert ClusterFile.open(data, 5) == ClusterFile.open(data, None) == made
    assert ClusterFile.open(tmp_path / "other", None).cluster != made.cluster


@pytest.mark.parametrize(
    ("content", "nodes", "sentence"),
    [
        (json.dumps({"cluster": "x", "nodes": 3, "bootstrapped": []}), 5, "is a cluster of 3 nodes, not of 5"),
        ("{", None, r"cannot read .*cluster\.json"),
        ("[]", None, r"cannot read .*cluster\.json"),
        (None, None, "is not empty, and has no cluster"),
    ],
)
def test_a_directory_that_cannot_be_used_is_explained(
    content: str | None, nodes: int | None, sentence: str, tmp_path: Path
) -> None:
    (tmp_path / "something").touch()
    if content is not None:
        (tmp_path / "cluster.json").write_text(content)
    with pytest.raises(ClusterError, match=sentence):
        ClusterFile.open(tmp_path, nodes)


def test_only_nodes_never_seen_ready_are_bootstrapped(tmp_path: Path) -> None:
    file = ClusterFile("dev-x", 3, frozenset("ab"))
    plans = plan_nodes(ClusterOptions(http_port=9001, port=7500, chaos=False), file, tmp_path)
    assert [plan.first for plan in plans] == [(), (), ("--bootstrap",)]
    command = " ".join(plans[1].command)
    for flags in (
        "serve --node b --http 127.0.0.1:9002",
        f"--data {tmp_path}/b",
        "--roster a,b,c --cluster dev-x --broadcast 127.255.255.255:7500",
        "--urls a=http://127.0.0.1:9001,b=http://127.0.0.1:9002,c=http://127.0.0.1:9003",
        "--no-chaos",
    ):
        assert flags in command


def test_a_port_that_is_taken_is_named_with_the_flag_to_change_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ClusterError, match=rf"port {port}, for node a's HTTP, .*--http-port"):
            check_ports(port, 1)


def test_ports_beyond_the_last_are_refused() -> None:
    with pytest.raises(ClusterError, match="choose a lower --http-port"):
        check_ports(65_535, 2)

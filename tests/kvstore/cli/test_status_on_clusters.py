"""`corelkv status --watch` on real nodes, in a terminal and in a pipe, through a partition and a death."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvstore.cli.main import main
from tests.api.cluster import Cluster, Node, eventually
from tests.kvstore.cli.terminal import Terminal, plain
from tests.ports import free_port, free_ports

NOTICE = "IS NOT IN A PRIMARY COMPONENT"
ALTERNATE, ALTERNATE_END, CURSOR_SHOWN = b"\x1b[?1049h", b"\x1b[?1049l", b"\x1b[?25h"


@pytest.fixture(scope="module")
def _started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    flags = ("--set", "membership.back_off_ms=100", "--set", "membership.back_off_ms_max=200")
    with Cluster("abc", tmp_path_factory.mktemp("status"), flags) as cluster:
        tell_urls(cluster)
        yield cluster.start()


@pytest.fixture
def three(_started: Cluster) -> Iterator[Cluster]:
    _started.revive()
    _started.heal()
    yield _started
    _started.revive()
    _started.heal()


def tell_urls(cluster: Cluster, **ports: int) -> None:
    """Gives nodes other ports, and lets all nodes tell everybody's URL, from their next start on."""
    for name, port in ports.items():
        cluster[name].port = port
    urls = ",".join(f"{node.name}={node.url}" for node in cluster)
    for node in cluster:
        node._flags = (*node._flags, "--http", node.url.removeprefix("http://"), "--urls", urls)


def watch(cluster: Cluster, name: str = "a") -> list[str]:
    return ["status", "--watch", "--interval", "0.1", "--url", cluster[name].url]


def test_the_screen_shows_a_minority_and_its_way_back_and_is_left_clean(three: Cluster) -> None:
    with Terminal(watch(three)) as terminal:
        healthy = terminal.until("3 of 3 nodes answer", "a   PRIMARY", "b   PRIMARY", "c   PRIMARY")
        assert NOTICE not in healthy
        three.partition("a|bc")
        assert three["a"].put("k", "v").status == 202
        cut = terminal.until(f"NODE a {NOTICE}", "a   NON PRIMARY", "b   PRIMARY", "red 1", "░")
        assert max(len(line) for line in cut.splitlines()) <= 80
        assert b"\x1b[" in terminal.output
        three.heal()
        assert NOTICE not in terminal.until("a   PRIMARY", "view", "of a,b,c", "red 0")
        assert terminal.end() == 0
    last = terminal.output.rpartition(ALTERNATE)[2]
    assert ALTERNATE_END in last
    assert CURSOR_SHOWN in last
    assert plain(last.rpartition(ALTERNATE_END)[2]).strip() == ""


def test_a_node_that_dies_is_silent_and_comes_back(three: Cluster) -> None:
    with Terminal(watch(three), columns=120, environment={"NO_COLOR": "1"}) as terminal:
        terminal.until("3 of 3 nodes answer")
        three["c"].kill()
        terminal.until("2 of 3 nodes answer", "c   NO ANSWER for ", "Connection refused", "a   PRIMARY")
        three["a"].kill()
        terminal.until("NODE a DOES NOT ANSWER", "b   NON PRIMARY")
        three.revive()
        terminal.until("3 of 3 nodes answer", "a   PRIMARY", "c   PRIMARY")
        assert b"\x1b[31m" not in terminal.output
        assert terminal.end(signal.SIGTERM) == 0


def test_in_a_pipe_every_change_is_a_line(three: Cluster) -> None:
    command = [sys.executable, "-m", "kvstore", *watch(three)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            assert process.stdout is not None
            first = [process.stdout.readline() for _ in range(3)]
            assert sorted(line.split()[1] for line in first) == ["a:", "b:", "c:"]
            three.partition("a|bc")
            lines = iter(process.stdout)
            assert any(f"NODE a {NOTICE}" in line for line in lines)
            process.send_signal(signal.SIGINT)
            rest, problems = process.communicate(timeout=20)
            assert (process.returncode, problems) == (0, "")
            assert "\x1b" not in "".join(first) + rest
        finally:
            process.kill()


def test_changes_for_programs_are_an_object_per_line(three: Cluster) -> None:
    command = [sys.executable, "-m", "kvstore", *watch(three), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            found = [json.loads(process.stdout.readline()) for _ in range(3)]
            assert sorted(one["node"] for one in found) == ["a", "b", "c"]
            assert {(one["state"], one["url"].partition("//")[0]) for one in found} == {("primary", "http:")}
            three["b"].kill()
            gone = next(one for line in process.stdout if "error" in (one := json.loads(line)))
            assert gone["node"] == "b"
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=20)
            assert process.returncode == 0
        finally:
            process.kill()


def test_a_dumb_terminal_gets_lines(three: Cluster) -> None:
    with Terminal(watch(three), environment={"TERM": "dumb"}) as terminal:
        while terminal.output.count(b"\n") < 3:
            assert terminal.read()
        assert b"\x1b" not in terminal.output
        assert terminal.end() == 0


def test_nobody_to_ask_is_6_and_an_interval_needs_a_watch(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--watch", "--url", "http://127.0.0.1:9"]) == 6
    assert main(["status", "--interval", "2", "--url", "http://127.0.0.1:9"]) == 2
    assert "add --watch" in capsys.readouterr().err


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster("ab", tmp_path) as cluster:
        tell_urls(cluster)
        yield cluster.start()


def restart(*nodes: Node) -> None:
    for node in nodes:
        node.kill()
    for node in nodes:
        node.start()


def test_a_node_that_comes_back_at_another_address_is_found_when_a_node_tells_it(two: Cluster) -> None:
    with Terminal(watch(two)) as terminal:
        terminal.until("2 of 2 nodes answer")
        tell_urls(two, b=free_port())
        restart(two["b"])
        two["b"].await_ready("")
        terminal.until("1 of 2 nodes answer", "b   NO ANSWER")
        restart(two["a"])
        terminal.until("2 of 2 nodes answer", "a   PRIMARY", "b   PRIMARY")
        assert terminal.end() == 0


def test_nodes_that_exchange_their_addresses_are_told_apart(two: Cluster) -> None:
    with Terminal(watch(two), columns=120) as terminal:
        terminal.until("2 of 2 nodes answer", f"asked: a at {two['a'].url}")
        tell_urls(two, a=two["b"].port, b=two["a"].port)
        restart(two["a"], two["b"])
        terminal.until("2 of 2 nodes answer", f"asked: a at {two['a'].url}", "a   PRIMARY", "b   PRIMARY")
        assert terminal.end() == 0


# Tables and progress on a terminal


def test_tables_are_drawn_on_a_terminal_and_control_characters_are_not(three: Cluster) -> None:
    three["a"].put("evil/\x1b[31m", "one\ntwo")
    url = ["--url", three["a"].url]
    for arguments, words in (
        (["list", "evil/"], ["key", "revision", "value", "evil/\\x1b[31m", "one\\ntwo"]),
        (["history", "evil/\x1b[31m"], ["what", "write", "put"]),
        (["log", "--limit", "1000"], ["position", "operations", "what follows: corelkv log"]),
        (["status"], ["node", "state", "primary", "a,b,c"]),
    ):
        with Terminal([*arguments, *url], columns=140) as terminal:
            assert terminal.end(None) == 0
            shown = plain(terminal.output)
        assert [word for word in words if word not in shown] == []
        assert b"\x1b[31mone" not in terminal.output


def test_waiting_for_a_heal_is_shown_and_taken_away(three: Cluster) -> None:
    three.partition("a|bc")
    with Terminal(["heal", "--url", three["a"].url]) as terminal:
        assert terminal.end(None) == 0
    assert "nodes that have noticed" in plain(terminal.output)
    assert "mended: a,b,c; every node has noticed" in plain(terminal.output)
    assert terminal.output.rpartition(CURSOR_SHOWN)[1] == CURSOR_SHOWN


def test_a_list_that_goes_to_a_file_shows_progress_and_the_file_has_only_the_list(
    three: Cluster, tmp_path: Path
) -> None:
    operations = [{"put": {"key": f"many/{number:04}", "value": "v"}} for number in range(300)]
    assert three["a"].txn({"then": operations}).status == 200
    command = ["list", "many/", "--url", three["a"].url]
    with open(tmp_path / "list", "wb") as file, Terminal(command, stdout=file) as terminal:
        assert terminal.end(None) == 0
    assert (tmp_path / "list").read_text().splitlines() == [f"many/{number:04}\tv" for number in range(300)]
    assert "/300" in plain(terminal.output)


def test_the_start_of_a_cluster_is_shown_below_what_its_nodes_say(broadcast_port: int) -> None:
    arguments = ["cluster", "--nodes", "2", "--http-port", str(free_ports(2)), "--port", str(broadcast_port)]
    with Terminal(arguments, columns=160) as terminal:
        while b"Ctrl-C stops all nodes." not in terminal.output:
            assert terminal.read()
        assert terminal.end() == 0
    shown = plain(terminal.output)
    assert "nodes that are up" in shown
    assert "node b." in shown
    assert shown.rstrip().endswith("corelkv: all nodes have stopped")


def test_verifying_shows_progress_and_then_what_it_found(three: Cluster) -> None:
    operations = [{"put": {"key": f"records/{number:04}", "value": "v"}} for number in range(1_500)]
    assert three["a"].txn({"then": operations}).status == 200
    eventually(lambda: verified(three["a"].data) > 1_500)
    with Terminal(["verify", str(three["a"].data)]) as terminal:
        assert terminal.end(None) == 0
    assert re.search(r"records .*\d/\d{4} ", plain(terminal.output))
    assert b"is whole: " in terminal.output.rpartition(CURSOR_SHOWN)[2]


def verified(directory: Path) -> int:
    printed = subprocess.run(
        [sys.executable, "-m", "kvstore", "verify", str(directory)], capture_output=True, text=True, check=True
    )
    assert printed.stderr == ""
    return int(printed.stdout.rpartition(":")[2].split()[0].replace(",", ""))


def test_commands_that_draw_nothing_do_not_import_what_draws() -> None:
    code = "import sys; from kvstore.cli import main; main(['put', 'k', 'v', '--url', 'http://127.0.0.1:9']);"
    check = f"{code} sys.exit('rich' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], capture_output=True, check=False).returncode == 0

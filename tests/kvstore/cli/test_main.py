"""The `corelkv` command as a user runs it, against nodes with scripted answers and against real ones."""

from __future__ import annotations

import io
import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from kvstore.cli.commands import check_sides
from kvstore.cli.main import main
from kvstore.cli.output import UsageError
from tests.ports import free_port, free_ports

GREEN = {"id": "a.1.2.0", "color": "green", "revision": 7, "outcome": "applied"}
RED = {"id": "a.1.2.0", "color": "red", "outcome": "pending"}
REFUSED = {"error": "condition_failed", "message": "It does not hold.", **GREEN, "outcome": "rejected"}
STATUS = {
    "node": "a",
    "state": "non_primary",
    "view": {"id": "7.a.1", "members": ["a", "b"]},
    "green": {"line": 4, "revision": 3},
    "yellow": {"line": 5},
    "red": 2,
}
ENTRY = {
    "position": 0,
    "id": "a.1.2",
    "color": "red",
    "timestamp": 5,
    "sender": "a",
    "view": "7.a.1",
    "operations": [{"write": "a.1.2.0", "put": {"key": "k", "bytes": 1}}] * 6,
}


@dataclass
class Node:
    """A node with scripted answers, which records the requests."""

    url: str
    answers: dict[str, tuple[int, object]] = field(default_factory=dict)
    """Answers by method and path. Bytes are sent as they are, everything else as JSON."""
    asked: list[tuple[str, str, dict[str, str], bytes]] = field(default_factory=list)

    def answer(self, what: str, status: int, content: object) -> None:
        self.answers[what] = status, content


@contextmanager
def running_node() -> Iterator[Node]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            answering.asked.append((self.command, self.path, headers, body))
            no = {"error": "no", "message": "There is no such thing."}
            status, content = answering.answers.get(f"{self.command} {self.path.partition('?')[0]}", (404, no))
            self.send_response(status)
            self.send_header("Corel-Color", "green")
            self.send_header("Corel-Revision", "7")
            self.end_headers()
            self.wfile.write(content if isinstance(content, bytes) else json.dumps(content).encode())

        do_PUT = do_DELETE = do_GET

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        answering = Node(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield answering
        server.shutdown()
        thread.join()


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    with running_node() as started:
        monkeypatch.setenv("CORELKV_URL", started.url)
        yield started


# Keys


def test_put_sends_everything_it_is_told(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    node.answer("PUT /v1/kv/a%2Fb", 200, GREEN)
    flags = "--ack green --timeout-ms 100 --if-match 17 --idempotency-key once --content-type x/y"
    assert main(["put", "a/b", "hellö", *flags.split()]) == 0
    [(_, path, headers, body)] = node.asked
    assert path == "/v1/kv/a%2Fb?ack=green&timeout_ms=100"
    assert (headers["if-match"], headers["idempotency-key"], headers["content-type"]) == ('"17"', "once", "x/y")
    assert body == "hellö".encode()
    assert capsys.readouterr().out == "green, applied at revision 7 (write a.1.2.0)\n"


@pytest.mark.parametrize(
    ("status", "content", "code", "words"),
    [
        (200, GREEN, 0, "green, applied at revision 7"),
        (200, {**GREEN, "outcome": "duplicate", "duplicate_of": "b.1.1.0"}, 0, "green, duplicate of b.1.1.0"),
        (202, RED, 3, "red, accepted (write a.1.2.0); to wait until it is final: corelkv write --wait a.1.2.0"),
        (412, REFUSED, 4, "corelkv: It does not hold.\n"),
        (503, {"error": "no_primary", "message": "Nothing was accepted."}, 1, "corelkv: Nothing was accepted.\n"),
    ],
)
def test_statuses_tell_scripts_what_a_write_is_worth(
    status: int, content: object, code: int, words: str, node: Node, capsys: pytest.CaptureFixture[str]
) -> None:
    node.answer("PUT /v1/kv/k", status, content)
    node.answer("DELETE /v1/kv/k", status, content)
    for arguments in (["put", "k", "v"], ["delete", "k"]):
        assert main(arguments) == code
        printed = capsys.readouterr()
        assert words in printed.out + printed.err
        assert main([*arguments, "--json"]) == code
        assert json.loads(capsys.readouterr().out) == content


def test_a_value_comes_from_a_file_or_stdin(node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node.answer("PUT /v1/kv/k", 200, GREEN)
    (tmp_path / "page.html").write_bytes(b"\xff<p>")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"from \x00 stdin")))
    assert main(["put", "k", "--file", str(tmp_path / "page.html")]) == 0
    assert main(["put", "k", "-"]) == 0
    bodies = [(headers["content-type"], body) for _, _, headers, body in node.asked]
    assert bodies == [("text/html", b"\xff<p>"), ("application/octet-stream", b"from \x00 stdin")]


@pytest.mark.parametrize("arguments", [["k"], ["k", "v", "--file", "f"], ["k", "--file", "/nowhere/at/all"]])
def test_no_value_or_two_is_a_wrong_use(arguments: list[str], node: Node) -> None:
    assert main(["put", *arguments]) == 2
    assert node.asked == []


def test_get_writes_the_bytes(node: Node, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    node.answer("GET /v1/kv/k", 200, b"\xff\x00")
    assert main(["get", "k", "--read", "linearizable", "--min-revision", "5"]) == 0
    assert capfdbinary.readouterr().out == b"\xff\x00"
    assert node.asked[0][1] == "/v1/kv/k?read=linearizable&min_revision=5"
    assert main(["get", "k", "--output", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out").read_bytes() == b"\xff\x00"
    assert main(["get", "k", "--json"]) == 0
    shown = json.loads(capfdbinary.readouterr().out)
    assert (shown["key"], shown["revision"], shown["color"]) == ("k", 7, "green")
    assert shown["value"] == {"base64": "/wA="}


def test_a_key_that_is_not_there_is_5(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["get", "nothing"]) == 5
    assert capsys.readouterr() == ("", "corelkv: There is no such thing.\n")


def test_a_node_that_is_not_there_is_6(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    assert main(["get", "k", "--url", url]) == 6
    assert f"corelkv: cannot reach {url}" in capsys.readouterr().err


def test_urls_are_repeated_or_separated_by_commas(node: Node) -> None:
    node.answer("GET /v1/kv/k", 200, b"")
    assert main(["get", "k", "--url", f"http://127.0.0.1:9,{node.url}"]) == 0
    assert main(["get", "k", "--url", "http://127.0.0.1:9", "--url", node.url]) == 0


# Inspection


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (GREEN, 0),
        (RED, 3),
        ({**GREEN, "outcome": "rejected", "reason": "condition_failed"}, 4),
        ({**GREEN, "outcome": "expired"}, 1),
        ({**GREEN, "outcome": "duplicate", "duplicate_outcome": "applied"}, 0),
        ({**GREEN, "outcome": "duplicate", "duplicate_outcome": "rejected", "reason": "not_a_number"}, 4),
        ({**GREEN, "outcome": "duplicate", "duplicate_outcome": "yielded"}, 4),
    ],
)
def test_write_tells_what_became_of_it(content: object, code: int, node: Node) -> None:
    node.answer("GET /v1/writes/a.1.2.0", 200, content)
    assert main(["write", "--wait", "--timeout-ms", "10", "a.1.2.0"]) == code
    assert node.asked[0][1] == "/v1/writes/a.1.2.0?wait=green&timeout_ms=10"


def test_an_unknown_write_is_5(node: Node) -> None:
    assert main(["write", "z.1.1.0"]) == 5


def test_status_shows_every_node(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    others = [{"name": "b", "url": "http://127.0.0.1:9"}, {"name": "c", "url": None}]
    node.answer("GET /v1/cluster", 200, {"nodes": [{"name": "a", "url": node.url}, *others]})
    node.answer("GET /v1/status", 200, STATUS)
    assert main(["status"]) == 0
    _, first, second, third = (line.split() for line in capsys.readouterr().out.splitlines())
    assert first == ["a", "non", "primary", "a,b", "4", "5", "2", "3", node.url]
    assert second == ["b", "unreachable", "http://127.0.0.1:9"]
    assert third[:3] == ["c", "unreachable", "unknown"]
    assert main(["status", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown[0] == {**STATUS, "url": node.url}
    assert [sorted(status) for status in shown[1:]] == [["error", "node", "url"]] * 2


def test_status_shows_what_needs_attention(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    node.answer("GET /v1/cluster", 200, {"nodes": [{"name": "a", "url": node.url}]})
    node.answer("GET /v1/status", 200, {**STATUS, "warnings": ["The file system is 81 % full. Make room."]})
    assert main(["status"]) == 0
    assert capsys.readouterr().out.splitlines()[2:] == ["a: The file system is 81 % full. Make room."]


def test_log_says_where_to_begin_if_what_was_asked_for_is_gone(
    node: Node, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = {"error": "compacted", "message": "The log is kept from position 7 on.", "first": 7}
    node.answer("GET /v1/log", 410, gone)
    assert main(["log", "--from", "3"]) == 1
    assert capsys.readouterr().err.splitlines() == [
        "corelkv: The log is kept from position 7 on.",
        "corelkv: what is kept: corelkv log --from 7",
    ]
    assert main(["log", "--from", "3", "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == gone
    node.answer("GET /v1/log", 200, {"entries": [ENTRY], "next": 1})
    assert main(["log"]) == 0
    assert node.asked[-1][1] == "/v1/log", "from the first that is kept"


def test_log_shows_messages_in_order(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    node.answer("GET /v1/log", 200, {"entries": [ENTRY], "next": 1})
    assert main(["log", "--from", "0", "--limit", "1"]) == 0
    assert node.asked[0][1] == "/v1/log?limit=1&from=0"
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split(maxsplit=3) == ["0", "red", "a.1.2", "put k, put k, put k, put k and 2 more"]
    assert lines[-1] == "what follows: corelkv log --from 1"
    node.answer("GET /v1/log", 200, {"entries": [], "next": 1})
    assert main(["log", "--from", "5"]) == 0
    assert capsys.readouterr().out == "there is nothing from position 1 on\n"


def test_something_else_than_a_node_is_explained(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    node.answer("GET /v1/cluster", 200, b"<html>")
    assert main(["status"]) == 1
    assert "is it a corelkv node?" in capsys.readouterr().err


# Chaos


@pytest.fixture
def three() -> Iterator[dict[str, Node]]:
    with running_node() as a, running_node() as b, running_node() as c:
        nodes = {"a": a, "b": b, "c": c}
        for node in nodes.values():
            content = [{"name": name, "url": other.url} for name, other in nodes.items()]
            node.answer("GET /v1/cluster", 200, {"nodes": content})
            node.answer("PUT /v1/chaos", 200, {})
            node.answer("DELETE /v1/chaos", 200, {})
        yield nodes


def test_partition_cuts_every_node_from_the_other_sides(three: dict[str, Node]) -> None:
    assert main(["partition", "a, b|c", "--no-wait", "--url", three["b"].url]) == 0
    told = {name: json.loads(node.asked[-1][3]) for name, node in three.items()}
    assert told == {
        "a": {"drop_from": ["c"], "drop_to": ["c"]},
        "b": {"drop_from": ["c"], "drop_to": ["c"]},
        "c": {"drop_from": ["a", "b"], "drop_to": ["a", "b"]},
    }
    assert main(["heal", "--no-wait", "--url", three["b"].url]) == 0
    assert [node.asked[-1][:2] for node in three.values()] == [("DELETE", "/v1/chaos")] * 3


def test_a_node_that_refuses_is_named_and_the_others_are_told(
    three: dict[str, Node], capsys: pytest.CaptureFixture[str]
) -> None:
    three["a"].answer("PUT /v1/chaos", 404, {"error": "chaos_disabled", "message": "Started without --chaos."})
    assert main(["partition", "a|b,c", "--url", three["a"].url]) == 1
    assert capsys.readouterr() == ("", "corelkv: node a: Started without --chaos.\n")
    assert three["c"].asked[-1][0] == "PUT"


@pytest.mark.parametrize(
    ("sides", "sentence"),
    [
        ([["a"], ["b"]], "every node is on some side, and c is not"),
        ([["a", "b", "c"]], "at least two sides"),
        ([["a", "b"], ["b", "c"]], "b is named twice"),
        ([["a", "b"], ["c", "d"]], "there is no node d; there are a, b, c"),
    ],
)
def test_every_node_is_on_one_side(sides: list[list[str]], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        check_sides(sides, ["a", "b", "c"])


# As processes


def run(arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kvstore", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


@contextmanager
def started(arguments: Sequence[str], until: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "kvstore", *arguments]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=subprocess.STDOUT, text=True) as process:
        try:
            assert process.stdout is not None
            assert any(until in line for line in process.stdout), f"it ended without saying {until!r}"
            yield process
        finally:
            process.terminate()


def test_a_cluster_from_its_start_through_a_partition_to_its_end(
    broadcast_port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    first = free_ports(3)
    a, b = (["--url", f"http://127.0.0.1:{first + index}"] for index in range(2))
    arguments = ["cluster", "--http-port", str(first), "--port", str(broadcast_port)]
    with started(arguments, "Ctrl-C stops all nodes.") as cluster:
        assert main(["put", "greeting", "hello", *a]) == 0
        assert main(["get", "greeting", "--read", "linearizable", *b]) == 0
        assert capsys.readouterr().out.endswith("hello")
        assert main(["partition", "a|b,c", *b]) == 0
        assert any(main(["put", "greeting", "ciao", *a, "--json"]) == 3 for _ in range(100))
        write_id = json.loads(capsys.readouterr().out.splitlines()[-1])["id"]
        assert main(["heal", *b]) == 0
        assert main(["write", "--wait", "--timeout-ms", "20000", write_id, *a]) == 0
        cluster.send_signal(signal.SIGINT)
        rest, _ = cluster.communicate(timeout=20)
        assert cluster.returncode == 0, rest
        assert rest.endswith("corelkv: all nodes have stopped\n")


def test_a_node_started_again_is_another_incarnation(tmp_path: Path, broadcast_port: int) -> None:
    (tmp_path / "incarnation").write_text("9000000000003\n")
    arguments = ["serve", "--node", "a", "--roster", "a", "--data", str(tmp_path)]
    arguments += ["--broadcast", f"127.255.255.255:{broadcast_port}", "--http", f"127.0.0.1:{free_port()}"]
    with started(arguments, "node a.9000000000004 is up") as process:
        process.terminate()
        rest, _ = process.communicate(timeout=20)
        assert process.returncode == 0, rest
        assert "node a has stopped" in rest


def test_a_log_for_programs_is_an_object_per_line(tmp_path: Path, broadcast_port: int) -> None:
    arguments = ["serve", "--node", "a", "--roster", "a", "--data", str(tmp_path), "--log-format", "json"]
    arguments += ["--broadcast", f"127.255.255.255:{broadcast_port}", "--http", f"127.0.0.1:{free_port()}"]
    with started(arguments, "is up") as process:
        process.terminate()
        rest, _ = process.communicate(timeout=20)
        lines = [json.loads(line) for line in rest.splitlines()]
        assert lines[-1]["message"] == "node a has stopped"
        assert {line["node"] for line in lines} == {"a"}


def test_a_node_that_cannot_start_says_why(tmp_path: Path) -> None:
    (tmp_path / "clock").write_text("12")
    arguments = ["serve", "--node", "a", "--roster", "a", "--data", str(tmp_path)]
    result = run([*arguments, "--http", f"127.0.0.1:{free_port()}"])
    assert result.returncode == 1
    assert "node a cannot start: " in result.stderr
    assert "clock is damaged" in result.stderr
    assert "Traceback" not in result.stderr


SABOTAGE = """
import asyncio, sys
from kvstore.cli import main
from kvstore.node.driver import Driver
start = Driver.start
def sabotaged(self, store):
    start(self, store)
    asyncio.get_running_loop().call_later(0.05, self.fail, RuntimeError("two messages at one place"))
Driver.start = sabotaged
sys.exit(main(sys.argv[1:]))
"""


def test_a_node_with_a_broken_invariant_ends_with_1(tmp_path: Path, broadcast_port: int) -> None:
    arguments = ["serve", "--node", "a", "--roster", "a", "--data", str(tmp_path)]
    arguments += ["--broadcast", f"127.255.255.255:{broadcast_port}", "--http", f"127.0.0.1:{free_port()}"]
    command = [sys.executable, "-c", SABOTAGE, *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert result.returncode == 1
    assert result.stderr.endswith("corelkv: node a stopped, its data intact: two messages at one place\n")


def test_a_port_that_is_taken_is_explained(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        result = run(["serve", "--node", "a", "--roster", "a", "--data", str(tmp_path), "--http", address])
    assert result.returncode == 1
    assert f"cannot serve HTTP on {address}" in result.stderr


def test_wrong_settings_are_a_wrong_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--data", str(tmp_path), "--node", "x", "--roster", "a,b"]) == 2
    assert "--node is x, which is not in the roster: a, b" in capsys.readouterr().err


def test_wrong_arguments_are_a_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["cluster", "--nodes", "27"], ["log", "--from", "x"], ["nothing"], []):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 2


def test_help_teaches() -> None:
    result = run(["--help"])
    assert result.returncode == 0
    for words in ("corelkv cluster", "corelkv partition", "exit status:", "130", "cannot be reached"):
        assert words in result.stdout

"""Scripts of the laboratory: what is one, and what `corelkv replay` does with it. `tests/console` performs a real
one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvstore.cli import main
from kvstore.cli.output import UsageError
from kvstore.cli.script import Disturb, Heal, Kill, Partition, Script, Start, Step, Workload, parse_script
from tests.api.cluster import Cluster

NODES = ["a", "b", "c"]


def text_of(*steps: object, **changes: Any) -> str:
    return json.dumps({"format": "corelkv-script", "version": 1, "nodes": NODES, "steps": steps, **changes})


def test_a_script_has_every_step_in_the_order_of_time() -> None:
    script = parse_script(
        text_of(
            {"at_ms": 4000, "do": "kill", "node": "b"},
            {"at_ms": 0, "do": "partition", "islands": [["a", "b"], ["c"]]},
            {"at_ms": 5000.5, "do": "start", "node": "b"},
            {"at_ms": 100, "do": "workload", "writes_per_s": 20, "seconds": 10, "through": ["a", "c"]},
            {"at_ms": 3000, "do": "heal"},
            {"at_ms": 2000, "do": "disturb", "nodes": ["b", "c"], "loss": 0.125, "delay_ms": 20},
        )
    )
    steps = (
        Step(0.0, Partition((("a", "b"), ("c",)))),
        Step(100.0, Workload(20.0, 10.0, ("a", "c"))),
        Step(2000.0, Disturb(("b", "c"), 0.125, 20.0)),
        Step(3000.0, Heal()),
        Step(4000.0, Kill("b")),
        Step(5000.5, Start("b")),
    )
    assert script == Script(("a", "b", "c"), steps)
    assert script.ends_at_ms == 10_100.0


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "not JSON"),
        ("[]", "not a script"),
        (text_of(format="x"), "not a script"),
        (text_of(version=2), "version 2"),
        (text_of(nodes=[]), '"nodes"'),
        (text_of(steps={}), '"steps"'),
        (text_of(1), "step 1"),
        (text_of({"at_ms": -1, "do": "heal"}), "at_ms"),
        (text_of({"at_ms": True, "do": "heal"}), "at_ms"),
        (text_of({"do": "heal"}), "at_ms"),
        (text_of({"at_ms": 0, "do": "dance"}), "'dance'"),
        (text_of({"at_ms": 0, "do": "kill", "node": "z"}), "no node 'z'"),
        (text_of({"at_ms": 0, "do": "kill"}), "names nodes"),
        (text_of({"at_ms": 0, "do": "partition", "islands": [["a", "b", "c"]]}), "two lists"),
        (text_of({"at_ms": 0, "do": "partition", "islands": [["a"], ["b"]]}), "exactly one island"),
        (text_of({"at_ms": 0, "do": "partition", "islands": [["a", "b"], ["b", "c"]]}), "exactly one island"),
        (text_of({"at_ms": 0, "do": "disturb", "nodes": [], "loss": 0, "delay_ms": 0}), "names nodes"),
        (text_of({"at_ms": 0, "do": "disturb", "nodes": ["z"], "loss": 0, "delay_ms": 0}), "no node 'z'"),
        (text_of({"at_ms": 0, "do": "disturb", "nodes": ["a"], "loss": 1.5, "delay_ms": 0}), '"loss"'),
        (text_of({"at_ms": 0, "do": "disturb", "nodes": ["a"], "loss": 0.5}), '"delay_ms"'),
        (text_of({"at_ms": 0, "do": "disturb", "nodes": ["a"], "loss": 0, "delay_ms": 60_001}), '"delay_ms"'),
        (
            text_of({"at_ms": 0, "do": "workload", "writes_per_s": 1e9, "seconds": 1, "through": ["a"]}),
            "writes_per_s",
        ),
    ],
)
def test_what_is_no_script_is_refused_with_the_reason(text: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        parse_script(text)


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of one, whose node knows its URL; nobody watches its process."""
    with Cluster("a", tmp_path_factory.mktemp("replay")) as cluster:
        yield cluster.start()


def replay(cluster: Cluster, path: Path, *steps: object) -> int:
    path.write_text(text_of(*steps, nodes=["a"]))
    return main(["replay", str(path), "--url", cluster["a"].url, "--speed", "2"])


def test_a_workload_writes_at_its_rate_and_is_reported(
    known: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = known["a"].status()["green"]["revision"]
    work = {"at_ms": 200, "do": "workload", "writes_per_s": 20, "seconds": 1, "through": ["a"]}
    assert replay(known, tmp_path / "script", {"at_ms": 0, "do": "heal"}, work) == 0
    printed = capsys.readouterr().out
    assert "1/2  heal all links" in printed
    written = known["a"].status()["green"]["revision"] - before
    assert 10 <= written <= 20
    assert f"writes: {written} green" in printed


def test_loss_and_delay_are_set_and_leave_the_rest_as_it_is(
    known: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known["a"].spoil(jitter_ms=1.0)
    disturb = {"at_ms": 0, "do": "disturb", "nodes": ["a"], "loss": 0.125, "delay_ms": 20}
    assert replay(known, tmp_path / "script", disturb) == 0
    chaos = known["a"].get_path("/v1/chaos").json
    assert (chaos["loss"], chaos["delay_ms"], chaos["jitter_ms"]) == (0.125, 20.0, 1.0)
    assert "1/1  12.5 % loss, 20 ms delay at a" in capsys.readouterr().out
    assert replay(known, tmp_path / "script", {"at_ms": 0, "do": "heal"}) == 0
    assert known["a"].status()["chaos"] is False


def test_a_step_that_fails_is_told_and_the_rest_is_done(
    known: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = ({"at_ms": 0, "do": "kill", "node": "a"}, {"at_ms": 10, "do": "heal"})
    assert replay(known, tmp_path / "script", *steps) == 1
    captured = capsys.readouterr()
    assert "node a: Nobody watches this node's process" in captured.err
    assert "2/2  heal all links" in captured.out


def test_a_script_for_other_nodes_and_a_file_that_is_not_there_are_refused(
    known: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "script"
    assert main(["replay", str(path), "--url", known["a"].url]) == 2
    path.write_text(text_of())
    assert main(["replay", str(path), "--url", known["a"].url]) == 2
    assert "node b, whose URL this cluster does not know" in capsys.readouterr().err

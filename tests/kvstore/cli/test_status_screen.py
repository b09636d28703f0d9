"""The picture of `corelkv status --watch`, at fixed widths and without a terminal."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from kvstore.cli.node_state import NodeState, NotAStatus
from kvstore.cli.status_model import SeenCluster, SeenNode
from kvstore.cli.status_screen import ASCII, UNICODE, Glyphs, Scale, StatusScreen

NOW = 100.0


def status(node: str = "a", **fields: Any) -> NodeState:
    content: dict[str, Any] = {
        "node": node,
        "incarnation": 1_794_974_275,
        "state": "primary",
        "view": {"id": "7.a.1794974275", "members": ["a", "b", "c"]},
        "primary": True,
        "green": {"line": 1_000, "revision": 900},
        "yellow": {"line": 1_000},
        "red": 0,
        "last_committed_primary": 4,
        "last_attempted_primary": 5,
        "disk_used": {"used_bytes": 3 << 20, "map_bytes": 64 << 30, "free_bytes": 30, "file_system_bytes": 100},
    }
    return NodeState.of({**content, **fields})


MINORITY: dict[str, Any] = {
    "state": "non_primary",
    "primary": False,
    "view": {"id": "9.a.1", "members": ["a"]},
    "yellow": {"line": 1_005},
    "red": 12,
}


def cluster(**states: NodeState | None) -> SeenCluster:
    nodes: list[SeenNode] = []
    for name, state in states.items():
        node = SeenNode(name, f"http://127.0.0.1:800{len(nodes) + 1}", NOW - 10.0)
        if state is None:
            node.failed("cannot reach it (Connection refused)")
        else:
            node.answered(state, NOW)
        nodes.append(node)
    return SeenCluster(nodes, "a")


def drawn(seen: SeenCluster, width: int, height: int = 40) -> list[str]:
    output = io.StringIO()
    made = Console(file=output, width=width, height=height, color_system=None)
    for line in made.render_lines(StatusScreen(seen, NOW, "12:00:00"), pad=False):
        output.write("".join(segment.text for segment in line).rstrip() + "\n")
    return output.getvalue().splitlines()


@pytest.mark.parametrize("width", [80, 120])
def test_a_healthy_cluster_has_a_block_for_each_node_and_no_notice(width: int) -> None:
    lines = drawn(cluster(a=status(), b=status("b"), c=status("c")), width)
    assert max(map(cell_len, lines)) <= width
    assert "3 of 3 nodes answer" in lines[0]
    assert [line[:11] for line in lines if "PRIMARY" in line] == ["a   PRIMARY", "b   PRIMARY", "c   PRIMARY"]
    bars = [line for line in lines if line.startswith("    [")]
    assert bars == [f"    [{'█' * (width - 7)}G]"] * 3
    text = " ".join(" ".join(lines).split())
    for fact in (
        "view 7.a.1794974275 of a,b,c incarnation 1794974275",
        "green 1,000 yellow 1,000 red 0",
        "primary 4 (attempted 5)",
        "disk 3.0 MiB of 64.0 GiB (0 %), file system 70 % full",
    ):
        assert text.count(fact) == 3, fact


@pytest.mark.parametrize("width", [80, 120])
def test_a_minority_is_unmistakable(width: int) -> None:
    lines = drawn(cluster(a=status(**MINORITY), b=status("b"), c=status("c")), width)
    assert max(map(cell_len, lines)) <= width
    assert "NODE a IS NOT IN A PRIMARY COMPONENT" in lines[2]
    assert lines[1] == f"┏{'━' * (width - 2)}┓"
    assert any(line.startswith("a   NON PRIMARY  view 9.a.1 of a ") for line in lines)
    bar = next(line for line in lines if line.startswith("    ["))
    assert bar.index("G") < bar.index("Y") < bar.index("░")
    assert any("green 1,000  yellow 1,005  red 12" in line for line in lines)


def test_a_silent_node_says_for_how_long_and_keeps_what_it_last_said() -> None:
    seen = cluster(a=status(), b=status("b"), c=None)
    seen.nodes[1].answered_at = NOW - 3.2
    seen.nodes[1].failed("it took too long")
    lines = drawn(seen, 100)
    assert "b   NO ANSWER for 3.2 s (it took too long), was primary" in lines
    assert "c   NO ANSWER for 10.0 s (cannot reach it (Connection refused))" in lines
    assert "1 of 3 nodes answer" in lines[0]
    assert sum("green 1,000" in line for line in lines) == 2


def test_the_node_asked_is_announced_when_it_is_silent_or_away() -> None:
    assert "NODE a DOES NOT ANSWER" in drawn(cluster(a=None, b=status("b")), 80)[2]
    away = drawn(
        cluster(a=status(state="non_primary", primary=False, disk="The disk is full."), b=status("b")), 80
    )
    assert any("It is away and refuses writes: The disk is full." in line for line in away)
    assert any(line.startswith("a   AWAY") for line in away)


def test_warnings_are_shown_and_control_characters_are_not() -> None:
    lines = drawn(cluster(a=status(warnings=["80 % full.\x1b[2J Make room."])), 80)
    assert "    warning: 80 % full.\\x1b[2J Make room." in lines


def test_a_terminal_of_ascii_gets_ascii() -> None:
    class AsciiFile(io.StringIO):
        encoding = "ascii"

    seen = cluster(a=status(**MINORITY))
    made = Console(file=AsciiFile(), width=80, height=40, color_system=None)
    shown = "".join(segment.text for segment in made.render(StatusScreen(seen, NOW, "12:00:00")))
    assert shown.isascii()
    assert "#G" in shown
    assert "+Y-" in shown


def test_what_does_not_fit_is_counted() -> None:
    seen = cluster(**{name: status(name) for name in "abcdefgh"})
    lines = drawn(seen, 80, 24)
    assert len(lines) <= 24
    assert "3 more: enlarge the terminal, or see corelkv status" in lines


# Bars


@pytest.mark.parametrize(
    ("lines", "shown"),
    [
        ((10, 10, 10), "█████████G"),
        ((5, 7, 10), "████G▒Y░░░"),
        ((5, 5, 5), "████G·····"),
        ((0, 0, 10), "░░░░░░░░░░"),
        ((0, 0, 0), "··········"),
    ],
)
def test_a_bar_has_its_lines_where_they_are(lines: tuple[int, int, int], shown: str) -> None:
    assert Scale(0, 10).bar(*lines, 10, UNICODE).plain == shown


def test_the_smallest_zone_is_seen() -> None:
    assert Scale(0, 1_000_000).bar(999_998, 999_999, 1_000_000, 10, ASCII).plain == "#######GY-"


@pytest.mark.parametrize("glyphs", [UNICODE, ASCII])
def test_zones_differ_without_colours(glyphs: Glyphs) -> None:
    assert len(set(glyphs)) == 4


def test_all_bars_share_a_scale_that_shows_who_is_behind() -> None:
    behind = status("b", green={"line": 400, "revision": 1}, yellow={"line": 400})
    scale = Scale.over(cluster(a=status(), b=behind).nodes)
    assert scale == Scale(200, 1_000)
    assert Scale.over(cluster(a=status(), b=status("b")).nodes) == Scale(980, 1_000)
    assert Scale.over(cluster(a=None).nodes) == Scale(0, 1)


# What was seen


def test_throughput_follows_the_lines() -> None:
    node = SeenNode("a", "http://x", NOW)
    assert node.rate is None
    for second in range(11):
        line = {"line": 100 * second, "revision": 500 * second}
        node.answered(status(green=line), NOW + second)
    assert node.rate == (100.0, 500.0)
    node.answered(status(green={"line": 9_000, "revision": 9_000}, incarnation=2), NOW + 11)
    assert node.rate is None


def test_a_summary_changes_only_when_something_happened() -> None:
    node = SeenNode("a", "http://x", NOW)
    node.answered(status(), NOW)
    before = node.summary()
    node.answered(status(uptime_s=12), NOW + 1)
    assert node.summary() == before
    node.answered(status(red=1), NOW + 2)
    assert node.summary() != before
    node.failed("it took too long")
    assert node.summary() == "a: no answer: it took too long"
    assert SeenNode("c", None, NOW).summary() == "c: its URL is not known: start nodes with --urls"


def test_a_node_is_looked_for_where_the_others_say_and_found_where_it_answers() -> None:
    seen = cluster(a=status(), b=status("b"), c=None)
    c = seen.nodes[2]
    seen.heard_urls("a", {"a": "http://a", "c": c.url})
    assert c.elsewhere == []
    seen.heard_urls("b", {"c": "http://c.new"})
    seen.heard_urls("a", {"c": None})
    assert (c.url, c.elsewhere) == ("http://127.0.0.1:8003", ["http://c.new"])
    c.answered(status("c"), NOW, "http://c.new")
    assert (c.url, c.elsewhere) == ("http://c.new", ["http://127.0.0.1:8003"])
    assert c.summary().endswith("at http://c.new")


def test_a_node_whose_url_nobody_knew_is_asked_when_somebody_does() -> None:
    seen = SeenCluster([SeenNode("a", "http://a", NOW), SeenNode("b", None, NOW)], "a")
    seen.heard_urls("a", {"a": "http://a", "b": "http://b"})
    assert [node.url for node in seen.nodes] == ["http://a", "http://b"]


@pytest.mark.parametrize("content", [[], {"node": "a"}, {"node": "a", "state": "primary", "view": 3}])
def test_what_is_not_a_status_is_said_to_be_none(content: object) -> None:
    with pytest.raises(NotAStatus, match="is it a corelkv node"):
        NodeState.of(content)


@pytest.mark.parametrize(
    ("learning", "label"),
    [
        ({"source": "b", "phase": "state", "bytes": 430, "total_bytes": 1_000}, "non primary, learning 43 %"),
        ({"source": "b", "phase": "messages", "bytes": 11, "total_bytes": 10}, "non primary, learning 99 %"),
        ({"source": "b", "phase": "asking"}, "non primary, asks b for what it lacks"),
        ({"source": "", "phase": "asking"}, "non primary, cannot learn: see its log"),
        (None, "non primary"),
    ],
)
def test_a_node_that_learns_says_how_far_it_is(learning: dict[str, Any] | None, label: str) -> None:
    state = status(**MINORITY, learning=learning)
    assert state.label == label
    assert label.upper() in "\n".join(drawn(cluster(a=state), 100))

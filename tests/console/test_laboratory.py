"""The laboratory in a real browser: cuts, kills, a workload, and the script of what was done."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import expect

from tests.console.browser import SETTLE_MS, Console, DevCluster

NOTICED_MS = 3_000
"""How long a cut may take to be seen, and its end."""
Open = Callable[..., Console]


def move(console: Console, name: str, island: int) -> None:
    console.page.locator(f"[data-mover='{name}'] .choice").nth(island - 1).click()


def test_a_cut_by_clicking_is_healed_exported_and_performed_again(
    open_console: Open, dev_cluster: DevCluster, tmp_path: Path
) -> None:
    console = open_console("a")
    console.go("lab")
    move(console, "c", 2)
    console.page.locator("#apply-cut").click()
    console.expect_state("c", "non_primary", NOTICED_MS)
    console.expect_state("a", "primary", NOTICED_MS)
    expect(console.page.locator("#lab .island")).to_have_count(2)
    console.screenshot("lab-cut")
    console.page.locator("#heal").click()
    console.expect_state("c", "primary", NOTICED_MS)
    with console.page.expect_download() as download:
        console.page.locator("#export-script").click()
    script = tmp_path / "script.json"
    download.value.save_as(script)
    steps = json.loads(script.read_text())["steps"]
    assert [step["do"] for step in steps] == ["partition", "heal"]
    committed = dev_cluster.call("GET", "a", "/v1/status")["last_committed_primary"]
    run = dev_cluster.replay(script)
    assert (run.returncode, run.stderr) == (0, "")
    assert "cut a,b | c" in run.stdout
    dev_cluster.await_primary()
    assert dev_cluster.call("GET", "a", "/v1/status")["last_committed_primary"] >= committed + 2
    console.check_silence()


def test_nodes_can_be_dragged_to_islands_and_sent_there_by_keyboard(open_console: Open) -> None:
    console = open_console("a")
    console.go("lab")
    page = console.page
    target = page.locator("[data-island='1']")
    page.locator(".boat[data-node='b']").hover()
    page.mouse.down()
    box = target.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, steps=5)
    page.mouse.up()
    expect(target.locator(".boat")).to_have_text(["b"])
    page.locator("input[name='island-c']:checked").focus()
    page.keyboard.press("ArrowRight")
    expect(target.locator(".boat")).to_have_text(["b", "c"])
    assert page.evaluate("document.activeElement.name") == "island-c"
    console.check_silence()


def test_a_killed_node_is_shown_as_not_answering_and_comes_back(open_console: Open) -> None:
    console = open_console("a")
    console.go("lab")
    console.page.get_by_role("button", name="Kill c").click()
    console.expect_state("c", "unknown")
    expect(console.node("c", "lab")).to_contain_text("does not answer since")
    expect(console.node("c", "lab")).to_contain_text("a last heard it at")
    assert console.problems() == []
    console.page.get_by_role("button", name="Start c").click()
    console.expect_state("c", "primary")
    expect(console.node("c", "lab")).to_have_attribute("data-source", "first-hand")
    console.check_silence(has_outages=True)


def test_a_console_whose_node_dies_says_that_it_is_stale_and_recovers(
    open_console: Open, dev_cluster: DevCluster
) -> None:
    console = open_console("b")
    dev_cluster.call("POST", "a", "/v1/lab/nodes/b", {"action": "kill"})
    banner = console.page.locator(".banner[data-kind='lost']")
    expect(banner).to_contain_text("Node b has not answered for", timeout=SETTLE_MS)
    expect(console.page.locator("#link")).to_contain_text("Stale")
    expect(console.node("a")).to_have_attribute("data-source", "first-hand")
    expect(console.node("b")).to_contain_text("a last heard it at")
    console.screenshot("overview-stale")
    dev_cluster.call("POST", "a", "/v1/lab/nodes/b", {"action": "start"})
    expect(banner).to_have_count(0, timeout=SETTLE_MS)
    expect(console.page.locator("#link")).to_have_text("Live")
    console.check_silence(has_outages=True)


def test_a_workload_moves_the_lines_is_bounded_and_is_recorded(
    open_console: Open, dev_cluster: DevCluster
) -> None:
    console = open_console("a")
    console.go("lab")
    line = dev_cluster.call("GET", "a", "/v1/status")["green"]["line"]
    console.page.get_by_label("Rate").fill("40")
    console.page.get_by_role("button", name="Start writing").click()
    time.sleep(1.5)
    console.page.get_by_role("button", name="Stop writing").click()
    green = int(console.page.locator("#lab .tight dd").nth(1).inner_text())
    assert 20 <= green <= 80
    assert dev_cluster.call("GET", "a", "/v1/status")["green"]["line"] > line
    expect(console.page.locator(".steps li")).to_contain_text(["40 writes/s"])
    console.check_silence()

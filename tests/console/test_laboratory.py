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


def export(console: Console, directory: Path) -> Path:
    with console.page.expect_download() as download:
        console.page.locator("#export-script").click()
    script = directory / "script.json"
    download.value.save_as(script)
    return script


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
    script = export(console, tmp_path)
    steps = json.loads(script.read_text())["steps"]
    assert [step["do"] for step in steps] == ["partition", "heal"]
    committed = dev_cluster.call("GET", "a", "/v1/status")["last_committed_primary"]
    run = dev_cluster.replay(script)
    assert (run.returncode, run.stderr) == (0, "")
    assert "cut a,b | c" in run.stdout
    dev_cluster.await_primary()
    assert dev_cluster.call("GET", "a", "/v1/status")["last_committed_primary"] >= committed + 2
    console.check_silence()


def test_loss_and_delay_at_a_node_are_set_by_keyboard_outlast_a_cut_and_are_performed_again(
    open_console: Open, dev_cluster: DevCluster, tmp_path: Path
) -> None:
    console = open_console("a")
    console.go("lab")
    page = console.page
    page.get_by_label("Loss", exact=True).focus()
    page.keyboard.press("ArrowRight")
    page.get_by_label("Delay", exact=True).focus()
    page.keyboard.press("ArrowRight")
    page.get_by_label("At", exact=True).select_option("c")
    page.get_by_role("button", name="Set loss and delay").press("Enter")
    disturbed = page.locator("[data-disturbed='c']")
    expect(disturbed).to_have_text("11 % loss, 25 ms delay")
    expect(page.locator("[data-disturbed='a']")).to_have_text("undisturbed")
    expect(console.node("c", "lab").locator(".tag.warn")).to_have_text("11 % loss, 25 ms delay")
    move(console, "c", 2)
    page.locator("#apply-cut").click()
    expect(disturbed).to_have_text("links cut, 11 % loss, 25 ms delay")
    chaos = dev_cluster.call("GET", "c", "/v1/chaos")
    assert (chaos["loss"], chaos["delay_ms"], chaos["drop_from"]) == (0.11, 25.0, ["a", "b"])
    console.screenshot("lab-loss")
    script = export(console, tmp_path)
    page.locator("#heal").click()
    expect(disturbed).to_have_text("undisturbed")
    run = dev_cluster.replay(script)
    assert (run.returncode, run.stderr) == (0, "")
    assert "11 % loss, 25 ms delay at c" in run.stdout
    assert dev_cluster.call("GET", "c", "/v1/chaos") == chaos
    console.check_silence()


def test_loss_at_all_nodes_is_readable_on_a_phone_and_can_be_ended(
    open_console: Open, dev_cluster: DevCluster
) -> None:
    console = open_console("a", 390, "dark")
    console.go("lab")
    console.page.locator("#disturb").click()
    for name in "abc":
        expect(console.page.locator(f"[data-disturbed='{name}']")).to_have_text("10 % loss, 20 ms delay")
    expect(console.page.locator(".note.good")).to_have_text("10 % loss and 20 ms delay at a, b, c.")
    assert (console.overflow(), console.problems()) == (0, [])
    console.screenshot("lab-loss-390-dark")
    console.page.get_by_role("button", name="End them everywhere").click()
    for name in "abc":
        expect(console.page.locator(f"[data-disturbed='{name}']")).to_have_text("undisturbed")
    assert [dev_cluster.call("GET", name, "/v1/status")["chaos"] for name in "abc"] == [False] * 3
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

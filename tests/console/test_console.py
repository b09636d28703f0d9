"""The console in a real browser: what it shows of a cluster that works, is cut, and heals."""

from __future__ import annotations

import re
from collections.abc import Callable
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from tests.console.browser import PAGES, SETTLE_MS, Console, DevCluster

HOSTILE = "<img src=x onerror=\"document.title='taken over'\">"
Open = Callable[..., Console]


def test_it_shows_every_node_with_its_state_and_lines(open_console: Open, dev_cluster: DevCluster) -> None:
    dev_cluster.call("PUT", "a", "/v1/kv/greeting", b"hello")
    console = open_console("b")
    green = dev_cluster.call("GET", "b", "/v1/status")["green"]["line"]
    for name in "abc":
        card = console.node(name)
        expect(card).to_have_attribute("data-state", "primary")
        expect(card).to_have_attribute("data-source", "first-hand")
        expect(card.locator(".lines [data-color='green'] dd")).to_have_text(f"{green:,}")
        expect(card).to_contain_text("a, b, c")
    expect(console.page.locator("#link")).to_have_text("Live")
    expect(console.page.locator("#banner")).to_be_empty()
    expect(console.page.locator("#overview .island")).to_have_count(1)
    expect(console.page.locator("#chart-sync-latency svg")).to_have_attribute("aria-label", re.compile("a .* ms"))
    console.check_silence()


def test_a_node_outside_a_primary_says_so_in_words(open_console: Open, dev_cluster: DevCluster) -> None:
    for name, others in (("a", ["c"]), ("b", ["c"]), ("c", ["a", "b"])):
        dev_cluster.call("PUT", name, "/v1/chaos", {"drop_from": others, "drop_to": others})
    console = open_console("c")
    banner = console.page.locator(".banner[data-kind='no-primary']")
    expect(banner).to_contain_text("Node c is not in a primary component")
    expect(banner).to_contain_text("1 of 3 votes")
    expect(console.page).to_have_title(re.compile("not in a primary"))
    expect(console.page.locator("#overview .island")).to_have_count(2)
    expect(console.node("a")).to_have_attribute("data-state", "primary")
    console.screenshot("overview-not-primary")
    dev_cluster.mend()
    expect(banner).to_have_count(0, timeout=SETTLE_MS)
    console.check_silence()


def test_what_a_merge_changed_is_shown_with_both_values(open_console: Open, dev_cluster: DevCluster) -> None:
    key = "merged/1"
    console = open_console("a")
    for name, others in (("a", ["c"]), ("b", ["c"]), ("c", ["a", "b"])):
        dev_cluster.call("PUT", name, "/v1/chaos", {"drop_from": others, "drop_to": others})
    console.expect_state("c", "non_primary", page="overview")
    dev_cluster.call("PUT", "c", f"/v1/kv/{key}", b"from c")
    dev_cluster.call("PUT", "a", f"/v1/kv/{key}?ack=green", b"from a")
    dev_cluster.mend()
    console.go("merges")
    conflict = console.page.locator("#merges .conflict", has_text=key).first
    expect(conflict).to_contain_text("A red write of c met a change of a, and overwrote it.", timeout=SETTLE_MS)
    expect(conflict.locator(".value")).to_have_text(["from a", "from c"])
    console.check_silence()


def test_hostile_keys_and_values_are_text_everywhere(open_console: Open, dev_cluster: DevCluster) -> None:
    dev_cluster.call("PUT", "a", f"/v1/kv/{quote(HOSTILE, safe='')}", HOSTILE.encode())
    console = open_console("a")
    console.go("keys")
    row = console.page.locator("#keys .key-row", has_text="onerror").first
    expect(row.locator(".key")).to_have_text(HOSTILE)
    row.click()
    expect(console.page.locator(".level .value").first).to_have_text(HOSTILE)
    console.go("log")
    expect(console.page.locator("#log .operations", has_text="onerror").first).to_contain_text(HOSTILE)
    assert console.page.locator("main img").count() == 0
    assert "taken over" not in console.page.title()
    console.check_silence()


def test_keys_are_put_read_at_each_level_and_deleted(open_console: Open, dev_cluster: DevCluster) -> None:
    console = open_console("a")
    page = console.page
    console.go("keys")
    page.get_by_label("Key", exact=True).fill("notes/1")
    page.get_by_label("Value", exact=True).fill("first")
    page.get_by_role("button", name="Put").click()
    expect(page.locator("#keys .note.good")).to_contain_text("Green at revision")
    expect(page.locator(".level .value")).to_have_text(["first", "first", "first"])
    page.get_by_label("Keys that begin with").fill("notes/")
    page.get_by_role("button", name="List").click()
    expect(page.locator(".key-row")).to_have_count(1)
    page.get_by_role("button", name="Delete…").click()
    page.get_by_role("button", name="Really delete").click()
    expect(page.locator(".level .chip")).to_have_text(["not there", "not there", "not there"])
    expect(page.locator(".history li").first).to_contain_text("deleted")
    console.check_silence()


def test_a_write_is_found_in_the_log_and_followed(open_console: Open, dev_cluster: DevCluster) -> None:
    write = dev_cluster.call("PUT", "b", "/v1/kv/followed", b"x")["id"]
    console = open_console("a")
    console.go("log")
    message = console.page.get_by_role("button", name=write.rpartition(".")[0], exact=True)
    message.click()
    expect(message).to_have_attribute("aria-expanded", "true")
    console.page.get_by_role("button", name=f"Follow write {write}").click()
    expect(console.page.locator(".fate")).to_contain_text("Its place in the order is final.")
    expect(console.page.locator(".fate")).to_contain_text("applied")
    console.check_silence()


@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (1440, "dark"), (390, "light"), (390, "dark")])
def test_every_page_fits_is_named_and_can_be_read(
    open_console: Open, dev_cluster: DevCluster, width: int, scheme: str
) -> None:
    dev_cluster.call("PUT", "a", f"/v1/kv/{'long/' * 60}", b"x" * 500)
    console = open_console("a", width, scheme)
    for page in PAGES:
        console.go(page)
        if page == "keys":
            console.page.locator(".key-row").first.click()
            expect(console.page.locator(".level")).to_have_count(3)
        if page == "log":
            console.page.locator(".log-table button").last.click()
        assert console.overflow() <= 0, page
        assert console.problems() == [], page
        console.screenshot(f"{page}-{width}-{scheme}")
    console.check_silence()


def test_the_theme_can_be_switched_and_is_kept(open_console: Open) -> None:
    console = open_console("a")
    shade = "getComputedStyle(document.documentElement).backgroundColor"
    light = console.page.evaluate(shade)
    console.page.get_by_role("button", name="Switch to the dark theme").click()
    dark = console.page.evaluate(shade)
    assert dark != light
    console.page.reload()
    expect(console.page.get_by_role("button", name="Switch to the light theme")).to_be_visible()
    assert console.page.evaluate(shade) == dark
    console.check_silence()

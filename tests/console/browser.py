"""A dev cluster as `corelkv cluster` runs it, and pages of its consoles in a real browser."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from playwright.sync_api import Browser, Dialog, Locator, Page, Playwright, expect

from tests.ports import HOST, broadcast_port, free_ports

CHROMIUM = "/usr/bin/chromium"
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
ARTIFACTS = Path(__file__).parents[2] / "test-artifacts" / "console"
ACCESSIBILITY = Path(__file__).with_name("accessibility.js").read_text()
PAGES = ("overview", "keys", "log", "merges", "lab")
SETTLE_MS = 20_000
"""How long anything may take that has no limit of its own."""
_OUTAGE = re.compile(r"net::ERR_|Failed to load resource: the server responded with a status of 503")
_HASTE = {"CORELKV_MEMBERSHIP_BACK_OFF_MS": "100", "CORELKV_MEMBERSHIP_BACK_OFF_MS_MAX": "200"}


def launch(playwright: Playwright) -> Browser:
    return playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))


class DevCluster:
    """Three nodes that `corelkv cluster` watches. Use it as a context manager."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.port = free_ports(3)

    def __enter__(self) -> DevCluster:
        command = [sys.executable, "-m", "kvstore", "cluster", "--http-port", str(self.port)]
        command += ["--port", str(broadcast_port()), "--data", str(self._directory / "data")]
        with open(self._directory / "output", "wb") as output:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env={**os.environ, **_HASTE}
            )
        self.await_primary()
        return self

    def __exit__(self, *problem: object) -> None:
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(20.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def url(self, name: str) -> str:
        return f"http://{HOST}:{self.port + 'abc'.index(name)}"

    def call(self, method: str, name: str, path: str, body: object = None) -> Any:
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        with urlopen(Request(f"{self.url(name)}{path}", data, method=method), timeout=20.0) as answer:
            return json.loads(answer.read())

    def replay(self, script: Path) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "kvstore", "replay", str(script), "--url", self.url("a")]
        return subprocess.run(command, capture_output=True, text=True, timeout=60.0, check=False)

    def await_primary(self) -> None:
        """Waits until all three nodes are in one primary component, without disturbances."""
        end = time.monotonic() + 60.0
        while not self._is_whole():
            assert time.monotonic() < end, (self._directory / "output").read_text()
            time.sleep(0.1)

    def _is_whole(self) -> bool:
        try:
            statuses = [self.call("GET", name, "/v1/status") for name in "abc"]
        except OSError:
            return False
        return all(one["primary"] and len(one["view"]["members"]) == 3 for one in statuses)

    def mend(self) -> None:
        """Makes the cluster whole again, whatever a failed test has left."""
        for name in "abc":
            for helper in "abc":
                try:
                    self.call("POST", helper, f"/v1/lab/nodes/{name}", {"action": "start"})
                    break
                except OSError:
                    continue
        end = time.monotonic() + 60.0
        for name in "abc":
            while True:
                try:
                    self.call("DELETE", name, "/v1/chaos")
                    break
                except OSError:
                    assert time.monotonic() < end
                    time.sleep(0.1)
        self.await_primary()


class Console:
    """A console in a tab of the browser, and everything that it complained about."""

    def __init__(self, page: Page, cluster: DevCluster, name: str = "a") -> None:
        self.page = page
        self.cluster = cluster
        self.complaints: list[str] = []
        page.set_default_timeout(SETTLE_MS)
        page.on("console", lambda message: self._on_console(message.type, message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", self._on_dialog)
        page.goto(cluster.url(name))
        expect(page.locator("#overview .node")).to_have_count(3, timeout=SETTLE_MS)

    def _on_console(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.complaints.append(text)

    def _on_dialog(self, dialog: Dialog) -> None:
        self.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def check_silence(self, has_outages: bool = False) -> None:
        """Nothing was complained about; with outages, nothing but answers that a node did not give."""
        found = [one for one in self.complaints if not (has_outages and _OUTAGE.search(one))]
        assert found == []

    def go(self, page: str) -> None:
        self.page.locator(f".tabs a[href='#/{page}']").click()
        expect(self.page.locator(f"#{page}")).to_be_visible()

    def node(self, name: str, page: str = "overview") -> Locator:
        return self.page.locator(f"#{page} .node[data-node='{name}']")

    def expect_state(self, name: str, state: str, timeout_ms: float = SETTLE_MS, page: str = "lab") -> None:
        expect(self.node(name, page)).to_have_attribute("data-state", state, timeout=timeout_ms)

    def problems(self) -> list[str]:
        found: list[str] = self.page.evaluate(ACCESSIBILITY)
        return found

    def overflow(self) -> int:
        """By how many pixels the page is wider than the window."""
        return int(self.page.evaluate("document.documentElement.scrollWidth - innerWidth"))

    def screenshot(self, name: str) -> None:
        ARTIFACTS.mkdir(parents=True, exist_ok=True)
        self.page.evaluate("scrollTo(0, 0)")
        self.page.screenshot(path=ARTIFACTS / f"{name}.png", full_page=True)

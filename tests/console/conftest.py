"""One browser and one cluster for the tests of a worker; every test has a tab of its own, and a whole cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.console.browser import Console, DevCluster, launch


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """For this package only: Playwright keeps an event loop running, so tests elsewhere could run none."""
    with sync_playwright() as playwright:
        launched = launch(playwright)
        yield launched
        launched.close()


@pytest.fixture(scope="package")
def _dev_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevCluster]:
    with DevCluster(tmp_path_factory.mktemp("dev")) as cluster:
        yield cluster


@pytest.fixture
def dev_cluster(_dev_cluster: DevCluster) -> Iterator[DevCluster]:
    yield _dev_cluster
    _dev_cluster.mend()


@pytest.fixture
def open_console(browser: Browser, dev_cluster: DevCluster) -> Iterator[Callable[..., Console]]:
    """Opens the console of a node, in a window of this width and colour scheme."""
    contexts = []

    def open_(name: str = "a", width: int = 1440, scheme: str = "light") -> Console:
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme="dark" if scheme == "dark" else "light"
        )
        contexts.append(context)
        return Console(context.new_page(), dev_cluster, name)

    yield open_
    for context in contexts:
        context.close()

"""The checks of names and contrast notice what they are for."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser

from tests.console.browser import ACCESSIBILITY

TEXT = "".join(f"<p>A text that can be read, number {number}.</p>" for number in range(12))


def problems(browser: Browser, body: str) -> list[str]:
    page = browser.new_page()
    try:
        page.set_content(
            f"<!doctype html><html lang='en'><body style='background: #fff'>{body}{TEXT}</body></html>"
        )
        found: list[str] = page.evaluate(ACCESSIBILITY)
        return found
    finally:
        page.close()


@pytest.mark.parametrize(
    "body",
    [
        "<button>Put</button><label>Key <input></label>",
        "<a href='/'><img src='data:,' alt='start'></a>",
        "<p style='color: #767676'>enough</p>",
        "<p style='color: #949494; font-size: 24px'>large</p>",
        "<p style='background: #000; color: #999'>on black</p>",
        "<p hidden style='color: #fff'>not seen</p>",
    ],
)
def test_what_is_fine_is_no_problem(browser: Browser, body: str) -> None:
    assert problems(browser, body) == []


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("<button></button>", "no name"),
        ("<input placeholder='Key'>", "no name"),
        ("<select><option>x</option></select>", "no name"),
        ("<div tabindex='0'></div>", "no name"),
        ("<svg role='img'></svg>", "no label"),
        ("<img src='data:,'>", "no alt"),
        ("<p id='x'>one</p><p id='x'>two</p>", "the id x"),
        ("<p style='color: #777'>hardly</p>", "contrast 4.48"),
        ("<div style='background: #000'><p style='color: #555'>dark</p></div>", "contrast"),
        ("<p style='color: rgb(0 0 0 / 40%)'>pale</p>", "contrast"),
        ("<svg><text y='20' fill='#aaa'>pale</text></svg>", "contrast"),
    ],
)
def test_what_is_missing_is_noticed(browser: Browser, body: str, problem: str) -> None:
    found = problems(browser, body)
    assert len(found) == 1
    assert problem in found[0]

"""The console's files: what browsers are told about them."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

from tests.api.cluster import Node

NAMES = sorted(entry.name for entry in files("api").joinpath("console").iterdir() if entry.is_file())


def test_the_page_may_load_its_own_files_and_talk_to_the_roster_only(node: Node) -> None:
    answer = node.get_path("/")
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["x-content-type-options"] == "nosniff"
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";"))
    assert policy == {
        "default-src": "'none'",
        "script-src": "'self'",
        "style-src": "'self'",
        "img-src": "'self' data:",
        "connect-src": f"'self' {node.url}",
        "frame-ancestors": "'none'",
        "base-uri": "'none'",
        "form-action": "'none'",
    }


@pytest.mark.parametrize("name", NAMES)
def test_every_file_is_served_once_and_asked_for_again(node: Node, name: str) -> None:
    path = "/" if name == "index.html" else f"/console/{name}"
    answer = node.get_path(path)
    assert answer.status == 200
    assert answer.body == files("api").joinpath("console", name).read_bytes()
    assert answer.headers["cache-control"] == "no-cache"
    again = node.call("GET", path, headers={"If-None-Match": answer.tag})
    assert (again.status, again.body) == (304, b"")
    assert node.call("HEAD", path).body == b""


def test_other_paths_and_methods_are_refused(node: Node) -> None:
    for path in ("/console/", "/console/nothing.js", "/console/../app.py", "/console/%2e%2e/app.py"):
        assert node.get_path(path).status == 404
    assert node.call("POST", "/", b"x").error == "method_not_allowed"


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith((".html", ".js", ".css"))])
def test_no_file_has_markup_from_data_inline_code_or_foreign_assets(name: str) -> None:
    text = files("api").joinpath("console", name).read_text()
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text)
    assert not re.search(r"\son[a-z]+=|\sstyle=|<script>|<style", text)
    assert [url for url in re.findall(r"https?://[^\s\"'`)]+", text) if "www.w3.org" not in url] == []

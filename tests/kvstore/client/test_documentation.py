"""The examples of docs/client.md, run in order, against real nodes."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import kvstore.client
from kvstore.client import Client
from tests.api.cluster import Cluster

PAGE = Path(__file__).parents[3] / "docs" / "client.md"


def examples() -> list[str]:
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def run(example: str, names: dict[str, object]) -> None:
    expected = [line.partition("# -> ")[2] for line in example.splitlines() if "# -> " in line]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(example, str(PAGE), "exec"), names)
    assert printed.getvalue().splitlines() == expected, example


def test_examples_do_what_they_say_on_real_nodes(three: Cluster) -> None:
    names: dict[str, object] = {}
    for example in examples():
        run(example.replace("http://127.0.0.1:8001", three["a"].url), names)
    for made in names.values():
        if isinstance(made, Client):
            made.close()


def test_every_public_name_of_an_error_is_on_the_page() -> None:
    text = PAGE.read_text()
    errors = [
        name
        for name in kvstore.client.__all__
        if isinstance(found := getattr(kvstore.client, name), type) and issubclass(found, Exception)
    ]
    assert [name for name in errors if f"`{name}`" not in text] == []

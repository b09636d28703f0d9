"""Which folder a line of code belongs in, checked from the imports themselves.

Three rules: nothing imports upwards; a package uses of another only what that one exports; and only what may touch
the world imports what touches it."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent

LAYERS = (
    *("kvstore.histogram", "transport", "membership", "corel"),
    *("kvstore.store", "kvstore.node", "api", "kvstore.cli"),
)
"""From the lowest to the highest. A package imports those below it."""

APART = {
    "kvstore.client": frozenset[str](),
    "kvstore.journal_schema": frozenset[str](),
    "kvstore.log_schema": frozenset[str](),
    "kvstore.__main__": frozenset({"kvstore.cli"}),
    "spark": frozenset({"kvstore.client", "kvstore.journal_schema", "kvstore.log_schema"}),
    "loadtest": frozenset({"kvstore.client"}),
}
"""What stands beside the layers, and what of ours it may import: they know a node by its HTTP and its files."""

USERS_APART = {
    "kvstore.client": ("kvstore.cli",),
    "kvstore.journal_schema": ("kvstore.node",),
    "kvstore.log_schema": ("kvstore.node", "kvstore.cli"),
    "spark": ("kvstore.cli",),
}
"""Which layers may import what stands beside them."""

FACES = (*LAYERS, "kvstore.client", "kvstore.journal_schema", "kvstore.log_schema", "spark")
"""The packages that say in `__all__` what others may use."""

IO_MODULES = (
    *("transport.udp", "transport.chaos"),
    *("corel.disk_errors", "corel.lmdb_reading", "corel.lmdb_log", "corel.read_only_log", "corel.verification"),
    *("corel.pinned_log", "corel.log_building"),
)
"""Modules of pure packages that do I/O. They are faces of their own: to import the package does not import
them."""

WORLD = frozenset(
    {
        "asyncio", "concurrent", "ctypes", "fcntl", "http", "httpx", "lmdb", "logging", "multiprocessing", "os",
        "pathlib", "prometheus_client", "queue", "resource", "secrets", "select", "selectors", "shutil", "signal",
        "socket", "ssl", "subprocess", "tempfile", "threading", "time", "urllib", "uuid", "uvicorn", "uvloop",
    }
)  # fmt: skip
"""What reaches a clock, a thread, a socket, a disk or another process."""

MAY_TOUCH = {
    "kvstore.histogram": frozenset[str](),
    "transport": frozenset[str](),
    "transport.udp": frozenset({"asyncio", "ctypes", "select", "socket", "time"}),
    "transport.chaos": frozenset({"asyncio"}),
    "membership": frozenset[str](),
    "corel": frozenset[str](),
    "corel.disk_errors": frozenset({"lmdb", "os", "pathlib"}),
    "corel.lmdb_log": frozenset({"fcntl", "lmdb", "os", "pathlib", "uuid"}),
    "corel.lmdb_reading": frozenset({"lmdb", "pathlib"}),
    "corel.log_building": frozenset({"os", "pathlib", "shutil"}),
    "corel.pinned_log": frozenset({"lmdb"}),
    "corel.read_only_log": frozenset({"lmdb", "os", "pathlib"}),
    "corel.verification": frozenset({"lmdb", "pathlib"}),
    "kvstore.store": frozenset[str](),
    "kvstore.node": frozenset(
        {"asyncio", "logging", "os", "pathlib", "prometheus_client", "queue", "threading", "time"}
    ),
    "kvstore.node.source_client": frozenset({"http", "socket", "urllib"}),
    "kvstore.client": frozenset({"urllib"}),
    "kvstore.journal_schema": frozenset[str](),
    "kvstore.log_schema": frozenset[str](),
    "kvstore.client.http": frozenset({"httpx", "os", "socket", "ssl", "uuid"}),
    "kvstore.client.blocking": frozenset({"httpx", "time"}),
    "kvstore.client.blocking_lock": frozenset({"threading"}),
    "kvstore.client.asynchronous": frozenset({"asyncio", "httpx", "time"}),
    "kvstore.client.asynchronous_lock": frozenset({"asyncio"}),
    "kvstore.cli": WORLD - {"httpx", "lmdb", "threading", "uvicorn"},
    "api": frozenset({"asyncio", "prometheus_client", "socket", "time", "urllib", "uvicorn"}),
}
"""Per package, or per module where it differs from its package."""


class Import(NamedTuple):
    module: str
    name: str
    """What of the module; empty for the module itself."""
    line: int


def package_of(module: str) -> str:
    """The layer, or what stands beside them."""
    for package in (*LAYERS, *APART):
        if module == package or module.startswith(f"{package}."):
            return package
    return module


def imports_of(source: str) -> Iterator[Import]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, "", node.lineno)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are absolute"
            for alias in node.names:
                yield Import(node.module or "", alias.name, node.lineno)


def offences(module: str, source: str) -> list[str]:
    """What is wrong with the imports of a module of this name."""
    found = []
    for one in imports_of(source):
        package, imported = package_of(module), package_of(one.module)
        if imported == package:
            continue
        where = f"{module}:{one.line} imports {one.module} {one.name}".strip()
        if imported in (*LAYERS, *APART):
            found += [f"{where}: {why}" for why in _wrong_way(package, imported) + _behind_the_face(one)]
        elif (top := one.module.partition(".")[0]) in WORLD and top not in _may_touch(module, package):
            found.append(f"{where}: {module} may not touch that")
        elif top == "random" and one.name != "Random":
            found.append(f"{where}: what is random is drawn from a generator that was handed in")
    if module in MAY_TOUCH or package_of(module) in MAY_TOUCH:
        found += _opened_files(module, source)
    return found


def _wrong_way(package: str, imported: str) -> list[str]:
    if package in APART:
        return [] if imported in APART[package] else [f"{package} stands beside the layers"]
    if imported in APART:
        is_allowed = package in USERS_APART.get(imported, ())
        return [] if is_allowed else [f"{imported} stands beside the layers"]
    return [] if LAYERS.index(imported) < LAYERS.index(package) else [f"{imported} is above {package}"]


def _behind_the_face(one: Import) -> list[str]:
    if one.module in IO_MODULES:
        return []
    if one.module not in FACES:
        return [f"only what {package_of(one.module)} exports may be used"]
    exported = importlib.import_module(one.module).__all__
    is_io_module = f"{one.module}.{one.name}" in IO_MODULES
    return [] if one.name in exported or is_io_module else [f"{one.module} does not export it"]


def _may_touch(module: str, package: str) -> frozenset[str]:
    return MAY_TOUCH.get(module, MAY_TOUCH.get(package, WORLD))


def _opened_files(module: str, source: str) -> list[str]:
    if "os" in _may_touch(module, package_of(module)):
        return []
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    return [
        f"{module}:{call.lineno} opens a file: {module} may not touch the disk"
        for call in calls
        if isinstance(call.func, ast.Name) and call.func.id == "open"
    ]


def modules() -> Iterator[tuple[str, Path]]:
    for top in ("transport", "membership", "corel", "kvstore", "api", "spark", "loadtest"):
        for path in sorted((ROOT / top).rglob("*.py")):
            yield ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"), path


@pytest.mark.parametrize(("module", "path"), [pytest.param(*one, id=one[0]) for one in modules()])
def test_a_module_imports_only_what_its_folder_may(module: str, path: Path) -> None:
    assert offences(module, path.read_text()) == []


@pytest.mark.parametrize("package", FACES)
def test_what_a_package_exports_is_there_and_named_once(package: str) -> None:
    face = importlib.import_module(package)
    assert len(face.__all__) == len(set(face.__all__))
    assert [name for name in face.__all__ if not hasattr(face, name)] == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("transport.dag", "from membership import Group"),
        ("membership.group", "from corel import Corel"),
        ("corel.corel", "import kvstore.store"),
        ("kvstore.store.state", "from kvstore.node import Node"),
        ("kvstore.node.node", "from api import serve_http"),
        ("kvstore.node.node", "from kvstore.cli import main"),
        ("api.kv", "from kvstore.cli.settings import SETTINGS"),
        ("api.kv", "from kvstore.client import Client"),
        ("kvstore.client.calls", "from kvstore.store import Write"),
        ("spark.audit", "from corel import Color"),
        ("spark.audit", "from kvstore.node import Node"),
        ("corel.effects", "from kvstore.journal_schema import SCHEMA"),
        ("kvstore.journal_schema", "from pathlib import Path"),
        ("corel.corel", "from transport.messages import Machine"),
        ("kvstore.node.driver", "from corel import LogWriter"),
        ("api.kv", "from kvstore.node.driver import Driver"),
        ("transport.lansis", "import time"),
        ("membership.detector", "from time import monotonic"),
        ("corel.log_writer", "import threading"),
        ("corel.corel", "import lmdb"),
        ("kvstore.store.store", "import asyncio"),
        ("kvstore.store.figures", "from prometheus_client.core import Metric"),
        ("kvstore.histogram", "from transport import Machine"),
        ("kvstore.store.green_state", "from pathlib import Path"),
        ("kvstore.store.store", "open('x')"),
        ("membership.group", "import random"),
        ("transport.repair", "from random import random"),
        ("transport.udp", "import threading"),
        ("kvstore.node.node", "import socket"),
        ("kvstore.node.lmdb_tree", "import lmdb"),
        ("api.kv", "import lmdb"),
        ("kvstore.client.session", "import asyncio"),
        ("kvstore.client.watching", "import httpx"),
        ("kvstore.client.retrying", "import random"),
        ("kvstore.client.calls", "import time"),
        ("kvstore.cli.commands", "from kvstore.client.session import Session"),
    ],
)
def test_code_in_the_wrong_folder_is_noticed(module: str, source: str) -> None:
    assert offences(module, source)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("membership.group", "from transport import Lansis"),
        ("kvstore.node.driver", "from transport.udp import Channel"),
        ("kvstore.node.driver", "import time"),
        ("kvstore.cli.commands", "from kvstore.client import Client"),
        ("corel.corel", "from corel.outbox import Outbox"),
        ("kvstore.store.state", "from hashlib import blake2b"),
        ("loadtest.locustfile", "from kvstore.client import Client"),
        ("spark.readers", "from kvstore.journal_schema import SCHEMA"),
        ("kvstore.node.journal", "from kvstore.journal_schema import SCHEMA"),
    ],
)
def test_code_in_its_own_folder_is_not(module: str, source: str) -> None:
    assert offences(module, source) == []

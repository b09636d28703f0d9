"""The settings of `corelkv serve`, as a table made from the fields of `NodeConfig`.

The flags, the environment variables, `--help` and `docs/configuration.md` are generated from this table; the
layers' own bounds are the fields of their config classes. `settings_sources` reads the values, and
`settings_document` prints the page."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from corel import CorelConfig, Roster
from kvstore.node import PRESETS, NodeConfig, SnapshotConfig
from kvstore.store import StoreConfig
from membership import MembershipConfig
from transport import NAME_BYTES_MAX, TransportConfig
from transport.udp import Address, parse_address

VARIABLE_PREFIX = "CORELKV_"

TABLES: Mapping[str, type] = {
    "transport": TransportConfig,
    "membership": MembershipConfig,
    "log": CorelConfig,
    "store": StoreConfig,
    "snapshots": SnapshotConfig,
}
"""The config classes of the layers, by the name of their table in the TOML file."""


@dataclass(frozen=True, slots=True)
class Kind:
    """How values of one kind are written. `form` describes it to people; `parse` returns the value of a text or
    raises `ValueError`; `show` returns the text of a default; `types` are the types that the value may have in
    TOML."""

    form: str
    parse: Callable[[str], Any]
    show: Callable[[Any], str] = str
    types: tuple[type, ...] = (str,)


# Parsers: each returns the value of a text, or raises `ValueError` with the reason.


def _name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_-]+", text) or len(text) > NAME_BYTES_MAX:
        raise ValueError(f"a name has 1 to {NAME_BYTES_MAX} letters, digits, '-' or '_'")
    return text


def _text(text: str) -> str:
    if not text:
        raise ValueError("it must not be empty")
    return text


def _number(text: str) -> int:
    if not re.fullmatch(r"[0-9][0-9_]*", text):
        raise ValueError("it is a whole number")
    return int(text)


def _address(text: str) -> Address:
    host, port = parse_address(text)
    return host.removeprefix("[").removesuffix("]"), port


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    names = set()
    for part in text.split(","):
        name, _, value = part.strip().partition("=")
        if name in names:
            raise ValueError(f"names must be distinct, and {name} is there twice")
        names.add(name)
        yield _name(name), value


def _roster(text: str) -> Roster:
    weights = dict(_pairs(text))
    for name, weight in weights.items():
        if weight and not weight.isdigit():
            raise ValueError(f"the weight of {name} is a whole number, not {weight!r}")
    return Roster({name: int(weight or 1) for name, weight in weights.items()})


def _urls(text: str) -> Mapping[str, str]:
    urls = {name: url.rstrip("/") for name, url in _pairs(text)}
    for name, url in urls.items():
        if not re.match(r"https?://[^/]", url):
            raise ValueError(f"the URL of {name} begins with http:// or https://, unlike {url!r}")
        if "@" in urlsplit(url).netloc:
            raise ValueError(f"the URL of {name} has a user or a password, which nodes do not send: leave it out")
    return MappingProxyType(urls)


def switch(text: str) -> bool:
    if text.lower() in ("true", "yes", "on", "1"):
        return True
    if text.lower() in ("false", "no", "off", "0"):
        return False
    raise ValueError("it is on or off")


def _one_of(*choices: str) -> Kind:
    def parse(text: str) -> str:
        if text not in choices:
            raise ValueError(f"it is one of {', '.join(choices)}")
        return text

    return Kind("|".join(choices), parse)


def _show_address(address: Address) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


# The table

NAME = Kind("NAME", _name)
TEXT = Kind("TEXT", _text)
DIRECTORY = Kind("DIR", lambda text: Path(_text(text)))
FILE = Kind("FILE", lambda text: Path(_text(text)))
SWITCH = Kind("true|false", switch, lambda value: str(value).lower(), (bool,))
NUMBER = Kind("NUMBER", _number, lambda value: f"{value:,}", (int,))
ADDRESS = Kind("HOST:PORT", _address, _show_address)
ADDRESSES = Kind(
    "HOST:PORT,...",
    lambda text: tuple(_address(part.strip()) for part in text.split(",")),
    lambda addresses: ",".join(map(_show_address, addresses)),
    (str, list),
)
ROSTER = Kind("NAME[=WEIGHT],...", _roster, types=(str, list, dict))
URLS = Kind(
    "NAME=URL,...", _urls, lambda urls: ",".join(f"{name}={url}" for name, url in urls.items()), (str, dict)
)

KINDS: Mapping[str, Kind] = {
    "node": NAME,
    "roster": ROSTER,
    "data": DIRECTORY,
    "cluster": TEXT,
    "http": ADDRESS,
    "urls": URLS,
    "node_urls": URLS,
    "broadcast": ADDRESS,
    "multicast": ADDRESS,
    "peers": ADDRESSES,
    "bind": ADDRESS,
    "preset": _one_of(*PRESETS),
    "bootstrap": SWITCH,
    "chaos": SWITCH,
    "supervisor": FILE,
    "journal": SWITCH,
    "journal_bytes_max": NUMBER,
    "journal_file_bytes_max": NUMBER,
    "journal_file_s": NUMBER,
    "transfer_bytes_per_s": NUMBER,
    "log_level": _one_of("debug", "info", "warning", "error"),
    "log_format": _one_of("text", "json"),
}
"""The kind of each field of `NodeConfig` that is not a table."""


class Setting:
    """A field of `NodeConfig` that is not a table, with its flag and its environment variable."""

    def __init__(self, found: Field[Any], kind: Kind, help: str) -> None:
        self.name = found.name
        self.kind = kind
        self.help = help
        self._field = found

    @property
    def is_required(self) -> bool:
        return self._field.default is MISSING and self._field.default_factory is MISSING

    @property
    def default(self) -> str:
        """The default value as a person would write it, for help texts."""
        if self.is_required:
            return "none, required"
        if self.name == "preset":
            return "none: loopback where the others are on this machine, else lan"
        if self._field.default in (MISSING, None, ()):
            return "none"
        return self.kind.show(self._field.default)

    @property
    def variable(self) -> str:
        return variable_of(self.name)

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")


def variable_of(name: str) -> str:
    """Returns the name of the environment variable of a setting or of a `table.key`."""
    return VARIABLE_PREFIX + name.replace(".", "_").upper()


@cache
def field_docs(config: type) -> Mapping[str, str]:
    """Returns the docstrings of a config class's fields: the strings that follow them in its source."""
    [definition] = ast.parse(inspect.getsource(config)).body
    assert isinstance(definition, ast.ClassDef)
    helps = {}
    for statement, following in zip(definition.body, definition.body[1:], strict=False):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            match following:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    helps[statement.target.id] = inspect.cleandoc(text).replace("\n", " ")
    return helps


SETTINGS: Mapping[str, Setting] = {
    found.name: Setting(found, KINDS[found.name], field_docs(NodeConfig)[found.name])
    for found in fields(NodeConfig)
    if found.name not in TABLES
}

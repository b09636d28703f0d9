"""What `corelkv serve` can be told, and by whom: defaults < TOML file < environment < flags.

The fields of `Settings` are the table from which the flags, the variables, `--help` and `docs/configuration.md`
are made; the layers' own bounds are the fields of their config classes. Every error says where the wrong value
came from. `python -m kvstore.settings` prints the document.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import math
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_type_hints

from corel.config import CorelConfig
from corel.quorum import Roster
from kvstore.store_config import StoreConfig
from membership.config import MembershipConfig
from transport.config import TransportConfig
from transport.messages import NAME_BYTES_MAX
from transport.udp import Address, BroadcastMode, Mode, MulticastMode, PeersMode, parse_address

VARIABLE_PREFIX = "CORELKV_"

TABLES: Mapping[str, type] = {
    "transport": TransportConfig,
    "membership": MembershipConfig,
    "log": CorelConfig,
    "store": StoreConfig,
}
"""The layers' bounds: a table of the file each."""

_REACH = ("broadcast", "multicast", "peers")
"""Of these one applies, of the highest source that names any."""


class SettingsError(Exception):
    """A setting is wrong. The message says where it came from and what is allowed."""


@dataclass(frozen=True, slots=True)
class Kind:
    """How a value is written. `parse` takes its text and raises ValueError; `types` are what TOML may have."""

    form: str
    parse: Callable[[str], Any]
    show: Callable[[Any], str] = str
    types: tuple[type, ...] = (str,)


def _name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_-]+", text) or len(text) > NAME_BYTES_MAX:
        raise ValueError(f"a name has 1 to {NAME_BYTES_MAX} letters, digits, '-' or '_'")
    return text


def _text(text: str) -> str:
    if not text:
        raise ValueError("it must not be empty")
    return text


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
    return MappingProxyType(urls)


def _switch(text: str) -> bool:
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


NAME = Kind("NAME", _name)
TEXT = Kind("TEXT", _text)
DIRECTORY = Kind("DIR", lambda text: Path(_text(text)))
LEVEL = _one_of("debug", "info", "warning", "error")
SWITCH = Kind("true|false", _switch, lambda value: str(value).lower(), (bool,))
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


def _about(kind: Kind, help: str) -> Mapping[str, Any]:
    return {"kind": kind, "help": help}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One node of a cluster."""

    node: str = field(metadata=_about(NAME, "this node's name, one of the roster's"))
    roster: Roster = field(metadata=_about(ROSTER, "all nodes, the same everywhere; `a=2,b` gives a two votes"))
    data: Path = field(metadata=_about(DIRECTORY, "directory for this node's files"))
    cluster: str = field(default="corelkv", metadata=_about(TEXT, "clusters of different names ignore each other"))
    http: Address = field(
        default=("127.0.0.1", 8001), metadata=_about(ADDRESS, "where this node serves its API and console")
    )
    urls: Mapping[str, str] = field(
        default_factory=dict,
        metadata=_about(URLS, "where each node's API is reached, for /v1/cluster and `corelkv partition`"),
    )
    broadcast: Address = field(
        default=("127.255.255.255", 7400),
        metadata=_about(ADDRESS, "reach the others by UDP broadcast; 127.255.255.255 is this machine"),
    )
    multicast: Address | None = field(default=None, metadata=_about(ADDRESS, "or by a UDP multicast group"))
    peers: tuple[Address, ...] = field(
        default=(), metadata=_about(ADDRESSES, "or by a list of all nodes' UDP addresses; needs bind")
    )
    bind: Address | None = field(
        default=None, metadata=_about(ADDRESS, "with peers: the UDP address at which this node listens")
    )
    bootstrap: bool = field(
        default=False,
        metadata=_about(
            SWITCH, "on the very first start of a new cluster, and never again: an empty disk may vote"
        ),
    )
    chaos: bool = field(
        default=False, metadata=_about(SWITCH, "let clients cut and disturb this node's network (/v1/chaos)")
    )
    journal: bool = field(default=True, metadata=_about(SWITCH, "write replication events to DATA/journal"))
    log_level: str = field(default="info", metadata=_about(LEVEL, "the least that is logged (to stderr)"))
    log_format: str = field(
        default="text", metadata=_about(_one_of("text", "json"), "lines for people, or an object per line")
    )
    transport: TransportConfig = field(default_factory=TransportConfig)
    membership: MembershipConfig = field(default_factory=MembershipConfig)
    log: CorelConfig = field(default_factory=CorelConfig)
    store: StoreConfig = field(default_factory=StoreConfig)
    origins: Mapping[str, str] = field(default_factory=dict)
    """Where each setting that is not a default came from; `table.key` for the layers' bounds."""

    def __post_init__(self) -> None:
        if self.node not in self.roster.weights:
            known = ", ".join(self.roster.weights)
            raise SettingsError(f"{self._of('node')} is {self.node}, which is not in the roster: {known}")
        if unknown := [name for name in self.urls if name not in self.roster.weights]:
            raise SettingsError(f"{self._of('urls')} names {unknown[0]}, which is not in the roster")
        if self.peers and self.bind is None:
            raise SettingsError(f"{self._of('peers')} needs bind: which of the addresses is this node's?")
        if self.bind is not None and not self.peers:
            raise SettingsError(f"{self._of('bind')} is for peers only, and there are none")

    @property
    def mode(self) -> Mode:
        if self.peers and self.bind is not None:
            return PeersMode(self.bind, self.peers)
        if self.multicast is not None:
            return MulticastMode(self.multicast)
        return BroadcastMode(self.broadcast)

    @property
    def datagram_bytes_max(self) -> int | None:
        """If somebody asked for it; by default a node chooses what suits its network."""
        asked = "transport.datagram_bytes_max" in self.origins
        return self.transport.datagram_bytes_max if asked else None

    def _of(self, name: str) -> str:
        return self.origins.get(name, name)


_FIELDS: Mapping[str, Field[Any]] = {found.name: found for found in fields(Settings) if "kind" in found.metadata}


def variable_of(name: str) -> str:
    """The environment's name of a setting, or of a `table.key`."""
    return VARIABLE_PREFIX + name.replace(".", "_").upper()


def flag_of(name: str) -> str:
    return "--" + name.replace("_", "-")


# Reading


def load(
    flags: Mapping[str, str], environment: Mapping[str, str], file: Path | None = None, sets: tuple[str, ...] = ()
) -> Settings:
    """`flags` by setting's name, `sets` as in `--set table.key=value`. Raises `SettingsError`."""
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for source in (_from_file(file), _from_environment(environment), _from_flags(flags, sets)):
        _settle_reach(source, values, origins)
        for name, (value, origin) in source.items():
            values[name] = value
            origins[name] = origin
    missing = [name for name, found in _FIELDS.items() if _is_required(found) and name not in values]
    if missing:
        ways = f"{flag_of(missing[0])}, {variable_of(missing[0])} or the file of --config"
        raise SettingsError(f"{missing[0]} is missing ({_FIELDS[missing[0]].metadata['help']}): give it by {ways}")
    plain = {name: value for name, value in values.items() if "." not in name}
    return Settings(**plain, **_tables(values, origins), origins=origins)


_Source = dict[str, tuple[Any, str]]
"""By setting's name (`table.key` in tables): its value, and where it came from."""


def _settle_reach(source: _Source, values: dict[str, Any], origins: dict[str, str]) -> None:
    """A source that says how to reach the others overrides whatever lower ones say of that."""
    named = [name for name in _REACH if name in source]
    if len(named) > 1:
        here = " and ".join(source[name][1] for name in named)
        raise SettingsError(f"{here} exclude each other: choose one way to reach the other nodes")
    if named:
        for name in (*_REACH, *(() if named == ["peers"] else ("bind",))):
            values.pop(name, None)
            origins.pop(name, None)


def _from_file(path: Path | None) -> _Source:
    if path is None:
        return {}
    try:
        content = tomllib.loads(path.read_text())
    except OSError as error:
        raise SettingsError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} is not TOML: {error}") from None
    found: _Source = {}
    for key, value in content.items():
        if key in TABLES and isinstance(value, dict):
            for inner, bound in value.items():
                _check_key(key, inner, f"{path}, [{key}]")
                origin = f"{path}, [{key}] {inner}"
                found[f"{key}.{inner}"] = _bound_of(key, inner, bound, origin), origin
        elif key in _FIELDS:
            origin = f"{path}, {key}"
            found[key] = _parsed(key, _text_of(value, _FIELDS[key].metadata["kind"], origin), origin), origin
        elif key in TABLES:
            raise SettingsError(f"{path}, {key}: {value!r} should be a table: write [{key}] and its keys under it")
        else:
            raise SettingsError(f"{path}: there is no setting {key}{_nearest(key, [*_FIELDS, *TABLES])}")
    return found


def _from_environment(environment: Mapping[str, str]) -> _Source:
    """Variables of other names are somebody else's: orchestrators make `CORELKV_PORT` of a service's name."""
    found: _Source = {}
    for name in _FIELDS:
        variable = variable_of(name)
        if variable in environment:
            found[name] = _parsed(name, environment[variable], variable), variable
    for table, config in TABLES.items():
        for bound in fields(config):
            name = f"{table}.{bound.name}"
            variable = variable_of(name)
            if variable in environment:
                found[name] = _bound_of(table, bound.name, environment[variable], variable), variable
    return found


def _from_flags(flags: Mapping[str, str], sets: tuple[str, ...]) -> _Source:
    found: _Source = {name: (_parsed(name, text, flag_of(name)), flag_of(name)) for name, text in flags.items()}
    for text in sets:
        origin = f"--set {text}"
        name, equals, value = text.partition("=")
        table, dot, key = name.partition(".")
        if not equals or not dot or table not in TABLES:
            known = ", ".join(TABLES)
            raise SettingsError(f"{origin}: expected TABLE.KEY=VALUE, where TABLE is one of {known}")
        _check_key(table, key, origin)
        found[name] = _bound_of(table, key, value, origin), origin
    return found


def _text_of(value: Any, kind: Kind, origin: str) -> str:
    """A value of TOML in the form of flags and variables, so that there is one parser of each kind."""
    if type(value) not in kind.types:
        names = {str: "a string", list: "an array of strings", dict: "a table", bool: "true or false"}
        allowed = " or ".join(names[allowed] for allowed in kind.types)
        raise SettingsError(f"{origin}: {value!r} should be {allowed}, like {kind.form}")
    if isinstance(value, list):
        return ",".join(map(str, value))
    if isinstance(value, dict):
        return ",".join(f"{name}={inner}" for name, inner in value.items())
    return str(value)


def _parsed(name: str, text: str, origin: str) -> Any:
    kind: Kind = _FIELDS[name].metadata["kind"]
    try:
        return kind.parse(text)
    except ValueError as error:
        raise SettingsError(f"{origin}: {text!r} is not {kind.form}: {error}") from None


def _check_key(table: str, key: str, origin: str) -> None:
    known = [bound.name for bound in fields(TABLES[table])]
    if key not in known:
        elsewhere = f"; did you mean {table}_{key}, outside the table?" if f"{table}_{key}" in _FIELDS else ""
        raise SettingsError(f"{origin}: there is no {key} in [{table}]{elsewhere or _nearest(key, known)}")


def _nearest(key: str, known: list[str]) -> str:
    nearest = get_close_matches(key, known, 1, 0.5)
    return f"; did you mean {nearest[0]}?" if nearest else f"; there are {', '.join(known)}"


def _bound_of(table: str, key: str, value: Any, origin: str) -> int | float | bool:
    """A bound from TOML's value or from text, which for numbers and switches are written alike."""
    wanted = get_type_hints(TABLES[table])[key]
    text = str(value).lower() if isinstance(value, bool) else str(value)
    is_number = not isinstance(value, (bool, list, dict))
    try:
        if wanted is bool:
            return _switch(text)
        if is_number and wanted is int and int(text.replace("_", "")) >= 0:
            return int(text.replace("_", ""))
        if is_number and wanted is float and 0.0 <= float(text) < math.inf:
            return float(text)
    except ValueError:
        pass
    raise SettingsError(f"{origin}: {value!r} is not {_FORMS[wanted]}")


_FORMS = {bool: "true or false", int: "a whole number, 0 or more", float: "a number, 0 or more"}


def _tables(values: Mapping[str, Any], origins: Mapping[str, str]) -> dict[str, Any]:
    configs = {}
    for table, config in TABLES.items():
        given = {name.partition(".")[2]: value for name, value in values.items() if name.startswith(f"{table}.")}
        try:
            configs[table] = config(**given)
        except ValueError as error:
            sources = ", ".join(origins[f"{table}.{key}"] for key in given)
            raise SettingsError(f"[{table}] cannot be like that: {error} (given by {sources})") from None
    return configs


# Flags


def add_flags(parser: argparse.ArgumentParser) -> None:
    """A flag for each setting. Their texts are parsed by `load`, which can say more of an error."""
    parser.add_argument("--config", metavar="FILE", type=Path, help=f"TOML file ({variable_of('config')})")
    for name, found in _FIELDS.items():
        kind: Kind = found.metadata["kind"]
        help = f"{found.metadata['help']} (default: {_default(found)})".replace("%", "%%")
        if kind is SWITCH:
            parser.add_argument(flag_of(name), action=argparse.BooleanOptionalAction, default=None, help=help)
        else:
            parser.add_argument(flag_of(name), metavar=kind.form, help=help)
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="TABLE.KEY=VALUE",
        help="a bound of a layer, like membership.suspect_after_ms=800; may be repeated",
    )


def from_arguments(options: argparse.Namespace, environment: Mapping[str, str]) -> Settings:
    """What `add_flags` led to, with the environment and the file below it."""
    flags = {name: getattr(options, name) for name in _FIELDS if getattr(options, name) is not None}
    texts = {name: str(value).lower() if isinstance(value, bool) else value for name, value in flags.items()}
    named = environment.get(variable_of("config"))
    file = options.config or (Path(named) if named else None)
    return load(texts, environment, file, tuple(options.set))


def _is_required(found: Field[Any]) -> bool:
    return found.default is MISSING and found.default_factory is MISSING


def _default(found: Field[Any]) -> str:
    if _is_required(found):
        return "none, required"
    if found.default in (MISSING, None, ()):
        return "none"
    kind: Kind = found.metadata["kind"]
    return kind.show(found.default)


# The document


def render_markdown() -> str:
    """`docs/configuration.md`."""
    return "\n".join([*_INTRODUCTION, *_render_settings(), *_EXAMPLE, *_render_tables()])


_INTRODUCTION = """# Configuring a node

<!-- Generated: `python -m kvstore.settings > docs/configuration.md`. The sources are kvstore/settings.py and the
layers' config classes. -->

`corelkv serve` takes its settings from four sources, each of which overrides those before it: the defaults, a
TOML file (`--config FILE` or `CORELKV_CONFIG`), environment variables, flags. A setting `some_name` is the key
`some_name` of the file, the variable `CORELKV_SOME_NAME`, and the flag `--some-name`; switches also have
`--no-some-name`. A value that is wrong, or a key of the file that nobody knows, ends the command with status 2 and
a sentence that says where it came from and what is allowed.

Of `broadcast`, `multicast` and `peers` one applies: the one that the highest source names.

""".splitlines()

_EXAMPLE = """
A file:

```toml
node = "a"
roster = ["a", "b", "c"]        # or "a,b,c", or { a = 2, b = 1 } with weights
data = "/var/lib/corelkv"
http = "10.0.0.1:8001"
peers = ["10.0.0.1:7400", "10.0.0.2:7400", "10.0.0.3:7400"]
bind = "10.0.0.1:7400"
log_format = "json"

[urls]
a = "http://10.0.0.1:8001"
b = "http://10.0.0.2:8001"
c = "http://10.0.0.3:8001"

[membership]
suspect_after_ms = 800
```

## The layers' bounds

Tables of the file. The key `key` of the table `[table]` is also the variable `CORELKV_TABLE_KEY` and
`--set table.key=value`. The defaults suit a LAN.

""".splitlines()


def _render_settings() -> Iterator[str]:
    yield "| setting | form | default | what it is |"
    yield "|---|---|---|---|"
    for name, found in _FIELDS.items():
        form = found.metadata["kind"].form.replace("|", "\\|")
        default = _default(found)
        shown = default if default.startswith("none") else f"`{default}`"
        yield f"| `{name}` | `{form}` | {shown} | {found.metadata['help']} |"


def _render_tables() -> Iterator[str]:
    for table, config in TABLES.items():
        helps = _helps(config)
        yield from (f"### [{table}]", "", "| key | default | what it trades off |", "|---|---|---|")
        for bound in fields(config):
            default = str(bound.default).lower() if isinstance(bound.default, bool) else f"{bound.default:,}"
            yield f"| `{bound.name}` | {default} | {helps.get(bound.name, '')} |"
        yield ""


def _helps(config: type) -> dict[str, str]:
    """The strings under the fields, where their trade-offs are written."""
    [definition] = ast.parse(inspect.getsource(config)).body
    assert isinstance(definition, ast.ClassDef)
    helps = {}
    for statement, following in zip(definition.body, definition.body[1:], strict=False):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            match following:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    helps[statement.target.id] = inspect.cleandoc(text).replace("\n", " ").replace("|", "\\|")
    return helps


if __name__ == "__main__":
    print(render_markdown(), end="")

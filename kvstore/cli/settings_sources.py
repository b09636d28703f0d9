"""Reads the settings from their sources, each of which overrides those before: defaults, TOML file, environment,
flags.

Every error says where the wrong value came from."""

from __future__ import annotations

import argparse
import math
import tomllib
from collections.abc import Mapping
from dataclasses import fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_type_hints

from kvstore.cli.settings import SETTINGS, SWITCH, TABLES, Kind, switch, variable_of
from kvstore.node import PRESETS, ConfigError, NodeConfig, Preset, preset_for

_REACH = ("broadcast", "multicast", "peers")
"""The ways to reach the other nodes. One applies: the one that the highest source names."""


class SettingsError(Exception):
    """A setting is wrong. The message says where it came from and what is allowed."""


def load(
    flags: Mapping[str, str], environment: Mapping[str, str], file: Path | None = None, sets: tuple[str, ...] = ()
) -> NodeConfig:
    """Returns the config that all sources result in. `flags` has texts by the setting's name, and `sets` has texts
    of the form `table.key=value`. Raises `SettingsError`."""
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for source in (_from_file(file), _from_environment(environment), _from_flags(flags, sets)):
        _settle_reach(source, values, origins)
        for name, (value, origin) in source.items():
            values[name] = value
            origins[name] = origin
    missing = [setting for setting in SETTINGS.values() if setting.is_required and setting.name not in values]
    if missing:
        ways = f"{missing[0].flag}, {missing[0].variable} or the file of --config"
        raise SettingsError(f"{missing[0].name} is missing ({missing[0].help}): give it by {ways}")
    plain = {name: value for name, value in values.items() if "." not in name}
    try:
        config = NodeConfig(**plain)
        preset = values.get("preset") or preset_for(config.mode)
        return replace(config, preset=preset, **_tables(PRESETS[preset], values, origins))
    except ConfigError as error:
        raise SettingsError(f"{origins.get(error.setting, error.setting)} {error.problem}") from None


_Source = dict[str, tuple[Any, str]]
"""Values by the setting's name (`table.key` in tables), each with where it came from."""


def _settle_reach(source: _Source, values: dict[str, Any], origins: dict[str, str]) -> None:
    """Removes what lower sources say about how to reach the other nodes, if this source says anything about it."""
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
        elif key in SETTINGS:
            origin = f"{path}, {key}"
            found[key] = _parsed(key, _text_of(value, SETTINGS[key].kind, origin), origin), origin
        elif key in TABLES:
            raise SettingsError(f"{path}, {key}: {value!r} should be a table: write [{key}] and its keys under it")
        else:
            raise SettingsError(f"{path}: there is no setting {key}{_nearest(key, [*SETTINGS, *TABLES])}")
    return found


def _from_environment(environment: Mapping[str, str]) -> _Source:
    """Ignores unknown variables, even with our prefix: orchestrators make `CORELKV_PORT` from a service's name."""
    found: _Source = {}
    for name, setting in SETTINGS.items():
        if setting.variable in environment:
            found[name] = _parsed(name, environment[setting.variable], setting.variable), setting.variable
    for table, config in TABLES.items():
        for bound in fields(config):
            name = f"{table}.{bound.name}"
            variable = variable_of(name)
            if variable in environment:
                found[name] = _bound_of(table, bound.name, environment[variable], variable), variable
    return found


def _from_flags(flags: Mapping[str, str], sets: tuple[str, ...]) -> _Source:
    found: _Source = {}
    for name, text in flags.items():
        flag = SETTINGS[name].flag
        found[name] = _parsed(name, text, flag), flag
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
    """Returns a TOML value in the form of flags and variables, so that there is one parser of each kind."""
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
    kind = SETTINGS[name].kind
    try:
        return kind.parse(text)
    except ValueError as error:
        raise SettingsError(f"{origin}: {text!r} is not {kind.form}: {error}") from None


def _check_key(table: str, key: str, origin: str) -> None:
    known = [bound.name for bound in fields(TABLES[table])]
    if key not in known:
        elsewhere = f"; did you mean {table}_{key}, outside the table?" if f"{table}_{key}" in SETTINGS else ""
        raise SettingsError(f"{origin}: there is no {key} in [{table}]{elsewhere or _nearest(key, known)}")


def _nearest(key: str, known: list[str]) -> str:
    nearest = get_close_matches(key, known, 1, 0.5)
    return f"; did you mean {nearest[0]}?" if nearest else f"; there are {', '.join(known)}"


def _bound_of(table: str, key: str, value: Any, origin: str) -> int | float | bool:
    """Returns a bound from a TOML value or a text: numbers and switches are written alike in both."""
    wanted = get_type_hints(TABLES[table])[key]
    text = str(value).lower() if isinstance(value, bool) else str(value)
    is_number = not isinstance(value, (bool, list, dict))
    try:
        if wanted is bool:
            return switch(text)
        if is_number and wanted is int and int(text.replace("_", "")) >= 0:
            return int(text.replace("_", ""))
        if is_number and wanted is float and 0.0 <= float(text) < math.inf:
            return float(text)
    except ValueError:
        pass
    raise SettingsError(f"{origin}: {value!r} is not {_FORMS[wanted]}")


_FORMS = {bool: "true or false", int: "a whole number, 0 or more", float: "a number, 0 or more"}


def _tables(preset: Preset, values: Mapping[str, Any], origins: Mapping[str, str]) -> dict[str, Any]:
    """Returns the layers' configs: the bounds of the preset, except where a source sets another value."""
    configs = {}
    for table in TABLES:
        given = {name.partition(".")[2]: value for name, value in values.items() if name.startswith(f"{table}.")}
        try:
            configs[table] = replace(getattr(preset, table), **given)
        except ValueError as error:
            sources = ", ".join(origins[f"{table}.{key}"] for key in given)
            raise SettingsError(f"[{table}] cannot be like that: {error} (given by {sources})") from None
    return configs


# Flags


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds a flag for each setting. `load` parses their texts, because it can say more about an error."""
    parser.add_argument("--config", metavar="FILE", type=Path, help=f"TOML file ({variable_of('config')})")
    for setting in SETTINGS.values():
        help = f"{setting.help} (default: {setting.default})".replace("%", "%%")
        if setting.kind is SWITCH:
            parser.add_argument(setting.flag, action=argparse.BooleanOptionalAction, default=None, help=help)
        else:
            parser.add_argument(setting.flag, metavar=setting.kind.form, help=help)
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="TABLE.KEY=VALUE",
        help="a bound of a layer, like membership.suspect_after_ms=800; may be repeated",
    )


def from_arguments(options: argparse.Namespace, environment: Mapping[str, str]) -> NodeConfig:
    """Returns the config from parsed flags, the environment and the file. Raises `SettingsError`."""
    flags = {name: getattr(options, name) for name in SETTINGS if getattr(options, name) is not None}
    texts = {name: str(value).lower() if isinstance(value, bool) else value for name, value in flags.items()}
    named = environment.get(variable_of("config"))
    file = options.config or (Path(named) if named else None)
    return load(texts, environment, file, tuple(options.set))

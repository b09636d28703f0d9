"""Generates `docs/configuration.md` from the settings and the layers' config classes.

`python -m kvstore.cli.settings_document` prints it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from kvstore.cli.settings import SETTINGS, TABLES, field_docs
from kvstore.node import PRESETS


def render_markdown() -> str:
    """Returns the text of `docs/configuration.md`."""
    return "\n".join([*_INTRODUCTION, *_render_settings(), *_EXAMPLE, *_render_tables()])


_INTRODUCTION = """# Configuring a node

<!-- Generated: `python -m kvstore.cli.settings_document > docs/configuration.md`. The sources are
kvstore/node/config.py and the layers' config classes. -->

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
`--set table.key=value`. The defaults are those of the preset `lan`, which suits an Ethernet of today; where the
preset `loopback`, for nodes of one machine, has another one, that is said. A node takes the preset that fits the
address by which it reaches the others, unless `preset` names one; keys that are set replace single bounds of it.

The kernel may grant a smaller receive buffer than a node asks for. `window_bytes_max` is then lowered to half of
what was granted, and the node's log says so when it starts.

""".splitlines()


def _render_settings() -> Iterator[str]:
    yield "| setting | form | default | what it is |"
    yield "|---|---|---|---|"
    for setting in SETTINGS.values():
        form = setting.kind.form.replace("|", "\\|")
        shown = setting.default if setting.default.startswith("none") else f"`{setting.default}`"
        yield f"| `{setting.name}` | `{form}` | {shown} | {setting.help} |"


def _render_tables() -> Iterator[str]:
    for table, config in TABLES.items():
        helps = field_docs(config)
        yield from (f"### [{table}]", "", "| key | default | what it trades off |", "|---|---|---|")
        for bound in fields(config):
            help = helps[bound.name].replace("|", "\\|")
            yield f"| `{bound.name}` | {_defaults(table, bound.name)} | {help} |"
        yield ""


def _defaults(table: str, key: str) -> str:
    """Returns a bound's default in the preset `lan`, and in the other presets where it differs."""
    shown = {name: _show(getattr(getattr(preset, table), key)) for name, preset in PRESETS.items()}
    default = shown.pop("lan")
    others = [f"{value} in `{name}`" for name, value in shown.items() if value != default]
    return "; ".join([default, *others])


def _show(value: float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:,}"


if __name__ == "__main__":
    print(render_markdown(), end="")

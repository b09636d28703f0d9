"""What the parsers of all commands have in common: how help looks, and types of arguments."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from string import ascii_lowercase
from typing import Any


class Parser(argparse.ArgumentParser):
    """Prints examples as they are written, and accepts no abbreviated flags: adding a flag could change the
    meaning of `--no-re`."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(formatter_class=_Formatter, allow_abbrev=False, **arguments)


class _Formatter(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28, width=115)


def add_command(
    subparsers: Any, name: str, run: Callable[[argparse.Namespace], int], help: str, examples: str
) -> Any:
    """Adds a command: `run` does it, and each line of `examples` is what follows its name."""
    text = "examples:\n" + "\n".join(f"  corelkv {name} {line}".rstrip() for line in examples.splitlines())
    parser = subparsers.add_parser(name, help=help, description=f"{help[0].upper()}{help[1:]}.", epilog=text)
    parser.set_defaults(run=run)
    return parser


def number(text: str) -> int:
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def seconds(text: str) -> float:
    return _between(text, 0.05, 3_600.0, " seconds")


def speed(text: str) -> float:
    return _between(text, 0.01, 100.0)


def _between(text: str, least: float, most: float, unit: str = "") -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not least <= number <= most:
        raise argparse.ArgumentTypeError(f"between {least:g} and {most:g}{unit}, not {text}")
    return number


def port(text: str) -> int:
    if not text.isdigit() or not 0 < int(text) < 65_536:
        raise argparse.ArgumentTypeError(f"a port is between 1 and 65535, not {text}")
    return int(text)


def node_count(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= len(ascii_lowercase):
        raise argparse.ArgumentTypeError(f"between 1 and {len(ascii_lowercase)}, not {text}")
    return int(text)

"""What the commands print, and the exit statuses with which they end."""

from __future__ import annotations

import json
import os
import sys
from base64 import b64encode
from collections.abc import Sequence
from enum import IntEnum
from typing import TextIO


class Exit(IntEnum):
    """The exit statuses of `corelkv`. `EXITS` describes them for `--help`."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FINAL = 3
    CONDITION_FAILED = 4
    NOT_FOUND = 5
    UNREACHABLE = 6
    NOT_PROVEN = 7
    INTERRUPTED = 130


EXITS = {
    Exit.OK: "done",
    Exit.FAILED: "failed or refused; stderr says why",
    Exit.USAGE: "wrong arguments or settings",
    Exit.NOT_FINAL: "accepted and durable, but not final yet (red or yellow)",
    Exit.CONDITION_FAILED: "the write's condition does not hold, or it yielded to another; nothing was changed",
    Exit.NOT_FOUND: "no such key or write",
    Exit.UNREACHABLE: "a node cannot be reached",
    Exit.NOT_PROVEN: "no log contradicts another, but they do not prove everything (analyze)",
    Exit.INTERRUPTED: "interrupted by Ctrl-C (cluster and serve end with 0: it is how they are stopped)",
}


class UsageError(Exception):
    """The arguments are wrong. The message says why."""


def fail(error: object, status: Exit) -> Exit:
    sys.stdout.flush()
    print(f"corelkv: {error}", file=sys.stderr)
    return status


def shown_value(value: bytes) -> object:
    """Returns a value as JSON has it: text where it is UTF-8."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(value).decode()}


def on_one_line(value: bytes | None) -> str:
    """Returns a value as a line of text has it: without control characters, and bytes that are no text only
    counted."""
    if value is None:
        return ""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return f"<{len(value)} bytes>"
    return printable(text)


def printable(text: str) -> str:
    """Returns text without control characters: keys are chosen by anyone, and a terminal obeys what it is sent."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def is_live_terminal(stream: TextIO) -> bool:
    """Returns whether lines can be overwritten there. A pipe or a dumb terminal gets plain lines."""
    return stream.isatty() and os.environ.get("TERM", "").lower() not in ("dumb", "unknown")


def print_json(content: object) -> None:
    print(json.dumps(content, indent=2 if sys.stdout.isatty() else None, ensure_ascii=False))


def print_json_line(content: object) -> None:
    """For commands that print as they go: one object to a line, on a terminal, too."""
    print(json.dumps(content, ensure_ascii=False), flush=True)


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a table as plain text. `tables` prints it in the form that suits where it goes."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in (header, *rows)
    )
    return "\n".join(line.rstrip() for line in lines)

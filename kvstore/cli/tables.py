"""Tables of all commands: drawn on a terminal, plain text elsewhere, which scripts read.

rich is imported only to draw: it would make every other command a fifth slower."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import NamedTuple

from kvstore.cli.output import is_live_terminal, printable, table

_ROWS_AT_ONCE = 200
"""So many rows of a long table decide how wide its columns are, and are printed before the next are asked for."""

_STYLES = {
    "green": "green",
    "yellow": "yellow",
    "red": "red",
    "primary": "green",
    "establishing": "yellow",
    "recovering": "yellow",
    "non primary": "red",
    "unreachable": "magenta",
    "away": "red",
}
"""Of cells that are one of these words. The word says the same as its colour."""

_LONG = frozenset({"value", "operations", "other", "keys"})
"""Columns that are cut where there is no room; all others are continued on the next line."""


class Row(NamedTuple):
    """A row of a table, and the line that scripts get instead."""

    cells: tuple[str, ...]
    line: str


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints a table that is complete."""
    if is_live_terminal(sys.stdout):
        _draw(header, rows)
    else:
        print(table(header, rows))


def print_rows(header: Sequence[str], rows: Iterable[Row]) -> None:
    """Prints a table that may be long, as it comes. Without a terminal, its lines have no header."""
    if not is_live_terminal(sys.stdout):
        for row in rows:
            print(row.line)
        return
    remaining = iter(rows)
    widths: Sequence[int] = ()
    while chunk := [row.cells for row in islice(remaining, _ROWS_AT_ONCE)]:
        widths = _draw(header, chunk, widths)


def _draw(header: Sequence[str], rows: Sequence[Sequence[str]], before: Sequence[int] = ()) -> Sequence[int]:
    """Draws rows, below those drawn before if `before` has the widths of their columns. Returns the widths."""
    from rich.cells import cell_len
    from rich.console import Console, OverflowMethod
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    shown = [[printable(cell) for cell in row] for row in rows]
    widths = before or [max(map(cell_len, column)) for column in zip(header, *shown, strict=True)]
    drawn = Table(box=None, show_header=not before, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    cut: OverflowMethod = "ellipsis" if console.options.encoding.startswith("utf") else "crop"
    for name, width in zip(header, widths, strict=True):
        if name in _LONG:
            drawn.add_column(name, max_width=width, no_wrap=True, overflow=cut)
        else:
            drawn.add_column(name, max_width=width, min_width=min(width, console.width // 3), overflow="fold")
    for row in shown:
        drawn.add_row(*(Text(cell, _STYLES.get(cell, "")) for cell in row))
    console.print(drawn)
    return widths

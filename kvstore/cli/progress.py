"""Progress of long work: a bar on stderr if that is a terminal, and nothing elsewhere.

rich is imported only to draw: it would make every other command a fifth slower."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

from kvstore.cli.output import is_live_terminal

Advance = Callable[[int], None]
"""Says how much is done in all."""


def is_shown() -> bool:
    """Whether a bar would be drawn: what it needs beforehand, such as a total, need not be asked for if not."""
    return is_live_terminal(sys.stderr)


@contextlib.contextmanager
def progress(what: str, total: int | None) -> Iterator[Advance]:
    """Shows a bar while the block runs, and takes it away afterwards. Without a total it only counts."""
    if not is_shown():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    is_below = sys.stdout.isatty()  # what is printed meanwhile appears above the bar; a file's content stays there
    with Progress(*columns, console=console, transient=True, redirect_stdout=is_below) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, completed=done)


@contextlib.contextmanager
def steps(total: int) -> Iterator[Callable[[str], None]]:
    """Shows which step of long work is under way: in a bar on a terminal, elsewhere in a line for each on stderr.
    What it yields takes the name of the step that begins."""
    done = -1
    if not is_shown():
        yield lambda name: print(f"{name} …", file=sys.stderr, flush=True)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description:10}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)

        def begin(name: str) -> None:
            nonlocal done
            done += 1
            bar.update(task, description=name, completed=done)

        yield begin

"""Planting bugs. A mutant edits the text of a function, so that its row shows the bug itself; when the line that
it edits is no longer there, it raises."""

from __future__ import annotations

import inspect
import textwrap
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from tests.simulator.checkers import Violation


class Edit(NamedTuple):
    """Replaces `old`, which the source of the function must have once, by `new`."""

    owner: type | ModuleType
    function: str
    old: str
    new: str


class Mutant(NamedTuple):
    name: str
    breaks: tuple[str, ...]
    """The checkers or exceptions that may notice it first."""
    edits: tuple[Edit, ...]
    first_seed: int = 1
    """Where the search begins: the rarer a bug shows, the closer to a seed that shows it."""
    nodes: tuple[int, int] = (3, 5)
    test: Callable[[], None] | None = None
    """A directed test that notices it, where few seeds do."""


@contextmanager
def planted(mutant: Mutant) -> Iterator[None]:
    edits = [(edit, mutated(edit)) for edit in mutant.edits]
    with pytest.MonkeyPatch.context() as patch:
        for edit, function in edits:
            patch.setattr(edit.owner, edit.function, function)
        yield


def hunt(
    mutant: Mutant, seeds: range, broken_property: Callable[[int, tuple[int, int]], str | None]
) -> tuple[int, str] | None:
    """Returns the first seed that notices the mutant (and passes without it), and what noticed."""
    for seed in seeds:
        with planted(mutant):
            broken = broken_property(seed, mutant.nodes)
        if broken == NameError.__name__:
            raise LookupError(f"{mutant.name!r} names something that is not there: adapt the mutant")
        if broken is not None and broken_property(seed, mutant.nodes) is None:
            return seed, broken
    return None


def what_breaks(run: Callable[[], None]) -> str | None:
    """Returns the checker that a run violates (or `corel.run`, and the like, for the run's own checks), or the
    kind of exception that it raises."""
    try:
        run()
    except Violation as violation:
        file = Path(traceback.extract_tb(violation.__traceback__)[-1].filename)
        return file.stem if file.parent.name == "checkers" else f"{file.parent.name}.{file.stem}"
    except Exception as error:
        return type(error).__name__
    return None


def fails_with(mutant: Mutant, test: Callable[[], None]) -> bool:
    """Whether a directed test fails with the mutant. Raises if it fails without it."""
    test()
    with planted(mutant):  # a mutant that does not fit its source raises here
        try:
            test()
        except (Exception, pytest.fail.Exception):
            return True
    return False


def mutated(edit: Edit) -> object:
    """Returns the function, or the property, with the edit made."""
    found = vars(edit.owner)[edit.function]
    function: Any = found.fget if isinstance(found, property) else found
    source = textwrap.dedent(inspect.getsource(function))
    if source.count(edit.old) != 1:
        raise LookupError(f"{edit.function} has {edit.old!r} not once: adapt the mutant to its source")
    namespace: dict[str, object] = {}
    exec(compile(source.replace(edit.old, edit.new), "<mutant>", "exec"), function.__globals__, namespace)
    return namespace[edit.function]

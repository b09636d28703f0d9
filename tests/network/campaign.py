"""Runs the scenarios of a LAN test again and again, and says how long what followed took.

Needs root, for network namespaces. A campaign prints Markdown for `docs/performance.md`; its exit status is 1 if a
scenario failed or an aim was missed. The files of what failed are kept.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Generic, Protocol, TypeVar

Nodes = TypeVar("Nodes")
Nodes_contra = TypeVar("Nodes_contra", contravariant=True)


class Findings(Protocol[Nodes_contra]):
    """What all repetitions of a scenario showed."""

    failures: int

    def add(self, nodes: Nodes_contra) -> str:
        """Takes in what one repetition showed, and returns it in a few words."""


class Campaign(Generic[Nodes]):
    """The scenarios of one LAN test, with what they have shown so far."""

    def __init__(
        self,
        scenarios: Mapping[str, Callable[[Nodes], None]],
        findings: Mapping[str, Findings[Nodes]],
        running: Callable[[Path], AbstractContextManager[Nodes]],
        is_kept: bool,
    ) -> None:
        self._scenarios = scenarios
        self._findings = findings
        self._running = running
        self._is_kept = is_kept
        self._directory = Path(tempfile.mkdtemp(prefix="campaign-"))

    def repeat(self, repetitions: int) -> None:
        for repetition in range(repetitions):
            for name, found in self._findings.items():
                where = self._directory / f"{name.replace(', ', '-').replace(' ', '-')}-{repetition}"
                self._run(self._scenarios[name], where, found)

    def finish(self) -> int:
        """Says where the files are, if they were kept, and returns how many repetitions failed."""
        failures = sum(found.failures for found in self._findings.values())
        if failures or self._is_kept:
            print(f"{failures} scenarios failed; their files are in {self._directory}")
        else:
            self._directory.rmdir()
        return failures

    def _run(self, scenario: Callable[[Nodes], None], directory: Path, found: Findings[Nodes]) -> None:
        directory.mkdir()
        try:
            with self._running(directory) as nodes:
                scenario(nodes)
        except Exception:  # whatever it was, the other repetitions are worth seeing
            found.failures += 1
            print(f"{directory.name} failed:", file=sys.stderr)
            traceback.print_exc()
            return
        summary = found.add(nodes)
        if not self._is_kept:
            shutil.rmtree(directory)
        print(f"{directory.name}: {summary}", file=sys.stderr, flush=True)


def new_parser(module: str, description: str | None, scenarios: Iterable[str]) -> argparse.ArgumentParser:
    """A parser of the flags that every campaign has."""
    parser = argparse.ArgumentParser(prog=f"python -m tests.network.{module}", description=description)
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--scenario", action="append", choices=list(scenarios), help="only this (repeatable)")
    parser.add_argument("--keep", action="store_true", help="keep the files of what succeeded, too")
    return parser


def verdict(missed: Iterable[str]) -> str:
    """Says whether an aim was reached, or by which scenarios it was missed."""
    names = ", ".join(missed)
    return f"missed by {names}" if names else "reached"

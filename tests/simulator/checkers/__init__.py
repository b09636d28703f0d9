"""The properties that every run keeps, one per file. A checker sees every event of a run and raises
`Violation`."""

from tests.simulator.checkers.base import Checker, Violation

__all__ = ["Checker", "Violation"]

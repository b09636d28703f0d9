"""Properties of all views that were ever installed, also by machines that have crashed since.

Each check is named after the paper's claim: P.1 and P.2 of section 3, Theorem 5.5, and the transitional set that
takes the place of the paper's intermediate configuration changes.
"""

from __future__ import annotations

from collections.abc import Iterable

from membership.messages import Configuration
from tests.exploration.node import Install, Violation


def check(new: Install, others: Iterable[Install]) -> None:
    """Checks an installation against all those before it."""
    others = list(others)
    _check_alone(new)
    for other in others:
        if other.view.id == new.view.id:
            _check_same_view(new, other)
    installs = [*others, new]
    for assent in installs:
        if assent.configuration is not None:
            _check_theorem_5_5(assent, assent.configuration, installs)


def _check_alone(new: Install) -> None:
    if new.machine not in new.view.members:
        raise Violation(f"own view: {new.machine} installs {new.view.id}, of which it is no member")
    if new.before is not None and new.before >= new.view.id:
        raise Violation(f"ascending views: {new.machine} installs {new.view.id} after {new.before}")
    if new.machine not in new.view.transitional or not set(new.view.transitional) <= set(new.view.members):
        raise Violation(f"transitional set: {new.machine} has {new.view}")


def _check_same_view(new: Install, other: Install) -> None:
    if new.machine == other.machine:
        raise Violation(f"ascending views: {new.machine} installs {new.view.id} twice")
    if new.view.members != other.view.members:
        raise Violation(f"P.1: {new.machine} has {new.view}, {other.machine} has {other.view}")
    if new.expected != other.expected:
        raise Violation(
            f"P.1: {new.machine} and {other.machine} expect {new.expected} and {other.expected} in {new.view.id}"
        )
    came_together = new.before is not None and new.before == other.before
    for one, another in ((new, other), (other, new)):
        if (another.machine in one.view.transitional) != came_together:
            raise Violation(
                f"transitional set: {one.machine} has {one.view.transitional} from {one.before} to {one.view.id}; "
                f"{another.machine} came from {another.before}"
            )
    if came_together and new.covered != other.covered:
        raise Violation(
            f"P.2: {new.machine} and {other.machine} went from {new.before} to {new.view.id}, but delivered "
            f"{new.covered} and {other.covered}"
        )


def _check_theorem_5_5(assent: Install, configuration: Configuration, installs: list[Install]) -> None:
    """If p assents to a join configuration and q is in Accept, q cannot assent to a different one.

    Accept is the new view, and q's elector names the view in which q agreed. When q leaves that view it must be
    for the same configuration, with whatever F_after. Or q had assented to it already: its elector then is a FA in
    a later view, which names the last configuration that its sender committed to."""
    left = {(install.machine, install.before): install for install in installs}
    for member, view in assent.elector_views:
        leaving = left.get((member, view))
        if leaving is None or leaving.configuration == configuration:
            continue
        has_assented = any(
            install.machine == member and install.view.id <= view and install.configuration == configuration
            for install in installs
        )
        if not has_assented:
            raise Violation(
                f"Theorem 5.5: {assent.machine} assented to {_shown(configuration)} with {member}, which left "
                f"{view} for {_shown(leaving.configuration)}"
            )


def _shown(configuration: Configuration | None) -> str:
    if configuration is None:
        return "a configuration without a join"
    views, faults = (" ".join(map(str, sorted(part))) for part in configuration)
    return f"<{views} | {faults or 'no faults'}>"

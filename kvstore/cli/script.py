"""Scripts of the console's laboratory: what was done to a dev cluster, and when (`docs/console.md`)."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from kvstore.cli.output import UsageError

FORMAT = "corelkv-script"
VERSION = 1
STEPS_MAX = 10_000
AT_MS_MAX = 24 * 3_600_000
DELAY_MS_MAX = 60_000
WRITES_PER_SECOND_MAX = 1_000
WORKLOAD_SECONDS_MAX = 3_600


@dataclass(frozen=True, slots=True)
class Partition:
    """Cut the links between islands; every node is on one of them."""

    islands: tuple[tuple[str, ...], ...]

    def __str__(self) -> str:
        return f"cut {' | '.join(map(','.join, self.islands))}"


@dataclass(frozen=True, slots=True)
class Disturb:
    """Let these nodes lose a share of what they receive, and get the rest late; the others, and cuts, stay as they
    are."""

    nodes: tuple[str, ...]
    loss: float
    delay_ms: float

    def __str__(self) -> str:
        return f"{self.loss * 100.0:g} % loss, {self.delay_ms:g} ms delay at {','.join(self.nodes)}"


@dataclass(frozen=True, slots=True)
class Heal:
    """End all disturbances of the network."""

    def __str__(self) -> str:
        return "heal all links"


@dataclass(frozen=True, slots=True)
class Kill:
    node: str

    def __str__(self) -> str:
        return f"kill {self.node}"


@dataclass(frozen=True, slots=True)
class Start:
    node: str

    def __str__(self) -> str:
        return f"start {self.node}"


@dataclass(frozen=True, slots=True)
class Workload:
    """Write at a steady rate, through these nodes in turn."""

    writes_per_s: float
    seconds: float
    through: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.writes_per_s:g} writes/s for {self.seconds:g} s through {','.join(self.through)}"


Action: TypeAlias = Partition | Disturb | Heal | Kill | Start | Workload


@dataclass(frozen=True, slots=True)
class Step:
    at_ms: float
    """After the first step."""
    action: Action


@dataclass(frozen=True, slots=True)
class Script:
    nodes: tuple[str, ...]
    steps: tuple[Step, ...]

    @property
    def ends_at_ms(self) -> float:
        """When the last step is done, and the last workload over."""
        return max((step.at_ms + _lasts_ms(step.action) for step in self.steps), default=0.0)


def _lasts_ms(action: Action) -> float:
    return action.seconds * 1_000.0 if isinstance(action, Workload) else 0.0


def parse_script(text: str) -> Script:
    """Returns the script of a file's text. Raises `UsageError`, which says what is wrong where."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the script is not JSON: {error}") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise UsageError(f'this is not a script: it has no "format": "{FORMAT}". The console exports one')
    if content.get("version") != VERSION:
        raise UsageError(f"the script has version {content.get('version')!r}, and this command knows {VERSION}")
    nodes = _names(content.get("nodes"), "nodes")
    steps = content.get("steps")
    if not isinstance(steps, list) or len(steps) > STEPS_MAX:
        raise UsageError(f'"steps" is a list of at most {STEPS_MAX:,} steps')
    parsed = [_step(number, step, nodes) for number, step in enumerate(steps, start=1)]
    return Script(nodes, tuple(sorted(parsed, key=lambda step: step.at_ms)))


def _step(number: int, step: object, nodes: Sequence[str]) -> Step:
    try:
        if not isinstance(step, dict):
            raise UsageError("it is not an object")
        return Step(_number(step, "at_ms", 0.0, AT_MS_MAX), _action(step, nodes))
    except UsageError as error:
        raise UsageError(f"step {number}: {error}") from None


def _action(step: dict[str, Any], nodes: Sequence[str]) -> Action:
    match step.get("do"):
        case "partition":
            islands = step.get("islands")
            if not isinstance(islands, list) or len(islands) < 2:
                raise UsageError('"islands" is a list of two lists of nodes or more')
            sides = tuple(_names(island, "islands", nodes) for island in islands)
            if sorted(name for side in sides for name in side) != sorted(nodes):
                raise UsageError("every node is on exactly one island")
            return Partition(sides)
        case "disturb":
            return Disturb(
                _names(step.get("nodes"), "nodes", nodes),
                _number(step, "loss", 0.0, 1.0),
                _number(step, "delay_ms", 0.0, DELAY_MS_MAX),
            )
        case "heal":
            return Heal()
        case "kill":
            return Kill(*_names([step.get("node")], "node", nodes))
        case "start":
            return Start(*_names([step.get("node")], "node", nodes))
        case "workload":
            return Workload(
                _number(step, "writes_per_s", 0.1, WRITES_PER_SECOND_MAX),
                _number(step, "seconds", 0.0, WORKLOAD_SECONDS_MAX),
                _names(step.get("through"), "through", nodes),
            )
        case other:
            raise UsageError(f'"do" is partition, disturb, heal, kill, start or workload, not {other!r}')


def _names(value: object, what: str, known: Sequence[str] | None = None) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(name, str) for name in value):
        raise UsageError(f'"{what}" names nodes')
    if len(set(value)) < len(value):
        raise UsageError(f'"{what}" names a node twice')
    if known is not None and (strangers := [name for name in value if name not in known]):
        raise UsageError(f"there is no node {strangers[0]!r}; there are {', '.join(known)}")
    return tuple(value)


def _number(step: dict[str, Any], name: str, least: float, most: float) -> float:
    value = step.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise UsageError(f'"{name}" is a number')
    if not least <= value <= most:
        raise UsageError(f'"{name}" is between {least:g} and {most:g}, not {value:g}')
    return float(value)

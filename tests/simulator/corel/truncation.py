"""Logs that are truncated, and nodes that take over what they lack outside the view (decision 28): what a seed
draws of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from corel.config import CorelConfig

TRUNCATED_SHARE = 0.4
"""The share of the seeds that draw small bounds. The others keep the defaults, which no run reaches."""

TRANSFER_MS_MIN, TRANSFER_MS_MAX = 5.0, 500.0
"""How long a transfer of the state takes."""


@dataclass(frozen=True, slots=True)
class Truncation:
    """How fast the layer above applies green messages, and how transfers go."""

    lag: int
    """How many green messages on disk are not in the tree on disk."""
    every_ms: float
    """How often the tree is written, and the log told so."""
    slow_share: float
    """The share of the transfers that take up to `TRANSFER_MS_MAX`; the others take a tenth of it."""
    catch_up_share: float
    """How often a node switches as soon as it has what has become green at its source during the transfer."""
    damaged_share: float
    """How often a snapshot arrives damaged, which its checksums show."""
    killed_share: float
    """How often the learner is killed, in the middle of the transfer or while it puts the new disk in place."""
    full_share: float
    """How often there is no room for the new disk beside the old one."""
    restart_ms: float
    """How long a node is down that has left a view because it lacks what the others have truncated."""


def draw_truncation(
    seed: int, config: CorelConfig, is_truncated: bool | None
) -> tuple[CorelConfig, Truncation | None]:
    """Returns the bounds of the logs, and None in most seeds, unless it is said whether logs are truncated."""
    random = Random(f"small bounds {seed}")
    is_drawn = random.random() < TRUNCATED_SHARE
    if not (is_drawn if is_truncated is None else is_truncated):
        return config, None
    recovery_messages_max = random.choice((2, 5, 20, 60))
    bounds = replace(
        config,
        recovery_messages_max=recovery_messages_max,
        messages_kept=random.choice((2, 3, 6)) * recovery_messages_max,
        bytes_kept=random.choice((config.bytes_kept, config.bytes_kept, 1_000)),
    )
    return bounds, Truncation(
        lag=random.choice((0, 0, 3, 30)),
        every_ms=random.choice((0.0, 20.0, 100.0, 500.0)),
        slow_share=random.choice((0.0, 0.5, 1.0)),
        catch_up_share=random.choice((0.0, 0.7, 1.0)),
        damaged_share=random.choice((0.0, 0.0, 0.2)),
        killed_share=random.choice((0.0, 0.0, 0.3)),
        full_share=random.choice((0.0, 0.0, 0.2)),
        restart_ms=random.choice((1.0, 100.0, 500.0)),
    )

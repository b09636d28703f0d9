"""Time as every machine sees it: milliseconds that its driver hands in, and two deadlines that are not times."""

from __future__ import annotations

from typing import TypeAlias

Milliseconds: TypeAlias = float
"""The type of every `now` and of every deadline: monotonic, with an arbitrary origin."""

NEVER: Milliseconds = float("inf")
"""The deadline of a machine that waits for an input and for nothing else."""

AT_ONCE: Milliseconds = float("-inf")
"""The deadline of a machine that wants to be ticked as soon as its driver has no more inputs."""

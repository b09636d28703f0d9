"""The error that stops a node, whichever layer raises it."""

from __future__ import annotations


class BrokenInvariant(Exception):
    """A machine is in an impossible state. The node must stop, with its data intact."""

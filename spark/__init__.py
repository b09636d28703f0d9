"""Analysis of the replication logs with PySpark: journals and exported logs of any number of nodes.

`schemas` names the columns of every frame; `sources` and `reading` find and read what nodes wrote; the other
modules are transformations of frames, and jobs that compose them."""

from __future__ import annotations

__all__: list[str] = []

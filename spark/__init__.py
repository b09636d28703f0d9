"""Analysis of the replication logs with PySpark: journals and exported logs of any number of nodes.

`schemas` names the columns of every frame; `sources` and `reading` find and read what nodes wrote; the other
modules are transformations of frames, and jobs that compose them; `analysis` composes the jobs."""

from __future__ import annotations

from spark.analysis import JOBS, Analysis, Request, analyze, steps_of
from spark.audit import Verdict
from spark.session import LOCAL, SparkUnavailable, is_little, open_session
from spark.sources import SourceError
from spark.streaming import CheckpointError, as_json, as_text, follow

__all__ = [
    "JOBS",
    "LOCAL",
    "Analysis",
    "CheckpointError",
    "Request",
    "SourceError",
    "SparkUnavailable",
    "Verdict",
    "analyze",
    "as_json",
    "as_text",
    "follow",
    "is_little",
    "open_session",
    "steps_of",
]

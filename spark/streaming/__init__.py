"""Journals of running nodes, followed: `follow` runs until it is stopped, and tells of every batch.

`source` is the stream, `batches` its transformations, `picture` what is known and warned of, `checkpoint` what
survives a restart, `follower` composes them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark.streaming.checkpoint import Checkpoint, CheckpointError
from spark.streaming.follower import Follower, Told, open_checkpoint
from spark.streaming.picture import Alert
from spark.streaming.source import journal_stream
from spark.streaming.terminal import as_json, as_text

__all__ = ["Alert", "CheckpointError", "Told", "as_json", "as_text", "follow"]

POLL_S = 1
TRIGGER_S = 5


def follow(
    spark: SparkSession,
    directories: Sequence[str],
    checkpoint: str,
    tell: Callable[[Told], None],
    is_once: bool = False,
    seconds: float | None = None,
) -> None:
    """Follows the journals below these directories, and calls `tell` after each batch. Returns when it has handled
    what is there (`is_once`), after so many seconds, or when it is interrupted; the next call with the same
    checkpoint goes on from there. Raises `CheckpointError`, and what Spark raises."""
    kept = open_checkpoint(spark, checkpoint, directories)
    stream = journal_stream(spark, directories)
    follower = Follower(kept, tell)
    query = _started(stream, kept, follower, is_once)
    ends_at = time.monotonic() + seconds if seconds is not None else None
    try:
        while not query.awaitTermination(POLL_S):
            if ends_at is not None and time.monotonic() >= ends_at:
                return
    except KeyboardInterrupt:
        return
    except StreamingQueryException as failed:
        raise follower.error or failed from None
    finally:
        query.stop()


def _started(stream: DataFrame, checkpoint: Checkpoint, follower: Follower, is_once: bool) -> StreamingQuery:
    writer = stream.writeStream.foreachBatch(follower.handle)
    writer = writer.option("checkpointLocation", checkpoint.of_spark).queryName("corelkv analyze --follow")
    if is_once:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{TRIGGER_S} seconds").start()

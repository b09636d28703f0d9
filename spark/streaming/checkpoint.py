"""What a follower leaves for its next start: the state after each batch, and what it has told, by batch.

A batch is done when its last file is there, which says what is known after it. A batch that is run again, because
the process was killed before Spark noted its end, is recognized by that file, and nothing is told twice; one that
was not done begins again from the state before it, and overwrites what it had written."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from spark.files import Files
from spark.local_frames import local_frame
from spark.schemas import Columns
from spark.streaming.picture import Picture

STATES_KEPT = 2


class CheckpointError(Exception):
    """The checkpoint directory cannot be used for this; the text says why."""


class Checkpoint:
    """A directory of any file system of Hadoop's: `spark` has Spark's own notes, `state` what is known after a
    batch, and `told` what the batches have told."""

    def __init__(self, spark: SparkSession, directory: str) -> None:
        self._spark = spark
        self._files = Files(spark, directory)
        self.directory = directory.rstrip("/")

    @property
    def of_spark(self) -> str:
        return f"{self.directory}/spark"

    def bind(self, directories: Sequence[str]) -> None:
        """Notes which directories are followed. Raises `CheckpointError` if they were others before."""
        path, text = f"{self.directory}/follow.json", json.dumps({"directories": list(directories)})
        if "follow.json" not in self._files.names(self.directory):
            self._files.write(path, text)
        elif (known := json.loads(self._files.read(path))["directories"]) != list(directories):
            raise CheckpointError(
                f"{self.directory} is the checkpoint of a follower of {', '.join(known)}. Follow these, or name "
                "another directory with --checkpoint"
            )

    def exists(self, path: str) -> bool:
        """Whether there is such a file, wherever it is."""
        return Files(self._spark, path).exists(path)

    def is_done(self, batch: int) -> bool:
        return "done.json" in self._files.names(self._state(batch))

    def picture_before(self, batch: int) -> Picture:
        """What was known before a batch."""
        last = self._last_done(batch)
        if last is None:
            return Picture()
        return Picture.from_json(json.loads(self._files.read(f"{self._state(last)}/done.json")))

    def frame_before(self, batch: int, name: str, schema: Columns) -> DataFrame:
        """A frame that was kept before a batch; an empty one if there was none."""
        last = self._last_done(batch)
        if last is None:
            return local_frame(self._spark, [], schema.ddl)
        return self._spark.read.schema(schema.ddl).parquet(f"{self._state(last)}/{name}")

    def keep(self, batch: int, name: str, frame: DataFrame) -> DataFrame:
        """Keeps a frame for the next batch, and returns it as it was written."""
        path = f"{self._state(batch)}/{name}"
        frame.write.mode("overwrite").parquet(path)
        return self._spark.read.schema(frame.schema).parquet(path)

    def tell(self, batch: int, what: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Writes what a batch tells, a JSON object a line."""
        lines = "".join(f"{json.dumps(row)}\n" for row in rows)
        self._files.write(f"{self.directory}/told/{what}/batch-{batch:09}.jsonl", lines)

    def done(self, batch: int, picture: Picture) -> None:
        self._files.write(f"{self._state(batch)}/done.json", json.dumps(picture.to_json()))
        for old in self._batches():
            if old <= batch - STATES_KEPT:
                self._files.delete(self._state(old))

    def _last_done(self, before: int) -> int | None:
        done = [batch for batch in self._batches() if batch < before and self.is_done(batch)]
        return max(done, default=None)

    def _batches(self) -> list[int]:
        names = self._files.names(f"{self.directory}/state")
        return sorted(int(name.removeprefix("batch-")) for name in names if name.startswith("batch-"))

    def _state(self, batch: int) -> str:
        return f"{self.directory}/state/batch-{batch:09}"

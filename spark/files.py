"""Files of any file system that Hadoop knows, through the JVM of the session."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession


class Files:
    """The file system that a directory is on."""

    def __init__(self, spark: SparkSession, directory: str) -> None:
        self._jvm: Any = spark.sparkContext._jvm
        hadoop: Any = spark._jsparkSession.sessionState().newHadoopConf()
        system: Any = self._path(directory).getFileSystem(hadoop)
        # On a local disk Hadoop would keep a file of checksums beside every file, which nodes do not.
        self._system: Any = system.getRawFileSystem() if str(system.getScheme()) == "file" else system

    def names(self, directory: str) -> list[str]:
        """What is in a directory, in the order of names; nothing if there is no such directory."""
        path = self._path(directory)
        if not self._system.exists(path):
            return []
        return sorted(str(status.getPath().getName()) for status in self._system.listStatus(path))

    def exists(self, path: str) -> bool:
        return bool(self._system.exists(self._path(path)))

    def move(self, source: str, target: str) -> None:
        """Renames a file, into a directory that need not exist yet, and over a file that may be there."""
        path = self._path(target)
        self._system.mkdirs(path.getParent())
        if self._system.exists(path):
            self._system.delete(path, False)
        if not self._system.rename(self._path(source), path):
            raise OSError(f"cannot rename {source} to {target}")

    def write(self, path: str, content: str) -> None:
        stream = self._system.create(self._path(path), True)
        try:
            stream.write(content.encode())
        finally:
            stream.close()

    def read(self, path: str) -> str:
        stream = self._system.open(self._path(path))
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def delete(self, path: str) -> None:
        self._system.delete(self._path(path), True)

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(path)

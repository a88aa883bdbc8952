"""Files of a checkpoint, on this machine's file systems or on any that Spark's JVM knows (hdfs, s3a, abfs …); and how far they say a query is."""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from kafka_actors.base.paths import sync
from kafka_actors.errors import ConfigError, HandoverError
from kafka_actors.spark.source.checkpoint import checkpoint_of, log_lines, reason_of
from kafka_actors.types import TopicPartition

_OPTION = "checkpoint"


class CheckpointFiles(Protocol):
    """Directory of a checkpoint, which need not exist yet."""

    def read(self, name: str) -> str | None:
        """The text of a file, None if there is no such file."""

    def create(self, name: str, text: str) -> bool:
        """Makes a file, complete or not at all; False if there was one, which stays as it is."""

    def names(self, directory: str) -> list[str]:
        """The names in a directory; none where there is no such directory."""


def files_of(spark: Any, checkpoint: str) -> CheckpointFiles:
    """The files of a directory, whose name means what it means to Spark: without a scheme it is on Spark's default file
    system.

    Raises `ConfigError` for one that can't be reached from here.
    """
    found = checkpoint_of(spark, checkpoint)
    if found is None:
        raise ConfigError(
            "spark",
            "is a Spark Connect session, from which the checkpoint's files can't be seen: use a classic one",
        )
    if found.uri.startswith("file:"):
        return LocalFiles(Path(found.location))
    return HadoopFiles(spark._jvm, found.system, found.path, found.configuration)


class LocalFiles:
    """Directory of this machine."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def read(self, name: str) -> str | None:
        try:
            return (self._directory / name).read_text()
        except FileNotFoundError:
            return None

    def names(self, directory: str) -> list[str]:
        try:
            return os.listdir(self._directory / directory)
        except FileNotFoundError:
            return []

    def create(self, name: str, text: str) -> bool:
        """Makes the file by a hard link to a complete one, which fails if there is one already; it is on the disk when this
        returns. Raises `ConfigError` where the file system has no hard links."""
        self._directory.mkdir(parents=True, exist_ok=True)
        target, unfinished = self._directory / name, self._directory / f".{name}.{uuid.uuid4().hex}"
        try:
            with open(unfinished, "x") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.link(unfinished, target)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS):
                raise
            raise ConfigError(
                _OPTION,
                f"is {str(self._directory)!r}: its file system has no hard links ({error}); use another",
            ) from None
        finally:
            with suppress(FileNotFoundError):
                unfinished.unlink()
        for changed in (self._directory, self._directory.parent):
            sync(changed)
        return True

    def __repr__(self) -> str:
        return str(self._directory)


class HadoopFiles:
    """Directory of a file system of Hadoop's, through Spark's JVM, with Spark's own settings and secrets.

    A file is renamed to its name when it is complete. On HDFS that is atomic, and fails if there is one; on an object
    store it may not be: two drivers that start the same hand-over at the same moment may both find themselves first.
    """

    def __init__(self, jvm: Any, system: Any, directory: Any, configuration: Any) -> None:
        self._jvm = jvm
        self._system = system
        self._directory = system.makeQualified(directory)
        self._configuration = configuration

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._directory, name)

    def read(self, name: str) -> str | None:
        path = self._path(name)
        if not self._system.exists(path):
            return None
        stream = self._system.open(path)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def names(self, directory: str) -> list[str]:
        path = self._path(directory)
        if not self._system.exists(path):
            return []
        return [str(status.getPath().getName()) for status in self._system.listStatus(path)]

    def create(self, name: str, text: str) -> bool:
        self._system.mkdirs(self._directory)
        target, unfinished = self._path(name), self._path(f".{name}.{uuid.uuid4().hex}")
        if self._system.exists(target):
            return False
        stream = self._system.create(unfinished, False)
        try:
            stream.write(text.encode())
        finally:
            stream.close()
        try:
            self._rename(unfinished, target)
        except Exception as error:  # Py4JJavaError
            if self._system.exists(target):
                return False
            raise ConfigError(
                _OPTION, f"is {self!r}: no file can be made there: {reason_of(error)}"
            ) from None
        finally:
            self._system.delete(unfinished, False)
        return True

    def _rename(self, source: Any, target: Any) -> None:
        """Renames without overwriting. Raises where the target exists."""
        context = self._jvm.org.apache.hadoop.fs.FileContext.getFileContext(
            self._directory.toUri(), self._configuration
        )
        rename = getattr(self._jvm.org.apache.hadoop.fs, "Options$Rename")
        options = self._jvm.java.lang.reflect.Array.newInstance(rename.NONE.getClass(), 1)
        self._jvm.java.lang.reflect.Array.set(options, 0, rename.NONE)
        context.rename(source, target, options)

    def __repr__(self) -> str:
        return str(self._directory.toString())


def finished_offsets(
    files: CheckpointFiles, topics: Collection[str]
) -> list[dict[TopicPartition, int]] | None:
    """The end of the last finished batch, of each source that reads these topics (a union with itself has two).

    None where no batch is finished. Raises `HandoverError` for a checkpoint of a format that isn't known.
    """
    batches = [int(name) for name in files.names("commits") if name.isdecimal()]
    if not batches:
        return None
    batch = max(batches)
    text = files.read(f"offsets/{batch}")
    if text is None:
        raise HandoverError(f"the checkpoint {files!r} is not whole: commits/{batch} has no offsets/{batch}")
    try:
        lines = log_lines(text, f"offsets/{batch}")
    except ConfigError as error:
        raise HandoverError(f"the checkpoint {files!r}: {error.message}") from None
    found = [line.kafka.offsets.by_partition for line in lines if line.kafka is not None]
    return [offsets for offsets in found if any(tp.topic in topics for tp in offsets)]

"""Results as Parquet files: whole or not there at all, named by the records they were made of."""

from __future__ import annotations

import os
import uuid
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from kafka_actors.base.paths import sync, wrong_path
from kafka_actors.config import PARQUET_COMPRESSIONS, ClientConfig
from kafka_actors.errors import ConfigError

from .writer import Origin

MAX_BUFFERED_BYTES = 128 * 1024 * 1024
"""Of a partition, until a file is written though nobody asked for a flush."""


class ParquetSink:
    """Writes what `process` returns to files under a directory, or under a URI that pyarrow knows (`s3://…`).

    Each flush, and so each commit, makes one file of each partition that had rows: the option
    `auto_commit_interval_ms` decides how large they get. A file is called
    `{topic}-{partition}-{first offset}-{last offset}.parquet`; a second one of the same records, where they gave rows
    of two schemas for example, `….1.parquet`. After a crash records may be in two files: at least once.
    """

    def __init__(self, path: str, *, compression: str = "zstd") -> None:
        if wrong := wrong_path(path):
            raise ConfigError("path", wrong)
        if compression not in PARQUET_COMPRESSIONS:
            raise ConfigError("compression", f"is {compression!r}: accepts {', '.join(PARQUET_COMPRESSIONS)}")
        self.path = path
        self.compression = compression

    def open(self, connection: ClientConfig) -> ParquetWriter:
        """Makes the directory. Raises what the file system raises (`OSError`)."""
        return ParquetWriter(self.path, self.compression)

    def __repr__(self) -> str:
        return f"<ParquetSink {self.path}>"


class _OpenFile:
    """The rows of one partition that are not in a file yet."""

    def __init__(self, batch: pa.RecordBatch, origin: Origin) -> None:
        self.batches = [batch]
        self.bytes = batch.nbytes
        self.first = origin
        self.last = origin

    @property
    def full(self) -> bool:
        return bool(self.bytes > MAX_BUFFERED_BYTES)

    def follows(self, batch: pa.RecordBatch, origin: Origin) -> bool:
        """Whether the rows belong behind these: of the same records as the last, or of later ones."""
        later = origin.first_offset > self.last.last_offset
        return (later or origin == self.last) and batch.schema.equals(self.batches[0].schema)

    def add(self, batch: pa.RecordBatch, origin: Origin) -> None:
        self.batches.append(batch)
        self.bytes += batch.nbytes
        self.last = origin


class ParquetWriter:
    """Collects rows by partition until `flush`."""

    def __init__(self, path: str, compression: str) -> None:
        self._compression = compression
        self._files, self._directory = file_system(path)
        self._files.create_dir(self._directory, recursive=True)
        self._open: dict[tuple[str, int], _OpenFile] = {}
        self._stored: dict[tuple[str, int], tuple[str, int]] = {}  # since a flush, the last file of each

    def write(self, batch: pa.RecordBatch, origin: Origin) -> None:
        """Takes the rows, or raises and takes none. A partition that has more than 128 MiB goes to a file first."""
        key = (origin.topic, origin.partition)
        collected = self._open.get(key)
        if collected is not None and (collected.full or not collected.follows(batch, origin)):
            self._store(key)
            collected = None
        if collected is None:
            self._open[key] = _OpenFile(batch, origin)
        else:
            collected.add(batch, origin)

    def flush(self) -> None:
        """A file of each partition that has rows. Raises what the file system raises; what is not written stays."""
        for key in list(self._open):
            self._store(key)
        if self._stored:
            self._keep(self._directory)  # the names are in it
        self._stored.clear()  # the same records again, from now on, take the place of their files

    def close(self) -> None:
        """What was not flushed is not committed either, and will be read again."""
        self._open.clear()

    def _store(self, key: tuple[str, int]) -> None:
        collected = self._open[key]
        first, last = collected.first.first_offset, collected.last.last_offset
        span = f"{key[0]}-{key[1]}-{first:020d}-{last:020d}"
        earlier, count = self._stored.get(key, ("", 0))
        count = count + 1 if earlier == span else 0
        name = f"{span}.{count}.parquet" if count else f"{span}.parquet"
        target = f"{self._directory}/{name}"
        # Readers of directories pass over names with a dot before them.
        unready = f"{self._directory}/.{name}.{uuid.uuid4().hex}"
        try:
            with self._files.open_output_stream(unready) as stream:
                pq.write_table(
                    pa.Table.from_batches(collected.batches), stream, compression=self._compression
                )
            self._keep(unready)
            self._files.move(unready, target)
        except BaseException:
            self._discard(unready)
            raise
        self._stored[key] = (span, count)
        del self._open[key]

    def _keep(self, path: str) -> None:
        """Of a file or directory on a local disk: not only in the page cache."""
        if isinstance(self._files, fs.LocalFileSystem):
            sync(path)

    def _discard(self, path: str) -> None:
        try:
            self._files.delete_file(path)
        except OSError:
            pass


def file_system(path: str) -> tuple[Any, str]:
    """What pyarrow has for a directory or URI, and the directory there."""
    if "://" in path:
        found, inside = fs.FileSystem.from_uri(path)
        return found, inside.rstrip("/")
    return fs.LocalFileSystem(), os.path.abspath(path)

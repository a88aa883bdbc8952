"""Parquet sink: each file appears complete or not at all, under a name that says which records it was made of."""

from __future__ import annotations

import hashlib
import os
import uuid
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from kafka_actors.base.addresses import without_user_info
from kafka_actors.base.paths import sync, wrong_path
from kafka_actors.config import PARQUET_COMPRESSIONS, ClientConfig, JobConfig
from kafka_actors.errors import ConfigError

from .sink import Origin

LONGEST_TOPIC = 160
"""Characters of a topic in a file's name, which has 255 at most: offsets, digest and number take the others."""
MAX_BUFFERED_BYTES = 128 * 1024 * 1024
"""Rows of one partition in memory, above which a file is written before the next flush."""


class ParquetSink:
    """Writes the rows that `process` returns to files under a directory, or under a URI that pyarrow knows (`s3://…`).

    Each flush, and so each commit, makes one file of each partition that had rows: the option
    `auto_commit_interval_ms` decides how large they get. A file's name is
    `{topic}-{partition}-{first offset}-{last offset}.parquet`, and `….1.parquet` for a second file of the same records,
    such as rows of another schema. Delivery is at least once: after a crash a record may be in two files. Names of topics that readers of
    directories would pass over as hidden get a prefix (`topic~_orders-…`); those of more than 160 characters end with a digest.

    With another `ordering` than "partition" records between the first and the last one of a file may be in another one, of a later flush or
    of another worker. So the name ends with a digest of all offsets, `…-{last offset}-{digest}.parquet`, and only a file of the very
    same records takes its place. Rows are in the order in which calls ended; by key, those of each key in that of their records.
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
        by_partition = not isinstance(connection, JobConfig) or connection.ordering == "partition"
        return ParquetWriter(self.path, self.compression, by_partition=by_partition)

    def __repr__(self) -> str:
        return f"<ParquetSink {without_user_info(self.path)}>"


class _OpenFile:
    """Rows of one partition that are not in a file yet. `by_partition`: its records come in the order of their offsets."""

    def __init__(self, batch: pa.RecordBatch, origin: Origin, *, by_partition: bool) -> None:
        self.batches = [batch]
        self.bytes = batch.nbytes
        self.first = origin
        self.last = origin
        self._origins: list[Origin] | None = None if by_partition else [origin]

    @property
    def full(self) -> bool:
        return bool(self.bytes > MAX_BUFFERED_BYTES)

    def follows(self, batch: pa.RecordBatch, origin: Origin) -> bool:
        """Whether the rows can be appended: they have the same schema, and came from the last records again or from later ones, where these
        come in order."""
        later = self._origins is not None or origin.first_offset > self.last.last_offset
        return (later or origin == self.last) and batch.schema.equals(self.batches[0].schema)

    def add(self, batch: pa.RecordBatch, origin: Origin) -> None:
        self.batches.append(batch)
        self.bytes += batch.nbytes
        self.last = origin
        if self._origins is not None:
            self._origins.append(origin)

    @property
    def name(self) -> str:
        """Name by partition and records. Two files may begin and end with the same ones where records don't come in order, and the later one
        must not take the place of the other unless it has all that is in it: so all offsets count."""
        where = f"{_in_names(self.first.topic)}-{self.first.partition}"
        if self._origins is None:
            return f"{where}-{self.first.first_offset:020d}-{self.last.last_offset:020d}"
        offsets = np.unique(np.concatenate([origin.offsets for origin in self._origins]))
        digest = hashlib.blake2s(offsets.astype("<i8").tobytes(), digest_size=8).hexdigest()
        return f"{where}-{offsets[0]:020d}-{offsets[-1]:020d}-{digest}"


def _in_names(topic: str) -> str:
    """Returns a topic as files are named after it. Readers of directories pass over names that begin with a dot or an underscore, and no topic
    has a `~`, so that no two have the same files."""
    shown = f"topic~{topic}" if topic.startswith((".", "_")) else topic
    if len(shown) <= LONGEST_TOPIC:
        return shown
    digest = hashlib.blake2s(topic.encode(), digest_size=8).hexdigest()
    return f"{shown[: LONGEST_TOPIC - len(digest) - 1]}~{digest}"


class ParquetWriter:
    """Open Parquet sink: collects rows by partition until `flush`. `by_partition`: the records of a partition come in the order of their
    offsets."""

    def __init__(self, path: str, compression: str, *, by_partition: bool = True) -> None:
        self._compression = compression
        self._by_partition = by_partition
        self._files, self._directory = file_system(path)
        self._files.create_dir(self._directory, recursive=True)
        self._checked: pa.Schema | None = None
        """The schema that was last found to be one that files can have."""
        self._open: dict[tuple[str, int], _OpenFile] = {}
        self._written: dict[
            tuple[str, int], tuple[str, int]
        ] = {}  # the last file of each partition since a flush

    def write(self, batch: pa.RecordBatch, origin: Origin) -> None:
        """Takes the rows, or raises and takes none. A partition that has more than 128 MiB goes to a file first."""
        key = (origin.topic, origin.partition)
        self._check(batch.schema)
        collected = self._open.get(key)
        if collected is not None and (collected.full or not collected.follows(batch, origin)):
            self._write_file(key)
            collected = None
        if collected is None:
            self._open[key] = _OpenFile(batch, origin, by_partition=self._by_partition)
        else:
            collected.add(batch, origin)

    def _check(self, schema: pa.Schema) -> None:
        """Raises what Parquet says of a schema that it can't have, such as one with an empty struct: in a flush that would be an error of all
        rows, whatever is to become of those at fault."""
        if self._checked is None or not schema.equals(self._checked):
            pq.ParquetWriter(pa.MockOutputStream(), schema).close()
            self._checked = schema

    def flush(self) -> None:
        """Writes a file for each partition that has rows. Raises what the file system raises; rows that are not written stay."""
        for key in list(self._open):
            self._write_file(key)
        if self._written:
            self._sync(self._directory)  # the files' names are in the directory
        self._written.clear()  # from now on the same records overwrite their files

    def close(self) -> None:
        """Drops rows that are not flushed: their offsets are not committed, so their records are read again."""
        self._open.clear()

    def _write_file(self, key: tuple[str, int]) -> None:
        collected = self._open[key]
        span = collected.name
        earlier, count = self._written.get(key, ("", 0))
        count = count + 1 if earlier == span else 0
        name = f"{span}.{count}.parquet" if count else f"{span}.parquet"
        target = f"{self._directory}/{name}"
        # Readers of directories ignore names that begin with a dot. The name itself may be as long as names can be.
        unfinished = f"{self._directory}/.{uuid.uuid4().hex}"
        try:
            with self._files.open_output_stream(unfinished) as stream:
                pq.write_table(
                    pa.Table.from_batches(collected.batches), stream, compression=self._compression
                )
            self._sync(unfinished)
            self._files.move(unfinished, target)
        except BaseException:
            self._discard(unfinished)
            raise
        self._written[key] = (span, count)
        del self._open[key]

    def _sync(self, path: str) -> None:
        """Syncs a file or directory of a local disk, whose changes are otherwise only in the page cache."""
        if isinstance(self._files, fs.LocalFileSystem):
            sync(path)

    def _discard(self, path: str) -> None:
        try:
            self._files.delete_file(path)
        except OSError:
            pass


def file_system(path: str) -> tuple[Any, str]:
    """pyarrow's file system for a directory or URI, and the directory's path in it."""
    if "://" in path:
        found, inside = fs.FileSystem.from_uri(path)
        return found, inside.rstrip("/")
    return fs.LocalFileSystem(), os.path.abspath(path)

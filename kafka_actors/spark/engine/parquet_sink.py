"""Parquet files of a pipeline on Spark: those of each micro-batch appear once, for every reader of the directory.

Spark's own file sink keeps a list of its files beside them (`_spark_metadata`). Readers that don't know the list also
read the files of micro-batches that ran twice, and readers that do ignore files that others wrote, such as the same
pipeline on Ray. So tasks write into a hidden directory of the micro-batch, or of the run where it is a batch, and
when all of them are complete the files are renamed to their place. A list of the names stays in the hidden directory
until the next micro-batch is complete: by it a retry finds the files of an earlier try, whatever else is in the
directory.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from kafka_actors.errors import SinkError
from kafka_actors.pipeline.stages import WriteParquet
from kafka_actors.sinks.parquet import file_system
from kafka_actors.spark.python_worker import OneLineErrors

ROW_GROUP_BYTES = 64 * 1024 * 1024
"""Bytes of rows that a task holds in memory before it writes a row group."""

_LIST = ".names"
"""Suffix of the lists of names, which are among a micro-batch's hidden files."""

HiddenFiles = Mapping[str, str]
"""Complete files that are not in their place yet: their hidden paths by their final names."""


class WriteUnit(msgspec.Struct, frozen=True):
    """Unit that appears whole or not at all: a micro-batch, or the run of a batch. `name` is the prefix of its files;
    `done`: the unit before, which never runs again once this one is complete."""

    name: str
    done: str


def batch_unit(query: str, batch: int) -> WriteUnit:
    """The unit of a micro-batch: the same when it runs again."""
    return WriteUnit(f"spark-{query}-{batch:010d}-", f"spark-{query}-{batch - 1:010d}-")


def run_unit(run: str) -> WriteUnit:
    """The unit of a batch, which is its whole run and never runs again."""
    name = f"spark-{run}-"
    return WriteUnit(name, name)


@contextmanager
def _sink_errors(stage: WriteParquet) -> Iterator[None]:
    """Context in which errors of the file system become a `SinkError` with the sink's name."""
    with OneLineErrors():
        try:
            yield
        except OSError as error:
            raise SinkError(stage.name, f"{type(error).__name__}: {error}") from error


class TaskFile:
    """File of one task, made in the unit's hidden directory with the first rows. The stage's `path` is a URI that pyarrow
    knows, or absolute. The constructor, `write` and `finish` raise `SinkError`."""

    def __init__(self, stage: WriteParquet, unit: WriteUnit, task: int) -> None:
        self.stage = stage
        self._name = f"{unit.name}{task:05d}.parquet"
        with _sink_errors(stage):
            self._files, directory = file_system(stage.path)
        self._directory = f"{directory}/.{unit.name}"
        self._hidden = f"{self._directory}/{task:05d}-{uuid.uuid4().hex}.parquet"
        self._stream: Any = None
        self._writer: pq.ParquetWriter | None = None
        self._row_group: list[pa.RecordBatch] = []
        self._held = 0  # bytes of it

    def write(self, rows: pa.RecordBatch) -> None:
        if not rows.num_rows:
            return
        with _sink_errors(self.stage):
            if self._writer is None:
                self._files.create_dir(self._directory, recursive=True)
                self._stream = self._files.open_output_stream(self._hidden)
                self._writer = pq.ParquetWriter(self._stream, rows.schema, compression=self.stage.compression)
            self._row_group.append(rows)
            self._held += rows.nbytes
            if self._held >= ROW_GROUP_BYTES:
                self._write_row_group(self._writer)

    def _write_row_group(self, writer: pq.ParquetWriter) -> None:
        writer.write_table(pa.Table.from_batches(self._row_group))
        self._row_group.clear()
        self._held = 0

    def finish(self) -> HiddenFiles:
        """Completes the file, which stays hidden. Returns it; nothing where there were no rows."""
        if self._writer is None:
            return {}
        with _sink_errors(self.stage):
            if self._row_group:
                self._write_row_group(self._writer)
            self._writer.close()
            self._stream.close()
        return {self._name: self._hidden}

    def discard(self) -> None:
        """Deletes what there is of the file."""
        if self._stream is not None:
            # An object store makes the file when its stream is closed, by the collector at the latest.
            for part in (self._writer, self._stream):
                if part is not None:
                    with suppress(OSError, pa.ArrowException):
                        part.close()
            discard(self.stage, {self._name: self._hidden})


def discard(stage: WriteParquet, hidden: HiddenFiles) -> None:
    """Deletes files that are not in their place."""
    files, _ = file_system(stage.path)
    for path in hidden.values():
        with suppress(OSError):
            files.delete_file(path)


def reveal(stage: WriteParquet, unit: WriteUnit, written: Iterable[HiddenFiles]) -> None:
    """Renames the files of a unit to their final names, and deletes the files of its earlier tries. Its cost depends on these
    files only, not on others in the directory. Raises `SinkError`.

    If the process dies in between, the micro-batch runs again, and so does this.
    """
    with _sink_errors(stage):
        _reveal(stage, unit, {name: hidden for files in written for name, hidden in files.items()})


def _reveal(stage: WriteParquet, unit: WriteUnit, wanted: HiddenFiles) -> None:
    files, directory = file_system(stage.path)
    hidden_directory = f"{directory}/.{unit.name}"
    there = [
        found.path for found in files.get_file_info(fs.FileSelector(hidden_directory, allow_not_found=True))
    ]
    wanted_hidden = frozenset(wanted.values())
    if wanted:
        _write_text(files, f"{hidden_directory}/{uuid.uuid4().hex}{_LIST}", "\n".join(wanted))
    for path in there:
        if path.endswith(_LIST):
            for name in _read_text(files, path).split("\n"):
                if name not in wanted:
                    _delete(files, f"{directory}/{name}")
        if path not in wanted_hidden:
            _delete(files, path)
    for name, hidden in wanted.items():
        files.move(hidden, f"{directory}/{name}")
    done = f"{directory}/.{unit.done}"
    if files.get_file_info(done).type is not fs.FileType.NotFound:
        files.delete_dir(done)


def _write_text(files: fs.FileSystem, path: str, text: str) -> None:
    with files.open_output_stream(path) as stream:
        stream.write(text.encode())


def _read_text(files: fs.FileSystem, path: str) -> str:
    with files.open_input_stream(path) as stream:
        return bytes(stream.read()).decode()


def _delete(files: fs.FileSystem, path: str) -> None:
    with suppress(FileNotFoundError):
        files.delete_file(path)

"""Parquet sink of a pipeline on Spark: the files of each micro-batch appear once, for every reader of the directory.

Spark's own file sink keeps a list of its files beside them (`_spark_metadata`). Readers that don't know the list also
read the files of micro-batches that ran twice, and readers that do ignore files that others wrote, such as the same
pipeline on Ray. So tasks write into a hidden directory of the micro-batch, or of the run where it is a batch, and
when all of them are complete the files are renamed to their place. A list of the names stays in the hidden directory
until the next micro-batch is complete: by it a retry finds the files of an earlier try, whatever else is in the
directory.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any, ClassVar

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from kafka_actors.errors import SinkError
from kafka_actors.sinks.parquet import file_system
from kafka_actors.spark.python_worker import OneLineErrors, freeze_imports

from .dead_letters import DeadLetterPlan, TaskDeadLetters
from .frames import PipelineFrame

ROW_GROUP_BYTES = 64 * 1024 * 1024
"""Bytes of rows that a task holds in memory before it writes a row group."""

_LIST = ".names"
"""Suffix of the lists of names, which are among a micro-batch's hidden files."""


class ParquetPlan(msgspec.Struct, frozen=True, eq=False):
    """Parquet write of a pipeline, pickled to the tasks. `name` is the data source's, `run` names this run, `stage` is the sink's
    name for errors; `path` a URI that pyarrow knows, or an absolute path; `before`: the frame that is written."""

    name: str
    run: str
    stage: str
    path: str
    compression: str
    before: PipelineFrame
    dead_letters: DeadLetterPlan | None = None


def parquet_of(plan: ParquetPlan) -> type[DataSource]:
    """Makes a class to register in a session, bound to the plan."""

    class Bound(ParquetDataSource):
        bound = plan

    return Bound


class ParquetDataSource(DataSource):
    """Data source of a Parquet write; see the module. Its name is the plan's."""

    bound: ClassVar[ParquetPlan]

    @classmethod
    def name(cls) -> str:
        return cls.bound.name

    def writer(self, schema: StructType, overwrite: bool) -> ParquetBatchWriter:
        return ParquetBatchWriter(self.bound)

    def streamWriter(self, schema: StructType, overwrite: bool) -> ParquetStreamWriter:
        return ParquetStreamWriter(self.bound)


class WriteUnit(msgspec.Struct, frozen=True):
    """Unit that appears whole or not at all: a micro-batch, or the run of a batch. `name` is the prefix of its files;
    `done`: the unit before, which never runs again once this one is complete."""

    name: str
    done: str


class WrittenFiles(WriterCommitMessage):
    """Complete files of a task: their hidden paths by their final names."""

    def __init__(self, unit: WriteUnit, files: dict[str, str]) -> None:
        self.unit = unit
        self.files = files


class ParquetBatchWriter(DataSourceArrowWriter):
    """Writes the files of a batch: `write` runs in tasks, `commit` and `abort` where the write is planned."""

    def __init__(self, plan: ParquetPlan) -> None:
        freeze_imports()
        if plan.dead_letters is not None:
            plan.dead_letters.check()
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenFiles:
        """Writes the rows of a task to a hidden file. Raises `SinkError`."""
        return _write(self._plan, run_unit(self._plan.run), iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Renames the files to their final names. Raises `SinkError`."""
        _commit(self._plan, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Deletes the files."""
        _abort(self._plan, messages)


class ParquetStreamWriter(DataSourceStreamArrowWriter):
    """Writes the files of each micro-batch, as `ParquetBatchWriter` does for a batch."""

    def __init__(self, plan: ParquetPlan) -> None:
        freeze_imports()
        if plan.dead_letters is not None:
            plan.dead_letters.check()
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenFiles:
        """Writes the rows of a task to a hidden file. Raises `SinkError`."""
        context = _context()
        query, batch_id = map(context.getLocalProperty, ("sql.streaming.queryId", "streaming.sql.batchId"))
        assert query is not None  # Spark sets both for a stream's tasks
        assert batch_id is not None
        return _write(self._plan, batch_unit(query, int(batch_id)), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Renames the files to their final names. Raises `SinkError`."""
        _commit(self._plan, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Deletes the files."""
        _abort(self._plan, messages)


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None  # a task runs it
    return context


def _write(plan: ParquetPlan, unit: WriteUnit, batches: Iterator[pa.RecordBatch]) -> WrittenFiles:
    freeze_imports()
    task = _context().partitionId()
    with OneLineErrors(), _SinkErrors(plan.stage), ExitStack() as stack:
        dead = None
        if plan.dead_letters is not None and plan.before.errors:
            dead = stack.enter_context(plan.dead_letters.task())
        return write_files(plan, unit, task, batches, dead)


def _commit(plan: ParquetPlan, messages: list[WriterCommitMessage | None]) -> None:
    with OneLineErrors(), _SinkErrors(plan.stage):
        reveal(plan, [message for message in messages if isinstance(message, WrittenFiles)])


def _abort(plan: ParquetPlan, messages: list[WriterCommitMessage | None]) -> None:
    files, _ = file_system(plan.path)
    for message in messages:
        for hidden in message.files.values() if isinstance(message, WrittenFiles) else ():
            with suppress(OSError):
                files.delete_file(hidden)


class _SinkErrors:
    """Context in which errors of the file system become a `SinkError` with the sink's name."""

    def __init__(self, stage: str) -> None:
        self._stage = stage

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, OSError):
            raise SinkError(self._stage, f"{type(error).__name__}: {error}") from error


def absolute_path(path: str) -> str:
    """A path that is valid in every process: a relative one is resolved in the driver's working directory."""
    return path if "://" in path else os.path.abspath(path)


def batch_unit(query: str, batch: int) -> WriteUnit:
    """The unit of a micro-batch: the same when it runs again."""
    return WriteUnit(f"spark-{query}-{batch:010d}-", f"spark-{query}-{batch - 1:010d}-")


def run_unit(run: str) -> WriteUnit:
    """The unit of a batch, which is its whole run and never runs again."""
    name = f"spark-{run}-"
    return WriteUnit(name, name)


def write_files(
    plan: ParquetPlan,
    unit: WriteUnit,
    task: int,
    batches: Iterator[pa.RecordBatch],
    dead: TaskDeadLetters | None = None,
) -> WrittenFiles:
    """Writes the rows of a task to one file, or to none where there are no rows. Failed records go to the dead letters."""
    files, directory = file_system(plan.path)
    hidden_directory = f"{directory}/.{unit.name}"
    hidden = f"{hidden_directory}/{task:05d}-{uuid.uuid4().hex}.parquet"
    writer: pq.ParquetWriter | None = None
    row_group: list[pa.RecordBatch] = []
    try:
        for batch in batches:
            rows, failed = plan.before.split(batch)
            if failed is not None:
                assert dead is not None, "the check of a pipeline asks where dead letters go"
                dead.write_failed(failed)
            if not rows.num_rows:
                continue
            if writer is None:
                files.create_dir(hidden_directory, recursive=True)
                stream = files.open_output_stream(hidden)
                writer = pq.ParquetWriter(stream, rows.schema, compression=plan.compression)
            row_group.append(rows)
            if sum(part.nbytes for part in row_group) >= ROW_GROUP_BYTES:
                writer.write_table(pa.Table.from_batches(row_group))
                row_group.clear()
        if dead is not None:
            dead.flush()
        if writer is None:
            return WrittenFiles(unit, {})
        if row_group:
            writer.write_table(pa.Table.from_batches(row_group))
        writer.close()
        stream.close()
    except BaseException:
        with suppress(OSError):
            files.delete_file(hidden)
        raise
    return WrittenFiles(unit, {f"{unit.name}{task:05d}.parquet": hidden})


def reveal(plan: ParquetPlan, written: list[WrittenFiles]) -> None:
    """Renames the files of a unit to their final names, and deletes the files of its earlier tries. Its cost depends on these
    files only, not on others in the directory.

    If the process dies in between, the micro-batch runs again, and so does this.
    """
    if not written:
        return
    files, directory = file_system(plan.path)
    unit = written[0].unit
    hidden_directory = f"{directory}/.{unit.name}"
    wanted = {name: hidden for message in written for name, hidden in message.files.items()}
    there = [
        found.path for found in files.get_file_info(fs.FileSelector(hidden_directory, allow_not_found=True))
    ]
    if wanted:
        _write_text(files, f"{hidden_directory}/{uuid.uuid4().hex}{_LIST}", "\n".join(wanted))
    for path in there:
        if path.endswith(_LIST):
            for name in _read_text(files, path).split("\n"):
                if name not in wanted:
                    _delete(files, f"{directory}/{name}")
        if path not in wanted.values():
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

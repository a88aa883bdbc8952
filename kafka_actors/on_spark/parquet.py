"""Parquet files of a stream: those of each micro-batch are there once, for every reader of the directory.

Spark's own file sink keeps a list of its files beside them (`_spark_metadata`). Readers that don't know it count the
files of micro-batches that were done again, and those that do are blind for files that others put there, such as the
same pipeline on Ray. So tasks write under hidden names, and when a micro-batch is complete its files get theirs, by
which what an earlier try of it left is replaced.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, ClassVar

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from kafka_actors.errors import SinkError
from kafka_actors.pipeline.arrays import cast_to
from kafka_actors.sinks.parquet import file_system
from kafka_actors.spark.clear import ClearErrors

ROW_GROUP_BYTES = 64 * 1024 * 1024
"""Of rows in memory: what a task holds before it writes."""


class ParquetPlan(msgspec.Struct, frozen=True):
    """`name` is the data source's, `stage` the sink's for errors; `path` a directory or URI that pyarrow knows;
    `columns` the files' schema."""

    name: str
    stage: str
    path: str
    compression: str
    columns: Any


def parquet_of(plan: ParquetPlan) -> type[DataSource]:
    """A class to register in a session, bound to the plan."""

    class Bound(ParquetStream):
        bound = plan

    return Bound


class ParquetStream(DataSource):
    """See the module. Its name is the plan's."""

    bound: ClassVar[ParquetPlan]

    @classmethod
    def name(cls) -> str:
        return cls.bound.name

    def streamWriter(self, schema: StructType, overwrite: bool) -> ParquetStreamWriter:
        return ParquetStreamWriter(self.bound)


class WrittenFiles(WriterCommitMessage):
    """Complete files under hidden names, by the names that they are to have. `batch` is what these begin with."""

    def __init__(self, batch: str, files: dict[str, str]) -> None:
        self.batch = batch
        self.files = files


class ParquetStreamWriter(DataSourceStreamArrowWriter):
    """`write` runs in tasks, `commit` and `abort` where the query is planned."""

    def __init__(self, plan: ParquetPlan) -> None:
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenFiles:
        """Raises `SinkError`."""
        context = TaskContext.get()
        assert context is not None  # a task runs it
        query, batch_id = map(context.getLocalProperty, ("sql.streaming.queryId", "streaming.sql.batchId"))
        assert query is not None
        assert batch_id is not None
        batch = batch_name(query, int(batch_id))
        with ClearErrors(), self._errors():
            return write_files(self._plan, batch, context.partitionId(), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Gives the files their names. Raises `SinkError`."""
        with ClearErrors(), self._errors():
            reveal(self._plan, [message for message in messages if isinstance(message, WrittenFiles)])

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Takes them away."""
        files, _ = file_system(self._plan.path)
        for message in messages:
            for hidden in message.files.values() if isinstance(message, WrittenFiles) else ():
                with suppress(OSError):
                    files.delete_file(hidden)

    def _errors(self) -> _Errors:
        return _Errors(self._plan.stage)


class _Errors:
    """What the file system raises, with the sink's name."""

    def __init__(self, stage: str) -> None:
        self._stage = stage

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, OSError):
            raise SinkError(self._stage, f"{type(error).__name__}: {error}") from error


def batch_name(query: str, batch: int) -> str:
    """What the names of a micro-batch's files begin with: the same when it is done again."""
    return f"spark-{query}-{batch:010d}-"


def write_files(plan: ParquetPlan, batch: str, task: int, batches: Iterator[pa.RecordBatch]) -> WrittenFiles:
    """The rows of a task as one file; none where there are no rows."""
    files, directory = file_system(plan.path)
    name = f"{batch}{task:05d}.parquet"
    hidden = f"{directory}/.{name}.{uuid.uuid4().hex}"
    writer: pq.ParquetWriter | None = None
    waiting: list[pa.RecordBatch] = []
    try:
        for rows in batches:
            if not rows.num_rows:
                continue
            if writer is None:
                files.create_dir(directory, recursive=True)
                stream = files.open_output_stream(hidden)
                writer = pq.ParquetWriter(stream, plan.columns, compression=plan.compression)
            waiting.append(
                cast_to(plan.columns, rows)
            )  # Spark gives timestamps the session's time zone, for one
            if sum(part.nbytes for part in waiting) >= ROW_GROUP_BYTES:
                writer.write_table(pa.Table.from_batches(waiting))
                waiting.clear()
        if writer is None:
            return WrittenFiles(batch, {})
        if waiting:
            writer.write_table(pa.Table.from_batches(waiting))
        writer.close()
        stream.close()
    except BaseException:
        with suppress(OSError):
            files.delete_file(hidden)
        raise
    return WrittenFiles(batch, {name: hidden})


def reveal(plan: ParquetPlan, written: list[WrittenFiles]) -> None:
    """Gives the files of a micro-batch their names, and takes away what earlier tries of it left.

    It may die at any moment: then the micro-batch is done again, and so is this.
    """
    if not written:
        return
    files, directory = file_system(plan.path)
    wanted = {name: hidden for message in written for name, hidden in message.files.items()}
    batch = written[0].batch
    keep = {*wanted, *(hidden.rpartition("/")[2] for hidden in wanted.values())}
    for found in files.get_file_info(fs.FileSelector(directory, allow_not_found=True)):
        if found.base_name.removeprefix(".").startswith(batch) and found.base_name not in keep:
            files.delete_file(found.path)
    for name, hidden in wanted.items():
        files.move(hidden, f"{directory}/{name}")

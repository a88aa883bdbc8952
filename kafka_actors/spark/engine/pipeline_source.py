"""Data source of one pipeline: it plans as the data source `kafka_actors` does, and runs the fused stages in its tasks.

It is registered in the session under a name of its own. Spark has no way to take a data source back out of a session, but
in the same session another one may take its name. In another session of the application it may not: Spark compares with
the names of the session that is active at the time, and raises DATA_SOURCE_ALREADY_EXISTS.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import uuid
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakKeyDictionary

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.types import StructType

from kafka_actors.spark.python_worker import OneLineErrors, freeze_imports
from kafka_actors.spark.source.machines.stream_offsets import StreamOffsets
from kafka_actors.spark.source.options import ReadOptions, parse_batch, parse_stream
from kafka_actors.spark.source.readers import (
    LIMITS,
    KafkaBatchReader,
    KafkaStreamReader,
    read_task,
    reader_class,
)
from kafka_actors.spark.source.schema import SourceColumns, columns_of, schema

from .frames import spark_schema
from .fusion import FusedStages

_PROCESS = uuid.uuid4().hex  # sessions of Spark Connect may be shared by processes
_lock = threading.Lock()
_free: WeakKeyDictionary[Any, list[int]] = WeakKeyDictionary()
"""Numbers in names that are registered in a session and were given back, by session."""
_numbers = itertools.count()


class SourceNames:
    """Names for the data sources of one run, or of one DataFrame, in one session. No other run has them until they are
    given back, and no other session ever."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._taken: list[int] = []

    def take(self) -> str:
        """A free name: one that was given back in this session, or else a new one."""
        with _lock:
            free = _free.setdefault(self._session, [])
            number = heapq.heappop(free) if free else next(_numbers)
        self._taken.append(number)
        return f"kafka_actors_pipeline_{_PROCESS}_{number}"

    def give_back(self) -> None:
        """Frees the names, to be called when Spark looks them up no more. A second call changes nothing."""
        taken, self._taken = self._taken, []
        with _lock:
            for number in taken:
                heapq.heappush(_free.setdefault(self._session, []), number)


def enter(spark: Any) -> None:
    """Makes a session the active one of this thread, in which Spark looks up Python data sources. `createDataFrame` does that."""
    spark.createDataFrame([], "nothing INT")


def context_of(spark: Any) -> Any:
    """The SparkContext, None over Spark Connect, which has none."""
    try:
        return spark.sparkContext
    except Exception:  # each version has its own
        return None


_ALL: SourceColumns = columns_of(schema(True), True)

if TYPE_CHECKING:
    _StreamReader = KafkaStreamReader
else:
    _StreamReader = reader_class()


class SourcePlan(msgspec.Struct, frozen=True, eq=False):
    """Read of a pipeline. `options` are those of the data source `kafka_actors`; `ends`: the offsets at which a backfill's stream
    has to end; `begin`: the offsets at which a stream has to begin."""

    name: str
    fusion: FusedStages
    options: dict[str, str]
    ends: StreamOffsets | None = None
    begin: StreamOffsets | None = None

    def __repr__(self) -> str:
        return f"<SourcePlan {self.name}>"  # passwords are among the options


def initial_offsets(options: Mapping[str, str], ends: StreamOffsets | None) -> StreamOffsets:
    """Resolves the start of a new stream with these options and ends. Raises as `StreamDriver.initial`."""
    from kafka_actors.spark.source.stream_driver import StreamDriver

    driver = StreamDriver(msgspec.structs.replace(parse_stream(options, limits=LIMITS), ends=ends))
    try:
        return StreamOffsets.from_json(driver.initial())
    finally:
        driver.close()


def source_of(plan: SourcePlan) -> type[DataSource]:
    """Makes a class to register in a session, bound to the plan, so that Spark's options have none of its secrets."""

    class Bound(PipelineSource):
        bound = plan

    return Bound


class PipelineSource(DataSource):
    """Data source of a pipeline's read; see the module. Its name is the plan's."""

    bound: ClassVar[SourcePlan]

    @classmethod
    def name(cls) -> str:
        return cls.bound.name

    def schema(self) -> StructType:
        freeze_imports()
        return spark_schema(self.bound.fusion.behind.schema)

    def reader(self, schema: StructType) -> PipelineReader:
        with OneLineErrors():
            return PipelineReader(self.bound)

    def streamReader(self, schema: StructType) -> PipelineStreamReader:
        with OneLineErrors():
            return PipelineStreamReader(self.bound)


class PipelineReader(KafkaBatchReader):
    """Reads a batch: plans once; in the tasks each batch of records passes the stages before Spark gets its rows."""

    def __init__(self, plan: SourcePlan) -> None:
        super().__init__(parse_batch(plan.options), _ALL)
        self._fusion = plan.fusion

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Reads one task. Raises `StageError`, and as `read_ranges`."""
        return _read(self._fusion, self._options, partition)


class PipelineStreamReader(_StreamReader):
    """Reads micro-batches through the stages; offsets, limits and lag are those of the data source `kafka_actors`."""

    def __init__(self, plan: SourcePlan) -> None:
        options = parse_stream(plan.options, limits=LIMITS)
        super().__init__(msgspec.structs.replace(options, ends=plan.ends, begin=plan.begin), _ALL)
        self._fusion = plan.fusion

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Reads one task. Raises `StageError`, and as `read_ranges`."""
        return _read(self._fusion, self._options, partition)


def _read(fusion: FusedStages, options: ReadOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    for batch in read_task(options, _ALL, partition):
        yield from fusion.run(batch)

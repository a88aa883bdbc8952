"""What runs as `mapInArrow`: Arrow stages behind the source, and dead letters where no sink of ours writes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
import pyarrow as pa

from kafka_actors.pipeline.arrays import cast_to
from kafka_actors.spark.clear import ClearErrors

from .dataframe import Frame
from .dead_letters import DeadLetterPlan
from .fusion import Fusion


class Stages(msgspec.Struct, frozen=True, eq=False):
    """Stages behind the source. `before` is the DataFrame that they get."""

    before: Frame
    fusion: Fusion

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Raises `StageError`."""
        behind = self.fusion.behind
        for batch in batches:
            good, failed = self.before.split(batch)
            for part in self.before.parts(good):
                yield from self.fusion.run(part.source, part.rows)
            if failed is not None:
                yield behind.pack_again(failed)


class WithoutFailed(msgspec.Struct, frozen=True, eq=False):
    """Sends failed records to the dead-letter topic, and hands on the others.

    A task's dead letters are acknowledged before it ends; one that is tried again sends them again.
    """

    before: Frame
    dead_letters: DeadLetterPlan
    schema: pa.Schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Raises `SinkError`."""
        with ClearErrors(), self.dead_letters.task() as dead:
            for batch in batches:
                good, failed = self.before.split(batch)
                if failed is not None:
                    dead.write_failed(failed)
                if good.num_rows:
                    yield cast_to(self.schema, good)
            dead.flush()

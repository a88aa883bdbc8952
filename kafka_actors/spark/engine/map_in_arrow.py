"""What runs as `mapInArrow`: Arrow stages behind the source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
import pyarrow as pa

from kafka_actors.spark.source.gc_settings import leave_imports_out
from kafka_actors.spark.source.task_tracing import traced_task

from .frames import PipelineFrame
from .fusion import FusedStages


class MapInArrowStages(msgspec.Struct, frozen=True, eq=False):
    """Stages behind the source. `before` is the DataFrame that they get."""

    before: PipelineFrame
    fusion: FusedStages

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Raises `StageError`."""
        leave_imports_out()
        behind = self.fusion.behind
        with traced_task():
            for batch in batches:
                good, failed = self.before.split(batch)
                for part in self.before.parts(good):
                    yield from self.fusion.run(part.source, part.rows)
                if failed is not None:
                    yield behind.pack_again(failed)

"""How far a streaming query is, out of the progress that Spark reports."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from kafka_actors.errors import ConfigError
from kafka_actors.spark.source.machines.stream_offsets import StreamOffsets
from kafka_actors.types import TopicPartition


class OffsetCounts(NamedTuple):
    """Offsets read since the start, offsets left, and the number of the last finished batch."""

    records: int
    lag: int | None
    batch: int | None


class QueryProgress:
    """Counts offsets: what the stages make of the records has another number of rows. `selects` tells the pipeline's
    topics from those of other sources in the same query: Spark doesn't say which source is which. `begun`: where the
    query starts, asked where the first progress doesn't say it (`offsetFormat=spark`)."""

    def __init__(
        self,
        selects: Callable[[str], object],
        begun: Callable[[], Mapping[TopicPartition, int]] = dict,
    ) -> None:
        self._selects = selects
        self._begun = begun
        self._first: dict[TopicPartition, int] = {}
        self.end: dict[str, Any] | None = None
        """The end of the last finished batch, as the source gave it."""
        self.counts = OffsetCounts(0, None, None)

    def observe(self, progress: Mapping[str, Any]) -> None:
        """Progress that was seen before changes nothing."""
        batch = progress["batchId"]
        if self.counts.batch is not None and batch < self.counts.batch:
            return
        for source in progress["sources"]:
            end = _offsets(source["endOffset"])
            if (
                end is not None
                and end.by_partition
                and all(self._selects(tp.topic) for tp in end.by_partition)
            ):
                self._observe(batch, source, end)
                return

    def _observe(self, batch: int, source: Mapping[str, Any], end: StreamOffsets) -> None:
        start = _offsets(source["startOffset"])
        begun = start.by_partition if start is not None else self._start_of(end)
        # What is new later begins at 0, also if its first batch wasn't seen.
        new = dict.fromkeys(end.by_partition, 0) if self._first else {**end.by_partition, **begun}
        for tp in end.by_partition:
            self._first.setdefault(tp, new[tp])
        self.end = _reported(source["endOffset"])
        records = sum(offset - self._first[tp] for tp, offset in end.by_partition.items())
        self.counts = OffsetCounts(records, _lag(_offsets(source["latestOffset"]), end), batch)

    def _start_of(self, first: StreamOffsets) -> Mapping[TopicPartition, int]:
        return self._begun() if first.start is None else first.start


def _offsets(text: str | None) -> StreamOffsets | None:
    """None for what is none, and for another source's."""
    try:
        found = _reported(text or "null")
        return StreamOffsets.from_json(found) if isinstance(found, dict) else None
    except (ValueError, SyntaxError, ConfigError):
        return None


def _reported(text: str) -> Any:
    """Offsets out of a progress: JSON; PySpark before 4.2 gives the `str` of what it read there."""
    try:
        return json.loads(text)
    except ValueError:
        return ast.literal_eval(text)


def _lag(latest: StreamOffsets | None, reached: StreamOffsets) -> int | None:
    if latest is None:
        return None
    ends = latest.by_partition
    return sum(max(0, end - reached.by_partition.get(tp, 0)) for tp, end in ends.items())

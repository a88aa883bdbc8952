"""How far a streaming query is, out of the progress that Spark reports."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from kafka_actors.protocol.types import TopicPartition
from kafka_actors.spark.machines.stream import StreamOffsets


class Counts(NamedTuple):
    """Offsets read since the start, offsets left, and the number of the last finished batch."""

    records: int
    lag: int | None
    batch: int | None


class Reckoning:
    """Counts offsets: what the stages make of the records has another number of rows. `source` is a part of the
    source's description by which it is told from others in the same query."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._first: dict[TopicPartition, int] = {}
        self.end: dict[str, Any] | None = None
        """The end of the last finished batch, as the source gave it."""
        self.counts = Counts(0, None, None)

    def observe(self, progress: Mapping[str, Any]) -> None:
        """Progress that was seen before changes nothing."""
        batch = progress["batchId"]
        if self.counts.batch is not None and batch < self.counts.batch:
            return
        for source in progress["sources"]:
            if self._source in source["description"]:
                self._observe(batch, source)

    def _observe(self, batch: int, source: Mapping[str, Any]) -> None:
        end = _json(source["endOffset"])
        if end is None:
            return
        reached = StreamOffsets.from_json(end)
        start = _json(source["startOffset"])
        begun = StreamOffsets.from_json(start).by_partition if start else (reached.start or {})
        for tp, offset in reached.by_partition.items():
            self._first.setdefault(tp, begun.get(tp, 0 if self._first else offset))
        self.end = end
        records = sum(offset - self._first[tp] for tp, offset in reached.by_partition.items())
        self.counts = Counts(records, _lag(_json(source["latestOffset"]), reached.by_partition), batch)


def _json(text: str | None) -> dict[str, Any] | None:
    if not text or text in ("null", "None"):
        return None
    found = json.loads(text)
    return found if isinstance(found, dict) else None


def _lag(latest: dict[str, Any] | None, reached: Mapping[TopicPartition, int]) -> int | None:
    if latest is None:
        return None
    ends = StreamOffsets.from_json(latest).by_partition
    return sum(max(0, end - reached.get(tp, 0)) for tp, end in ends.items())

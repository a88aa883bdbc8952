"""How far a stream is behind, under the names that Spark's own Kafka source gave its metrics."""

from __future__ import annotations

from collections.abc import Mapping

from kafka_actors.types import TopicPartition


def offsets_behind(
    newest: Mapping[TopicPartition, int], reached: Mapping[TopicPartition, int]
) -> dict[str, str]:
    """The smallest, the largest and the average distance over partitions, in offsets; nothing without partitions."""
    behind = [max(end - reached.get(tp, 0), 0) for tp, end in newest.items()]
    if not behind:
        return {}
    return {
        "minOffsetsBehindLatest": str(min(behind)),
        "maxOffsetsBehindLatest": str(max(behind)),
        "avgOffsetsBehindLatest": str(sum(behind) / len(behind)),
    }

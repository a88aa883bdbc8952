"""Seconds that a Metadata response of a big cluster takes: by default 100,000 partitions in 1,000 topics.

    python benchmarks/bench_metadata.py [--partitions 100000] [--topics 1000] [--brokers 30] [--runs 5]

`decode` is from the wire's bytes; `first` takes the response into an empty `ClusterMetadata`; `same` takes it in
again; `moved` after a tenth of the leaders moved; `hint` is one leader that a Fetch error named; `by broker` asks
which partitions a broker leads. The median of the runs.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
import uuid
from collections.abc import Callable

from kafka_actors.cluster import ClusterMetadata
from kafka_actors.protocol import ApiKey, MetadataResponse, TopicPartition, decode, encode
from kafka_actors.protocol.messages.metadata import (
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

VERSION = 12


def response(args: argparse.Namespace, moved: float = 0.0) -> MetadataResponse:
    """Three replicas a partition; that share of the partitions has its second replica as leader, a newer epoch."""
    rnd = random.Random(1)
    per_topic = args.partitions // args.topics

    def partition(index: int, number: int) -> MetadataResponsePartition:
        replicas = [(number + k) % args.brokers for k in range(3)]
        elected = rnd.random() < moved
        return MetadataResponsePartition(
            partition_index=index,
            leader_id=replicas[1] if elected else replicas[0],
            leader_epoch=2 if elected else 1,
            replica_nodes=replicas,
            isr_nodes=replicas,
        )

    topics = [
        MetadataResponseTopic(
            name=f"topic-{t:05}",
            topic_id=uuid.UUID(int=t + 1),
            partitions=[partition(p, t * per_topic + p) for p in range(per_topic)],
        )
        for t in range(args.topics)
    ]
    brokers = [MetadataResponseBroker(i, f"broker-{i}", 9092, f"rack-{i % 3}") for i in range(args.brokers)]
    return MetadataResponse(brokers=brokers, topics=topics)


def measure(args: argparse.Namespace) -> dict[str, float]:
    """Seconds of each step, in one run."""
    before, after = response(args), response(args, moved=0.1)
    data = encode(before, VERSION)
    metadata = ClusterMetadata()

    def timed(step: Callable[[], object]) -> float:
        started = time.perf_counter()
        step()
        return time.perf_counter() - started

    hinted = TopicPartition("topic-00000", 0)
    return {
        "decode": timed(lambda: decode(ApiKey.METADATA, VERSION, "response", data)),
        "first": timed(lambda: metadata.update_metadata(before)),
        "same": timed(lambda: metadata.update_metadata(before)),
        "moved": timed(lambda: metadata.update_metadata(after)),
        "hint": timed(lambda: metadata.update_leader(hinted, 2, 9)),
        "by broker": timed(lambda: metadata.partitions_for_broker(0)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--partitions", type=int, default=100_000)
    parser.add_argument("--topics", type=int, default=1_000)
    parser.add_argument("--brokers", type=int, default=30)
    parser.add_argument("--runs", type=int, default=5)
    args = parser.parse_args()
    runs = [measure(args) for _ in range(args.runs)]
    print(f"{args.partitions} partitions, {args.topics} topics, {args.brokers} brokers, seconds")
    for step in runs[0]:
        print(f"  {step:10} {statistics.median(run[step] for run in runs):8.3f}")


if __name__ == "__main__":
    main()

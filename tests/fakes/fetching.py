"""A `FetchMachine` step by step, without IO: its clock is moved by the test, and answers are made in few words; and what brokers answer to
Fetch requests, counted."""

from fakes.planned import planned

from kafka_actors.cluster.snapshot import BrokerMetadata, ClusterSnapshot, PartitionMetadata, TopicMetadata
from kafka_actors.config import ConsumerConfig, build
from kafka_actors.errors import CorruptRecordBatchError
from kafka_actors.fetch.machines.fetch_machine import FetchMachine
from kafka_actors.fetch.machines.partition_state import (
    PartitionStart,
)
from kafka_actors.fetch.messages import FetchedPartition, FetchReply
from kafka_actors.testing.fake_kafka import ChangeResponse
from kafka_actors.types import TopicPartition

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
E1, E2 = (1, 1), (1, 2)
MIB = 1024 * 1024


def snapshot(*leaders, epochs=None, topic_id=b"i" * 16, brokers=(1, 2, 3)):
    epochs = epochs or [5] * len(leaders)
    partitions = {n: PartitionMetadata(n, leader, epochs[n]) for n, leader in enumerate(leaders)}
    return ClusterSnapshot(
        brokers={b: BrokerMetadata(b, "h", b) for b in brokers},
        topics={"a": TopicMetadata("a", topic_id, partitions=partitions)},
    )


class Harness:
    """A machine, a clock that the test moves, and answers in few words."""

    def __init__(self, *, leaders=(1, 1), credit=2, together=0, **options):
        options.setdefault("auto_offset_reset", "earliest")
        self.machine = FetchMachine(
            build(ConsumerConfig, options),
            rand=lambda: 0.5,
            credit=credit,
            together=together,
        )
        self.now = 100.0
        self.published = []
        self.machine.update_metadata(snapshot(*leaders))

    def assign(self, tp=A0, offset=10, epoch=E1, **more):
        self.machine.assign(tp, PartitionStart(epoch, offset, **more))
        return self.machine.partitions.require(tp)

    def plan(self, after=0.0):
        self.now += after
        plan = planned(self.machine, self.now)
        self.published += plan.events
        return plan

    def pulls(self, after=0.0):
        return self.plan(after).pulls

    def pull(self, after=0.0):
        (issue,) = self.pulls(after)
        return issue

    def reply(self, issue, *fetched, **more):
        size = more.pop("size", sum(f.size for f in fetched))
        reply = FetchReply(issue.broker, issue.pull.sequence, list(fetched), size=size, **more)
        self.machine.on_reply(issue, reply, [bytes(f.size) for f in fetched], self.now)

    def read(self):
        """Takes everything there is and consumes it; the offsets as (partition, from, to)."""
        seen = []
        while (item := self.machine.take()) is not None:
            seen.append((item.partition.partition, item.fetch_offset, item.next_offset))
            assert self.machine.consumed(item)
        return seen

    @property
    def events(self):
        return [*self.published, *self.machine.partitions.events]


def got(offset, to, *, partition=0, epoch=E1, size=100, **more):
    return FetchedPartition("a", partition, epoch, offset, to, size=size, high_watermark=500, **more)


def nothing(offset, *, partition=0, epoch=E1, **more):
    more.setdefault("high_watermark", 500)
    return FetchedPartition("a", partition, epoch, offset, offset, **more)


def wants(issue):
    return [(w.partition, w.fetch_offset, w.epoch) for w in issue.pull.wants]


def bad(offset, next_offset):
    return CorruptRecordBatchError("a", 0, offset, next_offset, "checksum", "corrupt")


def count_fetched(kafka):
    """Returns a list that gets the sizes of the records in all answers to Fetch requests."""
    sizes = []

    def counted(call, response):
        parts = [part for topic in response.responses for part in topic.partitions]
        sizes.extend(len(part.records or b"") for part in parts)
        return response

    kafka.on("Fetch", ChangeResponse(counted), times=None)
    return sizes

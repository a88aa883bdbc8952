"""A loop over messages whose body seeks or pauses: the next message is one that may come then."""

from concurrent.futures import Future
from types import SimpleNamespace

import pyarrow as pa
import pytest

from kafka_actors import Consumer
from kafka_actors.cluster.snapshot import BrokerMetadata, ClusterSnapshot, PartitionMetadata, TopicMetadata
from kafka_actors.consumer.observing import ConsumerObserver
from kafka_actors.consumer.reader import Reader
from kafka_actors.fetch import Fetched, Fetcher, FetchReply, Start
from kafka_actors.protocol.types import TopicPartition
from kafka_actors.records import SCHEMA, encode

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
RECORDS = 10


async def nothing(*_):
    """What a test doesn't need."""


def records():
    rows = [{"value": b"v", "offset": o, "timestamp": 0, "timestampType": 0} for o in range(RECORDS)]
    return bytes(encode(pa.RecordBatch.from_pylist(rows, schema=SCHEMA)))


@pytest.fixture
def consumer():
    """One that has ten records of each of two partitions, and no connection."""
    made = Consumer()
    session = made._session
    fetcher = Fetcher(session.config, sources=lambda _: None, lookups=None, events=lambda _: None)
    observer = ConsumerObserver(None, "test", 0)
    partitions = {p: PartitionMetadata(p, 1, 4) for p in range(2)}
    fetcher.update_metadata(
        ClusterSnapshot(
            brokers={1: BrokerMetadata(1, "h", 1)},
            topics={"t": TopicMetadata("t", None, partitions=partitions)},
        )
    )
    fetcher.assign({tp: Start((0, 1), 0) for tp in (T0, T1)})
    (issue,) = fetcher._machine.plan(0.0).pulls
    data = records()
    parts = [Fetched("t", p, (0, 1), 0, RECORDS, size=len(data)) for p in range(2)]
    reply = FetchReply(1, issue.pull.sequence, parts, size=2 * len(data))
    fetcher._machine.on_reply(issue, reply, [data, data], 0.0)
    session.subscription.assign_from_user([T0, T1])
    session._reader = Reader(fetcher, observer)
    done = Future()
    done.set_result(None)
    session._io = SimpleNamespace(inside=False, post=lambda _: None, submit=lambda work: work.close() or done)
    session._core = SimpleNamespace(
        fetcher=fetcher,
        observer=observer,
        error=None,
        commit_due=False,
        progress=None,
        assigned=nothing,
        rebalances=SimpleNamespace(next=lambda: None),
    )
    yield made
    session.closed = True


@pytest.mark.parametrize("move", ["seek", "seek_to_end"])
def test_after_a_seek_no_message_comes_from_where_it_was(consumer, move):
    messages = iter(consumer)
    first = next(messages)
    assert (first.partition, first.offset) == (0, 0)
    if move == "seek":
        consumer.seek(T0, 5)
    else:
        consumer.seek_to_end(T0)
    assert next(messages).partition == 1  # of partition 0 nothing was fetched from there yet


def test_after_a_pause_no_message_comes_until_it_ends(consumer):
    messages = iter(consumer)
    assert [next(messages).offset for _ in range(3)] == [0, 1, 2]
    consumer.pause(T0)
    assert next(messages).partition == 1
    consumer.resume(T0)
    rest = [next(messages) for _ in range(2 * RECORDS - 4)]
    assert [m.offset for m in rest if m.partition == 0] == list(range(3, RECORDS))
    assert [m.offset for m in rest if m.partition == 1] == list(range(1, RECORDS))


def test_of_a_partition_that_is_not_assigned_any_more_no_message_comes(consumer):
    messages = iter(consumer)
    assert next(messages).partition == 0
    consumer.assign([T1])
    assert next(messages).partition == 1

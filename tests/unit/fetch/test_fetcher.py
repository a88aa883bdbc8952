"""The shell over the machine: sources that answer in threads of their own, in any order."""

import asyncio
import queue
import threading

import pyarrow as pa
import pytest
from fakes.planned import planned

from kafka_actors.cluster.snapshot import BrokerMetadata, ClusterSnapshot, PartitionMetadata, TopicMetadata
from kafka_actors.config import ConsumerConfig, build
from kafka_actors.errors import CorruptRecordBatchError, DisconnectedError
from kafka_actors.fetch import FetchedBytes, FetchedPartition, Fetcher, FetchReply, PartitionStart
from kafka_actors.fetch.decoding import AHEAD
from kafka_actors.fetch.machines.buffer import PartitionSlice
from kafka_actors.records import SCHEMA, encode
from kafka_actors.types import TopicPartition

TP = TopicPartition("t", 0)
SOON_S = 10


class Source:
    """Notes the pulls; the test answers them from its own thread, as a fetch thread does."""

    def __init__(self):
        self.pulls = queue.Queue()

    def fetch(self, pull, answered, queued=None):
        self.pulls.put((pull, answered))

    def next_pull(self):
        return self.pulls.get(timeout=SOON_S)


def snapshot():
    return ClusterSnapshot(
        brokers={1: BrokerMetadata(1, "h", 9092)},
        topics={"t": TopicMetadata("t", None, partitions={0: PartitionMetadata(0, 1, 4)})},
    )


def brought(pull, first, last):
    """The reply to a pull with the offsets from `first` up to `last`."""
    fetched = FetchedPartition(
        "t", 0, (0, 1), first, last, high_watermark=100, last_stable_offset=100, size=10
    )
    return FetchReply(1, pull.sequence, [fetched], size=10), [b"x" * 10]


class Harness:
    """A fetcher in a loop of its own thread, which a test can hold up."""

    def __init__(self, **options):
        self.source = Source()
        self.told = []  # events
        self.asked = []  # for which brokers the way was asked for, and in which thread
        self.ready = threading.Semaphore(0)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="loop")
        self._thread.start()
        self.fetcher = Fetcher(
            build(ConsumerConfig, bootstrap_servers="b:1", **options),
            sources=self._sources,
            lookups=None,
            events=self.told.append,
            on_ready=self.ready.release,
        )
        self.run(self.fetcher.start())
        self.fetcher.update_metadata(snapshot())
        self.fetcher.assign({TP: PartitionStart((0, 1), 0)})

    def _sources(self, broker):
        self.asked.append((broker, threading.current_thread().name))
        return self.source

    def run(self, work):
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(SOON_S)

    def hold_up_the_loop(self):
        """Until the event that is returned is set."""
        begun, going_on = threading.Event(), threading.Event()

        def wait():
            begun.set()
            going_on.wait(SOON_S)

        self._loop.call_soon_threadsafe(wait)
        assert begun.wait(SOON_S)
        return going_on

    def close(self):
        self.run(self.fetcher.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@pytest.fixture
def harness():
    made = Harness()
    yield made
    made.close()


def test_records_that_come_wait_for_no_loop(harness):
    """Neither the user nor the next pull does."""
    first, answered = harness.source.next_pull()
    going_on = harness.hold_up_the_loop()
    try:
        answered(brought(first, 0, 5))
        assert harness.ready.acquire(timeout=SOON_S)
        assert harness.fetcher.take().next_offset == 5
        assert [harness.source.next_pull()[0].sequence for _ in range(2)] == [1, 2]
    finally:
        going_on.set()
    assert {thread for _, thread in harness.asked} == {"loop"}


def test_nothing_is_handed_out_from_behind_an_event_before_that_is_told():
    """An event may be of a reset: who keeps the user's progress would take it for that of before, and forget it."""
    harness = Harness(on_bad_batch="skip")
    try:
        bad = records(0, 3)
        bad[-1] ^= 1
        data = bytes(bad + records(3, 5))
        first, answered = harness.source.next_pull()
        brought_bad = FetchedPartition("t", 0, (0, 1), 0, 5, high_watermark=100, size=len(data))
        answered((FetchReply(1, first.sequence, [brought_bad], size=len(data)), [data]))
        item = harness.fetcher.take()
        (second, then), (third, at_last) = harness.source.next_pull(), harness.source.next_pull()
        going_on = harness.hold_up_the_loop()
        try:
            assert [chunk.next_offset for chunk in harness.fetcher.decode(item)] == [3]
            then((FetchReply(1, second.sequence, []), []))  # the turn of this answer finds the event
            at_last((FetchReply(1, third.sequence, []), []))
            again, answered = harness.source.next_pull()
            assert [want.fetch_offset for want in again.wants] == [3]
            answered(brought(again, 3, 6))
            assert (harness.fetcher.take(), harness.told) == (None, [])
            while harness.ready.acquire(blocking=False):
                pass
        finally:
            going_on.set()
        assert harness.ready.acquire(timeout=SOON_S)
        assert harness.fetcher.take().fetch_offset == 3
        assert [(event.offset, event.next_offset) for event in harness.told] == [(0, 3)]
    finally:
        harness.close()


def test_answers_are_taken_in_the_order_of_the_pulls(harness):
    first, answered = harness.source.next_pull()
    answered(brought(first, 0, 5))
    second, then = harness.source.next_pull()
    third, at_last = harness.source.next_pull()
    at_last(brought(third, 8, 9))
    then(brought(second, 5, 8))
    reached = []
    while (item := harness.fetcher.take()) is not None:
        reached.append((item.fetch_offset, item.next_offset))
        harness.fetcher.consumed(item)
    assert reached == [(0, 9)] or reached == [(0, 5), (5, 9)] or reached == [(0, 5), (5, 8), (8, 9)]
    assert harness.fetcher.position(TP) == 9


def test_after_a_failure_the_way_to_the_broker_is_asked_for_again(harness):
    _, answered = harness.source.next_pull()
    lost, harness.source = harness.source, Source()
    answered(DisconnectedError("gone"))
    again, _ = harness.source.next_pull()
    assert (again.sequence, [want.fetch_offset for want in again.wants]) == (0, [0])
    assert lost.pulls.empty()


def test_an_answer_behind_the_end_changes_nothing(harness):
    first, answered = harness.source.next_pull()
    harness.run(harness.fetcher.close())
    answered(brought(first, 0, 5))
    assert harness.fetcher.take() is None
    assert harness.source.pulls.empty()


def records(first, last, codec="none"):
    rows = [
        {"value": b"v", "offset": offset, "timestamp": 0, "timestampType": 0} for offset in range(first, last)
    ]
    batch = pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
    return bytearray(encode(batch, codec=codec, partition_leader_epoch=2))


@pytest.mark.parametrize(
    ("policy", "log_end", "reached", "fetched_next"),
    [
        ("skip", 9, [(5, 5, 2), (0, 9, -1)], None),
        ("skip", 12, [(5, 5, 2), (0, 5, 2)], 5),  # what comes behind it has to be seen first
        ("fail", 9, [(5, 5, 2)], None),
    ],
)
def test_the_end_of_what_is_decoded_is_behind_a_batch_that_is_skipped(policy, log_end, reached, fetched_next):
    """So the offset to commit gets there too, also where nothing follows; the leader epoch there isn't known."""
    config = build(ConsumerConfig, on_bad_batch=policy)
    fetcher = Fetcher(config, sources=lambda _: None, lookups=None, events=lambda _: None)
    fetcher.update_metadata(snapshot())
    fetcher.assign({TP: PartitionStart((0, 1), 0, end_offset=9)})
    (issue,) = planned(fetcher._machine, 0.0).pulls
    bad = records(5, 9)
    bad[-1] ^= 1
    data = bytes(records(0, 5) + bad)
    part = FetchedPartition("t", 0, (0, 1), 0, 9, high_watermark=log_end, size=len(data))
    fetcher._machine.on_reply(issue, FetchReply(1, issue.pull.sequence, [part], size=len(data)), [data], 0.0)
    chunks = list(fetcher.decode(fetcher.take()))
    assert [(chunk.batch.num_rows, chunk.next_offset, chunk.leader_epoch) for chunk in chunks] == reached
    wants = [want.fetch_offset for pull in planned(fetcher._machine, 0.0).pulls for want in pull.pull.wants]
    assert wants == ([] if fetched_next is None else [fetched_next])


@pytest.mark.parametrize(
    ("isolation", "stable", "goes_on"),
    [("read_committed", 9, 9), ("read_committed", 12, None), ("read_uncommitted", 9, None)],
)
def test_of_committed_records_a_bad_batch_that_ends_what_can_be_read_is_the_last_one(
    isolation, stable, goes_on
):
    """Behind the last stable offset is nothing for this reader, wherever the high watermark is."""
    config = build(ConsumerConfig, on_bad_batch="skip", isolation_level=isolation)
    fetcher = Fetcher(config, sources=lambda _: None, lookups=None, events=lambda _: None)
    fetcher.update_metadata(snapshot())
    fetcher.assign({TP: PartitionStart((0, 1), 5)})
    (issue,) = planned(fetcher._machine, 0.0).pulls
    data = records(5, 9)
    data[-1] ^= 1
    part = FetchedPartition(
        "t", 0, (0, 1), 5, 9, high_watermark=12, last_stable_offset=stable, size=len(data)
    )
    reply = FetchReply(1, issue.pull.sequence, [part], size=len(data))
    fetcher._machine.on_reply(issue, reply, [bytes(data)], 0.0)
    chunks = list(fetcher.decode(fetcher.take()))
    assert [chunk.next_offset for chunk in chunks] == ([] if goes_on is None else [goes_on])
    if goes_on is None:
        with pytest.raises(CorruptRecordBatchError, match="raise max_partition_fetch_bytes"):
            fetcher.take()


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_what_is_put_back_is_decoded_from_the_record_on_where_it_was_left(codec):
    """Also behind batches of the same slice that are consumed."""
    config = build(ConsumerConfig, batch_rows=3)
    fetcher = Fetcher(config, sources=lambda _: None, lookups=None, events=lambda _: None)
    fetcher.update_metadata(snapshot())
    fetcher.assign({TP: PartitionStart((0, 1), 0)})
    (issue,) = planned(fetcher._machine, 0.0).pulls
    batches = [records(0, 5, codec=codec), records(5, 9, codec=codec), records(9, 20, codec=codec)]
    data = bytes(b"".join(batches))
    here = FetchedPartition("t", 0, (0, 1), 0, 20, size=len(data))
    fetcher._machine.on_reply(issue, FetchReply(1, issue.pull.sequence, [here], size=len(data)), [data], 0.0)
    seen = []
    for most in (1, 2, 1, 1, 9):
        item = fetcher.take()
        for chunk in fetcher.decode(item):
            seen += chunk.batch["offset"].to_pylist()
            fetcher.consumed(item, chunk.next_offset)
            most -= 1
            if not most:
                fetcher.put_back(TP)
                break
    assert seen == list(range(20))
    assert fetcher.position(TP) == 20
    assert fetcher.take() is None
    assert fetcher.buffered == 0


@pytest.mark.parametrize(("buffer", "largest"), [(64 * 2**20, 4_000_000), (2**20, 2**20 // 4)])
def test_a_chunk_is_no_larger_than_the_buffer_has_room_for_several(buffer, largest):
    """Four may wait that were decoded ahead."""
    config = build(ConsumerConfig, worker_buffer_bytes=buffer)
    fetcher = Fetcher(config, sources=lambda _: None, lookups=None, events=lambda _: None)
    fetcher.update_metadata(snapshot())
    fetcher.assign({TP: PartitionStart((0, 1), 0)})
    (issue,) = planned(fetcher._machine, 0.0).pulls
    values = [
        {"value": bytes(1_000), "offset": offset, "timestamp": 0, "timestampType": 0}
        for offset in range(4_000)
    ]
    data = bytes(encode(pa.RecordBatch.from_pylist(values, schema=SCHEMA)))
    fetched = FetchedPartition("t", 0, (0, 1), 0, 4_000, size=len(data))
    fetcher._machine.on_reply(
        issue, FetchReply(1, issue.pull.sequence, [fetched], size=len(data)), [data], 0.0
    )
    chunks = list(fetcher.decode(fetcher.take()))
    assert sum(chunk.batch.num_rows for chunk in chunks) == 4_000
    assert largest // 2 < max(1_000 * chunk.batch.num_rows for chunk in chunks) <= largest


@pytest.mark.parametrize("buffer", [48 << 20, 64 << 20, 1 << 20])
def test_what_is_decoded_ahead_fits_into_what_the_fetched_bytes_leave_of_the_buffer(buffer):
    config = build(ConsumerConfig, bootstrap_servers="b:1", worker_buffer_bytes=buffer)
    fetcher = Fetcher(config, sources=lambda broker: None, lookups=None, budget=buffer // 2)
    assert fetcher._limits.chunk_bytes * (AHEAD + 1) <= buffer // 2


@pytest.mark.parametrize("check", [True, False])
def test_checksums_are_verified_unless_the_user_said_no(check):
    data = bytearray(encode(pa.record_batch({"value": pa.array([b"v"], pa.binary())})))
    data[17] ^= 0xFF
    config = build(ConsumerConfig, bootstrap_servers="b:1", check_crcs=check)
    fetcher = Fetcher(config, sources=lambda _: None, lookups=None, events=lambda _: None)
    fetched = FetchedPartition("t", 0, (0, 1), 0, 1, size=len(data))
    chunks = fetcher.unpack(FetchedBytes(TP, [PartitionSlice(memoryview(data), fetched, None)]))
    if check:
        with pytest.raises(CorruptRecordBatchError, match="checksum"):
            list(chunks)
    else:
        assert [chunk.batch.num_rows for chunk in chunks] == [1]

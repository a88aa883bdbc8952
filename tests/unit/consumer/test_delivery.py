"""What was handed out and what may be committed, with a fetcher in place of the network's."""

import pyarrow as pa
import pytest
from fakes.planned import planned

from kafka_actors.base.message import messages_of
from kafka_actors.cluster.snapshot import BrokerMetadata, ClusterSnapshot, PartitionMetadata, TopicMetadata
from kafka_actors.config import ConsumerConfig, build
from kafka_actors.consumer.delivery import Delivery
from kafka_actors.consumer.telemetry import ConsumerTelemetry
from kafka_actors.fetch import FetchedPartition, Fetcher, FetchReply, PartitionStart
from kafka_actors.fetch.machines.pull_stream import PullToSend
from kafka_actors.records import SCHEMA, encode
from kafka_actors.types import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Harness:
    """A real fetcher whose pulls the test answers itself; nothing runs in a loop."""

    def __init__(self, **options):
        config = build(ConsumerConfig, options)
        self.fetcher = Fetcher(
            config, sources=lambda _: None, lookups=None, events=lambda _: None, clock=lambda: 0.0
        )
        self.reader = Delivery(self.fetcher, ConsumerTelemetry(None, "test", 0))
        partitions = {p: PartitionMetadata(p, 1, 4) for p in range(2)}
        self.fetcher.update_metadata(
            ClusterSnapshot(
                brokers={1: BrokerMetadata(1, "h", 1)},
                topics={"t": TopicMetadata("t", None, partitions=partitions)},
            )
        )
        self.fetcher.assign({tp: PartitionStart((0, 1 + tp.partition), 0) for tp in (T0, T1)})

    def arrive(self, *slices):
        """Answers a pull with records: (partition, first offset, how many)."""
        machine = self.fetcher._machine
        data, parts = [], []
        (issue,) = planned(machine, 0.0).pulls[:1] or [self.last]
        self.last = issue
        for partition, first, count in slices:
            encoded = bytes(encode(rows(partition, first, count)))
            parts.append(
                FetchedPartition("t", partition, (0, 1 + partition), first, first + count, size=len(encoded))
            )
            data.append(encoded)
        machine.on_reply(
            PullToSend(issue.broker, issue.token, issue.pull),
            FetchReply(1, issue.pull.sequence, parts, size=sum(map(len, data))),
            data,
            0.0,
        )


def rows(partition, first, count):
    return pa.RecordBatch.from_pylist(
        [
            {
                "key": None,
                "value": b"%d" % o,
                "topic": "t",
                "partition": partition,
                "offset": o,
                "timestamp": 0,
                "timestampType": 0,
                "headers": None,
            }
            for o in range(first, first + count)
        ],
        schema=SCHEMA,
    )


@pytest.fixture
def harness():
    return Harness()


def offsets(positions):
    return {tp.partition: position.offset for tp, position in positions.items()}


def test_the_batch_in_hand_is_not_safe_until_the_next_call(harness):
    harness.arrive((0, 0, 10), (1, 0, 10))
    first = harness.reader.next_batch()
    assert first.num_rows == 10
    assert offsets(harness.reader.positions([T0, T1])) == {0: 10, 1: 0}
    assert offsets(harness.reader.safe_positions([T0, T1])) == {0: 0, 1: 0}
    harness.reader.settle()
    assert offsets(harness.reader.safe_positions([T0, T1])) == {0: 10, 1: 0}
    harness.reader.next_batch()
    assert offsets(harness.reader.safe_positions([T0, T1])) == {0: 10, 1: 0}


def test_the_message_in_hand_is_not_safe(harness):
    harness.arrive((0, 0, 10))
    cursor = harness.reader.next_cursor()
    for message in messages_of(cursor.batch, cursor.row):
        cursor.begun = cursor.row
        cursor.row += 1
        assert offsets(harness.reader.safe_positions([T0])) == {0: message.offset}
        assert offsets(harness.reader.positions([T0])) == {0: message.offset + 1}


def test_after_an_explicit_commit_the_message_in_hand_counts_as_done(harness):
    harness.arrive((0, 0, 10))
    cursor = harness.reader.next_cursor()
    cursor.begun, cursor.row = 3, 4
    harness.reader.finish()
    assert offsets(harness.reader.safe_positions([T0])) == {0: 4}
    cursor.begun, cursor.row = 4, 5
    assert offsets(harness.reader.safe_positions([T0])) == {0: 4}


def test_a_batch_that_did_not_reach_the_user_is_handed_out_again(harness):
    harness.arrive((0, 0, 10))
    harness.reader.next_batch()
    harness.reader.put_back()
    assert offsets(harness.reader.positions([T0])) == {0: 0}
    assert harness.reader.next_batch()["offset"].to_pylist() == list(range(10))


def test_a_cursor_that_did_not_reach_the_user_repeats_no_message(harness):
    harness.arrive((0, 0, 10))
    cursor = harness.reader.next_cursor()
    cursor.begun, cursor.row = 3, 4
    harness.reader.settle()
    harness.reader.next_cursor()
    assert offsets(harness.reader.safe_positions([T0])) == {0: 4}
    harness.reader.put_back()
    assert harness.reader.next_batch()["offset"].to_pylist() == list(range(4, 10))


def test_what_is_left_of_a_chunk_comes_as_the_next_batch(harness):
    harness.arrive((0, 0, 10))
    cursor = harness.reader.next_cursor()
    cursor.begun, cursor.row = 3, 4
    assert harness.reader.next_batch()["offset"].to_pylist() == list(range(4, 10))


def test_a_paused_partition_in_the_middle_of_a_chunk_is_parked(harness):
    harness.arrive((0, 0, 10), (1, 0, 5))
    cursor = harness.reader.next_cursor()
    cursor.begun, cursor.row = 3, 4
    harness.reader.pause([T0])
    assert harness.reader.next_batch()["partition"][0].as_py() == 1
    assert harness.reader.next_batch() is None
    assert offsets(harness.reader.positions([T0])) == {0: 4}
    harness.reader.resume([T0])
    assert harness.reader.next_batch()["offset"].to_pylist() == list(range(4, 10))


def test_all_that_was_taken_of_a_paused_partition_comes_in_order_when_it_goes_on(harness):
    """What is decoded ahead may be of the same partition, and was taken before the pause."""
    harness.fetcher._machine.buffer._together = 0  # each slice by itself, as where they are large
    for first in (0, 10, 20):
        harness.arrive((0, first, 10))
    cursor = harness.reader.next_cursor()
    cursor.begun, cursor.row = 3, 4
    harness.reader.pause([T0])
    harness.fetcher.pause([T0])
    assert harness.reader.next_batch() is None
    assert offsets(harness.reader.positions([T0])) == {0: 4}
    harness.fetcher.resume([T0])
    harness.reader.resume([T0])
    cursor = harness.reader.next_cursor()
    came = [cursor.batch["offset"][cursor.row].as_py()]
    cursor.begun, cursor.row = 4, 5
    harness.reader.pause([T0])
    assert harness.reader.next_batch() is None
    assert offsets(harness.reader.positions([T0])) == {0: 5}
    harness.reader.resume([T0])
    while (batch := harness.reader.next_batch()) is not None:
        came += batch["offset"].to_pylist()
    assert came == list(range(4, 30))
    assert offsets(harness.reader.positions([T0])) == {0: 30}


def test_what_was_taken_ahead_of_a_partition_that_goes_is_not_handed_out(harness):
    """The listener was told that it is revoked, and its offsets are committed."""
    harness.arrive((0, 0, 10), (1, 0, 10))
    assert [harness.reader.next_batch()["partition"][0].as_py() for _ in range(2)] == [0, 1]
    harness.arrive((0, 10, 10), (1, 10, 10))
    assert harness.reader.next_batch()["partition"][0].as_py() == 0
    harness.fetcher.drain([T1])
    harness.reader.revoked([T1])
    assert harness.reader.next_batch() is None


def test_nothing_of_a_chunk_counts_once_the_position_was_moved(harness):
    harness.arrive((0, 0, 10))
    cursor = harness.reader.next_cursor()
    cursor.begun, cursor.row = 3, 4
    harness.fetcher.seek(T0, 100)
    assert offsets(harness.reader.positions([T0])) == {0: 100}
    assert offsets(harness.reader.safe_positions([T0])) == {0: 100}
    assert harness.reader.next_batch() is None


def test_a_revoked_partition_has_no_positions_and_no_pause(harness):
    harness.arrive((0, 0, 10))
    harness.reader.next_batch()
    harness.reader.pause([T0])
    harness.fetcher.revoke([T0])
    harness.reader.revoked([T0])
    assert offsets(harness.reader.positions([T0, T1])) == {1: 0}
    assert harness.reader.paused == frozenset()


def test_where_a_partition_was_begun_is_known_until_it_is_moved_or_revoked(harness):
    harness.arrive((0, 0, 10), (1, 0, 10))
    while harness.reader.next_batch() is not None:
        pass
    assert harness.reader.begun == {T0: 0, T1: 0}
    harness.fetcher.seek(T0, 4)
    harness.reader.sought([T0])
    assert harness.reader.begun == {T1: 0}
    harness.reader.revoked([T1])
    assert harness.reader.begun == {}


def test_of_what_was_given_up_or_lost_nothing_is_left_to_commit_nor_a_place_to_go_back_to(harness):
    """It may come back elsewhere, and be lost before a record of it is handed out."""
    harness.arrive((0, 0, 10), (1, 0, 10))
    while harness.reader.next_batch() is not None:
        pass
    harness.reader.revoked([T0])
    assert (harness.reader.handed, harness.reader.begun) == ({T1}, {T1: 0})
    harness.reader.lost([T1])
    assert (harness.reader.handed, harness.reader.begun) == (set(), {})


def test_a_topic_made_anew_was_begun_where_its_own_records_were_handed_out(harness, monkeypatch):
    """In it, the offset at which the one before was begun may be behind records that nobody has read."""
    ids = [b"1" * 16]
    monkeypatch.setattr(harness.fetcher, "topic_id", lambda tp: ids[0])
    harness.arrive((0, 0, 10), (1, 0, 10))
    while harness.reader.next_batch() is not None:
        pass
    harness.reader.begun[T0] = 5_000
    ids[0] = b"2" * 16
    harness.arrive((0, 10, 10))
    assert harness.reader.next_batch().num_rows == 10
    assert harness.reader.begun == {T0: 10, T1: 0}


def test_a_topic_whose_id_was_not_known_before_is_still_the_one_that_was_begun(harness, monkeypatch):
    """Brokers that are upgraded meanwhile give ids from then on: `seek_to_committed` would leave out what was handed out before and not committed."""
    ids = [None]
    monkeypatch.setattr(harness.fetcher, "topic_id", lambda tp: ids[0])
    for offset, known in enumerate((None, b"1" * 16, None)):
        ids[0] = known
        harness.arrive((0, offset, 1))
        assert harness.reader.next_batch().num_rows == 1
    assert harness.reader.begun == {T0: 0}


def test_a_chunk_without_records_moves_the_position_silently():
    harness = Harness(isolation_level="read_committed")
    machine = harness.fetcher._machine
    (issue,) = planned(machine, 0.0).pulls
    data = bytes(
        encode(rows(0, 0, 10), producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    )
    part = FetchedPartition("t", 0, (0, 1), 0, 10, aborted=((7, 0),), size=len(data))
    machine.on_reply(issue, FetchReply(1, 0, [part], size=len(data)), [data], 0.0)
    assert harness.reader.next_batch() is None
    assert offsets(harness.reader.positions([T0])) == {0: 10}
    assert machine.buffer.total == 0


def test_a_position_within_a_chunk_has_the_leader_epoch_of_what_lies_before_it(harness):
    """Else a restart behind an election takes the log for truncated (KIP-320)."""
    data = bytes(encode(rows(0, 0, 3), partition_leader_epoch=3))
    data += bytes(encode(rows(0, 3, 1), base_offset=3, is_control=True, partition_leader_epoch=4))
    data += bytes(encode(rows(0, 4, 3), partition_leader_epoch=4))
    machine = harness.fetcher._machine
    (issue,) = planned(machine, 0.0).pulls
    part = FetchedPartition("t", 0, (0, 1), 0, 7, high_watermark=7, size=len(data))
    machine.on_reply(issue, FetchReply(1, 0, [part], size=len(data)), [data], 0.0)
    seen = []
    while (cursor := harness.reader.next_cursor()) is not None:
        for row in range(cursor.batch.num_rows):
            position = cursor.at(row)
            seen.append((position.offset, position.leader_epoch))
        cursor.take_rows()
    assert seen == [(0, -1), (1, 3), (2, 3), (3, 3), (5, 4), (6, 4)]
    end = harness.reader.positions([T0])[T0]
    assert (end.offset, end.leader_epoch) == (7, 4)


def test_records_before_a_corrupt_batch_are_handed_out(harness):
    good, bad = bytes(encode(rows(0, 0, 5))), bytearray(encode(rows(0, 5, 5)))
    bad[-1] ^= 0xFF
    data = good + bytes(bad)
    machine = harness.fetcher._machine
    (issue,) = planned(machine, 0.0).pulls
    part = FetchedPartition("t", 0, (0, 1), 0, 10, high_watermark=10, size=len(data))
    machine.on_reply(issue, FetchReply(1, 0, [part], size=len(data)), [data], 0.0)
    assert harness.reader.next_batch()["offset"].to_pylist() == list(range(5))
    harness.reader.settle()
    with pytest.raises(Exception, match="checksum") as caught:
        harness.reader.next_batch()
    assert (caught.value.offset, caught.value.next_offset) == (5, 10)
    assert offsets(harness.reader.safe_positions([T0])) == {0: 5}

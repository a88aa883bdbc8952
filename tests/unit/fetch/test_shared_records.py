"""Records that several workers of a node need: who fetches, who waits, and what is kept for whom."""

import struct
import threading

import pyarrow as pa
import pytest
from waiting import within

from kafka_actors import records
from kafka_actors.fetch import PartitionFetch
from kafka_actors.fetch.messages import FetchedPartition, FetchReply
from kafka_actors.fetch.shared_records import KEPT_S, LATE_S, KeptRecords, SharedRecords, kept_of

T0, T1 = ("t", 0), ("t", 1)


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def want(offset=0, partition=0, topic_id=b"i" * 16, leader_epoch=3):
    return PartitionFetch("t", partition, (0, 1), offset, 100, topic_id, leader_epoch, shared=True)


def fetched(offset, to, partition=0, size=10, **more):
    return FetchedPartition("t", partition, (0, 1), offset, to, size=size, **more)


def kept(offset, to, at=0.0, size=40, **request):
    """Records in one batch, which has offsets from `base` on; of it there is the header."""
    partition, base = request.get("partition", 0), request.pop("base", offset)
    header = struct.pack(">qiibihi", base, size - 12, 0, 2, 0, 0, to - 1 - base)
    return KeptRecords(want(offset, **request), fetched(offset, to, partition, size), header.ljust(size), at)


def found(shared, *wants, most_bytes=1_000):
    pieces, *_ = shared.claim("reader", wants, most_bytes)
    shared.end("reader")
    return [(each.fetched.partition, each.fetched.fetch_offset) for each in pieces]


def test_one_fetches_a_partition_and_others_wait_until_it_ends(clock):
    shared = SharedRecords(clock=clock)
    assert shared.claim("a", [want(), want(partition=1)], 100)[:2] == ([], frozenset())
    assert shared.claim("b", [want(), want(partition=2)], 100)[:2] == ([], {T0})
    assert shared.claim("c", [want(partition=2), want(partition=3)], 100)[:2] == ([], {("t", 2)})
    shared.end("a")
    assert shared.claim("b", [want(), want(partition=1)], 100)[:2] == ([], frozenset())
    assert shared.claim("a", [want(partition=1)], 100)[:2] == ([], {T1})


def test_what_one_brought_is_for_all_that_come_to_an_offset_in_it(clock):
    shared = SharedRecords(clock=clock)
    shared.end("a", [kept(0, 10), kept(10, 20), kept(0, 5, partition=1)])
    assert found(shared, want(0)) == [(0, 0)]
    assert found(shared, want(9)) == [(0, 0)]
    assert found(shared, want(10), want(4, partition=1)) == [(0, 10), (1, 0)]
    assert found(shared, want(20)) == []
    assert found(shared, want(5, partition=1)) == []


def test_a_batch_is_for_who_comes_to_its_records_before_those_that_were_asked_for(clock):
    shared = SharedRecords(clock=clock)
    shared.end("a", [kept(7, 10, base=5)])
    assert [found(shared, want(offset)) for offset in (4, 5, 7, 9)] == [[], *[[(0, 7)]] * 3]


def test_who_finds_records_claims_nothing(clock):
    shared = SharedRecords(clock=clock)
    shared.end("a", [kept(0, 10)])
    assert shared.claim("b", [want(0), want(partition=1)], 100)[0]
    assert shared.claim("c", [want(10), want(partition=1)], 100)[:2] == ([], frozenset())


@pytest.mark.parametrize("other", [{"topic_id": b"j" * 16}, {"topic_id": None}, {"leader_epoch": 4}])
def test_records_of_another_topic_or_under_another_leader_are_nobodys(clock, other):
    shared = SharedRecords(clock=clock)
    shared.end("a", [kept(0, 10)])
    assert found(shared, want(0, **other)) == []


def test_who_is_behind_does_not_wait_for_one_at_the_end_of_the_log(clock):
    shared = SharedRecords(clock=clock)
    shared.claim("at the end", [want(100_000)], 100, 60.0)
    assert shared.claim("behind", [want(5)], 100)[:2] == ([], frozenset()), "its answer can't serve offset 5"
    assert shared.claim("near", [want(100_001)], 100)[:2] == ([], {T0})
    assert shared.claim("beside", [want(6, leader_epoch=4)], 100)[:2] == ([], frozenset())


def test_an_answer_that_is_late_is_waited_for_no_longer(clock):
    shared = SharedRecords(clock=clock)
    shared.claim("hangs", [want()], 100, 0.5)
    clock.now = 0.5 + LATE_S - 0.1
    assert shared.claim("b", [want()], 100)[1] == {T0}
    clock.now += 0.2
    assert shared.claim("b", [want()], 100)[1] == frozenset()


def test_an_end_between_claim_and_wait_is_not_missed(clock):
    shared = SharedRecords(clock=clock)
    shared.claim("a", [want()], 100)
    _, _, changes = shared.claim("b", [want()], 100)
    shared.end("a")
    with within(10):
        shared.wait(changes, 60)


def batches(*offsets, aborted=()):
    """Kept records from the first offset on, in a batch for each."""
    data = [
        records.encode(pa.record_batch({"value": pa.array([b"x"] * 10)}), base_offset=at) for at in offsets
    ]
    part = fetched(offsets[0], offsets[-1] + 10, size=sum(map(len, data)), aborted=aborted)
    return data, KeptRecords(want(offsets[0]), part, b"".join(data), 0.0)


def test_who_asks_for_an_offset_within_gets_the_batch_that_has_it_and_those_behind(clock):
    """Batches in front of it may be broken, and were skipped."""
    shared = SharedRecords(clock=clock)
    data, kept_batches = batches(0, 10, 20)
    shared.end("a", [kept_batches])
    for offset, first in ((0, 0), (3, 0), (10, 1), (19, 1), (20, 2), (29, 2)):
        ((_, part, given, _),) = shared.claim("reader", [want(offset)], 1_000)[0]
        assert (bytes(given), part.size) == (b"".join(data[first:]), sum(map(len, data[first:])))
    assert found(shared, want(30)) == []


@pytest.mark.parametrize("length", [0, -1, 1 << 30])
def test_behind_a_header_that_is_none_nothing_is_given(clock, length):
    shared = SharedRecords(clock=clock)
    data, kept_batches = batches(0, 10)
    broken = data[0][:8] + length.to_bytes(4, "big", signed=True) + data[0][12:] + data[1]
    shared.end("a", [kept_batches._replace(records=broken)])
    assert found(shared, want(0)) == [(0, 0)], "its reader finds out"
    assert found(shared, want(10)) == []


def test_where_transactions_were_aborted_only_all_of_the_records_are_given(clock):
    shared = SharedRecords(clock=clock)
    _, kept_batches = batches(0, 10, aborted=((1, 0),))
    shared.end("a", [kept_batches])
    assert [found(shared, want(offset)) for offset in (0, 10)] == [[(0, 0)], []]


def test_a_small_part_of_a_response_keeps_no_more_than_itself():
    response = memoryview(bytearray(1_000))
    answer = FetchReply(1, 0, [fetched(0, 10, size=100)], size=1_000), [response[:100]]
    ((_, _, own, _),) = kept_of([want()], answer, 0.0)
    assert (type(own), len(own)) == (bytes, 100)
    answer = FetchReply(1, 0, [fetched(0, 10, size=600)], size=1_000), [response[:600]]
    ((_, _, own, _),) = kept_of([want()], answer, 0.0)
    assert own.obj is response.obj


def test_not_more_is_given_than_was_asked_for_beyond_the_first(clock):
    shared = SharedRecords(clock=clock)
    shared.end(
        "a", [kept(0, 10, size=60), kept(0, 10, size=60, partition=1), kept(0, 10, size=20, partition=2)]
    )
    wants = [want(0), want(0, partition=1), want(0, partition=2)]
    assert found(shared, *wants, most_bytes=100) == [(0, 0), (2, 0)]
    assert found(shared, *wants, most_bytes=10) == [(0, 0)]


def test_the_oldest_go_first_by_bytes_and_by_time(clock):
    shared = SharedRecords(most_bytes=100, clock=clock)
    shared.end("a", [kept(0, 10), kept(10, 20)])
    shared.end("a", [kept(20, 30)])
    assert [found(shared, want(offset)) for offset in (0, 10, 20)] == [[], [(0, 10)], [(0, 20)]]
    clock.now = KEPT_S + 0.1
    assert [found(shared, want(offset)) for offset in (10, 20)] == [[], []]


def test_what_is_old_goes_also_where_nobody_shares_any_more(clock):
    shared = SharedRecords(clock=clock)
    shared.end("a", [kept(0, 10)])
    shared.drop_old()
    assert found(shared, want(0)) == [(0, 0)]
    clock.now = KEPT_S + 0.1
    shared.drop_old()
    assert not shared._kept


def test_who_waits_is_woken_by_the_end_of_anothers_claim(clock):
    shared = SharedRecords(clock=clock)
    shared.claim("a", [want()], 100, 60.0)
    woken = threading.Event()

    def wait():
        while (claimed := shared.claim("b", [want()], 100, 60.0))[1]:
            shared.wait(claimed[2], 60)
        woken.set()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    assert not woken.wait(0.05)
    shared.end("a")
    assert woken.wait(10)


def test_only_records_that_lead_on_are_kept():
    parts = [
        fetched(0, 10),
        fetched(0, 0, 1, 0),
        fetched(0, 0, 2),
        fetched(0, 0, 3, 0, error_code=6),
        fetched(0, 9, 4),
    ]
    answer = FetchReply(1, 0, parts), [bytes(part.size) for part in parts]
    brought = kept_of([want(partition=n) for n in (0, 1, 2, 3, 7)], answer, 5.0)
    assert [(each.want.partition, each.records, each.at) for each in brought] == [(0, bytes(10), 5.0)]

"""Records that several workers of a node need: who fetches, who waits, and what is kept for whom."""

import threading

import pytest

from kafka_actors.fetch import PartitionFetch
from kafka_actors.fetch.messages import FetchedPartition, FetchReply
from kafka_actors.fetch.shared_records import KEPT_S, KeptRecords, SharedRecords, kept_of

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


def kept(offset, to, at=0.0, size=10, **request):
    partition = request.get("partition", 0)
    records = request.pop("base", offset).to_bytes(8, "big") + b"r" * (size - 8)
    return KeptRecords(want(offset, **request), fetched(offset, to, partition, size), records, at)


def found(shared, *wants, most_bytes=1_000):
    pieces, _ = shared.claim("reader", wants, most_bytes)
    shared.end("reader")
    return [(each.fetched.partition, each.fetched.fetch_offset) for each in pieces]


def test_one_fetches_a_partition_and_others_wait_until_it_ends(clock):
    shared = SharedRecords(clock=clock)
    assert shared.claim("a", [want(), want(partition=1)], 100) == ([], frozenset())
    assert shared.claim("b", [want(), want(partition=2)], 100) == ([], {T0})
    assert shared.claim("c", [want(partition=2), want(partition=3)], 100) == ([], {("t", 2)})
    shared.end("a")
    assert shared.claim("b", [want(), want(partition=1)], 100) == ([], frozenset())
    assert shared.claim("a", [want(partition=1)], 100) == ([], {T1})


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
    assert shared.claim("c", [want(10), want(partition=1)], 100) == ([], frozenset())


@pytest.mark.parametrize("other", [{"topic_id": b"j" * 16}, {"topic_id": None}, {"leader_epoch": 4}])
def test_records_of_another_topic_or_under_another_leader_are_nobodys(clock, other):
    shared = SharedRecords(clock=clock)
    shared.end("a", [kept(0, 10)])
    assert found(shared, want(0, **other)) == []


def test_not_more_is_given_than_was_asked_for_beyond_the_first(clock):
    shared = SharedRecords(clock=clock)
    shared.end(
        "a", [kept(0, 10, size=60), kept(0, 10, size=60, partition=1), kept(0, 10, size=20, partition=2)]
    )
    wants = [want(0), want(0, partition=1), want(0, partition=2)]
    assert found(shared, *wants, most_bytes=100) == [(0, 0), (2, 0)]
    assert found(shared, *wants, most_bytes=10) == [(0, 0)]


def test_the_oldest_go_first_by_bytes_and_by_time(clock):
    shared = SharedRecords(most_bytes=25, clock=clock)
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
    shared.claim("a", [want()], 100)
    woken = threading.Event()

    def wait():
        while shared.claim("b", [want()], 100)[1]:
            shared.wait(60)
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

"""The connection side's fetch session (KIP-227), request by request."""

import uuid

import pytest

from kafka_actors.fetch.machines.session import FetchSession, SequenceGap
from kafka_actors.fetch.messages import Pull, Want
from kafka_actors.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)

IDS = {"a": uuid.UUID(int=1), "b": uuid.UUID(int=2)}


def want(topic="a", partition=0, offset=0, *, epoch=(1, 1), ids=True, max_bytes=100, topic_id=None):
    known = topic_id or (IDS[topic].bytes if ids else None)
    return Want(topic, partition, epoch, offset, max_bytes, known, 7)


def data(partition, records=None, **more):
    return PartitionData(partition_index=partition, records=records, high_watermark=50, **more)


def response(*partitions, session=9, error=0, topic="a", named=False):
    entry = FetchableTopicResponse(
        topic=topic if named else "",
        topic_id=uuid.UUID(int=0) if named else IDS[topic],
        partitions=list(partitions),
    )
    return FetchResponse(session_id=session, error_code=error, responses=[entry] if partitions else [])


class Wire:
    """A session with its pulls numbered; record bytes are `b"<next offset>"`."""

    def __init__(self, version=17):
        self.session = FetchSession(broker=3, min_bytes=1, isolation_level=1, rack="r1")
        self.version = version
        self.sequence = 0

    def ask(self, wants=(), forget=()):
        self.session.apply(Pull(self.sequence, list(wants), list(forget), 1000, 500))
        self.sequence += 1
        return self.session.request(self.version)

    def answer(self, answer):
        reply, self.records = self.session.digest(
            answer,
            next_offset=lambda r: int(r) if r.isdigit() else None,
            size=99,
        )
        return reply


def named(request):
    return [(t.topic, p.partition, p.fetch_offset) for t in request.topics for p in t.partitions]


def test_the_first_request_names_everything_and_carries_the_options():
    wire = Wire()
    request, version = wire.ask([want(offset=5), want(partition=1, offset=6)])
    assert version == 17
    assert (request.session_id, request.session_epoch) == (0, 0)
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (500, 1, 1000)
    assert (request.isolation_level, request.rack_id) == (1, "r1")
    assert named(request) == [("a", 0, 5), ("a", 1, 6)]
    partition = request.topics[0].partitions[0]
    assert (partition.current_leader_epoch, partition.partition_max_bytes) == (7, 100)
    assert request.topics[0].topic_id == IDS["a"]


def test_theme_13_the_rack_is_told_only_while_the_records_may_come_from_a_follower():
    wire = Wire()
    wire.ask([want()])
    wire.session.apply(Pull(1, followers=False))
    assert wire.session.request(17)[0].rack_id == ""
    wire.session.apply(Pull(2))
    assert wire.session.request(17)[0].rack_id == "r1"


def test_a_request_within_a_session_names_only_what_advanced():
    wire = Wire()
    wire.ask([want(), want(partition=1)])
    reply = wire.answer(response(data(0, b"12"), data(1)))
    assert [(f.partition, f.fetch_offset, f.next_offset, f.size) for f in reply.partitions] == [
        (0, 0, 12, 2),
        (1, 0, 0, 0),
    ]
    assert wire.records == [b"12", b""]
    assert (reply.broker, reply.sequence, reply.size) == (3, 0, 99)
    request, _ = wire.ask()
    assert (request.session_id, request.session_epoch) == (9, 1)
    assert named(request) == [("a", 0, 12)]
    wire.answer(response())
    request, _ = wire.ask()
    assert (request.session_epoch, named(request)) == (2, [])


def test_trap_8_each_answer_carries_the_epoch_of_its_want():
    wire = Wire()
    wire.ask([want(epoch=(1, 1))])
    assert wire.answer(response(data(0, b"4"))).partitions[0].epoch == (1, 1)
    request, _ = wire.ask([want(epoch=(1, 2), offset=40)])
    assert named(request) == [("a", 0, 40)]
    fetched = wire.answer(response(data(0, b"44"))).partitions[0]
    assert (fetched.epoch, fetched.fetch_offset, fetched.next_offset) == ((1, 2), 40, 44)


def test_what_is_forgotten_is_named_once():
    wire = Wire()
    wire.ask([want(), want(partition=1)])
    wire.answer(response(data(0), data(1)))
    request, _ = wire.ask(forget=[("a", 1)])
    assert [(f.topic_id, f.partitions) for f in request.forgotten_topics_data] == [(IDS["a"], [1])]
    wire.answer(response())
    request, _ = wire.ask()
    assert request.forgotten_topics_data == []
    assert wire.session.wanted == {("a", 0): 0}


def test_theme_16_a_partition_with_an_error_is_not_asked_again_until_wanted_anew():
    wire = Wire()
    wire.ask([want(offset=5), want(partition=1)])
    reply = wire.answer(response(data(0, error_code=6), data(1)))
    assert reply.partitions[0].error_code == 6
    assert reply.partitions[0].next_offset == 5
    request, _ = wire.ask()
    assert [f.partitions for f in request.forgotten_topics_data] == [[0]]
    assert named(request) == []
    wire.answer(response())
    request, _ = wire.ask([want(offset=5)])
    assert named(request) == [("a", 0, 5)]


@pytest.mark.parametrize(
    "left",
    [
        data(0, diverging_epoch=EpochEndOffset(epoch=3, end_offset=2)),
        data(0, preferred_read_replica=2),
        data(0, b"garbage"),
        data(0, b"5"),
    ],
    ids=["diverging", "preferred replica", "no batch", "no progress"],
)
def test_a_partition_that_needs_a_decision_leaves_the_session(left):
    wire = Wire()
    wire.ask([want(offset=5)])
    fetched = wire.answer(response(left)).partitions[0]
    assert fetched.next_offset == fetched.fetch_offset == 5
    assert wire.session.wanted == {}


def test_a_session_the_broker_lost_is_replaced_by_a_new_one():
    wire = Wire()
    wire.ask([want(), want("b")])
    wire.answer(response(data(0, b"8")))
    wire.ask()
    reply = wire.answer(response(error=70))
    assert (reply.error_code, reply.partitions) == (70, [])
    request, _ = wire.ask()
    assert (request.session_id, request.session_epoch) == (0, 0)
    assert sorted(named(request)) == [("a", 0, 8), ("b", 0, 0)]


@pytest.mark.parametrize("error", [71, 106])
def test_a_session_in_disorder_is_closed_by_the_request_that_replaces_it(error):
    wire = Wire()
    wire.ask([want()])
    wire.answer(response(data(0)))
    wire.ask()
    wire.answer(response(error=error))
    request, _ = wire.ask()
    assert (request.session_id, request.session_epoch, named(request)) == (9, 0, [("a", 0, 0)])


def test_after_a_lost_connection_the_next_request_opens_a_session():
    wire = Wire()
    wire.ask([want()])
    wire.answer(response(data(0, b"3")))
    wire.ask()
    wire.session.reset()
    request, _ = wire.ask()
    assert (request.session_id, request.session_epoch, named(request)) == (0, 0, [("a", 0, 3)])


def test_a_topic_without_an_id_keeps_the_session_at_version_12():
    wire = Wire()
    request, version = wire.ask([want(), want("b", ids=False)])
    assert version == 12
    assert [t.topic for t in request.topics] == ["a", "b"]
    reply = wire.answer(response(data(0, b"3"), topic="b", named=True))
    assert [(f.topic, f.next_offset) for f in reply.partitions] == [("b", 3)]


def test_the_session_is_replaced_when_the_last_topic_gets_its_id():
    wire = Wire()
    wire.ask([want(ids=False)])
    wire.answer(response(data(0), named=True))
    request, version = wire.ask([want(offset=2)])
    assert version == 17
    assert (request.session_id, request.session_epoch, named(request)) == (9, 0, [("a", 0, 2)])


def test_a_broker_before_topic_ids_is_asked_in_its_version():
    wire = Wire(version=11)
    _, version = wire.ask([want()])
    assert version == 11


def test_theme_17_a_recreated_topic_is_forgotten_under_its_old_id():
    wire = Wire()
    wire.ask([want()])
    wire.answer(response(data(0)))
    new = uuid.UUID(int=77)
    request, _ = wire.ask([want(topic_id=new.bytes)])
    assert [(f.topic_id, f.partitions) for f in request.forgotten_topics_data] == [(IDS["a"], [0])]
    assert [t.topic_id for t in request.topics] == [new]


def test_a_broker_without_room_for_sessions_is_asked_for_everything_who_got_records_last():
    wire = Wire()
    wire.ask([want(partition=p) for p in range(4)])
    wire.answer(response(data(0, b"5"), data(1), data(2), data(3), session=0))
    request, _ = wire.ask()
    assert (request.session_id, request.session_epoch) == (0, 0)
    assert named(request) == [("a", 1, 0), ("a", 2, 0), ("a", 3, 0), ("a", 0, 5)]


def test_a_full_answer_with_a_partition_missing_is_not_trusted_as_a_session():
    wire = Wire()
    wire.ask([want(), want(partition=1)])
    wire.answer(response(data(0, b"5")))
    request, _ = wire.ask()
    assert request.session_epoch == 0
    assert sorted(named(request)) == [("a", 0, 5), ("a", 1, 0)]


def test_a_lost_pull_is_noticed():
    wire = Wire()
    wire.ask([want()])
    with pytest.raises(SequenceGap):
        wire.session.apply(Pull(5))


def test_a_new_stream_begins_with_nothing_of_the_old_one():
    wire = Wire()
    wire.ask([want(), want(partition=1)])
    wire.answer(response(data(0), data(1)))
    wire.sequence = 0
    request, _ = wire.ask([want("b")])
    assert named(request) == [("b", 0, 0)]
    assert [f.partitions for f in request.forgotten_topics_data] == [[0, 1]]


def test_the_epoch_of_a_session_wraps_around_to_one():
    wire = Wire()
    wire.ask([want()])
    wire.answer(response(data(0)))
    wire.session._epoch = 2**31 - 1
    wire.ask()
    wire.answer(response())
    assert wire.ask()[0].session_epoch == 1


def test_an_answer_about_a_partition_never_asked_for_is_ignored():
    wire = Wire()
    wire.ask([want()])
    wire.answer(response(data(0)))
    wire.ask()
    assert wire.answer(response(data(5, b"9"))).partitions == []

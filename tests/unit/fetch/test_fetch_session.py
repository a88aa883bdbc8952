"""The connection side's fetch session (KIP-227), request by request."""

import uuid

import pytest
from msgspec.structs import replace

from kafka_actors.fetch.machines.fetch_session import FetchSession, SequenceGap
from kafka_actors.fetch.messages import FetchedPartition, PartitionFetch, Pull
from kafka_actors.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)

IDS = {"a": uuid.UUID(int=1), "b": uuid.UUID(int=2)}


def want(topic="a", partition=0, offset=0, *, epoch=(1, 1), ids=True, max_bytes=100, topic_id=None):
    known = topic_id or (IDS[topic].bytes if ids else None)
    return PartitionFetch(topic, partition, epoch, offset, max_bytes, known, 7)


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


def test_the_rack_is_told_only_while_the_records_may_come_from_a_follower():
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


def test_a_partition_that_is_left_out_once_leaves_the_brokers_session_and_comes_back():
    wire = Wire()
    wire.ask([want(), want(partition=1)])
    wire.answer(response(data(0), data(1)))
    wire.session.apply(Pull(1, max_wait_ms=500))
    request, _ = wire.session.request(17, wait_ms=20, without={("a", 1)})
    assert (request.max_wait_ms, named(request)) == (20, [])
    assert [forgotten.partitions for forgotten in request.forgotten_topics_data] == [[1]]
    wire.answer(response(data(0, b"5")))
    wire.session.apply(Pull(2, max_wait_ms=500))
    request, _ = wire.session.request(17)
    assert (request.max_wait_ms, sorted(named(request))) == (500, [("a", 0, 5), ("a", 1, 0)])
    assert request.forgotten_topics_data == []


def test_records_that_another_session_fetched_move_the_offset_on():
    wire = Wire()
    wire.ask([replace(want(epoch=(2, 2), offset=3), shared=True), want(partition=1)])
    wire.answer(response(data(0), data(1)))
    assert [(w.partition, w.fetch_offset) for w in wire.session.shared()] == [(0, 3)]
    theirs = FetchedPartition("a", 0, (1, 1), 0, 12, high_watermark=40, aborted=((7, 2),), size=8)
    wire.session.apply(Pull(1))
    reply = wire.session.serve([theirs])
    assert (reply.broker, reply.sequence, reply.size) == (3, 1, 8)
    assert reply.partitions == [replace(theirs, epoch=(2, 2), fetch_offset=3)]
    assert [(w.partition, w.fetch_offset) for w in wire.session.shared()] == [(0, 12)]
    wire.session.apply(Pull(2))
    assert named(wire.session.request(17)[0]) == [("a", 0, 12)]
    wire.session.apply(Pull(3, [want(offset=12)]))
    assert wire.session.shared() == [], "nobody shares it any more"
    wire.session.apply(Pull(4, [replace(want(partition=1), shared=True)]))
    assert [w.partition for w in wire.session.shared()] == [1]
    wire.session.apply(Pull(5, forget=[("a", 1)]))
    assert wire.session.shared() == []


def test_each_answer_carries_the_epoch_of_its_want():
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


def test_a_partition_with_an_error_is_not_asked_again_until_wanted_anew():
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
        data(0, preferred_read_replica=2),
        data(0, b"garbage"),
        data(0, b"5"),
    ],
    ids=["preferred replica", "no batch", "no progress"],
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


def test_a_recreated_topic_is_forgotten_under_its_old_id():
    wire = Wire()
    wire.ask([want()])
    wire.answer(response(data(0)))
    new = uuid.UUID(int=77)
    request, _ = wire.ask([want(topic_id=new.bytes)])
    assert [(f.topic_id, f.partitions) for f in request.forgotten_topics_data] == [(IDS["a"], [0])]
    assert [t.topic_id for t in request.topics] == [new]


@pytest.mark.parametrize("ids", [True, False])
def test_a_session_of_names_does_not_forget_what_it_asks_for(ids):
    """Brokers without topic ids take a partition out that stands in both lists, and it is never asked for again."""
    wire = Wire(version=12)
    wire.ask([want(ids=ids), want(partition=1, ids=ids)])
    wire.answer(response(data(0), data(1), named=True))
    request, version = wire.ask([want(offset=3, topic_id=uuid.UUID(int=77).bytes)])
    assert version == 12
    assert named(request) == [("a", 0, 3)]
    assert request.forgotten_topics_data == []
    wire.answer(response(named=True))
    request, _ = wire.ask(forget=[("a", 0)])
    assert forgotten(request) == [("a", 0)]


def test_of_a_partition_that_a_response_names_twice_the_first_counts():
    wire = Wire()
    wire.ask([want(partition=0), want(partition=1)])
    reply = wire.answer(response(data(0, b"5"), data(1, b"3"), data(0, b"5"), data(1, error_code=6)))
    assert [(p.partition, p.fetch_offset, p.next_offset, p.error_code) for p in reply.partitions] == [
        (0, 0, 5, 0),
        (1, 0, 3, 0),
    ]
    assert wire.records == [b"5", b"3"]
    request, _ = wire.ask()
    assert named(request) == [("a", 0, 5), ("a", 1, 3)]


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


# ---------------------------------------------------------------- where partitions take turns


def forgotten(request):
    return [(t.topic, p) for t in request.forgotten_topics_data for p in t.partitions]


def partitions_of(request):
    return [p.partition for t in request.topics for p in t.partitions]


class Crowd(Wire):
    """50 partitions that may give 100 bytes each, in responses of 1,000; the broker's side keeps its session."""

    def __init__(self):
        super().__init__()
        self.cached = {}
        self.ends = dict.fromkeys(range(50), 1000)
        self.got = dict.fromkeys(range(50), 0)

    def turn(self, full=True):
        """One fetch; what was asked, and who gave."""
        request, _ = self.ask([want(partition=n) for n in range(50)] if self.sequence == 0 else [])
        anew = request.session_epoch == 0
        if anew:
            self.cached.clear()
        for _, partition in forgotten(request):
            del self.cached[partition]
        for _, partition, offset in named(request):
            self.cached[partition] = offset
        assert self.cached.items() <= self.session_offsets().items()
        gave = [n for n, offset in self.cached.items() if offset < self.ends[n]][:10]
        parts = [data(n, b"%d" % (self.cached[n] + 1)) for n in gave]
        parts += [data(n) for n in self.cached if anew and n not in gave]
        self.session.digest(response(*parts), next_offset=int, size=1000 if full else 10)
        for n in gave:
            assert self.cached[n] == self.got[n], "a gap or a repetition"
            self.got[n] += 1
            self.cached[n] = self.cached.pop(n)  # to the end, as brokers do
        return request, gave

    def session_offsets(self):
        return {partition: offset for (_, partition), offset in self.session.wanted.items()}


def test_many_partitions_with_a_backlog_take_turns_and_the_broker_looks_at_a_few():
    crowd = Crowd()
    for _ in range(2):
        assert crowd.turn()[0].max_wait_ms == 500
        assert len(crowd.cached) == 50
    for _ in range(20):
        request, gave = crowd.turn()
        assert request.max_wait_ms == 0, "others may have records"
        assert len(crowd.cached) == 20, "twice as many as fill a response"
        assert len(gave) == 10
    assert max(crowd.got.values()) - min(crowd.got.values()) <= 2, "all have their turn"


def test_a_partition_without_records_has_its_turn_like_the_others():
    crowd = Crowd()
    crowd.ends.update(dict.fromkeys(range(30), 1))
    for _ in range(30):
        crowd.turn()
    assert min(crowd.got[n] for n in range(30, 50)) > 5
    assert all(crowd.got[n] == 1 for n in range(30))


def test_a_response_that_is_not_full_ends_the_turns():
    crowd = Crowd()
    for _ in range(3):
        crowd.turn()
    assert len(crowd.cached) == 20
    crowd.turn(full=False)
    request, _ = crowd.turn()
    assert request.max_wait_ms == 500
    assert sorted(crowd.cached) == list(range(50))
    assert crowd.turn()[0].forgotten_topics_data == []


def test_few_partitions_never_take_turns():
    wire = Wire()
    wire.ask([want(partition=n) for n in range(39)])
    for n in range(5):
        answer = response(*(data(p, b"5" if p == n else None) for p in range(39)))
        wire.session.digest(answer, next_offset=int, size=1000)
        request, _ = wire.ask()
        assert (request.max_wait_ms, partitions_of(request), forgotten(request)) == (500, [n], [])


def test_a_new_session_while_partitions_take_turns_asks_for_those_whose_turn_it_is():
    crowd = Crowd()
    for _ in range(4):
        crowd.turn()
    crowd.session.reset()
    request, _ = crowd.turn()
    assert (request.session_epoch, len(partitions_of(request))) == (0, 20)
    request, _ = crowd.turn()
    assert (request.session_epoch, len(crowd.cached)) == (1, 20)


def steady(version=17, **more):
    """A session whose last request went on from the response before, and had an answer without news."""
    wire = Wire(version)
    wire.ask([want(), want(partition=1)])
    wire.answer(response(data(0), data(1)))
    wire.ask(**more)
    wire.answer(response())
    return wire


def test_a_session_that_only_goes_on_says_where():
    wire = steady()
    assert wire.session.steady() == [want(), want(partition=1)]
    wire.ask()
    wire.answer(response(data(1, b"25")))
    assert wire.session.steady() == [want(), want(partition=1, offset=25)]


@pytest.mark.parametrize(
    "unsteady",
    [
        lambda: Wire(),
        lambda: steady(version=12),
        lambda: steady(wants=[want(partition=2, ids=False)]),
        lambda: steady(wants=[replace(want(partition=2), shared=True)]),
    ],
    ids=["not begun", "names", "a topic without an id", "shared with other workers"],
)
def test_a_session_that_does_more_than_going_on_says_so(unsteady):
    assert unsteady().session.steady() is None


@pytest.mark.parametrize(
    "answer",
    [response(error=70), response(data(0), session=0), response(data(0, error_code=6))],
    ids=["refused", "no session", "a partition that failed"],
)
def test_behind_an_answer_that_is_no_news_of_records_a_session_does_not_only_go_on(answer):
    wire = steady()
    wire.ask()
    wire.answer(answer)
    assert wire.session.steady() is None


def test_changes_of_a_pull_are_asked_for_before_a_session_only_goes_on():
    wire = steady()
    wire.session.apply(Pull(2, [want(partition=2)], [("a", 0)], 1000, 500))
    assert wire.session.steady() is None
    wire.session.request(17)
    wire.answer(response(data(2)))
    assert wire.session.steady() == [want(partition=1), want(partition=2)]


def test_what_was_digested_elsewhere_is_where_the_next_request_goes_on():
    wire = steady()
    first, _ = wire.ask()
    wire.session.went_on(3, [(("a", 1), 30), (("a", 0), 20)])
    request, _ = wire.ask()
    assert request.session_epoch == first.session_epoch + 3
    assert named(request) == [("a", 1, 30), ("a", 0, 20)]
    assert list(wire.session.wanted) == [("a", 1), ("a", 0)], "those with records go to the end"

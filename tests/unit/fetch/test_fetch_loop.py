"""`FetchLoop` against the general way: the same requests, the same answers, and whatever isn't plain left as it came."""

import contextlib
import random
import socket
import struct
import threading
import uuid

import pyarrow as pa
import pytest
from msgspec.structs import replace

from kafka_actors.fetch.machines.fetch_session import FetchSession
from kafka_actors.fetch.messages import PartitionFetch, Pull
from kafka_actors.fetch.steady_fetch import SMALL_BYTES, End, template_of, to_name
from kafka_actors.protocol import ApiKey, FetchResponse, decode_header, decode_message, frame
from kafka_actors.protocol.codec import response_frame
from kafka_actors.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    NodeEndpoint,
    PartitionData,
)
from kafka_actors.records import encode, next_offset

FetchLoop = pytest.importorskip("kafka_actors.fetch._fetch_loop").FetchLoop

SESSION, BROKER, CREDIT, LIMIT_S = 77, 3, 1 << 20, 10.0
TOPICS = {f"t{n}": uuid.UUID(int=(n + 1) << 64 | n) for n in range(3)}
VERSIONS = range(13, 19)


def records(offset, count=1):
    """A batch of `count` records from an offset on."""
    return bytes(
        encode(
            pa.record_batch({"value": pa.array([b"v%d" % n for n in range(count)], pa.binary())}),
            base_offset=offset,
        )
    )


def response(*found, **more):
    """A response with (topic, partition, fields) each."""
    topics = []
    for topic, partition, fields in found:
        if not topics or topics[-1].topic_id != TOPICS[topic]:
            topics.append(FetchableTopicResponse(topic_id=TOPICS[topic], partitions=[]))
        topics[-1].partitions.append(
            PartitionData(
                **{"partition_index": partition, "high_watermark": 100, "last_stable_offset": 90, **fields}
            )
        )
    return FetchResponse(**{"session_id": SESSION, "responses": topics, **more})


class Side:
    """A session after its first response, in a version: the general way."""

    def __init__(self, version, partitions, rack=""):
        self.version = version
        self.correlation_id = 40
        self.session = FetchSession(broker=BROKER, rack=rack, isolation_level=1)
        wants = [
            PartitionFetch(topic, n, (1, 5), 10, 1000 + n, TOPICS[topic].bytes, leader_epoch=n)
            for topic, n in partitions
        ]
        self.session.apply(Pull(0, wants, max_bytes=CREDIT, max_wait_ms=500))
        self.session.request(version)
        first = response(*((topic, n, {}) for topic, n in partitions))
        self.session.digest(first, next_offset=next_offset)

    def encoded(self, request):
        return frame(ApiKey.FETCH, self.version, self.correlation_id, "client", request)

    def request(self):
        self.correlation_id += 1
        request, version = self.session.request(self.version)
        assert version == self.version
        return request

    def exchange(self, answer, credit):
        """The request, and what the response to it becomes."""
        request = self.encoded(replace(self.request(), max_bytes=credit))
        header, body = decode_header(ApiKey.FETCH, self.version, "response", answer)
        assert header.correlation_id == self.correlation_id
        decoded = decode_message(FetchResponse, self.version, body)
        return request, self.session.digest(decoded, next_offset=next_offset, size=len(answer))


class Loop:
    """A loop over a pair of sockets. `responses` are sent one after the other, each behind a request; behind the next one the broker closes."""

    def __init__(self, side, responses):
        self.partitions = side.session.steady()
        assert self.partitions
        self.first = side.request()
        self.request = side.encoded(self.first)
        self.loop = FetchLoop(self.partitions, *template_of(self.first, side.encoded), BROKER, 0)
        self.answers, self.requests = [], []
        self.loop.wake = lambda: self.answers.extend(self.loop.drain())
        self._ours, self._brokers = socket.socketpair()
        self._brokers.settimeout(LIMIT_S)
        self._thread = threading.Thread(target=self._serve, args=[list(responses)])

    def _serve(self, responses):
        with self._brokers as brokers, contextlib.suppress(ConnectionError):
            for each in [*responses, b""]:
                length = brokers.recv(4, socket.MSG_WAITALL)
                if len(length) < 4:
                    return
                self.requests.append(length + brokers.recv(int.from_bytes(length, "big"), socket.MSG_WAITALL))
                brokers.sendall(each(self) if callable(each) else each)

    def run(self, credit=CREDIT, least=1, most_s=float("inf")):
        self._thread.start()
        try:
            with self._ours as ours:
                return self.loop.run(ours.fileno(), self.request, credit, least, most_s, LIMIT_S)
        finally:
            self._thread.join(LIMIT_S)

    def synced(self, session):
        session.went_on(self.loop.exchanges, to_name(self.loop, self.partitions, self.first))


def framed(side, n, message):
    """The n-th response behind what `side` has sent, as it goes over the network."""
    return response_frame(ApiKey.FETCH, side.version, side.correlation_id + n, message)


def plain(answers):
    return [
        (replace(reply, seconds=0.0, more=False), [bytes(each) for each in records])
        for reply, records in answers
    ]


def all_partitions():
    return [(topic, n) for topic in TOPICS for n in range(3)]


def next_responses(seed, version, count):
    """Random plain responses: some partitions, in any order, with or without records."""
    rng = random.Random(seed)
    offsets = dict.fromkeys(all_partitions(), 10)
    for _ in range(count):
        found = []
        for topic in rng.sample(list(TOPICS), rng.randint(0, 3)):
            for n in rng.sample(range(3), rng.randint(1, 3)):
                data = b""
                if rng.random() < 0.8:
                    for _ in range(rng.randint(1, 3)):
                        size = rng.randint(1, 40)
                        data += records(offsets[topic, n], size)
                        offsets[topic, n] += size
                    if rng.random() < 0.3:
                        data += records(offsets[topic, n])[: rng.randint(1, 60)]  # a batch that is cut off
                fields = {
                    "records": data or rng.choice([None, b""]),
                    "high_watermark": rng.randint(-1, 10**12),
                }
                if rng.random() < 0.2:
                    fields["aborted_transactions"] = None
                found.append((topic, n, fields))
        yield response(*found)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("seed", range(8))
def test_requests_and_answers_are_those_of_the_general_way(version, seed):
    rack = "r" * (seed * 30)  # beyond 127 bytes its length takes two
    general, loops = (Side(version, all_partitions(), rack) for _ in range(2))
    messages = list(next_responses(seed, version, 25))
    wire = [framed(loops, n + 1, each) for n, each in enumerate(messages)]
    error = framed(loops, len(wire) + 1, response(error_code=70))
    loop = Loop(loops, [*wire, error])
    end, length, rest = loop.run()
    assert (end, length, rest) == (End.OTHER, len(error) - 4, error[4:])

    expected, credit = [], CREDIT
    for each in wire:
        expected.append(general.exchange(each[4:], credit if expected else loop.first.max_bytes))
        credit -= len(each) - 4
    last = general.encoded(replace(general.request(), max_bytes=credit))
    assert loop.requests == [*(request for request, _ in expected), last]
    assert plain(loop.answers) == plain(answer for _, answer in expected)
    assert all(reply.more and reply.seconds > 0 for reply, _ in loop.answers)
    assert loop.loop.exchanges == len(wire)
    assert loop.loop.requests == len(wire) + 1
    loop.synced(loops.session)
    assert list(loops.session.wanted.items()) == list(general.session.wanted.items())  # in the same order


def test_what_comes_behind_a_loop_goes_on_where_it_has_ended():
    side = Side(17, all_partitions())
    loop = Loop(
        side,
        [
            framed(side, 1, response(("t0", 0, {"records": records(10, 5)}))),
            lambda loop: (
                loop.loop.interrupt() or framed(side, 1, response(("t1", 2, {"records": records(10)})))
            ),
        ],
    )
    assert loop.run() == (
        End.TERMS,
        len(framed(side, 1, response(("t1", 2, {"records": records(10)})))) - 4,
        b"",
    )
    loop.synced(side.session)
    request, _ = side.session.request(17)
    assert request.session_epoch == loop.first.session_epoch + 2
    assert {(t.topic, p.partition, p.fetch_offset) for t in request.topics for p in t.partitions} >= {
        ("t1", 2, 11)
    }
    assert side.session.wanted["t0", 0] == 15


def test_a_loop_that_was_interrupted_before_sends_nothing_and_its_request_can_be_taken_back():
    general, side = Side(17, all_partitions()), Side(17, all_partitions())
    for each in (general, side):
        each.request()
        each.session.digest(response(("t0", 0, {"records": records(10, 5)})), next_offset=next_offset)
    loop = Loop(side, [])
    loop.loop.interrupt()
    assert loop.run() == (End.TERMS, 0, b"")
    assert (loop.requests, loop.loop.requests, loop.loop.exchanges) == ([], 0, 0)
    side.session.went_on(0, to_name(loop.loop, loop.partitions, loop.first))
    assert side.session.request(17) == general.session.request(17)


UNPLAIN = {
    "an error of the response": response(error_code=71),
    "throttled": response(throttle_time_ms=1),
    "another session": response(session_id=SESSION + 1),
    "no session": response(session_id=0),
    "an error of a partition": response(("t0", 0, {"error_code": 6})),
    "another replica": response(("t0", 0, {"preferred_read_replica": 2})),
    "aborted transactions": response(
        ("t0", 0, {"records": records(10), "aborted_transactions": [AbortedTransaction(1, 5)]})
    ),
    "records that lead nowhere": response(("t0", 0, {"records": records(5)})),
    "only a part of a batch": response(("t0", 0, {"records": records(10)[:-1]})),
    "a partition that is not of the session": response(("t0", 9, {})),
    "a partition that is there twice": response(
        ("t0", 0, {"records": records(10)}), ("t0", 0, {"records": records(11)})
    ),
    "a diverging epoch": response(("t0", 0, {"diverging_epoch": EpochEndOffset(1, 2)})),
    "addresses": response(node_endpoints=[NodeEndpoint(1, "h", 9092)]),
    "an old format": response(("t0", 0, {"records": records(10)[:16] + b"\x01" + records(10)[17:]})),
    "an impossible length": response(
        ("t0", 0, {"records": records(10)[:8] + b"\xff\xff\xff\xff" + records(10)[12:]})
    ),
    "an impossible offset": response(("t0", 0, {"records": b"\xff" + records(10)[1:]})),
}


@pytest.mark.parametrize("kind", UNPLAIN)
def test_what_is_not_plain_is_left_as_it_came_and_changes_nothing(kind):
    side = Side(18, all_partitions())
    good = framed(side, 1, response(("t2", 1, {"records": records(10, 3)})))
    other = framed(side, 2, UNPLAIN[kind])
    loop = Loop(side, [good, other])
    assert loop.run() == (End.OTHER, len(other) - 4, other[4:])
    assert [reply.partitions[0].next_offset for reply, _ in loop.answers] == [13]
    assert [loop.partitions[n].key for n, _ in loop.loop.advanced()] == [("t2", 1)]


def test_the_response_to_another_request_is_left_as_it_came():
    side = Side(18, all_partitions())
    other = framed(side, 2, response())
    assert Loop(side, [other]).run() == (End.OTHER, len(other) - 4, other[4:])


def test_a_response_that_is_cut_off_anywhere_is_left_as_it_came():
    side = Side(18, all_partitions())
    whole = framed(side, 1, response(("t0", 0, {"records": records(10)}), ("t1", 1, {})))[4:]
    for size in range(4, len(whole)):
        one = Side(18, all_partitions())
        assert Loop(one, [struct.pack(">i", size) + whole[:size]]).run() == (End.OTHER, size, whole[:size])


def test_damaged_responses_are_digested_as_by_the_general_way_or_left():
    rng = random.Random(5)
    taken = 0
    for _ in range(400):
        general, loops = (Side(18, all_partitions()) for _ in range(2))
        good = framed(
            loops, 1, response(("t0", 0, {"records": records(10, 2)}), ("t2", 1, {}), ("t1", 1, {}))
        )
        damaged = bytearray(good[4:])
        for _ in range(rng.randint(1, 3)):
            damaged[rng.randrange(4, len(damaged))] = rng.choice(
                [0, 1, 2, 0x7F, 0x80, 0xFF, rng.randrange(256)]
            )
        last = framed(loops, 2, response(error_code=70))
        loop = Loop(loops, [good[:4] + damaged, last])
        loop.run()
        if loop.loop.exchanges:
            taken += 1
            _, answer = general.exchange(bytes(damaged), loop.first.max_bytes)
            assert plain(loop.answers) == plain([answer])
    assert taken > 20


def test_a_large_response_is_left_to_be_received():
    side = Side(18, all_partitions())
    large = framed(side, 1, response(("t0", 0, {"records": b"x" * SMALL_BYTES})))
    assert Loop(side, [large]).run() == (End.LARGE, len(large) - 4, b"")


@pytest.mark.parametrize("length", [-1, 0, 3, 2**31 - 1])
def test_an_impossible_length_is_left_to_whoever_refuses_it(length):
    side = Side(18, all_partitions())
    assert Loop(side, [struct.pack(">i", length)]).run() == (End.LARGE, length, b"")


def test_it_ends_when_its_credit_is_spent():
    side = Side(18, all_partitions())
    wire = [framed(side, n + 1, response(("t0", 0, {"records": records(10 + n)}))) for n in range(3)]
    size = len(wire[0]) - 4
    loop = Loop(side, wire)
    assert loop.run(credit=4 * size, least=2 * size)[0] == End.TERMS
    assert loop.loop.exchanges == 3


def test_it_ends_when_its_time_is_over():
    side = Side(18, all_partitions())
    loop = Loop(side, [framed(side, 1, response())])
    assert loop.run(most_s=0.0)[0] == End.TERMS
    assert loop.loop.exchanges == 1


def test_an_end_of_the_connection_and_a_silent_broker_are_errors_and_answers_before_them_stay():
    side = Side(18, all_partitions())
    good = framed(side, 1, response(("t0", 0, {"records": records(10)})))
    loop = Loop(side, [good])
    with pytest.raises(EOFError):
        loop.run()
    assert len(loop.answers) == 1

    side = Side(18, all_partitions())
    loop = Loop(side, [good + b"\0\0"])  # the next one begins, and goes no further
    with pytest.raises(EOFError):
        loop.run()
    assert len(loop.answers) == 1

    side = Side(18, all_partitions())
    loop, (ours, brokers) = Loop(side, []), socket.socketpair()
    with ours, brokers:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@ll", 0, 1000))
        with pytest.raises(BlockingIOError):
            loop.loop.run(ours.fileno(), loop.request, CREDIT, 1, float("inf"), 0.001)


def test_answers_that_nobody_drains_go_with_the_loop():
    side = Side(18, all_partitions())
    loop = Loop(
        side, [framed(side, n + 1, response(("t0", 0, {"records": records(10 + n)}))) for n in range(3)]
    )
    loop.loop.wake = lambda: None
    with pytest.raises(EOFError):
        loop.run()
    answers = loop.loop.drain()
    assert [reply.partitions[0].fetch_offset for reply, _ in answers] == [10, 11, 12]
    assert loop.loop.drain() == ()


def test_a_session_of_many_topics_and_partitions_finds_each():
    topics = {f"m{n}": uuid.UUID(int=random.Random(n).getrandbits(128)) for n in range(40)}
    TOPICS.update(topics)
    try:
        names = [(topic, n) for topic in topics for n in range(25)]
        side = Side(18, names)
        found = [(topic, n, {"records": records(10)}) for topic, n in names[::7]]
        wire = [framed(side, 1, response(*found[:100])), framed(side, 2, response(*found[100:]))]
        loop = Loop(side, [*wire, framed(side, 3, response(error_code=70))])
        loop.run()
        assert [loop.partitions[n].key for n, _ in loop.loop.advanced()] == [
            (topic, n) for topic, n, _ in found
        ]
    finally:
        for name in topics:
            del TOPICS[name]


def test_what_is_no_request_or_no_topic_id_is_refused():
    want = PartitionFetch("t0", 0, (0, 1), 0, 1, TOPICS["t0"].bytes)
    with pytest.raises(ValueError, match="not a Fetch request"):
        FetchLoop([want], b"short", 3, BROKER, 0)
    with pytest.raises(ValueError, match="16 bytes"):
        FetchLoop([replace(want, topic_id=b"short")], bytes(60), 3, BROKER, 0)

"""A fetch thread that goes on from small responses by a loop, over a pair of sockets: what comes of it, and what ends it."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

from kafka_actors.config import ConsumerConfig, build
from kafka_actors.errors import DisconnectedError
from kafka_actors.fetch import BrokerFetcher, PartitionFetch, Pull
from kafka_actors.fetch.messages import AnswerQueue, FetchReply, Outcome
from kafka_actors.fetch.steady_fetch import AFTER, SMALL_BYTES, FetchLoop, SteadyFetch, may_go_on, worth_after
from kafka_actors.net import FetchSocket, receive_ring
from kafka_actors.protocol import ApiKey, FetchRequest, FetchResponse, decode_header, decode_message
from kafka_actors.protocol.codec import response_frame
from kafka_actors.protocol.messages.fetch import FetchableTopicResponse, PartitionData
from kafka_actors.records import encode

VERSION, SESSION, SOON_S = 17, 5, 20.0
TOPIC_ID = uuid.UUID(int=1 << 64 | 7)
WANT = PartitionFetch("t", 0, (0, 1), 0, 1 << 20, TOPIC_ID.bytes, leader_epoch=3)
MAX_BYTES = 16 << 20

needs_loop = pytest.mark.skipif(
    FetchLoop is None, reason="without the compiled module nothing goes on by itself"
)


class Channel(FetchSocket):
    """A connection that is there from the beginning."""

    def __init__(self, sock: socket.socket, config: ConsumerConfig) -> None:
        super().__init__("b", 1, config)
        self._socket = sock

    def open(self, **_: Any) -> Channel:
        self.versions = Versions()
        return self


class Versions:
    def pick(self, _: object) -> int:
        return VERSION


class Harness:
    """A fetcher, and the broker's end of its connection, which a test answers request by request."""

    def __init__(self, **options: Any) -> None:
        ours, self.broker = socket.socketpair()
        self.broker.settimeout(SOON_S)
        config = build(ConsumerConfig, bootstrap_servers="b:1", **options)
        self.channel = Channel(ours, config)
        self.fetcher = BrokerFetcher(1, "b", 1, config, connect=lambda *_: self.channel)
        self.outcomes: queue.Queue[Outcome] = queue.Queue()
        self.queues: queue.Queue[AnswerQueue] = queue.Queue()
        self.offset = 0
        self.woken = threading.Event()
        self.correlation_ids: list[int] = []
        self.on_queue: Callable[[AnswerQueue], object] = lambda _: None

    def pull(self, sequence: int, **more: Any) -> None:
        pull = Pull(sequence, max_bytes=MAX_BYTES, max_wait_ms=500, **more)
        self.fetcher.fetch(pull, self.outcomes.put, self._queued)

    def _queued(self, answers: AnswerQueue) -> None:
        answers.wake = self.woken.set
        self.queues.put(answers)
        self.on_queue(answers)

    def request(self) -> tuple[int, FetchRequest]:
        """The next request, with its correlation id."""
        size = int.from_bytes(self.broker.recv(4, socket.MSG_WAITALL), "big")
        header, body = decode_header(
            ApiKey.FETCH, VERSION, "request", memoryview(self.broker.recv(size, socket.MSG_WAITALL))
        )
        self.correlation_ids.append(header.correlation_id)
        return header.correlation_id, decode_message(FetchRequest, VERSION, body)

    def answer(self, count: int = 1, size: int = 10, **fields: Any) -> FetchRequest:
        """Answers the next request with `count` records of partition 0."""
        return self.answer_to(self.request(), count, size, **fields)

    def answer_to(
        self, received: tuple[int, FetchRequest], count: int = 1, size: int = 10, **fields: Any
    ) -> FetchRequest:
        """Answers a request that was received."""
        correlation_id, request = received
        rows = pa.record_batch({"value": pa.array([b"x" * size] * count, pa.binary())})
        data = bytes(encode(rows, base_offset=self.offset)) if count else b""
        self.offset += count
        partition = PartitionData(partition_index=0, records=data, high_watermark=self.offset, **fields)
        found = FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[partition])
        self.broker.sendall(
            response_frame(
                ApiKey.FETCH, VERSION, correlation_id, FetchResponse(session_id=SESSION, responses=[found])
            )
        )
        return request

    def outcome(self) -> tuple[FetchReply, list[bytes]]:
        outcome = self.outcomes.get(timeout=SOON_S)
        assert not isinstance(outcome, Exception), outcome
        return outcome[0], [bytes(memoryview(each)) for each in outcome[1]]

    def begin(self) -> AnswerQueue:
        """Goes as far as the first answer of a pull that has several."""
        for sequence in range(AFTER):
            self.pull(sequence, wants=[WANT] if not sequence else [])
            self.answer()
            assert self.outcome()[0].more == (sequence == AFTER - 1)
        return self.queues.get(timeout=SOON_S)

    def drained(self, answers: AnswerQueue, count: int) -> list[FetchReply]:
        """Takes `count` answers out of the queue, as they come."""
        found: list[FetchReply] = []
        while len(found) < count:
            assert self.woken.wait(SOON_S)
            self.woken.clear()
            found += [reply for reply, _ in answers.drain()]
        return found

    def close(self) -> None:
        self.broker.close()
        asyncio.run(self.fetcher.close())


@pytest.fixture
def harness() -> Iterator[Harness]:
    made = Harness()
    yield made
    made.close()


@needs_loop
def test_small_answers_come_through_a_queue_while_nothing_else_comes(harness: Harness) -> None:
    answers = harness.begin()
    for _ in range(3):
        harness.answer(2)
    found = harness.drained(answers, 3)
    assert [(each.sequence, each.more) for each in found] == [(AFTER - 1, True)] * 3
    assert [each.partitions[0].next_offset for each in found] == [AFTER + 2, AFTER + 4, AFTER + 6]
    assert harness.outcomes.empty()


@needs_loop
@pytest.mark.parametrize("ends", ["interrupt", "a pull that changes something"])
def test_the_last_answer_comes_as_soon_as_another_pull_is_wanted(harness: Harness, ends: str) -> None:
    answers = harness.begin()
    under_way = harness.request()
    if ends == "interrupt":
        answers.interrupt()
        harness.answer_to(under_way)
        assert harness.outcome()[0] == FetchReply(1, AFTER - 1, [])
    harness.pull(AFTER, wants=[replace(WANT, epoch=(0, 2), fetch_offset=1)])
    if ends != "interrupt":
        harness.answer_to(under_way)
    request = harness.answer()
    if ends != "interrupt":
        assert harness.outcome()[0] == FetchReply(1, AFTER - 1, [])
    assert [each.fetch_offset for topic in request.topics for each in topic.partitions] == [1]
    assert len(harness.drained(answers, 1)) == 1
    assert harness.outcome()[0].sequence == AFTER


@needs_loop
@pytest.mark.parametrize("ends", ["interrupt", "a pull that changes something"])
def test_a_change_that_waits_already_is_held_up_by_no_other_request(harness: Harness, ends: str) -> None:
    """Each request may be a long poll: one with the old partitions first would have a seek wait for twice as long."""
    moved = [replace(WANT, epoch=(0, 2), fetch_offset=1)]
    if ends == "interrupt":
        harness.on_queue = lambda answers: answers.interrupt()
    else:
        harness.on_queue = lambda _: harness.pull(AFTER, wants=moved)
    harness.begin()
    if ends == "interrupt":
        assert harness.outcome()[0] == FetchReply(1, AFTER - 1, [])
        harness.pull(AFTER)
    request = harness.answer()
    named = [each.fetch_offset for topic in request.topics for each in topic.partitions]
    assert named == ([AFTER] if ends == "interrupt" else [1]), "what the broker doesn't know yet"
    assert request.session_epoch == AFTER
    assert harness.correlation_ids == list(range(1, AFTER + 2))
    if ends != "interrupt":
        assert harness.outcome()[0] == FetchReply(1, AFTER - 1, [])
    assert harness.outcome()[0].sequence == AFTER


@needs_loop
@pytest.mark.parametrize("highest_at", range(1, AFTER + 4))
def test_behind_the_highest_correlation_id_comes_the_lowest(harness: Harness, highest_at: int) -> None:
    harness.fetcher._correlation_id = 2**31 - 1 - highest_at
    answers = harness.begin()
    for _ in range(3):
        harness.answer()
    harness.drained(answers, 3)
    under_way = harness.request()
    answers.interrupt()
    harness.answer_to(under_way)
    assert not harness.outcome()[0].more
    harness.pull(AFTER)
    harness.answer()
    assert harness.outcome()[0].sequence == AFTER
    expected = [(2**31 - highest_at + n) % 2**31 for n in range(AFTER + 5)]
    assert harness.correlation_ids == expected


@needs_loop
def test_the_first_request_of_a_loop_asks_for_what_is_left_of_its_pull(harness: Harness) -> None:
    harness.pull(0, wants=[WANT])
    harness.answer()
    harness.pull(1)
    harness.outcome()
    harness.answer()
    size = harness.outcome()[0].size
    assert harness.request()[1].max_bytes == MAX_BYTES - size


@needs_loop
def test_a_pull_that_changes_something_interrupts_the_loop_whenever_it_comes(harness: Harness) -> None:
    steady = SteadyFetch()
    steady.waits(Pull(1))
    steady.waits(Pull(2, wants=[WANT]))
    interrupted = []

    class Loop:
        def interrupt(self) -> None:
            interrupted.append(True)

        def run(self, *_: Any) -> str:
            return "ended"

    class Lends:
        due_in_s = 1.0

        def descriptor(self, **_: Any) -> AbstractContextManager[int]:
            return contextlib.nullcontext(3)

    def run() -> None:
        assert steady.run(Loop(), Lends(), b"", 1, 1, 1.0) == "ended"  # type: ignore[arg-type,comparison-overlap]

    run()
    assert interrupted == [True]
    steady.begins(Pull(1))
    steady.begins(Pull(2, wants=[WANT]))
    run()
    steady.waits(Pull(3, forget=[("t", 0)]))
    assert interrupted == [True], "no loop runs"


@needs_loop
@pytest.mark.parametrize("kind", ["large", "an error"])
def test_what_the_loop_leaves_is_the_last_answer_and_digested_the_general_way(
    harness: Harness, kind: str
) -> None:
    answers = harness.begin()
    harness.answer()
    if kind == "large":
        harness.answer(1, size=2 * SMALL_BYTES)
    else:
        harness.answer(0, error_code=6)
    last, records = harness.outcome()
    assert (last.sequence, last.more) == (AFTER - 1, False)
    assert last.seconds > 0
    [partition] = last.partitions
    assert partition.fetch_offset == AFTER + 1
    assert (partition.error_code, len(records[0]) > SMALL_BYTES) == (
        (0, True) if kind == "large" else (6, False)
    )
    assert len(harness.drained(answers, 1)) == 1
    harness.pull(AFTER)
    request = harness.answer()
    assert request.session_epoch == AFTER + 2
    named = [each.fetch_offset for topic in request.topics for each in topic.partitions]
    assert named == ([AFTER + 2] if kind == "large" else [])


@needs_loop
def test_a_connection_that_ends_under_the_loop_fails_the_pull_and_its_answers_stay(harness: Harness) -> None:
    answers = harness.begin()
    harness.answer()
    harness.drained(answers, 1)
    harness.request()
    harness.broker.close()
    outcome = harness.outcomes.get(timeout=SOON_S)
    assert isinstance(outcome, DisconnectedError)
    assert "the broker closed the connection" in str(outcome)


@needs_loop
def test_memory_of_a_backlog_is_given_back_though_small_answers_go_on(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loop may go on for days, and receives into memory of its own."""
    monkeypatch.setattr(receive_ring, "IDLE_S", 0.0)
    harness.pull(0, wants=[WANT])
    harness.answer(1, size=2 * receive_ring.SMALL)
    in_use = harness.outcomes.get(timeout=SOON_S)
    for sequence in range(1, AFTER + 1):
        harness.pull(sequence)
        harness.answer()
        assert harness.outcome()[0].more == (sequence == AFTER)
    assert not isinstance(in_use, Exception), in_use
    del in_use
    assert harness.channel.due_in_s == 0.0
    harness.answer()
    assert not harness.outcome()[0].more
    harness.pull(AFTER + 1)
    harness.answer()
    harness.outcome()
    assert harness.channel.due_in_s == float("inf")


@needs_loop
def test_a_fetcher_that_is_closed_under_the_loop_answers_at_once(harness: Harness) -> None:
    harness.begin()
    harness.request()
    harness.fetcher.shut()
    outcome = harness.outcomes.get(timeout=SOON_S)
    assert isinstance(outcome, DisconnectedError)


LOGIN = {"sasl_mechanism": "PLAIN", "sasl_plain_username": "u", "sasl_plain_password": "p"}


@pytest.mark.parametrize(
    "options", [{"security_protocol": "SSL"}, {"security_protocol": "SASL_SSL", **LOGIN}]
)
def test_over_tls_each_answer_is_the_last_one_of_its_pull(options: dict[str, str]) -> None:
    harness = Harness(**options)
    try:
        for sequence in range(AFTER + 2):
            harness.pull(sequence, wants=[WANT] if not sequence else [])
            harness.answer()
            assert not harness.outcome()[0].more
    finally:
        harness.close()


def test_whoever_takes_no_queue_has_one_answer_to_each_pull(harness: Harness) -> None:
    for sequence in range(AFTER + 2):
        pull = Pull(sequence, wants=[WANT] if not sequence else [], max_bytes=MAX_BYTES, max_wait_ms=500)
        harness.fetcher.fetch(pull, harness.outcomes.put)
        harness.answer()
        assert not harness.outcome()[0].more


def test_of_many_partitions_more_responses_have_to_be_small_until_a_loop_is_worth_while() -> None:
    assert [worth_after(n) for n in (1, 256, 512, 20_000)] == [AFTER, AFTER, 4, 156]


@needs_loop
def test_behind_a_loop_it_takes_as_many_small_responses_again_to_set_up_another(harness: Harness) -> None:
    answers, under_way = harness.begin(), harness.request()
    answers.interrupt()
    harness.answer_to(under_way)
    assert not harness.outcome()[0].more
    for sequence in range(AFTER, 2 * AFTER):
        harness.pull(sequence)
        harness.answer()
        assert harness.outcome()[0].more == (sequence == 2 * AFTER - 1)


PULL, REPLY = Pull(3, max_bytes=100), FetchReply(1, 3, [], size=50)


def test_a_pull_goes_on_while_its_terms_hold() -> None:
    assert may_go_on(PULL, REPLY)
    assert not may_go_on(PULL, replace(REPLY, size=51)), "there would be less than half a response left"
    assert not may_go_on(PULL, replace(REPLY, error_code=71))
    assert not may_go_on(PULL, replace(REPLY, throttle_ms=1))
    assert not may_go_on(replace(PULL, followers=False), REPLY)
    assert not may_go_on(replace(PULL, pace_ms=1), REPLY)

"""When the connection side hands over what it received, with a channel that a test answers."""

import asyncio
import queue
import threading

import pytest
from msgspec import structs

from kafka_actors.config import ConsumerConfig, build
from kafka_actors.errors import ConnectionFailedError, DisconnectedError
from kafka_actors.fetch import BrokerFetcher, PartitionFetch, Pull
from kafka_actors.fetch.messages import FetchedPartition
from kafka_actors.fetch.shared_records import KeptRecords, SharedRecords
from kafka_actors.protocol import ApiKey, FetchResponse
from kafka_actors.protocol.codec import response_frame

VERSION = 12
LENGTH = 4
SOON_S = 10
WANT = PartitionFetch("t", 0, (0, 1), 0, 1000)


class Channel:
    """Tells `seen` what is sent, and receives what the test gives to `answers`: a response, or an error to raise."""

    def __init__(self, seen, answers):
        self.versions = self
        self._seen = seen
        self._answers = answers
        self._sent = 0
        self.trimmed = threading.Event()
        self.first_addresses = []
        self.refused = []

    def pick(self, _):
        return VERSION

    def open(self, *, first_address=0):
        self.first_addresses.append(first_address)
        if self.refused:
            raise self.refused.pop()

    def send(self, frame, timeout_ms=None):
        self._sent += 1
        self._seen.put(("sent", self._sent))

    def receive(self, timeout_ms=None):
        answer = self._answers.get(timeout=SOON_S)
        if isinstance(answer, Exception):
            raise answer
        return memoryview(response_frame(ApiKey.FETCH, VERSION, self._sent, answer)[LENGTH:])

    def trim(self):
        self.trimmed.set()

    def close(self):
        self._answers.put(DisconnectedError("closed"))


class Harness:
    """A fetcher whose doings come out of `next_seen`, in their order."""

    def __init__(self, **more):
        self._seen = queue.Queue()
        self.answers = queue.Queue()
        self.outcomes = []
        self.threads = set()
        config = build(ConsumerConfig, bootstrap_servers="b:1")
        self.channel = Channel(self._seen, self.answers)
        self.fetcher = BrokerFetcher(1, "b", 1, config, connect=lambda *_: self.channel, **more)

    def pull(self, sequence, stream=0, want=WANT):
        def answered(outcome):
            self.threads.add(threading.current_thread().name)
            self.outcomes.append(outcome)
            self._seen.put(("answered", sequence))

        wants = [] if sequence else want if isinstance(want, list) else [want]
        pull = Pull(sequence, wants, max_bytes=1000, max_wait_ms=10, stream=stream)
        self.fetcher.fetch(pull, answered)

    def next_seen(self, count=1):
        return [self._seen.get(timeout=SOON_S) for _ in range(count)]

    def nothing_seen(self):
        return self._seen.empty()


@pytest.fixture
def harness():
    made = Harness()
    yield made
    asyncio.run(made.fetcher.close())


def test_an_answer_is_handed_over_while_the_next_request_is_under_way(harness):
    harness.pull(0)
    assert harness.next_seen() == [("sent", 1)]
    harness.pull(1)
    harness.answers.put(FetchResponse())
    assert harness.next_seen(2) == [("sent", 2), ("answered", 0)]
    harness.answers.put(FetchResponse())
    assert harness.next_seen() == [("answered", 1)]  # no other pull waits
    assert [reply.sequence for reply, _ in harness.outcomes] == [0, 1]
    assert harness.threads == {"fetch-1"}


def test_after_a_failure_the_next_address_of_a_name_comes_first(harness):
    """One may accept connections and never answer: nothing of the broker would ever be read, though its other address works."""
    harness.channel.refused = [ConnectionFailedError("b:1: connected, but no answer") for _ in range(2)]
    for _ in range(2):
        harness.pull(0)
        assert harness.next_seen() == [("answered", 0)]
    harness.pull(0)
    assert harness.next_seen() == [("sent", 1)]
    harness.answers.put(DisconnectedError("gone"))
    assert harness.next_seen() == [("answered", 0)]
    harness.pull(0)
    assert harness.next_seen() == [("sent", 2)]
    assert harness.channel.first_addresses == [0, 1, 2, 0]


def test_memory_is_given_back_when_no_pull_comes_for_long(harness, monkeypatch):
    monkeypatch.setattr("kafka_actors.fetch.broker_fetcher.IDLE_S", 0.01)
    harness.pull(0)
    harness.next_seen()
    assert not harness.channel.trimmed.is_set()  # a response is waited for
    harness.answers.put(FetchResponse())
    assert harness.next_seen() == [("answered", 0)]
    assert harness.channel.trimmed.wait(SOON_S)


def test_a_claim_on_a_shared_partition_ends_with_a_failed_request():
    """Also where the fetcher lives on: another one may fetch the partition then."""
    shared = SharedRecords(clock=lambda: 0.0)
    harness = Harness(shared=shared)
    want = PartitionFetch("t", 0, (0, 1), 0, 1000, shared=True)
    harness.pull(0, want=want)
    assert harness.next_seen() == [("sent", 1)]
    assert shared.claim("another", [want], 1000)[:2] == ([], {("t", 0)})
    harness.answers.put(DisconnectedError("reset"))
    assert harness.next_seen() == [("answered", 0)]
    assert shared.claim("another", [want], 1000)[:2] == ([], frozenset())
    asyncio.run(harness.fetcher.close())


def test_what_was_received_is_handed_over_before_records_that_another_one_has_fetched():
    shared = SharedRecords(clock=lambda: 0.0)
    harness = Harness(shared=shared)
    want = PartitionFetch("t", 0, (0, 1), 0, 1000, shared=True)
    harness.pull(0, want=want)
    assert harness.next_seen() == [("sent", 1)]
    harness.pull(1)
    fetched = FetchedPartition("t", 0, (0, 9), 0, 5, size=8)
    shared.end("another", [KeptRecords(want, fetched, bytes(8), 0.0)])
    harness.answers.put(FetchResponse())
    assert harness.next_seen(2) == [("answered", 0), ("answered", 1)]
    reply, records = harness.outcomes[1]
    assert (reply.partitions, records) == ([structs.replace(fetched, epoch=(0, 1))], [bytes(8)])
    asyncio.run(harness.fetcher.close())


def test_partitions_of_others_have_their_turn_where_shared_records_never_end():
    shared = SharedRecords(clock=lambda: 0.0)
    harness = Harness(shared=shared)
    both, own = (
        PartitionFetch("t", 0, (0, 1), 0, 1000, shared=True),
        PartitionFetch("own", 0, (0, 1), 0, 1000),
    )
    for n in range(6):  # another one is ahead
        fetched = FetchedPartition("t", 0, (0, 9), n, n + 1, size=8)
        shared.end("another", [KeptRecords(both, fetched, n.to_bytes(8, "big"), 0.0)])
    for n in range(4):
        harness.answers.put(FetchResponse())
        harness.pull(n, want=[both, own])
    seen = harness.next_seen(6)
    assert seen.count(("sent", 1)) + seen.count(("sent", 2)) == 2, "each second pull asks the broker"
    assert [len(reply.partitions) for reply, _ in harness.outcomes] == [1, 0, 1, 0]
    asyncio.run(harness.fetcher.close())


def test_what_was_received_is_handed_over_before_a_failure_is(harness):
    harness.pull(0)
    harness.next_seen()
    harness.pull(5)  # does not follow: it fails before anything is sent
    harness.answers.put(FetchResponse())
    assert harness.next_seen(2) == [("answered", 0), ("answered", 5)]
    assert isinstance(harness.outcomes[1], DisconnectedError)


@pytest.mark.parametrize("repeated", [(0, 3), (0, 2)], ids=["of this stream", "of one before"])
def test_a_call_that_is_made_again_on_its_way_begins_no_stream_anew(harness, repeated):
    """Records of the stream that it began would go to nobody, and the next pulls would go on behind them."""
    harness.pull(0, stream=3)
    harness.next_seen()
    harness.answers.put(FetchResponse())
    assert harness.next_seen() == [("answered", 0)]
    harness.pull(*repeated)
    assert harness.next_seen() == [("answered", 0)]
    assert isinstance(harness.outcomes[1], DisconnectedError)
    assert "this call was repeated" in str(harness.outcomes[1])
    harness.pull(1, stream=3)
    assert harness.next_seen() == [("sent", 2)], "the stream goes on"
    harness.answers.put(FetchResponse())
    assert harness.next_seen() == [("answered", 1)]
    harness.pull(0, stream=4)
    assert harness.next_seen() == [("sent", 3)], "a new stream begins"


def test_whoever_answers_may_ask_for_more_there(harness):
    second = threading.Event()

    def answered(_):
        harness.pull(1)
        second.set()

    harness.fetcher.fetch(Pull(0, [PartitionFetch("t", 0, (0, 1), 0, 1000)], max_wait_ms=10), answered)
    harness.next_seen()
    harness.answers.put(FetchResponse())
    assert second.wait(SOON_S)
    assert harness.next_seen() == [("sent", 2)]
    harness.answers.put(FetchResponse())
    assert harness.next_seen() == [("answered", 1)]


def test_a_callback_that_raises_does_not_end_the_thread(harness, caplog):
    def broken(_):
        raise ValueError("broken")

    harness.fetcher.fetch(Pull(0, [PartitionFetch("t", 0, (0, 1), 0, 1000)], max_wait_ms=10), broken)
    harness.next_seen()
    harness.answers.put(FetchResponse())
    harness.pull(1)
    assert harness.next_seen() == [("sent", 2)]
    harness.answers.put(FetchResponse())
    assert harness.next_seen() == [("answered", 1)]
    assert "the answer to a pull could not be taken" in caplog.text


def test_every_pull_is_answered_when_it_is_closed(harness):
    for sequence in range(3):
        harness.pull(sequence)
    harness.next_seen()
    asyncio.run(harness.fetcher.close())
    harness.pull(3)
    assert sorted(harness.next_seen(4)) == [("answered", n) for n in range(4)]
    assert all(isinstance(outcome, DisconnectedError) for outcome in harness.outcomes)


def test_where_the_system_gives_no_thread_a_pull_is_refused_and_a_later_one_tries_again(harness, monkeypatch):
    start = threading.Thread.start

    def no_more(_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", no_more)
    for sequence in range(2):
        harness.pull(sequence)
        assert harness.next_seen() == [("answered", sequence)]
    assert {type(outcome) for outcome in harness.outcomes} == {DisconnectedError}
    assert "can't start new thread" in str(harness.outcomes[0])
    monkeypatch.setattr(threading.Thread, "start", start)
    harness.pull(0)
    assert harness.next_seen() == [("sent", 1)]
    harness.answers.put(FetchResponse())
    assert harness.next_seen() == [("answered", 0)]


def test_whoever_is_refused_may_ask_again_there(harness, monkeypatch):
    def no_more(_):
        monkeypatch.undo()
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", no_more)
    harness.fetcher.fetch(Pull(0), lambda _: harness.pull(0))
    assert harness.next_seen() == [("sent", 1)]
    harness.answers.put(FetchResponse())

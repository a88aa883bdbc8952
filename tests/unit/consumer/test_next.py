"""Which records a consumer hands out next, when something was changed in between."""

from concurrent.futures import Future
from types import SimpleNamespace

import pyarrow as pa
import pytest
from fakes.planned import planned
from fakes.reading import assign_while_taking

from kafka_actors import Consumer
from kafka_actors.base import fork_guard as process_bound
from kafka_actors.cluster.snapshot import BrokerMetadata, ClusterSnapshot, PartitionMetadata, TopicMetadata
from kafka_actors.consumer.delivery import Delivery
from kafka_actors.consumer.rebalance import RebalanceKind
from kafka_actors.consumer.telemetry import ConsumerTelemetry
from kafka_actors.errors import UsageError
from kafka_actors.fetch import FetchedPartition, Fetcher, FetchReply, PartitionStart
from kafka_actors.records import SCHEMA, encode
from kafka_actors.types import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
ROWS = 5
RECORDS = 2 * ROWS


async def nothing(*_):
    """What a test doesn't need."""


def arrive(fetcher, *partitions, epoch=(0, 1), first=0):
    """Ten records of each; a response may begin in front of what was asked for."""
    rows = [{"value": b"v", "offset": o, "timestamp": 0, "timestampType": 0} for o in range(RECORDS)]
    data = bytes(encode(pa.RecordBatch.from_pylist(rows, schema=SCHEMA)))
    issue = planned(fetcher._machine, 0.0).pulls[0]
    parts = [FetchedPartition("t", p.partition, epoch, first, RECORDS, size=len(data)) for p in partitions]
    reply = FetchReply(1, issue.pull.sequence, parts, size=len(parts) * len(data))
    fetcher._machine.on_reply(issue, reply, [data] * len(parts), 0.0)


def lose(session, tp):
    """The group says so, and the user's thread has yet to hear of it."""
    notices = [
        SimpleNamespace(what=RebalanceKind.LOST, partitions=frozenset({tp}), done=lambda offsets: None)
    ]
    session.core.rebalances.next = lambda: notices.pop() if notices else None
    session.attention = True


@pytest.fixture
def consumer():
    """One that has ten records of each of two partitions, in batches of five, and no connection."""
    made = Consumer(batch_rows=ROWS)
    session = made._session
    fetcher = Fetcher(session.config, sources=lambda _: None, lookups=None, events=lambda _: None)
    observer = ConsumerTelemetry(None, "test", 0)
    partitions = {p: PartitionMetadata(p, 1, 4) for p in range(2)}
    fetcher.update_metadata(
        ClusterSnapshot(
            brokers={1: BrokerMetadata(1, "h", 1)},
            topics={"t": TopicMetadata("t", None, partitions=partitions)},
        )
    )
    fetcher.assign({tp: PartitionStart((0, 1), 0) for tp in (T0, T1)})
    arrive(fetcher, T0, T1)
    done = Future()
    done.set_result(None)
    session.subscription.assign_from_user([T0, T1])
    session._reader = Delivery(fetcher, observer)
    session._io = SimpleNamespace(inside=False, post=lambda _: None, submit=lambda work: work.close() or done)
    session.ready = True
    session._core = SimpleNamespace(
        fetcher=fetcher,
        observer=observer,
        error=None,
        commit_due=False,
        progress=None,
        assigned=nothing,
        auto_commits=False,
        rebalances=SimpleNamespace(next=lambda: None, pending=False),
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


@pytest.mark.parametrize("taking", ["next_batch", "next_cursor"])
def test_the_listener_hears_of_an_assignment_before_its_first_record_is_handed_out(consumer, taking):
    heard = assign_while_taking(consumer._session, taking, T0)
    if taking == "next_batch":
        assert consumer.poll_batch(timeout_ms=0)["offset"].to_pylist() == list(range(ROWS))
    else:
        assert next(iter(consumer)).offset == 0
    assert heard.calls == [("assigned", [0])]


@pytest.mark.parametrize("polls", [1, 2])
def test_a_batch_asked_for_between_two_messages_is_not_repeated_as_messages(consumer, polls):
    messages = iter(consumer)
    assert next(messages).offset == 0
    seen = [consumer.poll_batch(timeout_ms=0)["offset"].to_pylist() for _ in range(polls)]
    assert seen == [[1, 2, 3, 4], [5, 6, 7, 8, 9]][:polls]
    following = next(messages)
    assert (following.partition, following.offset) == ((0, 5) if polls == 1 else (1, 0))


def test_of_a_partition_that_is_not_assigned_any_more_no_message_comes(consumer):
    messages = iter(consumer)
    assert next(messages).partition == 0
    consumer.assign([T1])
    assert next(messages).partition == 1


def test_what_came_back_is_read_whole_though_the_user_hears_of_its_loss_later(consumer):
    """It was lost and assigned again while the user's thread decoded, which then took of it before it looked again."""
    session = consumer._session
    session.fetcher.revoke([T0, T1])
    session.fetcher.assign({T0: PartitionStart((0, 2), 0)})
    arrive(session.fetcher, T0, epoch=(0, 2))
    assert consumer.poll_batch(timeout_ms=0)["offset"].to_pylist() == list(range(ROWS))
    lose(session, T0)
    assert consumer.poll_batch(timeout_ms=0)["offset"].to_pylist() == list(range(ROWS, RECORDS))


def test_what_is_left_of_a_partition_that_goes_is_not_committed_while_its_own_commit_is_under_way(
    consumer,
):
    """Its cursor is dropped then, and what was decoded and not handed out would count as done."""
    session, given = consumer._session, []
    session.core.auto_commits = True
    messages = iter(consumer)
    assert [next(messages).offset for _ in range(3)] == [0, 1, 2]
    notices = [
        SimpleNamespace(
            what=RebalanceKind.REVOKED,
            partitions=frozenset({T0}),
            drained={T0: (0, 1)},
            done=given.append,
        )
    ]
    session.core.rebalances.next = lambda: notices.pop() if notices else None
    session.attention = True
    assert next(messages).partition == 1
    assert [offsets[T0].offset for offsets in given] == [3]
    assert T0 not in session.reader.positions(session.assignment())


def test_what_was_lost_is_not_handed_out(consumer):
    session = consumer._session
    assert consumer.poll_batch(timeout_ms=0)["partition"].to_pylist() == [0] * ROWS
    consumer.pause(T0)
    session.fetcher.revoke([T0])
    lose(session, T0)
    assert [consumer.poll_batch(timeout_ms=0)["partition"][0].as_py() for _ in range(2)] == [1, 1]
    assert consumer.poll_batch(timeout_ms=0) is None
    assert consumer.paused() == set()


def test_what_is_lost_while_it_is_decoded_is_not_handed_out(consumer, monkeypatch):
    fetcher = consumer._session.fetcher
    epoch_of = fetcher.position_epoch

    def epoch_of_what_is_lost(tp):
        fetcher.revoke([T0])
        return epoch_of(tp)

    monkeypatch.setattr(fetcher, "position_epoch", epoch_of_what_is_lost)
    assert consumer.poll_batch(timeout_ms=0)["partition"][0].as_py() == 1


class Interrupting:
    """As `real`, but it raises when it has given `after` elements, or at once; until it is not `armed` any more."""

    def __init__(self, real, after=0, error=KeyboardInterrupt):
        self._real, self._after, self._error = real, after, error
        self.armed = True

    def __call__(self, *arguments):
        if not self.armed:
            return self._real(*arguments)
        if not self._after:
            raise self._error
        return self._some(*arguments)

    def _some(self, *arguments):
        for number, chunk in enumerate(self._real(*arguments)):
            if self.armed and number == self._after:
                raise self._error
            yield chunk


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_what_an_interrupt_kept_from_the_user_is_read_again(consumer, monkeypatch, error):
    fetcher = consumer._session.fetcher
    decoding = Interrupting(fetcher.unpack, after=1, error=error)
    monkeypatch.setattr(fetcher, "unpack", decoding)
    assert consumer.poll_batch(timeout_ms=0)["offset"].to_pylist() == list(range(ROWS))
    with pytest.raises(error):
        consumer.poll_batch(timeout_ms=0)
    assert consumer.position(T0) == ROWS
    decoding.armed = False
    arrive(fetcher, T0, first=ROWS)
    assert consumer.poll_batch(timeout_ms=0)["offset"].to_pylist() == list(range(ROWS, RECORDS))
    assert consumer.position(T0) == RECORDS


@pytest.mark.parametrize("what", ["delivered", "polled"])
def test_a_batch_on_its_last_way_to_the_user_is_not_lost(consumer, monkeypatch, what):
    observer = consumer._session.core.observer
    counting = Interrupting(getattr(observer, what))
    monkeypatch.setattr(observer, what, counting)
    with pytest.raises(KeyboardInterrupt):
        consumer.poll_batch(timeout_ms=0)
    assert consumer.position(T0) == 0
    counting.armed = False
    assert consumer.poll_batch(timeout_ms=0)["offset"].to_pylist() == list(range(ROWS))


def test_a_batch_is_not_lost_where_an_interrupt_comes_as_the_thread_ceases_to_read(consumer, monkeypatch):
    def interrupted(reader, *_):
        reader._lock.release()
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(type(consumer._one_reader), "__exit__", interrupted)
        with pytest.raises(KeyboardInterrupt):
            consumer.poll_batch(timeout_ms=0)
    assert consumer.poll_batch(timeout_ms=0)["offset"].to_pylist() == list(range(ROWS))


@pytest.mark.parametrize("what", ["begun", "settle"])
def test_what_the_user_has_is_not_put_back_by_an_interrupt_before_more_is_taken(consumer, monkeypatch, what):
    session = consumer._session
    assert consumer.poll_batch(timeout_ms=0)["offset"].to_pylist() == list(range(ROWS))
    if what == "begun":
        session.ready = False
    with monkeypatch.context() as patched:
        patched.setattr(
            *((session, "begun") if what == "begun" else (session.reader, "settle")), Interrupting(None)
        )
        with pytest.raises(KeyboardInterrupt):
            consumer.poll_batch(timeout_ms=0)
    session.ready = True
    assert consumer.poll_batch(timeout_ms=0)["offset"].to_pylist() == list(range(ROWS, 2 * ROWS))


def test_a_poll_that_waits_while_another_thread_closes_the_consumer_says_so(consumer, monkeypatch):
    session = consumer._session
    for _ in range(2 * RECORDS // ROWS):
        assert consumer.poll_batch(timeout_ms=0).num_rows == ROWS

    def refuse(_):
        raise RuntimeError("Event loop is closed")

    def close(_):
        session.closed = session.attention = True
        session.io.post = refuse

    monkeypatch.setattr(consumer._wake, "wait", close)
    with pytest.raises(UsageError, match="this consumer is closed"):
        consumer.poll_batch(timeout_ms=None)


def test_a_poll_that_overlooks_the_close_of_another_thread_does_not_wait_without_end(consumer, monkeypatch):
    """It is closed between the poll's look at that and its taking back of the call for attention."""
    session = consumer._session
    for _ in range(2 * RECORDS // ROWS):
        assert consumer.poll_batch(timeout_ms=0).num_rows == ROWS
    checked, check = [], session.check_open

    def closed_behind():
        check()
        checked.append(True)
        if len(checked) == 2:  # the first is that of `poll_batch` itself
            session.closed = session.attention = True

    def wait(_):
        raise AssertionError("nobody would end this wait")

    monkeypatch.setattr(session, "check_open", closed_behind)
    monkeypatch.setattr(consumer._wake, "wait", wait)
    session.attention = True
    with pytest.raises(UsageError, match="this consumer is closed"):
        consumer.poll_batch(timeout_ms=None)


def test_a_call_that_waits_while_another_thread_closes_the_consumer_says_so(consumer):
    session = consumer._session
    given_up = Future()
    given_up.cancel()

    def close(work):
        work.close()
        session.closed = True
        return given_up

    session.io.submit = close
    with pytest.raises(UsageError, match="this consumer is closed"):
        consumer.assign([T1])


@pytest.mark.parametrize("call", ["assign", "poll_batch"])
def test_a_call_that_begins_as_another_thread_closes_the_consumer_says_so(consumer, call):
    session = consumer._session

    def close(work):
        work.close()
        session.closed = True
        raise RuntimeError("the thread has ended")

    session.io.submit = close
    session.core.auto_commits = session.core.commit_due = session.attention = True
    session.core.commit_quietly = nothing
    assert session.reader.next_batch().num_rows == ROWS
    session.reader.settle()
    with pytest.raises(UsageError, match="this consumer is closed"):
        consumer.assign([T1]) if call == "assign" else consumer.poll_batch(timeout_ms=None)


@pytest.mark.parametrize("assigned_by", ["hand", "group"])
def test_offsets_that_do_not_change_are_kept_from_expiring_where_the_group_has_no_members(
    consumer, assigned_by
):
    session, committed, taken = consumer._session, [], Future()
    taken.set_result(True)
    session.io.submit = lambda work: taken
    session.core.auto_commits = True
    session.core.commit_quietly = committed.append
    if assigned_by == "group":
        session.subscription.unsubscribe()
        session.subscription.subscribe(["t"])
    for _ in range(13):
        session.core.commit_due = True
        assert list(session.tasks.attend()) == []
    assert [len(offsets) for offsets in committed] == ([2, 2, 2] if assigned_by == "hand" else [2])


def test_a_forked_process_can_not_go_on_with_it(consumer, monkeypatch):
    monkeypatch.setattr(process_bound, "_forks", process_bound._forks + 1)
    for call in (consumer.poll_batch, consumer.close, lambda: consumer.seek(T0, 1)):
        with pytest.raises(UsageError, match="this consumer was made in process"):
            call()

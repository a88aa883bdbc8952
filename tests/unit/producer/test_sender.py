"""Which batches go into which request, and what becomes of them."""

from types import MappingProxyType, SimpleNamespace

import pytest

from kafka_actors.cluster.machines.refresh import RefreshMetadata
from kafka_actors.errors import (
    AuthenticationError,
    DecodeError,
    DeliveryTimeoutError,
    DisconnectedError,
    InvalidRecordError,
    MessageTooLargeError,
    NodeNotReadyError,
    OutOfOrderSequenceNumberError,
    TopicAuthorizationFailedError,
    TransactionAbortedError,
    UnknownServerError,
    UnsupportedVersionError,
)
from kafka_actors.producer.machines.batch import ProducerBatch
from kafka_actors.producer.machines.produce_requests import ProduceAnswer, ProduceOrder
from kafka_actors.producer.machines.sender import (
    ConnectNode,
    RequestProducerId,
    Sender,
    SenderOptions,
    SettledBatch,
)
from kafka_actors.producer.machines.transaction_requests import CONCURRENT_S
from kafka_actors.types import TopicPartition

A, B, C = (TopicPartition("orders", p) for p in range(3))
LEADERS = {A: 1, B: 2, C: 1}


class Content:
    def __init__(self, count, used):
        self.count = count
        self.used = used


def batch(tp=A, records=10, size=100, created=0.0):
    made = ProducerBatch(tp, Content(records, size), created)
    made.ready = True
    return made


def sender(
    *batches,
    split=None,
    known=False,
    leader=LEADERS.get,
    topic_ids=MappingProxyType({}),
    connected=frozenset({1, 2}),
    obstacle=lambda partition: "",
    admits=None,
    **options,
):
    """A sender with these batches; `known` says that the leaders have acknowledged something of the producer."""
    defaults = {
        "idempotent": True,
        "window": 5,
        "max_request_bytes": 1000,
        "delivery_timeout": 10.0,
        "retry_backoff": 0.1,
        "retry_backoff_max": 1.0,
    }
    made = Sender(
        SenderOptions(**defaults | options),
        split or (lambda batch: []),
        lambda: 0.5,
        leader=leader,
        topic_id=lambda topic: topic_ids.get(topic),
        connected=connected.__contains__,
        obstacle=obstacle,
        admits=admits,
    )
    made.identify(7, 0)
    for tp in {one.partition for one in batches} if known else ():
        made.add(batch(tp, records=0))
        for order in drain(made).orders:
            answer(made, order)
    for one in batches:
        made.add(one)
    return made


def drain(made, now=0.0):
    """What it asks for, by kind."""
    ready = made.poll(now)

    def of(kind):
        return [action for action in ready.actions if isinstance(action, kind)]

    return SimpleNamespace(
        expired=of(SettledBatch),
        orders=of(ProduceOrder),
        connect={action.node for action in of(ConnectNode)},
        wants_metadata=bool(of(RefreshMetadata)),
        wants_id=bool(of(RequestProducerId)),
        next_wake=ready.next_wake,
    )


def answer(made, order, now=0.0, **codes):
    return made.answered(order, {b.partition: ProduceAnswer(**codes) for b in order.batches}, now)


def test_a_request_has_one_batch_of_each_partition_of_its_node():
    a1, a2, b1, c1 = batch(A), batch(A), batch(B), batch(C)
    orders = drain(sender(a1, a2, b1, c1, known=True)).orders
    assert [(o.node, o.batches) for o in orders] == [(1, [a1, c1]), (2, [b1]), (1, [a2])]


def test_a_topic_made_anew_gets_one_batch_until_it_knows_the_producer():
    topic_ids = {"orders": b"old"}
    made = sender(*(batch() for _ in range(3)), known=True, topic_ids=topic_ids)
    orders = drain(made).orders
    assert [order.topic_ids for order in orders] == 3 * [{"orders": b"old"}]
    topic_ids["orders"] = b"new"
    made.add(batch())
    for order in orders:
        assert drain(made).orders == []
        answer(made, order, error_code=100)
    (order,) = drain(made, now=5.0).orders
    assert order.batches == orders[0].batches
    assert order.topic_ids == {"orders": b"new"}


def test_a_request_stays_below_its_limit_but_takes_one_batch_of_any_size():
    a, c = batch(A, size=900), batch(C, size=900)
    assert [o.batches for o in drain(sender(a, c)).orders] == [[a], [c]]
    huge = batch(A, size=5000)
    assert [o.batches for o in drain(sender(huge)).orders] == [[huge]]


def test_a_node_has_no_more_requests_than_the_window():
    made = sender(*(batch(A) for _ in range(9)), window=3, known=True)
    orders = drain(made).orders
    assert len(orders) == 3
    answer(made, orders[0])
    assert len(drain(made).orders) == 1


def test_partitions_take_turns():
    made = sender(batch(A, size=900), batch(C, size=900), batch(A, size=900), window=1)
    (first,) = drain(made).orders
    answer(made, first)
    (second,) = drain(made).orders
    assert [first.batches[0].partition, second.batches[0].partition] == [A, C]


def test_a_node_without_connection_is_connected_to_first():
    drained = drain(sender(batch(A), batch(B), connected=[2]))
    assert drained.connect == {1}
    assert [o.node for o in drained.orders] == [2]


@pytest.mark.parametrize("leader", [None, -1])
def test_a_partition_without_leader_wants_metadata(leader):
    drained = drain(sender(batch(A), leader=lambda tp: leader))
    assert drained.wants_metadata
    assert not drained.orders


def test_nothing_is_sent_before_there_is_a_producer_id():
    made = sender(batch(A))
    made._identity = None
    drained = drain(made)
    assert drained.wants_id
    assert not drained.orders
    made.identify(9, 2)
    (order,) = drain(made).orders
    assert (order.batches[0].producer_id, order.batches[0].producer_epoch) == (9, 2)


def test_an_acknowledged_batch_has_its_offset():
    made = sender(batch(A))
    (order,) = drain(made).orders
    (settled,) = answer(made, order, base_offset=42, timestamp_ms=5).settled
    assert (settled.base_offset, settled.timestamp_ms, settled.error) == (42, 5, None)
    assert made.partitions == []


def test_a_batch_that_the_broker_has_already_is_delivered():
    made = sender(batch(A))
    (order,) = drain(made).orders
    (settled,) = answer(made, order, error_code=46).settled
    assert (settled.base_offset, settled.error) == (-1, None)


def test_a_moved_leader_wants_metadata_and_the_batch_is_sent_again():
    made = sender(batch(A))
    (order,) = drain(made).orders
    outcome = answer(made, order, error_code=6)
    assert outcome.wants_metadata
    assert not outcome.settled
    assert drain(made).next_wake == pytest.approx(0.1)
    assert not drain(made, 0.05).orders
    assert len(drain(made, 0.2).orders) == 1


def test_a_partition_that_the_response_does_not_mention_is_sent_again():
    made = sender(batch(A))
    (order,) = drain(made).orders
    assert not made.answered(order, {}, 0.0).settled
    assert len(drain(made, 1.0).orders) == 1


def test_a_refused_batch_has_its_error_with_topic_and_partition():
    made = sender(batch(A))
    (order,) = drain(made).orders
    (settled,) = answer(made, order, error_code=87, message="no key").settled
    assert isinstance(settled.error, InvalidRecordError)
    assert str(settled.error) == "INVALID_RECORD (87) in answer to Produce for orders-0 from broker 1: no key"


def test_too_large_a_batch_is_sent_in_halves_and_too_large_a_record_fails():
    one, two = batch(records=4), batch(records=6)
    made = sender(batch(A), split=lambda batch: [one, two], known=True)
    (order,) = drain(made).orders
    assert not answer(made, order, error_code=10).settled
    assert [o.batches for o in drain(made, 1.0).orders] == [[one], [two]]
    made = sender(batch(A, records=1))
    (order,) = drain(made).orders
    (settled,) = answer(made, order, error_code=10).settled
    assert isinstance(settled.error, MessageTooLargeError)
    assert "max.message.bytes" in str(settled.error)


@pytest.mark.parametrize("fate_open", [True, False])
def test_halves_of_what_may_be_in_the_log_are_not_sent_under_a_new_epoch(fate_open):
    """To the broker they are no duplicates of the whole: where that is in the log, it misses what comes behind it."""
    whole, halves = batch(records=10), [batch(records=5), batch(records=5)]
    made = sender(whole, split=lambda _: halves, known=True)
    (order,) = drain(made).orders
    if fate_open:
        made.failed(order, DisconnectedError("gone"), 0.0, maybe_written=True)
        (order,) = drain(made, 1.0).orders
    answer(made, order, error_code=10)
    settled = []
    for order in drain(made, 1.0).orders:
        settled += answer(made, order, error_code=45).settled
    for order in drain(made, 2.0).orders:
        assert (order.batches[0].producer_epoch, order.batches[0].sequence) == (
            (0, 5) if fate_open else (1, 0)
        )
        settled += answer(made, order, error_code=45).settled
    assert [s.batch for s in settled] == (halves if fate_open else [])
    for s in settled:
        assert isinstance(s.error, OutOfOrderSequenceNumberError)
        assert "the records may have been written" in str(s.error)


def test_a_refusal_says_that_an_earlier_attempt_may_have_been_written():
    made = sender(batch(A))
    (order,) = drain(made).orders
    made.failed(order, DisconnectedError("gone"), 0.0, maybe_written=True)
    (order,) = drain(made, 1.0).orders
    (settled,) = answer(made, order, error_code=29).settled
    assert isinstance(settled.error, TopicAuthorizationFailedError)
    assert "the records may have been written" in str(settled.error)


def test_a_lost_connection_is_no_outcome():
    made = sender(batch(A))
    (order,) = drain(made).orders
    outcome = made.failed(order, DisconnectedError("gone"), 0.0, maybe_written=True)
    assert outcome.wants_metadata
    assert not outcome.settled
    assert len(drain(made, 1.0).orders) == 1


def test_an_answer_that_cannot_be_read_is_no_outcome_either():
    made = sender(batch(A))
    (order,) = drain(made).orders
    error = DecodeError("ProduceResponse version 12: 3 bytes left over")
    assert not made.failed(order, error, 0.0, maybe_written=True).settled
    assert len(drain(made, 1.0).orders) == 1
    (settled,) = drain(made, 10.0).expired
    assert str(settled.error).endswith(f"they may have been written; the last error was: {error}")


@pytest.mark.parametrize("error", [AuthenticationError("no"), UnsupportedVersionError("too old")])
@pytest.mark.parametrize("at", ["request", "connection"])
def test_an_error_of_all_batches_says_of_one_that_it_may_be_there(error, at):
    """The answer about A and B was lost before their broker refused the next request, or connection."""
    made = sender(batch(A), batch(B), leader=lambda tp: 1)
    (order,) = drain(made).orders
    made.failed(order, DisconnectedError("gone"), 0.0, maybe_written=True)
    made.add(batch(C))
    if at == "request":
        (order,) = drain(made, 1.0).orders
        settled = made.failed(order, error, 1.0, maybe_written=False).settled
    else:
        settled = made.give_up(error)
    found = {s.batch.partition: s.error for s in settled}
    assert found[C] is error
    assert "the records" not in str(error)
    for partition in (A, B):
        assert type(found[partition]) is type(error)
        assert str(found[partition]) == (
            f"{error}; an earlier attempt had no clear outcome: the records may have been written"
        )


def test_in_a_transaction_that_is_aborted_it_makes_no_difference():
    made = sender(batch(A), transactional=True)
    (order,) = drain(made).orders
    made.failed(order, DisconnectedError("gone"), 0.0, maybe_written=True)
    error = TransactionAbortedError("its transaction was aborted")
    assert [s.error for s in made.give_up(error)] == [error]


def test_an_error_that_no_retry_changes_is_one():
    made = sender(batch(A))
    (order,) = drain(made).orders
    (settled,) = made.failed(order, AuthenticationError("no"), 0.0, maybe_written=False).settled
    assert isinstance(settled.error, AuthenticationError)


@pytest.mark.parametrize(
    ("error", "maybe", "says"),
    [
        (DisconnectedError("gone"), True, "may have been written; the last error was: gone"),
        (NodeNotReadyError("busy"), False, "were not written; the last error was: busy"),
    ],
)
def test_a_batch_has_its_time_and_says_whether_it_may_be_there(error, maybe, says):
    nodes = {1, 2}
    made = sender(batch(A), connected=nodes)
    (order,) = drain(made).orders
    made.failed(order, error, 0.0, maybe_written=maybe)
    nodes.clear()
    assert drain(made, 9.9).expired == []
    (settled,) = drain(made, 10.0).expired
    assert isinstance(settled.error, DeliveryTimeoutError)
    assert settled.error.maybe_written is maybe
    assert says in str(settled.error)
    assert "orders-0: 10 records" in str(settled.error)


def test_a_batch_that_was_never_sent_says_what_stood_in_its_way():
    """A leader at an address that can't be reached from here is sent nothing, so no request fails either."""
    made = sender(batch(A), connected=set(), obstacle=lambda partition: f"no way to {partition.partition}")
    (settled,) = drain(made, 10.0).expired
    assert str(settled.error).endswith("they were not written; the last error was: no way to 0")


def test_an_answer_that_comes_after_its_time_changes_nothing():
    made = sender(batch(A))
    (order,) = drain(made).orders
    assert len(drain(made, 10.0).expired) == 1
    assert answer(made, order, now=11.0, base_offset=1).settled == []
    assert made.partitions == []


def test_the_next_event_is_the_end_of_the_oldest_batch():
    made = sender(batch(A, created=3.0), batch(B, created=2.0))
    drain(made, 3.0)
    assert drain(made, 3.0).next_wake == 12.0


def test_giving_up_tells_everybody():
    a, b = batch(A), batch(B)
    made = sender(a, b)
    drain(made)
    error = DisconnectedError("closed")
    assert [(s.batch, s.error) for s in made.give_up(error, [B])] == [(b, error)]
    assert [s.batch for s in made.give_up(error)] == [a]


def test_without_idempotence_a_quiet_partition_is_forgotten():
    made = sender(batch(A), idempotent=False)
    (order,) = drain(made).orders
    answer(made, order)
    assert not made._queues


def test_nothing_is_sent_to_a_partition_before_it_is_in_the_transaction():
    added, asked = {B}, []

    def admits(tp):
        asked.append(tp)
        return tp in added

    a, b = batch(A), batch(B)
    made = sender(a, b, transactional=True, admits=admits)
    assert [order.batches for order in drain(made).orders] == [[b]]
    assert A in asked
    added.add(A)
    assert [order.batches for order in drain(made).orders] == [[a]]


@pytest.mark.parametrize("code", [45, 47, 59], ids=["out of order", "another epoch", "unknown producer"])
def test_a_gap_in_a_transaction_fails_the_batch(code):
    first, second = batch(), batch()
    made = sender(first, second, transactional=True)
    one, two = drain(made).orders
    [settled] = answer(made, one, error_code=code).settled
    assert (settled.batch, settled.error.code) == (first, code)
    answer(made, two, error_code=45)
    assert drain(made).orders == []  # under no epoch of the partition's own
    assert {s.batch for s in made.give_up(UnknownServerError())} <= {second}


def test_a_batch_that_only_came_too_early_is_sent_again_in_a_transaction_too():
    first, second = batch(), batch()
    made = sender(first, second, transactional=True)
    one, two = drain(made).orders
    assert answer(made, two, error_code=45).settled == []
    answer(made, one)
    assert [order.batches for order in drain(made).orders] == [[second]]


def test_the_next_transaction_may_begin_all_sequences_anew():
    first, second = batch(), batch()
    made = sender(first, transactional=True)
    [order] = drain(made).orders
    answer(made, order)
    made.renew(7, 1)
    made.add(second)
    drain(made)
    assert [(b.producer_epoch, b.sequence) for b in (first, second)] == [(0, 0), (1, 0)]


def test_markers_of_the_transaction_before_are_waited_for_a_moment():
    made = sender(batch(), transactional=True)
    [order] = drain(made).orders
    assert answer(made, order, error_code=51).settled == []
    assert drain(made).next_wake == CONCURRENT_S
    assert len(drain(made, CONCURRENT_S).orders) == 1


def test_a_batch_before_one_that_was_acknowledged_is_written_also_where_the_broker_forgot_it():
    a, b = batch(), batch()
    made = sender(a, b, known=True)
    first, second = drain(made).orders
    answer(made, first, error_code=7)
    assert [s.batch for s in answer(made, second, base_offset=20).settled] == [b]
    (again,) = drain(made, now=5.0).orders
    (settled,) = answer(made, again, now=5.0, error_code=45).settled
    assert (settled.batch, settled.error, settled.base_offset) == (a, None, -1)


@pytest.mark.parametrize("code", [3, 6, 19, 56])
def test_a_batch_that_was_refused_is_not_written_because_one_behind_it_was_acknowledged(code):
    """A topic that was made anew, which the client hasn't heard of, knows no producer: it takes any first sequence."""
    a, b = batch(), batch()
    made = sender(a, b, known=True)
    first, second = drain(made).orders
    answer(made, first, error_code=code)
    assert [s.batch for s in answer(made, second, base_offset=0).settled] == [b]
    (again,) = drain(made, now=5.0).orders
    assert answer(made, again, now=5.0, error_code=45).settled == []
    (anew,) = drain(made, now=9.0).orders
    assert (anew.batches, a.producer_epoch, a.sequence) == ([a], 1, 0)
    assert [(s.batch, s.error) for s in answer(made, anew, now=9.0, base_offset=1).settled] == [(a, None)]


def test_a_batch_before_one_that_was_acknowledged_is_written_also_where_its_time_is_over():
    a, b = batch(), batch()
    made = sender(a, b, known=True)
    first, second = drain(made).orders
    answer(made, first, error_code=7)
    answer(made, second, base_offset=20)
    assert [(s.batch, s.error) for s in drain(made, now=10.0).expired] == [(a, None)]


def test_without_idempotence_a_batch_before_one_that_was_acknowledged_may_be_missing():
    a, b = batch(), batch()
    made = sender(batch(), batch(), idempotent=False)
    one, other = drain(made).orders
    answer(made, one)
    made.add(a)
    made.add(b)
    first, second = drain(made).orders
    answer(made, other)
    answer(made, first, error_code=6)
    answer(made, second, base_offset=20)
    (expired,) = drain(made, now=10.0).expired
    assert expired.batch is a
    assert "not acknowledged within delivery_timeout_ms" in str(expired.error)


def test_batches_that_the_broker_denies_are_written_with_the_one_that_it_remembers():
    a, b, c = batch(), batch(), batch()
    made = sender(a, b, c, known=True)
    for order in drain(made).orders:
        answer(made, order, error_code=7)
    now = 5.0
    for code in (45, 45):
        (order,) = drain(made, now=now).orders
        assert answer(made, order, now=now, error_code=code).settled == []
        now += 1.0
    (order,) = drain(made, now=now).orders
    settled = answer(made, order, now=now, base_offset=30).settled
    assert [(s.batch, s.base_offset) for s in settled] == [(a, -1), (b, -1), (c, 30)]

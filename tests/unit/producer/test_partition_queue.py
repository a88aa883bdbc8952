"""One partition's batches and their sequences, by the rules of KIP-98 and KIP-360."""

import pytest

from kafka_actors.producer.machines.batch import NO_SEQUENCE, ProducerBatch
from kafka_actors.producer.machines.partition_queue import KNOWN_S, MAX_EPOCH, Leader, PartitionQueue
from kafka_actors.types import TopicPartition

TP = TopicPartition("orders", 3)


class Content:
    used = 100

    def __init__(self, count):
        self.count = count


def batch(records=10, created=0.0):
    made = ProducerBatch(TP, Content(records), created)
    made.ready = True
    return made


def queue_of(*batches, window=5, epoch=0, known=True):
    """A queue with these batches; `known` says that broker 1 has acknowledged something of it."""
    made = PartitionQueue(TP, idempotent=True, window=window)
    made.identify(7, epoch)
    if known:
        first = batch(0)
        made.waiting.append(first)
        send(made)
        acknowledge(made, first)
    made.waiting.extend(batches)
    return made


def send(made, now=0.0, node=1, topic_id=None):
    """Sends all that may be sent."""
    sent = []
    while (one := made.sendable(now, Leader(node, topic_id))) is not None:
        made.sent(one, Leader(node, topic_id))
        sent.append(one)
    return sent


def acknowledge(made, one, now=0.0, node=1, topic_id=None):
    assert made.answered(one)
    made.written(one, now, Leader(node, topic_id))


def test_sequences_count_records():
    a, b, c = batch(3), batch(4), batch(1)
    assert send(queue_of(a, b, c)) == [a, b, c]
    assert [x.sequence for x in (a, b, c)] == [0, 3, 7]


def test_sequences_wrap_after_the_largest_int32():
    a, b = batch(3), batch(1)
    made = queue_of(a, b)
    made._sequence = 2**31 - 2
    send(made)
    assert [a.sequence, b.sequence] == [2**31 - 2, 1]


def test_no_more_than_the_window_is_in_flight():
    made = queue_of(*(batch() for _ in range(9)))
    assert len(send(made)) == 5


def test_what_is_not_packed_yet_holds_up_what_comes_behind_it():
    a, b = batch(), batch()
    a.ready = False
    made = queue_of(a, b)
    assert send(made) == []
    a.ready = True
    assert send(made) == [a, b]


def test_nothing_is_sent_to_a_new_leader_before_the_old_one_answered():
    a, b = batch(), batch()
    made = queue_of(a, b, window=1)
    assert send(made, node=1) == [a]
    made._window = 5
    assert made.sendable(0.0, Leader(2)) is None
    acknowledge(made, a)
    assert send(made, node=2) == [b]


def test_nothing_is_sent_to_a_topic_made_anew_before_what_was_sent_to_the_old_one_is_answered():
    a, b = batch(), batch()
    made = queue_of(a)
    assert send(made) == [a]
    made.waiting.append(b)
    assert send(made, topic_id=b"new") == []
    made.answered(a)
    made.again(a, 0.0, doubtful=True)
    assert send(made, topic_id=b"new") == [a]
    assert identity(a) == (0, 0)


def test_without_idempotence_too_what_is_on_the_wire_is_answered_before_a_new_leader_or_another_attempt():
    """No broker would put them in order."""
    a, b, c = batch(), batch(), batch()
    made = PartitionQueue(TP, idempotent=False, window=5)
    made.waiting.extend([a, b])
    assert send(made, node=1) == [a, b]
    made.waiting.append(c)
    assert made.sendable(0.0, Leader(2)) is None
    made.answered(a)
    made.again(a, 0.0, doubtful=True)
    assert made.sendable(0.0, Leader(1)) is None
    acknowledge(made, b)
    assert send(made, node=2) == [a, c]


def test_after_a_failure_all_is_sent_again_in_order_once_the_wire_is_empty():
    a, b, c = batch(), batch(), batch()
    made = queue_of(a, b, c)
    send(made)
    made.answered(a)
    made.again(a, 5.0, doubtful=True)
    assert made.sendable(9.0, Leader(1)) is None, "two are still on the wire"
    for x in (b, c):
        made.answered(x)
        made.gap(x, 6.0, lost_state=False)
    assert not made.broken, "they only came too early"
    assert send(made, now=4.0) == [], "not before its time"
    assert send(made, now=5.0) == [a]
    acknowledge(made, a, now=5.0)
    assert send(made, now=5.0) == [b, c]
    assert [x.sequence for x in (a, b, c)] == [0, 10, 20]


def test_a_real_gap_begins_a_new_epoch_at_sequence_0():
    a, b = batch(), batch()
    made = queue_of(a, b)
    send(made)
    for x in (a, b):
        made.answered(x)
        made.gap(x, 0.1, lost_state=False)
    assert made.broken
    assert send(made, now=1.0) == [a]
    acknowledge(made, a, now=1.0)
    assert send(made, now=1.0) == [b]
    assert [(x.producer_id, x.producer_epoch, x.sequence) for x in (a, b)] == [(7, 1, 0), (7, 1, 10)]


def test_a_lost_producer_state_begins_a_new_epoch_whichever_batch_tells_of_it():
    a, b = batch(), batch()
    made = queue_of(a, b)
    send(made)
    made.answered(b)
    made.gap(b, 0.1, lost_state=True)
    acknowledge(made, a)
    assert send(made, now=1.0) == [b]
    assert (b.producer_epoch, b.sequence) == (1, 0)


def test_what_was_sent_behind_a_refused_batch_gets_new_sequences():
    a, b = batch(), batch()
    made = queue_of(a, b)
    send(made)
    made.answered(a)
    made.refused(a)
    assert made.sendable(0.0, Leader(1)) is None, "the other is still on the wire"
    made.answered(b)
    made.gap(b, 9.0, lost_state=False)
    assert send(made) == [b], "at once: everybody expected that"
    assert (b.producer_epoch, b.sequence) == (1, 0)


def test_a_doubtful_batch_keeps_its_sequence_until_its_fate_is_known():
    a, b = batch(), batch()
    made = queue_of(a, b)
    send(made)
    made.fail(a)  # its time is over while it is on the wire
    for x in (a, b):
        assert made.answered(x) is (x is b)
    made.again(b, 0.0, doubtful=True)  # the connection was lost
    assert send(made) == [b]
    assert (b.producer_epoch, b.sequence) == (0, 10), "under the new epoch it could be there twice"
    made.answered(b)
    made.gap(b, 0.0, lost_state=False)
    assert send(made) == [b]
    assert (b.producer_epoch, b.sequence) == (1, 0)


def identity(one):
    return one.producer_epoch, one.sequence


def deny(made, one, node=1, *, lost_state=False):
    """Sends this batch, of which the broker says that it misses what came before it."""
    assert send(made, node=node) == [one]
    made.answered(one)
    made.gap(one, 0.0, lost_state=lost_state)


def on_trial(count=2, epoch=0):
    """A queue whose new epoch is on trial at node 2, with its batches. What came before them failed for good; they had no clear outcome at
    node 1, and node 2 has said of each that it lacks what came before it."""
    lost, *others = [batch() for _ in range(count + 1)]
    made = queue_of(lost, *others, epoch=epoch)
    send(made)
    made.answered(lost)
    made.refused(lost)
    for one in others:
        made.answered(one)
        made.again(one, 0.0, doubtful=True)
    for one in others:
        deny(made, one, node=2)
    return made, others


@pytest.mark.parametrize("after", ["a failure", "a move of the leader"])
def test_the_next_leader_is_asked_with_the_former_sequences_what_another_has_denied(after):
    """A replica may have what the leader lacked, until that leader has acknowledged something."""
    made, (a, b) = on_trial()
    if after == "a failure":
        assert send(made, node=2) == [a]
        assert identity(a) == (1, 0)
        made.answered(a)
        made.again(a, 0.0, doubtful=False)
    assert send(made, node=1) == [a]
    assert identity(a) == (0, 10)
    acknowledge(made, a, node=1)
    assert send(made, node=1) == [b]
    assert identity(b) == (0, 20)
    acknowledge(made, b, node=1)
    made.waiting.append(c := batch())
    assert send(made, node=1) == [c]
    assert identity(c) == ((2, 0) if after == "a failure" else (1, 0)), "no other batch has had this sequence"


def test_an_acknowledgement_ends_the_trial_of_an_epoch():
    made, (a, b) = on_trial()
    assert send(made, node=2) == [a]
    acknowledge(made, a, node=2)
    assert send(made, node=2) == [b]
    made.answered(b)
    made.again(b, 0.0, doubtful=True)
    assert send(made, node=1) == [b]
    assert identity(b) == (1, 10)


def test_a_batch_that_may_be_in_the_log_under_a_new_epoch_gets_the_same_sequence_of_it_again():
    made, (a,) = on_trial(count=1)
    send(made, node=2)
    made.answered(a)
    made.again(a, 0.0, doubtful=True)
    deny(made, a, node=2, lost_state=True)  # INVALID_PRODUCER_EPOCH: a late copy of it was written
    assert identity(a) == (0, 10)
    assert send(made, node=2) == [a]
    assert identity(a) == (1, 0)


def test_a_sequence_of_a_new_epoch_that_a_batch_may_have_had_is_given_to_no_other():
    made, (a, b) = on_trial()
    send(made, node=2)
    made.fail(a)  # its time is over while it is on the wire
    made.answered(a)
    assert send(made, node=2) == [b]
    assert identity(b) == (0, 20), "another replica may have it"
    made.answered(b)
    made.gap(b, 0.0, lost_state=False)
    assert send(made, node=2) == [b]
    assert identity(b) == (2, 0)


def test_a_gap_under_an_epoch_on_trial_begins_a_newer_one():
    made, (a,) = on_trial(count=1)
    send(made, node=2)
    made.answered(a)
    made.gap(a, 0.0, lost_state=False)
    deny(made, a, node=2)
    assert identity(a) == (0, 10)
    assert send(made, node=2) == [a]
    assert identity(a) == (2, 0)


def test_what_a_leader_has_denied_may_have_been_written_until_it_has_acknowledged_something():
    made, (a, b) = on_trial()
    assert a.maybe_written
    assert b.maybe_written
    send(made, node=2)
    acknowledge(made, a, node=2)
    assert not b.maybe_written


def test_a_broker_that_remembers_the_last_batch_alone_has_those_before_it_too():
    """A restarted broker says of each earlier one that it misses what came before."""
    a, b, c, d = batch(), batch(), batch(), batch()
    made = queue_of(a, b, c, d)
    send(made)
    for one in (a, b, c):
        made.answered(one)
        made.again(one, 0.0, doubtful=True)
    made.answered(d)
    made.gap(d, 0.0, lost_state=False)  # it was never written
    for one in (a, b):
        deny(made, one)
    assert send(made) == [c]
    assert made.answered(c)
    assert made.written(c, 0.0, Leader(1)) == [a, b]
    assert send(made) == [d]
    assert identity(d) == (1, 0)


@pytest.mark.parametrize("known", [True, False])
def test_what_is_before_an_acknowledged_batch_is_in_the_log_of_a_leader_that_knows_the_producer(known):
    a, b = batch(), batch()
    made = queue_of(a, b, known=known)
    for one in (a, b) if not known else ():  # as in a transaction, where all are sent at once
        made.sent(one, Leader(1))
    send(made)
    made.answered(a)
    made.again(a, 0.0, doubtful=True, appended=True)
    made.answered(b)
    assert made.written(b, 0.0, Leader(1)) == []
    assert a.followed is known
    assert send(made) == [a], "for its offset"


def test_what_is_before_an_acknowledged_batch_gets_no_new_epoch():
    """The leader has denied it before, and the batch in front of it failed for good."""
    lost, a, b = batch(), batch(), batch()
    made = queue_of(lost, a, b)
    send(made)
    made.answered(lost)
    made.refused(lost)
    made.answered(a)
    made.gap(a, 0.0, lost_state=False)
    acknowledge(made, b)
    assert send(made) == [a]
    assert identity(a) == (0, 10)


def test_in_a_transaction_a_batch_that_came_too_early_is_sent_again():
    a, b = batch(), batch()
    made = PartitionQueue(TP, idempotent=True, window=5, transactional=True)
    made.identify(7, 3)
    made.waiting.extend([a, b])
    send(made)
    b.doubtful = True
    made.answered(b)
    made.gap(b, 0.0, lost_state=False)
    made.answered(a)
    made.fail(a)
    assert send(made) == [b]


def test_halves_of_what_another_replica_may_have_keep_its_former_sequences():
    made, (a, b) = on_trial()
    send(made, node=2)
    made.answered(a)
    one, two = batch(4), batch(6)
    made.replaced(a, [one, two])
    assert send(made, node=2) == [one]
    assert identity(one) == (0, 10)
    assert one.maybe_whole
    assert two.maybe_whole
    acknowledge(made, one, node=2)
    assert send(made, node=2) == [two, b]
    assert identity(two) == (0, 14)


def test_a_trial_under_another_producer_id_ends_with_the_former_id():
    made, (a,) = on_trial(count=1, epoch=MAX_EPOCH)
    assert send(made, node=2) == []
    assert made.needs_id
    made.identify(8, 0)
    assert send(made, node=2) == [a]
    made.answered(a)
    made.again(a, 0.0, doubtful=True)
    assert send(made, node=1) == [a]
    assert (a.producer_id, *identity(a)) == (7, MAX_EPOCH, 10)
    made.answered(a)
    made.gap(a, 0.0, lost_state=False)
    assert send(made, node=1) == [a]
    assert (a.producer_id, *identity(a)) == (8, 0, 0)


def test_no_batch_is_sent_that_would_make_the_broker_forget_the_first_one():
    """A broker remembers five; the first may be written without our knowing, and must be known as a duplicate."""
    batches = [batch() for _ in range(8)]
    made = queue_of(*batches)
    a, *others = send(made)
    made.answered(a)
    made.again(a, 0.0, doubtful=True)
    for x in others:
        acknowledge(made, x)
    assert send(made) == [a], "with another one behind it, it would be the sixth"
    acknowledge(made, a)
    assert send(made) == batches[5:]


def test_a_used_up_epoch_wants_another_producer_id():
    a = batch()
    made = queue_of(a, epoch=MAX_EPOCH)
    send(made)
    made.answered(a)
    made.gap(a, 0.0, lost_state=True)
    assert send(made) == []
    assert made.needs_id
    assert made.exhausted_id == 7
    made.identify(8, 0)
    assert send(made) == [a]
    assert (a.producer_id, a.producer_epoch, a.sequence) == (8, 0, 0)


def test_halves_keep_the_sequences_of_the_whole():
    a, b = batch(10), batch(5)
    made = queue_of(a, b)
    send(made)
    one, two = batch(4), batch(6)
    made.answered(a)
    made.replaced(a, [one, two])
    made.answered(b)
    made.gap(b, 0.0, lost_state=False)
    assert send(made) == [one, two, b]
    assert [x.sequence for x in (one, two, b)] == [0, 4, 10]


def test_one_batch_at_a_time_is_sent_to_a_broker_that_does_not_know_the_producer():
    a, b, c = batch(), batch(), batch()
    made = queue_of(a, b, c, known=False)
    assert send(made) == [a]
    made.answered(a)
    made.again(a, 0.0, doubtful=True)
    assert send(made) == [a]
    acknowledge(made, a)
    assert send(made) == [b, c]


@pytest.mark.parametrize(
    "after",
    ["a failure", "a new epoch", "a move of the leader", "a long pause", "another topic of this name"],
)
def test_whether_a_broker_knows_the_producer_has_to_be_seen_again(after):
    a, b, c = batch(), batch(), batch()
    made = queue_of(a)
    send(made)
    made.answered(a)
    if after == "a failure":
        made.again(a, 0.0, doubtful=True)
    elif after == "a new epoch":
        made.refused(a)
    else:
        made.written(a, 0.0, Leader(1))
    now, node = KNOWN_S if after == "a long pause" else 0.0, 2 if after == "a move of the leader" else 1
    made.waiting.extend([b, c])
    topic_id = b"new" if after == "another topic of this name" else None
    (first,) = send(made, now, node, topic_id)
    acknowledge(made, first, now, node, topic_id)
    assert len(send(made, now, node, topic_id)) == (2 if after == "a failure" else 1)


def test_without_idempotence_there_are_no_sequences_and_no_epochs():
    a, b = batch(), batch()
    made = PartitionQueue(TP, idempotent=False, window=5)
    made.waiting.extend([a, b])
    assert send(made) == [a, b]
    assert (a.sequence, a.producer_id) == (NO_SEQUENCE, NO_SEQUENCE)
    made.answered(a)
    made.refused(a)
    assert not made.broken


@pytest.mark.parametrize("issued", [True, False])
def test_what_is_given_up_is_forgotten(issued):
    a = batch()
    made = queue_of(a)
    if issued:
        send(made)
        made.answered(a)
    made.fail(a)
    assert made.empty
    assert made.broken is issued, "only what may have been written leaves a gap"


def test_a_transaction_has_one_epoch_whatever_is_lost():
    a, b, c = batch(), batch(), batch()
    made = PartitionQueue(TP, idempotent=True, window=5, transactional=True)
    made.identify(7, 3)
    made.waiting.extend([a, b, c])
    assert send(made) == [a, b, c]  # also to a broker that hasn't acknowledged anything yet
    for one in (a, b, c):
        made.answered(one)
    made.fail(a)
    assert send(made, now=100.0) == [b, c]
    assert [x.producer_epoch for x in (b, c)] == [3, 3]
    assert [x.sequence for x in (b, c)] == [10, 20]

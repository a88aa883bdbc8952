"""The place between calls where results and offsets meet, for a job that delivers at least once: nothing waits, and nothing is held back."""

from kafka_actors.job.worker.cut import LOST, Cut, Lost
from kafka_actors.job.worker.user_function import CallFailed
from kafka_actors.types import TopicPartition

P0, EPOCH = TopicPartition("t", 0), (1, 1)


def test_nothing_waits():
    cut = Cut()
    assert list(cut.enter()) == []
    assert list(cut.enter()) == [], "also while somebody is in it"
    cut.leave()


def test_what_became_of_a_call_is_handed_on():
    failure = CallFailed(ValueError("no"), 1, 2)
    assert Cut().put_out(P0, EPOCH, 0, failure) is failure
    assert Cut().put_out(P0, EPOCH, 0, failure, partly=False) is failure
    assert Cut().put_out(P0, EPOCH, 0, None) is None


def test_records_may_always_be_taken_out():
    cut = Cut()
    cut.spoiled(ValueError("of a dead letter"))
    assert cut.may_write(P0, EPOCH, 0)


def test_lost_is_no_failure_and_not_nothing():
    assert isinstance(LOST, Lost)
    assert LOST is not None
    assert not isinstance(LOST, CallFailed)

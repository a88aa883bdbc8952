"""The journal of simulated jobs: what it takes for a broken promise, and the situations next to it that it has to let pass."""

import pytest
from simulation.job_journal import Journal, Violation

from kafka_actors.types import TopicPartition

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


def call(journal, offsets, worker="consumer0", epoch=None):
    journal.begins(worker, worker, epoch, P0, 0, offsets)
    journal.returned(worker, epoch, P0, 0, offsets)


@pytest.fixture
def journal():
    made = Journal(None, "group")
    call(made, [0, 1, 2])
    return made


def test_a_consumer_goes_on_where_its_last_call_ended(journal):
    call(journal, [3])
    with pytest.raises(Violation, match="goes on at 3 under None, and its last call ended at 4"):
        call(journal, [3, 4])


def test_a_consumer_that_has_lost_the_partition_may_begin_at_the_committed_offset(journal):
    journal.lost("consumer0", [P0])
    call(journal, [1, 2, 3])


@pytest.mark.parametrize(("who", "what"), [("consumer1", P0), ("consumer0", P1)])
def test_what_another_one_has_lost_or_another_partition_excuses_nothing(journal, who, what):
    journal.lost(who, [what])
    with pytest.raises(Violation, match="goes on at 1"):
        call(journal, [1, 2, 3])


def test_a_record_that_nobody_has_processed_is_missed_even_after_a_loss(journal):
    journal.lost("consumer0", [P0])
    with pytest.raises(Violation, match="begins at 5, and 3 was never processed"):
        call(journal, [5])

"""The journal of simulated jobs: what it takes for a broken promise, and the situations next to it that it has to let pass."""

from types import SimpleNamespace

import pytest
from fakes.fake_wire import Wire
from simulation.job_journal import Journal, Violation

from kafka_actors.protocol import ZERO_UUID, OffsetCommitRequest
from kafka_actors.protocol.messages.offset_commit import (
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
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


@pytest.mark.parametrize("before", [[], [0, 1, 2]])
def test_two_members_within_one_generation_are_found_whether_or_not_the_first_had_the_partition_before(
    before,
):
    journal = Journal(None, "group")
    journal._generation = 5
    if before:
        call(journal, before)
    journal._generation = 6
    call(journal, [len(before)])
    with pytest.raises(Violation, match="in the same generation 6"):
        call(journal, [len(before) + 1], "consumer1")


def test_another_member_of_a_later_generation_may_go_on(journal):
    journal._generation += 1
    call(journal, [3], "consumer1")


class Commits:
    """Commits for partition 0 of a topic of which ten records are processed."""

    def __init__(self):
        self.wire = Wire(topics={"orders": 2})
        self.journal = Journal(self.wire.cluster, "group")
        self.journal.use_clock(lambda: self.wire.now)
        for number in (0, 1):
            partition = TopicPartition("orders", number)
            self.journal.begins("consumer0", "consumer0", None, partition, 0, list(range(10)))
            self.journal.returned("consumer0", None, partition, 0, list(range(10)))

    def commit(self, offset, *, late=False, partition=0):
        parts = [OffsetCommitRequestPartition(partition, offset, -1, "")]
        request = OffsetCommitRequest(
            "group", -1, "", None, -1, [OffsetCommitRequestTopic("orders", ZERO_UUID, parts)]
        )
        self.journal.arrived(request, late=late)
        assert self.wire.ask(request, 8, "client").topics[0].partitions[0].error_code == 0
        self.journal.turned()


@pytest.mark.parametrize(
    "earlier", [[], [SimpleNamespace(offset=8, partition=0)], [SimpleNamespace(offset=8, partition=1)]]
)
def test_a_commit_that_goes_back_is_found_whatever_came_late_before(earlier):
    commits = Commits()
    for one in earlier:
        commits.commit(one.offset, late=True, partition=one.partition)
    commits.commit(10)
    with pytest.raises(Violation, match="the commit went from 10 back to 4"):
        commits.commit(4)


def test_a_commit_that_comes_late_itself_may_go_back():
    commits = Commits()
    commits.commit(10)
    commits.commit(4, late=True)

"""Each step of a hand-over: what has to be so before the next, and what is refused."""

import pytest

from kafka_actors.backfill.machines.handover import Handover, HandoverStep
from kafka_actors.backfill.machines.handover_plan import LogBounds, ObservedTopics, PlannedRead, plan_of
from kafka_actors.errors import ConfigError, DataLossError, HandoverError, StartLostError, TopicRecreatedError
from kafka_actors.types import OffsetAndMetadata, TopicPartition

OLD, NEW = b"\x01" * 16, b"\x02" * 16
WANTED = PlannedRead("revenue", "read_uncommitted", ("t",), None)
T0, T1, T2 = (TopicPartition("t", p) for p in range(3))
NOTE = "kafka-actors handover abc"


def cluster(*ends, starts=(0,) * 6, topic_id=OLD, cluster_id="c"):
    logs = {
        TopicPartition("t", p): LogBounds(starts[p], end, 5) for p, end in enumerate(ends) if end is not None
    }
    return ObservedTopics(cluster_id, {"t": topic_id}, logs)


def planned(*ends, overwrite=False):
    made = Handover(WANTED, "handover.json", overwrite_offsets=overwrite)
    made.planned(plan_of(WANTED, cluster(*ends), "abc", "now"))
    return made


def ready(*ends, overwrite=False):
    made = planned(*ends, overwrite=overwrite)
    made.read([{TopicPartition("t", p): end for p, end in enumerate(ends)}])
    assert made.step is HandoverStep.HAND_OVER
    return made


def committed(offset, metadata=""):
    return OffsetAndMetadata(offset, metadata)


# ---------------------------------------------------------------- plan → history


def test_nothing_comes_before_a_plan_and_the_history_comes_after_it():
    made = Handover(WANTED, "handover.json")
    assert made.step is HandoverStep.PLAN
    made.planned(plan_of(WANTED, cluster(3, 4), "abc", "now"))
    assert made.step is HandoverStep.READ_HISTORY


def test_another_pipelines_plan_is_refused_and_no_step_taken():
    made = Handover(WANTED, "handover.json")
    other = plan_of(PlannedRead("g", "read_uncommitted", ("t",), None), cluster(3), "abc", "now")
    with pytest.raises(ConfigError, match="group_id"):
        made.planned(other)
    assert made.step is HandoverStep.PLAN


# ---------------------------------------------------------------- history → hand over


@pytest.mark.parametrize(
    "finished",
    [None, [], [{T0: 3}], [{T0: 3, T1: 3}], [{T0: 3, T1: 4}, {T0: 3, T1: 0}]],
    ids=["no batch", "no source", "a partition not begun", "one short", "one of two sources short"],
)
def test_a_history_that_is_not_read_to_all_its_ends_is_not_handed_over(finished):
    made = planned(3, 4)
    made.read(finished)
    assert made.step is HandoverStep.READ_HISTORY
    with pytest.raises(HandoverError, match=r"the query ended .* before the end of the history"):
        made.read(finished, ended=True)
    assert made.step is HandoverStep.READ_HISTORY


def test_what_is_left_is_counted():
    with pytest.raises(HandoverError, match=r"ended 3 offsets before .*\(t-0 among others\)"):
        planned(3, 4).read([{T0: 1, T1: 3}], ended=True)


def test_a_history_at_its_ends_is_handed_over_and_so_is_one_without_records():
    made = planned(3, 0)
    made.read([{T0: 3, T1: 0}], ended=True)
    assert made.step is HandoverStep.HAND_OVER


# ---------------------------------------------------------------- hand over → live


def test_the_ends_are_committed_with_their_epochs_and_the_plans_name():
    made = ready(3, 4)
    commit = made.commit({}, cluster(10, 10))
    assert commit.offsets == {T0: OffsetAndMetadata(3, NOTE, 5), T1: OffsetAndMetadata(4, NOTE, 5)}
    assert commit.takes_over
    assert made.step is HandoverStep.HAND_OVER
    made.handed_over()
    assert made.step is HandoverStep.GO_LIVE


def test_a_partition_at_or_past_its_end_is_left_alone():
    commit = ready(3, 4).commit({T0: committed(3), T1: committed(9)}, cluster(10, 10))
    assert (commit.offsets, commit.takes_over) == ({}, False)


def test_partitions_that_came_later_begin_at_0_unless_they_began():
    done = {T0: committed(3, NOTE), T1: committed(8)}
    commit = ready(3, 4).commit(done, cluster(10, 10, 10))
    assert commit.offsets == {T2: OffsetAndMetadata(0, NOTE)}
    assert not commit.takes_over
    again = ready(3, 4).commit({**done, T2: committed(0)}, cluster(10, 10, 10))
    assert again.offsets == {}


def test_a_lower_commit_of_others_is_refused_unless_it_may_be_overwritten():
    foreign = {T0: committed(2), T1: committed(4)}
    with pytest.raises(
        HandoverError,
        match=r"group 'revenue' has committed .* in the history: t-0 at 2, not 3; .*overwrite_offsets=True",
    ):
        ready(3, 4).commit(foreign, cluster(10, 10))
    commit = ready(3, 4, overwrite=True).commit(foreign, cluster(10, 10))
    assert commit.offsets == {T0: OffsetAndMetadata(3, NOTE, 5)}


def test_offsets_that_were_handed_over_and_are_gone_are_not_quietly_handed_over_again():
    with pytest.raises(
        HandoverError, match=r"no offset any more for 1 partition \(t-1 .*overwrite_offsets=True"
    ):
        ready(3, 4).commit({T0: committed(9)}, cluster(10, 10), again=True)
    commit = ready(3, 4, overwrite=True).commit({T0: committed(9)}, cluster(10, 10), again=True)
    assert commit.offsets == {T1: OffsetAndMetadata(4, NOTE, 5)}
    later = ready(3, 4).commit({T0: committed(9), T1: committed(9)}, cluster(10, 10, 10), again=True)
    assert later.offsets == {T2: OffsetAndMetadata(0, NOTE)}, "a partition that came later never had one"


def test_many_lower_commits_are_one_line():
    ends = [9] * 6
    made = ready(*ends)
    foreign = {TopicPartition("t", p): committed(1) for p in range(6)}
    logs = {TopicPartition("t", p): LogBounds(0, 20) for p in range(6)}
    with pytest.raises(HandoverError, match="t-2 at 1, not 9; and 3 more") as refused:
        made.commit(foreign, ObservedTopics("c", {"t": OLD}, logs))
    assert "\n" not in str(refused.value)


def test_commits_for_topics_that_the_pipeline_does_not_read_are_nobodys_business():
    other = TopicPartition("other", 0)
    assert other not in ready(3).commit({other: committed(1)}, cluster(3)).offsets


def test_a_topic_made_anew_is_named():
    with pytest.raises(TopicRecreatedError, match=rf"t-0 at offset 3: .* id {OLD.hex()} is now {NEW.hex()}"):
        ready(3).commit({}, cluster(8, topic_id=NEW))


def test_where_brokers_have_no_ids_nothing_is_known():
    assert ready(3).commit({}, ObservedTopics("c", {}, {T0: LogBounds(0, 8)})).offsets


@pytest.mark.parametrize("done", [{}, {T0: committed(3)}, {T0: committed(6)}])
def test_a_start_that_retention_took_is_named_with_the_count(done):
    start = done[T0].offset if done else 3
    with pytest.raises(
        StartLostError, match=r"records? lost to retention; .*--topic t:0 --to-earliest"
    ) as lost:
        ready(3).commit(done, cluster(10, starts=(7,)))
    assert (lost.value.offset, lost.value.log_start_offset, lost.value.lost) == (start, 7, 7 - start)


def test_a_new_partition_whose_first_records_are_gone_is_named_with_the_count():
    with pytest.raises(StartLostError) as lost:
        ready(3, 4).commit({}, cluster(10, 10, 10, starts=(0, 0, 2)))
    assert (lost.value.partition, lost.value.lost) == (2, 2)


def test_a_partition_that_is_gone_is_named_and_others_are_notes():
    with pytest.raises(DataLossError, match="t-0 at offset 3: the partition is gone") as gone:
        ready(3, 4).commit({}, cluster(None, None))
    assert gone.value.__notes__ == ["and t-1 at offset 4: the partition is gone"]


def test_a_partition_that_is_gone_after_the_hand_over_is_no_matter_of_it():
    assert ready(3, 4).commit({T0: committed(9)}, cluster(10, None), again=True).offsets == {}
    with pytest.raises(TopicRecreatedError):  # the group's offsets went with the topic, and this says why
        ready(3).commit({}, cluster(8, topic_id=NEW), again=True)


def test_another_cluster_is_refused():
    with pytest.raises(ConfigError, match="bootstrap_servers"):
        ready(3).commit({}, cluster(8, cluster_id="another"))

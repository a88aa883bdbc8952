"""Markers: by which a task knows what an earlier try of it has committed."""

import pytest

from kafka_actors.errors import ConfigError, UsageError
from kafka_actors.spark.source.machines.task_markers import (
    TaskMarker,
    TaskVerdict,
    WriteName,
    check_rows,
    is_marker_group,
    splits_digest,
    splits_to_note,
    verdict_of,
)
from kafka_actors.types import OffsetAndMetadata, TopicPartition

QUERY = "6f6c2b0e-7e0b-4d8b-9a55-0d0d3b1c2a11"
WRITE = WriteName(QUERY, 7, "/data/checkpoint")
TASK = WRITE.task("scored", "scored", 3)


def test_each_partition_of_the_plan_has_a_group_of_its_own_under_partition_0_of_the_topic():
    assert TASK.group == f"kafka_actors-{QUERY}-scored-3"
    assert TASK.marker == TopicPartition("scored", 0)
    assert WRITE.task("scored+2", "scored", 3).group == f"kafka_actors-{QUERY}-scored+2-3"
    assert str(TASK) == f"task 3 of micro-batch 7 of query {QUERY}"
    assert str(WriteName(QUERY, 0, streaming=False).task("t", "t", 1)) == f"task 1 of the write {QUERY}"


@pytest.mark.parametrize(
    "group", [TASK.group, f"kafka_actors-{'0' * 32}-a.b_c-d-12", WRITE.task("a+2", "a", 0).group]
)
def test_groups_of_markers_are_known_by_their_names(group):
    assert is_marker_group(group)


@pytest.mark.parametrize(
    "group", ["kafka_actors", "kafka_actors-scorer-3", f"my-{TASK.group}", f"kafka_actors-{QUERY}-scored"]
)
def test_other_groups_are_not_taken_for_them(group):
    assert not is_marker_group(group)


def test_the_form_of_a_marker_stays():
    """Later versions read what this one has written."""
    text = '{"rows":100,"splits":"ab12","kafka-actors-marker":1}'
    assert TaskMarker(100, "ab12").committed(7) == OffsetAndMetadata(7, text)
    assert verdict_of(TASK, OffsetAndMetadata(7, text), "ab12") == (TaskVerdict.DONE, TaskMarker(100, "ab12"))


@pytest.mark.parametrize(
    "found", [None, TaskMarker(5, "other").committed(6), OffsetAndMetadata(0, "anything")]
)
def test_without_a_marker_of_this_batch_a_task_writes(found):
    assert verdict_of(TASK, found, "ab12") == (TaskVerdict.WRITE, None)


def test_at_its_batch_there_is_nothing_to_do():
    verdict, marker = verdict_of(TASK, TaskMarker(5, "ab12").committed(7), "ab12")
    assert verdict is TaskVerdict.DONE
    check_rows(TASK, marker, 5)


def test_a_marker_beyond_the_batch_is_an_error_with_the_checkpoint_and_both_numbers():
    with pytest.raises(ConfigError) as caught:
        verdict_of(TASK, TaskMarker(5, "ab12").committed(9), "ab12")
    assert caught.value.option == "checkpointLocation"
    assert "/data/checkpoint is at micro-batch 7" in str(caught.value)
    assert f"partition 3 of query {QUERY} was written up to micro-batch 9" in str(caught.value)


def test_a_replay_with_other_split_options_fails():
    with pytest.raises(ConfigError, match="begun under other split options of its source"):
        verdict_of(TASK, TaskMarker(5, "ab12").committed(7), "cd34")


def test_the_split_options_of_a_micro_batch_are_noted_once_for_all_tasks():
    """A task whose number wasn't written before has no marker that would say so."""
    noted = TaskMarker(0, "ab12").committed(7)
    assert TASK.splits_group == f"kafka_actors-{QUERY}-scored-splits"
    assert is_marker_group(TASK.splits_group)
    assert splits_to_note(TASK, None, "ab12") == noted
    assert splits_to_note(TASK, TaskMarker(0, "cd34").committed(6), "ab12") == noted
    assert splits_to_note(TASK, noted, "ab12") is None
    with pytest.raises(ConfigError, match="begun under other split options of its source"):
        splits_to_note(TASK, noted, "cd34")
    with pytest.raises(ConfigError, match="up to micro-batch 9 already"):
        splits_to_note(TASK, TaskMarker(0, "ab12").committed(9), "ab12")


def test_a_replay_with_another_number_of_rows_fails():
    with pytest.raises(UsageError, match="wrote 5 rows, and when it is run again there are 6"):
        check_rows(TASK, TaskMarker(5, "ab12"), 6)


@pytest.mark.parametrize("metadata", ["", "a note", '{"rows": "many"}', "[]"])
def test_what_others_committed_for_its_group_is_an_error(metadata):
    with pytest.raises(UsageError, match=r"the marker of task 3 .* is not readable"):
        verdict_of(TASK, OffsetAndMetadata(7, metadata), "ab12")


def test_the_digest_is_that_of_the_options_by_which_sources_are_split_and_of_the_sinks():
    """Spark Connect names a pipeline's source anew in each process."""
    plain = splits_digest([{"subscribe": "a", "minPartitions": "3"}])
    assert plain == splits_digest([{"subscribe": "b", "minpartitions": " 3", "includeHeaders": "true"}])
    others = [
        [{"minPartitions": "4"}],
        [{"minPartitions": "3", "maxRecordsPerPartition": "9"}],
        [{"minPartitions": "3"}] * 2,
        [],
    ]
    sinks = [[("a", "t")], [("b", "t")], [("a", "t"), ("b", "t")], [("b", "t"), ("a", "t")]]
    digests = [
        *map(splits_digest, others),
        *(splits_digest([{"minPartitions": "3"}], each) for each in sinks),
    ]
    assert len({plain, *digests}) == 9

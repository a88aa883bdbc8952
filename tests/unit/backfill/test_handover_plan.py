"""The plan of a hand-over: what its file says, and for whom it was made."""

import json

import msgspec
import pytest

from kafka_actors.backfill.machines.handover_plan import (
    HandoverPlan,
    LogBounds,
    ObservedTopics,
    PlannedRead,
    check_cluster,
    check_same,
    plan_of,
)
from kafka_actors.errors import ConfigError, HandoverError
from kafka_actors.types import OffsetAndMetadata, TopicPartition

ORDERS = b"\x0a" * 16
WANTED = PlannedRead("revenue", "read_committed", ("orders", "old"), None)
CLUSTER = ObservedTopics(
    "c-1",
    {"orders": ORDERS},
    {
        TopicPartition("orders", 10): LogBounds(0, 7, 3),
        TopicPartition("orders", 2): LogBounds(5, 9, 4),
        TopicPartition("old", 0): LogBounds(0, 0),
    },
)


STARTS = {TopicPartition("orders", 10): 1, TopicPartition("orders", 2): 5, TopicPartition("old", 0): 0}


def plan():
    made = plan_of(WANTED, CLUSTER, "abc", "2026-11-21T20:00:00+00:00")
    return made.with_starts(STARTS, "earliest")


def test_the_file_says_where_each_partition_ends_and_comes_back_as_it_was():
    text = plan().to_json()
    assert json.loads(text) == {
        "format": 2,
        "id": "abc",
        "created": "2026-11-21T20:00:00+00:00",
        "cluster_id": "c-1",
        "group_id": "revenue",
        "isolation_level": "read_committed",
        "pattern": None,
        "start": "earliest",
        "topics": {
            "old": {
                "topic_id": None,
                "partitions": {"0": {"end_offset": 0, "leader_epoch": -1, "start_offset": 0}},
            },
            "orders": {
                "topic_id": ORDERS.hex(),
                "partitions": {
                    "2": {"end_offset": 9, "leader_epoch": 4, "start_offset": 5},
                    "10": {"end_offset": 7, "leader_epoch": 3, "start_offset": 1},
                },
            },
        },
    }
    again = HandoverPlan.from_json(text, "handover.json")
    assert again == plan()
    assert again.ends == {tp: log.end for tp, log in CLUSTER.logs.items()}
    assert again.starts == STARTS
    assert again.topic_ids == CLUSTER.topic_ids


def test_a_plan_of_format_1_has_no_starts():
    given = json.loads(plan().to_json())
    given["format"] = 1
    del given["start"]
    for topic in given["topics"].values():
        for partition in topic["partitions"].values():
            del partition["start_offset"]
    old = HandoverPlan.from_json(json.dumps(given), "handover.json")
    assert (old.starts, old.ends) == ({}, plan().ends)


def test_a_commit_names_the_plan_and_what_is_not_in_it_begins_at_0():
    made = plan()
    note = "kafka-actors handover abc"
    assert made.commit_of(TopicPartition("orders", 10)) == OffsetAndMetadata(7, note, 3)
    for new in (TopicPartition("orders", 11), TopicPartition("newer", 0)):
        assert made.commit_of(new) == OffsetAndMetadata(0, note)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is no plan of a hand-over"),
        ("[]", "is no plan of a hand-over"),
        ('{"id": "abc"}', "is no plan of a hand-over"),
        ('{"format": 3}', "has format 3: this version reads formats up to 2"),
    ],
)
def test_a_file_that_is_no_plan_is_refused_with_its_name(text, said):
    with pytest.raises(HandoverError, match=f"^/data/handover.json {said}"):
        HandoverPlan.from_json(text, "/data/handover.json")


def test_an_id_that_is_no_digits_is_refused_when_the_file_is_read():
    broken = plan().to_json().replace(ORDERS.hex(), "not hexadecimal")
    with pytest.raises(HandoverError, match="is no plan"):
        HandoverPlan.from_json(broken, "handover.json")


@pytest.mark.parametrize(
    ("option", "wanted"),
    [
        ("group_id", msgspec.structs.replace(WANTED, group_id="other")),
        ("isolation_level", msgspec.structs.replace(WANTED, isolation_level="read_uncommitted")),
        ("pattern", msgspec.structs.replace(WANTED, topics=None, pattern="o.*")),
        ("topics", msgspec.structs.replace(WANTED, topics=("orders",))),
        ("topics", msgspec.structs.replace(WANTED, topics=("orders", "old", "third"))),
    ],
)
def test_another_pipelines_plan_is_refused_by_the_option_that_differs(option, wanted):
    check_same(plan(), WANTED, "handover.json")
    with pytest.raises(ConfigError, match=r"the plan in handover\.json is for") as refused:
        check_same(plan(), wanted, "handover.json")
    assert refused.value.option == option


def test_topics_that_match_a_pattern_later_are_no_other_pipeline():
    wanted = PlannedRead("revenue", "read_committed", None, "o.*")
    check_same(plan_of(wanted, CLUSTER, "abc", ""), wanted, "handover.json")


def test_another_cluster_is_refused_by_its_id():
    check_cluster(plan(), "c-1")
    check_cluster(plan(), None)
    with pytest.raises(ConfigError, match=r"bootstrap_servers: are of cluster c-2, and .* planned on c-1"):
        check_cluster(plan(), "c-2")

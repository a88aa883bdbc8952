"""Topics, a pattern or partitions by hand: one of them at a time."""

from __future__ import annotations

import re

import pytest

from kafka_actors.cluster import (
    ClusterSnapshot,
    PartitionMetadata,
    SubscriptionMode,
    SubscriptionState,
    TopicMetadata,
)
from kafka_actors.errors import ConfigError, UsageError
from kafka_actors.protocol import TopicPartition

SNAPSHOT = ClusterSnapshot(
    topics={name: TopicMetadata(name, partitions={0: PartitionMetadata(0, 1)}) for name in ("a1", "a2", "b")}
)


def test_topics_by_name_are_wanted_whether_they_exist_or_not() -> None:
    state = SubscriptionState()
    state.subscribe(topics=["b", "missing"])
    assert state.matching(SNAPSHOT) == {"b", "missing"}
    assert state.metadata_topics() == ["b", "missing"]
    assert state.uses_group
    state.subscribe(topics=["a1"])
    assert state.topics == {"a1"}


def test_a_pattern_follows_the_cluster_and_needs_all_metadata() -> None:
    state = SubscriptionState()
    state.subscribe(pattern="a.")
    assert state.matching(SNAPSHOT) == {"a1", "a2"}
    assert state.metadata_topics() is None
    assert state.pattern == "a."


def test_partitions_by_hand_have_no_group() -> None:
    state = SubscriptionState()
    state.assign_from_user([TopicPartition("b", 0)])
    assert state.mode is SubscriptionMode.MANUAL
    assert not state.uses_group
    assert state.assigned == {TopicPartition("b", 0)}
    assert state.metadata_topics() == ["b"]
    with pytest.raises(UsageError, match="nothing is subscribed"):
        state.assign_from_group([TopicPartition("b", 0)])


def test_what_the_group_assigns() -> None:
    state = SubscriptionState()
    state.subscribe(topics=["b"])
    state.assign_from_group([TopicPartition("b", 0)])
    assert state.assigned == {TopicPartition("b", 0)}


def test_the_three_exclude_each_other_until_unsubscribe() -> None:
    state = SubscriptionState()
    state.subscribe(topics=["b"])
    with pytest.raises(UsageError, match="mutually exclusive: topics is in use"):
        state.subscribe(pattern="b")
    with pytest.raises(UsageError, match="mutually exclusive"):
        state.assign_from_user([TopicPartition("b", 0)])
    state.unsubscribe()
    state.subscribe(pattern=re.compile("b"))
    with pytest.raises(UsageError, match="pattern is in use"):
        state.subscribe(topics=["b"])


def test_subscribing_to_nothing_is_unsubscribing() -> None:
    state = SubscriptionState()
    state.subscribe(topics=["b"])
    state.subscribe(topics=[])
    assert state.mode is SubscriptionMode.NONE
    state.assign_from_user([TopicPartition("b", 0)])
    state.assign_from_user([])
    assert state.mode is SubscriptionMode.NONE


@pytest.mark.parametrize("name", ["", "a b", "ä", "x" * 250, ".", "..", "a/b", None])
def test_names_that_kafka_refuses(name: object) -> None:
    with pytest.raises(ConfigError, match="topics"):
        SubscriptionState().subscribe(topics=[name])  # type: ignore[list-item]


def test_other_bad_input_leaves_the_state_as_it_was() -> None:
    state = SubscriptionState()
    for refused in (
        lambda: state.subscribe(),
        lambda: state.subscribe(topics=["a"], pattern="a"),
        lambda: state.subscribe(topics="a"),
        lambda: state.subscribe(topics=["a", "a b"]),
        lambda: state.assign_from_user([TopicPartition("a", -1)]),
    ):
        with pytest.raises(ConfigError):
            refused()
        assert state.mode is SubscriptionMode.NONE


def test_a_bad_pattern_is_refused_by_name_and_leaves_the_state_as_it_was() -> None:
    state = SubscriptionState()
    with pytest.raises(ConfigError, match=r"pattern: is '\('"):
        state.subscribe(pattern="(")
    assert state.mode is SubscriptionMode.NONE

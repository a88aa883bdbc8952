"""Brokers, leaders, coordinators and topics."""

from __future__ import annotations

from random import Random

import pytest

from kafka_actors import errors
from kafka_actors.testing.fake_kafka.machines.cluster_state import ClusterState
from kafka_actors.testing.fake_kafka.machines.error_answers import Refused
from kafka_actors.testing.fake_kafka.machines.settings import FakeBrokerSettings


def state_of(brokers: int = 3, release: tuple[int, int] = (4, 1)) -> ClusterState:
    state = ClusterState(release, FakeBrokerSettings(), Random(1), 0)
    for node_id in range(1, brokers + 1):
        state.add_node(node_id, "host", 9000 + node_id)
    return state


def test_a_partition_s_leader_moves_with_the_death_of_its_broker_and_not_back() -> None:
    state = state_of()
    topic = state.create_topic("t", [[1, 2], [3]])
    first, second = topic.partitions
    assert (first.leader, first.leader_epoch, second.leader) == (1, 0, 3)
    state.set_alive(1, False)
    assert (first.leader, first.leader_epoch, state.isr(first)) == (2, 1, [2])
    state.set_alive(3, False)
    assert (second.leader, second.leader_epoch) == (-1, 1)
    assert ("t", 0) in state.changed
    state.set_alive(1, True)
    state.set_alive(3, True)
    assert (first.leader, second.leader) == (2, 3)
    state.remove_node(2)
    assert (first.leader, first.replicas) == (1, [1])


def test_a_moved_leader_has_a_new_epoch() -> None:
    state = state_of()
    topic = state.create_topic("t", [[1]])
    state.move_leader("t", 0, 3)
    partition = topic.partitions[0]
    assert (partition.leader, partition.leader_epoch, partition.replicas) == (3, 1, [1, 3])
    assert state.led_by(3, "t", 0, 1) is partition
    for node, epoch, error in [
        (1, -1, errors.NotLeaderOrFollowerError),
        (3, 0, errors.FencedLeaderEpochError),
        (3, 2, errors.UnknownLeaderEpochError),
    ]:
        with pytest.raises(Refused) as refused:
            state.led_by(node, "t", 0, epoch)
        assert refused.value.code == error.code
    state.move_leader("t", 0, -1)
    assert partition.leader == -1


def test_coordinators_are_found_by_the_hash_of_java() -> None:
    state = state_of()
    # As `Utils.abs("console-consumer-1".hashCode()) % 50` and so on.
    assert state.offsets_topic.partition_of("") == 0
    assert state.offsets_topic.partition_of("a") == 97 % 50
    assert state.offsets_topic.partition_of("hello") == 99162322 % 50
    assert state.offsets_topic.partition_of("polygenelubricants") == 0, "the hash is the smallest int"
    assert state.offsets_topic.partition_of("console-consumer") == abs(_java_hash("console-consumer")) % 50


def _java_hash(text: str) -> int:
    value = 0
    for letter in text:
        value = (31 * value + ord(letter)) % 2**32
    return value - 2**32 if value >= 2**31 else value


def test_coordinators_move_with_the_death_of_a_broker_only_where_it_was_one() -> None:
    state = state_of()
    groups = [f"g{i}" for i in range(30)]
    before = {group: state.offsets_topic.leader_of(group) for group in groups}
    assert set(before.values()) == {1, 2, 3}
    state.set_alive(2, False)
    after = {group: state.offsets_topic.leader_of(group) for group in groups}
    assert 2 not in after.values()
    assert all(after[g] == before[g] for g in groups if before[g] != 2)
    state.offsets_topic.move("g0", 3)
    assert state.offsets_topic.leader_of("g0") == 3
    for node_id in (1, 3):
        state.set_alive(node_id, False)
    assert state.offsets_topic.leader_of("g0") == -1


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "x" * 250, "a.b", "ä"])
def test_names_that_no_topic_can_have(name: str) -> None:
    state = state_of()
    state.create_topic("a_b", [[1]])
    with pytest.raises(Refused) as refused:
        state.create_topic(name, [[1]])
    assert refused.value.code == errors.InvalidTopicError.code


def test_a_topic_is_there_once_and_gone_when_it_is_deleted() -> None:
    state = state_of()
    topic = state.create_topic("t", [[1]])
    with pytest.raises(Refused) as refused:
        state.create_topic("t", [[1]])
    assert refused.value.code == errors.TopicAlreadyExistsError.code
    assert state.topic_by_id(topic.topic_id) is topic
    state.changed.clear()
    state.delete_topic("t")
    assert state.changed == {("t", 0)}
    assert state.topic_by_id(topic.topic_id) is None
    assert state.create_topic("t", [[1]]).topic_id != topic.topic_id


def test_replicas_are_spread_over_the_live_brokers_and_then_over_the_others() -> None:
    state = state_of()
    state.set_alive(2, False)
    assert all(sorted(replicas) == [1, 3] for replicas in state.place(5, 2))
    placed = state.place(4, 3)
    assert [replicas[2] for replicas in placed] == [2] * 4
    assert {replicas[0] for replicas in placed} == {1, 3}
    topic = state.create_topic("t", placed)
    assert all(partition.leader == partition.replicas[0] for partition in topic.partitions)
    with pytest.raises(ValueError, match="broker 1"):
        state.add_node(1, "h", 1)


@pytest.mark.parametrize(("release", "most"), [((2, 8), 1), ((3, 3), 3)])
def test_a_broker_that_is_down_is_known_unless_by_zookeeper(release: tuple[int, int], most: int) -> None:
    state = state_of(release=release)
    state.set_alive(1, False)
    state.set_alive(2, False)
    assert [len(replicas) for replicas in state.place(2, most)] == [most] * 2
    state.set_alive(3, most == 1)
    for factor in (1, most + 1) if most > 1 else (most + 1,):
        with pytest.raises(Refused) as refused:
            state.place(1, factor)
        assert refused.value.code == errors.InvalidReplicationFactorError.code

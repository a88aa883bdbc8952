"""Metadata responses merged into what is known: an old answer never undoes a newer one."""

from __future__ import annotations

import uuid

import msgspec

from kafka_actors.cluster.machines import merge as merge_module
from kafka_actors.cluster.machines.merge import Memory, merge
from kafka_actors.cluster.snapshot import BrokerMetadata, ClusterSnapshot
from kafka_actors.protocol import MetadataResponse, TopicPartition
from kafka_actors.protocol.messages.metadata import (
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

ID = uuid.UUID(int=7)
OTHER_ID = uuid.UUID(int=8)
TP = TopicPartition("t", 0)


def part(index: int = 0, leader: int = 1, epoch: int = 5, **more: object) -> MetadataResponsePartition:
    return MetadataResponsePartition(
        partition_index=index,
        leader_id=leader,
        leader_epoch=epoch,
        replica_nodes=[1, 2],
        isr_nodes=[1, 2],
        **more,
    )


def topic(*parts: MetadataResponsePartition, name: str = "t", topic_id: uuid.UUID = ID, error: int = 0):
    return MetadataResponseTopic(error_code=error, name=name, topic_id=topic_id, partitions=list(parts))


def response(*topics: MetadataResponseTopic, brokers: int = 2) -> MetadataResponse:
    listed = [MetadataResponseBroker(i, f"h{i}", 9000 + i, f"r{i}") for i in range(1, brokers + 1)]
    return MetadataResponse(brokers=listed, cluster_id="c", controller_id=1, topics=list(topics))


def merged(*responses: MetadataResponse, memory: Memory | None = None, **options: object) -> ClusterSnapshot:
    memory = memory or Memory()
    snapshot = ClusterSnapshot()
    for one in responses:
        snapshot = merge(snapshot, one, memory, **options)
    return snapshot


def test_a_response_is_taken_in_whole() -> None:
    snapshot = merged(response(topic(part(0), part(1, leader=-1, error_code=5, offline_replicas=[2]))))
    assert snapshot.version == 1
    assert (snapshot.cluster_id, snapshot.controller_id) == ("c", 1)
    assert snapshot.brokers[2] == BrokerMetadata(2, "h2", 9002, "r2")
    assert snapshot.topic_id("t") == ID.bytes
    assert snapshot.leader(TP) == 1
    assert snapshot.leader_epoch(TP) == 5
    unavailable = snapshot.topics["t"].partitions[1]
    assert (unavailable.leader, unavailable.error_code, unavailable.offline_replicas) == (-1, 5, (2,))


def test_the_same_answer_again_changes_nothing_and_keeps_the_object() -> None:
    memory = Memory()
    first = merge(ClusterSnapshot(), response(topic(part())), memory)
    assert merge(first, response(topic(part())), memory) is first


def test_another_controller_alone_is_no_new_version() -> None:
    """With KRaft brokers name any of them, another one in each answer: workers of a job would get the whole snapshot each time."""
    memory = Memory()
    first = merge(ClusterSnapshot(), response(topic(part())), memory)
    second = merge(first, msgspec.structs.replace(response(topic(part())), controller_id=2), memory)
    assert (second.version, second.controller_id) == (first.version, 2)
    assert second.topics is first.topics
    third = merge(second, msgspec.structs.replace(response(topic(part(epoch=6))), controller_id=1), memory)
    assert (third.version, third.controller_id) == (first.version + 1, 1)


def test_what_did_not_change_is_shared_between_versions() -> None:
    memory = Memory()
    other = topic(part(), name="other", topic_id=OTHER_ID)
    first = merge(ClusterSnapshot(), response(topic(part(0), part(1)), other), memory)
    second = merge(first, response(topic(part(0), part(1, epoch=6)), other), memory)
    assert second.version == first.version + 1
    assert second.topics["other"] is first.topics["other"]
    assert second.topics["t"].partitions[0] is first.topics["t"].partitions[0]
    assert second.brokers is first.brokers


def test_a_stale_leader_never_wins() -> None:
    snapshot = merged(response(topic(part(leader=2, epoch=6))), response(topic(part(leader=1, epoch=5))))
    assert (snapshot.leader(TP), snapshot.leader_epoch(TP)) == (2, 6)


def test_a_stale_leader_never_wins_after_the_topic_was_out_of_sight() -> None:
    snapshot = merged(
        response(topic(part(leader=2, epoch=6))),
        response(topic(error=3, topic_id=uuid.UUID(int=0))),
        response(topic(part(leader=1, epoch=5))),
    )
    assert (snapshot.leader(TP), snapshot.leader_epoch(TP)) == (2, 6)


def test_a_recreated_topic_starts_anew_with_lower_epochs() -> None:
    snapshot = merged(
        response(topic(part(epoch=6), part(1, epoch=6))),
        response(topic(part(leader=2, epoch=0), topic_id=OTHER_ID)),
    )
    assert snapshot.topic_id("t") == OTHER_ID.bytes
    assert snapshot.leader_epoch(TP) == 0
    assert snapshot.partitions_for_topic("t") == {0}


def test_a_broker_that_still_knows_the_old_topic_does_not_bring_it_back() -> None:
    snapshot = merged(
        response(topic(part(epoch=6))),
        response(topic(part(leader=2, epoch=0), topic_id=OTHER_ID)),
        response(topic(part(leader=1, epoch=6))),
    )
    assert snapshot.topic_id("t") == OTHER_ID.bytes
    assert snapshot.leader(TP) == 2


def test_answers_that_insist_on_a_former_id_are_believed() -> None:
    memory = Memory()
    stale, current = response(topic(part(), topic_id=ID)), response(topic(part(), topic_id=OTHER_ID))
    snapshot = merged(
        current, stale, memory=memory
    )  # the stale broker came second: its id looks like the new one
    assert snapshot.topic_id("t") == ID.bytes
    for _ in range(4):
        snapshot = merge(snapshot, current, memory)
        assert snapshot.topic_id("t") == ID.bytes
    assert merge(snapshot, current, memory).topic_id("t") == OTHER_ID.bytes


def test_insistence_counts_answers_in_a_row() -> None:
    memory = Memory()
    old, new = response(topic(part(), topic_id=ID)), response(topic(part(), topic_id=OTHER_ID))
    snapshot = merged(old, new, memory=memory)
    for _ in range(10):
        snapshot = merge(snapshot, old, memory)
        snapshot = merge(snapshot, new, memory)
        assert snapshot.topic_id("t") == OTHER_ID.bytes


def test_an_error_is_one_change_and_not_one_per_answer() -> None:
    memory = Memory()
    gone = response(topic(error=3, topic_id=uuid.UUID(int=0)))
    snapshot = merged(response(topic(part())), gone, memory=memory)
    assert merge(snapshot, gone, memory) is snapshot


def test_a_topic_never_loses_partitions_to_an_older_answer() -> None:
    snapshot = merged(response(topic(part(0), part(1))), response(topic(part(0))))
    assert snapshot.partitions_for_topic("t") == {0, 1}


def test_a_topic_without_ids_may_shrink_because_it_may_be_another() -> None:
    none = uuid.UUID(int=0)
    snapshot = merged(
        response(topic(part(0), part(1), topic_id=none)),
        response(topic(error=3, topic_id=none)),
        response(topic(part(0, epoch=0), topic_id=none)),
    )
    assert snapshot.partitions_for_topic("t") == {0}
    assert snapshot.leader_epoch(TP) == 0


def test_epochs_of_brokers_before_2_4_are_not_relied_on() -> None:
    snapshot = merged(response(topic(part(epoch=5))), version=8)
    assert snapshot.leader(TP) == 1
    assert snapshot.leader_epoch(TP) == -1
    assert merged(response(topic(part(epoch=5))), version=9).leader_epoch(TP) == 5


def test_an_unknown_epoch_is_no_rewind_and_no_obstacle() -> None:
    snapshot = merged(response(topic(part(leader=1, epoch=5))), response(topic(part(leader=2, epoch=-1))))
    assert snapshot.leader(TP) == 2


def test_an_answer_replaces_the_topics_without_those_that_it_was_not_asked_about() -> None:
    memory = Memory()
    first = merge(ClusterSnapshot(), response(topic(part())), memory)
    other = response(topic(part(), name="other", topic_id=OTHER_ID))
    assert set(merge(first, other, memory).topics) == {"other"}
    assert set(merge(first, other, memory, keep={"t", "gone"}).topics) == {"t", "other"}


def test_a_topic_that_is_not_authorized_has_an_error_and_no_partitions() -> None:
    snapshot = merged(response(topic(error=29)))
    assert snapshot.topic_error("t") == 29
    assert snapshot.partitions_for_topic("t") is None
    assert snapshot.leader(TP) is None


def test_brokers_that_are_gone_are_forgotten() -> None:
    assert set(merged(response(), response(brokers=1)).brokers) == {1}


def test_what_is_remembered_of_departed_topics_is_bounded(monkeypatch) -> None:
    monkeypatch.setattr(merge_module, "_REMEMBERED", 10)
    memory = Memory()
    snapshot = ClusterSnapshot()
    for i in range(1, 50):
        snapshot = merge(snapshot, response(topic(part(), name=f"t{i}", topic_id=uuid.UUID(int=i))), memory)
    assert list(memory.departed) == [f"t{i}" for i in range(39, 49)]

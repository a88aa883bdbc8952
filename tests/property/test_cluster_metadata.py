"""Whatever order brokers' answers come in, what is known of a topic only goes forward."""

from __future__ import annotations

import uuid

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from kafka_actors.cluster import ClusterSnapshot
from kafka_actors.cluster.machines.merge import Memory, merge
from kafka_actors.protocol import MetadataResponse
from kafka_actors.protocol.messages.metadata import (
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)


@st.composite
def histories(draw: st.DrawFn) -> list[MetadataResponse]:
    """A topic's true history (elections, more partitions, recreations), and answers that lag behind it at random."""
    states: list[MetadataResponseTopic] = []
    incarnation, epochs = 1, [0]
    for step in draw(
        st.lists(st.sampled_from(["elect", "grow", "recreate", "vanish"]), min_size=1, max_size=8)
    ):
        if step == "elect":
            epochs[draw(st.integers(0, len(epochs) - 1))] += 1
        elif step == "grow":
            epochs = [*epochs, 0]
        elif step == "recreate":
            incarnation, epochs = incarnation + 1, [0]
        states.append(_unknown() if step == "vanish" else _topic(incarnation, epochs))
    answers: list[MetadataResponse] = []
    for now in range(len(states)):
        seen = draw(st.integers(max(0, now - 4), now))
        listed = [] if draw(st.booleans()) and draw(st.booleans()) else [states[seen]]
        answers.append(MetadataResponse(brokers=[MetadataResponseBroker(1, "h", 1)], topics=listed))
    return answers


def _topic(incarnation: int, epochs: list[int]) -> MetadataResponseTopic:
    # The leader follows from the epoch, so that a wrong leader shows.
    parts = [
        MetadataResponsePartition(partition_index=i, leader_id=epoch * 10 + i, leader_epoch=epoch)
        for i, epoch in enumerate(epochs)
    ]
    return MetadataResponseTopic(name="t", topic_id=uuid.UUID(int=incarnation), partitions=parts)


def _unknown() -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=3, name="t")


@given(histories())
def test_leader_epochs_and_topic_ids_never_go_back(answers: list[MetadataResponse]) -> None:
    memory = Memory()
    snapshot = ClusterSnapshot()
    highest: dict[tuple[bytes, int], int] = {}
    ids: list[bytes] = []
    for answer in answers[:4]:  # more answers in a row from a stale broker would be believed
        before = snapshot
        snapshot = merge(snapshot, answer, memory)
        assert snapshot is before or snapshot.version == before.version + 1
        topic = snapshot.topics.get("t")
        if topic is None or topic.topic_id is None:
            continue
        if topic.topic_id not in ids[-1:]:
            assert topic.topic_id not in ids
            ids.append(topic.topic_id)
        for index, partition in topic.partitions.items():
            key = topic.topic_id, index
            assert partition.leader_epoch >= highest.get(key, 0)
            assert partition.leader == partition.leader_epoch * 10 + index
            highest[key] = partition.leader_epoch


@given(histories())
def test_merging_the_last_answer_again_changes_nothing(answers: list[MetadataResponse]) -> None:
    memory = Memory()
    snapshot = ClusterSnapshot()
    for answer in answers:
        snapshot = merge(snapshot, answer, memory)
        assert merge(snapshot, answer, memory) is snapshot


@given(histories())
def test_snapshots_survive_the_wire(answers: list[MetadataResponse]) -> None:
    snapshot = ClusterSnapshot()
    for answer in answers:
        snapshot = merge(snapshot, answer, Memory())
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(snapshot), type=ClusterSnapshot) == snapshot

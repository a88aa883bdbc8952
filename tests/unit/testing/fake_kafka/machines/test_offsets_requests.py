"""Committed offsets."""

from __future__ import annotations

from typing import Any

import pytest
from fakes.fake_members import RawMember, stable_group
from fakes.fake_wire import NOW_MS, Wire

from kafka_actors import errors
from kafka_actors.protocol import ZERO_UUID, OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest
from kafka_actors.protocol.messages.offset_commit import (
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafka_actors.protocol.messages.offset_delete import (
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kafka_actors.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)

DAY_S = 86_400


def commit(
    wire: Wire,
    offset: int = 5,
    *,
    topic: str = "t",
    index: int = 0,
    member: RawMember | None = None,
    metadata: str | None = "note",
    version: int = 9,
    retention: int = -1,
    generation: int | None = None,
    topic_id: Any = ZERO_UUID,
    group: str = "g",
) -> int:
    number = generation if generation is not None else member.answer.generation_id if member else -1
    part = OffsetCommitRequestPartition(index, offset, 0 if version >= 6 else -1, metadata)
    request = OffsetCommitRequest(
        group,
        number,
        member.member_id if member else "",
        member.instance if member else None,
        retention,
        [OffsetCommitRequestTopic(topic, topic_id, [part])],
    )
    code: int = wire.ask(request, version, "commits").topics[0].partitions[0].error_code
    return code


def fetched(
    wire: Wire, version: int = 8, group: str = "g", *, everything: bool = False
) -> dict[tuple[str, int], tuple[int, str | None, int]]:
    if version < 8:
        topics = None if everything else [OffsetFetchRequestTopic("t", [0, 1])]
        answer = wire.ask(OffsetFetchRequest(group, topics), version)
        found = answer.topics
    else:
        more = None if everything else [OffsetFetchRequestTopics("t", ZERO_UUID, [0, 1])]
        answer = wire.ask(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=more)]), version)
        found = answer.groups[0].topics
    return {
        (t.name, p.partition_index): (p.committed_offset, p.metadata, p.error_code)
        for t in found
        for p in t.partitions
    }


def test_offsets_without_a_group_s_members() -> None:
    wire = Wire(topics={"t": 2})
    assert commit(wire) == 0
    for version in (1, 2, 5, 7, 8, 9):
        assert fetched(wire, version) == {("t", 0): (5, "note", 0), ("t", 1): (-1, "", 0)}
    assert fetched(wire, everything=True) == fetched(wire, 7, everything=True) == {("t", 0): (5, "note", 0)}
    assert fetched(wire, group="none", everything=True) == {}
    assert commit(wire, metadata=None) == 0
    assert fetched(wire)["t", 0] == (5, "", 0)


def test_members_commit_under_their_generation() -> None:
    wire = Wire(topics={"t": 1})
    (one,) = stable_group(wire, RawMember(wire, "one"))
    assert commit(wire, member=one) == 0
    assert commit(wire, member=one, generation=9) == errors.IllegalGenerationError.code
    assert commit(wire) == errors.UnknownMemberIdError.code, "the group has members"
    assert commit(wire, member=RawMember(wire, "x"), generation=1) == 25
    two = RawMember(wire, "two")
    two.join()
    assert commit(wire, member=one) == 0, "until it rejoins"
    one.join()
    assert commit(wire, member=one) == errors.RebalanceInProgressError.code


@pytest.mark.parametrize(
    ("release", "error"), [((3, 9), errors.IllegalGenerationError), ((4, 0), errors.GroupIdNotFoundError)]
)
def test_before_4_0_a_member_of_no_group_has_an_illegal_generation(
    release: tuple[int, int], error: type[errors.KafkaError]
) -> None:
    wire = Wire(topics={"t": 1}, release=release)
    assert commit(wire, member=None, generation=9) == error.code


def test_a_commit_prolongs_the_session() -> None:
    wire = Wire(topics={"t": 1})
    (one,) = stable_group(wire, RawMember(wire, "one"))
    for _ in range(4):
        wire.pass_time(8.0)
        assert commit(wire, member=one) == 0
    assert one.heartbeat() == 0


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({"topic": "none"}, errors.UnknownTopicOrPartitionError),
        ({"index": 7}, errors.UnknownTopicOrPartitionError),
        ({"metadata": "x" * 5_000}, errors.OffsetMetadataTooLargeError),
        ({"generation": 3}, errors.GroupIdNotFoundError),
        ({"generation": 3, "version": 8}, errors.IllegalGenerationError),
        ({"version": 10, "topic_id": RawMember}, errors.UnknownTopicIdError),
    ],
)
def test_commits_that_are_refused(more: dict[str, Any], error: type[errors.KafkaError]) -> None:
    wire = Wire(topics={"t": 1}, release=(4, 4))
    if "topic_id" in more:
        more = {**more, "topic_id": wire.state.new_uuid()}
    assert commit(wire, **more) == error.code
    assert not wire.cluster.groups.groups
    assert fetched(wire, everything=True) == {}


@pytest.mark.parametrize(("release", "code"), [((3, 9), 28), ((4, 0), -1)])
def test_a_commit_that_is_more_than_a_batch_of_the_offsets_topic_is_refused_for_each_partition(
    release: tuple[int, int], code: int
) -> None:
    wire = Wire(topics={"t": 300}, release=release)

    def codes(count: int, *, missing: bool = False) -> set[int]:
        parts = [OffsetCommitRequestPartition(n, 5, 0, "m" * 4_000) for n in range(count)]
        parts += [OffsetCommitRequestPartition(300, 5, 0, "m" * 4_000)] * missing
        request = OffsetCommitRequest("g", topics=[OffsetCommitRequestTopic("t", partitions=parts)])
        answer = wire.ask(request, 8, "commits")
        return {p.error_code for t in answer.topics for p in t.partitions}

    assert codes(258) == {0}
    assert codes(259, missing=True) == {0, 3}, "a partition that isn't there has no record"
    assert codes(260) == {code}
    assert len(fetched(wire, everything=True)) == 259


def test_version_10_names_topics_by_id() -> None:
    wire = Wire(topics={"t": 1}, release=(4, 4))
    topic_id = wire.state.topics["t"].topic_id
    assert commit(wire, version=10, topic_id=topic_id) == 0
    for asked in ([OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=[0])], None):
        (topic,) = (
            wire.ask(OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=asked)]), 10)
            .groups[0]
            .topics
        )
        assert (topic.topic_id, topic.partitions[0].committed_offset) == (topic_id, 5)
    other = [OffsetFetchRequestTopics(topic_id=wire.state.new_uuid(), partition_indexes=[0])]
    answer = wire.ask(OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=other)]), 10)
    assert answer.groups[0].topics[0].partitions[0].error_code == errors.UnknownTopicIdError.code


def test_only_the_coordinator_knows_offsets() -> None:
    wire = Wire(2, topics={"t": 1})
    wire.state.offsets_topic.move("g", 2)
    assert commit(wire) == errors.NotCoordinatorError.code
    for version in (2, 8):
        request = (
            OffsetFetchRequest("g", None)
            if version == 2
            else OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g")])
        )
        answer = wire.ask(request, version)
        assert (answer.error_code if version == 2 else answer.groups[0].error_code) == 16
    assert fetched(wire, 1) == {("t", 0): (-1, "", 16), ("t", 1): (-1, "", 16)}


def test_offsets_go_with_their_topic() -> None:
    wire = Wire(topics={"t": 1, "u": 1})
    commit(wire)
    commit(wire, topic="u")
    wire.cluster.topics.remove("t")
    assert list(fetched(wire, everything=True)) == [("u", 0)]


def test_offsets_are_deleted_where_nobody_reads() -> None:
    wire = Wire(topics={"t": 1, "u": 1})

    def delete(topic: str, group: str = "g") -> int:
        topics = [OffsetDeleteRequestTopic(topic, [OffsetDeleteRequestPartition(0)])]
        answer = wire.ask(OffsetDeleteRequest(group, topics), 0)
        code: int = answer.error_code or answer.topics[0].partitions[0].error_code
        return code

    assert delete("t") == errors.GroupIdNotFoundError.code
    (one,) = stable_group(wire, RawMember(wire, "one"))
    commit(wire, member=one)
    commit(wire, member=one, topic="u")
    assert delete("t") == errors.GroupSubscribedToTopicError.code
    assert delete("u") == 0
    assert delete("none") == errors.UnknownTopicOrPartitionError.code
    assert list(wire.cluster.offsets.committed("g")) == [("t", 0)]


@pytest.mark.parametrize(("release", "state"), [((3, 9), None), ((4, 0), "Empty")])
def test_before_4_0_a_group_goes_with_its_last_offset(release: tuple[int, int], state: str | None) -> None:
    wire = Wire(topics={"t": 2}, release=release)
    for index in (0, 1):
        assert commit(wire, index=index) == 0
        parts = [OffsetDeleteRequestPartition(0)]
        deleted = wire.ask(OffsetDeleteRequest("g", [OffsetDeleteRequestTopic("t", parts)]), 0)
        assert deleted.error_code == 0
        group = wire.cluster.groups.groups.get("g")
        assert (group.state if group is not None else None) == (state if index == 0 else "Empty")


@pytest.mark.parametrize(("release", "states"), [((3, 9), [None, "Empty"]), ((4, 0), ["Empty", "Empty"])])
def test_before_4_0_an_empty_group_without_offsets_goes_when_any_topic_does(
    release: tuple[int, int], states: list[str | None]
) -> None:
    """Tried on Kafka 3.9.2 and 4.1.1."""
    wire = Wire(topics={"t": 1, "u": 1, "v": 1}, release=release)
    for group, topic in (("g", "u"), ("h", "t")):
        assert commit(wire, topic=topic, group=group) == 0
    wire.cluster.topics.remove("v")
    assert [wire.cluster.groups.groups[group].state for group in "gh"] == ["Empty", "Empty"]
    wire.cluster.topics.remove("u")
    groups = [wire.cluster.groups.groups.get(group) for group in "gh"]
    assert [group.state if group is not None else None for group in groups] == states


def test_offsets_of_an_empty_group_expire_with_it() -> None:
    wire = Wire(topics={"t": 1}, config={"offsets.retention.minutes": 60})
    (one,) = stable_group(wire, RawMember(wire, "one"))
    commit(wire, member=one)
    for _ in range(500):  # a group with members keeps them
        wire.pass_time(9.0)
        one.heartbeat()
    assert wire.cluster.offsets.committed("g")
    one.leave()
    wire.pass_time(3_000)
    assert wire.cluster.offsets.committed("g")
    wire.pass_time(1_300)
    assert wire.cluster.offsets.committed("g") == {}
    assert "g" not in wire.cluster.groups.groups


def test_an_offset_that_is_reset_in_a_group_that_is_empty_for_long_expires_with_the_group() -> None:
    wire = Wire(topics={"t": 1}, config={"offsets.retention.minutes": 60})
    (one,) = stable_group(wire, RawMember(wire, "one"))
    commit(wire, member=one)
    one.leave()
    wire.pass_time(50 * 60)
    assert commit(wire) == 0
    wire.pass_time(21 * 60)
    assert wire.cluster.offsets.committed("g") == {}


def test_offsets_stay_through_an_outage_until_their_coordinator_looks() -> None:
    wire = Wire(topics={"t": 1}, config={"offsets.retention.minutes": 60})
    commit(wire)
    wire.pass_time(3_500)
    wire.cluster.stop_node(1)
    wire.pass_time(3_500)
    assert wire.cluster.offsets.committed("g"), "nobody looks"
    wire.state.set_alive(1, True)
    wire.pass_time(590)
    assert wire.cluster.offsets.committed("g")
    wire.pass_time(20)
    assert wire.cluster.offsets.committed("g") == {}


def test_offsets_of_topics_that_a_group_does_not_read_expire_beside_its_members() -> None:
    wire = Wire(topics={"t": 1, "u": 1}, config={"offsets.retention.minutes": 60})
    (one,) = stable_group(wire, RawMember(wire, "one"))
    commit(wire, member=one)
    commit(wire, member=one, topic="u")
    for _ in range(600):
        wire.pass_time(9.0)
        one.heartbeat()
    assert list(wire.cluster.offsets.committed("g")) == [("t", 0)]


def test_offset_commit_4_may_name_a_retention() -> None:
    wire = Wire(topics={"t": 1})
    commit(wire, version=4, retention=60_000)
    assert wire.cluster.offsets.committed("g")["t", 0].expires_ms == NOW_MS + 60_000
    wire.pass_time(599)
    assert wire.cluster.offsets.committed("g")
    wire.pass_time(2)
    assert not wire.cluster.offsets.committed("g")

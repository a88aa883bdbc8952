"""OffsetFetch in the shapes of one group and of several: requests, and what responses say."""

from __future__ import annotations

from kafka_actors.errors import (
    GroupAuthorizationFailedError,
    TopicAuthorizationFailedError,
    UnstableOffsetCommitError,
)
from kafka_actors.group.machines.offset_fetch import (
    offset_fetch_request,
    offsets_of_groups_request,
    read_offset_fetch,
    read_offsets_of_groups,
)
from kafka_actors.protocol import OffsetFetchResponse, decode_message, encode
from kafka_actors.protocol.messages.offset_fetch import (
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from kafka_actors.types import OffsetAndMetadata, TopicPartition

A0, A2, B1 = TopicPartition("a", 0), TopicPartition("a", 2), TopicPartition("b", 1)


def new_shape(*topics: OffsetFetchResponseTopics, group: str = "g", code: int = 0) -> OffsetFetchResponse:
    return OffsetFetchResponse(
        groups=[OffsetFetchResponseGroup(group_id=group, topics=list(topics), error_code=code)]
    )


def partition(index: int, offset: int, **fields: object) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(partition_index=index, committed_offset=offset, **fields)  # type: ignore[arg-type]


def test_partitions_are_grouped_by_topic_in_order() -> None:
    request = offset_fetch_request("g", [B1, A2, A0], require_stable=True)
    (group,) = request.groups
    assert group.topics is not None
    assert [(t.name, t.partition_indexes) for t in group.topics] == [("a", [0, 2]), ("b", [1])]
    assert (group.group_id, request.require_stable) == ("g", True)


def test_none_asks_for_all_that_a_group_has_committed_and_an_empty_list_for_nothing() -> None:
    request = offsets_of_groups_request({"all": None, "none": [], "one": [A0]}, require_stable=False)
    asked = {g.group_id: None if g.topics is None else [t.name for t in g.topics] for g in request.groups}
    assert asked == {"all": None, "none": [], "one": ["a"]}


def test_a_partition_has_an_offset_or_none_or_an_error() -> None:
    response = new_shape(
        OffsetFetchResponseTopics(
            name="a",
            partitions=[
                partition(0, 7, metadata="note", committed_leader_epoch=3),
                partition(1, -1),
                partition(2, 5, metadata=None),
                partition(3, -1, error_code=UnstableOffsetCommitError.code),
            ],
        ),
        OffsetFetchResponseTopics(
            name="b", partitions=[partition(1, -1, error_code=TopicAuthorizationFailedError.code)]
        ),
    )
    found = read_offset_fetch(response, "g")
    assert found.error is None
    assert found.offsets == {
        A0: OffsetAndMetadata(7, "note", 3),
        TopicPartition("a", 1): None,
        A2: OffsetAndMetadata(5, "", -1),
    }
    assert {tp: type(error) for tp, error in found.errors.items()} == {
        TopicPartition("a", 3): UnstableOffsetCommitError,
        B1: TopicAuthorizationFailedError,
    }
    assert "a-3" in str(found.errors[TopicPartition("a", 3)])


def test_an_offset_of_0_is_an_offset() -> None:
    response = new_shape(OffsetFetchResponseTopics(name="a", partitions=[partition(0, 0)]))
    assert read_offset_fetch(response, "g").offsets == {A0: OffsetAndMetadata(0)}


def test_an_error_of_the_group_leaves_no_partition() -> None:
    topics = OffsetFetchResponseTopics(name="a", partitions=[partition(0, 7)])
    found = read_offset_fetch(new_shape(topics, code=GroupAuthorizationFailedError.code), "g")
    assert isinstance(found.error, GroupAuthorizationFailedError)
    assert (found.offsets, found.errors) == ({}, {})


def test_responses_before_several_groups_are_read_as_well() -> None:
    old = OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                name="a", partitions=[OffsetFetchResponsePartition(partition_index=0, committed_offset=7)]
            )
        ]
    )
    received = decode_message(OffsetFetchResponse, 7, encode(old, 7))
    assert read_offset_fetch(received, "g").offsets == {A0: OffsetAndMetadata(7)}
    refused = OffsetFetchResponse(error_code=GroupAuthorizationFailedError.code)
    received = decode_message(OffsetFetchResponse, 7, encode(refused, 7))
    assert isinstance(read_offset_fetch(received, "g").error, GroupAuthorizationFailedError)


def test_each_group_of_a_response_has_its_own_outcome() -> None:
    fine = OffsetFetchResponseTopics(name="a", partitions=[partition(0, 7)])
    response = OffsetFetchResponse(
        groups=[
            OffsetFetchResponseGroup(group_id="g", topics=[fine]),
            OffsetFetchResponseGroup(group_id="h", topics=[], error_code=GroupAuthorizationFailedError.code),
        ]
    )
    found = read_offsets_of_groups(response)
    assert found["g"].offsets == {A0: OffsetAndMetadata(7)}
    assert isinstance(found["h"].error, GroupAuthorizationFailedError)
    assert "h" in str(found["h"].error)

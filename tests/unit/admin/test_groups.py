"""Requests about groups over brokers that answer as told: who is asked, in which words, and what becomes of refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fakes.loop import in_loop

from kafka_actors.admin.groups import GroupRequests
from kafka_actors.admin.requests import CallDeadline
from kafka_actors.cluster.snapshot import BrokerMetadata, ClusterSnapshot
from kafka_actors.config import ClientConfig
from kafka_actors.errors import (
    CoordinatorLoadInProgressError,
    GroupAuthorizationFailedError,
    GroupIdNotFoundError,
    KafkaTimeoutError,
    NonEmptyGroupError,
    UnsupportedVersionError,
)
from kafka_actors.group.commit_metadata import pack, unpack
from kafka_actors.protocol import (
    ConsumerGroupDescribeRequest,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    OffsetCommitRequest,
    OffsetFetchRequest,
)
from kafka_actors.protocol.messages import consumer_group_describe, describe_groups
from kafka_actors.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from kafka_actors.protocol.messages.find_coordinator import Coordinator
from kafka_actors.protocol.messages.list_groups import ListedGroup, ListGroupsResponse
from kafka_actors.protocol.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kafka_actors.protocol.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from kafka_actors.types import OffsetAndMetadata, TopicPartition

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
OLD, NEW = b"o" * 16, b"n" * 16
UNSTABLE = 88
LOADING, NOT_COORDINATOR, NOT_AUTHORIZED, NOT_FOUND, NOT_EMPTY, UNKNOWN_MEMBER = 14, 16, 30, 69, 68, 25
Answer = Callable[[int, Any], Any]


class Client:
    """Brokers 1 and 2; a group's coordinator is that of the number in its name. `answer(node, request)` returns or raises."""

    config = ClientConfig(request_timeout_ms=1000, retry_backoff_ms=0, retry_backoff_max_ms=0)
    snapshot = ClusterSnapshot(
        cluster_id="c-1", brokers={node: BrokerMetadata(node, "b", node) for node in (1, 2)}
    )

    def __init__(self, **answers: Answer) -> None:
        self.answers = answers
        self.asked: list[tuple[int, Any]] = []
        self.options: list[dict[str, Any]] = []
        self.time = 0.0

    def now(self) -> float:
        self.time += 0.01  # a call that is made again and again ends
        return self.time

    def rand(self) -> float:
        return 0.5

    def least_loaded_node(self) -> int:
        return 1

    async def update_metadata(self) -> ClusterSnapshot:
        return self.snapshot

    async def send(self, node_id: int, request: Any, **options: Any) -> Any:
        if isinstance(request, FindCoordinatorRequest):
            found = [Coordinator(key, int(key[-1]), "b", int(key[-1])) for key in request.coordinator_keys]
            return FindCoordinatorResponse(coordinators=found)
        self.asked.append((node_id, request))
        self.options.append(options)
        return self.answers[type(request).__name__.removesuffix("Request")](node_id, request)

    def kinds(self) -> list[tuple[int, type]]:
        return [(node, type(request)) for node, request in self.asked]


def requests(**answers: Answer) -> tuple[Client, GroupRequests, CallDeadline]:
    client = Client(**answers)
    return client, GroupRequests(client), CallDeadline(client, 5_000)  # type: ignore[arg-type]


def refusing(error: Exception) -> Answer:
    def answer(node: int, request: Any) -> Any:
        raise error

    return answer


# ------------------------------------------------------------ lists


def lists(node: int, request: Any) -> ListGroupsResponse:
    groups = {
        1: [ListedGroup("b", "consumer", "Stable", "classic"), ListedGroup("a", "consumer", "Empty", "")],
        2: [ListedGroup("c", "consumer", "Stable", "consumer")],
    }
    return ListGroupsResponse(groups=groups[node])


@in_loop
async def test_all_brokers_are_asked_for_their_groups() -> None:
    client, groups, deadline = requests(ListGroups=lists)
    found = await groups.listed((), (), deadline)
    assert [(group.group_id, group.type) for group in found] == [
        ("a", "Classic"),
        ("b", "Classic"),
        ("c", "Consumer"),
    ]
    assert [options["min_version"] for options in client.options] == [None, None]


@in_loop
async def test_states_and_types_narrow_the_list_whatever_their_case() -> None:
    """A broker that can't tell states is refused rather than taken to have no such group."""
    client, groups, deadline = requests(ListGroups=lists)
    assert [g.group_id for g in await groups.listed(["STABLE"], (), deadline)] == ["b", "c"]
    assert [options["min_version"] for options in client.options] == [4, 4]
    assert [g.group_id for g in await groups.listed(["stable"], ["consumer"], deadline)] == ["c"]


@in_loop
async def test_a_broker_that_still_loads_its_groups_is_asked_again_and_no_list_is_short_of_its_groups() -> (
    None
):
    loads = [LOADING]

    def answer(node: int, request: Any) -> ListGroupsResponse:
        if node == 2 and loads:
            return ListGroupsResponse(error_code=loads.pop())
        return lists(node, request)

    client, groups, deadline = requests(ListGroups=answer)
    assert [g.group_id for g in await groups.listed((), (), deadline)] == ["a", "b", "c"]
    assert [node for node, _ in client.kinds()].count(2) == 2
    _, groups, deadline = requests(ListGroups=lambda node, _: ListGroupsResponse(error_code=LOADING))
    with pytest.raises(KafkaTimeoutError) as late:
        await groups.listed((), (), deadline)
    assert isinstance(late.value.__cause__, CoordinatorLoadInProgressError)


# ------------------------------------------------------------ descriptions


def newer(*known: str) -> Answer:
    def answer(node: int, request: Any) -> Any:
        described = [
            consumer_group_describe.DescribedGroup(
                0 if group in known else NOT_FOUND, group_id=group, group_state="Stable"
            )
            for group in request.group_ids
        ]
        return consumer_group_describe.ConsumerGroupDescribeResponse(groups=described)

    return answer


def classic(**codes: int) -> Answer:
    def answer(node: int, request: Any) -> Any:
        described = [
            describe_groups.DescribedGroup(
                codes[group],
                group_id=group,
                group_state="Stable",
                protocol_type="consumer",
                members=[describe_groups.DescribedGroupMember("m", client_id="c", client_host="/h")],
            )
            for group in request.groups
        ]
        return describe_groups.DescribeGroupsResponse(groups=described)

    return answer


@in_loop
async def test_groups_are_described_by_their_coordinators_as_newer_ones_first() -> None:
    client, groups, deadline = requests(ConsumerGroupDescribe=newer("n1", "n2"), DescribeGroups=classic(c2=0))
    found = await groups.describe(["n1", "n2", "c2"], deadline)
    assert {name: group.type for name, group in found.items()} == {
        "n1": "Consumer",
        "n2": "Consumer",
        "c2": "Classic",
    }
    assert [
        (node, getattr(r, "groups", None)) for node, r in client.asked if isinstance(r, DescribeGroupsRequest)
    ] == [(2, ["c2"])], "only those that are not newer ones are asked about again"


@in_loop
async def test_before_newer_groups_all_are_classic() -> None:
    old = refusing(UnsupportedVersionError("not before 4.0"))
    client, groups, deadline = requests(ConsumerGroupDescribe=old, DescribeGroups=classic(c1=0))
    assert (await groups.describe(["c1"], deadline))["c1"].type == "Classic"
    assert client.kinds() == [(1, ConsumerGroupDescribeRequest), (1, DescribeGroupsRequest)]


@in_loop
async def test_one_group_may_be_refused_and_others_described() -> None:
    _, groups, deadline = requests(
        ConsumerGroupDescribe=newer(), DescribeGroups=classic(c1=0, x1=NOT_AUTHORIZED, g1=NOT_FOUND)
    )
    found = await groups.describe(["c1", "x1", "g1"], deadline)
    assert found["c1"].state == "Stable"
    assert isinstance(found["x1"], GroupAuthorizationFailedError)
    assert isinstance(found["g1"], GroupIdNotFoundError)


@pytest.mark.parametrize(
    ("code", "members"), [(0, 1), (NOT_FOUND, 0), (NOT_AUTHORIZED, GroupAuthorizationFailedError)]
)
@in_loop
async def test_a_group_that_does_not_exist_has_no_members_and_one_that_may_not_be_seen_is_an_error(
    code: int, members: Any
) -> None:
    """Offsets are set only where there are none, so an error must not pass for none."""
    _, groups, deadline = requests(ConsumerGroupDescribe=newer(), DescribeGroups=classic(g1=code))
    if isinstance(members, int):
        assert await groups.members_of("g1", deadline) == members
    else:
        with pytest.raises(members):
            await groups.members_of("g1", deadline)


# ------------------------------------------------------------ offsets


def offsets(error_code: int = 0, **metadata: Any) -> Answer:
    """Both partitions are committed at 5, the second under this metadata, or refused with this code."""

    def answer(node: int, request: OffsetFetchRequest) -> OffsetFetchResponse:
        partitions = [
            OffsetFetchResponsePartitions(0, 5, 3, "note"),
            OffsetFetchResponsePartitions(1, 5, 3, metadata.get("second", ""), metadata.get("code", 0)),
            OffsetFetchResponsePartitions(2, -1),
        ]
        [asked] = request.groups
        topics = [OffsetFetchResponseTopics("t", partitions=partitions)]
        return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(asked.group_id, topics, error_code)])

    return answer


@in_loop
async def test_committed_offsets_are_those_of_the_topics_that_there_are() -> None:
    """With the user's own metadata; those of a topic that was made anew since don't count, those of another cluster do."""
    for second, ids, wanted in (
        (pack("mine", OLD, "c-1"), {"t": OLD}, {P0: "note", P1: "mine"}),
        (pack("mine", OLD, "c-1"), {"t": NEW}, {P0: "note"}),
        (pack("mine", OLD, "c-2"), {"t": NEW}, {P0: "note", P1: "mine"}),
        (pack("mine", OLD, "c-1"), None, {P0: "note", P1: "mine"}),
    ):
        _, groups, deadline = requests(OffsetFetch=offsets(second=second))
        found = await groups.committed("g2", deadline, ids)
        assert {tp: offset.metadata for tp, offset in found.items()} == wanted
        assert {offset.offset for offset in found.values()} == {5}


@in_loop
async def test_offsets_from_which_is_read_are_waited_for_while_a_transaction_moves_them() -> None:
    codes = [UNSTABLE, UNSTABLE, 0]
    client, groups, deadline = requests(
        OffsetFetch=lambda node, request: offsets(code=codes.pop(0))(node, request)
    )
    assert set(await groups.committed("g1", deadline, stable=iter([P0, P1]))) == {P0, P1}
    fetches = [request for _, request in client.asked if isinstance(request, OffsetFetchRequest)]
    assert [request.require_stable for request in fetches] == [True] * 3
    assert all(request.groups[0].topics[0].partition_indexes == [0, 1] for request in fetches)
    client, groups, deadline = requests(OffsetFetch=offsets(code=UNSTABLE))
    with pytest.raises(KafkaTimeoutError, match="UNSTABLE_OFFSET_COMMIT"):
        await groups.committed("g1", deadline, stable=[P0])
    client, groups, deadline = requests(OffsetFetch=offsets())
    await groups.committed("g1", deadline)
    [seen] = [request for _, request in client.asked if isinstance(request, OffsetFetchRequest)]
    assert (seen.require_stable, seen.groups[0].topics) == (False, None)


@in_loop
async def test_a_group_that_does_not_exist_has_no_offsets_and_a_refusal_of_one_partition_is_one_of_all() -> (
    None
):
    _, groups, deadline = requests(OffsetFetch=offsets(NOT_FOUND))
    assert await groups.committed("g1", deadline) == {}
    for refused in (offsets(NOT_AUTHORIZED), offsets(code=NOT_AUTHORIZED)):
        _, groups, deadline = requests(OffsetFetch=refused)
        with pytest.raises(GroupAuthorizationFailedError):
            await groups.committed("g1", deadline)


def commits(*codes: int) -> Answer:
    left = list(codes)

    def answer(node: int, request: OffsetCommitRequest) -> OffsetCommitResponse:
        code = left.pop(0)
        topics = [
            OffsetCommitResponseTopic(
                topic.name,
                partitions=[OffsetCommitResponsePartition(p.partition_index, code) for p in topic.partitions],
            )
            for topic in request.topics
        ]
        return OffsetCommitResponse(topics=topics)

    return answer


@in_loop
async def test_a_commit_from_outside_goes_to_the_coordinator_as_nobodys_and_names_the_topics_it_holds_for() -> (
    None
):
    client, groups, deadline = requests(OffsetCommit=commits(0))
    wanted = {
        P1: OffsetAndMetadata(7, "", -1),
        P0: OffsetAndMetadata(5, "note", 3),
        TopicPartition("u", 0): OffsetAndMetadata(9),
    }
    await groups.commit("g2", wanted, deadline, {"t": OLD})
    [(node, request)] = client.asked
    assert (node, request.group_id, request.member_id, request.generation_id_or_member_epoch) == (
        2,
        "g2",
        "",
        -1,
    )
    sent = {
        (topic.name, p.partition_index): (
            p.committed_offset,
            p.committed_leader_epoch,
            unpack(p.committed_metadata),
        )
        for topic in request.topics
        for p in topic.partitions
    }
    assert sent == {
        ("t", 0): (5, 3, ("note", OLD, "c-1", "")),
        ("t", 1): (7, -1, ("", OLD, "c-1", "")),
        ("u", 0): (9, -1, ("", None, None, "")),
    }


@in_loop
async def test_a_commit_of_more_than_the_coordinator_writes_at_once_goes_in_several_requests() -> None:
    """It writes each as one batch, of 1 MiB by default: a hand-over of some 4,900 partitions never came to its end."""
    client, groups, deadline = requests(OffsetCommit=commits(0, 0, 0))
    wanted = {TopicPartition("t", n): OffsetAndMetadata(n, "m" * 4_000) for n in range(300)}
    await groups.commit("g2", wanted, deadline, {"t": OLD})
    sent = [topic.partitions for _, request in client.asked for topic in request.topics]
    assert {p.partition_index: p.committed_offset for parts in sent for p in parts} == {
        n: n for n in range(300)
    }
    assert sum(map(len, sent)) == 300
    assert all(sum(len(p.committed_metadata) for p in parts) < 2**20 for parts in sent)
    assert len(sent) == 3, "no more than it takes"


@pytest.mark.parametrize("code", [UNKNOWN_MEMBER, NOT_AUTHORIZED])
@in_loop
async def test_a_commit_beside_members_is_refused_in_words_that_say_what_to_do(code: int) -> None:
    client, groups, deadline = requests(OffsetCommit=commits(code))
    with pytest.raises(
        NonEmptyGroupError if code == UNKNOWN_MEMBER else GroupAuthorizationFailedError
    ) as refused:
        await groups.commit("g1", {P0: OffsetAndMetadata(5), P1: OffsetAndMetadata(6)}, deadline)
    assert ("has members: stop them first" in str(refused.value)) is (code == UNKNOWN_MEMBER)
    assert len(client.asked) == 1


@in_loop
async def test_a_commit_to_a_coordinator_that_has_moved_is_made_again() -> None:
    client, groups, deadline = requests(OffsetCommit=commits(NOT_COORDINATOR, 0))
    await groups.commit("g1", {P0: OffsetAndMetadata(5)}, deadline)
    assert len(client.asked) == 2


# ------------------------------------------------------------ deletion


@in_loop
async def test_each_group_is_deleted_or_refused_by_itself() -> None:
    codes = {"a1": 0, "m1": NOT_EMPTY, "g2": NOT_FOUND, "x2": NOT_AUTHORIZED}

    def delete(node: int, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
        return DeleteGroupsResponse(results=[DeletableGroupResult(g, codes[g]) for g in request.groups_names])

    client, groups, deadline = requests(DeleteGroups=delete)
    found = await groups.delete(codes, deadline)
    assert found["a1"] is None
    assert isinstance(found["m1"], NonEmptyGroupError)
    assert "group 'm1' has members: stop them first" in str(found["m1"])
    assert isinstance(found["g2"], GroupIdNotFoundError)
    assert isinstance(found["x2"], GroupAuthorizationFailedError)
    assert sorted(node for node, _ in client.kinds()) == [1, 2], "one request to each coordinator"

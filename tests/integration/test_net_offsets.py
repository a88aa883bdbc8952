"""Offset look-ups against leaders that move, hang and answer errors."""

from __future__ import annotations

import asyncio
from typing import Any

from fakes.broker import DROP, SILENCE, Call, FakeCluster
from fakes.loop import in_loop
from waiting import within

from kafka_actors.errors import KafkaTimeoutError, TopicAuthorizationFailedError, UnsupportedVersionError
from kafka_actors.net import EARLIEST, LATEST, EpochEnd, KafkaClient, ListedOffset, OffsetLookups
from kafka_actors.net.offsets import MAX_TIMESTAMP
from kafka_actors.protocol import (
    ApiKey,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    TopicPartition,
)
from kafka_actors.protocol.messages.list_offsets import ListOffsetsPartitionResponse, ListOffsetsTopicResponse
from kafka_actors.protocol.messages.offset_for_leader_epoch import EpochEndOffset, OffsetForLeaderTopicResult

TPS = [TopicPartition("t", i) for i in range(3)]


def listing(**errors: int) -> Any:
    """Answers with the partition's number as offset; `p1=6` makes that the error of partition 1."""

    def answer(request: ListOffsetsRequest, call: Call) -> ListOffsetsResponse:
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    t.name,
                    [
                        ListOffsetsPartitionResponse(
                            p.partition_index,
                            errors.get(f"p{p.partition_index}", 0),
                            5,
                            100 + p.partition_index,
                            0,
                        )
                        for p in t.partitions
                    ],
                )
                for t in request.topics
            ]
        )

    return answer


class Setup:
    """Three brokers, each leads one partition of `t`."""

    def __init__(self, **options: Any) -> None:
        self.cluster = FakeCluster(3, {"t": 3, "untracked": 1})
        self.options = options

    async def __aenter__(self) -> Setup:
        await self.cluster.__aenter__()
        for broker in self.cluster.brokers:
            broker.on(ApiKey.LIST_OFFSETS, listing())
        self.client = KafkaClient(bootstrap_servers=self.cluster.bootstrap, **self.options)
        self.client.set_topics(["t"])
        await self.client.bootstrap()
        self.lookups = OffsetLookups(self.client)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.client.close()
        await self.cluster.__aexit__()


@in_loop
async def test_each_leader_is_asked_once_for_all_of_its_partitions() -> None:
    async with Setup() as setup:
        setup.cluster.move("t", 2, 0)
        await setup.client.update_metadata()
        found = await setup.lookups.list_offsets(
            {TPS[0]: EARLIEST, TPS[1]: LATEST, TPS[2]: 1234}, isolation_level="read_committed"
        )
        assert found == {tp: ListedOffset(100 + tp.partition, 5, 0) for tp in TPS}
        first, second, third = setup.cluster.brokers
        request = first.requests(ApiKey.LIST_OFFSETS)[0]
        asked = {
            (p.partition_index, p.timestamp, p.current_leader_epoch) for p in request.topics[0].partitions
        }
        assert asked == {(0, EARLIEST, 0), (2, 1234, 1)}
        assert request.isolation_level == 1
        assert [b.counts[ApiKey.LIST_OFFSETS] for b in (first, second, third)] == [1, 1, 0]


@in_loop
async def test_a_leader_that_moved_is_followed() -> None:
    async with Setup() as setup:
        old, new = setup.cluster.brokers[:2]
        old.on(ApiKey.LIST_OFFSETS, listing(p0=6))
        setup.cluster.move("t", 0, 1)
        found = await setup.lookups.list_offsets({TPS[0]: LATEST})
        assert found[TPS[0]] == ListedOffset(100, 5, 0)
        assert new.counts[ApiKey.LIST_OFFSETS] == 1


@in_loop
async def test_a_leader_that_hangs_is_not_waited_for_once_another_leads() -> None:
    async with Setup() as setup:
        setup.cluster.brokers[0].on(ApiKey.LIST_OFFSETS, SILENCE)
        asking = asyncio.create_task(setup.lookups.list_offsets(dict.fromkeys(TPS, LATEST)))
        await setup.cluster.brokers[0].wait_for(ApiKey.LIST_OFFSETS)
        setup.cluster.move("t", 0, 1)
        await setup.client.update_metadata()
        with within(5):
            found = await asking
        assert all(isinstance(answer, ListedOffset) for answer in found.values())


@in_loop
async def test_temporary_errors_and_lost_connections_are_tried_again() -> None:
    async with Setup() as setup:
        setup.cluster.brokers[0].once(ApiKey.LIST_OFFSETS, DROP, listing(p0=78), listing(p0=5), listing(p0=7))
        found = await setup.lookups.list_offsets({TPS[0]: LATEST})
        assert found[TPS[0]] == ListedOffset(100, 5, 0)
        assert setup.cluster.brokers[0].counts[ApiKey.LIST_OFFSETS] == 5


@in_loop
async def test_a_final_error_is_the_partitions_own() -> None:
    async with Setup() as setup:
        setup.cluster.brokers[0].on(ApiKey.LIST_OFFSETS, listing(p0=29))
        found = await setup.lookups.list_offsets(dict.fromkeys(TPS, LATEST))
        assert isinstance(found[TPS[0]], TopicAuthorizationFailedError)
        assert isinstance(found[TPS[1]], ListedOffset)


@in_loop
async def test_what_has_no_answer_in_time_says_what_was_heard_last() -> None:
    async with Setup() as setup:
        missing = TopicPartition("missing", 0)
        found = await setup.lookups.list_offsets({missing: LATEST, TPS[0]: LATEST}, timeout_ms=800)
        assert isinstance(found[missing], KafkaTimeoutError)
        assert "UNKNOWN_TOPIC_OR_PARTITION" in str(found[missing])
        assert isinstance(found[TPS[0]], ListedOffset)
        assert sum(b.counts[ApiKey.METADATA] for b in setup.cluster.brokers) <= 20


@in_loop
async def test_a_topic_that_is_not_tracked_is_found() -> None:
    async with Setup() as setup:
        untracked = TopicPartition("untracked", 0)
        found = await setup.lookups.list_offsets({untracked: EARLIEST})
        assert found[untracked] == ListedOffset(100, 5, 0)


@in_loop
async def test_a_special_timestamp_that_the_broker_is_too_old_for() -> None:
    async with Setup() as setup:
        setup.cluster.brokers[0].versions[ApiKey.LIST_OFFSETS] = (1, 6)
        await setup.client.close(0)
        found = await setup.lookups.list_offsets({TPS[0]: MAX_TIMESTAMP})
        assert isinstance(found[TPS[0]], UnsupportedVersionError)


@in_loop
async def test_ends_of_epochs() -> None:
    def ends(request: OffsetForLeaderEpochRequest, call: Call) -> OffsetForLeaderEpochResponse:
        return OffsetForLeaderEpochResponse(
            topics=[
                OffsetForLeaderTopicResult(
                    t.topic, [EpochEndOffset(0, p.partition, p.leader_epoch, 50) for p in t.partitions]
                )
                for t in request.topics
            ]
        )

    async with Setup() as setup:
        for broker in setup.cluster.brokers:
            broker.on(ApiKey.OFFSET_FOR_LEADER_EPOCH, ends)
        found = await setup.lookups.offsets_for_leader_epoch({TPS[0]: (3, 2), TPS[1]: (-1, 0)})
        assert found == {TPS[0]: EpochEnd(2, 50), TPS[1]: EpochEnd(0, 50)}
        request = setup.cluster.brokers[0].requests(ApiKey.OFFSET_FOR_LEADER_EPOCH)[0]
        assert request.topics[0].partitions[0].current_leader_epoch == 3
        assert request.replica_id == -1

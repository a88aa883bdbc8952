"""Offset look-ups against leaders that move, hang and answer errors."""

from __future__ import annotations

import asyncio
from typing import Any

from fakes.loop import in_loop
from waiting import at_pace_s, until_async, within

from kafka_actors.errors import (
    KafkaTimeoutError,
    TopicAuthorizationFailedError,
    UnknownServerError,
    UnsupportedVersionError,
)
from kafka_actors.net import EARLIEST, LATEST, EpochEnd, KafkaClient, ListedOffset, OffsetLookups
from kafka_actors.net.offsets import MAX_TIMESTAMP
from kafka_actors.protocol import TopicPartition
from kafka_actors.testing import FakeKafka
from kafka_actors.testing.fake_kafka import AnswerWithError, DropConnection, Hold

TPS = [TopicPartition("t", i) for i in range(3)]
AT_MS = 1_000


class Setup:
    """Three brokers, each leads one partition of `t`: partition n has n + 1 records."""

    def __init__(self, **options: Any) -> None:
        self.kafka = FakeKafka(3, **options)

    async def __aenter__(self) -> Setup:
        self.kafka.start()
        self.kafka.create_topic("t", 3, 3)
        self.kafka.create_topic("untracked", 1)
        for tp in TPS:
            self.kafka.produce("t", [b"x"] * (tp.partition + 1), partition=tp.partition, timestamp_ms=AT_MS)
        self.leaders = self.kafka.leaders("t")
        self.client = KafkaClient(bootstrap_servers=self.kafka.bootstrap_servers)
        self.client.set_topics(["t"])
        await self.client.bootstrap()
        self.lookups = OffsetLookups(self.client)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.client.close()
        self.kafka.stop()

    def list_requests(self) -> dict[int, list[Any]]:
        """The ListOffsets requests that each broker got."""
        found: dict[int, list[Any]] = {}
        for call in self.kafka.requests("ListOffsets"):
            found.setdefault(call.node_id, []).append(call.request)
        return found


@in_loop
async def test_each_leader_is_asked_once_for_all_of_its_partitions() -> None:
    async with Setup() as setup:
        first, second, _ = setup.leaders.values()
        setup.kafka.set_leader("t", 2, first)
        await setup.client.update_metadata()
        found = await setup.lookups.list_offsets(
            {TPS[0]: EARLIEST, TPS[1]: LATEST, TPS[2]: AT_MS - 1}, isolation_level="read_committed"
        )
        assert found == {
            TPS[0]: ListedOffset(0, -1, 0),
            TPS[1]: ListedOffset(2, -1, 0),
            TPS[2]: ListedOffset(0, AT_MS, 0),
        }
        asked = setup.list_requests()
        assert {node: len(requests) for node, requests in asked.items()} == {first: 1, second: 1}
        [request] = asked[first]
        assert {
            (p.partition_index, p.timestamp, p.current_leader_epoch) for p in request.topics[0].partitions
        } == {(0, EARLIEST, 0), (2, AT_MS - 1, 1)}
        assert request.isolation_level == 1


@in_loop
async def test_a_leader_that_moved_is_followed() -> None:
    async with Setup() as setup:
        new = setup.leaders[1]
        setup.kafka.set_leader("t", 0, new)
        found = await setup.lookups.list_offsets({TPS[0]: LATEST})
        assert found[TPS[0]] == ListedOffset(1, -1, 1)
        assert len(setup.list_requests()[new]) == 1


@in_loop
async def test_a_leader_that_hangs_is_not_waited_for_once_another_leads() -> None:
    async with Setup() as setup:
        held = setup.kafka.on("ListOffsets", Hold(), times=None, broker_id=setup.leaders[0])
        asking = asyncio.create_task(setup.lookups.list_offsets(dict.fromkeys(TPS, LATEST)))
        await until_async(lambda: held.calls)
        setup.kafka.set_leader("t", 0, setup.leaders[1])
        await setup.client.update_metadata()
        with within(5):
            found = await asking
        assert all(isinstance(answer, ListedOffset) for answer in found.values())


@in_loop
async def test_temporary_errors_and_lost_connections_are_tried_again() -> None:
    async with Setup() as setup:
        for action in (DropConnection(), AnswerWithError(78), AnswerWithError(5), AnswerWithError(7)):
            setup.kafka.on("ListOffsets", action)
        found = await setup.lookups.list_offsets({TPS[0]: LATEST})
        assert found[TPS[0]] == ListedOffset(1, -1, 0)
        assert setup.kafka.count("ListOffsets") == 5


@in_loop
async def test_a_lost_answer_is_waited_for_as_long_as_for_any_and_asked_for_again() -> None:
    async with Setup() as setup:
        servers = setup.kafka.bootstrap_servers
        async with KafkaClient(bootstrap_servers=servers, request_timeout_ms=500) as client:
            setup.kafka.on("ListOffsets", Hold())
            found = await OffsetLookups(client).list_offsets({TPS[0]: LATEST}, timeout_ms=60_000)
        assert found[TPS[0]] == ListedOffset(1, -1, 0)
        assert all(request.timeout_ms <= 500 for request in setup.list_requests()[setup.leaders[0]])


@in_loop
async def test_an_error_without_a_reason_is_tried_again_where_the_caller_wants_that() -> None:
    async with Setup() as setup:
        setup.kafka.on("ListOffsets", AnswerWithError(-1))
        found = await setup.lookups.list_offsets({TPS[0]: LATEST})
        assert isinstance(found[TPS[0]], UnknownServerError)
        setup.kafka.on("ListOffsets", AnswerWithError(-1))
        found = await setup.lookups.list_offsets({TPS[0]: LATEST}, temporary=(UnknownServerError,))
        assert found[TPS[0]] == ListedOffset(1, -1, 0)


@in_loop
async def test_a_final_error_is_the_partitions_own() -> None:
    async with Setup() as setup:
        setup.kafka.on("ListOffsets", AnswerWithError(29), times=None, broker_id=setup.leaders[0])
        found = await setup.lookups.list_offsets(dict.fromkeys(TPS, LATEST))
        assert isinstance(found[TPS[0]], TopicAuthorizationFailedError)
        assert isinstance(found[TPS[1]], ListedOffset)


@in_loop
async def test_what_has_no_answer_in_time_says_what_was_heard_last() -> None:
    async with Setup() as setup:
        missing = TopicPartition("missing", 0)
        limit_s = at_pace_s(3)
        found = await setup.lookups.list_offsets({missing: LATEST, TPS[0]: LATEST}, timeout_ms=1000 * limit_s)
        assert isinstance(found[missing], KafkaTimeoutError)
        assert "UNKNOWN_TOPIC_OR_PARTITION" in str(found[missing])
        assert isinstance(found[TPS[0]], ListedOffset)
        assert setup.kafka.count("Metadata") <= 25 * limit_s


@in_loop
async def test_a_topic_that_is_not_tracked_is_found() -> None:
    async with Setup() as setup:
        untracked = TopicPartition("untracked", 0)
        found = await setup.lookups.list_offsets({untracked: EARLIEST})
        assert found[untracked] == ListedOffset(0, -1, 0)


@in_loop
async def test_a_special_timestamp_that_the_broker_is_too_old_for() -> None:
    async with Setup(version="2.8") as setup:
        found = await setup.lookups.list_offsets({TPS[0]: MAX_TIMESTAMP})
        assert isinstance(found[TPS[0]], UnsupportedVersionError)


@in_loop
async def test_ends_of_epochs() -> None:
    async with Setup() as setup:
        setup.kafka.set_leader("t", 0, setup.leaders[1])
        await setup.client.update_metadata()
        found = await setup.lookups.offsets_for_leader_epoch({TPS[0]: (1, 0), TPS[1]: (-1, 0)})
        assert found == {TPS[0]: EpochEnd(0, 1), TPS[1]: EpochEnd(0, 2)}
        requests = [call.request for call in setup.kafka.requests("OffsetForLeaderEpoch")]
        assert {
            (p.partition, p.current_leader_epoch) for r in requests for t in r.topics for p in t.partitions
        } == {(0, 1), (1, 0)}
        assert {request.replica_id for request in requests} == {-1}

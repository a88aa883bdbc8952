"""Methods of a client that users of other clients know by name: `poll`, `ready`, `maybe_connect` and their kind."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from fakes.loop import in_loop
from fakes.scripted import PING, PINGS, PONG, answer, brokers, hide
from msgspec.structs import replace
from waiting import until_async, within

from kafka_actors.cluster import Future
from kafka_actors.errors import ConfigError, NodeNotReadyError, UsageError
from kafka_actors.net import KafkaClient
from kafka_actors.protocol import ListGroupsResponse, MetadataResponse, TopicPartition
from kafka_actors.testing import FakeKafka
from kafka_actors.testing.fake_kafka import Hold


def client_of(kafka: FakeKafka, **options: Any) -> KafkaClient:
    return KafkaClient(bootstrap_servers=kafka.bootstrap_servers, **options)


# ---------------------------------------------------------------- poll


@in_loop
async def test_poll_returns_the_responses_that_come_meanwhile() -> None:
    async with brokers(2) as kafka, client_of(kafka) as client:
        sends = [asyncio.create_task(client.send(node, PING)) for node in (1, 2)]
        got: list[Any] = []
        while len(got) < 2:
            got += await client.poll(timeout_ms=50_000)
        assert [type(response) for response in got] == [ListGroupsResponse] * 2
        assert {id(response) for response in got} == {id(await sent) for sent in sends}


@in_loop
async def test_poll_without_a_response_ends_in_its_time_with_none() -> None:
    async with brokers(1) as kafka, client_of(kafka, request_timeout_ms=3_000) as client:
        kafka.on(PINGS, Hold())
        sent = asyncio.create_task(client.send(1, PING))
        started = time.monotonic()
        with within(2):
            assert await client.poll(timeout_ms=100) == []
        assert time.monotonic() - started >= 0.1
        assert await client.poll(timeout_ms=0) == []
        with within(10):
            await client.poll()  # request_timeout_ms is the default, and the most
        await asyncio.wait({sent})
        sent.exception()


@in_loop
async def test_poll_with_a_future_goes_on_until_that_is_settled() -> None:
    async with brokers(1) as kafka, client_of(kafka) as client:
        kafka.on(PINGS, answer(PONG))
        held = kafka.on(PINGS, Hold())
        first = asyncio.create_task(client.send(1, PING))
        second = asyncio.create_task(client.send(1, PING))
        polled = asyncio.create_task(client.poll(future=second))
        await first
        await asyncio.sleep(0.05)
        assert not polled.done()
        assert await client.poll(timeout_ms=50, future=second) == []  # a bound that is given holds
        held.release()
        assert await polled == [first.result(), second.result()]
        assert await client.poll(future=second) == []  # it is settled: nothing to wait for


@in_loop
async def test_poll_refreshes_metadata_and_takes_its_future() -> None:
    async with brokers(1, {"a": 2}) as kafka:
        client = client_of(kafka)
        known = client.set_topics(["a"])
        responses = await client.poll(timeout_ms=50_000, future=known)  # nobody called bootstrap
        assert known.is_done
        assert any(isinstance(response, MetadataResponse) for response in responses)
        assert client.cluster.partitions_for_topic("a") == {0, 1}
        assert known.result() is client.cluster
        await client.close()


@in_loop
async def test_poll_ends_when_metadata_is_due() -> None:
    async with brokers(1) as kafka, client_of(kafka, metadata_max_age_ms=200) as client:
        kafka.on("Metadata", Hold(), times=None)
        with within(5):
            assert await client.poll(timeout_ms=20_000) == []


@in_loop
async def test_poll_takes_a_future_that_another_thread_settles() -> None:
    async with brokers(1) as kafka, client_of(kafka) as client:
        future: Future[int] = Future()
        loop = asyncio.get_running_loop()
        loop.run_in_executor(None, lambda: (time.sleep(0.05), future.success(1)))
        with within(5):
            assert await client.poll(future=future) == []
        assert future.result() == 1


@in_loop
async def test_poll_refuses_a_negative_time() -> None:
    async with brokers(1) as kafka, client_of(kafka) as client:
        with pytest.raises(UsageError, match="timeout_ms is -1"):
            await client.poll(timeout_ms=-1)


# ---------------------------------------------------------------- nodes


@in_loop
async def test_maybe_connect_connects_in_the_background() -> None:
    async with (
        brokers(2) as kafka,
        KafkaClient(bootstrap_servers="{}:{}".format(*kafka.address(1))) as client,
    ):
        assert client.maybe_connect(2)
        assert not client.connected(2)
        assert not client.maybe_connect(2)  # it is under way
        await until_async(lambda: client.connected(2))
        assert not client.maybe_connect(2, wakeup=False)  # it is there
        assert kafka.connections(2, closed=True) == 1


@in_loop
async def test_maybe_connect_to_an_unknown_node_asks_for_metadata() -> None:
    async with brokers(2) as kafka:
        hidden = hide(kafka, 2)
        async with KafkaClient(bootstrap_servers="{}:{}".format(*kafka.address(1))) as client:
            assert not client.maybe_connect(2)
            hidden.end()
            await until_async(lambda: client.maybe_connect(2))


@in_loop
async def test_ready_connects_and_says_when_a_request_would_be_written_at_once() -> None:
    async with brokers(2) as kafka, client_of(kafka) as client:
        assert not client.ready(2)
        await until_async(lambda: client.ready(2))
        assert (await client.send(2, PING)).error_code == 0
        kafka.on("Metadata", Hold(), times=None)
        client.cluster.request_update()
        await until_async(lambda: client.cluster.ttl() == 0)
        assert not client.ready(2)  # metadata goes first
        assert client.ready(2, metadata_priority=False)


@in_loop
async def test_a_throttled_node_is_not_ready() -> None:
    async with brokers(1) as kafka, client_of(kafka) as client:
        kafka.on(PINGS, answer(replace(PONG, throttle_time_ms=200)))
        started = time.monotonic()
        await client.send(1, PING)
        await client.send(1, PING)
        assert time.monotonic() - started >= 0.2
        assert client.is_ready(1, metadata_priority=False)
        kafka.on(PINGS, answer(replace(PONG, throttle_time_ms=600_000)))
        await client.send(1, PING)
        assert not client.is_ready(1, metadata_priority=False)


@in_loop
async def test_while_a_node_backs_off_it_is_disconnected_and_its_delay_is_told() -> None:
    backoff = {"reconnect_backoff_ms": 1_000_000, "reconnect_backoff_max_ms": 1_000_000}
    async with brokers(2) as kafka, client_of(kafka, **backoff) as client:
        await client.send(1, PING)
        kafka.on(
            "Metadata", Hold(), times=None
        )  # it would say that this broker is gone, which ends what waits for it
        kafka.kill(2)
        assert not client.is_disconnected(2)  # it never was connected
        with pytest.raises(Exception, match="connection refused"):
            await client.send(2, PING)
        assert client.maybe_connect(2)  # waits for the end of the backoff
        await asyncio.sleep(0)
        assert client.is_disconnected(2)
        assert 700_000 < client.connection_delay(2) <= 1_200_000
        assert client.connection_delay(1) > 1e9
        with pytest.raises(
            NodeNotReadyError, match=r"no connection to broker 2 in time: .*connection refused"
        ):
            await client.send(2, PING, timeout_ms=50)


# ---------------------------------------------------------------- topics


@in_loop
async def test_topics_are_names() -> None:
    async with brokers(1, {"a": 1}) as kafka, client_of(kafka) as client:
        for wrong in ("orders", ["no spaces please"], [1], [""]):
            with pytest.raises(ConfigError, match="topics"):
                client.set_topics(wrong)  # type: ignore[arg-type]
        assert (await client.add_topic("a")) is client.cluster
        assert client.cluster.leader_for_partition(TopicPartition("a", 0)) == 1

"""`AsyncProducer` where it differs from `Producer`: its event loop, starts that are cancelled or fail, and records that wait for room."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from fakes.loop import in_loop
from waiting import slow_s

import kafka_actors as ka
from kafka_actors.errors import KafkaTimeoutError, NoBrokersAvailable, UsageError


async def nothing_left() -> None:
    """Waits until all other tasks of the loop have ended."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    _, pending = await asyncio.wait(others, timeout=slow_s(10)) if others else (set(), set())
    assert not pending


def test_it_belongs_to_the_loop_that_it_was_first_used_in(fake_kafka: Any, kafka_topic: Any) -> None:
    topic = kafka_topic(1, cluster=fake_kafka)

    async def use() -> None:
        sent = await producer.send(topic, b"v")
        assert (await sent).offset == 0

    with asyncio.Runner() as first, asyncio.Runner() as second:
        producer = ka.AsyncProducer(bootstrap_servers=fake_kafka.bootstrap_servers, linger_ms=0)
        first.run(use())
        for call in (producer.send(topic, b"w"), producer.flush(), producer.close()):
            with pytest.raises(
                UsageError, match="this AsyncProducer belongs to the event loop that it was first used in"
            ):
                second.run(call)
        first.run(producer.close())


@in_loop
async def test_a_start_that_is_cancelled_leaves_nothing_and_the_next_call_starts_anew(
    fake_kafka: Any, kafka_topic: Any
) -> None:
    topic = kafka_topic(1, cluster=fake_kafka)
    producer = ka.AsyncProducer(bootstrap_servers=fake_kafka.bootstrap_servers, linger_ms=0)
    entering = asyncio.ensure_future(producer.__aenter__())
    await asyncio.sleep(0)
    entering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await entering
    assert producer._start_task is None
    sent = await producer.send(topic, b"v")
    assert (await sent).offset == 0
    await producer.close()
    await nothing_left()


@in_loop
async def test_a_start_that_fails_says_so_to_each_call_until_it_succeeds() -> None:
    producer = ka.AsyncProducer(bootstrap_servers="127.0.0.1:1", max_block_ms=300)
    for _ in range(2):
        with pytest.raises((KafkaTimeoutError, NoBrokersAvailable), match=r"127\.0\.0\.1:1"):
            await producer.send("t", b"v")
    await producer.close()
    with pytest.raises(UsageError, match="closed"):
        await producer.send("t", b"v")
    await nothing_left()


@in_loop
async def test_an_error_of_the_block_is_raised_and_one_of_its_close_is_logged_beside(
    fake_kafka: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = ka.AsyncProducer(bootstrap_servers=fake_kafka.bootstrap_servers)
    close = producer.close
    monkeypatch.setattr(producer, "close", lambda: _raises(KafkaTimeoutError("no broker answered")))

    async def block(error: Exception | None) -> None:
        async with producer:
            if error is not None:
                raise error

    with pytest.raises(ValueError, match="of the block"):
        await block(ValueError("of the block"))
    assert "no broker answered" in caplog.text
    with pytest.raises(KafkaTimeoutError, match="no broker answered"):
        await block(None)
    await close()


async def _raises(error: Exception) -> None:
    raise error


@in_loop
async def test_a_record_waits_for_room_and_no_longer_than_it_may(fake_kafka: Any, kafka_topic: Any) -> None:
    topic = kafka_topic(1, cluster=fake_kafka)
    options = {
        "bootstrap_servers": fake_kafka.bootstrap_servers,
        "linger_ms": 0,
        "buffer_memory": 40_000,
        "batch_size": 16_384,
    }
    async with ka.AsyncProducer(**options, max_block_ms=slow_s(20) * 1000) as producer:
        sent = [await producer.send(topic, b"x" * 15_000) for _ in range(20)]
        assert [(await one).offset for one in sent] == list(range(20))

"""Records that come while a producer is closed."""

import asyncio

import pytest

from kafka_actors.config import ProducerConfig, build
from kafka_actors.errors import DisconnectedError, UsageError
from kafka_actors.producer.producer_io import ProducerIO
from kafka_actors.types import TopicPartition

A = TopicPartition("orders", 0)
LOST = DisconnectedError("lost")


def test_what_comes_while_a_producer_is_closed_is_refused_and_what_was_open_gets_its_error():
    async def close():
        core = ProducerIO(build(ProducerConfig, bootstrap_servers="b:1"))
        result, _ = core.intake.append_one(A, None, b"value", None, 0)
        await core.close(LOST)
        assert result.done
        assert result.error is LOST
        with pytest.raises(UsageError, match="is closed"):
            core.intake.append_one(A, None, b"value", None, 0)
        assert not core.intake.unsettled

    asyncio.run(close())


def test_who_waits_for_a_topic_hears_that_the_producer_is_closed():
    async def wait():
        core = ProducerIO(build(ProducerConfig, bootstrap_servers="b:1"))
        await core.close(LOST)
        with pytest.raises(UsageError, match="is closed"):
            await core.learn("orders", core.client.now() + 60)

    asyncio.run(wait())

"""The producer's loop, when something in it fails that should not."""

import asyncio

import pytest

from kafka_actors.config import ProducerConfig, build
from kafka_actors.errors import UsageError
from kafka_actors.producer.futures import RecordFuture
from kafka_actors.producer.producer_io import ProducerIO
from kafka_actors.types import TopicPartition


@pytest.mark.parametrize("where", ["a turn", "a task"])
def test_nobody_waits_in_vain_for_a_producer_that_failed(where, monkeypatch):
    async def main():
        core = ProducerIO(build(ProducerConfig, {}))
        core._loop = core.intake.loop = asyncio.get_running_loop()
        result, index = core.intake.append_one(TopicPartition("t", 0), None, b"x", None, 0)
        if where == "a turn":

            def fail(*_):
                raise ValueError("a mistake")

            monkeypatch.setattr(core._sender, "poll", fail)
            core.nudge()
        else:

            async def failing():
                raise ValueError("a mistake")

            core._start(failing())
        with pytest.raises(UsageError, match="the producer failed: ValueError: a mistake"):
            async with asyncio.timeout(10):
                await RecordFuture(result, index, 0)
        with pytest.raises(UsageError, match="the producer failed: ValueError: a mistake"):
            core.intake.append_one(TopicPartition("t", 0), None, b"x", None, 0)

    asyncio.run(main())

"""What a query asks of the brokers, without brokers."""

import asyncio

import pytest

from kafka_actors.spark.brokers import Brokers
from kafka_actors.spark.options import parse_stream

OPTIONS = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"}


@pytest.mark.parametrize(("since", "times"), [(None, 2), (0.5, 1), (1.0, 2), (1.5, 2)])
def test_topics_are_asked_about_again_unless_that_was_done_since(since: float | None, times: int) -> None:
    """A client that asks twice in a row waits in between, so a stream that starts asks once."""
    clock = iter((1.0, 2.0))
    asked = []

    async def refreshed() -> None:
        brokers = Brokers(parse_stream(OPTIONS, limits=True), clock=lambda: next(clock))

        async def update_metadata() -> None:
            asked.append("")

        brokers.client.update_metadata = update_metadata  # type: ignore[method-assign,assignment]
        await brokers.refresh()
        await brokers.refresh(since)

    asyncio.run(refreshed())
    assert len(asked) == times

"""The fetchers of a process: one for each broker that is there, at the address that it has."""

from __future__ import annotations

import asyncio

import pytest

from kafka_actors.cluster.snapshot import BrokerMetadata
from kafka_actors.config import ConsumerConfig
from kafka_actors.errors import DisconnectedError
from kafka_actors.fetch import BrokerFetcher, LocalSources, Pull
from kafka_actors.fetch.messages import Outcome


def refuse(*_: object) -> object:
    raise AssertionError("nothing is fetched here")


@pytest.fixture
def brokers() -> dict[int, BrokerMetadata]:
    return {1: BrokerMetadata(1, "one", 9092), 2: BrokerMetadata(2, "two", 9092)}


def is_closed(source: BrokerFetcher | None) -> bool:
    assert source is not None
    outcomes: list[Outcome] = []
    source.fetch(Pull(0), outcomes.append)  # one that is closed answers at once
    return [type(outcome) for outcome in outcomes] == [DisconnectedError]


def test_a_broker_has_one_fetcher(brokers: dict[int, BrokerMetadata]) -> None:
    async def scenario() -> None:
        sources = LocalSources(ConsumerConfig(), locate=brokers.get, connect=refuse)
        first = sources.get(1)
        assert first is not None
        assert first.address == ("one", 9092)
        assert sources.get(1) is first
        assert sources.get(2) is not first
        assert sources.get(3) is None
        await sources.close()
        assert is_closed(first)

    asyncio.run(scenario())


def test_brokers_that_moved_or_went_are_closed_and_the_others_stay(
    brokers: dict[int, BrokerMetadata],
) -> None:
    brokers[3] = BrokerMetadata(3, "three", 9092)

    async def scenario() -> None:
        sources = LocalSources(ConsumerConfig(), locate=brokers.get, connect=refuse)
        moved, gone, stays = sources.get(1), sources.get(2), sources.get(3)
        brokers[1] = BrokerMetadata(1, "elsewhere", 9092)
        del brokers[2]
        sources.follow()
        assert sources.get(3) is stays
        assert sources.get(2) is None
        fresh = sources.get(1)
        assert fresh is not None
        assert fresh.address == ("elsewhere", 9092)
        await sources.close()
        assert is_closed(moved)
        assert is_closed(gone)
        assert is_closed(stays)

    asyncio.run(scenario())

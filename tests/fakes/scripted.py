"""`FakeKafka` for tests that run in an event loop: started and stopped with it, and waits for requests that do not hold it up.

    async with brokers(2, {"orders": 4}) as kafka:
        kafka.on("Heartbeat", Hold(), times=None, broker_id=2)
        client = KafkaClient(bootstrap_servers=kafka.bootstrap_servers)
        await arrived(kafka, "Heartbeat")

`PING` is a request that any broker answers without an error, and `PONG` what it answers.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from msgspec.structs import replace
from waiting import until_async

from kafka_actors.protocol import ApiKey, ListGroupsRequest, ListGroupsResponse, MetadataResponse
from kafka_actors.protocol.schema import Response
from kafka_actors.testing import FakeKafka
from kafka_actors.testing.fake_kafka import AnswerWith, BrokerCall, ChangeResponse, TakenRequests

PING = ListGroupsRequest()
PONG = ListGroupsResponse()
PINGS = ApiKey.LIST_GROUPS


@asynccontextmanager
async def brokers(
    count: int = 1, topics: Mapping[str, int] | None = None, **options: Any
) -> AsyncIterator[FakeKafka]:
    """Starts this number of brokers, with the ids 1, 2, …"""
    with FakeKafka(count, topics=topics, **options) as kafka:
        yield kafka


def answer(response: Response | Callable[[BrokerCall], Response | bytes]) -> AnswerWith:
    """The action that answers so: with this response, or with what a function of the call returns."""
    if isinstance(response, Response):
        return AnswerWith(lambda call: response)
    return AnswerWith(response)


def hide(kafka: FakeKafka, *broker_ids: int) -> TakenRequests:
    """Metadata no longer names these brokers, until the rule ends."""

    def without(call: BrokerCall, found: MetadataResponse) -> MetadataResponse:
        return replace(found, brokers=[b for b in found.brokers if b.node_id not in broker_ids])

    return kafka.on("Metadata", ChangeResponse(without), times=None)


async def arrived(kafka: FakeKafka, api: ApiKey | str, count: int = 1, seconds: float = 5.0) -> BrokerCall:
    """Waits until `count` requests of this API have arrived in all. Returns the last of them."""
    await until_async(lambda: kafka.count(api) >= count, seconds, f"{count} requests {api}")
    return kafka.requests(api)[count - 1]

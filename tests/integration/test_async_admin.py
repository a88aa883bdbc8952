"""The admin against brokers that answer late or not at all, and what it refuses before it connects."""

import asyncio
from typing import Any

import pytest
from fakes.loop import in_loop
from waiting import until_async, within

from kafka_actors import AsyncAdmin, TopicPartition
from kafka_actors.admin import NewTopic, OffsetTarget
from kafka_actors.errors import KafkaTimeoutError, UsageError
from kafka_actors.testing import FakeKafka
from kafka_actors.testing.fake_kafka import Delay, Hold


@in_loop
async def test_connecting_and_all_questions_of_a_call_share_its_time() -> None:
    """ListOffsets tells the broker how long its asker waits."""
    with FakeKafka(topics={"orders": 1}) as kafka:
        kafka.on("Metadata", Delay(0.2), times=None)
        held, wanted = kafka.on("ListOffsets", Hold(), times=None), {TopicPartition("orders", 0): -1}
        admin = AsyncAdmin(bootstrap_servers=kafka.bootstrap_servers)
        asking = asyncio.create_task(admin.list_offsets(wanted, timeout_ms=60_000))
        await until_async(lambda: held.calls, 20, "the question")
        assert 0 < held.calls[0].request.timeout_ms <= 60_000 - 2 * 200
        asking.cancel()
        with within(10):
            with pytest.raises(KafkaTimeoutError):
                await admin.list_offsets(wanted, timeout_ms=300)
            await admin.close()


@in_loop
async def test_metadata_that_does_not_come_costs_no_more_than_the_calls_time() -> None:
    with FakeKafka() as kafka:
        async with AsyncAdmin(bootstrap_servers=kafka.bootstrap_servers) as admin:
            kafka.on("Metadata", Hold(), times=None)
            with (
                within(10),
                pytest.raises(KafkaTimeoutError, match="no broker described the cluster within"),
            ):
                await admin.list_groups(timeout_ms=300)


@pytest.mark.parametrize(
    ("call", "arguments", "says"),
    [
        ("list_groups", {"states": "Stable"}, "states is a str: give a list of them"),
        ("list_groups", {"types": "Classic"}, "types is a str: give a list of them"),
        ("describe_consumer_groups", {"group_ids": "g"}, "group_ids is a str: give a list of them"),
        ("delete_consumer_groups", {"group_ids": [7]}, "group_ids has 7, an int: names are str"),
        ("list_consumer_group_offsets", {"group_id": 5}, "group_id has 5, an int: names are str"),
        ("lag", {"group_id": None}, "group_id has None, None: names are str"),
        ("create_topics", {"topics": ["orders"]}, "topics has 'orders', a str: give NewTopic"),
        (
            "reset_offsets",
            {"group_id": "g", "target": "earliest"},
            "target is 'earliest', a str: give OffsetTarget",
        ),
        (
            "reset_offsets",
            {"group_id": "g", "target": OffsetTarget.earliest(), "topics": ["orders"]},
            r"topics is \['orders'\], a list: give a dict",
        ),
        ("topic_configs", {"names": "orders"}, "names is a str: give a list of them"),
    ],
)
@in_loop
async def test_a_wrong_type_is_refused_before_anything_connects(
    call: str, arguments: dict[str, Any], says: str
) -> None:
    admin = AsyncAdmin(bootstrap_servers="127.0.0.1:1", request_timeout_ms=100)
    with pytest.raises(TypeError, match=says):
        await getattr(admin, call)(**arguments)


@pytest.mark.parametrize("wrong", ["5", -1, True])
@in_loop
async def test_a_wrong_timeout_is_refused(wrong: Any) -> None:
    admin = AsyncAdmin(bootstrap_servers="127.0.0.1:1", request_timeout_ms=100)
    with pytest.raises(UsageError, match="accepts milliseconds, at least 0"):
        await admin.list_topics(timeout_ms=wrong)


@in_loop
async def test_a_topic_that_is_given_twice_is_not_created_as_the_last_one_says() -> None:
    admin = AsyncAdmin(bootstrap_servers="127.0.0.1:1", request_timeout_ms=100)
    with pytest.raises(UsageError, match="topics has 'orders' more than once"):
        await admin.create_topics([NewTopic("orders", 3), NewTopic("orders", 4)])


@pytest.mark.parametrize(
    ("offsets", "says"),
    [
        ({TopicPartition("orders", 0): -3}, "can't commit orders-0 at -3: offsets start at 0"),
        ({TopicPartition("orders", 0): "3"}, "can't commit orders-0 at '3', a str: offsets are ints"),
        ({"orders": 3}, "'orders', a str, is no partition"),
    ],
)
@in_loop
async def test_an_offset_that_no_log_has_is_not_committed(offsets: Any, says: str) -> None:
    admin = AsyncAdmin(bootstrap_servers="127.0.0.1:1", request_timeout_ms=100)
    with pytest.raises(UsageError, match=says):
        await admin.alter_consumer_group_offsets("g", offsets)

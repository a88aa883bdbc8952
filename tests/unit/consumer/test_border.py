"""What a careless user is told: one line with what was given and what to do, before anything connects."""

from __future__ import annotations

import asyncio
import math
import threading

import numpy as np
import pytest

from kafka_actors import AsyncConsumer, Consumer
from kafka_actors.base.arguments import (
    offset_of,
    offsets_of,
    partition_of,
    partitions_of,
    seconds_of,
    times_of,
)
from kafka_actors.errors import ConfigError, UsageError
from kafka_actors.types import OffsetAndMetadata, TopicPartition

A = TopicPartition("t", 0)


@pytest.mark.parametrize(
    ("arguments", "option", "says"),
    [
        ({"topics": 5}, "topics", "is 5, an int: accepts a list of topic names"),
        ({"topics": "a,b"}, "topics", "has 'a,b': several topics are a list, ['a', 'b']"),
        ({"topics": ["a", None]}, "topics", "has None"),
        ({"pattern": 5}, "pattern", "is 5, an int: accepts a regular expression"),
        ({"pattern": b"x"}, "pattern", "is b'x', a bytes: accepts a regular expression"),
        ({"pattern": "("}, "pattern", "is '(', not a regular expression"),
        ({"topics": "a", "pattern": "a"}, "topics", "either topics or pattern"),
        ({"config": 5}, "config", "is an int: accepts a dict of options"),
        ({"config": [("group_id", "g")]}, "config", "a list: accepts a dict"),
        ({"listener": print}, "listener", "accepts a ConsumerRebalanceListener"),
        ({"events": "log"}, "events", "is 'log', a str: accepts a function of one event"),
        ({"metrics": 5}, "metrics", "is an int: accepts"),
        ({"group_id": ""}, "group_id", "is empty"),
        ({"group_idd": "g"}, "group_idd", "did you mean 'group_id'?"),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else "",
)
@pytest.mark.parametrize("kind", [Consumer, AsyncConsumer])
def test_options_that_can_not_be_are_refused_by_name(kind, arguments, option, says):
    with pytest.raises(ConfigError) as caught:
        kind(**{"group_id": "g"} | arguments)
    assert caught.value.option == option
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_polling_with_nothing_to_read_says_what_to_do():
    consumer = Consumer(group_id="g")
    with pytest.raises(UsageError, match=r"topics= or pattern=, or call subscribe\(\) or assign\(\) first"):
        consumer.poll_batch()
    with pytest.raises(UsageError, match="nothing is to be read"):
        next(iter(consumer))


def test_polling_the_async_twin_with_nothing_to_read_says_what_to_do():
    async def test() -> None:
        consumer = AsyncConsumer(group_id="g")
        with pytest.raises(UsageError, match="nothing is to be read"):
            await consumer.poll_batch()
        with pytest.raises(UsageError, match="nothing is to be read"):
            await anext(aiter(consumer))

    asyncio.run(test())


def test_the_lag_before_the_start_says_what_to_do():
    with pytest.raises(UsageError, match=r"call poll_batch\(\) first"):
        AsyncConsumer("t", group_id="g").lag(A)


def test_partitions_are_pairs_of_a_str_and_an_int():
    assert partition_of(("t", 3)) == TopicPartition("t", 3)
    for wrong in ("t", 5, ("t",), ("t", "0"), ("t", True), (5, "t"), None, ["t", 0]):
        with pytest.raises(UsageError, match=r"no partition: give TopicPartition\(topic, partition\)"):
            partition_of(wrong)


def test_a_partition_is_no_list_of_partitions():
    assert partitions_of([("t", 3)]) == [TopicPartition("t", 3)]
    for wrong in (A, "t", 5):
        with pytest.raises(UsageError, match="is no list of partitions"):
            partitions_of(wrong)


@pytest.mark.parametrize(
    ("offsets", "says"),
    [
        ({A: "x"}, "can't commit t-0 at 'x', a str: offsets are ints"),
        ({A: 1.5}, "can't commit t-0 at 1.5, a float"),
        ({A: True}, "can't commit t-0 at True, a bool"),
        ({A: -1}, "can't commit t-0 at -1: offsets start at 0"),
        ({A: ()}, "can't commit t-0 at (): give an offset, or OffsetAndMetadata"),
        ({A: OffsetAndMetadata(1, None)}, "metadata is a str"),
        ({A: OffsetAndMetadata(1, "\ud800")}, "metadata holds a lone surrogate"),
        ({A: (1, "note", "x")}, "leader_epoch an int"),
        ({"t": 1}, "'t', a str, is no partition"),
        ([A], "a list: accepts a dict by TopicPartition"),
        (5, "offsets is 5, an int"),
    ],
)
def test_offsets_that_can_not_be_committed_are_named(offsets, says):
    with pytest.raises(UsageError) as caught:
        offsets_of(offsets)
    assert says in str(caught.value)


def test_offsets_may_come_with_or_without_a_note():
    offsets = {A: 5, ("t", 1): (6, "note"), ("t", 2): OffsetAndMetadata(7, "", 3)}
    assert list(offsets_of(offsets).values()) == [(5, "", -1), (6, "note", -1), (7, "", 3)]


@pytest.mark.parametrize("wrong", ["x", -1, True, float("nan"), [5]])
def test_timeouts_are_milliseconds(wrong):
    with pytest.raises(UsageError, match="accepts milliseconds, at least 0"):
        seconds_of(wrong)


@pytest.mark.parametrize("endless", [math.inf, 2**63 - 1, 10**400])
def test_a_timeout_beyond_all_times_is_one_that_threads_can_wait_for(endless):
    assert 1e8 < seconds_of(endless) < threading.TIMEOUT_MAX / 2


@pytest.mark.parametrize(
    "call",
    [
        lambda many: partition_of(("t", many(7))),
        lambda many: offset_of(many(7), A, "seek"),
        lambda many: offsets_of({("t", many(7)): many(7)}),
        lambda many: offsets_of({("t", 7): (many(7), "", many(7))}),
        lambda many: times_of({("t", many(7)): many(7)}),
    ],
)
def test_numpys_integers_are_as_good(call):
    assert repr(call(np.int64)) == repr(call(int))


@pytest.mark.parametrize("wrong", [np.array([1, 2]), np.float64(3), np.bool_(True), 2.0])
def test_what_is_no_integer_is_no_offset(wrong):
    with pytest.raises(UsageError, match="offsets are ints"):
        offset_of(wrong, A, "seek")


def test_an_offset_has_64_bits():
    assert offset_of(2**63 - 1, A, "seek") == 2**63 - 1
    with pytest.raises(UsageError, match="can't seek t-0 at 9223372036854775808: offsets have 64 bits"):
        offset_of(2**63, A, "seek")
    with pytest.raises(UsageError, match="give milliseconds since 1970"):
        times_of({A: 2**63})


def test_timeouts_have_a_default():
    assert (seconds_of(None), seconds_of(1500), seconds_of(0)) == (60.0, 1.5, 0.0)


def test_times_are_milliseconds():
    assert times_of({A: 5}) == {A: 5}
    with pytest.raises(UsageError, match="the time for t-0 is 'now', a str"):
        times_of({A: "now"})

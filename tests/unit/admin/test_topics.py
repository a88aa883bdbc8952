"""Topics that are created, deleted and grown, with a client whose answers are written down."""

from __future__ import annotations

import asyncio
import math
from types import SimpleNamespace
from typing import Any

import pytest
from fakes.answering import AnsweringClient

from kafka_actors.admin import NewPartitions, NewTopic
from kafka_actors.admin.requests import CallDeadline
from kafka_actors.admin.topics import TopicRequests
from kafka_actors.errors import (
    EncodeError,
    InvalidPartitionsError,
    KafkaTimeoutError,
    TopicAlreadyExistsError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from kafka_actors.protocol import (
    CreatePartitionsResponse,
    CreateTopicsResponse,
    DeleteTopicsResponse,
    MetadataResponse,
)
from kafka_actors.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from kafka_actors.protocol.messages.create_topics import CreatableTopicResult
from kafka_actors.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicState
from kafka_actors.protocol.messages.metadata import MetadataResponseBroker, MetadataResponseTopic

BROKERS = [MetadataResponseBroker(1, "b", 9092)]


def _run(client: Any, call: str, *arguments: Any) -> dict[str, Any]:
    return asyncio.run(getattr(TopicRequests(client), call)(*arguments, CallDeadline(client)))


@pytest.mark.parametrize(
    ("call", "arguments", "response"),
    [
        ("create", ([NewTopic("a")], False), CreateTopicsResponse(topics=[CreatableTopicResult("a")])),
        ("delete", (["a"],), DeleteTopicsResponse(responses=[DeletableTopicResult("a")])),
        (
            "create_partitions",
            ({"a": NewPartitions(2)}, False),
            CreatePartitionsResponse(results=[CreatePartitionsTopicResult("a")]),
        ),
    ],
)
def test_the_controller_is_given_no_more_time_than_its_answer_is_waited_for(
    call: str, arguments: tuple[Any, ...], response: Any
) -> None:
    client = AnsweringClient(response)
    calling = getattr(TopicRequests(client), call)(*arguments, CallDeadline(client, math.inf))  # type: ignore[arg-type]
    assert asyncio.run(calling) == {"a": None}
    assert client.asked[0].timeout_ms == client.config.request_timeout_ms


def test_a_description_creates_no_topic() -> None:
    client = AnsweringClient(MetadataResponse(brokers=BROKERS, topics=[MetadataResponseTopic(3, "gone")]))
    assert isinstance(_run(client, "describe", ["gone"])["gone"], UnknownTopicOrPartitionError)
    assert not client.asked[0].allow_auto_topic_creation


@pytest.mark.parametrize("nothing", [MetadataResponse(), MetadataResponse(error_code=129)])
def test_a_broker_that_knows_no_broker_is_not_believed_that_there_is_no_topic(
    nothing: MetadataResponse,
) -> None:
    """A broker under ZooKeeper that has just started answers so, and one that wants a new bootstrap (KIP-1102)."""
    updates: list[None] = []
    complete = MetadataResponse(brokers=BROKERS, topics=[MetadataResponseTopic(0, "t")])
    client: Any = AnsweringClient(nothing, complete)
    client.cluster = SimpleNamespace(request_update=lambda: updates.append(None))
    assert [topic.name for topic in _run(client, "listed", False)] == ["t"]
    assert updates == [None]


def test_the_controller_is_asked_again_about_those_topics_that_it_could_not_create_yet() -> None:
    moved, exists = CreatableTopicResult("a", error_code=41), CreatableTopicResult("b", error_code=36)
    client = AnsweringClient(
        CreateTopicsResponse(topics=[moved, exists]), CreateTopicsResponse(topics=[CreatableTopicResult("a")])
    )
    answers = _run(client, "create", [NewTopic("a"), NewTopic("b")], False)
    assert answers["a"] is None
    assert isinstance(answers["b"], TopicAlreadyExistsError)
    assert client.nodes == [1, 1]
    assert [[topic.name for topic in request.topics] for request in client.asked] == [["a", "b"], ["a"]]


def test_topics_are_deleted_by_name_at_brokers_of_any_age() -> None:
    results = [DeletableTopicResult("a"), DeletableTopicResult("b", error_code=29)]
    client = AnsweringClient(EncodeError("no topics in version 5"), DeleteTopicsResponse(responses=results))
    answers = _run(client, "delete", ["a", "b"])
    newer, older = client.asked
    assert newer.topics == [DeleteTopicState("a"), DeleteTopicState("b")]
    assert older.topic_names == ["a", "b"]
    assert answers["a"] is None
    assert isinstance(answers["b"], TopicAuthorizationFailedError)
    assert answers["b"].right == "Delete on topic 'b'"


def test_partitions_are_added_up_to_a_total() -> None:
    refused = CreatePartitionsTopicResult("b", 37, "The topic currently has 3 partition(s).")
    client = AnsweringClient(CreatePartitionsResponse(results=[CreatePartitionsTopicResult("a"), refused]))
    totals = {"a": NewPartitions(3, [[1], [2]]), "b": NewPartitions(2)}
    answers = _run(client, "create_partitions", totals, True)
    assert client.asked[0].topics == [
        CreatePartitionsTopic("a", 3, [CreatePartitionsAssignment([1]), CreatePartitionsAssignment([2])]),
        CreatePartitionsTopic("b", 2, None),
    ]
    assert client.asked[0].validate_only
    assert answers["a"] is None
    assert isinstance(answers["b"], InvalidPartitionsError)


def test_without_a_controller_the_call_ends_with_its_time() -> None:
    client = AnsweringClient()
    client.snapshot = type(client.snapshot)(brokers=client.snapshot.brokers)
    ticks = iter(range(1000))
    client.now = lambda: next(ticks) / 10  # type: ignore[method-assign]
    answers = _run(client, "delete", ["a"])
    assert isinstance(answers["a"], KafkaTimeoutError)
    assert "no broker is the controller now" in str(answers["a"])

"""How the admin asks, with a client whose answers are written down beforehand and whose clock stands still."""

import asyncio
import math
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import pytest

from kafka_actors.admin.requests import AskGroups, CallDeadline, Coordinators, persist, raise_first
from kafka_actors.cluster.snapshot import BrokerMetadata
from kafka_actors.config import ClientConfig
from kafka_actors.errors import (
    CoordinatorLoadInProgressError,
    EncodeError,
    GroupAuthorizationFailedError,
    KafkaActorsError,
    KafkaTimeoutError,
    NotCoordinatorError,
    ProtocolError,
    UnknownTopicOrPartitionError,
)
from kafka_actors.protocol import FindCoordinatorRequest, FindCoordinatorResponse
from kafka_actors.protocol.messages.find_coordinator import Coordinator


class Client:
    """Groups have the coordinators of `places`; brokers before 3.0 (`old`) can be asked about one group only."""

    config = ClientConfig(request_timeout_ms=1000, retry_backoff_ms=0, retry_backoff_max_ms=0)

    def __init__(self, places: Mapping[str, int] | None = None, old: bool = False) -> None:
        self.places = dict(places or {})
        self.old = old
        self.time = 0.0

    def now(self) -> float:
        return self.time

    def rand(self) -> float:
        return 0.5

    def least_loaded_node(self) -> int:
        return 1

    async def send(self, node_id: int, request: Any, **_: object) -> FindCoordinatorResponse:
        assert isinstance(request, FindCoordinatorRequest)
        if self.old and request.coordinator_keys:
            raise EncodeError("coordinator_keys is not in version 2")
        found = {
            key: (0, self.places[key]) if key in self.places else (30, -1)
            for key in request.coordinator_keys or [request.key]
        }
        if self.old:
            [(code, node)] = found.values()
            return FindCoordinatorResponse(error_code=code, node_id=node, host="b", port=node)
        return FindCoordinatorResponse(
            coordinators=[
                Coordinator(key, node, "b", node, error_code=code) for key, (code, node) in found.items()
            ]
        )


def _failing(*errors: KafkaActorsError) -> Callable[[float], Any]:
    left = list(errors)

    async def attempt(limit_ms: float) -> float:
        if left:
            raise left.pop(0)
        return limit_ms

    return attempt


def _persist(client: Any, attempt: Callable[[float], Any], timeout_ms: float | None = None) -> Any:
    return persist(client, attempt, CallDeadline(client, timeout_ms))


def test_what_may_pass_is_tried_again() -> None:
    attempt = _failing(CoordinatorLoadInProgressError(), NotCoordinatorError())
    assert asyncio.run(_persist(Client(), attempt)) == 1000


@pytest.mark.parametrize("error", [UnknownTopicOrPartitionError(topic="t"), GroupAuthorizationFailedError()])
def test_what_does_not_pass_is_raised_at_once(error: KafkaActorsError) -> None:
    with pytest.raises(type(error)):
        asyncio.run(_persist(Client(), _failing(error)))


def test_no_attempt_takes_longer_than_a_request_may() -> None:
    assert asyncio.run(_persist(Client(), _failing(), math.inf)) == Client.config.request_timeout_ms


def test_after_the_time_given_the_last_error_is_told() -> None:
    client = Client()

    async def attempt(limit_ms: float) -> None:
        client.time += 0.3
        raise NotCoordinatorError(f"{limit_ms:.0f} ms were left")

    with pytest.raises(KafkaTimeoutError, match=r"no success within 0\.5 s: NOT_COORDINATOR .*: 200 ms were"):
        asyncio.run(_persist(client, attempt, 500))


Answers = dict[str, str | KafkaActorsError]


def _ask(client: Any, groups: list[str], ask: AskGroups[str]) -> Coroutine[Any, Any, Answers]:
    return Coordinators(client).ask(groups, ask, CallDeadline(client))


@pytest.mark.parametrize("old", [False, True], ids=["KIP-699", "one at a time"])
def test_each_group_is_asked_about_at_its_own_coordinator(old: bool) -> None:
    client = Client({"a": 1, "b": 2, "c": 1}, old)
    asked: list[tuple[int, list[str]]] = []

    async def ask(node: BrokerMetadata, groups: list[str], limit_ms: float) -> Answers:
        asked.append((node.node_id, groups))
        return {group: f"{group} at {node.node_id}" for group in groups}

    answers = asyncio.run(_ask(client, ["a", "b", "c", "forbidden"], ask))
    assert isinstance(answers.pop("forbidden"), GroupAuthorizationFailedError)
    assert answers == {"a": "a at 1", "b": "b at 2", "c": "c at 1"}
    assert sorted(asked) == [(1, ["a", "c"]), (2, ["b"])]


def test_a_group_whose_coordinator_moves_is_asked_about_again_and_only_that_one() -> None:
    client = Client({"a": 1, "b": 1})
    asked: list[tuple[int, list[str]]] = []

    async def ask(node: BrokerMetadata, groups: list[str], limit_ms: float) -> Answers:
        asked.append((node.node_id, groups))
        if node.node_id == 1 and "b" in groups:
            client.places["b"] = 2
            return {"a": "here", "b": NotCoordinatorError()}
        return dict.fromkeys(groups, "there")

    answers = asyncio.run(_ask(client, ["a", "b"], ask))
    assert answers == {"a": "here", "b": "there"}
    assert asked == [(1, ["a", "b"]), (2, ["b"])]


def test_a_coordinator_that_fails_takes_no_answer_from_groups_of_others() -> None:
    client = Client({"a": 1, "b": 2})

    async def ask(node: BrokerMetadata, groups: list[str], limit_ms: float) -> Answers:
        if node.node_id == 1:
            raise GroupAuthorizationFailedError("not you")
        return {}  # and this one answers about nothing

    answers = asyncio.run(_ask(client, ["a", "b"], ask))
    assert isinstance(answers["a"], GroupAuthorizationFailedError)
    assert isinstance(answers["b"], ProtocolError)


def test_the_first_error_is_raised_with_the_others_as_notes() -> None:
    raise_first([])
    with pytest.raises(GroupAuthorizationFailedError, match="one") as caught:
        raise_first(GroupAuthorizationFailedError(text) for text in ("one", "two"))
    assert caught.value.__notes__ == [
        "and GROUP_AUTHORIZATION_FAILED (30): two: the principal needs the right Read on group"
    ]

"""The way to the group's coordinator: steps, pauses and patience."""

from __future__ import annotations

import pytest

from kafka_actors.base.backoff import RetryTimer
from kafka_actors.errors import (
    ConnectionFailedError,
    CoordinatorNotAvailableError,
    GroupAuthorizationFailedError,
    KafkaTimeoutError,
)
from kafka_actors.group.machines.coordinator_finder import CoordinatorFinder, read_coordinator
from kafka_actors.group.machines.error_actions import GroupApi
from kafka_actors.group.machines.member_events import CoordinatorNode, GroupRequest
from kafka_actors.protocol import FindCoordinatorResponse
from kafka_actors.protocol.messages.find_coordinator import Coordinator

NODE = CoordinatorNode(3, "b3", 9092)
FOUND = FindCoordinatorResponse(coordinators=[Coordinator(key="g", node_id=3, host="b3", port=9092)])


def finder(*, longest: float = 30.0) -> CoordinatorFinder:
    return CoordinatorFinder("g", request_timeout=9.0, longest_timeout=longest, backoff=RetryTimer(0.1, 1.0))


def sent(machine: CoordinatorFinder, now: float) -> GroupRequest:
    (request,) = machine.poll(now).actions
    return request


def connected(machine: CoordinatorFinder, now: float = 0.0) -> None:
    sent(machine, now)
    machine.found(FOUND, now)
    sent(machine, now)
    assert machine.connected(None, now) == NODE


def test_a_coordinator_is_found_then_connected_then_known() -> None:
    machine = finder()
    ask = sent(machine, 0.0)
    assert (ask.api, ask.body.coordinator_keys, ask.timeout) == (GroupApi.FIND_COORDINATOR, ["g"], 9.0)
    assert not machine.poll(1.0).actions, "one request at a time"
    machine.found(FOUND, 1.0)
    assert machine.node is None, "it is named, not connected"
    connect = sent(machine, 1.0)
    assert (connect.api, connect.body) == (GroupApi.CONNECT, NODE)
    assert not machine.poll(2.0).actions
    assert machine.connected(None, 2.0) == NODE
    assert machine.node == NODE
    assert not machine.poll(100.0).actions


@pytest.mark.parametrize("step", ["find", "connect", "known"])
def test_every_failure_leads_back_to_the_search_after_a_pause(step: str) -> None:
    machine = finder()
    sent(machine, 5.0)
    if step == "find":
        machine.found(CoordinatorNotAvailableError("it moves"), 5.0)
    else:
        machine.found(FOUND, 5.0)
        sent(machine, 5.0)
        if step == "connect":
            assert machine.connected(ConnectionFailedError("b3:9092: refused"), 5.0) is None
        else:
            machine.connected(None, 5.0)
            machine.lost(5.0)
    assert machine.node is None
    ready = machine.poll(5.0)
    assert not ready.actions
    assert ready.next_wake is not None
    assert ready.next_wake > 5.0
    assert sent(machine, ready.next_wake).api is GroupApi.FIND_COORDINATOR


def pauses(machine: CoordinatorFinder, *, proved: bool) -> list[float]:
    """The pauses after each of four losses of a coordinator that was connected."""
    now, found = 0.0, []
    for _ in range(4):
        connected(machine, now)
        if proved:
            machine.proved()
        machine.lost(now)
        wake = machine.poll(now).next_wake
        assert wake is not None
        found.append(wake - now)
        now = wake
    return found


def test_a_broker_that_only_takes_connections_is_asked_less_and_less_often() -> None:
    assert pauses(finder(), proved=False) == pytest.approx([0.1, 0.2, 0.4, 0.8])
    assert pauses(finder(), proved=True) == pytest.approx([0.1, 0.1, 0.1, 0.1])


def test_a_request_without_an_answer_gives_the_next_one_more_time_up_to_the_longest() -> None:
    machine, now, given = finder(longest=20.0), 0.0, []
    for _ in range(3):
        ask = sent(machine, now)
        given.append(ask.timeout)
        machine.found(KafkaTimeoutError("no answer"), now)
        now += 100.0
    assert given == [9.0, 18.0, 20.0]
    sent(machine, now)
    machine.found(FOUND, now + 1.0)  # soon enough for the usual time
    machine.lost(now)
    assert sent(machine, now + 100.0).timeout == 9.0


def test_patience_with_connecting_is_apart_from_patience_with_the_search() -> None:
    machine = finder()
    sent(machine, 0.0)
    machine.found(FOUND, 0.0)
    sent(machine, 0.0)
    machine.connected(KafkaTimeoutError("no connection"), 9.0)
    assert sent(machine, 100.0).timeout == 9.0
    machine.found(FOUND, 100.0)
    assert sent(machine, 100.0).timeout == 18.0


def test_an_error_that_no_retry_mends_is_raised() -> None:
    machine = finder()
    sent(machine, 0.0)
    with pytest.raises(GroupAuthorizationFailedError):
        machine.found(GroupAuthorizationFailedError("no", group="g"), 0.0)


def test_the_node_is_read_from_responses_of_either_shape() -> None:
    assert read_coordinator(FOUND, "g") == NODE
    assert read_coordinator(FindCoordinatorResponse(node_id=3, host="b3", port=9092), "g") == NODE
    with pytest.raises(CoordinatorNotAvailableError, match="g"):
        read_coordinator(FindCoordinatorResponse(error_code=CoordinatorNotAvailableError.code), "g")
    with pytest.raises(ConnectionFailedError):
        read_coordinator(ConnectionFailedError("gone"), "g")

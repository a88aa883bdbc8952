"""Which broker to ask."""

from __future__ import annotations

import random

from kafka_actors.net.machines.node_choice import NodeState, by_load, least_loaded


def node(node_id: int, *, connected=False, connecting=False, in_flight=0, delay=0.0) -> NodeState:
    return NodeState(node_id, connected, connecting, in_flight, delay)


def test_an_idle_connection_comes_first() -> None:
    nodes = [node(1, connected=True, in_flight=1), node(2), node(3, connected=True), node(4, connecting=True)]
    assert by_load(nodes, random.random) == [3, 2, 4, 1]


def test_the_least_busy_of_busy_connections() -> None:
    nodes = [node(1, connected=True, in_flight=3), node(2, connected=True, in_flight=2), node(3, delay=1.0)]
    assert least_loaded(nodes, random.random) == 2


def test_a_connection_that_is_stuck_is_not_asked_while_another_may_be_tried() -> None:
    nodes = [node(1, connected=True, in_flight=1), node(2)]
    assert least_loaded(nodes, random.random) == 2


def test_a_node_that_backs_off_is_not_asked() -> None:
    assert least_loaded([node(1, delay=0.5)], random.random) is None
    assert least_loaded([], random.random) is None


def test_equals_come_in_random_order() -> None:
    rand = random.Random(1).random
    firsts = {least_loaded([node(1), node(2), node(3)], rand) for _ in range(50)}
    assert firsts == {1, 2, 3}

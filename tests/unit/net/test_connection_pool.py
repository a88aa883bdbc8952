"""The connections of a client by node, without sockets: who shares an attempt, and what a failure or a move changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from fakes.loop import in_loop, turns

from kafka_actors.cluster import BrokerMetadata
from kafka_actors.config import ClientConfig, build
from kafka_actors.errors import ConnectionFailedError, DisconnectedError, NodeNotReadyError
from kafka_actors.net import Connection
from kafka_actors.net.connection_pool import ConnectionPool


class Opened:
    """Connection as `Connection.open` returns it here: it is closed when a test says so."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.closed = False
        self.error: Exception | None = None
        self.in_flight = 0
        self.versions = SimpleNamespace(host=host, features_epoch={"a": 3, "b": 2}.get(host, -1))
        self._callbacks: list[Callable[[Any], object]] = []

    def add_close_callback(self, callback: Callable[[Any], object]) -> None:
        self._callbacks.append(callback)

    def close(self, error: Exception | None = None) -> None:
        self.closed, self.error = True, error
        for callback in self._callbacks:
            callback(self)


class Nodes:
    """A pool of two nodes whose addresses may change, over connections that open when `gate` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.known = {0: BrokerMetadata(0, "a", 9092), 1: BrokerMetadata(1, "b", 9092)}
        self.trouble: list[int] = []
        self.opened: list[Opened] = []
        self.first_addresses: list[int] = []
        self.refused: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()

        async def open_one(host: str, *_: Any, first_address: int, **__: Any) -> Opened:
            self.first_addresses.append(first_address)
            await self.gate.wait()
            if self.refused is not None:
                raise self.refused
            self.opened.append(Opened(host))
            return self.opened[-1]

        monkeypatch.setattr(Connection, "open", open_one)
        config = build(ClientConfig)
        self.pool = ConnectionPool(config, self.known.get, self.trouble.append, lambda: self.now, lambda: 0.5)


@in_loop
async def test_the_broker_that_knows_most_of_the_clusters_features_is_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nodes = Nodes(monkeypatch)
    assert nodes.pool.newest_features is None
    await nodes.pool.connection(1, nodes.now + 10)
    assert nodes.pool.newest_features.host == "b"  # type: ignore[union-attr,attr-defined]
    await nodes.pool.connection(0, nodes.now + 10)
    nodes.opened[0].close()
    await nodes.pool.connection(1, nodes.now + 10)
    assert nodes.pool.newest_features.host == "a"  # type: ignore[union-attr,attr-defined]


@in_loop
async def test_callers_share_an_attempt_and_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = Nodes(monkeypatch)
    nodes.gate.clear()
    callers = [asyncio.ensure_future(nodes.pool.connection(0, nodes.now + 10)) for _ in range(3)]
    await turns(5)
    assert nodes.pool.state(0).connecting
    assert not nodes.pool.begin(0), "an attempt is under way"
    nodes.gate.set()
    found = [await caller for caller in callers]
    assert found == nodes.opened * 3
    assert nodes.pool.live(0) is nodes.opened[0]  # type: ignore[comparison-overlap]
    assert nodes.pool.versions is nodes.opened[0].versions  # type: ignore[comparison-overlap]
    await nodes.pool.close()


@in_loop
async def test_a_failure_is_told_to_each_caller_and_the_node_backs_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nodes = Nodes(monkeypatch)
    nodes.refused = ConnectionFailedError("a:9092 connection refused")
    with pytest.raises(ConnectionFailedError, match="refused"):
        await nodes.pool.connection(0, nodes.now + 10)
    assert nodes.trouble == [0]
    assert nodes.pool.error(0) is nodes.refused
    state = nodes.pool.state(0)
    assert (state.connected, state.connecting) == (False, False)
    assert state.delay > 0
    assert nodes.pool.state(1).delay == 0
    with pytest.raises(NodeNotReadyError, match="not known"):
        await nodes.pool.connection(7, nodes.now + 10)


@in_loop
async def test_a_lost_connection_is_trouble_and_one_closed_here_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nodes = Nodes(monkeypatch)
    await nodes.pool.connection(0, nodes.now + 10)
    await nodes.pool.connection(1, nodes.now + 10)
    nodes.opened[0].close()
    assert (nodes.trouble, nodes.pool.error(0)) == ([], None)
    lost = DisconnectedError("the broker closed the connection")
    nodes.opened[1].close(lost)
    assert (nodes.trouble, nodes.pool.error(1)) == ([1], lost)
    assert nodes.pool.live(1) is None


@in_loop
async def test_errors_are_those_of_nodes_without_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = Nodes(monkeypatch)
    assert nodes.pool.errors([0, 1]) == ""
    await nodes.pool.connection(0, nodes.now + 10)
    nodes.opened[0].close(DisconnectedError("the broker closed the connection"))
    nodes.refused = ConnectionFailedError("b:9092 connection refused")
    with pytest.raises(ConnectionFailedError):
        await nodes.pool.connection(1, nodes.now + 10)
    assert (
        nodes.pool.errors([0, 1]) == f"broker 0: {nodes.opened[0].error}; broker 1: b:9092 connection refused"
    )
    nodes.refused, nodes.now = None, nodes.now + 60
    await nodes.pool.connection(0, nodes.now + 10)
    assert nodes.pool.errors([0, 1]) == "broker 1: b:9092 connection refused"
    await nodes.pool.close()


@in_loop
async def test_a_node_that_moved_or_is_gone_loses_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = Nodes(monkeypatch)
    for node_id in (0, 1):
        await nodes.pool.connection(node_id, nodes.now + 10)
    nodes.known[0] = BrokerMetadata(0, "elsewhere", 9092)
    del nodes.known[1]
    nodes.pool.follow()
    assert [each.closed for each in nodes.opened] == [True, True]
    assert nodes.pool.node_ids() == [0]
    assert nodes.trouble == []
    await nodes.pool.connection(0, nodes.now + 10)
    assert nodes.opened[-1].host == "elsewhere"
    await nodes.pool.close()
    assert nodes.pool.node_ids() == []


@in_loop
async def test_after_a_failure_the_next_address_of_a_name_comes_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nodes = Nodes(monkeypatch)
    nodes.refused = ConnectionFailedError("a:9092: connected, but no answer")
    for _ in range(3):
        with pytest.raises(ConnectionFailedError):
            await nodes.pool.connection(0, nodes.now + 10)
        nodes.now += 60
    assert nodes.first_addresses == [0, 1, 2]
    await nodes.pool.close()


@in_loop
async def test_closing_ends_an_attempt_for_its_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = Nodes(monkeypatch)
    nodes.gate.clear()
    caller = asyncio.ensure_future(nodes.pool.connection(0, nodes.now + 10))
    await turns(5)
    await nodes.pool.close()
    with pytest.raises(NodeNotReadyError, match="stopped connecting"):
        await caller


@in_loop
async def test_a_closed_pool_opens_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = Nodes(monkeypatch)
    await nodes.pool.close([0])
    await nodes.pool.connection(0, nodes.now + 10)
    await nodes.pool.close()
    with pytest.raises(NodeNotReadyError, match="the client was closed"):
        await nodes.pool.connection(1, nodes.now + 10)
    with pytest.raises(NodeNotReadyError, match="the client was closed"):
        nodes.pool.begin(1)
    assert len(nodes.opened) == 1

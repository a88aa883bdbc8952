"""Metadata that is learned and refreshed; and asking several nodes, where the first answer counts, and a slow or failing one holds up no other."""

from __future__ import annotations

import asyncio
import time

import pytest
from fakes.loop import in_loop, turns

from kafka_actors.cluster import ClusterMetadata
from kafka_actors.config import ClientConfig, build
from kafka_actors.errors import (
    ConnectionFailedError,
    DisconnectedError,
    NoBrokersError,
    NodeNotReadyError,
    RebootstrapRequiredError,
)
from kafka_actors.net.connection_pool import ConnectionPool
from kafka_actors.net.metadata_refresher import MetadataRefresher, first_answer
from kafka_actors.protocol import MetadataRequest, MetadataResponse
from kafka_actors.protocol.messages.metadata import MetadataResponseBroker

SOON, NEVER_S = 0.0, 3600.0
COMPLETE = MetadataResponse(brokers=[MetadataResponseBroker(1, "b", 9092)])


class Scene:
    """A refresher of one bootstrap server, whose answer waits for `gate`: it is the next of `answers`, an error is raised."""

    def __init__(self, *answers: MetadataResponse | Exception) -> None:
        self.answers = list(answers)
        self.gate = asyncio.Event()
        config = build(ClientConfig, bootstrap_servers="a:1")
        self.cluster = ClusterMetadata(bootstrap_servers="a:1")
        pool = ConnectionPool(
            config, self.cluster.broker_metadata, lambda _: None, time.monotonic, lambda: 0.5
        )
        self.refresher = MetadataRefresher(self.cluster, pool, config, self._ask, time.monotonic, lambda: 0.5)

    async def _ask(self, node_id: int, request: MetadataRequest) -> tuple[MetadataResponse, int]:
        await self.gate.wait()
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer, 13


@pytest.mark.parametrize("answer", [COMPLETE, ConnectionFailedError("refused")])
def test_a_bootstrap_ends_with_the_client_and_leaves_nothing_that_runs(
    answer: MetadataResponse | Exception,
) -> None:
    @in_loop
    async def run() -> None:
        scene = Scene(answer)
        waiting = asyncio.ensure_future(scene.refresher.bootstrap(NEVER_S))
        await turns(5)
        await scene.refresher.stop()
        scene.gate.set()
        with pytest.raises(NodeNotReadyError, match="the client was closed"):
            await waiting
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run()


@in_loop
async def test_topics_that_are_tracked_twice_are_there_once_their_metadata_was_fetched() -> None:
    scene = Scene(COMPLETE)
    first, second = (scene.refresher.track(["a"]) for _ in range(2))
    assert not second.is_done
    scene.gate.set()
    await scene.refresher.refresh()
    assert first.result() is second.result() is scene.refresher.track(["a"]).result() is scene.cluster


@in_loop
async def test_topics_whose_metadata_could_not_be_fetched_are_asked_for_when_they_are_tracked_again() -> None:
    scene = Scene(ConnectionFailedError("refused"), COMPLETE)
    scene.gate.set()
    first = scene.refresher.track(["a"])
    with pytest.raises(NoBrokersError):
        await scene.refresher.refresh()
    assert isinstance(first.exception(), NoBrokersError)
    second = scene.refresher.track(["a"])
    assert not second.is_done
    await scene.refresher.refresh()
    assert second.result() is scene.cluster


@in_loop
async def test_an_answer_about_some_topics_that_demands_to_bootstrap_again_is_heeded() -> None:
    """KIP-1102: the brokers that are known are obsolete."""
    scene = Scene(COMPLETE, MetadataResponse(error_code=RebootstrapRequiredError.code))
    scene.gate.set()
    await scene.refresher.refresh()
    assert scene.refresher.candidates() == [1, -1]
    assert scene.cluster.ttl() > 0
    with pytest.raises(NoBrokersError, match="REBOOTSTRAP_REQUIRED") as caught:
        await scene.refresher.fetch(["t"])
    assert caught.value.retriable, "the bootstrap servers are asked next"
    assert scene.refresher.candidates() == [-1]
    assert scene.cluster.ttl() < NEVER_S, "all metadata is asked for anew"


@in_loop
async def test_an_answer_about_some_topics_that_names_no_broker_is_an_error() -> None:
    scene = Scene(COMPLETE, MetadataResponse())
    scene.gate.set()
    await scene.refresher.refresh()
    with pytest.raises(NoBrokersError, match="without naming any broker"):
        await scene.refresher.fetch(["t"])


@in_loop
async def test_a_node_that_fails_is_followed_by_the_next_at_once() -> None:
    asked: list[int] = []

    async def ask(node_id: int) -> str:
        asked.append(node_id)
        if node_id < 3:
            raise DisconnectedError(f"node {node_id} is gone")
        return f"node {node_id}"

    assert await first_answer(iter([1, 2, 3, 4]), ask, NEVER_S) == "node 3"
    assert asked == [1, 2, 3]


@in_loop
async def test_a_node_that_is_slow_is_not_given_up_when_the_next_is_asked() -> None:
    second_asked = asyncio.Event()

    async def ask(node_id: int) -> str:
        if node_id == 1:
            await second_asked.wait()
            return "the slow one"
        second_asked.set()
        await asyncio.Event().wait()
        return "never"

    assert await first_answer(iter([1, 2]), ask, SOON) == "the slow one"


@in_loop
async def test_the_others_are_cancelled_when_one_has_answered() -> None:
    cancelled: list[int] = []
    second_asked = asyncio.Event()

    async def ask(node_id: int) -> str:
        if node_id == 2:
            second_asked.set()
            return "the quick one"
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(node_id)
            raise
        return "never"

    assert await first_answer(iter([1, 2]), ask, SOON) == "the quick one"
    await asyncio.sleep(0)
    assert cancelled == [1]


@in_loop
async def test_no_answer_is_an_error_with_each_nodes_reason() -> None:
    async def ask(node_id: int) -> str:
        raise DisconnectedError(f"node {node_id} is gone")

    with pytest.raises(NoBrokersError, match="node 1 is gone; node 2 is gone"):
        await first_answer(iter([1, 2]), ask, NEVER_S)
    with pytest.raises(NoBrokersError, match="no broker may be asked yet"):
        await first_answer(iter([]), ask, NEVER_S)


@in_loop
async def test_a_mistake_is_not_taken_for_a_broken_node() -> None:
    async def ask(node_id: int) -> str:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await first_answer(iter([1, 2]), ask, NEVER_S)

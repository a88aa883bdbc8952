"""Links of a worker over handles that answer as told: errors of dead actors and of their code, and which metadata a newcomer gets.

`BrokerLink` is tested in tests/integration/test_shm_transport.py, over real sockets.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from fakes.loop import in_loop, turns
from ray.exceptions import ActorDiedError, RayTaskError, TaskCancelledError

from kafka_actors import protocol
from kafka_actors.cluster import ClusterSnapshot
from kafka_actors.config import JobConfig, build
from kafka_actors.errors import DisconnectedError, NotLeaderOrFollowerError
from kafka_actors.job.messages import CommitReply, CommitRequest, pack, unpack
from kafka_actors.protocol import HeartbeatRequest, HeartbeatResponse
from kafka_actors.ray.links import CoordinatorActorLink, MetadataActorLink, RelayClient, call
from kafka_actors.types import TopicPartition


def handle(**methods: Callable[..., Any]) -> Any:
    """An actor's handle whose methods answer so; one that raises fails the call."""

    def remote(method: Callable[..., Any]) -> Any:
        async def called(*args: Any) -> Any:
            await asyncio.sleep(0)
            return method(*args)

        return SimpleNamespace(remote=called)

    return SimpleNamespace(**{name: remote(method) for name, method in methods.items()})


def raising(error: BaseException) -> Callable[..., Any]:
    def method(*args: Any) -> Any:
        raise error

    return method


def failed_in_the_actor(error: Exception) -> RayTaskError:
    return RayTaskError("poll", "the traceback of the actor", error)


# ------------------------------------------------------------ calls


@in_loop
async def test_an_actor_that_is_not_there_or_dead_is_disconnected() -> None:
    """The caller tries again, with the handle that it has by then."""
    with pytest.raises(DisconnectedError, match="no such actor at the moment"):
        await call(None, "poll")
    with pytest.raises(DisconnectedError, match=r"poll: ActorDiedError"):
        await call(handle(poll=raising(ActorDiedError())), "poll")


@in_loop
async def test_an_actor_that_ends_itself_during_a_call_is_disconnected() -> None:
    """It cancels its calls then. As where a broker is gone: an offset that was looked up there would never be answered."""
    with pytest.raises(DisconnectedError, match="relay: TaskCancelledError"):
        await call(handle(relay=raising(failed_in_the_actor(TaskCancelledError()))), "relay")


@in_loop
async def test_an_error_of_the_actors_own_is_raised_as_it_was_there() -> None:
    own = NotLeaderOrFollowerError(topic="t", partition=1)
    with pytest.raises(NotLeaderOrFollowerError) as ours:
        await call(handle(poll=raising(failed_in_the_actor(own))), "poll")
    assert ours.value is own
    assert ours.value.__cause__ is None, "its code is ours: the traceback of the actor says nothing more"
    with pytest.raises(ZeroDivisionError) as others:
        await call(handle(poll=raising(failed_in_the_actor(ZeroDivisionError("by 0")))), "poll")
    assert isinstance(others.value.__cause__, RayTaskError), "where it was raised"


@in_loop
async def test_notes_of_an_error_are_shown_once_for_where_it_was_raised() -> None:
    error = ValueError("no good")
    error.add_note("raised by the constructor of Made")
    text = "".join(traceback.format_exception(error))
    with pytest.raises(ValueError, match="no good") as raised:
        await call(handle(begin=raising(RayTaskError("begin", text, error).as_instanceof_cause())), "begin")
    assert raised.value.__notes__ == ["raised by the constructor of Made"]
    assert "".join(traceback.format_exception(raised.value.__cause__)).count("raised by") == 1


@in_loop
async def test_commits_of_a_worker_go_to_the_coordinator_that_there_is() -> None:
    request, link = CommitRequest("worker-0.1", 3, []), CoordinatorActorLink()
    with pytest.raises(DisconnectedError):
        await link.commit(request)
    asked = []

    def commit(body: bytes) -> bytes:
        asked.append(unpack(body, CommitRequest))
        return pack(CommitReply(3, [], [], []))

    link.handle = handle(commit=commit)
    assert await link.commit(request) == CommitReply(3, [], [], [])
    assert asked == [request]


# ------------------------------------------------------------ metadata


class Watched:
    """A metadata actor: `asked` has the version and the snapshot of each call, `answers` what it returns."""

    def __init__(self, *answers: ClusterSnapshot | BaseException | None) -> None:
        self.asked: list[tuple[int, ClusterSnapshot | None]] = []
        self._answers = list(answers)
        self.handle = handle(watch=self._watch)

    def _watch(self, version: int, snapshot: bytes | None) -> bytes | None:
        self.asked.append((version, None if snapshot is None else unpack(snapshot, ClusterSnapshot)))
        answer = self._answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return None if answer is None else pack(answer)


OLD, NEW = ClusterSnapshot(version=7, cluster_id="c"), ClusterSnapshot(version=8, cluster_id="c")


@in_loop
async def test_metadata_is_asked_for_by_version_and_stays_where_nothing_is_newer() -> None:
    actor, link = Watched(OLD, None, NEW), MetadataActorLink()
    link.handle, link.incarnation = actor.handle, 1
    assert await link.watch(None) == OLD
    assert await link.watch(OLD) is OLD
    assert await link.watch(OLD) == NEW
    assert actor.asked == [(-1, None), (7, None), (7, None)]


@in_loop
async def test_a_new_metadata_actor_gets_the_snapshot_once() -> None:
    """Its versions begin anew, and its leader epochs must not fall."""
    first, second, link = Watched(OLD), Watched(NEW, None), MetadataActorLink()
    link.handle, link.incarnation = first.handle, 1
    assert await link.watch(None) == OLD
    link.handle, link.incarnation = second.handle, 2
    assert await link.watch(OLD) == NEW
    assert await link.watch(NEW) is NEW
    assert second.asked == [(-1, OLD), (8, None)]


@in_loop
async def test_a_snapshot_whose_call_was_lost_is_sent_again() -> None:
    actor, link = Watched(ActorDiedError(), NEW, None), MetadataActorLink()
    link.handle, link.incarnation = actor.handle, 2
    with pytest.raises(DisconnectedError):
        await link.watch(OLD)
    assert await link.watch(OLD) == NEW
    await link.watch(NEW)
    assert actor.asked == [(-1, OLD), (-1, OLD), (8, None)]


@in_loop
async def test_an_actor_that_comes_while_the_old_one_is_asked_still_gets_the_snapshot() -> None:
    """The answer that is on its way is the old one's."""
    link, second = MetadataActorLink(), Watched(NEW)

    def replaced(version: int, snapshot: bytes | None) -> bytes:
        link.handle, link.incarnation = second.handle, 2
        return pack(OLD)

    link.handle, link.incarnation = handle(watch=replaced), 1
    assert await link.watch(None) == OLD
    assert await link.watch(OLD) == NEW
    assert second.asked == [(-1, OLD)]


# ------------------------------------------------------------ requests to brokers


def relay(metadata: MetadataActorLink | None = None) -> RelayClient:
    config = build(JobConfig, {"group_id": "g", "bootstrap_servers": "localhost:9092"})
    return RelayClient(config, metadata or MetadataActorLink())


@in_loop
async def test_requests_go_through_the_connection_actor_of_their_broker() -> None:
    """In the latest version of the declarations, whatever the broker speaks: the connection actor knows that."""
    asked: list[tuple[Any, ...]] = []

    def relayed(api_key: int, body: bytes, timeout_ms: float | None, min_version: int | None) -> bytes:
        request = protocol.decode_message(HeartbeatRequest, HeartbeatRequest.latest, body)
        asked.append((api_key, request.group_id, timeout_ms, min_version))
        return bytes(protocol.encode(HeartbeatResponse(error_code=27), HeartbeatResponse.latest))

    client = relay()
    client.connections = {1: (1, handle(relay=raising(ActorDiedError()))), 2: (1, handle(relay=relayed))}
    answer = await client.send(2, HeartbeatRequest(group_id="g"), timeout_ms=500, min_version=3)
    assert answer.error_code == 27
    assert asked == [(HeartbeatRequest.api_key, "g", 500, 3)]
    for node in (1, 3):  # dead, and not there
        with pytest.raises(DisconnectedError):
            await client.send(node, HeartbeatRequest(group_id="g"))


@in_loop
async def test_newer_metadata_is_asked_for_by_one_call_at_a_time_and_taken_in() -> None:
    asked = []
    metadata = MetadataActorLink()
    metadata.handle = handle(refresh=lambda: asked.append("refresh"))
    client = relay(metadata)
    client.request_metadata()
    client.request_metadata()
    await turns(5)
    assert asked == ["refresh"]
    client.request_metadata()
    await turns(5)
    assert len(asked) == 2
    client.learn(NEW)
    assert client.snapshot.cluster_id == "c"
    assert client.snapshot.leader(TopicPartition("t", 0)) is None


@in_loop
async def test_demands_for_newer_metadata_are_not_kept_while_there_is_none() -> None:
    """A partition without a leader makes one each second, for days."""
    metadata = MetadataActorLink()
    metadata.handle = handle(refresh=lambda: None)
    for client in (relay(metadata), relay()):
        demands = [client.cluster.request_update() for _ in range(3)]
        await turns(5)
        assert all(demand.is_done for demand in demands)


@in_loop
async def test_a_refresh_without_a_metadata_actor_is_no_error() -> None:
    """A new one fetches metadata first of all."""
    client = relay()
    client.request_metadata()
    await turns(5)
    metadata = MetadataActorLink()
    client = relay(metadata)
    client.request_metadata()
    await turns(5)
    asked: list[str] = []
    metadata.handle = handle(refresh=lambda: asked.append("refresh"))
    client.request_metadata()
    await turns(5)
    assert asked == ["refresh"], "the one that failed holds nothing up"

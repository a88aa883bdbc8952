"""The connection actor on stand-ins of its broker and sockets: one fetcher for each worker, and requests that it relays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fakes.loop import in_loop

from kafka_actors import protocol
from kafka_actors.errors import NodeNotReadyError
from kafka_actors.fetch.messages import FetchedPartition, FetchReply, Pull
from kafka_actors.job.messages import pack, unpack
from kafka_actors.protocol import ListOffsetsRequest, ListOffsetsResponse
from kafka_actors.ray import Job
from kafka_actors.ray.actors import connection_actor
from kafka_actors.ray.actors.connection_actor import ConnectionActor


class Fetcher:
    """Fetches for one worker of a broker."""

    def __init__(
        self, broker: int, host: str, port: int, config: Any, connect: Any, shared: Any, lend: Any
    ) -> None:
        self.where = (broker, host, port)
        self.closed = False
        self.pulls: list[Pull] = []

    async def pull(self, pull: Pull) -> tuple[FetchReply, list[bytes]]:
        self.pulls.append(pull)
        partition = FetchedPartition("t", 0, (0, 1), 0, 1, size=3)
        return FetchReply(broker=self.where[0], sequence=pull.sequence, partitions=[partition], size=3), [
            b"abc"
        ]

    async def close(self) -> None:
        self.closed = True


class Channels:
    """A broker that answers one kind of request."""

    def __init__(self) -> None:
        self.id, self.host, self.port = 7, "h", 9092
        self.connected, self.requests = 0, list[tuple[Any, Any]]()

    async def connect(self) -> None:
        self.connected += 1

    async def request(self, request: Any, **limits: Any) -> ListOffsetsResponse:
        self.requests.append((request, limits))
        return ListOffsetsResponse(throttle_time_ms=5, topics=[])


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Callable[[], ConnectionActor]:
    monkeypatch.setattr(connection_actor, "set_up_process", lambda setup: None)
    monkeypatch.setattr(connection_actor, "set_log_origin", lambda origin: None)
    monkeypatch.setattr(connection_actor, "BrokerFetcher", Fetcher)
    plan = Job(topics=["t"], group_id="g", bootstrap_servers="h:1", process=print).plan()
    return lambda: ConnectionActor(plan.config, plan.setup("connection"))


@in_loop
async def test_a_spare_one_has_no_broker_until_it_begins_and_begins_once(
    make: Callable[[], ConnectionActor],
) -> None:
    spare = make()
    with pytest.raises(NodeNotReadyError, match="no broker yet"):
        await spare.pull("worker-0.1", pack(Pull(0)))
    await spare.begin(7, "h", 9092)
    await spare.begin(8, "elsewhere", 1)  # Ray has lost the first answer
    reply, (records,) = await spare.pull("worker-0.1", pack(Pull(0)))
    assert unpack(reply, FetchReply).broker == 7
    assert records.to_pybytes() == b"abc"


@in_loop
async def test_each_worker_has_a_fetcher_until_it_is_forgotten(make: Callable[[], ConnectionActor]) -> None:
    made = make()
    await made.begin(7, "h", 9092)
    for worker, sequence in (("worker-0.1", 0), ("worker-1.1", 0), ("worker-0.1", 1)):
        await made.pull(worker, pack(Pull(sequence)))
    first, second = made._fetchers["worker-0.1"], made._fetchers["worker-1.1"]
    assert [pull.sequence for pull in first.pulls] == [0, 1]
    await made.forget(["worker-0.1", "worker-9.9"])
    assert (first.closed, second.closed) == (True, False)
    await made.pull("worker-0.1", pack(Pull(0)))
    assert made._fetchers["worker-0.1"] is not first


@in_loop
async def test_requests_of_workers_go_to_the_broker_and_back_in_the_latest_version(
    make: Callable[[], ConnectionActor],
) -> None:
    made = make()
    made._broker = channels = Channels()
    request = ListOffsetsRequest(replica_id=-1, isolation_level=1, topics=[])
    kind = type(request)
    answer = await made.relay(kind.api_key, protocol.encode(request, kind.latest), 250.0, 4)
    assert protocol.decode_message(ListOffsetsResponse, kind.latest, answer).throttle_time_ms == 5
    ((sent, limits),) = channels.requests
    assert sent == request
    assert (limits, channels.connected) == ({"timeout_ms": 250.0, "min_version": 4}, 1)


@in_loop
async def test_of_a_worker_that_never_connected_nothing_is_known(make: Callable[[], ConnectionActor]) -> None:
    assert await make().crash_report("worker-0.1") is None

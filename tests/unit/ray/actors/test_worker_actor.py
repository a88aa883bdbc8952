"""The worker actor as a shell: the handles that it calls, the connection actors that it pulls from, and what it counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from fakes.loop import in_loop

from kafka_actors.job.actor_setup import Wiring
from kafka_actors.job.messages import WorkerPong, unpack
from kafka_actors.ray import Job
from kafka_actors.ray.actors import worker_actor
from kafka_actors.ray.actors.worker_actor import WorkerActor
from kafka_actors.registry import lookups
from kafka_actors.telemetry.instruments import BUFFER_LIMIT, BUFFER_USAGE
from kafka_actors.telemetry.sdk import Settings
from kafka_actors.telemetry.tally import TallyState


class Handle:
    """An actor's handle."""

    def __init__(self, name: str) -> None:
        self.name = name


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., WorkerActor]]:
    monkeypatch.setattr(worker_actor, "set_up_process", lambda setup: None)
    recorded: list[Any] = []
    monkeypatch.setattr(worker_actor, "record_into", recorded.append)

    def made(process: Any = print, telemetry: Settings | None = None) -> WorkerActor:
        plan = Job(topics=["t"], group_id="g", bootstrap_servers="h:1", process=process).plan()
        setup = msgspec.structs.replace(plan.setup("worker-0", 1), telemetry=telemetry)
        return WorkerActor("worker-0.1", plan.spec, plan.config, setup)

    yield made
    assert recorded, "sinks and clients of the user's function count into it"


def wiring(version: int, incarnation: int, **brokers: Any) -> Wiring:
    connections = {int(name[1:]): (incarnation, handle) for name, handle in brokers.items()}
    return Wiring(version, Handle("m"), incarnation, Handle("c"), connections)


@in_loop
async def test_a_wiring_that_comes_late_replaces_no_newer_one(make: Callable[..., WorkerActor]) -> None:
    made = make()
    newer, older = wiring(5, 2, b1=Handle("new")), wiring(4, 1, b1=Handle("old"))
    await made.wire(newer)
    await made.wire(older)
    assert made._coordinator.handle is newer.coordinator
    assert (made._metadata.handle, made._metadata.incarnation) == (newer.metadata, 2)
    assert made._relay.connections == newer.connections
    assert unpack(await made.ping(), WorkerPong).wiring == 5


@in_loop
async def test_a_broker_has_one_link_for_as_long_as_its_connection_actor_is_the_same(
    make: Callable[..., WorkerActor],
) -> None:
    made, handle = make(), Handle("one")
    await made.wire(wiring(1, 1, b1=handle, b2=None))
    link = made._source(1)
    assert link is not None
    assert made._source(1) is link
    assert made._source(2) is None, "its actor is dead, and no other has come up"
    assert made._source(3) is None
    await made.wire(wiring(2, 1, b1=handle))
    assert made._source(1) is link
    await made.wire(wiring(3, 2, b1=Handle("another")))
    assert made._source(1) not in (None, link)


@in_loop
async def test_it_counts_only_where_the_job_is_measured(make: Callable[..., WorkerActor]) -> None:
    assert unpack(await make().ping(), WorkerPong).tally == b""
    made = make(telemetry=Settings())
    counted = unpack(unpack(await made.ping(), WorkerPong).tally, TallyState)
    gauges = {point.name: point.value for point in counted.gauges}
    assert gauges == {BUFFER_USAGE.name: 0, BUFFER_LIMIT.name: made._config.worker_buffer_bytes // 2}
    ((_, worker),) = {
        attribute for point in counted.gauges for attribute in point.attributes if attribute[1] == "worker-0"
    }
    assert worker == "worker-0"


@in_loop
async def test_registries_of_a_pipeline_ask_the_metadata_actor_and_nothing_is_imported_without_any(
    make: Callable[..., WorkerActor], monkeypatch: pytest.MonkeyPatch
) -> None:
    linked: list[Any] = []
    monkeypatch.setattr(lookups, "ask_by", lambda *arguments: linked.append(arguments))

    class Function:
        @classmethod
        def registries(cls) -> list[str]:
            return ["a registry"]

        def __call__(self, batch: Any) -> None: ...

    for process in (Function, print):
        made = make(process)

        async def started() -> None: ...

        monkeypatch.setattr(made._worker, "start", started)
        await made.begin(wiring(1, 1))
        assert linked == [(made._metadata, ["a registry"])] or process is print
    assert len(linked) == 1

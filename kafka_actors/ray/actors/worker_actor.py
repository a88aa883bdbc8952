"""Worker actor: a Ray shell of `Worker`, which the supervisor wires to the other actors."""

from __future__ import annotations

from collections.abc import Callable

from ray.actor import ActorHandle

from kafka_actors.config import JobConfig
from kafka_actors.events import EventSink, log_event
from kafka_actors.fetch import Fetcher
from kafka_actors.job.actor_setup import ProcessSetup, Wiring
from kafka_actors.job.messages import pack
from kafka_actors.job.worker.call_record import CallRecord
from kafka_actors.job.worker.user_function import FunctionSpec
from kafka_actors.job.worker.worker import Worker
from kafka_actors.net import OffsetLookups
from kafka_actors.ray.links import BrokerLink, CoordinatorActorLink, MetadataActorLink, RelayClient
from kafka_actors.telemetry.attributes import of_group
from kafka_actors.telemetry.instruments import BUFFER_LIMIT, BUFFER_USAGE, LATENCY
from kafka_actors.telemetry.machines.latency import histogram
from kafka_actors.telemetry.recorder import Recorder, counting, record_into
from kafka_actors.telemetry.tally import Buckets, Tally, TallyPoint

from .actor import ActorShell, once, set_up_process

__all__ = ["WorkerActor"]


class WorkerActor(ActorShell):
    """Processes the partitions that the coordinator grants; fetches and commits on its own."""

    def __init__(self, name: str, spec: FunctionSpec, config: JobConfig, setup: ProcessSetup) -> None:
        set_up_process(setup)
        self._name = name
        self._tally = None if setup.telemetry is None else Tally()
        self._recorder: Recorder = self._tally or Recorder()
        record_into(self._recorder)  # for its sinks, and for clients in the user's function
        self._wiring = Wiring(0)
        self._coordinator = CoordinatorActorLink()
        self._metadata = MetadataActorLink()
        self._relay = RelayClient(config, self._metadata)
        self._links: dict[int, tuple[ActorHandle, BrokerLink]] = {}
        self._spec = spec
        self._config = config
        # The other half is for decoded records on their way to the user's function.
        self._budget = config.worker_buffer_bytes // 2
        self._call_record = CallRecord.of_this_process()
        self._worker = Worker(
            name,
            spec,
            config,
            self._coordinator,
            self._metadata,
            self._make_fetcher,
            on_metadata=self._relay.learn,
            events=counting(self._recorder, config.group_id, log_event),
            recorder=self._recorder,
            call_record=self._call_record,
        )

    def _make_fetcher(self, events: EventSink, on_ready: Callable[[], None]) -> Fetcher:
        return Fetcher(
            self._config,
            sources=self._source,
            lookups=OffsetLookups(self._relay),
            request_metadata=self._relay.request_metadata,
            events=events,
            on_ready=on_ready,
            budget=self._budget,
            # A call of an async function may take long: other partitions go on beside it.
            one_by_one=self._spec.is_async,
            recorder=self._recorder,
        )

    def _source(self, broker: int) -> BrokerLink | None:
        _, handle = self._wiring.connections.get(broker, (0, None))
        if handle is None:
            return None
        known, record = (
            self._links.get(broker),
            self._call_record.descriptor if self._call_record is not None else None,
        )
        if known is None or known[0] != handle:
            known = self._links[broker] = (handle, BrokerLink(self._name, handle, record))
        return known[1]

    @once
    async def begin(self, wiring: Wiring) -> None:
        """Makes the user's class and starts to work. Raises what its constructor raises."""
        await self.wire(wiring)
        if registries := self._spec.registries:
            from kafka_actors.registry.lookups import ask_by  # imports a client that few jobs need

            ask_by(self._metadata, registries)
        await self._worker.start()

    async def wire(self, wiring: Wiring) -> None:
        """Takes the handles of the actors that this one calls. An older wiring that arrives late is ignored."""
        if wiring.version < self._wiring.version:
            return
        self._wiring = wiring
        self._coordinator.handle = wiring.coordinator
        self._metadata.handle = wiring.metadata
        self._metadata.incarnation = wiring.metadata_incarnation
        self._relay.connections = wiring.connections

    async def ping(self) -> bytes:
        return pack(self._worker.pong(self._wiring.version, self._counted()))

    def _counted(self) -> bytes:
        if self._tally is None:
            return b""
        group = self._config.group_id
        worker = of_group(group, worker=self._name.rpartition(".")[0])
        limit = self._budget
        gauges = [
            TallyPoint(BUFFER_USAGE.name, worker, self._worker.buffered),
            TallyPoint(BUFFER_LIMIT.name, worker, limit),
        ]
        latency = Buckets(LATENCY.name, of_group(group), *histogram(self._worker.latency, LATENCY.boundaries))
        return pack(self._tally.state(gauges, [latency]))

    @once
    async def close(self) -> None:
        await self._worker.close()

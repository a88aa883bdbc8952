"""From a job's status to the page's document."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from kafka_actors.base.rates import known_sum
from kafka_actors.status_page.document import (
    BrokerView,
    ConnectionView,
    ControlView,
    Document,
    GroupView,
    HealthView,
    JobView,
    PartitionView,
    ScalingView,
    TotalsView,
    WorkerView,
)
from kafka_actors.telemetry.attributes import kind_of_reason

from .rates import JobRates, WorkerRate

if TYPE_CHECKING:
    from kafka_actors.job.messages import PartitionStatus
    from kafka_actors.job.status import ActorStatus, JobStatus, WorkerStatus

__all__ = ["JobFacts", "document_of", "totals_of"]

UNHELD = "no worker"
_NOT_BLOCKED = frozenset({"", "at_end"})


class JobFacts(Struct, frozen=True, kw_only=True):
    """What doesn't change while a job runs."""

    name: str | None
    topics: list[str]
    version: str
    session_timeout_s: float
    protocol: str = "classic"


def document_of(
    status: JobStatus,
    totals: TotalsView,
    pace: JobRates | None,
    about: JobFacts,
    health: HealthView,
    *,
    at_s: float,
    silent_s: float | None,
) -> Document:
    """The document of this moment. `silent_s`: for how long the coordinator has not answered, None if it never has."""
    workers = pace.workers if pace else {}
    several = len({actor.node for actor in status.others}) > 1
    return Document(
        at_s=at_s,
        job=JobView(
            name=about.name,
            group=status.group_id,
            topics=about.topics,
            state=status.state,
            state_since_s=status.state_since_s,
            started_s=status.started_s,
            version=about.version,
        ),
        health=health,
        group=_group(status, about, at_s, silent_s),
        totals=totals,
        brokers=_brokers(status),
        connections=[_connection(actor, several) for actor in status.others if actor.broker is not None],
        control=[_control(actor, several) for actor in status.others if actor.broker is None],
        workers=[_worker(worker, workers.get(worker.name)) for worker in status.workers],
        partitions=[_partition(partition) for partition in status.partitions],
        scaling=_scaling(status),
        timeline=status.timeline,
    )


def totals_of(status: JobStatus, pace: JobRates | None) -> TotalsView:
    """The job as a whole."""
    ages = [p.lag_seconds for p in status.partitions if p.lag_seconds is not None]
    latency = pace.latency if pace else None
    return TotalsView(
        records=status.records,
        value_bytes=status.value_bytes,
        records_per_s=pace.records_per_s if pace else None,
        value_bytes_per_s=pace.value_bytes_per_s if pace else None,
        lag=known_sum(p.lag for p in status.partitions),
        lag_s=max(ages, default=None),
        latency_p50_ms=latency.p50_ms if latency else None,
        latency_p99_ms=latency.p99_ms if latency else None,
        partitions=len(status.partitions),
        blocked=sum(kind_of_reason(_reason(p)) not in _NOT_BLOCKED for p in status.partitions),
        workers=len(status.workers),
        workers_ready=sum(worker.ready for worker in status.workers),
        restarts=sum(status.restarts.values()),
    )


def _group(status: JobStatus, about: JobFacts, at_s: float, silent_s: float | None) -> GroupView:
    group = status.group
    age = group.heartbeat_age_s if group else None
    return GroupView(
        protocol=about.protocol,
        state=group.state if group else "unknown",
        generation=group.generation if group and group.generation >= 0 else None,
        member_id=group.member_id if group else "",
        instance_id=group.group_instance_id if group else None,
        rebalances=group.rebalances if group else 0,
        heartbeat_age_s=None if age is None else age + (silent_s or 0.0),
        session_timeout_s=about.session_timeout_s,
        answered_s=None if silent_s is None else at_s - silent_s,
    )


def _brokers(status: JobStatus) -> list[BrokerView]:
    leads: dict[int, int] = {}
    for partition in status.partitions:
        if partition.leader is not None:
            leads[partition.leader] = leads.get(partition.leader, 0) + 1
    known = {actor.broker: (actor.host, actor.port) for actor in status.others if actor.broker is not None}
    return [
        BrokerView(broker=broker, host=known[broker][0], port=known[broker][1], leads=leads.get(broker, 0))
        for broker in sorted(known)
    ]


def _name(actor: ActorStatus, several: bool) -> str:
    """Of an actor that each of several nodes has."""
    each_node = several and actor.role in ("connection", "spare")
    return f"{actor.name}@{(actor.node or '')[:8]}" if each_node else actor.name


def _connection(actor: ActorStatus, several: bool) -> ConnectionView:
    assert actor.broker is not None
    return ConnectionView(
        name=_name(actor, several),
        node=actor.node or "",
        broker=actor.broker,
        pid=actor.pid,
        ready=actor.ready,
        restarts=actor.restarts,
    )


def _control(actor: ActorStatus, several: bool) -> ControlView:
    return ControlView(
        name=_name(actor, several),
        role=actor.role,
        node=actor.node,
        pid=actor.pid,
        ready=actor.ready,
        restarts=actor.restarts,
    )


def _worker(worker: WorkerStatus, pace: WorkerRate | None) -> WorkerView:
    state = "ready" if worker.ready else "starting"
    return WorkerView(
        name=worker.name,
        node=worker.node,
        pid=worker.pid,
        state="retiring" if worker.retiring else state,
        ready=worker.ready,
        partitions=len(worker.partitions),
        records=worker.records,
        value_bytes=worker.value_bytes,
        records_per_s=pace.records_per_s if pace else None,
        value_bytes_per_s=pace.value_bytes_per_s if pace else None,
        busy=pace.busy if pace else None,
        restarts=worker.restarts,
    )


def _partition(partition: PartitionStatus) -> PartitionView:
    return PartitionView(
        topic=partition.topic,
        partition=partition.partition,
        leader=partition.leader,
        worker=partition.worker,
        position=partition.position,
        committed=partition.committed,
        end=partition.end,
        lag=partition.lag,
        lag_s=partition.lag_seconds,
        state=partition.state,
        reason=_reason(partition),
    )


def _reason(partition: PartitionStatus) -> str:
    return partition.reason or (UNHELD if partition.state == "free" else "")


def _scaling(status: JobStatus) -> ScalingView:
    scaling, policy = status.scaling, status.scaling.autoscale
    return ScalingView(
        workers=scaling.workers,
        policy=str(policy) if policy else None,
        target_lag_s=policy.target_lag_seconds if policy else None,
        holding=scaling.holding,
        backlog_s=scaling.backlog_seconds,
        arriving_per_s=scaling.arriving_per_s,
        processed_per_s=scaling.processed_per_s,
        pace_per_s=scaling.pace_per_s,
        busy=scaling.busy,
    )

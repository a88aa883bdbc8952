"""A status and a history of a job as a status page has them, for tests of their readers."""

from __future__ import annotations

import math

from kafka_actors.job.autoscale import Autoscale
from kafka_actors.job.machines.health import Health
from kafka_actors.job.machines.timeline import TimelineEntry
from kafka_actors.job.status import (
    ActorStatus,
    GroupState,
    JobStatus,
    JobTotals,
    PartitionStatus,
    ScalingStatus,
    TransactionStatus,
    WindowStatus,
    WorkerStatus,
)
from kafka_actors.status_page.machines.history import History, PlotPoint

AT_S = 1_795_328_400.0
NODES = (
    "3f1c0a5b7d2e4c698a1b0c2d3e4f5061728394a5b6c7d8e9f0a1b2c3",
    "b07e44d1905f4c6e8b3a2d1c0f9e8d7c6b5a49382716054433221100",
)
REASONS = {
    3: "retrying: offset 120031, ValueError",
    5: "broker 2: connection refused",
    7: "paused",
    9: "buffer full",
}


def sample_status(partitions: int = 24, workers: int = 4, *, at_s: float = AT_S) -> JobStatus:
    """A job of so many partitions and workers on three brokers and two nodes, with a bit of everything."""
    held = [_partition(number, workers) for number in range(partitions)]
    control = [
        ActorStatus("coordinator.2", "coordinator", 4_001, NODES[0], True, 1),
        ActorStatus("metadata.1", "metadata", 4_002, NODES[0], True, 0),
        ActorStatus("spare-0.1", "spare", 4_003, NODES[0], True, 0),
    ]
    connections = [
        ActorStatus(
            name=f"connection-{broker}.{2 if broker == 2 else 1}",
            role="connection",
            node=node,
            broker=broker,
            pid=4_100 + 10 * place + broker,
            ready=not (broker == 2 and place),
            restarts=int(broker == 2),
            host=f"kafka-{broker}.kafka.svc",
            port=9092,
        )
        for place, node in enumerate(NODES)
        for broker in (1, 2, 3)
    ]
    return JobStatus(
        at_s=at_s,
        name="orders-scorer",
        group_id="scorer",
        topics=["orders", "orders.returns"],
        state="running",
        state_since_s=at_s - 890.0,
        started_s=at_s - 893.4,
        version="0.1.0",
        health=Health(live=True, ready=True),
        group=GroupState(
            state="stable",
            generation=7,
            member_id="scorer-orders-scorer-5b0f6a0e-1c7d-4b7a-9f0e-3d2c1b0a9f8e",
            group_instance_id="scorer-orders-scorer",
            partitions=partitions,
            rebalances=3,
            heartbeat_age_s=1.2,
        ),
        session_timeout_s=45.0,
        answered_s=at_s - 0.1,
        records=184_302_511,
        value_bytes=18_430_251_100,
        transactions=TransactionStatus(
            committed=120, aborted=2, repeated=40, cause="ProducerFencedError: fenced", open_s=0.4
        ),
        totals=JobTotals(
            records_per_s=212_400.0,
            value_bytes_per_s=21_240_000.0,
            lag=sum(p.lag or 0 for p in held),
            lag_s=38.5,
            latency_p50_ms=84.0,
            latency_p99_ms=1_310.0,
            blocked=sum(bool(p.reason) and p.reason != "at end" for p in held),
            workers_ready=max(0, workers - 1),
            restarts=2,
            window=WindowStatus(8_400, 640, 2, 700, 12.5, "offset 125065, key #5f0c2e7b"),
        ),
        others=[*connections, *control],
        connections={node: [1, 2, 3] for node in NODES},
        restarts={"coordinator": 1, "worker-1": 1},
        actors={actor.name: actor.pid for actor in control},
        workers=[_worker(number, workers, held) for number in range(workers)],
        partitions=held,
        scaling=ScalingStatus(
            workers=workers,
            autoscale=Autoscale(min=1, max=16),
            holding="workers were added 4 s ago",
            backlog_seconds=22.4,
            arriving_per_s=198_000.0,
            processed_per_s=212_400.0,
            pace_per_s=61_000.0,
            busy=0.87,
        ),
        latency={4: 184_302_511},
        timeline=[
            TimelineEntry(number=1, at_s=at_s - 893.4, kind="state", text="starting"),
            TimelineEntry(
                number=2,
                at_s=at_s - 891.0,
                kind="rebalance",
                text="the group gave 24 partitions in generation 6",
            ),
            TimelineEntry(number=3, at_s=at_s - 890.0, kind="state", text="running"),
            TimelineEntry(
                number=4,
                at_s=at_s - 610.0,
                kind="restart",
                text="coordinator.1 is ended: its process is stopped or gone",
            ),
            TimelineEntry(
                number=5,
                at_s=at_s - 608.5,
                kind="rebalance",
                text="generation 7 is there after 1.1 s",
            ),
            TimelineEntry(
                number=6,
                at_s=at_s - 300.0,
                kind="restart",
                text="worker-1.1 died (its process is gone); a replacement starts",
            ),
            TimelineEntry(
                number=7,
                at_s=at_s - 300.0,
                kind="move",
                text="worker-1.1 gives up 6 partitions: worker died",
            ),
            TimelineEntry(
                number=8,
                at_s=at_s - 120.0,
                kind="stall",
                text="orders-3 has not moved for 300 s: retrying: offset 120031, ValueError",
            ),
            TimelineEntry(
                number=9,
                at_s=at_s - 62.0,
                kind="workers",
                text="3 → 4: the backlog of 1,310,000 records is 44 s of work",
            ),
            TimelineEntry(
                number=10,
                at_s=at_s - 60.5,
                kind="move",
                text="worker-0.1 gives up 6 partitions: balance",
            ),
            TimelineEntry(
                number=11,
                at_s=at_s - 60.1,
                kind="drain",
                text="worker-0.1 has drained 5 partitions",
            ),
            TimelineEntry(
                number=12,
                at_s=at_s - 55.5,
                kind="forced",
                text="worker-0.1 had not drained orders-11 by the deadline",
            ),
        ],
    )


def sample_history(points: int = 900, *, last_s: float = AT_S) -> History:
    """The last minutes, one point a second: waves, a burst, and a gap where the coordinator was replaced."""
    return History(
        run="5b0f6a0e1c7d4b7a",
        last=points,
        every_s=1.0,
        keeps_s=900.0,
        points=[_point(number, points, last_s) for number in range(1, points + 1)],
    )


def _partition(number: int, workers: int) -> PartitionStatus:
    topic = "orders" if number % 4 != 3 else "orders.returns"
    free = number == 13
    position = 120_000 + 1_013 * number
    lag = (0, 12, 830, 54_210)[number % 4] + number
    reason = "no worker" if free else REASONS.get(number, "at end" if number % 4 == 0 else "")
    return PartitionStatus(
        topic=topic,
        partition=number,
        leader=None if free else 1 + number % 3,
        worker=None if free else f"worker-{number % workers}.{2 if number % workers == 1 else 1}",
        position=None if free else position,
        committed=position - 40 * (number % 5),
        end=None if free else position + lag,
        lag=None if free else lag,
        lag_seconds=None if free else (0.0, 0.4, 3.1, 38.5)[number % 4],
        state="free" if free else ("draining" if number == 11 else "granted"),
        reason=reason,
    )


def _worker(number: int, workers: int, held: list[PartitionStatus]) -> WorkerStatus:
    name = f"worker-{number}.{2 if number == 1 else 1}"
    starting = number == workers - 1
    return WorkerStatus(
        name=name,
        node=NODES[number % 2],
        pid=None if starting and workers > 1 else 4_200 + number,
        ready=not starting,
        partitions=[(p.topic, p.partition) for p in held if p.worker == name],
        records=46_000_000 - 3_000_000 * number,
        value_bytes=4_600_000_000 - 300_000_000 * number,
        records_per_s=53_100.0 + 1_000 * number,
        value_bytes_per_s=5_310_000.0 + 100_000 * number,
        busy=min(1.0, 0.55 + 0.1 * number),
        restarts=int(number == 1),
    )


def _point(number: int, points: int, last_s: float) -> PlotPoint:
    at_s = last_s - (points - number)
    age = points - number
    if 606 <= age <= 610:
        return PlotPoint(
            number=number,
            at_s=at_s,
            records_per_s=None,
            value_bytes_per_s=None,
            lag=None,
            lag_s=None,
            latency_p50_ms=None,
            latency_p99_ms=None,
        )
    burst = 1_400_000 * math.exp(-(((age - 140) / 60) ** 2))
    rate = 150_000 + 30_000 * math.sin(number / 20) + burst / 20
    lag = int(4_000 + 1_500 * math.sin(number / 35) + burst)
    return PlotPoint(
        number=number,
        at_s=at_s,
        records_per_s=rate,
        value_bytes_per_s=100 * rate,
        lag=lag,
        lag_s=lag / 150_000,
        latency_p50_ms=60 + 20 * math.sin(number / 15) + burst / 400,
        latency_p99_ms=260 + 90 * math.sin(number / 11) + burst / 90,
    )

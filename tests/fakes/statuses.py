"""Statuses of a job for tests of what is made of them."""

from __future__ import annotations

from typing import Any

from kafka_actors.job.status import (
    ActorStatus,
    GroupState,
    JobStatus,
    PartitionStatus,
    ScalingStatus,
    WorkerStatus,
)


def worker(name: str, records: int = 0, **more: Any) -> WorkerStatus:
    given = {
        "pid": 7,
        "node": "n1",
        "ready": True,
        "partitions": [],
        "value_bytes": 10 * records,
        "restarts": 0,
    }
    return WorkerStatus(**{"name": name, "records": records, **given, **more})


def partition(number: int = 0, **more: Any) -> PartitionStatus:
    given = {"worker": "worker-0.1", "position": 10, "committed": 8, "end": 15, "lag": 5, "state": "granted"}
    return PartitionStatus(**{"topic": "t", "partition": number, **given, **more})


def connection(broker: int, node: str = "n1", **more: Any) -> ActorStatus:
    given = {"pid": 9, "ready": True, "restarts": 0, "host": f"b{broker}", "port": 9092}
    return ActorStatus(
        **{
            "name": f"connection-{broker}.1",
            "role": "connection",
            "node": node,
            "broker": broker,
            **given,
            **more,
        }
    )


def job(*workers: WorkerStatus, **more: Any) -> JobStatus:
    """Running, with these workers; what it has processed is what they have, unless it is said."""
    given: dict[str, Any] = {
        "state": "running",
        "group_id": "g",
        "group": GroupState("stable", 3, "m", "g-a", 2, 1, 0.5),
        "workers": list(workers),
        "partitions": [],
        "records": sum(w.records for w in workers),
        "value_bytes": sum(w.value_bytes for w in workers),
        "connections": {},
        "restarts": {},
        "actors": {},
        "scaling": ScalingStatus(workers=len(workers)),
        "started_s": 1_000.0,
        "state_since_s": 1_002.0,
    }
    return JobStatus(**{**given, **more})

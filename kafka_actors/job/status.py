"""What `RunningJob.status()` returns."""

from __future__ import annotations

from msgspec import Struct

from kafka_actors.base.rates import known_sum
from kafka_actors.status_page.document import Entry

from .autoscale import Autoscale
from .messages import GroupState, PartitionStatus

__all__ = ["ActorStatus", "JobStatus", "ScalingStatus", "WorkerStatus", "WorkersChange"]


class WorkerStatus(Struct, frozen=True):
    """One worker. `records` and `value_bytes` count what this incarnation has processed. `work_s`: for how many
    seconds it was at work; `retiring`: it gives up what it has, because there are to be fewer."""

    name: str
    pid: int | None
    node: str | None
    ready: bool
    partitions: list[tuple[str, int]]
    records: int
    value_bytes: int
    restarts: int
    work_s: float = 0.0
    retiring: bool = False


class ActorStatus(Struct, frozen=True):
    """An actor of the job that is no worker. `role`: metadata, coordinator, connection or spare. A connection actor
    has the `broker` that it is connected to, with host and port; it shares its name with those of other nodes."""

    name: str
    role: str
    pid: int | None
    node: str | None
    ready: bool
    restarts: int
    broker: int | None = None
    host: str = ""
    port: int = 0


class WorkersChange(Struct, frozen=True):
    """The number of workers was changed `seconds_ago`. `number` counts the changes of a job, from 1."""

    number: int
    before: int
    after: int
    reason: str
    seconds_ago: float


class ScalingStatus(Struct, frozen=True, kw_only=True):
    """How many workers there should be, and why.

    `autoscale`: the policy that decides; None where the number is fixed, and then nothing is measured. `holding`: why
    the policy has not changed the number though it might seem that it should, or what a worker waits for that has no
    place in the Ray cluster. `backlog_seconds`: how long this many
    workers take for the backlog, at their recent pace. Rates are records a second; `pace_per_s`: of one worker that is
    always busy; `busy`: the share of its time that the busiest worker was at work. `changes`: the last twenty.
    """

    workers: int
    autoscale: Autoscale | None = None
    holding: str = ""
    backlog_seconds: float | None = None
    arriving_per_s: float | None = None
    processed_per_s: float | None = None
    pace_per_s: float | None = None
    busy: float | None = None
    changes: list[WorkersChange] = []


class JobStatus(Struct, frozen=True):
    """A job at one moment. `state`: starting, running, paused, stopping, stopped or failed.

    `records` and `value_bytes`: processed by all workers, including those that are gone.
    `connections`: node of the Ray cluster → brokers that a connection actor on it is connected to. `actors`: name
    with incarnation → pid. `restarts`: role → how often it was replaced. `scaling`: how many workers there should be.
    `others`: the actors that are no workers. `latency`: records by the bucket of their latency, from timestamp to
    processed, since the start (`kafka_actors.telemetry.machines.latency`). `timeline`: the last two hundred things
    that happened. `started_s`, `state_since_s`: when the job started, and entered its state, in seconds since 1970.
    `page`: the URL of its status page, empty where it has none; `page_node`: the IP address of the machine that serves
    it. `waits_for`: what a job that starts still waits for, in words, with the last error of a connection; empty later.
    `unconfirmed`: of a job that has stopped, the partitions with work whose commit no broker has confirmed: those records
    may come again.
    """

    state: str
    group_id: str
    group: GroupState | None
    workers: list[WorkerStatus]
    partitions: list[PartitionStatus]
    records: int
    value_bytes: int
    connections: dict[str, list[int]]
    restarts: dict[str, int]
    actors: dict[str, int | None]
    scaling: ScalingStatus
    others: list[ActorStatus] = []
    latency: dict[int, int] = {}
    timeline: list[Entry] = []
    started_s: float = 0.0
    state_since_s: float = 0.0
    page: str = ""
    page_node: str = ""
    waits_for: list[str] = []
    unconfirmed: list[tuple[str, int]] = []

    @property
    def lag(self) -> int:
        """Records of this job's partitions that are not processed yet, as far as their ends are known."""
        return known_sum(p.lag for p in self.partitions) or 0

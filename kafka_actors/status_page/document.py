"""The status page's JSON: `/status.json` is a `Document`, `/history.json?after=N` a `History`.

Moments are seconds since 1970 (`at_s`, `…_since_s`), the ends of field names are units: `_s`, `_ms`, `_per_s`
and `_bytes`. Null is what nobody knows at the moment. Whoever reads these has to pass over fields that are
not known to it: there may be more.
"""

from __future__ import annotations

from msgspec import Struct

__all__ = [
    "BrokerView",
    "ConnectionView",
    "ControlView",
    "Document",
    "Entry",
    "GroupView",
    "HealthView",
    "History",
    "JobView",
    "PartitionView",
    "PlotPoint",
    "ScalingView",
    "TotalsView",
    "WorkerView",
]


class JobView(Struct, frozen=True, kw_only=True):
    """The job. `state`: starting, running, paused, stopping, stopped or failed. `name`: null without one.

    `topics`: what it was told to consume, a pattern as one text.
    """

    name: str | None
    group: str
    topics: list[str]
    state: str
    state_since_s: float
    started_s: float
    version: str


class HealthView(Struct, frozen=True, kw_only=True):
    """What `/healthz` and `/readyz` say now. `reason`: why it isn't ready, in one line; else empty."""

    live: bool
    ready: bool
    reason: str


class GroupView(Struct, frozen=True, kw_only=True):
    """The job as a member of its Kafka group.

    `protocol`: classic or consumer (KIP-848). `state`: as the member is: unjoined, joining, syncing, stable,
    revoking, leaving, left or fatal; unknown until the coordinator has said something. `generation`: of the
    group, its epoch under KIP-848. `heartbeat_age_s`: since the last heartbeat was sent that the broker
    acknowledged. `answered_s`: when the coordinator actor answered last.
    """

    protocol: str
    state: str
    generation: int | None
    member_id: str
    instance_id: str | None
    rebalances: int
    heartbeat_age_s: float | None
    session_timeout_s: float
    answered_s: float | None


class TotalsView(Struct, frozen=True, kw_only=True):
    """The whole job. Rates and latency are those of the last five seconds.

    `records` and `value_bytes`: processed since the start, by workers that are gone by now, too; bytes are
    those of the values, decompressed. `lag`: records of the job's partitions that are not processed yet;
    `lag_s`: the largest of its partitions', see there. `latency_p50_ms`, `latency_p99_ms`: from a record's
    timestamp (when it was made, or appended where the topic says so) to its having been processed, as the
    clocks of producer or broker and worker tell: an estimate from a sample of each batch; null while nothing
    is processed. `blocked`: partitions with a reason why nothing is read.
    """

    records: int
    value_bytes: int
    records_per_s: float | None
    value_bytes_per_s: float | None
    lag: int | None
    lag_s: float | None
    latency_p50_ms: float | None
    latency_p99_ms: float | None
    partitions: int
    blocked: int
    workers: int
    workers_ready: int
    restarts: int


class BrokerView(Struct, frozen=True, kw_only=True):
    """A broker that the job is connected to. `leads`: so many of the job's partitions."""

    broker: int
    host: str
    port: int
    leads: int


class ConnectionView(Struct, frozen=True, kw_only=True):
    """A connection actor: one for each broker on each node of the Ray cluster that has workers. It fetches
    for those workers. `name`: role and incarnation, and where there are several nodes the beginning of its
    node: `connection-2.1@3f1c0a5b`."""

    name: str
    node: str
    broker: int
    pid: int | None
    ready: bool
    restarts: int


class ControlView(Struct, frozen=True, kw_only=True):
    """One of the job's other actors. `role`: coordinator, metadata or spare (takes the place of a connection
    actor that dies)."""

    name: str
    role: str
    node: str | None
    pid: int | None
    ready: bool
    restarts: int


class WorkerView(Struct, frozen=True, kw_only=True):
    """A worker. `name`: role and incarnation, as `worker-3.2`. `state`: starting, ready, or retiring.

    `records` and `value_bytes`: processed by this incarnation. `busy`: the share of its time that it was at
    work, 0 to 1. `restarts`: how often this worker was replaced.
    """

    name: str
    node: str | None
    pid: int | None
    state: str
    ready: bool
    partitions: int
    records: int
    value_bytes: int
    records_per_s: float | None
    value_bytes_per_s: float | None
    busy: float | None
    restarts: int


class PartitionView(Struct, frozen=True, kw_only=True):
    """A partition of the job.

    `leader`: the broker that it is read from; `worker`: who has it. `position`: the next offset to read,
    `committed`: the group's offset, `end`: where the log ends (under read_committed: the last stable offset).
    `lag`: records not processed yet; `lag_s`: how long ago the log ended where the job is now. `state`: free,
    granted, draining, leaving or released. `reason`: why nothing of it is read or processed, empty where all
    is well; `at end` is that of a bounded run's partition that is done, and is not counted as blocked.
    """

    topic: str
    partition: int
    leader: int | None
    worker: str | None
    position: int | None
    committed: int | None
    end: int | None
    lag: int | None
    lag_s: float | None
    state: str
    reason: str


class ScalingView(Struct, frozen=True, kw_only=True):
    """How many workers there should be, and why. `policy`: such as `1..16`; null where a number was said, and
    then there are no measures. `holding`: why the policy changes nothing though it might seem that it should.
    `backlog_s`: how long so many workers take for what waits. `pace_per_s`: of one worker that has no time
    left; `busy`: of the busiest worker, 0 to 1."""

    workers: int
    policy: str | None
    target_lag_s: float | None
    holding: str
    backlog_s: float | None
    arriving_per_s: float | None
    processed_per_s: float | None
    pace_per_s: float | None
    busy: float | None


class Entry(Struct, frozen=True, kw_only=True):
    """Something that happened. `number`: counts from 1.

    `kind`: state (of the job; with the reason where it failed), rebalance (what the group gave and took),
    restart (an actor was replaced), workers (their number was changed), move (a worker is to give up
    partitions), drain (it has drained them), forced (it had not by the deadline) or stall (a partition with
    records did not move).
    """

    number: int
    at_s: float
    kind: str
    text: str


class Document(Struct, frozen=True, kw_only=True):
    """`/status.json`: a job at one moment. `timeline`: the last things that happened, the oldest first."""

    at_s: float
    job: JobView
    health: HealthView
    group: GroupView
    totals: TotalsView
    brokers: list[BrokerView]
    connections: list[ConnectionView]
    control: list[ControlView]
    workers: list[WorkerView]
    partitions: list[PartitionView]
    scaling: ScalingView
    timeline: list[Entry]


class PlotPoint(Struct, frozen=True, kw_only=True):
    """One moment of the plots. `number`: counts from 1, and is what `after` means. All values are as in
    `TotalsView`; those of a moment at which the coordinator did not answer are null."""

    number: int
    at_s: float
    records_per_s: float | None
    value_bytes_per_s: float | None
    lag: int | None
    lag_s: float | None
    latency_p50_ms: float | None
    latency_p99_ms: float | None


class History(Struct, frozen=True, kw_only=True):
    """`/history.json?after=N`: the points whose number is above N, the oldest first; all of them without
    `after`, and where N is higher than any: then another process has begun to count anew, which `run` says,
    too. `last`: the highest number. `every_s`: how far apart points are made; `keeps_s`: for how long they
    are kept."""

    run: str
    last: int
    every_s: float
    keeps_s: float
    points: list[PlotPoint]

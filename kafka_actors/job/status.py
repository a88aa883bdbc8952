"""Status of a job: the one model that `RunningJob.status()` returns, the status page serves as `/status.json`, and
`kafka-actors top` reads back.

Moments are seconds since 1970. `None`, null in JSON, is a value that isn't known at the moment. Readers of the JSON
have to skip members that they don't know: later releases may add some.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable

from msgspec import Struct

from .autoscale import Autoscale
from .machines.health import Health
from .machines.timeline import TimelineEntry

__all__ = [
    "ActorStatus",
    "GroupState",
    "JobStatus",
    "JobTotals",
    "PartitionStatus",
    "ScalingStatus",
    "TransactionStatus",
    "WindowStatus",
    "WorkerStatus",
    "WorkersChange",
    "key_text",
    "merged",
]


LONGEST_KEY = 40
"""The most characters of a key that are shown."""


class GroupState(Struct, frozen=True):
    """The job as a member of its Kafka group.

    `state`: unjoined, joining, syncing, stable, revoking, leaving, left or fatal. `generation`: of the group, -1 while
    the job isn't in it. `partitions`: how many it has; `rebalances`: how many it went through. `heartbeat_age_s`: seconds
    since the last heartbeat was sent that the broker acknowledged. `members`: how many the group has, of which the job
    is one; None unless the job is measured.
    """

    state: str
    generation: int
    member_id: str
    group_instance_id: str | None
    partitions: int
    rebalances: int
    heartbeat_age_s: float | None = None
    members: int | None = None


class WindowStatus(Struct, frozen=True):
    """The window of a partition, or of several, in a job whose calls overtake each other (`ordering` other than `partition`).

    `records`: from the first that isn't done to the newest one fetched; `calls`: in hand; `parked`: calls that failed and wait to be made
    again; `keys`: with a record in hand, parked or ready, 0 where keys don't matter. `held_s`: the seconds for which the first record
    that isn't done has held up the offset to commit; None where all are done. `held_by`: its offset and key.
    """

    records: int = 0
    calls: int = 0
    parked: int = 0
    keys: int = 0
    held_s: float | None = None
    held_by: str = ""


class PartitionStatus(Struct, frozen=True):
    """A partition of the job: the worker that has it, or those that share it, separated by ", ", and how far it is.

    `position`: the next offset to read; `committed`: the group's offset; `end`: where the log ends (under read_committed: the last
    stable offset); `start`: where it begins, None unless the job is measured. `lag`: records not processed yet; `lag_seconds`: how long
    ago its end was where the job is now. `state`: free, granted, draining, leaving or released. `reason`: why nothing of it is read or
    processed; empty where all is well. `leader`: the broker that it is read from, None while none is known. `window`: where calls overtake each other."""

    topic: str
    partition: int
    worker: str | None
    position: int | None
    committed: int | None
    end: int | None
    lag: int | None
    state: str
    reason: str = ""
    lag_seconds: float | None = None
    leader: int | None = None
    start: int | None = None
    window: WindowStatus | None = None


class WorkerStatus(Struct, frozen=True):
    """A worker. `name`: role and incarnation, as `worker-3.2`; `restarts`: how often this role was replaced.

    `ready`: whether it has started; `retiring`: it gives up its partitions, because there are to be fewer workers.
    `partitions`: the topic and number of each that it holds. `records`, `value_bytes` and `work_s` count what this
    incarnation has processed and the seconds that it was at work. `records_per_s`, `value_bytes_per_s` and `busy`, the
    share of its time that it was at work (0 to 1), are those of the last five seconds.
    """

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
    records_per_s: float | None = None
    value_bytes_per_s: float | None = None
    busy: float | None = None


class ActorStatus(Struct, frozen=True):
    """An actor of the job other than a worker. `role`: metadata, coordinator, connection or spare (it takes the place of
    a connection actor that dies).

    A connection actor has the `broker` that it is connected to, with `host` and `port`, and fetches for the workers on
    its node. Each node of the Ray cluster that has workers has one for each broker, and these share their name.
    """

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
    """A change of the number of workers, `seconds_ago`. `number` counts the changes of a job, from 1."""

    number: int
    before: int
    after: int
    reason: str
    seconds_ago: float


class ScalingStatus(Struct, frozen=True, kw_only=True):
    """Number of workers that there should be, and why.

    `autoscale`: the policy that decides; None where the number is fixed, and then nothing is measured. `holding`: why
    the policy has not changed the number though it might seem that it should, or what a worker waits for that has no
    place in the Ray cluster. `backlog_seconds`: how long this many workers take for the backlog, at their recent pace.
    Rates are records a second; `pace_per_s`: of one worker that is always busy; `busy`: the share of its time that the
    busiest worker was at work. `changes`: the last twenty.
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


class JobTotals(Struct, frozen=True, kw_only=True):
    """Figures of the whole job. Rates and latency are those of the last five seconds, None while the coordinator
    doesn't answer.

    `lag`: records of the job's partitions that are not processed yet, as far as their ends are known; `lag_s`: the
    largest `lag_seconds` of a partition. `latency_p50_ms` and `latency_p99_ms`: from a record's timestamp (when it was
    made, or appended where the topic says so) to the end of its processing, by the clocks of the producer or broker and
    of the worker: an estimate from a sample of each batch; None while nothing is processed. `blocked`: the number of
    partitions of which nothing is read or processed though there is something to. `restarts`: replacements of actors of every role.
    `window`: where calls overtake each other, all partitions together.
    """

    records_per_s: float | None = None
    value_bytes_per_s: float | None = None
    lag: int | None = None
    lag_s: float | None = None
    latency_p50_ms: float | None = None
    latency_p99_ms: float | None = None
    blocked: int = 0
    workers_ready: int = 0
    restarts: int = 0
    window: WindowStatus | None = None


class TransactionStatus(Struct, frozen=True, kw_only=True):
    """Transactions of a job that delivers exactly once, of all workers. `committed` and `aborted`: how many; `repeated`: the records whose
    results were aborted, and that were read again; `cause`: why the last one was aborted. `open_s`: how long the oldest
    open one has been so; None where none is. `committed_ago_s`: how long ago the last one was committed, None if never.
    """

    committed: int = 0
    aborted: int = 0
    repeated: int = 0
    cause: str = ""
    open_s: float | None = None
    committed_ago_s: float | None = None


NO_BROKER, NO_TOPIC = "a broker: ", "topics: "
PROBLEMS = (NO_BROKER, NO_TOPIC)
"""Beginnings of what is missing in the Kafka cluster, among the words of `JobStatus.waits_for`."""


class JobStatus(Struct, frozen=True):
    """A job at one moment. `state`: starting, running, paused, stopping, stopped or failed.

    `records` and `value_bytes` (of the values, decompressed): processed by all workers, including those that are gone.
    `totals`: rates, lag, latency and counts of the whole job.
    `connections`: node of the Ray cluster → brokers that a connection actor on it is connected to. `actors`: name
    with incarnation → pid. `restarts`: role → how often it was replaced. `scaling`: how many workers there should be.
    `others`: the actors that are not workers. `latency`: records by the bucket of their latency, from timestamp to
    processed, since the start (`kafka_actors.telemetry.machines.latency`). `timeline`: the last two hundred things
    that happened, the oldest first. `started_s`, `state_since_s`: when the job started, and entered its state, in
    seconds since 1970. `page`: the URL of its status page, empty where it has none; `page_node`: the IP address of the
    machine that serves it. `waits_for`: what a job that starts still waits for, in words, with the last error of a
    connection; empty later. `unconfirmed`: of a job that has stopped, the partitions with work whose commit no broker
    has confirmed: those records may come again.

    `at_s`: the moment of this status. `name`: None for a job without one. `topics`: what the job consumes, a pattern as
    one text. `version`: of kafka-actors. `health`: whether the job is live and ready. `answered_s`: when the coordinator
    answered last, None if it never did; `group` and `partitions` are of then. `session_timeout_s`: the job leaves its
    group when no heartbeat was acknowledged for so long. `transactions`: of a job that delivers exactly once, else None.
    `schemas`: stage of a pipeline → the schema of a registry by which it reads or writes.
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
    timeline: list[TimelineEntry] = []
    started_s: float = 0.0
    state_since_s: float = 0.0
    page: str = ""
    page_node: str = ""
    waits_for: list[str] = []
    unconfirmed: list[tuple[str, int]] = []
    at_s: float = 0.0
    name: str | None = None
    topics: list[str] = []
    version: str = ""
    health: Health = Health()
    answered_s: float | None = None
    session_timeout_s: float = 0.0
    totals: JobTotals = JobTotals()
    transactions: TransactionStatus | None = None
    schemas: dict[str, str] = {}

    def __repr__(self) -> str:
        totals = self.totals
        pace = "" if totals.records_per_s is None else f", {totals.records_per_s:,.0f} records/s"
        lag = "" if totals.lag is None else f", lag {totals.lag:,}"
        name = "" if self.name is None else f"{self.name!r} "
        return (
            f"<JobStatus {name}of group {self.group_id!r}: {self.state}, "
            f"{totals.workers_ready} of {len(self.workers)} workers ready, {self.records:,} records{pace}{lag}>"
        )

    @property
    def lag(self) -> int:
        """Records of this job's partitions that are not processed yet, as far as their ends are known."""
        return self.totals.lag or 0


def merged(windows: Iterable[WindowStatus | None]) -> WindowStatus | None:
    """Returns the sums of windows, with the record that has held up its offset for longest; None where there is no window."""
    found = [window for window in windows if window is not None]
    if not found:
        return None
    longest = max(found, key=lambda window: -1.0 if window.held_s is None else window.held_s)
    return WindowStatus(
        sum(window.records for window in found),
        sum(window.calls for window in found),
        sum(window.parked for window in found),
        sum(window.keys for window in found),
        longest.held_s,
        longest.held_by,
    )


def key_text(key: Hashable, *, redact: bool = True) -> str:
    """Returns words for a key: a digest that tells two keys apart and doesn't show them, or with `redact=False` the key itself."""
    if not isinstance(key, bytes):
        return "without a key"
    if redact:
        return f"key #{hashlib.blake2s(key, digest_size=4).hexdigest()}"
    try:
        text = repr(key.decode())
    except UnicodeDecodeError:
        text = f"0x{key.hex()}"
    return f"key {text if len(text) <= LONGEST_KEY else text[: LONGEST_KEY - 1] + '…'}"

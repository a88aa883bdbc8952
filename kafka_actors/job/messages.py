"""What the actors say to each other: frozen, tagged Structs, sent as MessagePack and validated on receipt.

Every message is safe to receive twice and out of order. An assignment epoch is (incarnation of the
coordinator actor, n), compared for equality only. Workers call, the coordinator answers: nothing waits for a
worker, so a frozen one delays nobody. Record bytes answer a worker's own pull and never travel inside these
messages: they lie in memory that both processes map (`door`), or are the return value of a Ray call. The messages of
that pull stand in `kafka_actors.fetch.messages`.
"""

from __future__ import annotations

import pickle
from typing import TypeVar

import msgspec
from msgspec import Struct

from kafka_actors.base import decoders
from kafka_actors.errors import KafkaActorsError
from kafka_actors.types import TopicPartition

from .machines.timeline import TimelineEntry

GrantEpoch = tuple[int, int]
Version = tuple[int, int]

__all__ = [
    "ActorInfo",
    "CallInHand",
    "CommitEntry",
    "CommitReply",
    "CommitRequest",
    "ConnectionReport",
    "ConnectionWanted",
    "CoordinatorStatus",
    "CrashReport",
    "DeathsInCall",
    "Drain",
    "Grant",
    "GrantEpoch",
    "GroupState",
    "HeldReport",
    "Identity",
    "JobFailure",
    "JobStart",
    "Orders",
    "PartitionStatus",
    "Report",
    "Topology",
    "Version",
    "WorkerPlan",
    "WorkerPong",
    "WorkerProgress",
    "pack",
    "packed_error",
    "unpack",
]

M = TypeVar("M")

_encoder = msgspec.msgpack.Encoder()


def pack(message: Struct) -> bytes:
    """MessagePack bytes of one message."""
    return _encoder.encode(message)


def packed_error(error: BaseException) -> bytes:
    """An exception as bytes for a process of the same user; one that can't be pickled keeps its text."""
    try:
        pickled = pickle.dumps(error)
        pickle.loads(pickled)
    except Exception:
        pickled = pickle.dumps(KafkaActorsError(f"{type(error).__name__}: {error}"))
    return pickled


def unpack(data: bytes | memoryview, kind: type[M]) -> M:
    """The message of the given kind. Raises `msgspec.ValidationError` if the bytes are anything else."""
    return decoders.msgpack(kind).decode(data)


class CallInHand(Struct, frozen=True, tag=True):
    """A call of the user's function with these records, by their first and last offset."""

    partition: TopicPartition
    first: int
    last: int


class CrashReport(Struct, frozen=True, tag=True):
    """What a worker's process left: the calls that it had in hand, and how it ended, as far as it could say."""

    calls: list[CallInHand]
    ended: str = ""


class DeathsInCall(Struct, frozen=True, tag=True):
    """So often a worker's process ended in the call with these records and no other; `how` it did last."""

    partition: TopicPartition
    first: int
    last: int
    times: int
    how: str


class Grant(Struct, frozen=True, tag=True):
    """One partition given to a worker under an epoch.

    `offset`: the group's committed offset to start from; None: there is none, the reset policy decides.
    `continues`: the epoch under which this very worker holds the partition already; it goes on from its own
    position. `end_offset`: stop there (bounded runs). `from_start`: the partition appeared in a topic that
    is consumed already, so it is read from its beginning whatever the policy says. `topic_id`: as in `fetch.Start`.
    `died`: a call in which a worker died, if that is not done with.
    """

    partition: TopicPartition
    epoch: GrantEpoch
    offset: int | None = None
    leader_epoch: int = -1
    end_offset: int | None = None
    continues: GrantEpoch | None = None
    from_start: bool = False
    topic_id: bytes | None = None
    died: DeathsInCall | None = None


class Drain(Struct, frozen=True, tag=True):
    """One partition to let go of. `epoch` and `continues` as in `Grant`: a new coordinator incarnation may want it
    drained before its worker has heard of it."""

    partition: TopicPartition
    epoch: GrantEpoch
    continues: GrantEpoch | None = None


class HeldReport(Struct, frozen=True, tag=True):
    """A partition as its worker has it. `processed`: the next offset after what its function returned for."""

    partition: TopicPartition
    epoch: GrantEpoch
    processed: int | None = None
    leader_epoch: int = -1
    position: int | None = None
    end: int | None = None
    finished: bool = False
    blocked: str = ""


class Report(Struct, frozen=True, tag=True):
    """A worker to the coordinator: everything it holds. It answers with `Orders`, at once or by `wait_s`.

    `work_s`: how many seconds there was something to work on since its start. `latency`: records by the bucket of their
    latency (`kafka_actors.telemetry.machines.latency`).
    """

    worker: str
    seen: Version
    ready: bool
    holdings: list[HeldReport]
    records: int = 0
    value_bytes: int = 0
    failed: bytes | None = None
    wait_s: float = 0.5
    work_s: float = 0.0
    latency: dict[int, int] = {}


class Orders(Struct, frozen=True, tag=True):
    """The coordinator to a worker: everything it may hold. A partition in neither list is dropped at once.

    `draining`: finish the batch in hand, commit, then report without it. `lease_s`: how long, from the moment
    the worker *asked*, it may call the user's function and commit. `version`, (incarnation, n), rises with each
    change: orders of an older coordinator never replace those of a newer one. `hold`: the worker goes on with what
    it has, because it has seen these orders, or because a new coordinator does not know yet who has what; having
    seen this, it hears no older one.
    """

    version: Version
    grants: list[Grant]
    draining: list[Drain]
    lease_s: float
    paused: bool = False
    hold: bool = False


class CommitEntry(Struct, frozen=True, tag=True):
    """The next offset to read of one partition. `rewind`: a declared reset, which alone may lower an offset. `topic_id`: of
    the topic that the offset is of, None if that isn't known."""

    partition: TopicPartition
    epoch: GrantEpoch
    offset: int
    leader_epoch: int = -1
    rewind: bool = False
    topic_id: bytes | None = None


class CommitRequest(Struct, frozen=True, tag=True):
    """A worker's finished work. `at_once`: a drain waits for it. `trace`: the `traceparent` of its span, if any."""

    worker: str
    sequence: int
    entries: list[CommitEntry]
    at_once: bool = False
    trace: str = ""


class CommitReply(Struct, frozen=True, tag=True):
    """`committed`: what the broker acknowledged. `refused`: entries whose epoch is no longer this worker's."""

    sequence: int
    committed: list[CommitEntry]
    refused: list[TopicPartition]
    failed: list[tuple[TopicPartition, str]]


class WorkerPlan(Struct, frozen=True, tag=True):
    """The supervisor to the coordinator: the workers there should be, and which of them are to be retired.

    `complete`: all workers that the job starts with are ready. Until then nothing is granted, so that the first
    to come up isn't given what is taken from it again a moment later. `expected`: how many there are to be once all
    have come up. `ends_every_s`: how often to ask the brokers for the ends of the logs, because somebody decides by
    the lag or looks at it: what a fetch says of them is as old as the fetch, and a worker with full buffers makes
    none. `measured`: there are metrics of the job, which also tell where the logs begin and how many members the group
    has. `silent`: workers of whose nodes nothing is heard, or was heard before Ray called them dead; what they have goes
    to others when their leases are over.
    `unconnected`: workers on whose nodes the connection actors come up: they could not read yet. `died`: calls in which
    workers died. `ready`: workers that have come up, which may hold what an older incarnation of the coordinator granted.
    """

    version: int
    capacities: dict[str, float]
    retiring: list[str]
    paused: bool
    complete: bool
    expected: int = 0
    ends_every_s: float | None = None
    measured: bool = False
    silent: list[str] = []
    unconnected: list[str] = []
    died: list[DeathsInCall] = []
    ready: list[str] = []


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


class PartitionStatus(Struct, frozen=True):
    """A partition of the job: the worker that has it, and how far it is.

    `position`: the next offset to read; `committed`: the group's offset; `end`: where the log ends (under
    read_committed: the last stable offset); `start`: where it begins, None unless the job is measured. `lag`: records
    not processed yet; `lag_seconds`: how long ago its end was where the job is now. `state`: free, granted, draining,
    leaving or released. `reason`: why nothing of it is read or processed; empty where all is well. `leader`: the broker
    that it is read from, None while none is known.
    """

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


class CoordinatorStatus(Struct, frozen=True, tag=True):
    """Everything that `RunningJob.status()` shows of the group and its partitions.

    `finished`: a bounded run has processed and committed all of its partitions to their ends. `records`,
    `value_bytes` and `latency` count the work of workers that are gone, too. `timeline`: what happened since the entry
    that was asked for. `unconfirmed`: of a job that was stopped, the partitions with work whose commit no broker has
    confirmed. `passed`: calls in which workers died, and behind which something is committed.
    """

    group: GroupState
    partitions: list[PartitionStatus]
    workers: dict[str, WorkerProgress]
    finished: bool
    records: int
    value_bytes: int
    fatal: bytes | None = None
    retired: list[str] = []
    latency: dict[int, int] = {}
    timeline: list[TimelineEntry] = []
    unconfirmed: list[TopicPartition] = []
    passed: list[DeathsInCall] = []


class WorkerProgress(Struct, frozen=True):
    """Counters of a worker since its start."""

    ready: bool
    records: int
    value_bytes: int
    failed: bytes | None = None
    work_s: float = 0.0


class ConnectionWanted(Struct, frozen=True, tag=True):
    """A connection actor that should exist: to this broker, on this node of the Ray cluster."""

    node: str
    broker: int
    host: str
    port: int


class ConnectionReport(Struct, frozen=True, tag=True):
    """A connection actor that lives, as the supervisor started it."""

    node: str
    broker: int
    host: str
    port: int
    incarnation: int


class Topology(Struct, frozen=True, tag=True):
    """What the metadata actor answers to the supervisor's watch."""

    version: int
    wanted: list[ConnectionWanted]


class JobStart(Struct, frozen=True, tag=True):
    """How the topics were when the job started; kept by the supervisor over all incarnations.

    `partitions`: those that existed; any that appears later is read from its beginning. `ends`: where a
    bounded run ends in each of them.
    """

    partitions: list[TopicPartition]
    ends: list[tuple[TopicPartition, int]] | None = None


class Identity(Struct, frozen=True, tag=True):
    """Who the job is in its group; the same for every incarnation of its coordinator.

    `member_id`: what the group calls a dynamic member. A new incarnation goes on as that one; as a newcomer it
    would wait for its predecessor's session to end.
    """

    group_instance_id: str | None
    member_id: str = ""


class ActorInfo(Struct, frozen=True, tag=True):
    """Where an actor runs."""

    pid: int
    node: str


class WorkerPong(Struct, frozen=True, tag=True):
    """A worker's answer to a ping. `busy_s`: seconds since the current call of the user's function began. `tally`: what
    it counted, a packed `TallyState`; empty where nobody asks."""

    wiring: int
    busy_s: float | None
    ready: bool
    tally: bytes = b""


class JobFailure(Struct, frozen=True, tag=True):
    """An exception on its way to the driver: pickled, with its text for where unpickling fails."""

    text: str
    pickled: bytes


def failure_of(error: BaseException) -> bytes:
    """An exception as bytes for the driver; one that can't be pickled keeps its text."""
    return pack(JobFailure(f"{type(error).__name__}: {error}", packed_error(error)))

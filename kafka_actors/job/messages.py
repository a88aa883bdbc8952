"""Messages between a job's actors: frozen, tagged Structs, sent as MessagePack and validated on receipt.

Each message may be received twice and out of order without harm. A grant epoch is (incarnation of the coordinator actor, n), compared for
equality only. Workers call and the coordinator answers, so a frozen worker delays nobody. Record bytes are not in these messages: they lie
in shared memory (`job/transport/`), or are the result of a Ray call. The messages of a pull are in `kafka_actors.fetch.messages`.
"""

from __future__ import annotations

import pickle
from typing import TypeVar

import msgspec
from msgspec import Struct

from kafka_actors.base import decoders
from kafka_actors.base.callables import type_and_text
from kafka_actors.errors import KafkaActorsError
from kafka_actors.events import NewSchemaSeen
from kafka_actors.types import ConsumerGroupMetadata, TopicPartition

from .lanes import SliceDone
from .machines.timeline import TimelineEntry
from .status import GroupState, PartitionStatus, WindowStatus
from .transactions import ProducerGrant, TransactionalIds, TransactionReport

GrantEpoch = tuple[int, int]
"""Incarnation of the coordinator actor, and a number: stands for one grant of a partition to a worker."""
Version = tuple[int, int]
"""Incarnation of the coordinator actor, and a number that rises with each change of a worker's orders."""

__all__ = [
    "ActorInfo",
    "CallInHand",
    "CommitEntry",
    "CommitReply",
    "CommitRequest",
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
    """Encodes a message as MessagePack."""
    return _encoder.encode(message)


def packed_error(error: BaseException) -> bytes:
    """Pickles an exception for a process of the same user; of one that can't be pickled only the text is kept."""
    try:
        pickled = pickle.dumps(error)
        pickle.loads(pickled)
    except Exception:
        pickled = pickle.dumps(KafkaActorsError(type_and_text(error)))
    return pickled


def unpack(data: bytes | memoryview, kind: type[M]) -> M:
    """Decodes a message of this type. Raises `msgspec.ValidationError` for any other bytes."""
    return decoders.msgpack(kind).decode(data)


class CallInHand(Struct, frozen=True, tag=True):
    """A call of the user's function that has not returned, with the first and last offset of its records."""

    partition: TopicPartition
    first: int
    last: int


class CrashReport(Struct, frozen=True, tag=True):
    """Calls that a dead worker had in hand, and how its process ended; empty where that isn't known."""

    calls: list[CallInHand]
    ended: str = ""


class DeathsInCall(Struct, frozen=True, tag=True):
    """Number of `times` that a worker died in the call with these records, and no other; `how` it ended last."""

    partition: TopicPartition
    first: int
    last: int
    times: int
    how: str


class Grant(Struct, frozen=True, tag=True):
    """Grant of one partition to a worker, under an epoch.

    `offset`: the group's committed offset to start from; None if there is none, and the reset policy decides. `continues`: the
    epoch under which this worker holds the partition already; it goes on from its own position. `end_offset`: stop there
    (bounded runs). `from_start`: the partition is newer than the job, so it is read from its beginning whatever the policy.
    `topic_id`: as in `fetch.PartitionStart`. `died`: calls in which workers died, unless their records were processed since. `done`: the
    text of what is done beyond `offset` (`group.done_offsets`). `part`, `parts`: the slice of the partition (`job.lanes`) that is granted;
    `slices`: what is known to be done of slices, also of those in which it was dealt before.
    """

    partition: TopicPartition
    epoch: GrantEpoch
    offset: int | None = None
    leader_epoch: int = -1
    end_offset: int | None = None
    continues: GrantEpoch | None = None
    from_start: bool = False
    topic_id: bytes | None = None
    died: list[DeathsInCall] = []
    done: str = ""
    part: int = 0
    parts: int = 1
    slices: list[SliceDone] = []


class Drain(Struct, frozen=True, tag=True):
    """Order to release one partition. `epoch` and `continues`: as in `Grant`, because a new coordinator incarnation may drain
    what its worker still holds under an older epoch. `void`: without a commit, because others have begun it anew."""

    partition: TopicPartition
    epoch: GrantEpoch
    continues: GrantEpoch | None = None
    void: bool = False


class HeldReport(Struct, frozen=True, tag=True):
    """Partition as its worker reports it. `processed`: the offset after the last record for which the function returned, in the topic with
    this `topic_id`; `position`: the next offset to fetch; `end`: of its log; `blocked`: why nothing of it is processed; `committed`: by the
    worker's own transactions, None in a job without; `part`, `parts`: as in `Grant`; `window`: where calls
    overtake each other."""

    partition: TopicPartition
    epoch: GrantEpoch
    processed: int | None = None
    leader_epoch: int = -1
    position: int | None = None
    end: int | None = None
    finished: bool = False
    blocked: str = ""
    committed: int | None = None
    part: int = 0
    parts: int = 1
    topic_id: bytes | None = None
    window: WindowStatus | None = None


class Report(Struct, frozen=True, tag=True):
    """Report of a worker to the coordinator, with all its partitions; answered with `Orders`, at once or within `wait_s`.

    `seen`: the version of the newest orders that it has applied. `ready`: the user's class is made. Since its start: `records` and
    `value_bytes` processed, `work_s` seconds at work, `latency`, records by the bucket of theirs (`kafka_actors.telemetry.machines.latency`),
    `new_schemas` of values. `failed`: packed, why it can't go on.
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
    transactions: TransactionReport | None = None
    new_schemas: list[NewSchemaSeen] = []


class Orders(Struct, frozen=True, tag=True):
    """Orders of the coordinator to a worker: all that it may hold. A partition in neither list is dropped at once.

    `draining`: finish the call in hand, commit, then report without the partition. `lease_s`: how long, from the moment the
    worker *asked*, it may call the user's function and commit. `version` rises with each change, and over incarnations: orders of
    an older coordinator never replace those of a newer one. `hold`: the lists are empty, and the worker keeps what it has: it has
    seen these orders, or a new coordinator does not know yet who holds what. `producer`: in which session it may write, None for
    none, also in a job without transactions. `watermarks`: of partitions dealt in slices, the offset below which all slices are done.
    """

    version: Version
    grants: list[Grant]
    draining: list[Drain]
    lease_s: float
    paused: bool = False
    hold: bool = False
    producer: ProducerGrant | None = None
    watermarks: list[tuple[TopicPartition, int]] = []


class CommitEntry(Struct, frozen=True, tag=True):
    """Offset to commit for one partition: that of the next record to read. `rewind`: the position was reset, and only then may
    the committed offset fall. `topic_id`: of the topic that the offset is of, None if unknown. `done`: the text of what is done beyond
    it (`group.done_offsets`)."""

    partition: TopicPartition
    epoch: GrantEpoch
    offset: int
    leader_epoch: int = -1
    rewind: bool = False
    topic_id: bytes | None = None
    done: str = ""


class CommitRequest(Struct, frozen=True, tag=True):
    """Offsets that a worker has processed. `at_once`: a drain waits for them. `trace`: the `traceparent` of its span, if any.

    In a job that delivers exactly once the worker commits by itself: it asks whether it may, in this `session` of its producer, and
    tells afterwards that it has (`done`)."""

    worker: str
    sequence: int
    entries: list[CommitEntry]
    at_once: bool = False
    trace: str = ""
    session: Version | None = None
    done: bool = False


class CommitReply(Struct, frozen=True, tag=True):
    """Answer to a `CommitRequest`. `committed`: entries that the broker acknowledged. `refused`: partitions whose epoch is no
    longer this worker's. `failed`: other partitions, with the reason. `gone`: those of `failed` whose topic is another one now. `group`: the membership under which the worker may commit the
    entries by itself; None where the job has none now, and in a job without transactions."""

    sequence: int
    committed: list[CommitEntry]
    refused: list[TopicPartition]
    failed: list[tuple[TopicPartition, str]]
    group: ConsumerGroupMetadata | None = None
    gone: list[CommitEntry] = []


class WorkerPlan(Struct, frozen=True, tag=True):
    """Plan of the supervisor for the coordinator: the workers that exist, with their capacities, and what else it decides.

    `retiring`: workers to drain. `complete`: all workers of the job's start are ready; nothing is granted before, so that the
    first to come up isn't granted what is taken from it a moment later. `expected`: the number of workers when all are up.
    `ends_every_s`: interval of the requests for log ends, None if only for stalls: the ends in fetch responses are as old as
    the fetch, and a worker with full buffers makes none. `measured`: the job has metrics, which also need log starts and the
    size of the group. `silent`: workers on nodes that don't answer, or were silent before Ray called them dead; their
    partitions go to others when their leases have ended. `unconnected`: workers on nodes without connection actors yet, which
    could not read. `died`: calls in which workers died. `ready`: workers that are up, and so may hold what an older incarnation
    of the coordinator granted. `roles`: how many workers there have been side by side at most: their numbers are below it.
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
    roles: int = 0


class CoordinatorStatus(Struct, frozen=True, tag=True):
    """Everything that `RunningJob.status()` shows of the group and its partitions.

    `finished`: a bounded run has processed and committed all of its partitions to their ends. `records`,
    `value_bytes` and `latency` count the work of workers that are gone, too. `timeline`: what happened since the entry
    that was asked for. `unconfirmed`: of a job that was stopped, the partitions with work whose commit no broker has
    confirmed. `passed`: calls in which workers died, and behind which something is committed. `transactions`: of all workers, None
    in a job without.
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
    transactions: TransactionReport | None = None


class WorkerProgress(Struct, frozen=True):
    """Counters of one worker since its start. `failed`: packed, why it can't go on."""

    ready: bool
    records: int
    value_bytes: int
    failed: bytes | None = None
    work_s: float = 0.0


class JobStart(Struct, frozen=True, tag=True):
    """Topics at the start of the job; the supervisor keeps it for all incarnations.

    `partitions`: those that existed; any later one is read from its beginning. `ends`: the end offset of each in a bounded run.
    """

    partitions: list[TopicPartition]
    ends: list[tuple[TopicPartition, int]] | None = None


class Identity(Struct, frozen=True, tag=True):
    """Identity of the job in its group, the same for every incarnation of its coordinator.

    `member_id`: of a dynamic member. A new incarnation goes on under it; as a new member it would have to wait for its
    predecessor's session to end. `transactions`: the ids of the workers' producers, None in a job without.
    """

    group_instance_id: str | None
    member_id: str = ""
    transactions: TransactionalIds | None = None


class ActorInfo(Struct, frozen=True, tag=True):
    """Process id and node of an actor."""

    pid: int
    node: str


class WorkerPong(Struct, frozen=True, tag=True):
    """Answer of a worker to a ping. `wiring`: the version of its wiring. `busy_s`: seconds since its current call of the user's
    function began, or has last waited for what is no matter of its own, None without one. `tally`: its counters, a packed `TallyState`; empty
    where the job isn't measured."""

    wiring: int
    busy_s: float | None
    ready: bool
    tally: bytes = b""


class JobFailure(Struct, frozen=True, tag=True):
    """Exception on its way to the driver: pickled, and as text in case unpickling fails."""

    text: str
    pickled: bytes


def failure_of(error: BaseException) -> bytes:
    """Packs an exception for the driver; of one that can't be pickled only the text is kept."""
    return pack(JobFailure(type_and_text(error), packed_error(error)))

"""The state of one fetched partition, as data; `PartitionTable` and its parts change it.

Three offsets run one behind the other: `position` (consumed by the user), `delivered` (handed out), and
`fetched` (the next one to ask for). An answer is taken only if it continues `fetched` exactly. `position` alone is committed.
While a partition has a position, position <= delivered <= fetched: records between the first two are in the user's hands, those
between the last two in the buffer.

`TRANSITIONS` is the table of states; a trigger that it doesn't list for a state raises an error:

    AWAITING_OFFSET ──offset known──► FETCHING ──end reached──► AT_END
          ▲   ▲                        │    ▲ │
          │   └──────offset lost───────┘    │ └─epoch changed─► VALIDATING
          └── from every other state        └────validated──────────┘

An error leads from every state to FAILED; a seek leads from every state back to FETCHING or AWAITING_OFFSET. Each transition makes
a new `version`, which makes answers to look-ups under way obsolete.

States are about the position. A pause, a drain, a backoff or a leader that isn't known only hold up the fetching of a partition,
in whatever state it is. For the user: in AWAITING_OFFSET there is no position, so nothing can be committed; in VALIDATING there is
one, and records that were handed out may be consumed, but no more are fetched; AT_END says that all records up to the end are
fetched, not that they are consumed; a FAILED partition raises its error once the records before it are consumed, again and again.
Java's model is `SubscriptionState.TopicPartitionState` with its `FetchStates`; AT_END and FAILED are not in it.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from msgspec import Struct

from kafka_actors.errors import UsageError
from kafka_actors.fetch.messages import Epoch
from kafka_actors.types import TopicPartition

UNKNOWN = -1


class FetchState(Enum):
    """States of a partition."""

    AWAITING_OFFSET = "awaiting offset"  # the offset to start at is looked up
    VALIDATING = "validating"  # the leader changed: was the log truncated below the position? (KIP-320)
    FETCHING = "fetching"
    AT_END = "at end"  # a bounded run has read up to its end offset
    FAILED = "failed"  # only a seek or a new assignment helps


class FetchProgress(NamedTuple):
    """Progress of a partition: the offset behind the last consumed record, the end of the log as last seen, why no records are fetched
    (empty while they are), and that record's leader epoch, -1 if unknown."""

    position: int | None
    end: int | None
    blocked: str
    leader_epoch: int = UNKNOWN


class CommitPosition(NamedTuple):
    """A position to commit: the offset behind the last consumed record, that record's leader epoch, and the id of the topic
    that both are of (None where brokers send none)."""

    offset: int
    leader_epoch: int
    topic_id: bytes | None


class Trigger(Enum):
    """Triggers of transitions between states."""

    OFFSET_KNOWN = "offset known"
    EPOCH_CHANGED = "leader epoch changed"
    VALIDATED = "validated"
    OFFSET_LOST = "offset lost"
    END_REACHED = "end reached"
    ERROR = "error"
    SOUGHT = "sought"


TRANSITIONS: dict[tuple[FetchState, Trigger], FetchState] = {
    (FetchState.AWAITING_OFFSET, Trigger.OFFSET_KNOWN): FetchState.FETCHING,
    (FetchState.AWAITING_OFFSET, Trigger.OFFSET_LOST): FetchState.AWAITING_OFFSET,
    (FetchState.AWAITING_OFFSET, Trigger.ERROR): FetchState.FAILED,
    (FetchState.AWAITING_OFFSET, Trigger.SOUGHT): FetchState.FETCHING,
    (FetchState.VALIDATING, Trigger.EPOCH_CHANGED): FetchState.VALIDATING,
    (FetchState.VALIDATING, Trigger.VALIDATED): FetchState.FETCHING,
    (FetchState.VALIDATING, Trigger.OFFSET_LOST): FetchState.AWAITING_OFFSET,
    (FetchState.VALIDATING, Trigger.OFFSET_KNOWN): FetchState.FETCHING,
    (FetchState.VALIDATING, Trigger.END_REACHED): FetchState.AT_END,
    (FetchState.VALIDATING, Trigger.ERROR): FetchState.FAILED,
    (FetchState.VALIDATING, Trigger.SOUGHT): FetchState.FETCHING,
    (FetchState.FETCHING, Trigger.EPOCH_CHANGED): FetchState.VALIDATING,
    (FetchState.FETCHING, Trigger.OFFSET_LOST): FetchState.AWAITING_OFFSET,
    (FetchState.FETCHING, Trigger.END_REACHED): FetchState.AT_END,
    (FetchState.FETCHING, Trigger.ERROR): FetchState.FAILED,
    (FetchState.FETCHING, Trigger.SOUGHT): FetchState.FETCHING,
    (FetchState.AT_END, Trigger.OFFSET_LOST): FetchState.AWAITING_OFFSET,
    (FetchState.AT_END, Trigger.ERROR): FetchState.FAILED,
    (FetchState.AT_END, Trigger.SOUGHT): FetchState.FETCHING,
    (FetchState.FAILED, Trigger.SOUGHT): FetchState.FETCHING,
    (FetchState.FAILED, Trigger.OFFSET_LOST): FetchState.AWAITING_OFFSET,
}


class LookupPurpose(Enum):
    """Reasons for which an offset is looked up."""

    NO_COMMIT = "no committed offset"
    BEGINNING = "new partition"  # it appeared in a topic that is consumed: from its start, always
    SEEK_BEGINNING = "seek to beginning"
    SEEK_END = "seek to end"
    OUT_OF_RANGE = "out_of_range"
    TRUNCATED = "truncated"
    RECREATED = "recreated"


DATA_LOSS = frozenset({LookupPurpose.OUT_OF_RANGE, LookupPurpose.TRUNCATED, LookupPurpose.RECREATED})


class PartitionStart(Struct, frozen=True):
    """Start of an assigned partition.

    `offset` None: `auto_offset_reset` decides, or the beginning where `from_start`. `end_offset`: a bounded
    run stops there. `leader_epoch`: that of the record before `offset`, as committed; -1 if unknown. `topic_id`: 16 bytes, the
    id of the topic that these offsets are of, or that was read before; None for whichever topic has the name. If the topic
    has another id now, it counts as recreated. `shared`: other workers read the partition, too. `end_epoch`: the leader's when
    the end was looked up, -1 if unknown; the partition fails if the log of a newer leader parts from that one's before the end.
    """

    epoch: Epoch = (0, 0)
    offset: int | None = None
    leader_epoch: int = UNKNOWN
    end_offset: int | None = None
    from_start: bool = False
    topic_id: bytes | None = None
    shared: bool = False
    end_epoch: int = UNKNOWN


class FetchPartition:
    """One assigned partition. Mutable; only `PartitionTable`, `PositionLookups` and `FetchResults` change it."""

    __slots__ = (
        "delivered",
        "doubted_since",
        "draining",
        "end_epoch",
        "end_offset",
        "epoch",
        "error",
        "failures",
        "fetched",
        "high_watermark",
        "last_stable_offset",
        "leader",
        "leader_epoch",
        "left",
        "looking_up",
        "paused",
        "position",
        "position_epoch",
        "position_id",
        "proven",
        "purpose",
        "replica",
        "replica_until",
        "retry_at",
        "shared",
        "state",
        "topic_id",
        "tp",
        "trouble",
        "version",
    )

    def __init__(self, tp: TopicPartition, start: PartitionStart) -> None:
        # Identity. Answers under another assignment epoch are stale; under another topic id it is another partition.
        self.tp = tp
        self.epoch = start.epoch
        self.topic_id = start.topic_id
        self.state = FetchState.AWAITING_OFFSET
        self.purpose: LookupPurpose | None = (
            LookupPurpose.BEGINNING if start.from_start else LookupPurpose.NO_COMMIT
        )
        self.proven = False  # the broker's own bounds show that the position is out of range
        self.doubted_since: float | None = None  # a leader older than the position said so first at this time
        self.paused = False
        self.draining = False
        self.shared = start.shared
        self.end_offset = start.end_offset
        self.end_epoch = start.end_epoch  # all up to the end is in the log of this one
        self.position = UNKNOWN
        self.position_epoch = start.leader_epoch
        self.position_id = start.topic_id  # id of the topic that `position` is of
        self.left: CommitPosition | None = None  # the position in the topic that had the name before
        self.delivered = UNKNOWN
        self.fetched = UNKNOWN
        # Source of the records. The leader epoch only rises, as long as the topic is the same.
        self.leader = UNKNOWN
        self.leader_epoch = UNKNOWN
        self.replica = UNKNOWN  # the follower that the leader told us to read from (KIP-392)
        self.replica_until = 0.0
        # Bounds of the log, as the last answer had them: for people and lag, never for a decision about the position.
        self.high_watermark = UNKNOWN
        self.last_stable_offset = UNKNOWN
        # Backoff: none at 0; without end at infinity, where records that can't be read are decoded first.
        self.retry_at = 0.0
        self.failures = 0
        self.trouble = ""  # why the last attempt failed, for people
        self.error: Exception | None = None
        self.version = 0  # an answer to a look-up under another version is obsolete
        self.looking_up = False

    def move(self, trigger: Trigger) -> None:
        """Makes a transition. Raises `UsageError` for one that the table doesn't list, which would be a defect here."""
        following = TRANSITIONS.get((self.state, trigger))
        if following is None:
            raise UsageError(f"{self.tp.topic}-{self.tp.partition} is {self.state.value}: no {trigger.value}")
        self.state = following
        self.version += 1
        self.looking_up = False

    @property
    def source(self) -> int:
        """The broker to read from: the follower that the leader named, or the leader; -1 while there is none."""
        return self.replica if self.replica >= 0 else self.leader

    @property
    def wants_records(self) -> bool:
        """Whether the partition is to be fetched, leaving backoff and leader aside."""
        return self.state is FetchState.FETCHING and not self.paused and not self.draining

    def may_look_up(self, now: float) -> bool:
        """Whether the leader can be asked about a position now, and is not being asked."""
        return not self.looking_up and self.retry_at <= now and not self.draining and self.leader >= 0

    def waits_until(self, until: float) -> bool:
        """Whether a backoff or the time of a follower ends at this moment."""
        return until == self.retry_at or (self.replica >= 0 and until == self.replica_until)

    def reason(self, now: float) -> str:
        """Returns why no records are fetched, for people; empty while they are. The kind of reason comes first, before a
        colon or a bracket: metrics take it from there (`kafka_actors.telemetry.attributes`)."""
        if self.error is not None:
            return f"failed: {self.error}"
        if self.draining:
            return "draining"
        if (
            self.state is FetchState.AT_END
            and self.end_offset is not None
            and self.position < self.end_offset
        ):
            return ""  # all records are fetched and are being consumed
        if self.state is FetchState.FETCHING and self.paused:
            return "paused"
        if self.leader < 0 and self.state is not FetchState.AT_END:
            return "no leader"  # which look-ups need, too
        if self.state is not FetchState.FETCHING:
            return f"{self.state.value} ({self.trouble})" if self.trouble else self.state.value
        if self.retry_at > now:
            return f"backing off: {self.trouble}"
        return ""

    def waits_for_a_transaction(self, read_committed: bool) -> bool:
        """Whether all records left to read were written by transactions that are still open."""
        return read_committed and 0 <= self.last_stable_offset <= self.position < self.high_watermark

    @property
    def known_epoch(self) -> int:
        """The leader epoch whose log the partition is read from: that of its end, or else of the last record; -1 if unknown."""
        return self.end_epoch if self.end_epoch >= 0 else self.position_epoch

    @property
    def known_position(self) -> int | None:
        """The offset behind the last consumed record, None until it is known."""
        if self.position < 0 or self.state is FetchState.AWAITING_OFFSET or self.is_of_another_topic:
            return None
        return self.position

    @property
    def end_reached(self) -> bool:
        """Whether a bounded partition was consumed up to its end offset."""
        return self.end_offset is not None and self.position >= self.end_offset

    @property
    def is_of_another_topic(self) -> bool:
        """Whether the position is of a topic that was deleted since, and not of the one that has its name now."""
        return self.position_id != self.topic_id and None not in (self.position_id, self.topic_id)

    @property
    def where(self) -> CommitPosition | None:
        """The position to commit, None until it is known."""
        known = self.known_position
        return (
            None
            if known is None
            else CommitPosition(known, self.position_epoch, self.position_id or self.topic_id)
        )

    def end(self, read_committed: bool) -> int | None:
        """Returns the end of the log as last seen: high watermark, or last stable offset under read_committed."""
        end = self.last_stable_offset if read_committed else self.high_watermark
        return end if end >= 0 else None

    def lag(self, read_committed: bool) -> int | None:
        """Returns the offsets between position and end as last seen; None while one of them isn't known."""
        end = self.end(read_committed)
        return None if end is None or self.position < 0 else max(0, end - self.position)

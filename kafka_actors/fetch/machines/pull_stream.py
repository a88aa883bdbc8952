"""The worker's side of its stream of pulls to one broker: what that broker's session was told, and the credit."""

from __future__ import annotations

from kafka_actors.fetch.messages import PartitionFetch, Pull
from kafka_actors.types import TopicPartition

from .partition_state import FetchPartition


class PullStream:
    """Pulls to one broker, numbered from 0. A stream that failed is replaced by a new one, with a new `token`.

    `asked` holds, for each partition that the session fetches, the sequence of the pull that asked for it: an
    answer to an earlier pull is stale, whatever its offset.
    """

    __slots__ = (
        "asked",
        "broker",
        "busy",
        "crowded_at",
        "doubt_at",
        "failures",
        "forget",
        "outstanding",
        "retry_at",
        "sequence",
        "starved",
        "token",
        "trouble",
        "want",
    )

    def __init__(self, broker: int, token: int) -> None:
        self.broker = broker
        self.token = token
        self.sequence = 0
        self.asked: dict[TopicPartition, int] = {}
        self.want: dict[TopicPartition, None] = {}
        self.forget: dict[TopicPartition, None] = {}
        self.outstanding: dict[int, int] = {}  # sequence -> bytes it may bring
        self.busy = False  # the last answer brought records, so the next pull shouldn't wait for its turn
        self.starved = False  # no room for another response
        self.crowded_at = float(
            "inf"
        )  # still none by then: what waits for what is in hand for long is dropped
        self.retry_at = 0.0
        self.doubt_at = float(
            "inf"
        )  # no answer by then: the broker may be stopped, and its leaderships elsewhere
        self.failures = 0
        self.trouble = ""

    @property
    def active(self) -> bool:
        """Whether there is anything to fetch from this broker."""
        return bool(self.asked or self.want)

    @property
    def partitions(self) -> int:
        """How many are fetched, or will be from the next pull on."""
        return len(self.asked) + len(self.want)

    @property
    def reserved(self) -> int:
        """Bytes that outstanding pulls may bring."""
        return sum(self.outstanding.values())

    def add(self, tp: TopicPartition) -> None:
        """Fetch it, from wherever it stands when the next pull is made."""
        self.forget.pop(tp, None)
        self.want[tp] = None

    def remove(self, tp: TopicPartition) -> None:
        """Fetch it no more."""
        self.want.pop(tp, None)
        if self.asked.pop(tp, None) is not None:
            self.forget[tp] = None

    def dropped(self, tp: TopicPartition) -> None:
        """The connection side took it out of its session by itself."""
        self.asked.pop(tp, None)

    def may_pull(self, credit: int, now: float) -> bool:
        """One pull is always allowed; more only while records come, because one that waits in line behind a
        long poll would keep later changes waiting too."""
        allowed = credit if self.busy else 1
        return self.active and len(self.outstanding) < allowed and self.retry_at <= now

    def pull(
        self,
        wants: list[PartitionFetch],
        max_bytes: int,
        max_wait_ms: int,
        followers: bool,
    ) -> Pull:
        """The next pull; `wants` are those of `self.want`. It brings `max_bytes` at most, as a rule."""
        pull = Pull(
            sequence=self.sequence,
            wants=wants,
            forget=[(tp.topic, tp.partition) for tp in self.forget] if self.sequence else [],
            max_bytes=max_bytes,
            max_wait_ms=max_wait_ms,
            followers=followers,
        )
        for tp in self.want:
            self.asked[tp] = self.sequence
        self.want.clear()
        self.forget.clear()
        self.outstanding[self.sequence] = max_bytes
        self.sequence += 1
        return pull


def want_of(partition: FetchPartition, max_bytes: int) -> PartitionFetch:
    """What to tell the connection side about a partition, as it stands now."""
    return PartitionFetch(
        topic=partition.tp.topic,
        partition=partition.tp.partition,
        epoch=partition.epoch,
        fetch_offset=partition.fetched,
        max_bytes=max_bytes,
        topic_id=partition.topic_id,
        leader_epoch=partition.leader_epoch,
    )

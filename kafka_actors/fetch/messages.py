"""Messages between the worker side of fetching and the connection side: pulls and replies.

Between actors they travel as MessagePack; inside one process they are passed by reference. Record bytes are never
inside: a `FetchReply` comes with a buffer for each of its partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

from msgspec import Struct

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "Answer",
    "AnswerQueue",
    "Answered",
    "Epoch",
    "FetchReply",
    "FetchedPartition",
    "Outcome",
    "PartitionFetch",
    "Pull",
    "Queued",
    "Records",
    "without_records",
]

Epoch = tuple[int, int]  # an assignment epoch: (incarnation, n), compared for equality only


class PartitionFetch(Struct, frozen=True, tag=True, gc=False):
    """A request to fetch one partition from an offset on.

    `epoch` comes back in each `FetchedPartition`. `topic_id` is 16 bytes, None where the broker doesn't know ids.
    `leader_epoch` is the leader's as metadata has it, so that a broker behind or ahead of it says so (KIP-320). `shared`: other
    workers read the partition, too.
    """

    topic: str
    partition: int
    epoch: Epoch
    fetch_offset: int
    max_bytes: int
    topic_id: bytes | None = None
    leader_epoch: int = -1
    shared: bool = False

    @property
    def key(self) -> tuple[str, int]:
        """Topic and number of the partition."""
        return self.topic, self.partition


class Pull(Struct, frozen=True, tag=True):
    """Credit for one response of `max_bytes`, or for several small ones with as much together, and what changed since the pull before it.

    `sequence` counts up by one within a stream; 0 starts a stream, and its `wants` then replace all before them. `stream` is the
    number of the stream: each new one of a worker has a higher one. Where it is 0, a repeated call cannot be told from a new stream.
    `max_bytes` bounds the response, `max_wait_ms` the broker's wait for data. After a small response the next one comes `pace_ms`
    later at the earliest: the transport of the pull sets it, by the cost of an answer there. Without `followers` the broker is
    not sent `client_rack`: a leader then returns the records itself (KIP-392).
    """

    sequence: int
    wants: list[PartitionFetch] = []
    forget: list[tuple[str, int]] = []
    max_bytes: int = 0
    max_wait_ms: int = 0
    pace_ms: int = 0
    followers: bool = True
    stream: int = 0

    @property
    def changes(self) -> bool:
        """Whether it changes what is fetched."""
        return bool(self.wants or self.forget)


class FetchedPartition(Struct, frozen=True, tag=True, gc=False):
    """One partition of one fetch response.

    `size` is the length of its record bytes; offsets run from `fetch_offset` to `next_offset`.
    `current_leader_id` is KIP-951's hint, -1 for none.
    """

    topic: str
    partition: int
    epoch: Epoch
    fetch_offset: int
    next_offset: int
    error_code: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    aborted: tuple[tuple[int, int], ...] = ()
    current_leader_id: int = -1
    current_leader_epoch: int = -1
    preferred_read_replica: int = -1
    size: int = 0

    @property
    def dropped(self) -> bool:
        """Whether the connection side has stopped fetching the partition, until a pull requests it again.

        It does so after any answer without records, and after records that lead to no later offset.
        """
        return self.next_offset == self.fetch_offset and (
            self.size > 0 or without_records(self.error_code, self.preferred_read_replica)
        )


def without_records(error_code: int, preferred_read_replica: int) -> bool:
    """Whether a broker answered a partition with something else than its records: an error, or another replica to fetch from
    (KIP-392)."""
    return error_code != 0 or preferred_read_replica >= 0


class FetchReply(Struct, frozen=True, tag=True):
    """One response to a `Pull`.

    `size` is the length of the response in bytes, all of which stays in memory until the last of its buffers is dropped.
    `error_code` is that of the response as a whole. `seconds`: from the request to the response, with the broker's wait for data.
    `more`: other responses to the same pull follow, for what is left of its `max_bytes`.
    """

    broker: int
    sequence: int
    partitions: list[FetchedPartition]
    size: int = 0
    throttle_ms: int = 0
    error_code: int = 0
    seconds: float = 0.0
    more: bool = False


Records: TypeAlias = "bytes | memoryview | pa.Buffer"
"""The record bytes of one partition of a response."""
Answer: TypeAlias = "tuple[FetchReply, Sequence[Records]]"
"""The reply to a pull, with a buffer for each of its partitions."""
Outcome: TypeAlias = "Answer | Exception"
"""The answer to a pull, or why there is none."""


class AnswerQueue(Protocol):
    """Answers to one pull that wait for whoever made it: `FetchLoop`. `wake` is to be set; it is called, in any thread, when there are some.
    After `interrupt`, from any thread, no other request is sent for the pull."""

    wake: Callable[[], object]

    def drain(self) -> Sequence[Answer]: ...
    def interrupt(self) -> None: ...


Answered: TypeAlias = Callable[[Outcome], None]
"""Takes an answer to a pull, or why there is none."""
Queued: TypeAlias = Callable[[AnswerQueue], None]
"""Takes the queue of a pull that has several answers, before the first of them."""

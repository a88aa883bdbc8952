"""`SharedRecords`: record bytes that several workers of a node need, fetched once.

Theory of operation. Workers that share a partition (`job/lanes.py`) all read it, each for its own lanes. At any time one of those on a node
fetches it: the first that comes to an offset that isn't kept here (`claim`). The others wait for its answer, whose records are kept
(`end`) for who comes to their offsets later: `MOST_BYTES` of them for `KEPT_S`, the oldest going first. What is gone by then is fetched
again, by who needs it.

Records are kept under the topic's id and the leader epoch that they were asked for with, and given to who asks with the same. An answer
without records, or with an error, is its receiver's alone: who waited asks for itself.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from .messages import Answer, FetchedPartition, PartitionFetch, Records

__all__ = ["KeptRecords", "SharedRecords", "kept_of"]

MOST_BYTES = 32 * 1024 * 1024
KEPT_S = 10.0
"""Seconds after which records are dropped at the next pull: workers that share a partition are not far apart (`max_in_flight_records`)."""

Key = tuple[str, int]


class KeptRecords(NamedTuple):
    """Records of one partition of one response, with the request that brought them. `at`: the moment at which they came, in seconds."""

    want: PartitionFetch
    fetched: FetchedPartition
    records: Records
    at: float

    def serves(self, want: PartitionFetch) -> bool:
        """Whether the records are what a broker would answer with to a request."""
        own, first = self.want, min(self.fetched.fetch_offset, base_offset(self.records))
        return (own.topic_id, own.leader_epoch) == (want.topic_id, want.leader_epoch) and (
            first <= want.fetch_offset < self.fetched.next_offset
        )


class SharedRecords:
    """Records that the fetchers of one broker share, each in its thread. `clock` returns monotonic seconds."""

    def __init__(self, most_bytes: int = MOST_BYTES, clock: Callable[[], float] = time.monotonic) -> None:
        self._most_bytes = most_bytes
        self._clock = clock
        self._changed = threading.Condition()
        self._kept: deque[KeptRecords] = deque()
        self._of: dict[Key, deque[KeptRecords]] = {}
        self._bytes = 0
        self._fetching: dict[Key, object] = {}

    def claim(
        self, fetcher: object, wants: Sequence[PartitionFetch], most_bytes: int
    ) -> tuple[list[KeptRecords], frozenset[Key]]:
        """Returns what is kept of these partitions, at most `most_bytes` beyond the first; or, where nothing is, which of them others
        fetch now. Then the rest is this fetcher's until `end`."""
        with self._changed:
            self._drop_old()
            found: list[KeptRecords] = []
            size = 0
            for want in wants:
                kept = next(
                    (kept for kept in reversed(self._of.get(_key(want), ())) if kept.serves(want)), None
                )
                if kept is not None and (not found or size + kept.fetched.size <= most_bytes):
                    found.append(kept)
                    size += kept.fetched.size
            if found:
                return found, frozenset()
            busy = frozenset(
                key for key in map(_key, wants) if self._fetching.get(key, fetcher) is not fetcher
            )
            for key in map(_key, wants):
                if key not in busy:
                    self._fetching[key] = fetcher
            return [], busy

    def drop_old(self) -> None:
        """Drops what has been kept for long. For fetchers that share nothing (any more), so that it isn't kept for ever."""
        if self._kept:
            with self._changed:
                self._drop_old()

    def wait(self, seconds: float) -> None:
        """Waits until a fetcher's claims end, or for so long."""
        with self._changed:
            self._changed.wait(seconds)

    def end(self, fetcher: object, brought: Iterable[KeptRecords] = ()) -> None:
        """Ends the claims of a fetcher. `brought`: the records that others may need."""
        with self._changed:
            self._fetching = {key: other for key, other in self._fetching.items() if other is not fetcher}
            for kept in brought:
                self._kept.append(kept)
                self._of.setdefault(_key(kept.want), deque()).append(kept)
                self._bytes += kept.fetched.size
            self._drop_old()
            self._changed.notify_all()

    def _drop_old(self) -> None:
        now = self._clock()
        while self._kept and (self._bytes > self._most_bytes or now - self._kept[0].at > KEPT_S):
            oldest = self._kept.popleft()
            self._bytes -= oldest.fetched.size
            of_partition = self._of[_key(oldest.want)]
            of_partition.popleft()
            if not of_partition:
                del self._of[_key(oldest.want)]


def kept_of(wants: Iterable[PartitionFetch], answer: Answer, now: float) -> list[KeptRecords]:
    """Returns the records of an answer that others may need: those of partitions that are wanted by several."""
    reply, records = answer
    brought = {(fetched.topic, fetched.partition): at for at, fetched in enumerate(reply.partitions)}
    return [
        KeptRecords(want, reply.partitions[at], records[at], now)
        for want in wants
        if (at := brought.get(_key(want))) is not None
        and reply.partitions[at].size
        and not reply.partitions[at].dropped
    ]


def base_offset(records: Records) -> int:
    """Returns the first offset of the first batch, which may be below the one that was asked for."""
    return int.from_bytes(memoryview(records)[:8], "big", signed=True)


def _key(want: PartitionFetch) -> Key:
    return want.topic, want.partition

"""`SharedRecords`: record bytes that several workers of a node need, fetched once.

Theory of operation. Workers that share a partition (`job/lanes.py`) all read it, each for its own lanes. Of those on a node who are at the
same place one fetches: the first that comes to an offset that isn't kept here (`claim`). Others wait for that answer, if it can serve them,
for as long as it may be expected, and its records are kept (`end`) for who comes to their offsets later: `MOST_BYTES` of them for `KEPT_S`,
the oldest going first. What is gone by then is fetched again, by who needs it; so is a batch that is on its way to who asked for an offset
within it, since only the answer tells where it begins.

Records are kept under the topic's id and the leader epoch that they were asked for with, and given to who asks with the same. They begin
with the batch that has the offset, as a broker's do: a reader that has skipped a broken batch must not get it again. Where transactions
were aborted, only all of them belong to the list of these. An answer without records, or with an error, is its receiver's alone: who
waited asks for itself.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from .messages import Answer, FetchedPartition, PartitionFetch, Records

__all__ = ["KeptRecords", "SharedRecords", "kept_of"]

MOST_BYTES = 32 * 1024 * 1024
KEPT_S = 10.0
"""Seconds after which records are dropped at the next pull: workers that share a partition are not far apart (`max_in_flight_records`)."""
LATE_S = 1.0
"""Seconds that an answer may come later than the broker was to wait; then others fetch for themselves."""
MOST_BATCHES = 1_000
"""The most batches that are passed over on the way to an offset."""

Key = tuple[str, int]


class KeptRecords(NamedTuple):
    """Records of one partition of one response, with the request that brought them. `at`: the moment at which they came, in seconds."""

    want: PartitionFetch
    fetched: FetchedPartition
    records: Records
    at: float

    def serve(self, want: PartitionFetch) -> KeptRecords | None:
        """Returns what a broker would answer with to a request; None where that isn't known."""
        first, offset = min(self.fetched.fetch_offset, _base_offset(self.records, 0)), want.fetch_offset
        if not _alike(self.want, want) or not first <= offset < self.fetched.next_offset:
            return None
        if offset == self.fetched.fetch_offset:
            return self
        start = None if self.fetched.aborted else _batch_with(self.records, offset)
        if start is None:
            return None
        records = memoryview(self.records)[start:]
        return self._replace(fetched=replace(self.fetched, size=len(records)), records=records)


class _Claim(NamedTuple):
    """A request on its way, which others may wait for until a moment, in seconds."""

    want: PartitionFetch
    until: float


class SharedRecords:
    """Records that the fetchers of one broker share, each in its thread. `clock` returns monotonic seconds."""

    def __init__(self, most_bytes: int = MOST_BYTES, clock: Callable[[], float] = time.monotonic) -> None:
        self._most_bytes = most_bytes
        self._clock = clock
        self._changed = threading.Condition()
        self._changes = 0
        self._kept: deque[KeptRecords] = deque()
        self._of: dict[Key, deque[KeptRecords]] = {}
        self._bytes = 0
        self._claims: dict[Key, dict[object, _Claim]] = {}

    def claim(
        self, fetcher: object, wants: Sequence[PartitionFetch], most_bytes: int, wait_s: float = 0.0
    ) -> tuple[list[KeptRecords], frozenset[Key], int]:
        """Returns what is kept of these partitions, at most `most_bytes` beyond the first; or, where nothing is, which of them others
        fetch now. Then the rest is this fetcher's until `end`, and others wait for it a little longer than `wait_s`. Third: a number for
        `wait`."""
        with self._changed:
            self._drop_old()
            found: list[KeptRecords] = []
            size = 0
            for want in wants:
                kept = self._find(want)
                if kept is not None and (not found or size + kept.fetched.size <= most_bytes):
                    found.append(kept)
                    size += kept.fetched.size
            if found:
                return found, frozenset(), self._changes
            busy = frozenset(want.key for want in wants if self._is_claimed(want, fetcher))
            until = self._clock() + wait_s + LATE_S
            for want in wants:
                if want.key not in busy:
                    self._claims.setdefault(want.key, {})[fetcher] = _Claim(want, until)
            return [], busy, self._changes

    def _find(self, want: PartitionFetch) -> KeptRecords | None:
        found = (kept.serve(want) for kept in reversed(self._of.get(want.key, ())))
        return next((kept for kept in found if kept is not None), None)

    def _is_claimed(self, want: PartitionFetch, fetcher: object) -> bool:
        """Whether an answer to another fetcher is on its way that can serve this request."""
        now = self._clock()
        return any(
            other is not fetcher
            and now < claim.until
            and _alike(claim.want, want)
            and claim.want.fetch_offset <= want.fetch_offset
            for other, claim in self._claims.get(want.key, {}).items()
        )

    def drop_old(self) -> None:
        """Drops what has been kept for long. For fetchers that share nothing (any more), so that it isn't kept for ever."""
        if self._kept:
            with self._changed:
                self._drop_old()

    def wait(self, changes: int, seconds: float) -> None:
        """Waits until a claim ends after the one that returned this number of `changes`, or for so long."""
        with self._changed:
            if self._changes == changes:
                self._changed.wait(seconds)

    def end(self, fetcher: object, brought: Iterable[KeptRecords] = ()) -> None:
        """Ends the claims of a fetcher. `brought`: the records that others may need."""
        with self._changed:
            for key in [key for key, claims in self._claims.items() if fetcher in claims]:
                del self._claims[key][fetcher]
                if not self._claims[key]:
                    del self._claims[key]
            for kept in brought:
                self._kept.append(kept)
                self._of.setdefault(kept.want.key, deque()).append(kept)
                self._bytes += kept.fetched.size
            self._drop_old()
            self._changes += 1
            self._changed.notify_all()

    def _drop_old(self) -> None:
        now = self._clock()
        while self._kept and (self._bytes > self._most_bytes or now - self._kept[0].at > KEPT_S):
            oldest = self._kept.popleft()
            self._bytes -= oldest.fetched.size
            of_partition = self._of[oldest.want.key]
            of_partition.popleft()
            if not of_partition:
                del self._of[oldest.want.key]


def kept_of(wants: Iterable[PartitionFetch], answer: Answer, now: float) -> list[KeptRecords]:
    """Returns the records of an answer that others may need: those of partitions that are wanted by several. Each slice keeps its whole
    response in memory, so a small part of one is copied."""
    reply, records = answer
    brought = {(fetched.topic, fetched.partition): at for at, fetched in enumerate(reply.partitions)}
    kept = []
    for want in wants:
        at = brought.get(want.key)
        if at is not None and (fetched := reply.partitions[at]).size and not fetched.dropped:
            own = records[at] if 2 * fetched.size >= reply.size else bytes(records[at])
            kept.append(KeptRecords(want, fetched, own, now))
    return kept


def _batch_with(records: Records, offset: int) -> int | None:
    """Returns where the batch begins that has an offset; None where that can't be told from the headers of those before it."""
    data, at = memoryview(records), 0
    for _ in range(MOST_BATCHES):
        if at + 27 > len(data):
            return None
        length = int.from_bytes(data[at + 8 : at + 12], "big", signed=True)
        last = _base_offset(data, at)
        if data[at + 16] >= 2:  # the magic byte; older messages have the last offset itself there
            last += int.from_bytes(data[at + 23 : at + 27], "big", signed=True)
        if last >= offset:
            return at
        if length <= 0:
            return None
        at += 12 + length
    return None


def _base_offset(records: Records, at: int) -> int:
    """Returns the first offset of the batch that begins there; the first one of all may be below the one that was asked for."""
    return int.from_bytes(memoryview(records)[at : at + 8], "big", signed=True)


def _alike(one: PartitionFetch, other: PartitionFetch) -> bool:
    """Whether two requests are for the same log, as far as they know."""
    return (one.topic_id, one.leader_epoch) == (other.topic_id, other.leader_epoch)

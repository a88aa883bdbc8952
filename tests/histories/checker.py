"""Checks a history against what Kafka and this library promise, in the manner of Jepsen's workload for Kafka. Without IO.

Topics are neither truncated, compacted nor made anew, and nobody deletes commits: the events of a history can't say so yet.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from .history import (
    Acknowledged,
    Assigned,
    Committed,
    Event,
    Line,
    Log,
    Polled,
    Processed,
    Refused,
    Revoked,
    Sent,
    Sought,
)

LOST_WRITE = "lost write"
WRONG_OFFSET = "acknowledged at another offset"
DUPLICATE_WRITE = "duplicate write"
NOBODY_SENT = "record that nobody sent"
WRITE_ORDER = "order of a producer's records"
INCONSISTENT_READ = "inconsistent read"
UNSEEN = "unseen record"
SKIPPED_POLL = "skipped poll"
POLL_BACK = "poll that goes back"
POLL_OUTSIDE = "poll outside an assignment"
UNCOMMITTED_START = "assignment that begins where nobody had committed"
COMMIT_BACK = "commit that goes back"
COMMIT_PAST = "commit past what was processed"
NAMES = (
    LOST_WRITE,
    WRONG_OFFSET,
    DUPLICATE_WRITE,
    NOBODY_SENT,
    WRITE_ORDER,
    INCONSISTENT_READ,
    UNSEEN,
    SKIPPED_POLL,
    POLL_BACK,
    POLL_OUTSIDE,
    UNCOMMITTED_START,
    COMMIT_BACK,
    COMMIT_PAST,
)

MILLISECOND = 0.001
"""Commits carry whole milliseconds, rounded down."""


class Anomaly(NamedTuple):
    """One broken promise: where, of which offsets and values, by whom (a producer, a reader or its member), and when it was seen."""

    name: str
    topic: str
    partition: int
    offsets: tuple[int, ...]
    values: tuple[str, ...]
    who: str
    at: float
    why: str = ""

    def __str__(self) -> str:
        offsets = ", ".join(map(str, self.offsets[:5])) + (" …" if len(self.offsets) > 5 else "")
        values = ", ".join(self.values[:5]) + (" …" if len(self.values) > 5 else "")
        why = f": {self.why}" if self.why else ""
        return f"{self.name}: {self.topic}-{self.partition} offsets [{offsets}] values [{values}] {self.who} at {self.at:.3f}{why}"


def check(history: Iterable[Line]) -> list[Anomaly]:
    """All anomalies of a history, whose events of each process come in their order."""
    parts: dict[tuple[str, int], list[Event]] = defaultdict(list)
    for event in sorted(history, key=lambda e: e.at):
        if isinstance(event, Event):
            parts[event.topic, event.partition].append(event)
    found: list[Anomaly] = []
    for (topic, partition), events in sorted(parts.items()):
        found += _Partition(topic, partition, events).anomalies()
    return found


def repeats(history: Iterable[Line]) -> Counter[str]:
    """For each reader, how many records were processed again, each time counted."""
    times: Counter[tuple[str, str, int, int]] = Counter()
    for event in history:
        if isinstance(event, Processed):
            times.update((event.reader, event.topic, event.partition, offset) for offset in event.offsets)
    found: Counter[str] = Counter()
    for (reader, *_), count in times.items():
        found[reader] += count - 1
    return found


def doubled(history: Iterable[Line]) -> int:
    """How many records are in the log again that their producers do not promise to write once."""
    lax = {event.value for event in history if isinstance(event, Sent) and not event.once}
    written = [value for event in history if isinstance(event, Log) for value in event.values if value in lax]
    return len(written) - len(set(written))


class _Partition:
    """The checks of one partition. `events` are its own, by time."""

    def __init__(self, topic: str, partition: int, events: Sequence[Event]) -> None:
        self._topic = topic
        self._number = partition
        self._events = events
        logs = [e for e in events if isinstance(e, Log)]
        if len(logs) != 1:
            raise ValueError(f"{topic}-{partition} has {len(logs)} final logs in this history, not one")
        self._log = logs[0]
        self._at = dict(zip(self._log.offsets, self._log.values, strict=True))

    def anomalies(self) -> Iterator[Anomaly]:
        yield from self._writes()
        readers: dict[str, list[Event]] = defaultdict(list)
        for event in self._events:
            if isinstance(event, Assigned | Revoked | Sought | Polled | Processed | Committed):
                readers[event.reader].append(event)
        for name, events in sorted(readers.items()):
            yield from self._polls(name, events)
            yield from self._commits(name, events)
            yield from self._unseen(name, events)

    def _anomaly(
        self,
        name: str,
        offsets: Sequence[int],
        who: str,
        at: float,
        why: str = "",
        values: Sequence[str] = (),
    ) -> Anomaly:
        known = values or [self._at[o] for o in offsets if o in self._at]
        return Anomaly(name, self._topic, self._number, tuple(offsets), tuple(known), who, at, why)

    # ------------------------------------------------------------ producers

    def _writes(self) -> Iterator[Anomaly]:
        places: dict[str, list[int]] = defaultdict(list)
        for offset, value in self._at.items():
            places[value].append(offset)
        sent = {e.value: e for e in self._events if isinstance(e, Sent)}
        refused = {e.value: e for e in self._events if isinstance(e, Refused)}
        for event in self._events:
            if isinstance(event, Acknowledged):
                yield from self._acknowledged(event, places.get(event.value, []))
        for value, offsets in places.items():
            if value not in sent:
                yield self._anomaly(NOBODY_SENT, offsets, "nobody", self._log.at)
                continue
            who, at = sent[value].producer, sent[value].at
            if value in refused:
                why = f"its send failed: {refused[value].error}"
                yield self._anomaly(NOBODY_SENT, offsets, who, refused[value].at, why)
            if len(offsets) > 1 and sent[value].once:
                yield self._anomaly(DUPLICATE_WRITE, offsets, who, at)
        last: dict[str, tuple[int, int]] = {}
        for value, (first, *_) in places.items():
            if value in sent:
                record = sent[value]
                number, before = last.get(record.producer, (-1, -1))
                if record.number < number:
                    why = f"its number {record.number} is behind number {number}"
                    yield self._anomaly(WRITE_ORDER, [before, first], record.producer, record.at, why)
                last[record.producer] = (record.number, first)

    def _acknowledged(self, event: Acknowledged, offsets: list[int]) -> Iterator[Anomaly]:
        if not offsets:
            yield self._anomaly(LOST_WRITE, [event.offset], event.producer, event.at, values=[event.value])
        elif event.offset >= 0 and event.offset not in offsets:
            why = f"acknowledged at {event.offset}"
            yield self._anomaly(WRONG_OFFSET, offsets, event.producer, event.at, why)

    # ------------------------------------------------------------ polls

    def _polls(self, reader: str, events: Sequence[Event]) -> Iterator[Anomaly]:
        commits = [(e.at, e.offset) for e in events if isinstance(e, Committed)]
        assignments: dict[tuple[str, int], _Assignment] = {}
        guessed: _Assignment | None = None
        last_poll: float | None = None
        for event in events:
            if isinstance(event, Assigned):
                made = _Assignment(reader, event.member, event.at, event.since, event.start)
                assignments[event.member, event.epoch] = made
                if event.start is not None:
                    yield from self._started(made, event.start, commits)
            elif isinstance(event, Revoked):
                assignments.pop((event.member, event.epoch), None)
            elif isinstance(event, Sought) and (event.member, event.epoch) in assignments:
                assignments[event.member, event.epoch].next = event.offset
            elif isinstance(event, Polled) and event.epoch is None:
                if guessed is None or not self._goes_on(guessed, event):
                    guessed = _Assignment(reader, event.member, event.at, last_poll, None)
                last_poll = event.at
                yield from self._polled(guessed, event, commits)
            elif isinstance(event, Polled):
                held = assignments.get((event.member, event.epoch))
                if held is None:
                    yield self._anomaly(POLL_OUTSIDE, event.offsets, f"{reader}/{event.member}", event.at)
                else:
                    yield from self._polled(held, event, commits)

    def _goes_on(self, assignment: _Assignment, event: Polled) -> bool:
        assert assignment.next is not None
        return event.member == assignment.member and not self._between(assignment.next, event.offsets[0])

    def _polled(
        self, assignment: _Assignment, event: Polled, commits: list[tuple[float, int]]
    ) -> Iterator[Anomaly]:
        if assignment.next is None:
            assignment.next = event.offsets[0]
            yield from self._started(assignment, event.offsets[0], commits)
        for offset, value in zip(event.offsets, event.values, strict=True):
            if self._at.get(offset) != value:
                why = f"the log has {self._at.get(offset)!r} there"
                yield self._anomaly(
                    INCONSISTENT_READ, [offset], assignment.who, event.at, why, values=[value]
                )
            if offset < assignment.next:
                why = f"{assignment.next} was next"
                yield self._anomaly(POLL_BACK, [offset], assignment.who, event.at, why)
            elif jumped := self._between(assignment.next, offset):
                why = f"{assignment.next} was next, {offset} came"
                yield self._anomaly(SKIPPED_POLL, jumped, assignment.who, event.at, why)
            assignment.next = offset + 1

    def _between(self, first: int, end: int) -> list[int]:
        """The offsets of records that a poll at `end` jumps over, or returns to, where `first` was next."""
        offsets = self._log.offsets
        low, high = sorted((first, end))
        return list(offsets[bisect_left(offsets, low) : bisect_left(offsets, high)])

    def _started(
        self, assignment: _Assignment, start: int, commits: list[tuple[float, int]]
    ) -> Iterator[Anomaly]:
        """An assignment begins at an offset that was the committed one at some time since it may have been asked for; where there was
        none, at the beginning of the log."""
        since = assignment.at if assignment.since is None else min(assignment.since, assignment.at)
        before = [offset for at, offset in commits if at <= since]
        begin = self._log.offsets[0] if self._log.offsets else self._log.end
        allowed = [before[-1] if before else begin]
        allowed += [offset for at, offset in commits if since < at <= assignment.at + MILLISECOND]
        if all(self._between(offset, start) for offset in allowed):
            told = f"begins at {start}, committed were {sorted(set(allowed))}"
            yield self._anomaly(UNCOMMITTED_START, [start], assignment.who, assignment.at, told)

    # ------------------------------------------------------------ commits and the end

    def _commits(self, reader: str, events: Sequence[Event]) -> Iterator[Anomaly]:
        offsets = self._log.offsets
        done: set[int] = set()
        whole = 0  # so many of the log's first records are processed
        highest = -1
        moments = [
            (e.at + MILLISECOND if isinstance(e, Committed) else e.at, e)
            for e in events
            if isinstance(e, Committed | Processed)
        ]
        for _, event in sorted(moments, key=lambda moment: moment[0]):
            if isinstance(event, Processed):
                done.update(event.offsets)
                continue
            while whole < len(offsets) and offsets[whole] in done:
                whole += 1
            limit = offsets[whole] if whole < len(offsets) else self._log.end
            if event.offset > limit:
                why = f"{event.offset} was committed, {limit} was not processed"
                yield self._anomaly(COMMIT_PAST, [limit, event.offset], reader, event.at, why)
        # Kafka carries out a commit that was kept somewhere behind later ones. Within a generation nothing fences it: it has to be put right.
        commits = [event for event in events if isinstance(event, Committed)]
        last = commits[-1].offset if commits else 0
        for event in commits:
            if event.offset < highest and last < highest:
                why = f"{highest} was committed before, and not again"
                yield self._anomaly(COMMIT_BACK, [event.offset], reader, event.at, why)
            highest = max(highest, event.offset)

    def _unseen(self, reader: str, events: Sequence[Event]) -> Iterator[Anomaly]:
        done = {offset for e in events if isinstance(e, Processed) for offset in e.offsets}
        for offset in self._log.offsets:
            if offset not in done:
                yield self._anomaly(UNSEEN, [offset], reader, self._log.at)


class _Assignment:
    """One member's hold of the partition, and the offset that comes next."""

    def __init__(self, reader: str, member: str, at: float, since: float | None, start: int | None) -> None:
        self.member = member
        self.who = f"{reader}/{member}"
        self.at = at
        self.since = since
        self.next = start

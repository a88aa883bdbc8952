"""Checks a history against what Kafka and this library promise, in the manner of Jepsen's workload for Kafka. Without IO.

A history says which records went by an unclean election, by deletion, and with a topic that was made anew (`Gone`): these may be lost, and their
readers go on where the logs part (`lives`), and nothing else is excused. Topics are not compacted, and nobody deletes commits.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from .history import (
    Acknowledged,
    Assigned,
    Committed,
    Event,
    Gone,
    Line,
    Log,
    Polled,
    Processed,
    Refused,
    Revoked,
    Sent,
    Sought,
)
from .lives import Life, Lives

READS = Assigned | Revoked | Sought | Polled | Processed | Committed
"""Events of readers."""
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
REPLICATED_S = 30.0
"""A commit may be in the coordinator's log for so long, by Kafka's `replica.lag.time.max.ms`, before it is replicated: until then nobody
is told of it, nor is its sender."""


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
    readers: dict[str, set[str]] = defaultdict(set)
    for event in sorted(history, key=lambda e: e.at):
        if isinstance(event, Event):
            parts[event.topic, event.partition].append(event)
        if isinstance(event, READS):
            readers[event.topic].add(event.reader)
    found: list[Anomaly] = []
    for (topic, partition), events in sorted(parts.items()):
        found += _Partition(topic, partition, events).anomalies(readers[topic])
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
        self._lives = Lives(self._log, [e for e in events if isinstance(e, Gone)])

    def anomalies(self, readers: Iterable[str]) -> Iterator[Anomaly]:
        """`readers`: all readers of the topic, also those that never had this partition."""
        yield from self._writes()
        for name in sorted(readers):
            events = [e for e in self._events if isinstance(e, READS) and e.reader == name]
            done = self._done(events)
            yield from self._polls(name, events)
            yield from self._commits_past(name, events, done)
            yield from self._commits_back(name, [e for e in events if isinstance(e, Committed)])
            yield from self._unseen(name, done)

    def _anomaly(
        self,
        name: str,
        offsets: Sequence[int],
        who: str,
        at: float,
        why: str = "",
        values: Sequence[str] = (),
    ) -> Anomaly:
        own = self._lives.last.values
        known = values or [own[o] for o in offsets if o in own]
        return Anomaly(name, self._topic, self._number, tuple(offsets), tuple(known), who, at, why)

    # ------------------------------------------------------------ producers

    def _writes(self) -> Iterator[Anomaly]:
        places: dict[str, set[int]] = defaultdict(set)
        sent = {e.value: e for e in self._events if isinstance(e, Sent)}
        for life in self._lives.all:
            for offset, value in life.values.items():
                places[value].add(offset)
            yield from self._life(life, sent)
        refused = {e.value: e for e in self._events if isinstance(e, Refused)}
        for event in self._events:
            if isinstance(event, Acknowledged):
                once = event.value in sent and sent[event.value].once
                yield from self._acknowledged(event, sorted(places.get(event.value, ())), once)
        for value, offsets in places.items():
            if value not in sent:
                yield self._anomaly(NOBODY_SENT, sorted(offsets), "nobody", self._log.at, values=[value])
            elif value in refused:
                who, why = sent[value].producer, f"its send failed: {refused[value].error}"
                yield self._anomaly(NOBODY_SENT, sorted(offsets), who, refused[value].at, why, [value])

    def _life(self, life: Life, sent: dict[str, Sent]) -> Iterator[Anomaly]:
        """The checks of one log: a value may be in it once, and those of a producer come in their order. Of what it shares with the log before
        nothing is said again."""
        places: dict[str, list[int]] = defaultdict(list)
        for offset, value in life.values.items():
            places[value].append(offset)
        last: dict[str, tuple[int, int]] = {}
        for value, offsets in places.items():
            if value not in sent:
                continue
            record, first = sent[value], offsets[0]
            if len(offsets) > 1 and record.once and offsets[-1] >= life.parts:
                values = [value] * len(offsets)
                yield self._anomaly(DUPLICATE_WRITE, offsets, record.producer, record.at, values=values)
            number, before = last.get(record.producer, (-1, -1))
            if record.number < number and first >= life.parts:
                why = f"its number {record.number} is behind number {number}"
                values = [life.values[before], value]
                yield self._anomaly(WRITE_ORDER, [before, first], record.producer, record.at, why, values)
            last[record.producer] = (record.number, first)

    def _acknowledged(self, event: Acknowledged, offsets: list[int], once: bool) -> Iterator[Anomaly]:
        """The checks of an acknowledgement. Without an offset it says that the broker had the record before: librdkafka believes that also of
        a topic that was made anew, and of its promises this one is not checked."""
        if not offsets and (once or event.offset >= 0):
            yield self._anomaly(LOST_WRITE, [event.offset], event.producer, event.at, values=[event.value])
        elif event.offset >= 0 and event.offset not in offsets:
            why = f"acknowledged at {event.offset}"
            yield self._anomaly(WRONG_OFFSET, offsets, event.producer, event.at, why)

    # ------------------------------------------------------------ polls

    def _polls(self, reader: str, events: Sequence[Event]) -> Iterator[Anomaly]:
        commits = [e for e in events if isinstance(e, Committed)]
        assignments: dict[tuple[str, int], _Assignment] = {}
        guessed: _Assignment | None = None
        last_poll: float | None = None
        for event in events:
            if isinstance(event, Assigned):
                made = _Assignment(reader, event.member, event.at, event.since, event.start)
                assignments[event.member, event.epoch] = made
                if event.start is not None:
                    every = range(len(self._lives.all))
                    yield from self._started(made, event.start, every, event.at, commits)
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
        lives = self._lives.holding(event.offsets[0], event.values[0], event.at)
        return event.member == assignment.member and any(
            not self._lives.all[after].between(
                self._next(assignment, before, after), event.offsets[0], event.at
            )
            for before in assignment.lives
            for after in lives
            if after >= before
        )

    def _next(self, assignment: _Assignment, before: int, after: int) -> int:
        """The offset that comes next if the assignment is in one log and goes on in another."""
        assert assignment.next is not None
        return self._lives.land(assignment.next, before, after)

    def _polled(self, assignment: _Assignment, event: Polled, commits: list[Committed]) -> Iterator[Anomaly]:
        for offset, value in zip(event.offsets, event.values, strict=True):
            lives = self._lives.holding(offset, value, event.at)
            if assignment.next is None:
                assignment.next, assignment.lives = offset, lives or [0]
                yield from self._started(assignment, offset, lives, event.at, commits)
            fitting = {
                after
                for before in assignment.lives
                for after in lives
                if after >= before and self._fits(assignment, before, after, offset, event.at)
            }
            if fitting:
                assignment.lives = sorted(fitting)
            else:
                yield from self._misread(assignment, offset, value, lives, event.at)
            assignment.next = offset + 1

    def _fits(self, assignment: _Assignment, before: int, after: int, offset: int, at: float) -> bool:
        """Whether the assignment goes on with this offset from one log to another."""
        following = self._next(assignment, before, after)
        return offset >= following and not self._lives.all[after].between(following, offset, at)

    def _misread(
        self, assignment: _Assignment, offset: int, value: str, lives: Sequence[int], at: float
    ) -> Iterator[Anomaly]:
        """A record with which the assignment does not go on, whichever log it is in."""
        before = assignment.lives[0]
        later = [n for n in lives if n >= before]
        if not later:
            why = f"the log has {self._lives.all[before].values.get(offset)!r} there"
            yield self._anomaly(INCONSISTENT_READ, [offset], assignment.who, at, why, values=[value])
        life = later[0] if later else before
        following = self._next(assignment, before, life)
        if offset < following:
            yield self._anomaly(POLL_BACK, [offset], assignment.who, at, f"{following} was next", [value])
        elif jumped := self._lives.all[life].between(following, offset, at):
            values = [self._lives.all[life].values[o] for o in jumped]
            why = f"{following} was next, {offset} came"
            yield self._anomaly(SKIPPED_POLL, jumped, assignment.who, at, why, values)
        assignment.lives = [life]

    def _started(
        self,
        assignment: _Assignment,
        start: int,
        lives: Sequence[int],
        at: float,
        commits: list[Committed],
    ) -> Iterator[Anomaly]:
        """An assignment begins at an offset that was the committed one at some time since it may have been asked for, as far as brokers told
        of commits by then; where there was none, at the beginning of the log; and in a later log where the one of the commit parts from
        it. The start is in one of `lives`."""
        since = assignment.at if assignment.since is None else min(assignment.since, assignment.at)
        since -= REPLICATED_S
        allowed = [e for e in commits if e.at <= since][-1:]
        found_none = not allowed
        allowed += [e for e in commits if since < e.at <= assignment.at + MILLISECOND]
        begins: set[int] = set()
        for life in [self._lives.all[n] for n in lives if found_none]:
            begins.add(begin := max(life.offsets[0] if life.offsets else life.end, life.deleted(at)))
            if not life.between(begin, start, at):
                return
        for commit in allowed:
            begun = self._lives.begun(commit.at + MILLISECOND, commit.topic_id)
            for before in begun:
                for after in [n for n in lives if n >= before]:
                    begins.add(begin := self._lives.land(commit.offset, before, after))
                    if not self._lives.all[after].between(begin, start, at):
                        return
        if lives:
            told = f"begins at {start}, committed were {sorted(begins)}"
            yield self._anomaly(UNCOMMITTED_START, [start], assignment.who, assignment.at, told)

    # ------------------------------------------------------------ commits and the end

    def _done(self, events: Sequence[Event]) -> list[tuple[float, int, int]]:
        """The moments at which records were processed: time, number of the log, offset."""
        polled: dict[tuple[str, int], str] = {}
        done: list[tuple[float, int, int]] = []
        for event in events:
            if isinstance(event, Polled):
                polled |= {(event.member, o): v for o, v in zip(event.offsets, event.values, strict=True)}
            elif isinstance(event, Processed):
                for offset in event.offsets:
                    value = polled.get((event.member, offset), "")
                    done += [(event.at, n, offset) for n in self._lives.holding(offset, value)]
        return done

    def _commits_past(
        self, reader: str, events: Sequence[Event], done: list[tuple[float, int, int]]
    ) -> Iterator[Anomaly]:
        lives = self._lives.all
        processed: list[set[int]] = [set() for _ in lives]
        whole = [0] * len(lives)  # so many of each log's first records are processed, or gone
        ahead = iter(sorted(done))
        following = next(ahead, None)
        for event in events:
            if not isinstance(event, Committed):
                continue
            at = event.at + MILLISECOND
            while following is not None and following[0] <= at:
                processed[following[1]].add(following[2])
                following = next(ahead, None)
            limits = []
            for n in self._lives.begun(at, event.topic_id):
                offsets, deleted = lives[n].offsets, lives[n].deleted(at)
                while whole[n] < len(offsets) and (
                    offsets[whole[n]] in processed[n] or offsets[whole[n]] < deleted
                ):
                    whole[n] += 1
                limits.append(offsets[whole[n]] if whole[n] < len(offsets) else lives[n].end)
            limit = max(limits, default=0)
            if event.offset > limit:
                why = f"{event.offset} was committed, {limit} was not processed"
                yield self._anomaly(COMMIT_PAST, [limit, event.offset], reader, event.at, why)

    def _commits_back(self, reader: str, commits: Sequence[Committed]) -> Iterator[Anomaly]:
        """Kafka carries out a commit that was kept somewhere behind later ones. Within a generation nothing fences it: it has to be put right."""
        topics = [life.topic_id for life in self._lives.all]

        def place(commit: Committed) -> tuple[int, int]:
            known = commit.topic_id in topics
            return topics.index(commit.topic_id) if known else len(topics), commit.offset

        highest = (0, -1)
        last = place(commits[-1]) if commits else highest
        for event in commits:
            own = place(event)
            if own < highest and last < highest:
                at, topic_id = event.at + MILLISECOND, event.topic_id
                if own[0] == highest[0] and self._lives.undone(highest[1], own[1], at, topic_id):
                    highest = own
                    continue
                why = f"{highest[1]} was committed before, and not again"
                yield self._anomaly(COMMIT_BACK, [event.offset], reader, event.at, why)
            highest = max(highest, own)

    def _unseen(self, reader: str, done: list[tuple[float, int, int]]) -> Iterator[Anomaly]:
        last = len(self._lives.all) - 1
        seen = {offset for _, n, offset in done if n == last}
        for offset in self._log.offsets:
            if offset not in seen:
                yield self._anomaly(UNSEEN, [offset], reader, self._log.at)


class _Assignment:
    """One member's hold of the partition, and the offset that comes next."""

    def __init__(self, reader: str, member: str, at: float, since: float | None, start: int | None) -> None:
        self.member = member
        self.who = f"{reader}/{member}"
        self.at = at
        self.since = since
        self.next = start
        self.lives = [0]
        """The numbers of the logs in which that may be: a value that its producer has sent again may be at its place in several."""

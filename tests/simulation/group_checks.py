"""Promises of a group's consumers and producers, held against each step of a simulated run."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

from kafka_actors.group.commit_metadata import unpack
from kafka_actors.protocol import ApiKey
from kafka_actors.types import TopicPartition

if TYPE_CHECKING:
    from kafka_actors.testing import FakeKafka
    from kafka_actors.testing.fake_kafka import BrokerCall
    from kafka_actors.testing.fake_kafka.machines.record_batches import BatchRecord

    from .network import MemoryNetwork

REQUEST_TIMEOUT_S = 4.0
"""`request_timeout_ms` of members."""
FETCH_BY_ID = (3, 1)
PRODUCE_BY_ID = (4, 1)
"""The release from which on Fetch names topics by their ids."""
Log = tuple[bytes, int]
"""A partition's log: the id of its topic, and its number."""


class Place(NamedTuple):
    """A record's place: its log, and its offset there."""

    log: Log
    offset: int


class ArrivedCommit(NamedTuple):
    """An OffsetCommit in a broker's hand. `late`: on a connection that its client has closed. `overdue`: longer on its way than its client
    waits for an answer. `before`: what the group had before this turn."""

    call: BrokerCall
    late: bool
    overdue: bool
    before: dict[tuple[str, int], Any]


class GroupChecks:
    """Notes what brokers and members did, and the promises that were broken: `failures`. committed_only: members read committed
    transactions only."""

    def __init__(
        self, kafka: FakeKafka, network: MemoryNetwork, group: str, *, committed_only: bool = False
    ) -> None:
        self.failures: list[str] = []
        self.seen: set[bytes] = set()
        self.lossy: set[Log] = set()
        """Logs that lost records by an unclean election."""
        self.recreated: set[str] = set()
        """Topics that were made anew."""
        self.heard: dict[str, float] = {}
        """When brokers got a member's last request as a member."""
        self.commits = 0
        self._cluster = network.cluster
        self._network = network
        self._group = group
        self._committed_only = committed_only
        self._ids: dict[str, set[bytes]] = defaultdict(set)
        self._places: dict[bytes, Place] = {}
        self._indexed: dict[Log, int] = {}
        self._finished: dict[Log, int] = defaultdict(int)
        self._sought: dict[tuple[str, Log], dict[int, float]] = defaultdict(dict)
        """Offsets that the user of a client moved its position to, also in a topic that was made anew meanwhile, and until when it may commit
        them: when it begins with the partition anew, a commit may be on its way."""
        self._by_seek: dict[tuple[str, TopicPartition], int] = {}
        """Positions that users moved to, from which nothing was read since. They have no leader epoch, so nobody notices that the log is cut in
        front of them and written anew: as with `seek` of Java's consumer (`FetchPosition` without an epoch, `seekUnvalidated`)."""
        self._cuts: dict[Log, list[int]] = defaultdict(list)
        """Offsets at which a log was cut, one after the other."""
        self._written_behind: dict[bytes, int] = {}
        """Number of its log's cuts before a record was written."""
        self._cuts_before: dict[tuple[str, TopicPartition], int] = {}
        """Number of cuts of its log before the last record was written that a client was given of a partition: its user moves the position by that."""
        self._passed_over: dict[Log, list[tuple[int, int]]] = defaultdict(list)
        """Offsets from and to which records may be unseen for that reason."""
        self._most_committed: dict[Log, int] = defaultdict(int)
        self._next: dict[tuple[str, TopicPartition], Place] = {}
        self._generations: dict[tuple[str, int], int] = {}
        self._acknowledged: dict[bytes, int] = {}
        self._rewound: set[Log] = set()
        self._read_to: dict[Log | None, tuple[int, int]] = {}
        self._asked: list[ArrivedCommit] = []
        self._undone: dict[Log, int] = {}
        self._late: dict[Log, Any] = {}
        for api in (ApiKey.HEARTBEAT, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.OFFSET_COMMIT):
            kafka.on(api, _nothing(), times=None, when=self._arrived)
        network.on_turn.append(self._carried_out)

    def fail(self, text: str) -> None:
        """Notes a broken promise."""
        self.failures.append(f"{text} (at {self._cluster.state.now:.3f})")

    # ---------------------------------------------------------------- logs

    def log_of(self, tp: TopicPartition) -> Log | None:
        """The log that a partition has now."""
        topic = self._cluster.state.topics.get(tp.topic)
        if topic is None:
            return None
        self._ids[tp.topic].add(topic.topic_id.bytes)
        return topic.topic_id.bytes, tp.partition

    def visible(self, tp: TopicPartition) -> list[BatchRecord]:
        """The records of a partition that members may be given now."""
        found: list[BatchRecord] = self._cluster.state.partition(*tp).log.records(
            committed=self._committed_only
        )
        return found

    def readable(self, tp: TopicPartition, start: int, end: int = 2**62) -> list[int]:
        """The offsets of a partition's records from one offset to another that members may be given now."""
        return [record.offset for record in self.visible(tp) if start <= record.offset < end]

    def is_kept(self, value: bytes) -> bool:
        """Whether a record was written, and its log has not lost it since, by deletion or with its topic."""
        place = self._places.get(value)
        if place is None:
            return True
        for name in self._cluster.state.topics:
            tp = TopicPartition(name, place.log[1])
            if self.log_of(tp) == place.log:
                return bool(self._cluster.state.partition(*tp).log.start_offset <= place.offset)
        return False

    def index(self, tp: TopicPartition) -> None:
        """Notes the places of records that were written since. Call it before a log is truncated or deleted."""
        key = self.log_of(tp)
        if key is None:
            return
        start = self._indexed.get(key, 0)
        log = self._cluster.state.partition(*tp).log
        if log.end_offset == start:
            return
        for batch in log.batches:
            if batch.last_offset >= start and not batch.is_control:
                for record in batch.records():
                    self._places[record.value or b""] = Place(key, record.offset)
                    self._written_behind[record.value or b""] = len(self._cuts[key])
        self._indexed[key] = log.end_offset

    def truncated(self, tp: TopicPartition, offset: int) -> None:
        """Notes that the records from an offset on were lost: the log ends there now."""
        key = self.log_of(tp)
        assert key is not None
        self.lossy.add(key)
        self._cuts[key].append(offset)
        self._passed_over[key] = [
            (start, min(end, offset)) for start, end in self._passed_over[key] if start < offset
        ]
        behind = [at for (_, of), at in self._by_seek.items() if of == tp and at > offset]
        if behind:
            self._passed_over[key].append((offset, max(behind)))
        if key in self._undone:
            self._undone[key] = min(offset, self._undone[key])
        self._indexed[key] = min(offset, self._indexed.get(key, 0))

    def acknowledged(self, value: bytes, tp: TopicPartition, offset: int) -> None:
        """Notes that a producer was told where its record is."""
        self.index(tp)
        self._acknowledged[value] = offset
        place = self._places.get(value)
        if place is None:
            self.fail(f"{value!r} was acknowledged at {tp} {offset}, and is not there")
        elif place.offset != offset and place.log not in self.lossy:
            self.fail(f"{value!r} was acknowledged at {tp} {offset}, and is at {place.offset}")

    def unseen(self, tp: TopicPartition) -> list[bytes]:
        """Records of a partition that no member was given."""
        self.index(tp)
        log = self._cluster.state.partition(*tp).log
        if self._read_to.get(self.log_of(tp)) == (log.end_offset, len(self.seen)):
            return []
        passed_over = self._passed_over.get(self.log_of(tp) or (b"", 0), ())
        found = [
            record.value or b""
            for record in self.visible(tp)
            if record.value not in self.seen
            and not any(start <= record.offset < end for start, end in passed_over)
        ]
        if not found and log.stable_offset == log.end_offset:
            self._read_to[self.log_of(tp)] = log.end_offset, len(self.seen)
        return found

    def check_log(self, tp: TopicPartition, sent: list[dict[bytes, TopicPartition]]) -> None:
        """Looks at the records of a partition at the end: each was sent there, is there once, in its producer's order, and none that
        was acknowledged is missing."""
        key = self.log_of(tp)
        log = self._cluster.state.partition(*tp).log
        values = [record.value or b"" for record in log.records()]
        for value in values:
            if not any(written.get(value) == tp for written in sent):
                self.fail(f"{value!r} is in {tp}: nobody sent it there")
        if len(set(values)) != len(values):
            twice = next(value for value in values if values.count(value) > 1)
            self.fail(f"{twice!r} is in {tp} more than once")
        for written in sent:
            own = [value for value in values if value in written]
            by_name = tp.topic in self.recreated and self._cluster.state.release < PRODUCE_BY_ID
            if own != sorted(own) and key not in self.lossy and not by_name:
                self.fail(f"{tp} has records of a producer in another order: {own}")
        for value in self._acknowledged:
            place = self._places[value]
            if (
                place.log == key
                and value not in values
                and key not in self.lossy
                and place.offset >= log.start_offset
            ):
                self.fail(f"{value!r} was acknowledged at {tp} {place.offset}, and is lost")

    @property
    def generation(self) -> int:
        """The group's generation."""
        group = self._cluster.groups.groups.get(self._group)
        return 0 if group is None else group.members.generation

    # ---------------------------------------------------------------- members

    def assigned(self, client: str, partitions: list[TopicPartition]) -> None:
        """Notes that a member begins with partitions."""
        for tp in partitions:
            self._next.pop((client, tp), None)
            self._by_seek.pop((client, tp), None)
            sought = self._sought.get((client, self.log_of(tp) or (b"", 0)), {})
            for offset, until in sought.items():
                sought[offset] = min(until, self._cluster.state.now + REQUEST_TIMEOUT_S)

    def rewound(self, tp: TopicPartition) -> None:
        """Notes that a member is about to move its position back: commits may go back from now on."""
        if (log := self.log_of(tp)) is not None:
            self._rewound.add(log)

    def sought(self, client: str, tp: TopicPartition, offset: int) -> None:
        """Notes that a member has moved its position."""
        if (log := self.log_of(tp)) is not None:
            self._next[client, tp] = Place(log, offset)
            self._by_seek[client, tp] = offset
            cuts = self._cuts[log][self._cuts_before.get((client, tp), 0) :]
            if cuts and min(cuts) < offset:
                self._passed_over[log].append((min(cuts), offset))
            self._sought[client, log][offset] = math.inf

    def delivered(self, client: str, tp: TopicPartition, records: list[tuple[int, bytes]]) -> Place:
        """Notes records that a member was given; returns the place behind them."""
        self.index(tp)
        first, value = records[0]
        self._by_seek.pop((client, tp), None)
        place = self._places.get(value)
        if place is None:
            self.fail(f"{client} was given {value!r} of {tp}, which nobody wrote")
            return Place((b"", 0), 0)
        log = place.log
        self._cuts_before[client, tp] = self._written_behind[records[-1][1]]
        self.seen.update(value for _, value in records)
        if log not in self.lossy:
            for offset, value in records:
                if self._places.get(value) != Place(log, offset):
                    self.fail(
                        f"{client} was given {value!r} at {tp} {offset}: it is at {self._places.get(value)}"
                    )
            if log == self.log_of(tp):
                offsets = [offset for offset, _ in records]
                start = self._cluster.state.partition(*tp).log.start_offset
                there = self.readable(tp, first, offsets[-1] + 1)
                if [offset for offset in offsets if offset >= start] != there:
                    self.fail(f"{client} was given offsets {offsets} of {tp}: {there} are there")
            self._begins_right(client, tp, log, first)
        behind = Place(log, records[-1][0] + 1)
        self._next[client, tp] = behind
        return behind

    def _begins_right(self, client: str, tp: TopicPartition, log: Log, first: int) -> None:
        before = self._next.get((client, tp))
        if before is not None and before.log == log:
            passed = log == self.log_of(tp) and self.readable(tp, before.offset, first)
            if first < before.offset or passed:
                self.fail(f"{client} was given {tp} from {first}: it had read to {before.offset}")
        elif tp.topic in self.recreated and self._cluster.state.release < FETCH_BY_ID:
            return  # nobody notices before metadata is asked for again; then the topic is read from its start
        elif log == self.log_of(tp) and self.readable(tp, committed := self._most_committed[log], first):
            self.fail(f"{client} began {tp} at {first}: the group has committed {committed}")

    def finished(self, behind: Place) -> None:
        """Notes that a member has finished all records in front of a place, as far as its own batch goes."""
        self._finished[behind.log] = max(self._finished[behind.log], behind.offset)

    def owners(self, members: list[Any]) -> None:
        """Each partition has one owner among the members that the brokers have in the group. A static one that came again is there by its
        instance id: brokers keep the client id that it had first."""
        group = self._cluster.groups.groups.get(self._group)
        if group is None:
            return
        inside = {member.instance_id or member.client_id for member in group.members}
        owner: dict[TopicPartition, str] = {}
        for member in members:
            if member.running and inside.intersection((member.name, member.client)):
                for tp in member.assignment:
                    if tp in owner:
                        self.fail(f"{tp} is owned by {owner[tp]} and by {member.client}")
                    owner[tp] = member.client

    # ---------------------------------------------------------------- requests

    def committed(self, tp: TopicPartition) -> int:
        """The offset that the group has committed for the log that a partition has now; 0 for none. One that a commit has undone which came
        later than its client looks for it (`LateCommits`) counts."""
        found = self._cluster.offsets.committed(self._group).get((tp.topic, tp.partition))
        committed = found.offset if found is not None and self._is_of(tp, found.metadata) else 0
        log = self.log_of(tp)
        return committed if log is None else max(committed, self._undone.get(log, 0))

    def was_sought(self, tp: TopicPartition, offset: int) -> bool:
        """Whether a user moved the position of this partition's log to an offset, and so may have committed one beyond its end."""
        log = self.log_of(tp)
        return any(of == log and offset in offsets for (_, of), offsets in self._sought.items())

    def _is_of(self, tp: TopicPartition, metadata: str) -> bool:
        log, topic_id = self.log_of(tp), unpack(metadata).topic_id
        return log is not None and topic_id in (None, log[0])

    def _arrived(self, call: BrokerCall) -> bool:
        request = call.request
        late = self._is_late(call)
        self.heard[call.client_id or ""] = call.at
        generation = getattr(request, "generation_id", getattr(request, "generation_id_or_member_epoch", -1))
        if generation >= 0 and not late and call.api_key is not ApiKey.JOIN_GROUP:
            asker = request.member_id, call.link.number  # connections overtake each other
            if generation < self._generations.get(asker, 0):
                self.fail(f"{request.member_id} goes back to generation {generation}: {call.api_key.name}")
            self._generations[asker] = generation
        if call.api_key is ApiKey.OFFSET_COMMIT:
            self._asked.append(self._commit_in_hand(call, self._cluster.offsets.committed(self._group)))
        return False

    def _is_late(self, call: BrokerCall) -> bool:
        link = self._network.links.get(call.link.number)
        return link is None or not link.open

    def _commit_in_hand(self, call: BrokerCall, before: dict[tuple[str, int], Any]) -> ArrivedCommit:
        link = self._network.links.get(call.link.number)
        overdue = link is not None and self._cluster.state.now - link.sent_at > REQUEST_TIMEOUT_S
        return ArrivedCommit(call, self._is_late(call), overdue, before)

    def _carried_out(self) -> None:
        asked, self._asked = self._asked, []
        if asked:
            now = self._cluster.offsets.committed(self._group)
            for commit in asked:
                held = not commit.call.answered and commit.call.link.open
                if held:  # it is carried out later, or never
                    self._asked.append(self._commit_in_hand(commit.call, now))
                    continue
                for topic in commit.call.request.topics:
                    for p in topic.partitions:
                        key = topic.name, p.partition_index
                        if now.get(key) is not commit.before.get(key) and key in now:
                            self._committed(commit, TopicPartition(*key), commit.before.get(key), now[key])

    def _committed(self, commit: ArrivedCommit, tp: TopicPartition, before: Any, now: Any) -> None:
        self.commits += 1
        log, who, late = self.log_of(tp), commit.call.client_id, commit.late
        if log is None:
            return
        known = before is not None and self._is_of(tp, before.metadata)
        if not self._is_of(tp, now.metadata):
            if commit.overdue and known:
                self._undone[log] = before.offset
            self._of_another_topic(who or "", late, tp, log, now)
            return
        falls = known and now.offset < before.offset
        # Whose client had given it up: it may have begun again in front of it.
        unheard = before is not None and self._late.get(log) is before
        self._late[log] = now if late else None
        if commit.overdue and falls:
            self._undone[log] = before.offset
        elif now.offset >= self._undone.get(log, 0):
            self._undone.pop(log, None)
        if log in self.lossy:
            return
        self._most_committed[log] = max(self._most_committed[log], now.offset)
        if falls and not late and not unheard and log not in self._rewound:
            self.fail(f"{who} committed {tp} {now.offset} after {before.offset}")
        start = self._cluster.state.partition(*tp).log.start_offset  # records before it were deleted
        until = self._sought[who or "", log].get(now.offset)
        sought = until is not None and (late or commit.overdue or self._cluster.state.now <= until)
        if (
            now.offset > max(self._finished[log], start)
            and not sought
            and (not self._committed_only or self.readable(tp, self._finished[log], now.offset))
        ):
            self.fail(f"{who} committed {tp} {now.offset}: only {self._finished[log]} was processed")

    def _of_another_topic(self, who: str, late: bool, tp: TopicPartition, log: Log, now: Any) -> None:
        """A commit with the id of the topic before is for nobody: readers pass over it. It may come from who has not heard yet, and on a
        connection that its client has given up."""
        topic_id = unpack(now.metadata).topic_id
        if topic_id not in self._ids[tp.topic]:
            self.fail(f"{who} committed {tp} {now.offset} with an id that its topic never had")
        elif late or self._cluster.state.release < FETCH_BY_ID:
            return  # without ids in Fetch nobody can tell the records of one from the other's
        elif now.offset > self._finished[topic_id, tp.partition] and not self._committed_only:
            # With transactions their ends may lie between, and the log is gone that would tell.
            self.fail(f"{who} committed {tp} {now.offset} of the topic before: more than was processed")
        elif (reads := self._next.get((who, tp))) is not None and reads.log == log:
            self.fail(f"{who} committed {tp} {now.offset} of the topic before: it reads the one of now")


def _nothing() -> Any:
    """An action that is never taken: its rule only looks at requests."""
    from kafka_actors.testing.fake_kafka import Hold

    return Hold()

"""Random requests for the differential test: topics, producers with their sequences, fetches, groups and commits, and all that is wrong in them.
Those of transactions: `differential_transactions`; of settings and the cluster: `differential_admin`."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from random import Random
from typing import Any

from crc32c import crc32c
from fakes.differential import Pair, topic_id_of
from fakes.differential_admin import AdminLoad
from fakes.differential_transactions import TransactionLoad
from fakes.fake_wire import record_batch

from kafka_actors.protocol import (
    ZERO_UUID,
    ApiKey,
    ApiVersionsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteGroupsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    DescribeGroupsRequest,
    FetchRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    InitProducerIdRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    ListOffsetsRequest,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    OffsetForLeaderEpochRequest,
    ProduceRequest,
    SyncGroupRequest,
    encode_consumer_protocol,
)
from kafka_actors.protocol.messages import (
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    fetch,
    join_group,
    leave_group,
    list_offsets,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
)
from kafka_actors.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from kafka_actors.testing.fake_kafka.machines.api_ranges import api_ranges

MEMBERS = 4


class Load:
    """Asks a pair of clusters at random. All names begin with `prefix`, so that a broker can be used by many runs."""

    def __init__(self, pair: Pair, random: Random, prefix: str) -> None:
        self.pair = pair
        self.random = random
        self.prefix = prefix
        self.topics = [f"{prefix}-a", f"{prefix}-b"]
        self.group = f"{prefix}-g"
        self.producers: list[list[int]] = []  # fake id, epoch, next sequence of each partition
        self.sequences: dict[tuple[int, str, int], int] = {}
        self.sessions: dict[str, list[int]] = {}
        self.members: dict[str, dict[str, Any]] = {}
        # Of records: older than the markers of transactions, whose times are each broker's own.
        self.now_ms = time.time_ns() // 1_000_000 - 60_000
        self.ranges = api_ranges(pair.release)
        self.deleted: set[str] = set()
        self._ops: list[tuple[int, Callable[[], object]]] = [
            (3, self.create_topic),
            (1, self.delete_topic),
            (2, self.create_partitions),
            (5, self.metadata),
            (4, self.init_producer),
            (30, self.produce),
            (6, self.bad_produce),
            (20, self.fetch),
            (8, self.list_offsets),
            (5, self.offset_for_leader_epoch),
            (2, self.delete_records),
            (1, self.find_coordinator),
            (16, self.join),
            (14, self.sync),
            (8, self.heartbeat),
            (5, self.leave),
            (10, self.commit),
            (6, self.offset_fetch),
            (2, self.list_groups),
            (4, self.describe_groups),
            (1, self.delete_groups),
            (2, self.offset_delete),
        ]
        if pair.release < (4, 0):  # another group coordinator, with rules of its own for members
            membership = (self.join, self.sync, self.leave)
            self._ops = [(weight, op) for weight, op in self._ops if op not in membership]
        self.transactions = TransactionLoad(self)
        self._ops += self.transactions.ops
        self._ops += AdminLoad(self).ops

    def begin(self) -> None:
        """Waits for the broker, and creates the first topic."""
        self.pair.until_ready(self.group)
        self._create(self.topics[0], 3, {})

    def run(self, steps: int) -> None:
        """Asks so many times."""
        weights = [weight for weight, _ in self._ops]
        for _ in range(steps):
            self.random.choices(self._ops, weights)[0][1]()

    def end(self) -> None:
        """Closes the fetch sessions: a broker has room for a thousand."""
        for on, (session_id, *_) in self.sessions.items():
            self.pair.ask(
                FetchRequest(session_id=session_id, session_epoch=-1), 13 if on.endswith("i") else 12, on
            )

    # ---------------------------------------------------------------- choices

    def version(self, api: ApiKey, least: int = 0) -> int:
        low, high = self.ranges[api]
        return self.random.randint(max(low, least), high)

    def name(self) -> str:
        return self.random.choice([*self.topics, *self.topics, f"{self.prefix}-none"])

    def known(self) -> str:
        there = [name for name in self.topics if name in self.pair.fake.state.topics]
        return self.random.choice(there or self.topics)

    def partition(self) -> int:
        return self.random.choice([0, 0, 0, 1, 1, 2, 3, 7])

    def end_offset(self, name: str, index: int) -> int:
        topic = self.pair.fake.state.topics.get(name)
        return topic.partitions[index].log.end_offset if topic and index < len(topic.partitions) else 0

    def offset(self, name: str, index: int) -> int:
        end = self.end_offset(name, index)
        return self.random.choice([0, 1, max(end - 1, 0), end, end, self.random.randint(0, end + 2)])

    # ---------------------------------------------------------------- topics

    def _create(
        self, name: str, partitions: int, configs: dict[str, str], *, validate_only: bool = False
    ) -> None:
        request = CreateTopicsRequest(
            topics=[
                create_topics.CreatableTopic(
                    name, partitions, 1, [], [create_topics.CreatableTopicConfig(*c) for c in configs.items()]
                )
            ],
            timeout_ms=30_000,
            validate_only=validate_only,
        )
        # A topic that is only validated has an id that nothing ever has: before version 7 it is not told.
        version = self.random.randint(4, 6) if validate_only else 7
        self.pair.ask(request, version, "admin")
        if name.startswith(self.prefix):
            self.pair.until_topic_agrees(name)

    def create_topic(self) -> None:
        configs = self.random.choice(
            [
                {},
                {},
                {"cleanup.policy": "compact"},
                {"max.message.bytes": "300"},
                {"no.such": "1"},
                {"retention.ms": "x"},
                {"min.insync.replicas": "2"},
            ]
        )
        name = self.random.choice(
            [*self.topics, self.topics[1], "bad name", "..", f"{self.prefix}_a".replace("-", ".")]
        )
        if name.startswith(self.prefix) and name not in self.topics:
            name = self.topics[0]
        if name in self.deleted:  # a real broker forgets committed offsets of a deleted topic some time later
            return
        partitions = self.random.choice([1, 2, 3, 0, -2])
        self._create(name, partitions, configs, validate_only=self.random.random() < 0.1)

    def delete_topic(self) -> None:
        name = self.random.choice([self.topics[1], f"{self.prefix}-none"])
        version = self.version(ApiKey.DELETE_TOPICS)
        if name in self.pair.fake.state.topics:
            self.deleted.add(name)
        if version < 6:
            request = DeleteTopicsRequest(topic_names=[name], timeout_ms=30_000)
        elif name in self.pair.fake.state.topics and self.random.random() < 0.5:
            state = delete_topics.DeleteTopicState(None, topic_id_of(self.pair, name))
            request = DeleteTopicsRequest(topics=[state], timeout_ms=30_000)
        else:
            request = DeleteTopicsRequest(topics=[delete_topics.DeleteTopicState(name)], timeout_ms=30_000)
        self.pair.ask(request, version, "admin")
        self.pair.until_topic_agrees(name)
        if self.pair.release < (4, 0):  # where empty groups may go with it, a moment later
            for group in (self.group, f"{self.group}2"):
                self.pair.until_group_agrees(group)

    def create_partitions(self) -> None:
        name = self.name()
        topic = create_partitions.CreatePartitionsTopic(name, self.random.choice([1, 2, 3, 4]), None)
        request = CreatePartitionsRequest(
            topics=[topic], timeout_ms=30_000, validate_only=self.random.random() < 0.3
        )
        self.pair.ask(request, self.version(ApiKey.CREATE_PARTITIONS), "admin")
        self.pair.until_topic_agrees(name)

    def metadata(self) -> None:
        version = self.version(ApiKey.METADATA, 4)
        names = self.random.sample([*self.topics, f"{self.prefix}-none", "bad name"], 2)
        topics = [metadata.MetadataRequestTopic(name=name) for name in names]
        if version >= 12 and (there := [n for n in names if n in self.pair.fake.state.topics]):
            topics = [
                metadata.MetadataRequestTopic(topic_id=topic_id_of(self.pair, n), name=None) for n in there
            ]
        request = MetadataRequest(
            topics=topics,
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=version >= 8 and self.random.random() < 0.3,
        )
        self.pair.ask(request, version, "admin")

    def find_coordinator(self) -> None:
        version = self.version(ApiKey.FIND_COORDINATOR)
        request = (
            FindCoordinatorRequest(key=self.group)
            if version < 4
            else FindCoordinatorRequest(coordinator_keys=[self.group])
        )
        self.pair.ask(request, version, "admin")

    # ---------------------------------------------------------------- producing

    def init_producer(self) -> None:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1_000)
        answer = self.pair.ask(request, self.version(ApiKey.INIT_PRODUCER_ID) % 6, "producer")
        self.producers.append([answer.producer_id, 0])

    def produce(self) -> None:
        name, index = self.known(), self.partition()
        count = self.random.randint(1, 4)
        producer = (-1, -1, -1)
        if self.producers and self.random.random() < 0.85:
            chosen = self.random.choice(self.producers[-2:])
            if self.random.random() < 0.06:
                chosen[1] += 1
            producer = self._sequence(chosen, name, index, count)
        self._produce(
            name,
            index,
            self._batch(count, producer),
            self._batch(count, self._real(producer)),
            producer,
            count,
        )

    def produce_as(
        self,
        name: str,
        index: int,
        producer: tuple[int, int, int],
        count: int,
        *,
        transactional: bool,
        transactional_id: str | None,
    ) -> None:
        """Asks for a batch of a producer with a transactional id to be written."""
        self._produce(
            name,
            index,
            self._batch(count, producer, transactional),
            self._batch(count, self._real(producer), transactional),
            producer,
            count,
            transactional_id,
        )

    def _sequence(self, chosen: list[int], name: str, index: int, count: int) -> tuple[int, int, int]:
        following = self.sequences.get((chosen[0], name, index), 0)
        sequence = self.random.choices(
            [following, max(0, following - count), max(0, following - 2), following + 3, 0, 2**31 - 2],
            [60, 15, 10, 6, 6, 2],
        )[0]
        epoch = max(0, chosen[1] - (self.random.random() < 0.08))
        return chosen[0], epoch, sequence

    def _real(self, producer: tuple[int, int, int]) -> tuple[int, int, int]:
        return (self.pair.ids.real(producer[0]) if producer[0] >= 0 else -1, *producer[1:])

    def _batch(self, count: int, producer: tuple[int, int, int], transactional: bool = False) -> bytes:
        seed = Random(f"{self.pair.compared}")
        stamps = [self.now_ms + seed.randint(-5_000, 5_000) for _ in range(count)]
        keys: list[bytes | None] = [b"k%d" % seed.randint(0, 3) for _ in range(count)]
        if seed.random() < 0.1:
            keys[0] = None
        return record_batch(
            *[b"v" * seed.randint(0, 60) for _ in range(count)],
            producer=producer,
            keys=keys,
            timestamps=stamps,
            transactional=transactional,
        )

    def _produce(
        self,
        name: str,
        index: int,
        data: bytes,
        real_data: bytes,
        producer: tuple[int, int, int],
        count: int,
        transactional_id: str | None = None,
    ) -> None:
        version = self.version(ApiKey.PRODUCE)
        acks = self.random.choices([-1, 1, 2], [10, 10, 1])[0]
        answers = []
        topic_id = ZERO_UUID
        if version >= 13:
            if name not in self.pair.fake.state.topics:
                version = 12
            else:
                topic_id = topic_id_of(self.pair, name)

        def request(records: bytes, identity: Any) -> ProduceRequest:
            part = produce.PartitionProduceData(index, records)
            topic = produce.TopicProduceData(name if version < 13 else "", identity, [part])
            return ProduceRequest(transactional_id, acks, 30_000, [topic])

        answers.append(
            self.pair.ask(
                request(data, topic_id), version, "producer", request(real_data, self.pair.ids.real(topic_id))
            )
        )
        (found,) = answers[0].responses[0].partition_responses
        if found.error_code == 0 and producer[0] >= 0:
            self.sequences[producer[0], name, index] = (producer[2] + count) & 0x7FFFFFFF

    def bad_produce(self) -> None:
        name, index = self.known(), self.partition()
        data = bytearray(self._batch(2, (-1, -1, -1)))
        kind = self.random.randrange(9)
        if kind == 0:
            data[-1] ^= 1  # a wrong checksum
        elif kind == 1:
            data = bytearray(bytes(data) * 2)  # two batches
        elif kind == 2:
            data[16] = 1  # another format
        else:
            at, form, value = [
                (23, ">i", 5),  # last offset delta
                (57, ">i", 1),  # count
                (21, ">h", 0x20),  # control
                (0, ">q", 7),  # base offset
                (21, ">h", 0x08),  # LogAppendTime
                (21, ">h", 0x10),  # transactional without a producer id
            ][kind - 3]
            struct.pack_into(form, data, at, value)
            struct.pack_into(">I", data, 17, crc32c(memoryview(data)[21:]))
        transactional_id = self.random.choice([None, self.transactions.ids[0]])
        self._produce(name, index, bytes(data), bytes(data), (-1, -1, -1), 2, transactional_id)

    # ---------------------------------------------------------------- fetching

    def fetch(self) -> None:
        version = min(self.version(ApiKey.FETCH) if self.random.random() < 0.9 else 12, 17)
        on = self.random.choice(["f1", "f2"]) + (
            "i" if version >= 13 else "n"
        )  # a session is by ids or by names
        session = self.sessions.setdefault(on, [0, 0, version])
        if session[1] > 0:
            version = session[2]  # a client does not change its version within a session
        if version < 7:
            session_id, epoch = 0, -1
        else:
            session_id, epoch, _ = session
            if self.random.random() < 0.06:
                epoch = self.random.choice([0, -1, epoch + 1, 5])
            elif epoch > 0 and self.random.random() < 0.03:
                session_id = 12345
        topics = []
        for name in self.random.sample(self.topics, self.random.randint(0 if epoch > 0 else 1, 2)):
            if version >= 13 and name not in self.pair.fake.state.topics:
                continue
            parts = [
                self._fetch_partition(name, i, version) for i in sorted({self.partition() for _ in range(2)})
            ]
            identity = topic_id_of(self.pair, name) if version >= 13 else ZERO_UUID
            topics.append(fetch.FetchTopic(name if version < 13 else "", identity, parts))
        forgotten = []
        if epoch > 0 and self.random.random() < 0.1 and self.topics[0] in self.pair.fake.state.topics:
            identity = topic_id_of(self.pair, self.topics[0]) if version >= 13 else ZERO_UUID
            forgotten = [
                fetch.ForgottenTopic(self.topics[0] if version < 13 else "", identity, [self.partition()])
            ]
        request = FetchRequest(
            max_wait_ms=self.random.choice([0, 0, 0, 5]),
            min_bytes=self.random.choice([0, 1, 1, 500]),
            max_bytes=self.random.choice([1 << 20, 1 << 20, 150, 1]),
            isolation_level=self.random.choice([0, 1]),
            session_id=session_id,
            session_epoch=epoch,
            topics=topics,
            forgotten_topics_data=forgotten,
        )
        answer = self.pair.ask(request, version, on)
        while answer is None:  # the fake's time passes when it is asked
            self.pair.fake.now = self.pair.fake.now + 0.01
            self.pair.fake.poll()
            answer = self.pair.settle().get(on)
        if version >= 7:
            if answer.error_code:
                session[1] = 0  # a full request closes the session that it names
            elif not answer.session_id:
                del self.sessions[on]
            else:
                self.sessions[on] = [answer.session_id, 1 if epoch in (0, -1) else epoch + 1, version]

    def _fetch_partition(self, name: str, index: int, version: int) -> fetch.FetchPartition:
        return fetch.FetchPartition(
            index,
            self.random.choices([-1, 0, 1], [6, 3, 1])[0] if version >= 9 else -1,
            self.offset(name, index),
            self.random.choices([-1, 0, 1], [8, 2, 1])[0] if version >= 12 else -1,
            partition_max_bytes=self.random.choice([1 << 20, 200, 100, 1]),
        )

    def list_offsets(self) -> None:
        version = self.version(ApiKey.LIST_OFFSETS)
        partitions = [
            list_offsets.ListOffsetsPartition(
                index,
                self.random.choices([-1, 0, 1], [5, 3, 1])[0] if version >= 4 else -1,
                self.random.choice(
                    [-1, -1, -2, -2, -3, -4, -5, -9, self.now_ms + self.random.randint(-5_500, 5_500)]
                ),
            )
            for index in sorted({self.partition() for _ in range(2)})
        ]
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=self.random.choice([0, 1]) if version >= 2 else 0,
            topics=[list_offsets.ListOffsetsTopic(self.name(), partitions)],
        )
        self.pair.ask(request, version, "offsets")

    def offset_for_leader_epoch(self) -> None:
        part = offset_for_leader_epoch.OffsetForLeaderPartition(
            self.partition(), self.random.choice([-1, 0, 1]), self.random.choice([-1, 0, 0, 1])
        )
        request = OffsetForLeaderEpochRequest(
            replica_id=-1, topics=[offset_for_leader_epoch.OffsetForLeaderTopic(self.name(), [part])]
        )
        self.pair.ask(request, self.version(ApiKey.OFFSET_FOR_LEADER_EPOCH), "offsets")

    def delete_records(self) -> None:
        name, index = self.name(), self.partition()
        offset = self.random.choice([-1, self.offset(name, index), self.offset(name, index)])
        part = delete_records.DeleteRecordsPartition(index, offset)
        request = DeleteRecordsRequest(
            topics=[delete_records.DeleteRecordsTopic(name, [part])], timeout_ms=30_000
        )
        self.pair.ask(request, self.version(ApiKey.DELETE_RECORDS), "admin")

    # ---------------------------------------------------------------- groups

    def member(self) -> tuple[str, dict[str, Any]]:
        free = [f"m{i}" for i in range(MEMBERS) if not self.pair.waits(f"m{i}")]
        on = self.random.choice(free or [f"late{self.pair.compared}"])
        fresh = {"id": "", "generation": -1, "instance": on if on in ("m0", "m1") else None, "leader": False}
        return on, self.members.setdefault(on, fresh)

    def join(self) -> None:
        on, member = self.member()
        version = self.version(ApiKey.JOIN_GROUP, 5 if member["instance"] else 0)
        chosen = self.random.choices([member["id"], "", "stranger"], [12, 3, 1])[0]
        names = self.random.choices(
            [["range", "sticky"], ["sticky", "range"], ["range"], ["other"]], [6, 3, 2, 1]
        )[0]
        topics = sorted(self.random.sample(self.topics, self.random.randint(1, 2)))
        blob = encode_consumer_protocol(ConsumerProtocolSubscription(topics=topics), 1)
        request = JoinGroupRequest(
            group_id=self.random.choices([self.group, ""], [30, 1])[0],
            session_timeout_ms=self.random.choices([600_000, 10], [30, 1])[0],
            rebalance_timeout_ms=600_000,
            member_id=chosen,
            group_instance_id=member["instance"],
            protocol_type=self.random.choices(["consumer", "connect", ""], [40, 1, 1])[0],
            protocols=[join_group.JoinGroupRequestProtocol(n, blob) for n in names],
        )
        answer = self.pair.ask(request, version, on)
        self._note(answer, on)
        self._settle()
        self.pair.until_group_agrees(self.group)  # what a broker writes down it tells some milliseconds later

    def _settle(self) -> None:
        """The fake's timers of no delay run when it is asked again."""
        for on, answer in self.pair.settle().items():
            self._note(answer, on)

    def _note(self, answer: Any, on: str) -> None:
        self_made = self.members.get(on)
        if answer is None or self_made is None or not hasattr(answer, "generation_id"):
            return
        if answer.error_code in (0, 79):
            self_made["id"] = answer.member_id
        if answer.error_code == 0:
            self_made["generation"] = answer.generation_id
            self_made["leader"] = answer.leader == answer.member_id
            self_made["protocol"] = answer.protocol_name
            if answer.members:
                self_made["others"] = [m.member_id for m in answer.members]
        elif answer.error_code in (25, 82):
            self_made["id"] = ""

    def generation(self, member: dict[str, Any]) -> int:
        return int(self.random.choices([member["generation"], member["generation"] - 1, 99], [20, 1, 1])[0])

    def sync(self) -> None:
        waiting = [on for on, m in self.members.items() if m["leader"] and not self.pair.waits(on)]
        on, member = self.member()
        if waiting and self.random.random() < 0.5:
            on, member = waiting[0], self.members[waiting[0]]
        version = self.version(ApiKey.SYNC_GROUP, 3 if member["instance"] else 0)
        assignments = [
            sync_group.SyncGroupRequestAssignment(other, b"to %d" % i)
            for i, other in enumerate(member.get("others", []))
        ]
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation(member),
            member_id=member["id"],
            group_instance_id=member["instance"],
            protocol_type=self.random.choices(["consumer", "connect", None], [20, 1, 1])[0]
            if version >= 5
            else None,
            protocol_name=self.random.choices([member.get("protocol"), "range", None], [20, 1, 1])[0]
            if version >= 5
            else None,
            assignments=assignments if member["leader"] else [],
        )
        if self.pair.ask(request, version, on) is None:
            self.pair.until_group_agrees(self.group)
        self._settle()

    def heartbeat(self) -> None:
        on, member = self.member()
        request = HeartbeatRequest(self.group, self.generation(member), member["id"], member["instance"])
        self.pair.ask(request, self.version(ApiKey.HEARTBEAT, 3 if member["instance"] else 0), f"hb-{on}")
        self._settle()

    def leave(self) -> None:
        on, member = self.member()
        version = self.version(ApiKey.LEAVE_GROUP)
        if version < 3:
            request = LeaveGroupRequest(self.group, member["id"])
        else:
            who = [leave_group.MemberIdentity(member["id"], member["instance"])]
            if self.random.random() < 0.2:
                who.append(leave_group.MemberIdentity("", self.random.choice(["m0", "nobody"])))
            request = LeaveGroupRequest(self.group, "", who)
        self.pair.ask(request, version, f"hb-{on}")
        member["leader"] = False
        self._settle()
        self.pair.until_group_agrees(self.group)

    def commit(self) -> None:
        on, member = self.member()
        version = self.version(ApiKey.OFFSET_COMMIT, 7 if member["instance"] else 0) % 10
        version = max(version, 7 if member["instance"] else 2)
        simple = self.random.random() < 0.2
        group = self.random.choices([self.group, f"{self.group}2"], [5, 1])[0]
        # A group that only a refused commit has named is there for Kafka, but only once something else is written down.
        too_long = 1 if group == self.group and group in self.pair.fake.cluster.groups.groups else 0
        part = offset_commit.OffsetCommitRequestPartition(
            self.partition(),
            self.random.randint(0, 50),
            self.random.choice([-1, 0]) if version >= 6 else -1,
            self.random.choices(["", "note", None, "x" * 5_000], [10, 10, 3, too_long])[0],
        )
        name = self.name()
        if name in self.deleted:
            return
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=-1 if simple else self.generation(member),
            member_id="" if simple else member["id"],
            group_instance_id=None if simple else member["instance"],
            topics=[offset_commit.OffsetCommitRequestTopic(name, ZERO_UUID, [part])],
        )
        self.pair.ask(request, version, f"hb-{on}")

    def offset_fetch(self) -> None:
        version = self.version(ApiKey.OFFSET_FETCH) % 10 or 1
        names = [name for name in self.topics if name not in self.deleted]
        if not names:
            return
        group = self.random.choice([self.group, f"{self.group}2", f"{self.group}-none"])
        everything = version >= 2 and self.random.random() < 0.3 and not self.deleted
        if version < 8:
            topics = [offset_fetch.OffsetFetchRequestTopic(name, [0, 1, 5]) for name in names]
            request = OffsetFetchRequest(group, None if everything else topics, require_stable=version == 7)
        else:
            more = [offset_fetch.OffsetFetchRequestTopics(name, ZERO_UUID, [0, 1, 5]) for name in names]
            asked = offset_fetch.OffsetFetchRequestGroup(group, topics=None if everything else more)
            request = OffsetFetchRequest(groups=[asked], require_stable=self.random.random() < 0.5)
        self.pair.ask(request, version, "offsets")

    def list_groups(self) -> None:
        version = self.version(ApiKey.LIST_GROUPS, 4)
        # Other tests of the session have groups on that broker: only these two are asked for by what nobody else has.
        self.pair.ask(
            ListGroupsRequest(
                states_filter=["NoSuchState"], types_filter=["classic"] if version >= 5 else []
            ),
            version,
            "admin",
        )

    def describe_groups(self) -> None:
        groups = self.random.choice([[self.group], [self.group, f"{self.group}-none"], [f"{self.group}2"]])
        version = self.version(ApiKey.DESCRIBE_GROUPS)
        wanted = version >= 3 and self.random.random() < 0.3
        self.pair.ask(DescribeGroupsRequest(groups, wanted), version, "admin")

    def delete_groups(self) -> None:
        groups = self.random.choice([[self.group], [f"{self.group}2", f"{self.group}-none"]])
        self.pair.ask(DeleteGroupsRequest(groups), self.version(ApiKey.DELETE_GROUPS), "admin")

    def offset_delete(self) -> None:
        name = self.name()
        if name in self.deleted:
            return
        part = offset_delete.OffsetDeleteRequestPartition(self.partition())
        topics = [offset_delete.OffsetDeleteRequestTopic(name, [part])]
        group = self.random.choice([self.group, f"{self.group}-none"])
        self.pair.ask(OffsetDeleteRequest(group, topics), 0, "admin")

    def api_versions(self) -> dict[int, tuple[int, int]]:
        """The versions that the fake has told."""
        answer = self.pair.fake.ask(ApiVersionsRequest("test", "1"), 3, "versions")
        return {v.api_key: (v.min_version, v.max_version) for v in answer.api_keys}

"""Random requests of transactional producers for the differential test: right ones, stale ones, in wrong states, and two producers with one id."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kafka_actors.protocol import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    ApiKey,
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
    TxnOffsetCommitRequest,
)
from kafka_actors.protocol.messages import add_partitions_to_txn, describe_producers, txn_offset_commit

if TYPE_CHECKING:
    from fakes.differential_load import Load

ON = "transactions"


class Holder:
    """A producer's id and epoch under a transactional id, as it was told them."""

    def __init__(self, transactional_id: str, producer_id: int, epoch: int) -> None:
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.epoch = epoch


class TransactionLoad:
    """The part of a load that has transactions."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self.pair, self.random = load.pair, load.random
        self.ids = [f"{load.prefix}-t0", f"{load.prefix}-t1"]
        self.holders: list[Holder] = []
        self.ops: list[tuple[int, Callable[[], object]]] = [
            (8, self.init),
            (8, self.add_partitions),
            (3, self.add_offsets),
            (24, self.produce),
            (7, self.commit_offsets),
            (9, self.end),
            (2, self.describe),
            (2, self.list),
            (3, self.describe_producers),
        ]

    def holder(self) -> Holder:
        """Chooses one of the producers made last, mostly the newest one of its transactional id."""
        if not self.holders:
            self.init()
        found = self.holders[-4:]
        return (
            self.random.choices(found, range(1, len(found) + 1))[0] if found else Holder(self.ids[0], -1, -1)
        )

    def epoch(self, holder: Holder) -> int:
        """A holder's epoch, now and then another."""
        return max(0, holder.epoch + self.random.choices([0, -1, 1], [20, 1, 1])[0])

    def transactional_id(self, holder: Holder) -> str:
        """A holder's id, now and then another."""
        return self.random.choices(
            [holder.transactional_id, *self.ids, f"{self.load.prefix}-none", ""], [40, 1, 1, 1, 1]
        )[0]

    # ---------------------------------------------------------------- the coordinator

    def init(self) -> None:
        version = self.load.version(ApiKey.INIT_PRODUCER_ID)
        transactional_id = self.random.choices([*self.ids, ""], [10, 10, 1])[0]
        mine = [h for h in self.holders if h.transactional_id == transactional_id]
        expected = (-1, -1)
        if version >= 3 and mine and self.random.random() < 0.5:
            holder = self.random.choices(mine[-2:], [1, 4][-len(mine[-2:]) :])[0]
            expected = (holder.producer_id, self.epoch(holder))
            if self.random.random() < 0.05:
                expected = (-1, 3)
        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=self.random.choices([120_000, 0, -1, 10_000_000], [30, 1, 1, 1])[0],
            producer_id=expected[0],
            producer_epoch=expected[1],
        )
        answer = self.pair.ask(request, version, ON)
        if answer.error_code == 0:
            self.holders.append(Holder(transactional_id, answer.producer_id, answer.producer_epoch))
        self.pair.until_transaction_agrees(transactional_id)

    def add_partitions(self) -> None:
        holder, version = self.holder(), self.load.version(ApiKey.ADD_PARTITIONS_TO_TXN)
        topics = [
            add_partitions_to_txn.AddPartitionsToTxnTopic(
                name, sorted({self.random.choices([0, 1, 2, 7], [9, 9, 2, 1])[0] for _ in range(2)})
            )
            for name in self.random.sample(self.load.topics, self.random.choice([1, 1, 2]))
        ]
        transactional_id, epoch = self.transactional_id(holder), self.epoch(holder)
        if version < 4:
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=transactional_id,
                v3_and_below_producer_id=holder.producer_id,
                v3_and_below_producer_epoch=epoch,
                v3_and_below_topics=topics,
            )
            real = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=transactional_id,
                v3_and_below_producer_id=self.pair.ids.real(holder.producer_id),
                v3_and_below_producer_epoch=epoch,
                v3_and_below_topics=topics,
            )
        else:
            only = self.random.random() < 0.5
            request, real = (
                AddPartitionsToTxnRequest(
                    transactions=[
                        add_partitions_to_txn.AddPartitionsToTxnTransaction(
                            transactional_id, producer_id, epoch, only, topics
                        )
                    ]
                )
                for producer_id in (holder.producer_id, self.pair.ids.real(holder.producer_id))
            )
        self.pair.ask(request, version, ON, real)

    def add_offsets(self) -> None:
        holder = self.holder()
        request = AddOffsetsToTxnRequest(
            self.transactional_id(holder),
            holder.producer_id,
            self.epoch(holder),
            self.random.choice([self.load.group, f"{self.load.group}2"]),
        )
        self.pair.ask(request, self.load.version(ApiKey.ADD_OFFSETS_TO_TXN), ON)

    def end(self) -> None:
        holder = self.holder()
        request = EndTxnRequest(
            self.transactional_id(holder),
            holder.producer_id,
            self.epoch(holder),
            self.random.random() < 0.6,
        )
        version = self.random.choice([self.load.version(ApiKey.END_TXN), 5])
        answer = self.pair.ask(request, min(version, self.load.ranges[ApiKey.END_TXN][1]), ON)
        lost = self.random.random() < 0.15
        if answer.error_code == 0 and answer.producer_id >= 0 and not lost:
            self.holders.append(Holder(request.transactional_id, answer.producer_id, answer.producer_epoch))
        self.pair.until_transaction_agrees(request.transactional_id)

    # ---------------------------------------------------------------- partitions and offsets

    def produce(self) -> None:
        load, holder = self.load, self.holder()
        name, index, count = load.known(), self.random.choice([0, 0, 1, 1, 2]), self.random.randint(1, 3)
        producer = (
            holder.producer_id,
            self.epoch(holder),
            self.random.choices(
                [load.sequences.get((holder.producer_id, name, index), 0), 0, 1, 5], [30, 12, 1, 1]
            )[0],
        )
        if holder.producer_id < 0:
            return
        transactional = self.random.random() < 0.95
        if not transactional:
            producer = (producer[0], holder.epoch, producer[2])
        transactional_id = self.random.choices([self.transactional_id(holder), None], [20, 1])[0]
        load.produce_as(
            name, index, producer, count, transactional=transactional, transactional_id=transactional_id
        )

    def commit_offsets(self) -> None:
        load, holder = self.load, self.holder()
        version = load.version(ApiKey.TXN_OFFSET_COMMIT)
        name = load.name()
        if name in load.deleted:
            return
        on, member = load.member()
        named = version >= 3 and self.random.random() < 0.5 and member["id"]
        group = self.random.choices([load.group, f"{load.group}2", ""], [12, 6, 1])[0]
        # A group that only a refused commit has named is there for Kafka, but only once something else is written down.
        too_long = 1 if group in self.pair.fake.cluster.groups.groups else 0
        part = txn_offset_commit.TxnOffsetCommitRequestPartition(
            load.partition(),
            self.random.randint(0, 50),
            self.random.choice([-1, 0]) if version >= 2 else -1,
            self.random.choices(["", "note", None, "x" * 5_000], [10, 10, 3, too_long])[0],
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id(holder),
            group_id=group,
            producer_id=holder.producer_id,
            producer_epoch=self.epoch(holder),
            generation_id=load.generation(member) if named else -1,
            member_id=member["id"] if named else "",
            group_instance_id=member["instance"] if named else None,
            topics=[txn_offset_commit.TxnOffsetCommitRequestTopic(name, [part])],
        )
        self.pair.ask(request, version, f"hb-{on}")

    # ---------------------------------------------------------------- administration

    def describe(self) -> None:
        ids = self.random.sample([*self.ids, f"{self.load.prefix}-none", ""], 2)
        self.pair.ask(DescribeTransactionsRequest(ids), 0, ON)

    def list(self) -> None:
        known = [h.producer_id for h in self.holders[-3:]]
        if not known:
            return
        states = self.random.choice([[], [], ["Ongoing", "NoState"], ["CompleteCommit", "Empty"]])
        version = self.load.version(ApiKey.LIST_TRANSACTIONS)
        request, real = (
            ListTransactionsRequest(
                states, ids, transactional_id_pattern=f"{self.load.prefix}-t." if version >= 2 else None
            )
            for ids in (known, [self.pair.ids.real(i) for i in known])
        )
        self.pair.ask(request, version, ON, real)

    def describe_producers(self) -> None:
        topic = describe_producers.TopicRequest(self.load.name(), [0, 1, 5])
        self.pair.ask(DescribeProducersRequest([topic]), 0, ON)

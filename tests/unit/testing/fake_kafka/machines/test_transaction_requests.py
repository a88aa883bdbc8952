"""Transactions by requests: what a producer, readers and groups see of them."""

from __future__ import annotations

from typing import Any

import pytest
from fakes.fake_wire import NOW_MS, Wire, record_batch

from kafka_actors import errors
from kafka_actors.protocol import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    ApiVersionsRequest,
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    FetchRequest,
    InitProducerIdRequest,
    ListOffsetsRequest,
    ListTransactionsRequest,
    OffsetFetchRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
)
from kafka_actors.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from kafka_actors.protocol.messages.describe_producers import TopicRequest
from kafka_actors.protocol.messages.fetch import FetchPartition, FetchTopic
from kafka_actors.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsTopic
from kafka_actors.protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from kafka_actors.protocol.messages.produce import PartitionProduceData, TopicProduceData
from kafka_actors.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kafka_actors.testing.fake_kafka.machines.record_batches import parse_all

TXN = "tx"


class Producer:
    """A transactional producer by hand. version_2: of the protocol of transactions."""

    def __init__(self, wire: Wire, *, version_2: bool = True) -> None:
        self.wire = wire
        self.version_2 = version_2
        self.node = wire.state.transactions_topic.leader_of(TXN)
        self.id = self.epoch = -1
        self.sequence = 0

    def ask(self, request: Any, version: int, node: int | None = None) -> Any:
        node = self.node if node is None else node
        return self.wire.ask(request, version, f"transactions{node}", node)

    def init(self, version: int = 5, **more: Any) -> int:
        answer = self.ask(InitProducerIdRequest(TXN, more.pop("timeout_ms", 60_000), **more), version)
        if answer.error_code == 0:
            self.id, self.epoch, self.sequence = answer.producer_id, answer.producer_epoch, 0
        return int(answer.error_code)

    def add(self, index: int = 0, version: int = 3, topic: str = "t") -> int:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=TXN,
            v3_and_below_producer_id=self.id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(topic, [index])],
        )
        (found,) = self.ask(request, version).results_by_topic_v3_and_below[0].results_by_partition
        return int(found.partition_error_code)

    def put(self, *values: bytes, version: int | None = None, transactional_id: str | None = TXN) -> int:
        """Writes to partition 0; returns the error code."""
        version = version or (12 if self.version_2 else 11)
        data = record_batch(*values, producer=(self.id, self.epoch, self.sequence), transactional=True)
        request = ProduceRequest(
            transactional_id,
            -1,
            1_000,
            [TopicProduceData("t", partition_data=[PartitionProduceData(0, data)])],
        )
        (found,) = self.ask(request, version, 1).responses[0].partition_responses
        if found.error_code == 0:
            self.sequence += len(values)
        return int(found.error_code)

    def end(self, *, committed: bool = True, version: int | None = None) -> int:
        version = version or (5 if self.version_2 else 4)
        answer = self.ask(EndTxnRequest(TXN, self.id, self.epoch, committed), version)
        if answer.error_code == 0 and version >= 5:
            if (answer.producer_id, answer.producer_epoch) != (self.id, self.epoch):
                self.sequence = 0
            self.id, self.epoch = answer.producer_id, answer.producer_epoch
        return int(answer.error_code)

    def commit_offset(self, offset: int, version: int = 5, **more: Any) -> int:
        part = TxnOffsetCommitRequestPartition(0, offset)
        request = TxnOffsetCommitRequest(
            TXN, "g", self.id, self.epoch, topics=[TxnOffsetCommitRequestTopic("t", [part])], **more
        )
        node = self.wire.state.offsets_topic.leader_of("g")
        return int(self.ask(request, version, node).topics[0].partitions[0].error_code)

    @property
    def state(self) -> str:
        (found,) = self.ask(DescribeTransactionsRequest([TXN]), 0).transaction_states
        return str(found.transaction_state)


@pytest.fixture(params=[False, True], ids=["version 1", "version 2"])
def producer(request: pytest.FixtureRequest) -> Producer:
    made = Producer(Wire(topics={"t": 2}), version_2=request.param)
    assert made.init() == 0
    return made


def began(producer: Producer, *values: bytes) -> None:
    if not producer.version_2:
        assert producer.add() == 0
    assert producer.put(*values or (b"v",)) == 0


def fetched(wire: Wire, offset: int = 0, isolation: int = 1, **more: Any) -> Any:
    topic = FetchTopic("t", partitions=[FetchPartition(0, fetch_offset=offset, partition_max_bytes=1 << 20)])
    answer = wire.ask(FetchRequest(topics=[topic], isolation_level=isolation, **more), 12, "fetch")
    return answer.responses[0].partitions[0] if answer is not None else None


def listed(wire: Wire, timestamp: int, isolation: int) -> int:
    topic = ListOffsetsTopic("t", [ListOffsetsPartition(0, -1, timestamp)])
    answer = wire.ask(ListOffsetsRequest(-1, isolation, [topic]), 7, "lookups")
    return int(answer.topics[0].partitions[0].offset)


def committed(wire: Wire, *, stable: bool = False) -> tuple[int, int]:
    group = OffsetFetchRequestGroup("g", topics=[OffsetFetchRequestTopics("t", partition_indexes=[0])])
    answer = wire.ask(OffsetFetchRequest(groups=[group], require_stable=stable), 8, "offsets")
    (found,) = answer.groups[0].topics[0].partitions
    return found.error_code, found.committed_offset


# ---------------------------------------------------------------- readers


def test_what_is_open_is_read_only_by_those_who_want_all(producer: Producer) -> None:
    wire = producer.wire
    wire.ask(ProduceRequest(acks=-1, topic_data=[plain(b"before")]), 9, "plain")
    began(producer, b"a", b"b")
    wire.ask(ProduceRequest(acks=-1, topic_data=[plain(b"after")]), 9, "plain")
    found = fetched(wire)
    assert (found.high_watermark, found.last_stable_offset, found.aborted_transactions) == (4, 1, [])
    assert [batch.base_offset for batch in parse_all(found.records)] == [0]
    assert bytes(fetched(wire, 2).records or b"") == b""
    assert [batch.base_offset for batch in parse_all(fetched(wire, isolation=0).records)] == [0, 1, 3]
    assert (listed(wire, -1, 1), listed(wire, -1, 0)) == (1, 4)
    assert (listed(wire, NOW_MS, 1), listed(wire, -3, 1), listed(wire, NOW_MS + 1, 0)) == (0, 0, -1)
    wire.state.topics["t"].partitions[0].log.delete_before(1)
    assert (listed(wire, NOW_MS, 1), listed(wire, NOW_MS, 0)) == (-1, 1), (
        "what is open is found by time neither"
    )


def plain(value: bytes) -> TopicProduceData:
    return TopicProduceData("t", partition_data=[PartitionProduceData(0, record_batch(value))])


def test_a_commit_lets_readers_go_on(producer: Producer) -> None:
    wire = producer.wire
    began(producer, b"a")
    assert fetched(wire, max_wait_ms=1_000, min_bytes=1) is None, "it waits"
    epoch = producer.epoch
    assert producer.end() == 0
    assert producer.state == "CompleteCommit"
    answer = wire.take("fetch").responses[0].partitions[0]
    data, end = parse_all(answer.records)
    assert (data.is_transactional, data.is_control, end.is_control, end.commits) == (True, False, True, True)
    assert (end.producer_id, end.producer_epoch, end.base_sequence) == (data.producer_id, producer.epoch, -1)
    assert producer.epoch == epoch + producer.version_2
    assert answer.aborted_transactions == []
    assert (answer.last_stable_offset, answer.high_watermark) == (2, 2)


def test_readers_are_told_which_transactions_were_aborted(producer: Producer) -> None:
    wire = producer.wire
    began(producer, b"a")
    assert producer.end(committed=False) == 0
    began(producer, b"b")
    assert producer.end() == 0
    found = fetched(wire)
    assert [(t.producer_id, t.first_offset) for t in found.aborted_transactions] == [(producer.id, 0)]
    assert fetched(wire, isolation=0).aborted_transactions is None
    assert fetched(wire, 2).aborted_transactions == []
    log = wire.state.topics["t"].partitions[0].log
    assert [r.value for r in log.records(committed=True)] == [b"b"]
    assert [r.value for r in log.records()] == [b"a", b"b"]


def test_a_partition_s_producers_are_described(producer: Producer) -> None:
    began(producer, b"a", b"b")
    request = DescribeProducersRequest([TopicRequest("t", [0, 9])])
    found, none = producer.ask(request, 0, 1).topics[0].partitions
    (one,) = found.active_producers
    assert (one.producer_id, one.producer_epoch, one.last_sequence) == (producer.id, producer.epoch, 1)
    assert (one.coordinator_epoch, one.current_txn_start_offset) == (-1, 0)
    assert none.error_code == errors.UnknownTopicOrPartitionError.code
    producer.end()
    (one,) = producer.ask(request, 0, 1).topics[0].partitions[0].active_producers
    assert (one.coordinator_epoch, one.current_txn_start_offset) == (0, -1)


# ---------------------------------------------------------------- writers


@pytest.mark.parametrize(
    ("version", "error"), [(10, errors.InvalidTxnStateError), (11, errors.TransactionAbortableError)]
)
def test_before_version_12_a_partition_has_to_be_added_first(version: int, error: Any) -> None:
    producer = Producer(Wire(topics={"t": 1}), version_2=False)
    producer.init()
    assert producer.put(b"a", version=version) == error.code
    producer.add()
    assert producer.put(b"a", version=version) == 0


def test_brokers_before_3_6_do_not_ask_the_coordinator() -> None:
    producer = Producer(Wire(topics={"t": 1}, release=(3, 5)), version_2=False)
    producer.init(version=4)
    assert producer.put(b"a", version=9) == 0


def test_writes_that_do_not_belong_to_a_transaction(producer: Producer) -> None:
    assert producer.put(b"a", transactional_id=None) == errors.TransactionalIdAuthorizationFailedError.code
    began(producer)
    data = record_batch(b"a", producer=(producer.id, producer.epoch, 1))
    request = ProduceRequest(
        None, -1, 1_000, [TopicProduceData("t", partition_data=[PartitionProduceData(0, data)])]
    )
    (found,) = producer.ask(request, 9, 1).responses[0].partition_responses
    assert (found.error_code, found.log_start_offset) == (errors.InvalidTxnStateError.code, 0)


def test_a_fenced_producer_writes_and_ends_nothing(producer: Producer) -> None:
    began(producer)
    other = Producer(producer.wire, version_2=producer.version_2)
    assert other.init() == errors.ConcurrentTransactionsError.code
    assert other.state == "CompleteAbort"
    assert other.init() == 0
    assert producer.put(b"late") == errors.InvalidProducerEpochError.code
    assert producer.add() == errors.ProducerFencedError.code
    assert producer.add(version=1) == errors.InvalidProducerEpochError.code
    assert producer.end(version=1) == errors.InvalidProducerEpochError.code
    began(other, b"new")
    assert producer.put(b"late") == errors.InvalidProducerEpochError.code


def test_a_fenced_producer_of_an_older_version_is_told_what_it_knows() -> None:
    producer = Producer(Wire())
    producer.init()
    producer.init()
    stale = {"producer_id": producer.id, "producer_epoch": 9}
    assert producer.init(3, **stale) == errors.InvalidProducerEpochError.code
    assert producer.init(4, **stale) == errors.ProducerFencedError.code


def test_in_version_2_an_unknown_producer_begins_with_sequence_0() -> None:
    producer = Producer(Wire(topics={"t": 1}))
    producer.init()
    producer.sequence = 3
    assert producer.put(b"a") == errors.OutOfOrderSequenceNumberError.code
    producer.sequence = 0
    assert producer.put(b"a") == 0


def test_partitions_that_do_not_exist_are_not_added(producer: Producer) -> None:
    topics = [AddPartitionsToTxnTopic("t", [0, 9])]
    transaction = AddPartitionsToTxnTransaction(TXN, producer.id, producer.epoch, topics=topics)
    answer = producer.ask(AddPartitionsToTxnRequest([transaction]), 5)
    codes = [
        p.partition_error_code for p in answer.results_by_transaction[0].topic_results[0].results_by_partition
    ]
    assert codes == [errors.OperationNotAttemptedError.code, errors.UnknownTopicOrPartitionError.code]
    assert producer.state == "Empty"


def test_brokers_verify_partitions_without_adding_them(producer: Producer) -> None:
    producer.add(0)
    topics = [AddPartitionsToTxnTopic("t", [0, 1])]
    transaction = AddPartitionsToTxnTransaction(TXN, producer.id, producer.epoch, True, topics)
    answer = producer.ask(AddPartitionsToTxnRequest([transaction]), 5)
    codes = [
        p.partition_error_code for p in answer.results_by_transaction[0].topic_results[0].results_by_partition
    ]
    assert codes == [0, errors.TransactionAbortableError.code]


# ---------------------------------------------------------------- coordinators


def test_producer_ids_are_new_ones() -> None:
    wire = Wire()
    ids = [wire.ask(InitProducerIdRequest(transactional_id=None), 4).producer_id for _ in range(3)]
    assert len(set(ids)) == 3
    half = InitProducerIdRequest(transactional_id=None, producer_id=1)
    assert wire.ask(half, 4).error_code == errors.InvalidRequestError.code


def test_what_a_coordinator_refuses() -> None:
    wire = Wire(2, topics={"t": 1})
    producer = Producer(wire)
    assert producer.init(timeout_ms=0) == errors.InvalidTransactionTimeoutError.code
    assert producer.init(timeout_ms=900_001) == errors.InvalidTransactionTimeoutError.code
    assert producer.end() == errors.InvalidProducerIdMappingError.code
    assert producer.add() == errors.InvalidProducerIdMappingError.code
    other = 3 - producer.node
    assert producer.ask(InitProducerIdRequest(TXN, 1_000), 4, other).error_code == 16
    assert producer.ask(InitProducerIdRequest("", 1_000), 4).error_code == errors.InvalidRequestError.code
    assert producer.ask(EndTxnRequest("", 1, 0), 4).error_code == errors.InvalidRequestError.code
    (found,) = producer.ask(DescribeTransactionsRequest([TXN]), 0, other).transaction_states
    assert found.error_code == errors.NotCoordinatorError.code
    (found,) = producer.ask(DescribeTransactionsRequest(["none"]), 0).transaction_states
    assert found.error_code in (16, errors.TransactionalIdNotFoundError.code)


def test_a_transaction_that_takes_too_long_is_aborted_at_the_next_look() -> None:
    wire = Wire(topics={"t": 1})
    producer = Producer(wire)
    producer.init(timeout_ms=12_000)
    began(producer)
    wire.pass_time(19.9)
    assert producer.state == "Ongoing"
    wire.pass_time(0.2)
    assert producer.state == "CompleteAbort"
    assert producer.put(b"late") == errors.InvalidProducerEpochError.code
    assert fetched(wire).last_stable_offset == 2
    producer.init(timeout_ms=12_000)
    began(producer)
    producer.end()
    wire.pass_time(60)
    assert producer.state == "CompleteCommit"


def test_a_transaction_whose_time_was_over_in_an_outage_is_open_until_its_coordinator_looks() -> None:
    wire = Wire(topics={"t": 1})
    wire.pass_time(3.0)
    producer = Producer(wire)
    producer.init(timeout_ms=12_000)
    began(producer)
    wire.cluster.stop_node(1)
    wire.pass_time(60.0)
    wire.state.set_alive(1, True)
    wire.poll()
    wire.pass_time(9.9)
    assert wire.cluster.transactions.state_of(TXN) == "Ongoing"
    wire.pass_time(0.2)
    assert wire.cluster.transactions.state_of(TXN) == "CompleteAbort", "10 s after the start"


def test_a_transaction_is_looked_at_by_the_coordinator_that_it_has_now() -> None:
    wire = Wire(2, topics={"t": 1})
    wire.state.transactions_topic.move(TXN, 1)
    producer = Producer(wire)
    producer.init(timeout_ms=12_000)
    began(producer)
    wire.pass_time(5.0)
    wire.cluster.stop_node(2)
    wire.state.set_alive(2, True)
    wire.state.transactions_topic.move(TXN, 2)
    wire.pass_time(9.9)
    assert wire.cluster.transactions.state_of(TXN) == "Ongoing"
    wire.pass_time(0.2)
    assert wire.cluster.transactions.state_of(TXN) == "CompleteAbort", (
        "broker 2 began at 5 s, broker 1 at 0 s"
    )


def test_the_markers_wait_for_a_leader(producer: Producer) -> None:
    wire = producer.wire
    began(producer)
    wire.state.move_leader("t", 0, -1)
    assert producer.end() == 0
    assert producer.state == "PrepareCommit"
    assert producer.init() == errors.ConcurrentTransactionsError.code
    wire.state.move_leader("t", 0, 1)
    wire.poll()
    assert producer.state == "CompleteCommit"


def test_markers_have_the_coordinator_s_epoch_and_deleted_partitions_need_none() -> None:
    wire = Wire(2, topics={"t": 1})
    producer = Producer(wire)
    producer.init()
    producer.put(b"a")
    wire.state.transactions_topic.move(TXN, 3 - producer.node)
    producer.node = 3 - producer.node
    producer.end()
    assert wire.state.topics["t"].partitions[0].log.batches[-1].coordinator_epoch == 1
    producer.put(b"a")
    wire.cluster.topics.remove("t")
    assert producer.end() == 0
    assert producer.state == "CompleteCommit"


def test_transactional_ids_are_forgotten_when_nobody_has_used_them() -> None:
    wire = Wire(topics={"t": 1}, config={"transactional.id.expiration.ms": 60_000})
    producer = Producer(wire)
    producer.init()
    first = producer.id
    wire.pass_time(59)
    producer.init()
    assert producer.id == first
    wire.pass_time(60)
    producer.init()
    assert (producer.id == first, producer.epoch) == (False, 0)


def test_transactions_are_listed(producer: Producer) -> None:
    def ids(version: int = 2, **filters: Any) -> list[str]:
        answer = producer.ask(ListTransactionsRequest(**filters), version)
        return [t.transactional_id for t in answer.transaction_states]

    assert ids() == [TXN]
    assert ids(state_filters=["Ongoing"]) == []
    assert ids(producer_id_filters=[producer.id]) == [TXN]
    assert ids(producer_id_filters=[99]) == []
    assert ids(transactional_id_pattern="t.") == [TXN]
    assert ids(transactional_id_pattern="t") == []
    began(producer)
    producer.wire.pass_time(5)
    assert (ids(duration_filter=4_000), ids(duration_filter=6_000)) == ([TXN], [])
    answer = producer.ask(ListTransactionsRequest(["Ongoing", "Odd"], transactional_id_pattern="("), 2)
    assert answer.error_code == errors.InvalidRegularExpressionError.code
    assert producer.ask(ListTransactionsRequest(["Odd"]), 0).unknown_state_filters == ["Odd"]


@pytest.mark.parametrize(("release", "levels"), [((3, 9), []), ((4, 0), [("transaction.version", 2)])])
def test_releases_from_4_0_on_say_that_they_have_version_2(release: Any, levels: Any) -> None:
    answer = Wire(release=release).ask(ApiVersionsRequest("t", "1"), 3)
    assert [(f.name, f.max_version_level) for f in answer.finalized_features] == levels


@pytest.mark.parametrize(("level", "told"), [(0, []), (1, [("transaction.version", 1)])])
def test_a_cluster_that_was_upgraded_does_not_say_that_it_has_version_2_and_fences_without_it(
    level: int, told: Any
) -> None:
    wire = Wire(topics={"t": 1}, transaction_version=level)
    answer = wire.ask(ApiVersionsRequest("t", "1"), 3)
    assert [(f.name, f.max_version_level) for f in answer.finalized_features] == told
    assert [(f.name, f.max_version) for f in answer.supported_features] == [("transaction.version", 2)]
    producer = Producer(wire, version_2=False)
    assert producer.init() == 0
    began(producer)
    assert producer.end() == 0
    assert producer.epoch == 0
    began(producer)
    assert (producer.end(version=5), producer.epoch) == (0, 1), "by the request, as in Kafka"


# ---------------------------------------------------------------- offsets


def test_offsets_are_committed_with_the_transaction(producer: Producer) -> None:
    wire = producer.wire
    if not producer.version_2:
        assert producer.commit_offset(5, 3) == errors.InvalidTxnStateError.code
        assert producer.commit_offset(5, 4) == errors.TransactionAbortableError.code
        assert producer.ask(AddOffsetsToTxnRequest(TXN, producer.id, producer.epoch, "g"), 4).error_code == 0
    assert producer.commit_offset(5, 5 if producer.version_2 else 3) == 0
    assert (committed(wire), committed(wire, stable=True)) == ((0, -1), (88, -1))
    assert producer.end() == 0
    assert committed(wire, stable=True) == (0, 5)
    assert wire.cluster.offsets.committed("g")["t", 0].offset == 5


def test_an_abort_drops_offsets(producer: Producer) -> None:
    producer.ask(AddOffsetsToTxnRequest(TXN, producer.id, producer.epoch, "g"), 4)
    assert producer.commit_offset(5) == 0
    assert producer.end(committed=False) == 0
    assert committed(producer.wire, stable=True) == (0, -1)


def test_offsets_of_a_member_that_is_not_in_the_group_are_refused(producer: Producer) -> None:
    producer.ask(AddOffsetsToTxnRequest(TXN, producer.id, producer.epoch, "g"), 4)
    assert producer.commit_offset(5, generation_id=3) == errors.IllegalGenerationError.code
    assert producer.commit_offset(5) == 0
    assert producer.commit_offset(5, generation_id=3, member_id="m") == errors.UnknownMemberIdError.code
    fenced = Producer(producer.wire)
    fenced.id, fenced.epoch = producer.id, producer.epoch - 1
    assert fenced.commit_offset(5) == errors.InvalidProducerEpochError.code

"""Transactions over brokers that lose answers, refuse requests and move coordinators: each record is there once, or an error says why."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from random import Random

import pyarrow as pa
import pytest
from fakes.loop import in_loop
from waiting import slow_s, until

import kafka_actors as ka
from kafka_actors.errors import (
    DeliveryTimeoutError,
    KafkaTimeoutError,
    MessageTooLargeError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionAbortedError,
    TransactionOutcomeUnknownError,
    UnsupportedVersionError,
    UsageError,
)
from kafka_actors.producer.machines.transaction_errors import TransactionState
from kafka_actors.sinks.kafka import TargetProducer
from kafka_actors.testing import FakeKafka
from kafka_actors.testing.fake_kafka import AnswerWithError, DropConnection, LoseResponse
from kafka_actors.testing.produce import Produce
from kafka_actors.types import TopicPartition

QUICK = {
    "request_timeout_ms": 10_000,
    "delivery_timeout_ms": 20_000,
    "retry_backoff_ms": 20,
    "reconnect_backoff_max_ms": 100,
}
"""Limits with which a lost answer, whose connection is closed, is made up for soon."""
FENCED = ProducerFencedError.code
SOURCE = TopicPartition("in", 0)
APIS = ["AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "Produce", "EndTxn"]


@pytest.fixture(params=["3.9", "4.1"], ids=["version-1", "version-2"])
def brokers(request: pytest.FixtureRequest) -> Iterator[FakeKafka]:
    """Brokers of both transaction versions."""
    with FakeKafka(2, version=request.param, topics={"in": 1, "out": 2}) as kafka:
        yield kafka


def producer_of(brokers: FakeKafka, **options: object) -> ka.Producer:
    return ka.Producer(
        bootstrap_servers=brokers.bootstrap_servers, transactional_id="copier", **{**QUICK, **options}
    )


@contextmanager
def deliveries_expired(producer: ka.Producer) -> Iterator[None]:
    """Has the producer give up records that are not acknowledged, as those whose `delivery_timeout_ms` is over."""
    sender = producer._core._sender
    options = sender._options
    sender._options = replace(options, delivery_timeout=0.0)
    yield
    sender._options = options


def sent(producer: ka.Producer, number: int) -> None:
    """One transaction: a record in each partition, and an offset."""
    with producer.transaction():
        for partition in (0, 1):
            producer.send("out", b"%d" % number, partition=partition)
        producer.send_offsets_to_transaction({SOURCE: number}, ka.ConsumerGroupMetadata("g"))


def committed(brokers: FakeKafka) -> list[list[int]]:
    return [[int(r.value) for r in brokers.records("out", p, read_committed=True)] for p in (0, 1)]


@pytest.mark.parametrize("version", ["2.1", "2.4"])
def test_a_broker_without_all_of_transactions_is_refused_by_name_before_anything_is_written(version):
    with FakeKafka(version=version, topics={"out": 1}) as old, producer_of(old) as producer:
        with pytest.raises(
            UnsupportedVersionError, match=r"transactions need Kafka 2\.5 or newer: the broker speaks"
        ):
            producer.init_transactions()
        assert not old.requests("InitProducerId")


@pytest.mark.parametrize(("finalised", "added"), [(0, 1), (1, 1), (2, 0)])
def test_the_version_is_that_which_the_cluster_has_finalised_not_that_of_its_requests(finalised, added):
    """A cluster of 4.1 that was upgraded, and one that was made so."""
    features = {"transaction.version": finalised}
    with FakeKafka(version="4.1", topics={"in": 1, "out": 2}, features=features) as brokers:
        with producer_of(brokers) as producer:
            sent(producer, 1)
            brokers.disconnect()
            sent(producer, 2)
        assert committed(brokers) == [[1, 2]] * 2
        assert brokers.count("AddPartitionsToTxn") >= 2 * added
        assert {call.version >= 5 for call in brokers.requests("EndTxn")} == {not added}


@pytest.mark.parametrize("action", [LoseResponse(), DropConnection()], ids=["answer", "request"])
def test_what_is_lost_once_is_made_up_for(brokers, action):
    with producer_of(brokers) as producer:
        for number, api in enumerate(APIS, 1):
            taken = brokers.on(api, action)
            sent(producer, number)
            assert len(taken.calls) == (1 if brokers.count(api) else 0), api
            taken.end()
    everything = list(range(1, len(APIS) + 1))
    assert committed(brokers) == [everything] * 2
    assert brokers.committed("g") == {SOURCE: len(APIS)}


def test_a_commit_is_asked_for_until_it_is_answered(brokers):
    with producer_of(brokers) as producer:
        sent(producer, 1)
        taken = brokers.on("EndTxn", LoseResponse(), times=4)
        sent(producer, 2)
        assert len(taken.calls) == 4
        bodies = {(c.request.producer_id, c.request.producer_epoch, c.request.committed) for c in taken.calls}
        assert len(bodies) == 1
        asked = brokers.count("InitProducerId")
        sent(producer, 3)
    assert (committed(brokers), asked) == ([[1, 2, 3]] * 2, 1)


def test_a_commit_whose_time_is_over_goes_on_and_can_be_waited_for(brokers):
    with producer_of(brokers) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("out", b"1", partition=0).result(timeout=slow_s(10))
        taken = brokers.on("EndTxn", LoseResponse(), times=None)
        with pytest.raises(KafkaTimeoutError, match="not done within"):
            producer.commit_transaction(timeout_ms=200)
        until(lambda: len(taken.calls) > 1, 30, "a request behind the one that was lost")
        with pytest.raises(KafkaTimeoutError, match=r"not done within .* the last error was: .* closed the"):
            producer.commit_transaction(timeout_ms=100)
        with pytest.raises(ka.KafkaActorsError, match="commit_transaction has not ended yet"):
            producer.begin_transaction()
        taken.end()
        producer.commit_transaction()
        sent(producer, 2)
    assert committed(brokers) == [[1, 2], [2]]


@pytest.mark.parametrize("told", [True, False], ids=["offsets", "nothing"])
def test_a_commit_that_was_not_answered_before_the_producer_was_fenced_is_asked_of_the_offsets(brokers, told):
    with producer_of(brokers) as producer:
        sent(producer, 1)
        brokers.on("EndTxn", LoseResponse())
        brokers.on("EndTxn", AnswerWithError(FENCED))
        if told:
            sent(producer, 2)
        else:
            producer.begin_transaction()
            for partition in (0, 1):
                producer.send("out", b"2", partition=partition)
            with pytest.raises(TransactionOutcomeUnknownError) as unknown:
                producer.commit_transaction()
            assert type(unknown.value.__cause__) is ProducerFencedError
        with pytest.raises(ProducerFencedError):
            producer.begin_transaction()
    assert committed(brokers) == [[1, 2]] * 2


def test_a_transaction_that_takes_too_long_says_so(brokers):
    with producer_of(brokers, transaction_timeout_ms=55_000) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("out", b"1", partition=0).result(timeout=slow_s(10))
        assert brokers.requests("InitProducerId")[-1].request.transaction_timeout_ms == 55_000
        # Its coordinator looks at it as when that time is over, which a slow producer would need before it has sent anything.
        brokers._call(lambda c: c.transactions._look("copier", c.transactions.transactions["copier"]))
        until(lambda: brokers.transaction_state("copier") == "CompleteAbort", 30)
        with pytest.raises((ProducerFencedError, TransactionAbortedError), match="longer than") as late:
            producer.commit_transaction()
        if late.value.fatal:
            assert type(late.value) is ProducerFencedError
        else:  # version 2
            producer.abort_transaction()
            sent(producer, 2)
    assert committed(brokers) == ([[], []] if late.value.fatal else [[2]] * 2)


@pytest.mark.parametrize("version", ["3.9", "4.1"])
def test_offsets_fit_where_brokers_take_little_metadata(version):
    """Text of the user alone is left in their metadata, as in that of a plain commit."""
    little = {"offset.metadata.max.bytes": 64, "group.initial.rebalance.delay.ms": 0}
    with FakeKafka(version=version, topics={"in": 1, "out": 2}, config=little) as brokers:
        Produce(brokers.bootstrap_servers)("in", [b"x", b"y"])
        read = ka.Consumer(
            ["in"],
            group_id="g",
            bootstrap_servers=brokers.bootstrap_servers,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        with read, producer_of(brokers) as producer:
            assert read.poll_batch(timeout_ms=20_000) is not None
            for offset in (1, 2):
                with producer.transaction():
                    note = ka.OffsetAndMetadata(offset, "note")
                    producer.send_offsets_to_transaction({SOURCE: note}, read.group_metadata())
        assert brokers.committed("g") == {SOURCE: 2}
        told = [
            p.committed_metadata
            for call in brokers.requests("TxnOffsetCommit")
            for p in call.request.topics[0].partitions
        ]
        assert [len(text) > 64 for text in told] == [True, False, True, False]
        assert told[1::2] == ["note", "note"]


def test_offsets_of_a_topic_that_was_made_anew_are_not_gone_on_from(brokers):
    options = {"bootstrap_servers": brokers.bootstrap_servers, "auto_offset_reset": "earliest"}
    tp = SOURCE

    def begun() -> ka.Consumer:
        consumer = ka.Consumer(group_id="g", enable_auto_commit=False, **options)
        consumer.assign([tp])
        return consumer

    Produce(brokers.bootstrap_servers)("in", [b"%d" % n for n in range(10)])
    with producer_of(brokers) as producer:
        with begun() as consumer:
            assert consumer.poll_batch(timeout_ms=100_000).num_rows == 10
            with producer.transaction():
                offsets = {tp: consumer.position(tp)}
                producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
        committed_offset = brokers.requests("TxnOffsetCommit")[-1].request.topics[0].partitions[0]
        assert (committed_offset.committed_offset, committed_offset.committed_leader_epoch) == (10, 0)
        brokers.recreate_topic("in")
        Produce(brokers.bootstrap_servers)("in", [b"%d" % n for n in range(100, 120)])
        with begun() as consumer:
            assert consumer.committed([tp]) == {tp: None}
            assert consumer.poll_batch(timeout_ms=100_000)["value"][0].as_py() == b"100"


@pytest.mark.parametrize("action", [LoseResponse(), AnswerWithError(6)], ids=["unanswered", "not the leader"])
def test_an_epoch_outlives_no_request_without_an_answer(brokers, action):
    with producer_of(brokers, linger_ms=0) as producer:
        sent(producer, 1)
        first = {call.request.producer_epoch for call in brokers.requests("EndTxn")}
        brokers.on("Produce", action)
        sent(producer, 2)
        sent(producer, 3)
    *_, last = (call.request.producer_epoch for call in brokers.requests("EndTxn"))
    version_2 = brokers.requests("EndTxn")[-1].version >= 5
    raised = 2 if version_2 else isinstance(action, LoseResponse)
    assert last - min(first) == raised
    assert brokers.count("InitProducerId") == 1 + (raised and not version_2)
    assert committed(brokers) == [[1, 2, 3]] * 2


OTHER = ka.TopicPartition("in", 1)


def test_who_waits_for_offsets_of_an_open_transaction_is_told_so(brokers):
    with (
        producer_of(brokers) as producer,
        ka.Consumer(bootstrap_servers=brokers.bootstrap_servers, group_id="g") as consumer,
    ):
        with producer.transaction():
            producer.send_offsets_to_transaction({SOURCE: 5}, ka.ConsumerGroupMetadata("g"))
            assert consumer.committed([OTHER]) == {OTHER: None}  # it is connected then
            with pytest.raises(KafkaTimeoutError, match=r"a transaction is open that .* group g for in-0"):
                consumer.committed([SOURCE], timeout_ms=slow_s(0.3) * 1000)
        assert consumer.committed([SOURCE])[SOURCE].offset == 5


def test_a_batch_that_could_not_be_written_is_aborted_and_its_late_copy_stays_out(brokers):
    with producer_of(brokers, linger_ms=0) as producer:
        sent(producer, 1)
        taken = brokers.on("Produce", LoseResponse(), times=None)
        producer.begin_transaction()
        for partition in (0, 1):
            producer.send("out", b"2", partition=partition)
        producer.send_offsets_to_transaction({SOURCE: 2}, ka.ConsumerGroupMetadata("g"))
        until(lambda: taken.calls, 30, "the first request with them")
        with deliveries_expired(producer), pytest.raises((DeliveryTimeoutError, TransactionAbortedError)):
            producer.commit_transaction()
        producer.abort_transaction()
        taken.end()
        sent(producer, 3)
    assert committed(brokers) == [[1, 3]] * 2
    assert brokers.committed("g") == {SOURCE: 3}


@pytest.mark.parametrize("failed", [False, True], ids=["while it is closed", "before"])
def test_a_commit_that_fails_when_nobody_waits_for_it_is_aborted_and_said_by_close(brokers, failed):
    producer = producer_of(brokers, linger_ms=0)
    producer.init_transactions()
    producer.begin_transaction()
    taken = brokers.on("Produce", LoseResponse(), times=None)
    producer.send("out", b"1", partition=0)
    with pytest.raises(KafkaTimeoutError, match="records are not acknowledged yet"):
        producer.commit_transaction(timeout_ms=100)
    until(lambda: taken.calls, 30, "the record to be in the transaction")
    with deliveries_expired(producer):
        if failed:
            producer._core.nudge()
            machine = producer._core.transactions.machine
            until(lambda: machine.state is TransactionState.ABORTABLE_ERROR, 30, "the commit to fail")
        with pytest.raises((DeliveryTimeoutError, TransactionAbortedError)):
            producer.close()
    assert [call.request.committed for call in brokers.requests("EndTxn")] == [False]


def test_an_interrupt_before_a_block_is_entered_leaves_no_transaction_open(brokers, monkeypatch):
    def interrupted(future, seconds):
        future.result(seconds)
        monkeypatch.undo()
        raise KeyboardInterrupt

    with producer_of(brokers) as producer:
        sent(producer, 1)
        monkeypatch.setattr("kafka_actors.producer.producer.ended_within", interrupted)
        with pytest.raises(KeyboardInterrupt):
            sent(producer, 2)
        sent(producer, 3)
    assert committed(brokers) == [[1, 3]] * 2


@pytest.mark.parametrize("api", ["TxnOffsetCommit", "EndTxn"])
def test_an_abortable_error_is_named_and_the_next_transaction_goes_well(brokers, api):
    with producer_of(brokers) as producer:
        sent(producer, 1)
        brokers.on(api, AnswerWithError(TransactionAbortableError.code))
        with pytest.raises(TransactionAbortableError):
            sent(producer, 2)
        sent(producer, 3)
    assert committed(brokers) == [[1, 3]] * 2


def too_large(producer: ka.Producer) -> None:
    producer.send("out", b"x" * 2_000_000)


def too_large_row(producer: ka.Producer) -> None:
    producer.send_batch(pa.table({"value": [b"x" * 2_000_000]}), "out")


def missing_topic(producer: ka.Producer) -> None:
    producer.send("absent", b"x")


@pytest.mark.parametrize(
    ("lost", "error"),
    [
        (too_large, MessageTooLargeError),
        (too_large_row, MessageTooLargeError),
        (missing_topic, KafkaTimeoutError),
    ],
)
def test_a_record_that_could_not_be_taken_keeps_the_rest_from_being_committed(brokers, lost, error):
    """Java's producer does the same (KAFKA-9279). It holds where the program goes on after the error, too."""
    waits = {"max_block_ms": int(slow_s(0.3) * 1000)} if lost is missing_topic else {}
    with producer_of(brokers, **waits) as producer:
        sent(producer, 1)
        producer.begin_transaction()
        producer.send("out", b"2", partition=0)
        with pytest.raises(error):
            lost(producer)
        with pytest.raises(error):
            producer.flush()
        with pytest.raises(error):
            producer.commit_transaction()
        producer.abort_transaction()
        with producer.transaction():
            for partition in (0, 1):
                producer.send("out", b"3", partition=partition)
            with pytest.raises(UsageError):
                producer.send("out", 4)  # the program's mistake: Java's throws it past the transaction
    assert committed(brokers) == [[1, 3]] * 2


def test_a_sinks_transaction_goes_on_without_a_row_that_was_refused(brokers):
    """Its record goes to the dead letters."""
    options = {"bootstrap_servers": brokers.bootstrap_servers, "transactional_id": "copier", **QUICK}
    with TargetProducer(**options) as producer:
        with producer.transaction():
            producer.send("out", b"1", partition=0)
            with pytest.raises(MessageTooLargeError):
                too_large_row(producer)
        assert producer.failure is None
    assert committed(brokers) == [[1], []]


@in_loop
async def test_an_async_producer_does_not_commit_without_a_record_that_could_not_be_taken(brokers):
    options = {"bootstrap_servers": brokers.bootstrap_servers, "transactional_id": "copier"}
    async with ka.AsyncProducer(**options) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.send("out", b"1", partition=0)
        with pytest.raises(MessageTooLargeError):
            await producer.send("out", b"x" * 2_000_000)
        with pytest.raises(MessageTooLargeError):
            await producer.commit_transaction()
    assert committed(brokers) == [[], []]


def test_a_zombie_that_comes_back_writes_and_commits_nothing(brokers):
    with producer_of(brokers) as zombie, producer_of(brokers) as heir:
        sent(zombie, 1)
        zombie.begin_transaction()
        zombie.send("out", b"2", partition=0).result(timeout=slow_s(10))
        sent(heir, 3)
        late = zombie.send("out", b"4", partition=0)
        with pytest.raises(ProducerFencedError):
            zombie.send_offsets_to_transaction({SOURCE: 4}, ka.ConsumerGroupMetadata("g"))
        with pytest.raises(ka.KafkaActorsError):
            late.result(timeout=slow_s(10))
        with pytest.raises(ProducerFencedError):
            zombie.abort_transaction()
    assert committed(brokers) == [[1, 3]] * 2
    assert brokers.committed("g") == {SOURCE: 3}


def test_random_faults_lose_and_double_nothing(brokers):
    rand = Random(19)
    done = []
    with producer_of(brokers, delivery_timeout_ms=100_000) as producer:
        for number in range(1, 31):
            for api in rand.sample(APIS, 2):
                brokers.on(api, rand.choice([LoseResponse(), DropConnection(), AnswerWithError(16)]))
            if number % 7 == 0:
                brokers.set_transaction_coordinator("copier", rand.choice([1, 2]))
            if number % 5:
                sent(producer, number)
                done.append(number)
            else:
                producer.begin_transaction()
                producer.send("out", b"%d" % number, partition=number % 2)
                producer.abort_transaction()
    assert committed(brokers) == [done] * 2
    assert brokers.committed("g") == {SOURCE: done[-1]}

"""Writers that share one producer, and what they say was taken of a batch."""

import pyarrow as pa
import pytest

from kafka_actors.config import ProducerConfig, build
from kafka_actors.errors import KafkaTimeoutError, MessageTooLargeError, ProducerFencedError, UsageError
from kafka_actors.sinks.sink import Origin, TransactionBroken
from kafka_actors.sinks.transactional import ProducerSlot, SessionProducer, TransactionalWriter
from kafka_actors.types import ProducerIdentity

ROWS = pa.RecordBatch.from_pydict({"value": [b"a"]})
FROM = Origin("orders", 0, 1, 1)


class Sent:
    def __init__(self, error=None):
        self.error, self.seen, self.failure = error, [], None

    def send_batch(self, batch, topic):
        if self.error is not None:
            raise self.error
        self.seen.append(topic)


@pytest.fixture
def slot():
    made = ProducerSlot()
    made.producer = Sent()
    return made


def test_writers_share_the_producer_and_begin_the_transaction(slot):
    begun = []
    slot.begins = lambda: begun.append(len(slot.producer.seen))
    for topic in ("first", None):
        writer = TransactionalWriter(slot, topic)
        writer.write(ROWS, FROM)
        writer.flush()
        writer.close()
    assert slot.producer.seen == ["first", None]
    assert begun == [0, 1]
    assert slot.taken


@pytest.mark.parametrize(
    ("error", "taken"),
    [
        (MessageTooLargeError("too large"), False),
        (UsageError("no such column"), False),
        (KafkaTimeoutError("no room"), True),
    ],
)
def test_an_error_tells_if_rows_may_have_been_taken(slot, error, taken):
    """If so no policy of rows may try again: that would write them twice."""
    slot.producer.error = error
    with pytest.raises(TransactionBroken if taken else type(error)) as caught:
        slot.send(ROWS, "scored")
    assert slot.taken is taken
    if taken:
        assert caught.value.cause is error
        assert not isinstance(caught.value, Exception)


def test_what_a_producer_refuses_that_has_failed_is_no_fault_of_the_rows(slot):
    slot.producer.error, slot.producer.failure = UsageError("is closed"), ProducerFencedError("fenced")
    with pytest.raises(TransactionBroken) as caught:
        slot.send(ROWS, "scored")
    assert caught.value.cause is slot.producer.failure


def test_a_transaction_that_does_not_begin_is_no_fault_of_the_rows(slot):
    def begins():
        raise ProducerFencedError("fenced")

    slot.begins = begins
    with pytest.raises(TransactionBroken):
        slot.send(ROWS, "scored")
    assert slot.producer.seen == []


def test_without_a_producer_nothing_is_sent():
    with pytest.raises(UsageError, match="has no producer now"):
        ProducerSlot().send(ROWS, "scored")


def test_a_producer_that_was_discarded_says_so_and_needs_no_broker_for_it():
    identity = ProducerIdentity("g-n-worker-0", 7, 3)
    producer = SessionProducer(build(ProducerConfig, bootstrap_servers="localhost:1"), identity)
    assert producer.config.transactional_id == "g-n-worker-0"
    assert producer.failure is None
    producer.discard()
    producer.discard()
    assert isinstance(producer.failure, UsageError)
    with pytest.raises(UsageError, match="is closed"):
        producer.begin_transaction()

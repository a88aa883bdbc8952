"""Writers that share one producer, and what they say was taken of a batch."""

import pyarrow as pa
import pytest

from kafka_actors.config import ProducerConfig, build
from kafka_actors.errors import KafkaTimeoutError, MessageTooLargeError, UsageError
from kafka_actors.sinks.sink import Origin
from kafka_actors.sinks.transactional import ProducerSlot, SessionProducer, TransactionalWriter
from kafka_actors.types import ProducerIdentity

ROWS = pa.RecordBatch.from_pydict({"value": [b"a"]})
FROM = Origin("orders", 0, 1, 1)


class Sent:
    def __init__(self, error=None):
        self.error, self.seen = error, []

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
    slot.producer.error = error
    with pytest.raises(type(error)):
        slot.send(ROWS, "scored")
    assert slot.taken is taken


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

"""The batches that still take records."""

import pytest

from kafka_actors.errors import InvalidTimestampError, OutOfOrderSequenceNumberError
from kafka_actors.producer.machines.batch import (
    Accumulator,
    ProduceErrorAction,
    ProducerBatch,
    action_for,
    with_advice,
)
from kafka_actors.types import TopicPartition

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)


class Content:
    used = 100

    def __init__(self, count):
        self.count = count


def test_batches_are_due_in_the_order_in_which_they_were_begun():
    made = Accumulator(linger=5.0)
    made.begin(A, lambda: ProducerBatch(A, Content(1), 1.0))
    made.begin(B, lambda: ProducerBatch(B, Content(1), 2.0))
    assert made.next_due() == 6.0
    assert made.due(5.9) == []
    assert made.due(6.0) == [A]
    assert made.due(7.0) == [A, B]
    made.close(A)
    assert (made.get(A), made.next_due(), len(made)) == (None, 7.0, 1)


def test_a_sequence_that_is_refused_is_a_gap_only_where_there_are_sequences():
    refused = OutOfOrderSequenceNumberError("not the next one")
    assert action_for(refused, records=1, idempotent=True) is ProduceErrorAction.GAP
    assert action_for(refused, records=1, idempotent=False) is ProduceErrorAction.FAILED


@pytest.mark.parametrize("said", ["Timestamp 7 of message with offset 0 is out of range.", ""])
def test_a_refused_timestamp_leads_to_the_clock_and_to_the_topics_options(said):
    error = with_advice(InvalidTimestampError(said), ProducerBatch(A, Content(1), 1.0))
    assert said in error.message
    assert "check its clock and the broker's" in error.message
    assert "message.timestamp.after.max.ms" in error.message

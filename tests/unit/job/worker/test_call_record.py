"""The record of calls in hand, as another process reads it."""

import os
import sys

import pytest

from kafka_actors.job.messages import CallInHand
from kafka_actors.job.worker import call_record as call_record_module
from kafka_actors.job.worker.call_record import CallRecord, read_crash_report
from kafka_actors.types import TopicPartition

P, Q = TopicPartition("orders", 3), TopicPartition("orders", 4)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the memory is Linux's")


def test_it_has_the_calls_in_hand():
    record = CallRecord()
    record.call_began(P, 40, 59)
    record.call_began(Q, 0, 9)
    record.call_ended(P)
    assert read_crash_report(record.descriptor).calls == [CallInHand(Q, 0, 9)]


def test_what_is_written_meanwhile_is_not_read():
    """Record of a worker that lives: it is asked for when one of its calls lasts too long, and others begin and end."""
    record = CallRecord()
    record.call_began(P, 40, 59)
    for half in range(2):
        os.pwrite(
            record.descriptor,
            b"\xff" * 20,
            call_record_module._HEAD.size + half * call_record_module._HALF + 4,
        )
    assert read_crash_report(record.descriptor) is None


def test_a_record_that_is_closed_is_not_read():
    record = CallRecord()
    descriptor = os.dup(record.descriptor)
    os.close(descriptor)
    assert read_crash_report(descriptor) is None

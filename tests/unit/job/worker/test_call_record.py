"""The note of calls in hand, as another process reads it."""

import os
import sys

import pytest

from kafka_actors.job.messages import CallInHand
from kafka_actors.job.worker import call_record as call_note
from kafka_actors.job.worker.call_record import CallRecord, last_words
from kafka_actors.types import TopicPartition

P, Q = TopicPartition("orders", 3), TopicPartition("orders", 4)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the memory is Linux's")


def test_it_has_the_calls_in_hand():
    note = CallRecord()
    note.begins(P, 40, 59)
    note.begins(Q, 0, 9)
    note.ends(P)
    assert last_words(note.descriptor).calls == [CallInHand(Q, 0, 9)]


def test_what_is_written_meanwhile_is_not_read():
    """Of a worker that lives: it is asked for when one of its calls lasts too long, and others begin and end."""
    note = CallRecord()
    note.begins(P, 40, 59)
    for half in range(2):
        os.pwrite(note.descriptor, b"\xff" * 20, call_note._HEAD.size + half * call_note._HALF + 4)
    assert last_words(note.descriptor) is None


def test_a_note_that_is_closed_is_not_read():
    note = CallRecord()
    descriptor = os.dup(note.descriptor)
    os.close(descriptor)
    assert last_words(descriptor) is None

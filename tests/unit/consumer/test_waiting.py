"""Waiting in calls: one thread at a time reads."""

import threading

import pytest

from kafka_actors.consumer.waiting import OneReader
from kafka_actors.errors import UsageError


def test_a_second_thread_that_reads_is_refused_and_the_same_one_may_read_within_its_call():
    reader, refused = OneReader(), []

    def other():
        try:
            with reader:
                pass
        except UsageError as error:
            refused.append(str(error))

    with reader, reader:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert len(refused) == 1
    assert refused[0].startswith("another thread is reading from this Consumer")
    other()
    assert len(refused) == 1


def test_an_error_of_a_call_lets_the_next_thread_read():
    reader = OneReader()
    with pytest.raises(KeyError), reader:
        raise KeyError
    with reader:
        pass

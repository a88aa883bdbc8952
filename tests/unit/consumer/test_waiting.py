"""Waiting in calls: one thread at a time reads, and sleeps until another thread has something for it."""

import threading
import time

import pytest

from kafka_actors.consumer.waiting import OneReader, ThreadWakeup
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


LONG_S = 60.0


def test_a_call_from_before_the_wait_ends_it_and_counts_once():
    wakeup = ThreadWakeup()
    wakeup()
    wakeup()
    began = time.monotonic()
    wakeup.wait(LONG_S)
    assert time.monotonic() - began < LONG_S / 2
    wakeup.wait(0.001)  # ends by its own limit
    wakeup()
    wakeup.clear()
    assert wakeup._lock.locked()


def test_many_threads_that_call_at_once_wake_the_one_that_sleeps():
    wakeup, calls = ThreadWakeup(), [0] * 4
    over = threading.Event()

    def call(number):
        while not over.is_set():
            wakeup()
            calls[number] += 1

    threads = [threading.Thread(target=call, args=[number]) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for _ in range(500):
        wakeup.wait(None)
    over.set()
    for thread in threads:
        thread.join()
    assert all(calls)

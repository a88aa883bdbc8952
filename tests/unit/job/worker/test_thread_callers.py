"""Calls of a plain function in threads: at once, each key in order; an error ends the job, and stopping waits for the calls in hand."""

import threading

import pytest
from fakes.in_flight import P0, Flight
from waiting import slow_s

from kafka_actors.errors import CorruptMessageError, ProcessError
from kafka_actors.job.worker.thread_callers import ThreadCallers


def flight_of(target, **options):
    return Flight(target, make_callers=lambda calls: ThreadCallers(calls, 4), **options)


def running(flight):
    failures = []

    def run():
        try:
            flight.calls.run()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, failures


def test_calls_are_made_at_once_and_those_of_a_key_in_order():
    together, called, over = threading.Barrier(3), [], threading.Event()

    def call(message):
        if message.offset < 3:
            together.wait(slow_s(10))
        called.append((message.key, message.offset))
        if len(called) == 6:
            over.set()

    flight = flight_of(call)
    flight.reader.put(P0, 0, "abcaba")
    thread, failures = running(flight)
    assert over.wait(slow_s(10))
    flight.calls.stop()
    thread.join(slow_s(10))
    assert not thread.is_alive()
    assert failures == []
    assert [offset for key, offset in called if key == b"a"] == [0, 3, 5]
    assert flight.processed() == 6


def test_records_that_come_later_are_called():
    called = threading.Event()
    flight = flight_of(lambda message: called.set())
    thread, failures = running(flight)
    flight.reader.put(P0, 0, "a")
    flight.calls.wake()
    assert called.wait(slow_s(10))
    flight.calls.stop()
    thread.join(slow_s(10))
    assert (thread.is_alive(), failures) == (False, [])


def test_what_ends_the_job_comes_out_of_run():
    def call(message):
        raise ValueError("no good")

    flight = flight_of(call)
    flight.reader.put(P0, 0, "a")
    with pytest.raises(ProcessError, match="no good"):
        flight.calls.run()


@pytest.mark.parametrize("what", ["a call", "the admission of records"])
def test_what_ends_the_job_is_told_while_another_call_is_in_hand(what):
    """That call may take minutes, or hang."""
    began, go_on, told = threading.Event(), threading.Event(), threading.Event()

    def call(message):
        if message.key == b"a":
            began.set()
            go_on.wait(slow_s(10))
        else:
            assert began.wait(slow_s(10))
            raise ValueError("no good")

    flight = flight_of(call)
    flight.calls.on_failure = lambda error: (flight.failures.append(error), told.set())
    flight.reader.put(P0, 0, "ab" if what == "a call" else "a")
    thread, failures = running(flight)
    assert began.wait(slow_s(10))
    if what == "the admission of records":
        flight.reader.take = lambda: (_ for _ in ()).throw(CorruptMessageError("no good"))
        flight.calls.wake()
    assert told.wait(slow_s(10))
    assert thread.is_alive(), "the call in hand is waited for"
    go_on.set()
    thread.join(slow_s(10))
    assert not thread.is_alive()
    assert failures == flight.failures
    assert "no good" in str(failures[0])
    assert flight.processed() == 1, "what the call in hand has done counts"


def test_stopping_waits_for_the_calls_in_hand():
    began, go_on = threading.Event(), threading.Event()

    def call(message):
        began.set()
        go_on.wait(slow_s(10))

    flight = flight_of(call)
    flight.reader.put(P0, 0, "a")
    thread, failures = running(flight)
    assert began.wait(slow_s(10))
    flight.calls.stop()
    assert thread.is_alive()
    go_on.set()
    thread.join(slow_s(10))
    assert (thread.is_alive(), failures, flight.processed()) == (False, [], 1)


def test_a_batch_is_called_whole():
    seen, over = [], threading.Event()

    def call(batch):
        seen.append(batch["offset"].to_pylist())
        over.set()

    flight = flight_of(call, unit="batch", batch_rows=2, ordering="unordered")
    flight.reader.put(P0, 0, "ab")
    thread, _ = running(flight)
    assert over.wait(slow_s(10))
    flight.calls.stop()
    thread.join(slow_s(10))
    assert seen == [[0, 1]]


def test_where_the_system_gives_too_few_threads_those_that_were_started_end(monkeypatch):
    start, started = threading.Thread.start, []

    def few(thread):
        if len(started) == 2:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    flight = flight_of(lambda message: None)
    with monkeypatch.context() as system:
        system.setattr(threading.Thread, "start", few)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            flight.calls.run()
    assert [thread.is_alive() for thread in started] == [False, False]

"""The futures of records and batches, and failures that nobody asked about."""

import asyncio
import concurrent.futures
import contextlib
import math
import threading
import traceback
import weakref

import numpy as np
import pytest
from fakes.interrupts import TAKING_A_CONDITION, interrupted_behind
from waiting import slow_s

from kafka_actors.errors import DisconnectedError, KafkaTimeoutError, UndeliveredError, UsageError
from kafka_actors.producer.futures import (
    RECENT,
    BatchFuture,
    BatchResult,
    OffsetRange,
    RecordFuture,
    Unseen,
    wait_all,
)
from kafka_actors.producer.machines.batch import ProducerBatch
from kafka_actors.producer.machines.sender import SettledBatch
from kafka_actors.types import TopicPartition

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)
LOST = DisconnectedError("lost")


class Content:
    used = 100

    def __init__(self, count):
        self.count = count


def settled(result, records, base=-1, error=None, first=0, total=0):
    batch = ProducerBatch(result.partition, Content(records), 0.0, result, first)
    batch.split_off = total
    return result.settle(batch, SettledBatch(batch, base, -1, error))


def test_a_record_knows_its_own_offset_and_timestamp():
    result = BatchResult(A)
    future = RecordFuture(result, 3, 1234)
    assert not future.done()
    settled(result, 10, base=40)
    where = future.result()
    assert (where.topic, where.partition, where.offset, where.timestamp_ms) == ("orders", 0, 43, 1234)
    assert future.exception() is None


def test_a_future_waits_for_another_thread_and_for_no_longer_than_told():
    result = BatchResult(A)
    future = RecordFuture(result, 0, 0)
    with pytest.raises(KafkaTimeoutError, match=r"within 0\.001 s"):
        future.result(timeout=0.001)
    thread = threading.Thread(target=settled, args=(result, 1, 7))
    thread.start()
    assert future.result(timeout=slow_s(5)).offset == 7
    thread.join()


@pytest.mark.parametrize(
    "wait",
    [lambda result: RecordFuture(result, 0, 0).result(timeout=0.1), lambda result: result.wait(0.1)],
    ids=["result", "flush"],
)
def test_a_wait_that_a_signals_handler_ends_anywhere_does_not_hold_up_who_settles(wait):
    result = BatchResult(A)
    with contextlib.suppress(KafkaTimeoutError), interrupted_behind(TAKING_A_CONDITION):
        wait(result)

    def settle():
        settled(result, 1, 7)
        result.close()

    thread = threading.Thread(target=settle, daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()


def test_a_future_can_be_awaited_and_calls_back():
    result, called = BatchResult(A), []
    future = RecordFuture(result, 0, 0)
    future.add_done_callback(called.append)

    async def main():
        asyncio.get_running_loop().call_soon(settled, result, 1, 7)
        return await future

    assert asyncio.run(main()).offset == 7
    assert called == [future]


def test_a_split_batch_is_settled_with_its_last_part():
    result = BatchResult(A)
    first, last = RecordFuture(result, 0, 0), RecordFuture(result, 9, 0)
    assert not settled(result, 6, error=LOST, first=4, total=10)
    assert not first.done()
    assert settled(result, 4, base=100, total=10)
    assert first.result().offset == 100
    assert last.exception() is LOST


def test_rows_of_a_batch_are_settled_together_and_failed_ones_are_named():
    one, two = BatchResult(A), BatchResult(B)
    future = BatchFuture(5)
    future.add(one, 10, np.array([0, 3], np.int32))
    future.add(two, 0, np.array([1, 2, 4], np.int32), 100)
    settled(one, 12, base=50)
    future.complete()
    assert not future.done()
    settled(two, 3, error=LOST)
    error = future.exception()
    assert isinstance(error, UndeliveredError)
    assert (error.records, error.rows, error.errors) == (3, [101, 102, 104], {B: LOST})
    assert str(error) == "3 records were not delivered: lost"


def test_delivered_rows_have_their_places():
    one = BatchResult(A)
    future = BatchFuture(3)
    future.add(one, 10, np.array([0, 1, 2], np.int32))
    future.complete()
    settled(one, 20, base=50)
    assert future.result().partitions == {A: [OffsetRange(60, 3)]}


def test_what_nobody_asked_about_is_told_of_once():
    seen, unseen = BatchResult(A), BatchResult(B)
    futures = [RecordFuture(seen, i, 0) for i in range(2)]
    for result in (seen, unseen):
        settled(result, 2, error=LOST)
    for future in futures:
        assert future.exception() is LOST
        assert future.exception() is LOST
    failures = Unseen()
    for result in (seen, unseen):
        failures.add(result)
    error = failures.take()
    assert error is not None
    assert (error.records, error.errors) == (2, {B: LOST})
    assert failures.take() is None


class FailedResult(BatchResult):
    """One that a test can see go."""


def test_a_producer_that_is_never_flushed_does_not_keep_all_that_failed():
    failures, kept = Unseen(), []
    for number in range(3 * RECENT):
        result = FailedResult(A)
        settled(result, 2, error=LOST)
        if number % 2:
            result.seen = 2
        failures.add(result)
        kept.append(weakref.ref(result))
    del result
    assert sum(result() is not None for result in kept) == RECENT
    error = failures.take()
    assert (error.records, error.errors) == (3 * RECENT, {A: LOST})
    assert failures.take() is None


def test_waiting_for_all_says_how_many_are_left():
    one, two = BatchResult(A), BatchResult(B)
    for result in (one, two):
        settled(result, 1, base=0)
    one.close()
    assert wait_all([one, two], deadline=0.0) == 1
    two.close()
    assert wait_all([one, two], deadline=None) == 0


def test_who_waits_for_all_is_woken_by_the_last_step():
    result = BatchResult(A)
    thread = threading.Thread(target=wait_all, args=([result], None))
    thread.start()
    settled(result, 1, base=0)
    thread.join(0.05)
    assert thread.is_alive()
    result.close()
    thread.join()


def test_a_callback_that_raises_keeps_no_outcome_from_others(caplog):
    result, called = BatchResult(A), []
    futures = [RecordFuture(result, i, 0) for i in range(2)]

    def raising(_):
        raise ValueError("the user's own")

    futures[0].add_done_callback(raising)
    futures[1].add_done_callback(called.append)
    assert settled(result, 2, 7)
    assert called == [futures[1]]
    assert "raising" in caplog.text
    futures[0].add_done_callback(raising)  # at once, and just as harmless


def test_who_holds_up_the_loop_that_an_outcome_comes_through_is_not_kept_waiting():
    """As `.result()` in place of `await`, or in a callback of another future."""

    async def main():
        future = RecordFuture(BatchResult(A, asyncio.get_running_loop()), 0, 0)
        rows = BatchFuture(1)
        rows.add(future._result, 0, np.array([0], np.int32))
        rows.complete()
        for waiting in (future, rows):
            with pytest.raises(UsageError, match="await the future there"):
                waiting.result()
        settled(future._result, 1, 7)
        assert future.result().offset == 7

    asyncio.run(main())


def test_one_error_of_many_records_does_not_grow_with_each_that_is_asked():
    result = BatchResult(A)
    settled(result, 3, error=DisconnectedError("lost"))
    lengths = set()
    for index in range(3):
        with pytest.raises(DisconnectedError) as caught:
            RecordFuture(result, index, 0).result()
        lengths.add(len(traceback.extract_tb(caught.value.__traceback__)))
    assert len(lengths) == 1


@pytest.mark.parametrize("endless", [math.inf, 2**63 - 1])
def test_a_result_may_be_waited_for_without_an_end(endless):
    result = BatchResult(A)
    future = RecordFuture(result, 0, 0)
    timer = threading.Timer(0.05, lambda: settled(result, 1, 7))
    timer.start()
    assert future.result(timeout=endless).offset == 7
    timer.join()


@pytest.mark.parametrize("wrong", ["5", -1, True])
def test_a_wrong_timeout_is_refused(wrong):
    with pytest.raises(UsageError, match="accepts seconds, at least 0"):
        RecordFuture(BatchResult(A), 0, 0).result(timeout=wrong)


def test_a_future_says_how_far_its_record_is():
    waiting, written, failed = BatchResult(A), BatchResult(A), BatchResult(B)
    settled(written, 10, base=40)
    settled(failed, 10, error=LOST)
    assert repr(RecordFuture(waiting, 3, 0)) == "<RecordFuture orders-0, not acknowledged yet>"
    assert repr(RecordFuture(written, 3, 0)) == "<RecordFuture orders-0, offset 43>"
    assert repr(RecordFuture(failed, 3, 0)) == "<RecordFuture orders-1, failed: lost>"
    assert failed.seen == 0  # nobody asked for the error yet
    assert repr(BatchFuture(100)) == "<BatchFuture of 100 rows, not acknowledged yet>"


def test_those_who_wait_for_several_are_told_how():
    """They are no futures of `concurrent.futures`, whose `wait` needs more than a result."""
    results = [BatchResult(A), BatchResult(B)]
    futures = [RecordFuture(result, 0, 0) for result in results]
    for wait in (concurrent.futures.wait, lambda these: list(concurrent.futures.as_completed(these))):
        with pytest.raises(
            AttributeError, match=r"RecordFuture has no _condition: .* call result\(\) of each"
        ):
            wait(futures)
    with pytest.raises(AttributeError, match=r"BatchFuture has no get\(\): result\(timeout=…\)"):
        BatchFuture(0).get()
    assert not hasattr(futures[0], "cancel")
    for result in results:
        settled(result, 1, 7)

    async def together():
        return [where.offset for where in await asyncio.gather(*futures)]

    assert asyncio.run(together()) == [7, 7]

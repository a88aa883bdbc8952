"""The queue of records whose calls may begin, and the size of a call with single records."""

import random
from collections import deque

import pytest

from kafka_actors.job.worker.machines.ready_records import CallPace, ReadyRecords

FIRST, SECOND = "a chunk", "another"


def queued(*records):
    ready = ReadyRecords()
    for chunk, row in records:
        ready.append(chunk, row)
    return ready


def test_rows_are_taken_in_the_order_in_which_they_became_ready():
    records = [(FIRST, 0), (FIRST, 1), (SECOND, 0), (FIRST, 5), (FIRST, 4), (SECOND, 2)]
    ready = queued(*records)
    assert [ready.popleft() for _ in range(len(ready))] == records
    assert len(ready) == 0
    with pytest.raises(IndexError):
        ready.popleft()


def test_a_call_goes_on_with_the_next_row_if_that_is_of_the_same_chunk():
    ready = queued((FIRST, 0), (FIRST, 1), (SECOND, 0), (FIRST, 2))
    assert ready.popleft() == (FIRST, 0)
    assert [ready.next_of(FIRST), ready.next_of(FIRST)] == [1, None]
    assert ready.popleft() == (SECOND, 0)
    assert [ready.next_of(SECOND), ready.next_of(FIRST), ready.next_of(FIRST)] == [None, 2, None]


def test_rows_that_are_put_back_are_the_next_ones():
    ready = queued((FIRST, 0), (FIRST, 1))
    ready.popleft()
    ready.put_back(SECOND, [])
    ready.put_back(SECOND, [7, 8])
    assert [ready.popleft() for _ in range(len(ready))] == [(SECOND, 7), (SECOND, 8), (FIRST, 1)]


def test_it_is_a_queue_whatever_is_called():
    rnd = random.Random(3)
    ready, model = ReadyRecords(), deque()
    for number in range(5000):
        chunk = rnd.choice((FIRST, SECOND))
        match rnd.randrange(4):
            case 0 | 1:
                ready.append(chunk, number)
                model.append((chunk, number))
            case 2 if model:
                taken = model.popleft()
                assert ready.popleft() == taken
                if rnd.random() < 0.2:
                    ready.put_back(taken[0], [taken[1]])
                    model.appendleft(taken)
            case _:
                expected = model.popleft()[1] if model and model[0][0] is chunk else None
                assert ready.next_of(chunk) == expected
        assert len(ready) == len(model)


def test_a_caller_takes_as_many_single_records_as_it_gets_done_at_once():
    pace = CallPace.of(messages=True, by_record=False)
    assert pace.at_once == 1, "until it is known how long they take"
    for _ in range(500):
        pace.took(0.0001, 10)
    assert pace.at_once in (29, 30)
    for _ in range(500):
        pace.took(0.5, 1)
    assert pace.at_once == 1
    assert CallPace.of(messages=False, by_record=False).at_once > 1_000_000

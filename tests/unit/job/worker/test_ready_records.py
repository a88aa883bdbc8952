"""The queue of records whose calls may begin, and the size of a call with single records."""

import random
from types import SimpleNamespace

from kafka_actors.job.worker.machines.ready_records import CallPace, ReadyRecords


class Window:
    """A window, which has its name only, with chunks of a hundred offsets."""

    def __init__(self, name):
        self.name = name
        self.chunks = [
            SimpleNamespace(window=self, next_offset=100 * (n + 1), name=(name, n)) for n in range(9)
        ]


A, B = Window("a"), Window("b")
FIRST, SECOND = A.chunks[:2]


def queued(*records):
    ready = ReadyRecords()
    for chunk, row in records:
        ready.append(chunk, [row])
    return ready


def all_of(ready):
    return [ready.popleft() for _ in range(len(ready))]


def test_rows_of_a_window_are_taken_in_the_order_of_their_offsets():
    ready = queued((FIRST, 0), (FIRST, 1), (FIRST, 7), (SECOND, 0), (SECOND, 2))
    ready.put_back(SECOND, [1])
    ready.put_back(FIRST, [5])
    assert all_of(ready) == [
        (FIRST, 0),
        (FIRST, 1),
        (FIRST, 5),
        (FIRST, 7),
        (SECOND, 0),
        (SECOND, 1),
        (SECOND, 2),
    ]
    assert len(ready) == 0


def test_windows_take_turns_however_many_rows_one_has():
    ready = queued(*((FIRST, row) for row in range(90)), (B.chunks[0], 0), (B.chunks[0], 1))
    assert [chunk.window.name for chunk, _ in all_of(ready)][:6] == ["a", "b", "a", "b", "a", "a"]


def test_a_call_goes_on_with_the_next_row_if_that_is_of_the_same_chunk():
    ready = queued((FIRST, 0), (FIRST, 1), (B.chunks[0], 3), (SECOND, 0))
    assert ready.popleft() == (FIRST, 0)
    assert [list(ready.next_of(FIRST)), list(ready.next_of(FIRST))] == [[1], []], (
        "the next one is of another chunk"
    )
    assert ready.popleft() == (B.chunks[0], 3)
    assert not ready.next_of(B.chunks[0])
    assert [list(ready.next_of(SECOND)), list(ready.next_of(SECOND))] == [[0], []]


def test_several_rows_are_taken_at_once_as_far_as_none_of_another_chunk_comes_first():
    ready = queued()
    ready.append(FIRST, [])
    ready.append(FIRST, range(5))
    ready.append(SECOND, [0])
    assert ready.popleft() == (FIRST, 0)
    assert list(ready.next_of(FIRST, 2)) == [1, 2]
    ready.put_back(SECOND, [7])
    ready.put_back(FIRST, [0])
    assert list(ready.next_of(FIRST, 9)) == [0], "one that comes again, by itself"
    assert len(ready) == 4
    assert list(ready.next_of(FIRST, 1)) == [3]
    assert ready.popleft() == (FIRST, 4)
    assert all_of(ready) == [(SECOND, 0), (SECOND, 7)]


def test_rows_that_are_put_back_come_before_those_behind_them():
    ready = queued((FIRST, 0), (FIRST, 1), (FIRST, 2))
    ready.popleft()
    ready.popleft()
    ready.put_back(FIRST, [])
    ready.put_back(FIRST, [0, 1])
    assert all_of(ready) == [(FIRST, 0), (FIRST, 1), (FIRST, 2)]


def test_what_a_window_had_is_dropped_at_once():
    ready = queued((FIRST, 0), (B.chunks[0], 0), (FIRST, 1))
    ready.put_back(SECOND, [4])
    ready.drop(A)
    ready.drop(A)
    assert all_of(ready) == [(B.chunks[0], 0)]


def test_each_row_comes_once_and_those_of_a_window_by_offset_whatever_is_called():
    rnd, ready = random.Random(3), ReadyRecords()
    admitted, waiting, taken = {A: 0, B: 0}, [], []
    for _ in range(5000):
        window = rnd.choice((A, B))
        match rnd.randrange(5):
            case 0 | 1 if admitted[window] < 900:
                chunk, row = window.chunks[admitted[window] // 100], admitted[window] % 100
                admitted[window] += 1
                ready.append(chunk, [row])
                waiting.append((chunk, row))
            case 2 if taken:
                chunk, row = taken.pop(rnd.randrange(len(taken)))
                ready.put_back(chunk, [row])
                waiting.append((chunk, row))
            case 3 if waiting:
                chunk, row = ready.popleft()
                waiting.remove((chunk, row))
                taken.append((chunk, row))
                assert all(
                    (c.next_offset, r) > (chunk.next_offset, row)
                    for c, r in waiting
                    if c.window is chunk.window
                )
            case 4:
                chunk = window.chunks[0]
                own = [(c.next_offset, r, c) for c, r in waiting if c.window is window]
                first = min(own, key=lambda each: each[:2], default=None)
                rows = list(ready.next_of(chunk))
                assert rows == ([first[1]] if first and first[2] is chunk else [])
                for row in rows:
                    waiting.remove((chunk, row))
                    taken.append((chunk, row))
        assert len(ready) == len(waiting)


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

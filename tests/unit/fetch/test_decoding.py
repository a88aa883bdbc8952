"""Decoding ahead: what comes in which order, what is begun when, and where an error comes out."""

import threading
import weakref

import pyarrow as pa
import pytest

from kafka_actors.errors import CorruptRecordBatchError, UsageError
from kafka_actors.fetch import DecodeAhead, FetchedBytes
from kafka_actors.fetch.decoding import CHUNKS, ITEMS, LITTLE_BYTES, ChunksAhead, DecodeThreads
from kafka_actors.fetch.machines.buffer import PartitionSlice
from kafka_actors.fetch.messages import FetchedPartition
from kafka_actors.records import Chunk
from kafka_actors.records.batch import ATTRIBUTES_AT, HEADER_SIZE, MAGIC_AT

SOON_S = 10


def item(number, size=LITTLE_BYTES, codec=4):
    fetched = FetchedPartition("t", 0, (0, 1), number, number + 1)
    data = bytearray(size)
    if size > HEADER_SIZE:
        data[MAGIC_AT], data[ATTRIBUTES_AT + 1] = 2, codec
    return FetchedBytes(("t", 0), [PartitionSlice(memoryview(data), fetched, None)])


def chunk(number):
    return Chunk(pa.record_batch({"n": [number]}), number + 1, 0)


class Fetcher:
    """Items with as many chunks as the test says, decoded when the test allows it; notes who decodes what."""

    def __init__(self, *sizes, chunks=3):
        self.waiting = [item(n, size) for n, size in enumerate(sizes)]
        self.chunks = chunks
        self.error = None  # in place of the last chunk
        self.decoded = []  # (item, chunk, thread)
        self.more = True
        self.may = threading.Semaphore(0)
        self.did = threading.Semaphore(0)

    def take(self):
        return self.waiting.pop(0) if self.waiting else None

    def take_more(self):
        return self.take() if self.more else None

    def unpack(self, fetched):
        for number in range(self.chunks):
            name = threading.current_thread().name
            if name.startswith("decode"):
                assert self.may.acquire(timeout=SOON_S)
            self.decoded.append((fetched.fetch_offset, number, name.partition("_")[0]))
            self.did.release()
            if self.error is not None and number == self.chunks - 1:
                raise self.error
            yield chunk(number)

    def let(self, count):
        """So many chunks be decoded ahead; returns when they are."""
        for _ in range(count):
            self.may.release()
        for _ in range(count):
            assert self.did.acquire(timeout=SOON_S)


@pytest.fixture
def ahead():
    made = []

    def make(fetcher):
        made.append((fetcher, DecodeAhead(fetcher)))
        return made[-1][1]

    yield make
    for fetcher, ahead in made:
        fetcher.may.release(100)
        ahead.close()


def numbers(chunks):
    return [chunk.next_offset - 1 for chunk in chunks]


def test_what_comes_next_is_decoded_by_others_and_comes_in_order(ahead):
    fetcher = Fetcher(*[LITTLE_BYTES] * (ITEMS + 2))
    taking = ahead(fetcher)
    first, chunks = taking.take()
    fetcher.let(ITEMS * CHUNKS)
    assert {(n, c) for n, c, _ in fetcher.decoded} == {
        (n + 1, c) for n in range(ITEMS) for c in range(CHUNKS)
    }
    assert {thread for _, _, thread in fetcher.decoded} == {"decode"}
    assert numbers(chunks) == [0, 1, 2]
    assert fetcher.decoded[-1] == (0, 2, "MainThread")  # what is at hand is decoded here
    fetcher.may.release(100)
    taken = [first] + [taken[0] for taken in iter(taking.take, None)]
    assert [found.fetch_offset for found in taken] == list(range(ITEMS + 2))


def test_all_chunks_come_once_each(ahead):
    fetcher = Fetcher(*[LITTLE_BYTES] * 5, chunks=7)
    fetcher.may.release(1000)
    taking = ahead(fetcher)
    found = [(taken.fetch_offset, numbers(chunks)) for taken, chunks in iter(taking.take, None)]
    assert found == [(n, list(range(7))) for n in range(5)]


def test_no_more_waits_than_there_is_room_for(ahead):
    fetcher = Fetcher(LITTLE_BYTES, LITTLE_BYTES, chunks=5)
    taking = ahead(fetcher)
    taking.take()
    fetcher.may.release(100)
    for _ in range(CHUNKS):
        assert fetcher.did.acquire(timeout=SOON_S)
    assert not fetcher.did.acquire(timeout=0.05)
    _, chunks = taking.take()
    next(chunks)
    assert fetcher.did.acquire(timeout=SOON_S)


@pytest.mark.parametrize(("size", "codec"), [(1, 4), (LITTLE_BYTES - 1, 4), (LITTLE_BYTES, 0)])
def test_what_is_little_or_not_compressed_is_decoded_where_it_is_used(ahead, size, codec):
    fetcher = Fetcher()
    fetcher.waiting = [item(n, size, codec) for n in range(3)]
    taking = ahead(fetcher)
    assert [numbers(chunks) for _, chunks in iter(taking.take, None)] == [[0, 1, 2]] * 3
    assert {thread for _, _, thread in fetcher.decoded} == {"MainThread"}


def test_where_something_else_may_come_first_nothing_is_taken_ahead(ahead):
    fetcher = Fetcher(LITTLE_BYTES, LITTLE_BYTES)
    fetcher.more = False
    taking = ahead(fetcher)
    taking.take()
    assert len(fetcher.waiting) == 1


def test_an_error_comes_out_behind_the_chunks_before_it(ahead):
    fetcher = Fetcher(1, LITTLE_BYTES)
    fetcher.error = CorruptRecordBatchError("t", 0, 5, None, "broken")
    taking = ahead(fetcher)
    taking.take()
    _, chunks = taking.take()
    fetcher.may.release(10)
    assert numbers([next(chunks), next(chunks)]) == [0, 1]
    with pytest.raises(CorruptRecordBatchError, match="broken"):
        next(chunks)
    assert list(chunks) == []


def test_only_what_was_taken_of_others_is_forgotten(ahead):
    fetcher = Fetcher()
    fetcher.waiting = [item(0, 1), item(1, 1), item(2, 1)]
    fetcher.waiting[1].partition = ("t", 1)
    taking = ahead(fetcher)
    taking.take()
    taking.forget({("t", 1)})
    assert [taken.fetch_offset for taken, _ in iter(taking.take, None)] == [2]


def test_whoever_waits_for_a_chunk_when_it_is_closed_has_all_of_them_or_is_told(ahead):
    fetcher = Fetcher(1, LITTLE_BYTES, LITTLE_BYTES, LITTLE_BYTES, chunks=5)
    taking = ahead(fetcher)
    *_, waiting = [taking.take()[1] for _ in range(4)]  # nobody has begun to decode it
    outcome = []

    def read():
        try:
            outcome.extend(numbers(waiting))
        except UsageError as error:
            outcome.append(str(error))

    reading = threading.Thread(target=read)
    reading.start()
    taking.close()
    fetcher.may.release(100)
    reading.join(SOON_S)
    assert not reading.is_alive()
    assert outcome in (list(range(5)), ["it was closed while its records were read"])


def test_nothing_is_left_behind_when_it_is_closed(ahead):
    fetcher = Fetcher(*[LITTLE_BYTES] * 3)
    taking = ahead(fetcher)
    taking.take()
    taking.close()
    fetcher.may.release(100)
    assert fetcher.waiting == []
    with pytest.raises(UsageError, match="closed"):
        taking._threads.start(int)


@pytest.fixture
def threads_of_the_system(monkeypatch):
    """The number of threads that may still be started."""
    left, start = [0], threading.Thread.start

    def limited(thread):
        if left[0] == 0:
            raise RuntimeError("can't start new thread")
        left[0] -= 1
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    return left


def test_where_no_thread_can_be_started_all_is_decoded_where_it_is_used(ahead, threads_of_the_system):
    fetcher = Fetcher(*[LITTLE_BYTES] * 5)
    taking = ahead(fetcher)
    found = [(taken.fetch_offset, numbers(chunks)) for taken, chunks in iter(taking.take, None)]
    assert found == [(n, [0, 1, 2]) for n in range(5)]
    assert {thread for _, _, thread in fetcher.decoded} == {"MainThread"}


def test_a_thread_that_comes_later_leaves_alone_what_is_decoded_where_it_is_used(
    ahead, threads_of_the_system
):
    fetcher = Fetcher(*[LITTLE_BYTES] * (ITEMS + 2), chunks=2)
    taking = ahead(fetcher)
    taking.take()
    _, second = taking.take()  # for which, and for the third, no thread could be started
    next(second)
    _, third = taking.take()
    threads_of_the_system[0] = 1
    fetcher.waiting.append(item(ITEMS + 2))
    _, _ = taking.take()
    fetcher.let(2)  # of the last: the thread took up what was asked of it before, and left it
    assert {(n, thread) for n, _, thread in fetcher.decoded} == {(1, "MainThread"), (ITEMS + 2, "decode")}
    assert numbers([*second, *third]) == [1, 0, 1]


def test_an_item_that_is_forgotten_is_not_kept_for_a_thread_that_never_came(ahead, threads_of_the_system):
    fetcher = Fetcher(LITTLE_BYTES, LITTLE_BYTES)
    taking = ahead(fetcher)
    taking.take()
    left = weakref.ref(taking._following[0][1])
    taking.forget({("t", 0)})
    assert left() is None


class FewThreads:
    """Starts what is asked for at once, so many times; then no more."""

    def __init__(self, times):
        self.left = times

    def start(self, work):
        self.left -= 1
        if self.left >= 0:
            work()
        return self.left >= 0


def test_chunks_that_are_there_already_come_before_those_that_no_thread_decodes():
    for times in range(4):
        assert numbers(ChunksAhead(map(chunk, range(5)), FewThreads(times))) == list(range(5)), times


def test_an_error_comes_out_once_where_no_thread_decodes():
    fetcher = Fetcher()
    fetcher.error = CorruptRecordBatchError("t", 0, 5, None, "broken")
    chunks = ChunksAhead(fetcher.unpack(item(0)), FewThreads(0))
    assert numbers([next(chunks), next(chunks)]) == [0, 1]
    with pytest.raises(CorruptRecordBatchError, match="broken"):
        next(chunks)
    assert list(chunks) == []


def test_chunks_that_were_decoded_before_it_was_closed_come_before_the_error():
    threads = DecodeThreads()
    threads.close()

    class ClosedThen(FewThreads):
        def start(self, work):
            return super().start(work) or threads.start(work)

    chunks = ChunksAhead(map(chunk, range(5)), ClosedThen(1))
    found = []
    with pytest.raises(UsageError, match="closed"):
        found.extend(numbers([chunk])[0] for chunk in chunks)
    assert found == [0, 1]
    assert list(chunks) == []

"""A partition's window: where its watermark is, and what is done beyond it."""

import numpy as np
import pyarrow as pa

from kafka_actors.base.bisect import MAX_FAILED_CALLS
from kafka_actors.group.done_offsets import NOTHING_DONE, DoneOffsets
from kafka_actors.job.lanes import SliceDone
from kafka_actors.job.worker.machines.record_window import (
    ConcurrentCall,
    Hand,
    RecordWindow,
    WindowChunk,
)
from kafka_actors.types import TopicPartition

P0 = TopicPartition("t", 0)


def batch(offsets, keys=None):
    return pa.record_batch(
        {
            "key": pa.array([None] * len(offsets) if keys is None else keys, pa.binary()),
            "offset": pa.array(offsets, pa.int64()),
        }
    )


def window(start=0, told=NOTHING_DONE):
    return RecordWindow(P0, (1, 1), 0, Hand(), start, told)


def add(to, offsets, next_offset=None, epoch=1):
    chunk = WindowChunk(
        to, batch(offsets), offsets[-1] + 1 if next_offset is None else next_offset, epoch, keyed=False
    )
    return chunk, to.add(chunk)


def done(to, chunk, *rows):
    chunk.mark(rows)
    return to.advance()


def test_the_watermark_is_the_first_record_that_is_not_done():
    of = window()
    chunk, _ = add(of, [0, 1, 2, 3])
    done(of, chunk, 3, 1)
    assert of.watermark == 0
    done(of, chunk, 0)
    assert (of.watermark, of.leader_epoch) == (2, 1)
    assert of.in_flight == 2
    assert done(of, chunk, 2) == [chunk]
    assert (of.watermark, of.in_flight) == (4, 0)


def test_offsets_without_records_do_not_hold_it_up():
    of = window(10)
    chunk, _ = add(of, [12, 15], 30)
    assert of.advance() == []
    assert of.watermark == 10, (
        "offset 11 may be of a record that was compacted away: the start holds until 12 is done"
    )
    done(of, chunk, 0)
    assert of.watermark == 15
    done(of, chunk, 1)
    assert of.watermark == 30
    empty, _ = add(of, [], 40, epoch=2)
    assert of.advance() == [empty]
    assert (of.watermark, of.leader_epoch) == (40, 2)


def test_an_empty_chunk_waits_for_the_records_before_it():
    of = window()
    chunk, _ = add(of, [0, 1])
    empty, _ = add(of, [], 9)
    done(of, chunk, 1)
    assert of.watermark == 0
    assert done(of, chunk, 0) == [chunk, empty]
    assert of.watermark == 9


def test_what_is_done_beyond_the_watermark():
    of = window()
    first, _ = add(of, [0, 1, 2, 5], epoch=4)
    second, _ = add(of, [6, 7, 8], epoch=5)
    assert of.beyond() == NOTHING_DONE
    done(of, first, 0, 2, 3)
    assert of.beyond() == DoneOffsets([(2, 6)], 4)
    done(of, second, 0, 2)
    assert of.beyond() == DoneOffsets([(2, 7), (8, 9)], 5), (
        "one range over two chunks; the epoch of the newest"
    )
    done(of, first, 1)
    assert (of.watermark, of.beyond()) == (7, DoneOffsets([(8, 9)], 5))


def test_what_an_earlier_reader_had_done_is_admitted_as_done():
    of = window(10, DoneOffsets([(11, 13), (20, 30)], 4))
    chunk, void = add(of, [10, 11, 12, 13], epoch=4)
    assert not void
    assert chunk.undone() == [0, 3]
    assert of.beyond() == DoneOffsets([(11, 13), (20, 30)], 4), (
        "what isn't read yet is still told to the next"
    )
    done(of, chunk, 0)
    assert of.watermark == 13
    done(of, chunk, 3)
    later, _ = add(of, list(range(14, 31)), epoch=4)
    assert later.undone() == [0, 1, 2, 3, 4, 5, 16]


def test_records_that_took_the_place_of_others_are_not_done():
    """The log was cut at 12, and written on under epoch 5."""
    of = window(10, DoneOffsets([(11, 14), (20, 30)], 4))
    before, void = add(of, [10, 11], epoch=4)
    assert (before.undone(), void) == ([0], False)
    after, void = add(of, [12, 13], epoch=5)
    assert (after.undone(), void) == ([0, 1], True)
    assert of.beyond() == DoneOffsets([(11, 12)], 4)
    later, void = add(of, [20, 21], epoch=5)
    assert (later.undone(), void) == ([0, 1], False)


def test_the_record_that_holds_the_watermark():
    of = window()
    assert of.first_undone() is None
    chunk = WindowChunk(of, batch([4, 5], [b"a", b"b"]), 6, 1, keyed=True)
    of.add(chunk)
    assert of.first_undone() == (4, b"a")
    done(of, chunk, 0)
    assert of.first_undone() == (5, b"b")


def test_a_slice_waits_for_its_own_records_only_and_says_so_up_to_where_it_has_read():
    """Offsets 0 to 9 are read; 2, 5 and 7 are this slice's."""
    of = RecordWindow(P0, (1, 1), 0, Hand(), 0, dealt=(0, 2))
    chunk, _ = add(of, [2, 5, 7], 10)
    assert done(of, chunk, 1) == []
    assert of.watermark == 2
    assert of.beyond().ranges.tolist() == [[3, 7], [8, 10]]
    done(of, chunk, 0)
    assert of.watermark == 7
    assert of.beyond().ranges.tolist() == [[8, 10]]
    assert done(of, chunk, 2) == [chunk]
    assert (of.watermark, of.next_offset, bool(of.beyond())) == (10, 10, False)


def test_what_was_done_in_the_log_before_is_void_though_a_slice_has_no_record_of_the_log_of_now_yet():
    """Offsets 200 to 209 were done in epoch 6; the log was cut at 102, and what follows is of other slices at first."""
    of = RecordWindow(P0, (1, 1), 0, Hand(), 100, DoneOffsets([(200, 210)], 6), dealt=(0, 2))
    add(of, [100], 102, 6)
    assert add(of, [], 104, 7)[1]
    assert of.beyond().ranges.tolist() == [[101, 104]], "which is committed as done in epoch 7"
    records = list(range(200, 210))
    assert add(of, records, 210, 7)[0].undone() == list(range(10))


def test_what_is_known_of_former_slices_is_not_done_again():
    of = RecordWindow(
        P0, (1, 1), 0, Hand(), 0, slices=[SliceDone(1, 2, 6, 3, DoneOffsets([(19, 20)], 3).text(6))]
    )
    chunk = WindowChunk(of, batch([0, 3, 5, 7]), 8, 3, keyed=False, lanes=np.array([0, 1, 3, 1]))
    of.add(chunk)
    assert chunk.undone() == [0, 3]
    cut_since = WindowChunk(of, batch([4]), 9, 4, keyed=False, lanes=np.array([1]))
    of.add(cut_since)
    assert cut_since.undone() == [0]


def test_what_an_earlier_reader_had_done_is_over_where_reading_has_passed_it():
    """Also where there was no record left: else it would be committed again and again, and a drain would wait for that."""
    of = window(0, DoneOffsets([(2, 4), (6, 7)], 1))
    add(of, [], 5)
    of.advance()
    assert of.beyond().ranges.tolist() == [[6, 7]]


def test_what_is_known_of_former_slices_is_over_where_reading_has_passed_it():
    of = RecordWindow(P0, (1, 1), 0, Hand(), 0, slices=[SliceDone(0, 2, 4, 3), SliceDone(1, 2, 9, 3)])
    of.add(WindowChunk(of, batch([1, 3]), 6, 3, keyed=False, lanes=np.array([1, 0])))
    assert [known.done.part for known in of.slices] == [1]
    of.add(WindowChunk(of, batch([7]), 9, 3, keyed=False, lanes=np.array([1])))
    assert of.slices == []


def call_on(*keys, keyed=True):
    chunk = WindowChunk(window(), batch(list(range(len(keys))), list(keys)), len(keys), 1, keyed=keyed)
    return ConcurrentCall(chunk, list(range(len(keys))))


def test_a_call_is_split_by_keys_and_records_without_one_are_by_themselves():
    call = call_on(b"a", b"b", b"a", None, None, b"b")
    assert [part.rows for part in call.split()] == [[0, 1, 2, 5], [3, 4]]
    one, two = call.split()
    assert [part.rows for part in one.split()] == [[0, 2], [1, 5]]
    assert [part.rows for part in two.split()] == [[3], [4]]
    assert [part.rows for part in call_on(b"a", b"a", keyed=False).split()] == [[0], [1]]
    assert call_on(b"a", b"a").split() == []


def test_calls_of_which_many_have_failed_and_none_has_succeeded_are_split_no_further():
    parts, splits = [call_on(*(b"%d" % n for n in range(500)))], 0
    while parts and (halves := parts.pop(0).split()):
        parts += halves
        splits += 1
    assert splits == MAX_FAILED_CALLS - 1
    parts[0].parts.succeeded()
    assert len(parts[0].split()) == 2

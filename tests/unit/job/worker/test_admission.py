"""Admission of fetched records: as many as there is room for, while the rest stays where it is."""

import pyarrow as pa
import pytest
from fakes.in_flight import EPOCH, P0, P1, Flight, Reader
from fakes.retry_logs import SOURCE, Logs
from fakes.retry_logs import Reader as LogReader

from kafka_actors.job.messages import Grant
from kafka_actors.types import TopicPartition


def test_nothing_is_admitted_where_nothing_was_fetched():
    assert not Flight().calls.admit_some()


def test_records_of_a_grant_that_has_ended_are_left():
    flight = Flight()
    flight.reader.put(P0, 0, "ab", epoch=(0, 9))
    flight.admit()
    assert flight.take_all() == {}
    assert P0 not in flight.reader.position


def test_what_has_no_room_stays_and_is_admitted_when_there_is():
    flight = Flight(max_in_flight_records=2, concurrency=8)
    flight.reader.put(P0, 0, "abc", "d")
    flight.admit()
    calls = flight.take_all()
    assert sorted(calls) == [0, 1]
    assert flight.reader.paused == {P0}
    assert flight.reader.position[P0] == 2
    for call in calls.values():
        flight.calls.ended(call, None)
    flight.admit()
    assert P0 not in flight.reader.paused


def test_a_partition_that_was_taken_away_is_resumed_for_nobody():
    flight = Flight(max_in_flight_records=1)
    flight.reader.put(P0, 0, "ab")
    flight.admit()
    flight.order([Grant(P1, EPOCH)])
    flight.calls.forget([P0])
    flight.admit()
    assert flight.reader.paused == {P0}


def test_a_partition_that_is_taken_away_while_full_ones_are_looked_at_is_no_error():
    """The worker's loop drops it in another thread."""
    flight = Flight(max_in_flight_records=1)
    for partition in (P0, P1):
        flight.reader.put(partition, 0, "ab")
    flight.admit()
    assert flight.reader.paused == {P0, P1}
    roomy = flight.calls.in_flight.roomy

    def dropped_meanwhile(partition):
        flight.calls._admission.forget([P0, P1])
        return roomy(partition)

    flight.calls.in_flight.roomy = dropped_meanwhile
    flight.admit()


def test_records_without_room_come_again_where_a_call_ends_while_those_before_them_are_admitted():
    logs = Logs("abcdefgh")
    grants = [Grant(SOURCE, EPOCH, 0)]
    reader = LogReader(logs, 2)
    flight = Flight(ordering="unordered", max_in_flight_records=4, reader=reader, grants=grants)
    reader.assign({SOURCE: 0}, {SOURCE: None})
    flight.calls.admit_some()
    first, seen = flight.calls.take(), []
    decoded = flight.calls._admission._decoded
    reader.size = 6

    def slow(window, chunk):
        made = decoded(window, chunk)
        if not seen:  # a caller's thread ends its call meanwhile
            seen.extend(first.batch["offset"].to_pylist())
            flight.calls.ended(first, None)
        return made

    flight.calls._admission._decoded = slow
    for _ in range(20):
        flight.calls.admit_some()
        while (call := flight.calls.take()) is not None:
            seen += call.batch["offset"].to_pylist()
            flight.calls.ended(call, None)
    assert sorted(seen) == list(range(8))
    assert flight.processed(SOURCE) == 8


@pytest.mark.parametrize("dropped", [True, False])
def test_a_partition_that_is_granted_anew_waits_for_calls_of_the_grant_before(dropped):
    """They may be of the same keys: others of a partition that is shared are granted anew where one was reset, mostly to the same workers, which
    drop them first."""
    flight = Flight(ordering="key", grants=[Grant(P0, EPOCH, 0)])
    flight.reader.put(P0, 0, "aaaa")
    flight.admit()
    call = flight.calls.take()
    if dropped:
        flight.calls.forget(flight.order([]).drop)
    flight.order([Grant(P0, (1, 2), 0)])
    flight.reader.put(P0, 0, "aaaa", epoch=(1, 2))
    flight.admit()
    assert flight.calls.take() is None, "a record of the key is in hand"
    flight.calls.ended(call, None)
    flight.admit()
    assert flight.calls.take() is not None


class LargeRecords(Reader):
    """Hands out records of 100,000 bytes."""

    def batch(self, partition, first, keys):
        rows = super().batch(partition, first, keys)
        values = pa.array([b"v" * 100_000] * rows.num_rows, pa.binary())
        return rows.set_column(rows.schema.get_field_index("value"), "value", values)


def test_no_more_is_decoded_than_has_room_beside_what_other_partitions_have():
    """A record or two of each is let in: without one a partition would stand still."""
    partitions = [TopicPartition("t", number) for number in range(20)]
    grants = [Grant(partition, EPOCH, 0) for partition in partitions]
    flight = Flight(reader=LargeRecords(), grants=grants, worker_buffer_bytes=8 * 1024 * 1024)
    for partition in partitions:
        flight.reader.put(partition, 0, [f"k{number}" for number in range(20)])
    flight.admit()
    held = [window.size for window in flight.calls.in_flight.windows]
    assert len(held) == 20
    assert min(held) > 100_000
    assert sum(held) < 1.4 * 8 * 1024 * 1024


def test_what_was_taken_before_a_reset_begins_no_window_at_its_offset():
    """Nothing of it is decoded any more. A window that began there held the offset to commit above records that are in hand."""

    class Moved(Reader):
        def take(self):
            item = super().take()
            if item is not None and item.fetch_offset == 1000:
                flight.assignment.reset(P0, 0, b"n" * 16, cut=False)  # in the loop's thread
                self.taken[1].clear()
            return item

    flight = Flight(reader=Moved())
    flight.assignment.positioned(P0, 1000)
    flight.reader.put(P0, 1000, "a")
    flight.admit()
    flight.reader.put(P0, 0, "abc")
    flight.admit()
    calls = flight.take_all()
    flight.calls.ended(calls[2], None)
    (entry,) = flight.commit()
    assert entry.offset == 0, "offsets 0 and 1 are in hand"

"""What was fetched is admitted as far as there is room, and the rest stays where it is."""

from fakes.in_flight import EPOCH, P0, P1, Flight

from kafka_actors.job.messages import Grant


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

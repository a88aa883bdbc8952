"""`OpaqueAssignment`: an assignment whose bytes nobody here reads is owned as one thing."""

from __future__ import annotations

from kafka_actors.group.machines.embedded_protocol import AssignmentChange, OpaqueAssignment
from kafka_actors.group.machines.member_events import Generation


def synced(assignment: bytes = b"abc") -> OpaqueAssignment:
    made = OpaqueAssignment(lambda: [("v1", b"me")])
    made.on_joined(Generation(1, "m"), True, ())
    assert not made.owned(), "a join alone brings nothing"
    made.on_synced(Generation(1, "m"), assignment)
    return made


def test_protocols_are_those_of_the_caller_at_each_join() -> None:
    offered = [("v2", b"a"), ("v1", b"b")]
    made = OpaqueAssignment(lambda: list(offered))
    assert made.protocols() == offered
    offered.pop()
    assert made.protocols() == [("v2", b"a")]


def test_an_assignment_is_taken_as_it_came_and_owned_as_one_thing() -> None:
    made = OpaqueAssignment(list)
    change = made.on_synced(Generation(1, "m"), b"\x00any bytes\xff")
    assert made.assignment == b"\x00any bytes\xff"
    assert len(made.owned()) == 1
    assert change == AssignmentChange(added=made.owned())


def test_an_empty_assignment_is_one_all_the_same() -> None:
    assert synced(b"").owned()


def test_all_of_it_is_given_up_before_the_next_join() -> None:
    made = synced()
    everything = made.owned()
    assert made.before_join() == everything
    assert not made.owned()
    assert not made.before_join(), "it is given up once"
    made.released(everything)
    assert not made.lose(), "and nothing is left to lose"


def test_what_is_being_given_up_can_still_be_lost() -> None:
    made = synced()
    everything = made.release_all()
    assert made.lose() == everything
    assert not made.lose()


def test_what_is_owned_is_lost_at_once() -> None:
    made = synced()
    everything = made.owned()
    assert made.lose() == everything
    assert not made.owned()
    assert not made.release_all()

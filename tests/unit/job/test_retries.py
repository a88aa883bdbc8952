"""Deaths of workers in calls: what counts as another try of the same call, and which call is made next."""

import numpy as np
import pytest

from kafka_actors.job.machines.retries import MOST_KNOWN, CallDeaths, NextCall, SuspectCalls
from kafka_actors.job.messages import CallInHand, DeathsInCall
from kafka_actors.types import TopicPartition

P, Q = TopicPartition("orders", 3), TopicPartition("orders", 4)
RETRIES = 2


def times(deaths, *calls):
    return [died.times for died in deaths.count([CallInHand(*call) for call in calls], "exit code 3")]


def test_deaths_in_the_same_call_are_counted_and_those_in_others_are_not():
    deaths = CallDeaths(RETRIES)
    assert times(deaths, (P, 40, 59)) == [1]
    assert times(deaths, (P, 40, 79)) == [2], "the call begins with the same record"
    assert times(deaths, (Q, 40, 59)) == [1], "that is another partition"
    assert times(deaths, (P, 80, 99)) == [1], "it got past the first one"
    assert times(deaths) == []
    assert deaths.known == [
        DeathsInCall(P, 40, 79, 2, "exit code 3"),
        DeathsInCall(P, 80, 99, 1, "exit code 3"),
        DeathsInCall(Q, 40, 59, 1, "exit code 3"),
    ]
    deaths.forget([DeathsInCall(P, 80, 99, 1, "exit code 3")])
    assert times(deaths, (P, 80, 99)) == [1]


def test_calls_of_one_partition_in_which_workers_die_in_turn_are_counted_each_by_itself():
    """Workers that share a partition, each with a record that ends its process, make such deaths."""
    deaths = CallDeaths(RETRIES)
    assert [times(deaths, (P, at, at)) for at in (40, 41) * 3] == [[1], [1], [2], [2], [3], [3]]
    assert times(deaths, (P, 40, 40), (P, 7, 7), (P, 90, 90)) == [3, 0, 0], "one among several counts no more"
    assert sorted((died.first, died.times) for died in deaths.known) == [(7, 0), (40, 3), (41, 3), (90, 0)]


def test_of_one_partition_only_the_last_deaths_are_known():
    deaths = CallDeaths(RETRIES)
    for at in range(2 * MOST_KNOWN):
        times(deaths, (P, at, at))
    assert [died.first for died in deaths.known] == list(range(MOST_KNOWN, 2 * MOST_KNOWN))


def test_a_death_that_was_counted_after_the_coordinator_looked_stays_counted():
    deaths = CallDeaths(RETRIES)
    passed = deaths.count([CallInHand(P, 40, 59)], "exit code 3")
    assert times(deaths, (P, 80, 99)) == [1]
    deaths.forget(passed)
    assert times(deaths, (P, 80, 99)) == [2]


def test_what_another_thread_forgets_meanwhile_is_no_error():
    suspects = SuspectCalls(RETRIES, takes_out=True)
    suspects.suspect(DeathsInCall(P, 40, 59, 1, "SIGSEGV"))

    class Offsets(list):
        def __getitem__(self, at):
            suspects.forget([P])
            return super().__getitem__(at)

    assert suspects.next(P, Offsets([60, 61])) == NextCall(2)


def test_of_several_calls_in_hand_none_is_counted_before_it_was_made_alone():
    deaths = CallDeaths(RETRIES)
    assert times(deaths, (P, 0, 9), (Q, 0, 9)) == [0, 0]
    assert deaths.describe(deaths.known) == "with 2 calls in hand, each of which is made alone from now on"
    assert times(deaths, (Q, 0, 9)) == [1]
    assert deaths.describe(deaths.known[1:]) == "in the call with orders-4 offsets 0 to 9, try 1 of 3"
    assert deaths.describe([]) == ""
    suspects = SuspectCalls(RETRIES, takes_out=False)
    for died in deaths.known:
        suspects.suspect(died)
    assert suspects.next(P, np.arange(0, 10)) == NextCall(10, alone=True)


def test_the_parts_of_what_was_tried_often_enough_are_as_suspect():
    deaths = CallDeaths(RETRIES)
    assert [times(deaths, (P, 0, 9))[0] for _ in range(3)] == [1, 2, 3]
    assert times(deaths, (P, 5, 7)) == [4]
    assert times(deaths, (P, 8, 9)) == [1], "which was not among them"


def test_the_same_records_make_a_call_again():
    suspects = SuspectCalls(RETRIES, takes_out=True)
    suspects.suspect(DeathsInCall(P, 40, 59, 1, "SIGSEGV"))
    assert suspects.next(Q, np.arange(0, 100)) == NextCall(100)
    assert suspects.next(P, np.arange(0, 100)) == NextCall(40), "what lies before them comes first"
    assert suspects.next(P, np.arange(40, 100)) == NextCall(20, alone=True)
    assert suspects.next(P, np.arange(60, 100)) == NextCall(40)
    assert suspects.next(P, np.arange(40, 60)) == NextCall(20), (
        "they were got past, and come again after a reset"
    )


@pytest.mark.parametrize("retries", [0, 1])
def test_one_death_alone_gives_nothing_up(retries):
    suspects = SuspectCalls(retries, takes_out=False)
    suspects.suspect(DeathsInCall(P, 0, 9, 1, "SIGKILL"))
    assert suspects.next(P, np.arange(10)) == NextCall(10, alone=True)
    suspects.suspect(died := DeathsInCall(P, 0, 9, 2, "SIGKILL"))
    assert suspects.next(P, np.arange(20)) == NextCall(10, too_many_deaths=died)


@pytest.mark.parametrize("bad", [{17}, {0}, {99}, {3, 4, 60}, set()])
def test_records_at_fault_are_found_in_halves_and_nothing_else_is_given_up(bad):
    """As it goes on over many processes: each that is given one of them dies."""
    deaths, position, given_up, died_in = CallDeaths(RETRIES), 0, [], 0
    whole_kills = True  # as where memory doesn't suffice for the batch
    while position < 100:
        suspects = SuspectCalls(RETRIES, takes_out=True)
        for died in deaths.known:
            suspects.suspect(died)
        while position < 100:
            offsets = np.arange(position, 100)
            call = suspects.next(P, offsets)
            handed = offsets[: call.rows].tolist()
            if call.too_many_deaths is not None:
                given_up += handed
            elif bad & set(handed) or (whole_kills and len(handed) == 100):
                died_in += 1
                assert died_in < 60
                deaths.count([CallInHand(P, handed[0], handed[-1])], "exit code 3")
                break
            position = handed[-1] + 1
    assert given_up == sorted(bad)

"""Actors and nodes: steps of an actor, its deadlines, and which nodes are silent."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_actors.job.supervisor.machines.actor_state import (
    LEGAL,
    ActorKey,
    ActorRecord,
    ActorState,
    AnsweringNode,
    NodeHealth,
    SilentNode,
)

TIMEOUT = 3.0
WORKER, OTHER = ActorKey("worker", 0), ActorKey("worker", 1)
CONNECTION = ActorKey("connection", 1, "n1")


def record(node: str = "n1", state: ActorState = ActorState.READY, **fields: Any) -> ActorRecord:
    return ActorRecord(1, 0.0, node=node, state=state, **fields)


def test_roles_are_named_by_kind_and_number_where_there_are_several() -> None:
    names = [str(ActorKey("metadata")), str(ActorKey("coordinator")), str(WORKER), str(CONNECTION)]
    assert names == ["metadata", "coordinator", "worker-0", "connection-1"]


@pytest.mark.parametrize("before", ActorState)
@pytest.mark.parametrize("after", ActorState)
def test_an_actor_takes_only_steps_of_the_table_and_may_stay(before: ActorState, after: ActorState) -> None:
    actor = record(state=before)
    if after is before or after in LEGAL[before]:
        actor.become(after)
        assert actor.state is after
    else:
        with pytest.raises(RuntimeError, match=f"is {before.value} can't become {after.value}"):
            actor.become(after)


def test_a_ping_is_overdue_from_the_moment_on_at_which_its_time_is_over() -> None:
    assert not record().overdue(99.0, TIMEOUT), "no ping is out"
    actor = record(ping_sent_at=10.0)
    assert [actor.overdue(now, TIMEOUT) for now in (12.9, 13.0)] == [False, True]


def test_sleep_of_the_supervisor_counts_for_no_deadline() -> None:
    starting = record(state=ActorState.PLACED, placed_at=2.0, ping_sent_at=5.0, last_pong=4.0, busy_since=3.0)
    starting.sleep(10.0)
    assert (starting.started_at, starting.placed_at) == (10.0, 12.0)
    assert (starting.ping_sent_at, starting.last_pong, starting.busy_since) == (15.0, 14.0, None)
    ready = record(placed_at=2.0, ready_at=3.0)
    ready.sleep(10.0)
    assert (ready.started_at, ready.placed_at) == (0.0, 2.0), "its start is over"


def test_deadlines_begin_anew_after_a_node_answers_again() -> None:
    actor = record(state=ActorState.PLACED, placed_at=2.0, ping_sent_at=5.0, last_pong=4.0, busy_since=3.0)
    actor.heard_of_again(50.0)
    assert (actor.started_at, actor.placed_at, actor.ping_sent_at, actor.last_pong) == (
        50.0,
        50.0,
        50.0,
        50.0,
    )
    assert actor.busy_since is None
    fresh = record(state=ActorState.STARTING)
    fresh.heard_of_again(50.0)
    assert (fresh.placed_at, fresh.ping_sent_at, fresh.last_pong) == (None, None, None)


# ---------------------------------------------------------------- nodes


def test_a_node_is_silent_when_all_that_ever_answered_there_are_overdue_and_is_reported_once() -> None:
    nodes = NodeHealth("here")
    actual = {
        WORKER: record(ping_sent_at=10.0),
        CONNECTION: record(ping_sent_at=11.0),
        OTHER: record(state=ActorState.STARTING, ping_sent_at=0.0),
    }
    assert nodes.look(actual, 13.5, TIMEOUT) == []
    assert nodes.look(actual, 14.0, TIMEOUT) == [SilentNode("n1", TIMEOUT)]
    assert nodes.silent == {"n1"}
    assert nodes.look(actual, 15.0, TIMEOUT) == []


def test_one_actor_that_answers_again_speaks_for_its_node() -> None:
    nodes = NodeHealth("here")
    actual = {WORKER: record(ping_sent_at=10.0), CONNECTION: record(ping_sent_at=10.0)}
    nodes.look(actual, 20.0, TIMEOUT)
    actual[CONNECTION].ping_sent_at = None
    assert nodes.look(actual, 21.0, TIMEOUT) == [AnsweringNode("n1")]
    assert nodes.silent == frozenset()
    assert actual[WORKER].ping_sent_at == 21.0, "the others get their time anew"


def test_a_node_without_actors_is_neither_silent_nor_does_it_answer() -> None:
    nodes = NodeHealth("here")
    nodes.look({WORKER: record(ping_sent_at=0.0)}, 20.0, TIMEOUT)
    assert nodes.look({}, 21.0, TIMEOUT) == []
    assert nodes.silent == frozenset()


@pytest.mark.parametrize("node", ["here", ""])
def test_the_supervisors_own_node_and_one_that_isnt_known_are_never_silent(node: str) -> None:
    nodes = NodeHealth("here")
    assert nodes.look({WORKER: record(node, ping_sent_at=0.0)}, 99.0, TIMEOUT) == []


def test_a_witness_answers_on_the_same_node_and_is_rather_no_worker() -> None:
    nodes = NodeHealth("here")
    actual = {
        WORKER: record(last_pong=9.0),
        OTHER: record(last_pong=8.0),
        CONNECTION: record(last_pong=1.0),
        ActorKey("spare", 0, "n2"): record("n2", last_pong=9.5),
    }

    def witness(but: ActorKey | None = None) -> ActorKey | None:
        return nodes.neighbour("n1", actual, 10.0, TIMEOUT, but)

    assert witness() == CONNECTION
    actual[CONNECTION].ping_sent_at = 5.0
    assert witness() == WORKER, "among workers, the one heard last"
    assert witness(but=WORKER) == OTHER
    actual[OTHER].state = ActorState.STARTING
    assert witness(but=WORKER) is None
    assert nodes.neighbour("here", {WORKER: record("here")}, 10.0, TIMEOUT, None) is None

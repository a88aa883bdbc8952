"""Desired against actual, step by step."""

import itertools

import pytest

from kafka_actors.job.supervisor.machines.supervision import (
    ActorKey,
    ActorRecord,
    ActorState,
    DismissActor,
    FailJob,
    KillActor,
    PingActor,
    ProbeProcess,
    StartActor,
    Supervision,
    SupervisionTimings,
)

METADATA, COORDINATOR = ActorKey("metadata"), ActorKey("coordinator")
W0, W1 = ActorKey("worker", 0), ActorKey("worker", 1)
TIMINGS = SupervisionTimings(max_poll_interval=30.0)


def polled(machine, now):
    """The actions of one turn."""
    return list(machine.poll(now).actions)


def stepped(machine, until, since=1.0):
    """What it says then, asked each second as the supervisor does: after a longer silence it was itself stopped."""
    while since < until:
        polled(machine, since)
        since += 1
    return polled(machine, until)


def running(*keys, now=0.0):
    """A supervision whose actors are all ready at `now`, with a ping behind them."""
    machine = Supervision(TIMINGS)
    machine.want(keys)
    polled(machine, now)
    for key in keys:
        machine.ponged(key, 1, now)
    return machine


def test_what_is_wanted_is_started_and_pinged_at_once():
    machine = Supervision(TIMINGS)
    machine.want([METADATA, W0])
    assert polled(machine, 0.0) == [
        StartActor(METADATA, 1),
        StartActor(W0, 1),
        PingActor(METADATA, 1),
        PingActor(W0, 1),
    ]
    assert polled(machine, 0.0) == []


def test_an_answer_from_before_an_actor_was_ready_may_come_behind_that_it_is():
    """Two answers of one actor may overtake each other: its `begin` has returned, and then comes an older pong."""
    machine = running(METADATA, W0)
    machine.ponged(W0, 1, 1.0, ready=False)
    assert machine.actual[W0].state is ActorState.READY
    assert machine.actual[W0].last_pong == 1.0


def test_a_death_is_answered_by_the_next_incarnation_at_once():
    machine = running(W0, now=0.0)
    assert machine.died(W0, 1, 20.0)
    assert polled(machine, 20.0)[0] == StartActor(W0, 2)
    assert machine.restarts == {W0: 1}


def test_a_death_notice_of_an_old_incarnation_changes_nothing():
    machine = running(W0)
    machine.died(W0, 1, 20.0)
    polled(machine, 20.0)
    assert not machine.died(W0, 1, 20.1)
    machine.ponged(W0, 1, 20.2)
    assert machine.actual[W0].state is ActorState.STARTING


def test_who_dies_young_again_and_again_is_waited_for():
    machine = running(W0, now=0.0)
    starts = []
    now = 0.0
    for _ in range(40):
        for key, actual in list(machine.actual.items()):
            machine.died(key, actual.incarnation, now)
        starts += [now for action in polled(machine, now) if isinstance(action, StartActor)]
        now += 0.25
    gaps = [b - a for a, b in itertools.pairwise(starts)]
    assert gaps[0] <= 0.75
    assert gaps == sorted(gaps)
    assert gaps[-1] >= 2.0


def test_a_library_actor_that_is_stopped_is_ended_and_replaced():
    machine = running(COORDINATOR, now=0.0)
    assert polled(machine, 1.0) == [PingActor(COORDINATOR, 1)]
    assert polled(machine, 3.9) == []
    assert polled(machine, 4.0) == [ProbeProcess(COORDINATOR, 1)]
    machine.probed(COORDINATOR, 1, running=False, now=4.1)
    stopped, replaced = polled(machine, 4.1)[:2]
    assert stopped == KillActor(COORDINATOR, 1, "its process is stopped or gone")
    assert replaced == StartActor(COORDINATOR, 2)


def test_a_library_actor_that_runs_but_does_not_answer_has_a_little_longer():
    machine = running(COORDINATOR, now=0.0)
    polled(machine, 1.0)
    now, ended = 4.0, None
    while ended is None:
        for action in polled(machine, now):
            if isinstance(action, ProbeProcess):
                machine.probed(COORDINATOR, 1, running=True, now=now)
            elif isinstance(action, KillActor):
                ended = now
        now += 0.5
    assert ended == 13.0


def test_a_worker_that_answers_no_ping_is_only_probed():
    machine = running(W0, now=0.0)
    polled(machine, 1.0)
    assert polled(machine, 4.0) == [ProbeProcess(W0, 1)]
    machine.probed(W0, 1, running=True, now=4.1)
    assert polled(machine, 4.5) == []
    assert polled(machine, 5.0) == [ProbeProcess(W0, 1)]
    machine.ponged(W0, 1, 5.5)
    assert machine.actual[W0].state is ActorState.READY


def test_a_worker_whose_process_is_stopped_is_ended():
    machine = running(W0, now=0.0)
    polled(machine, 1.0)
    polled(machine, 4.0)
    machine.probed(W0, 1, running=False, now=4.1)
    assert polled(machine, 4.1)[0] == KillActor(W0, 1, "its process is stopped or gone")


def test_a_worker_in_native_code_has_until_the_maximal_poll_interval():
    machine = running(W0, now=0.0)
    polled(machine, 1.0)
    machine.ponged(W0, 1, 1.0, busy_s=1.0)
    now = 2.0
    killed = None
    while killed is None and now < 100:
        for action in polled(machine, now):
            if isinstance(action, ProbeProcess):
                machine.probed(W0, 1, running=True, now=now)
            if isinstance(action, KillActor):
                killed = now
        now += 0.5
    assert killed == 30.0


def test_a_worker_that_answers_but_hangs_in_one_call_is_ended_too():
    machine = running(W0, now=0.0)
    kills = []
    for second in range(1, 40):
        for action in polled(machine, float(second)):
            if isinstance(action, PingActor):
                machine.ponged(W0, 1, float(second), busy_s=float(second))
            if isinstance(action, KillActor):
                kills.append(second)
    assert kills == [30]


def test_the_constructor_of_process_is_no_call_of_it():
    machine = Supervision(SupervisionTimings(max_poll_interval=1.0, start_timeout=60.0))
    machine.want([W0])
    polled(machine, 0.0)
    machine.ponged(W0, 1, 0.5, ready=False)
    for second in range(1, 50):
        for action in polled(machine, float(second)):
            assert not isinstance(action, (KillActor, FailJob))
            if isinstance(action, PingActor):
                machine.ponged(W0, 1, float(second), ready=False)


@pytest.mark.parametrize("placed", [False, True])
def test_who_does_not_come_up_in_time_fails_the_job(placed):
    machine = Supervision(SupervisionTimings(start_timeout=10.0))
    machine.want([W1])
    polled(machine, 0.0)
    if placed:
        machine.ponged(W1, 1, 1.0, ready=False)
        assert FailJob(W1, True, 10.0) not in stepped(machine, 10.5)
    assert stepped(machine, 11.0)[0] == FailJob(W1, placed, 10.0)


def test_a_role_that_is_wanted_again_later_was_not_restarted():
    machine = running(W0, W1)
    machine.want([W0])
    polled(machine, 0.5)
    machine.want([W0, W1])
    assert StartActor(W1, 2) in polled(machine, 1.0)
    assert machine.restarts == {}
    machine.died(W1, 2, 60.0)
    assert StartActor(W1, 3) in polled(machine, 60.0)
    assert machine.restarts == {W1: 1}


def test_a_role_that_may_wait_for_a_place_waits_and_then_has_its_time_to_come_up():
    machine = Supervision(SupervisionTimings(start_timeout=10.0))
    machine.want([W1], started=True)
    for second in range(600):
        assert not any(isinstance(action, FailJob) for action in polled(machine, float(second)))
    machine.ponged(W1, 1, 600.0, ready=False)
    assert not any(isinstance(action, FailJob) for action in stepped(machine, 609.0, since=600.0))
    assert polled(machine, 610.0)[0] == FailJob(W1, True, 10.0)


def test_a_worker_without_a_place_is_looked_at_once_in_a_while_and_not_all_the_time():
    """Its first ping waits for an answer for as long as it takes: a time in the past would have the supervisor look again at once."""
    machine = Supervision(TIMINGS)
    machine.want([W0], started=True)
    for second in range(60):
        assert machine.poll(float(second)).next_wake >= second + 0.5


def test_what_is_no_longer_wanted_is_ended_without_a_replacement():
    machine = running(W0, W1)
    machine.want([W0])
    assert DismissActor(W1, 1) in polled(machine, 0.5)
    assert W1 not in machine.actual
    assert machine.restarts == {}


def test_an_illegal_transition_raises_and_changes_nothing():
    actual = ActorRecord(1, started_at=0.0)
    with pytest.raises(RuntimeError, match="starting can't become suspect"):
        actual.become(ActorState.SUSPECT)
    assert actual.state is ActorState.STARTING


def test_a_supervisor_that_was_stopped_itself_holds_no_silence_against_anybody():
    machine = running(METADATA, W0, now=0.0)
    polled(machine, 1.0)
    assert polled(machine, 21.0) == [], (
        "pings were under way for 20 s, and nobody was there to hear the answers"
    )
    assert not [a for a in polled(machine, 22.0) if isinstance(a, (KillActor, ProbeProcess))]
    actions = [a for second in range(23, 26) for a in polled(machine, float(second))]
    assert ProbeProcess(METADATA, 1) in actions
    assert ProbeProcess(W0, 1) in actions


def test_a_call_that_went_on_while_the_supervisor_was_stopped_counts():
    machine = running(W0, now=0.0)
    machine.ponged(W0, 1, 1.0, busy_s=0.5)
    assert polled(machine, 40.0) == []
    assert polled(machine, 42.0) == [PingActor(W0, 1)]
    machine.ponged(W0, 1, 42.1, busy_s=41.6)
    assert polled(machine, 42.2)[0] == KillActor(
        W0, 1, "a call of process lasts for more than 30 s", stuck=True
    )


def test_a_worker_that_made_short_calls_while_the_supervisor_was_stopped_goes_on():
    """It was in one of them when it was last heard of."""
    machine = running(W0, now=0.0)
    machine.ponged(W0, 1, 1.0, busy_s=0.5)
    assert polled(machine, 40.0) == []
    assert polled(machine, 42.0) == [PingActor(W0, 1)]
    machine.ponged(W0, 1, 42.1, busy_s=0.1)
    assert not [a for a in polled(machine, 42.2) if isinstance(a, KillActor)]


@pytest.mark.parametrize("placed", [False, True])
def test_the_time_to_start_stands_while_the_supervisor_is_stopped(placed):
    machine = Supervision(TIMINGS)
    machine.want([W0])
    polled(machine, 0.0)
    if placed:
        machine.ponged(W0, 1, 1.0, ready=False)
    polled(machine, 2.0)
    assert not [a for a in polled(machine, 90.0) if isinstance(a, FailJob)]
    ends = [
        second for second in range(91, 160) for a in polled(machine, float(second)) if isinstance(a, FailJob)
    ]
    assert 145 <= ends[0] <= 152


def test_a_worker_that_was_up_before_the_topics_were_known_has_its_time_from_when_it_begins():
    machine = Supervision(TIMINGS)
    machine.want([W0])
    polled(machine, 0.0)
    machine.ponged(W0, 1, 1.0, ready=False)
    stepped(machine, 50.0)
    machine.begins(W0, 1, 50.0)
    machine.begins(W0, 2, 99.0)  # another incarnation's
    assert not [a for a in stepped(machine, 109.0, since=50.0) if isinstance(a, FailJob)]
    assert [a for a in polled(machine, 110.0) if isinstance(a, FailJob)] == [FailJob(W0, True, 60.0)]


def test_the_first_spare_waits_until_the_others_have_come_up():
    """Its process would take from theirs, and from the first records."""
    spare = ActorKey("spare", 0, "node")
    machine = Supervision(TIMINGS)
    machine.want([W0, spare])
    assert [a for a in polled(machine, 1.0) if isinstance(a, StartActor)] == [StartActor(W0, 1)]
    machine.ponged(W0, 1, 1.5)
    ready = machine.poll(2.5)
    assert [a for a in ready.actions if isinstance(a, StartActor)] == []
    assert ready.next_wake <= 3.0
    assert [a for a in polled(machine, 3.0) if isinstance(a, StartActor)] == [StartActor(spare, 1)]


def test_a_spare_that_takes_over_is_replaced_a_little_later_and_counts_as_no_restart():
    spare = ActorKey("spare", 0, "node")
    machine = Supervision(TIMINGS)
    machine.want([spare])
    polled(machine, 0.0)
    polled(machine, 2.0)
    machine.ponged(spare, 1, 2.0)
    machine.took_over(spare, 10.0)
    assert polled(machine, 10.0) == []
    assert polled(machine, 12.0)[0] == StartActor(spare, 2)
    assert machine.restarts == {}
    assert not machine.died(spare, 1, 12.0), "the process that took over is the other role's now"


def test_a_constructor_that_ends_its_process_again_and_again_fails_the_job():
    machine = Supervision(TIMINGS)
    machine.want([W0])
    fails, now = [], 0.0
    while not fails and now < 60:
        for action in polled(machine, now):
            if isinstance(action, StartActor):
                machine.ponged(W0, action.incarnation, now, ready=False)
                machine.died(W0, action.incarnation, now + 0.1)
            if isinstance(action, FailJob):
                fails.append(action)
        now += 0.25
    assert fails == [FailJob(W0, True, 0.0, deaths=5)]


def test_deaths_of_workers_that_were_ready_never_fail_the_job():
    machine = Supervision(TIMINGS)
    machine.want([W0])
    for second in range(100):
        for action in polled(machine, float(second)):
            assert not isinstance(action, FailJob)
            if isinstance(action, StartActor):
                machine.ponged(W0, action.incarnation, second + 0.1)
                machine.died(W0, action.incarnation, second + 0.2)


def test_a_probe_of_a_former_incarnation_ends_nobody():
    machine = running(COORDINATOR, now=0.0)
    assert machine.died(COORDINATOR, 1, 1.0)
    assert StartActor(COORDINATOR, 2) in polled(machine, 1.0)
    machine.probed(COORDINATOR, 1, running=False, now=1.1)
    assert not any(isinstance(action, KillActor) for action in polled(machine, 1.1))

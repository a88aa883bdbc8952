"""Actors on nodes that are not the supervisor's: who says what of whose process, and a node on which all are silent."""

from kafka_actors.job.supervisor.machines.supervision import (
    ActorKey,
    AnsweringNode,
    KillActor,
    PingActor,
    ProbeProcess,
    SilentNode,
    StartActor,
    Supervision,
    SupervisionTimings,
)

TIMINGS = SupervisionTimings(max_poll_interval=30.0)
W0, W1, ELSEWHERE = ActorKey("worker", 0), ActorKey("worker", 1), ActorKey("worker", 2)
LINK, SPARE = ActorKey("connection", 1, "far"), ActorKey("spare", 0, "far")


def polled(machine, now):
    """The actions of one turn."""
    return list(machine.poll(now).actions)


def placed(*keys, now=0.0, node="far"):
    """A supervision at node `here` whose actors are ready at `now`: those with a node of their own there, ELSEWHERE on
    another, the rest on `node`."""
    machine = Supervision(TIMINGS, own_node="here")
    machine.want(keys, started=True)
    polled(machine, now)
    polled(machine, now + TIMINGS.spare_after)
    for key in keys:
        machine.placed(key, 1, key.node or ("other" if key == ELSEWHERE else node), now)
        machine.ponged(key, 1, now)
    return machine


def run(machine, since, until, answering, each=0.5):
    """Steps from one moment to the other; those of `answering` answer each ping. Returns (when, action)."""
    found = []
    now = since
    while now <= until:
        for action in polled(machine, now):
            found.append((now, action))
            if isinstance(action, PingActor) and action.key in answering:
                machine.ponged(action.key, action.incarnation, now)
        now += each
    return found


def kinds(found, *wanted):
    return [action for _, action in found if isinstance(action, wanted)]


def test_a_silent_worker_on_another_node_is_looked_at_by_an_actor_there_that_answers():
    machine = placed(W0, LINK)
    found = run(machine, 1.0, 20.0, answering={LINK})
    probes = kinds(found, ProbeProcess)
    assert probes
    assert set(probes) == {ProbeProcess(W0, 1, LINK)}
    assert not kinds(found, KillActor, SilentNode), "it runs, as far as anybody knows"
    machine.probed(W0, 1, running=False, now=20.0)
    assert polled(machine, 20.0)[0] == KillActor(W0, 1, "its process is stopped or gone")


def test_a_connection_actor_is_asked_rather_than_a_worker_which_may_be_in_a_call():
    machine = placed(W0, W1, LINK)
    assert kinds(run(machine, 1.0, 6.0, answering={W1, LINK}), ProbeProcess)[0] == ProbeProcess(W0, 1, LINK)
    machine = placed(W0, W1, LINK)
    run(machine, 1.0, 6.0, answering={W1})
    assert ProbeProcess(LINK, 1, W1) in kinds(run(machine, 6.5, 7.5, answering={W1}), ProbeProcess)


def test_on_its_own_node_the_supervisor_looks_itself():
    machine = placed(W0, node="here")
    assert kinds(run(machine, 1.0, 5.0, answering=()), ProbeProcess)[0] == ProbeProcess(W0, 1, None)


def test_where_all_actors_of_a_node_are_silent_nobody_is_ended_and_the_node_is_said_to_be_silent_once():
    machine = placed(W0, W1, LINK, SPARE, ELSEWHERE)
    found = run(machine, 1.0, 75.0, answering={ELSEWHERE})
    silent = [(now, action) for now, action in found if isinstance(action, SilentNode)]
    assert len(silent) == 1
    assert silent[0][1] == SilentNode("far", 3.0)
    assert silent[0][0] <= 1.0 + TIMINGS.ping_interval + TIMINGS.ping_timeout
    assert not kinds(found, KillActor, StartActor)
    assert machine.silent == {"far"}
    assert machine.poll(75.0).next_wake > 75.0, "it isn't stepped without a pause meanwhile"


def test_a_node_that_answers_again_has_its_actors_judged_anew():
    machine = placed(W0, LINK)
    machine.ponged(W0, 1, 0.5, busy_s=0.1)
    run(machine, 1.0, 75.0, answering=())
    machine.ponged(LINK, 1, 75.0)
    found = run(machine, 75.0, 75.5, answering={LINK})
    assert kinds(found, AnsweringNode) == [AnsweringNode("far")]
    assert not kinds(found, KillActor), "the worker has not had the time to answer"
    assert machine.silent == set()
    later = run(machine, 76.0, 80.0, answering={LINK})
    assert ProbeProcess(W0, 1, LINK) in kinds(later, ProbeProcess)
    assert not kinds(later, KillActor)


def test_a_node_whose_actors_are_all_dead_is_not_said_to_answer():
    machine = placed(W0, LINK)
    run(machine, 1.0, 20.0, answering=())
    machine.want([], started=True)
    machine.died(W0, 1, 20.0)
    machine.died(LINK, 1, 20.0)
    assert polled(machine, 20.5) == []
    assert machine.silent == set()


def test_nothing_is_started_on_a_silent_node():
    machine = placed(W0, LINK)
    run(machine, 1.0, 20.0, answering=())
    new = ActorKey("connection", 2, "far")
    machine.want([W0, LINK, new], started=True)
    assert not kinds(run(machine, 20.5, 30.0, answering=()), StartActor)
    machine.ponged(W0, 1, 30.0)
    assert StartActor(new, 1) in kinds(run(machine, 30.5, 31.0, answering={W0}), StartActor)


def test_an_actor_that_has_never_answered_says_nothing_about_its_node():
    machine = placed(W0, LINK)
    new = ActorKey("connection", 2, "far")
    machine.want([W0, LINK, new], started=True)
    polled(machine, 0.9)
    run(machine, 1.0, 20.0, answering=())
    assert machine.silent == {"far"}


# ------------------------------------------------------------ one lost call


def test_a_ping_that_failed_is_repeated_and_counts_as_no_answer():
    machine = placed(W0, node="here")
    assert polled(machine, 1.0) == [PingActor(W0, 1)]
    machine.ping_failed(W0, 1, 1.1)
    ready = machine.poll(1.5)
    assert ready.actions == ()
    assert ready.next_wake <= 2.1
    assert polled(machine, 2.1) == [PingActor(W0, 1)]
    machine.ponged(W0, 1, 2.2)
    assert polled(machine, 2.5) == []


def test_who_answers_no_ping_of_many_is_silent_from_the_first_on():
    machine = placed(W0, node="here")
    polled(machine, 1.0)
    pings = 0
    for tenth in range(11, 60):
        for action in polled(machine, tenth / 10):
            if isinstance(action, PingActor):
                pings += 1
                machine.ping_failed(W0, 1, tenth / 10)
            elif isinstance(action, ProbeProcess):
                assert tenth / 10 == 4.0
                assert pings >= 1
                return
        if tenth == 11:
            machine.ping_failed(W0, 1, 1.1)
    raise AssertionError("never looked at")


def test_the_reason_of_an_end_is_silence_where_no_call_of_process_was_under_way():
    machine = placed(W0, LINK)
    ends = kinds(run(machine, 1.0, 40.0, answering={LINK}), KillActor)
    assert ends == [
        KillActor(W0, 1, "it has not answered for more than 30 s, though its process runs", stuck=True)
    ]
    machine = placed(W0, LINK)
    machine.ponged(W0, 1, 0.5, busy_s=0.1)
    ends = kinds(run(machine, 1.0, 40.0, answering={LINK}), KillActor)
    assert ends == [KillActor(W0, 1, "a call of process lasts for more than 30 s", stuck=True)]


# ------------------------------------------------------------ a job that runs


def test_a_running_job_waits_for_a_place_of_any_worker_for_as_long_as_it_takes():
    machine = placed(W0, W1)
    machine.died(W1, 1, 10.0)
    found = run(machine, 10.0, 600.0, answering={W0}, each=1.0)
    assert kinds(found, StartActor) == [StartActor(W1, 2)]
    assert {type(action) for _, action in found} == {StartActor, PingActor}


def test_a_running_job_starts_a_library_actor_anew_that_does_not_come_up():
    machine = placed(W0, LINK)
    machine.died(LINK, 1, 10.0)
    found = run(machine, 10.0, 10.0 + TIMINGS.start_timeout + 2, answering={W0}, each=1.0)
    assert KillActor(LINK, 2, "it has not come up within 60 s") in kinds(found, KillActor)
    assert StartActor(LINK, 3) in kinds(found, StartActor)

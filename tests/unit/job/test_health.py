"""Liveness and readiness: the verdict, and the line of its reason."""

import msgspec
import pytest

from kafka_actors.job.machines.health import LOOKS_S, UNANSWERED_S, LastSeen, health

NOW = 1_000.0
WELL = LastSeen(
    looked_at=NOW - 0.5,
    state="running",
    coordinator=True,
    answered_at=NOW - 0.2,
    member="stable",
    heartbeat_age_s=1.0,
    session_timeout_s=45.0,
    workers_ready=2,
)


def verdict(now=NOW, **changed):
    return health(msgspec.structs.replace(WELL, **changed), now)


def test_a_job_that_works_is_live_and_ready():
    assert verdict() == msgspec.structs.replace(verdict(), live=True, ready=True, reason="")


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"state": "starting"}, "the job is starting"),
        ({"state": "stopping"}, "the job is stopping"),
        ({"state": "stopped"}, "the job has stopped"),
        (
            {"state": "failed", "why": "FencedInstanceId: another\n  member has this id"},
            "the job failed: FencedInstanceId: another member has this id",
        ),
        ({"state": "failed"}, "the job failed: no reason is known"),
        (
            {"fatal": "FencedInstanceIdError: fenced"},
            "the group's member has ended: FencedInstanceIdError: fenced",
        ),
        ({"coordinator": False}, "the coordinator is being replaced"),
        ({"answered_at": None}, "the coordinator has not answered yet"),
        ({"answered_at": NOW - 4.4}, "the coordinator has not answered for 4 s (limit 3 s)"),
        ({"member": "unjoined"}, "the job is not in its group: its member is unjoined"),
        ({"member": "fatal"}, "the job is not in its group: its member is fatal"),
        ({"heartbeat_age_s": None}, "the group's coordinator has acknowledged no heartbeat yet"),
        (
            {"heartbeat_age_s": 45.1},
            "no heartbeat was acknowledged for 45 s: the session of 45 s is over",
        ),
        ({"workers_ready": 0}, "no worker is ready"),
    ],
)
def test_what_makes_a_job_unready_is_said_in_one_line_and_it_stays_live(changed, reason):
    found = verdict(**changed)
    assert (found.live, found.ready, found.reason) == (True, False, reason)


@pytest.mark.parametrize(
    "changed",
    [
        {"state": "paused"},
        {"member": "joining"},
        {"member": "syncing"},
        {"member": "revoking"},
        {"heartbeat_age_s": 44.0},
    ],
    ids=str,
)
def test_a_pause_and_a_rebalance_are_no_reasons(changed):
    assert verdict(**changed).ready


def test_silence_counts_from_the_last_answer_and_ends_with_the_next():
    assert health(WELL, WELL.answered_at + UNANSWERED_S).ready
    assert not health(WELL, WELL.answered_at + UNANSWERED_S + 0.01).ready
    later = WELL.answered_at + 60
    assert health(msgspec.structs.replace(WELL, answered_at=later - 1, looked_at=later), later).ready


def test_a_heartbeat_grows_older_while_the_coordinator_says_nothing_new():
    old = msgspec.structs.replace(WELL, heartbeat_age_s=44.0)
    assert health(old, WELL.answered_at + 0.9).ready
    assert "the session of 45 s is over" in health(old, WELL.answered_at + 1.1).reason


def test_a_supervisor_that_looks_no_more_is_neither_live_nor_ready():
    now = WELL.looked_at + LOOKS_S + 1
    found = health(msgspec.structs.replace(WELL, answered_at=now), now)
    assert (found.live, found.ready) == (False, False)
    assert found.reason == "the supervisor has not looked at its job for 11 s"


def test_a_job_that_has_stopped_is_live():
    assert verdict(state="stopped").live

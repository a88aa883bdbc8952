"""Report of a job, over coordinators that come and go."""

import asyncio

import pytest
from fakes.errors import NoText

from kafka_actors.errors import DisconnectedError, JobFailed
from kafka_actors.events import WorkersChanged
from kafka_actors.job.machines.health import UNANSWERED_S, health
from kafka_actors.job.machines.timeline import TimelineEntry
from kafka_actors.job.messages import ActorInfo, CoordinatorStatus, JobFailure, WorkerProgress, pack
from kafka_actors.job.status import GroupState, PartitionStatus, ScalingStatus
from kafka_actors.job.supervisor.machines.supervision import ActorKey
from kafka_actors.ray import Job

reporting = pytest.importorskip("kafka_actors.job.supervisor.report")
runtime = pytest.importorskip("kafka_actors.job.supervisor.runtime")


class Coordinator:
    """An actor that answers `status` and `verdict` as it is told to; it is dead where that is None."""

    def __init__(self, *texts):
        self.asked = []
        self.entries = [
            TimelineEntry(number=n + 1, at_s=50.0 + n, kind="rebalance", text=t) for n, t in enumerate(texts)
        ]
        self.member, self.fatal, self.dead, self.records = "m", None, False, 70

    async def call(self, method, known, wait_s=None):
        partitions = method == "status"
        assert partitions == (wait_s is None)
        self.asked.append((partitions, known))
        if self.dead:
            raise DisconnectedError("it is gone")
        return pack(
            CoordinatorStatus(
                GroupState("stable", 3, self.member, None, 1, 1, 2.5),
                [PartitionStatus("t", 0, "worker-0.1", 1, 1, 9, 8, "granted")] if partitions else [],
                {"worker-0.1": WorkerProgress(True, self.records, 700, work_s=1.5)},
                False,
                self.records,
                700,
                self.fatal,
                latency={4: 70},
                timeline=[entry for entry in self.entries if entry.number > known],
            )
        )


class Stage:
    def __init__(self):
        plan = Job(topics="t", group_id="g", bootstrap_servers="h:1", process=print).plan()
        self.now = 10.0
        self.running = runtime.RunningActors(plan)
        self.restarts = {}
        self.report = reporting.JobReport(
            plan,
            self.running,
            self.restarts,
            lambda: ScalingStatus(workers=1),
            lambda: self.now,
            lambda: 1_000 + self.now,
        )
        self.put(ActorKey("worker", 0), None)

    def put(self, key, ref, incarnation=1):
        self.running[key] = runtime.RunningActor(incarnation, ref, ActorInfo(7, "n1"), begun=True)

    def coordinator(self, *texts, incarnation=1):
        made = Coordinator(*texts)
        self.put(ActorKey("coordinator"), made, incarnation)
        return made

    def status(self):
        return asyncio.run(self.report.status())

    def told(self):
        return [(e.kind, e.text) for e in self.report.shown().timeline]


def test_without_a_coordinator_there_is_a_status_all_the_same():
    stage = Stage()
    status = stage.status()
    assert (status.state, status.group, status.partitions) == ("starting", None, [])
    assert (status.started_s, status.state_since_s) == (1_010.0, 1_010.0)
    assert [w.name for w in status.workers] == ["worker-0.1"]
    assert not stage.report.seen().coordinator


def test_what_the_coordinator_says_is_shown_and_stays_while_there_is_none():
    stage = Stage()
    first = stage.coordinator("one")
    status = stage.status()
    assert (status.group.generation, status.records, status.latency) == (3, 70, {4: 70})
    assert (status.workers[0].records, status.workers[0].work_s) == (70, 1.5)
    assert [(a.name, a.role, a.pid) for a in status.others] == [("coordinator.1", "coordinator", 7)]
    first.dead = True
    stage.now += 1
    assert stage.status().partitions == status.partitions
    assert stage.report.answered_at == 10.0


def test_entries_of_each_coordinator_come_once_and_in_order():
    stage = Stage()
    first = stage.coordinator("one", "two")
    asyncio.run(stage.report.verdict(1.0))
    asyncio.run(stage.report.ask())
    assert first.asked == [(False, 0), (True, 2)]
    second = stage.coordinator("three", incarnation=2)
    stage.status()
    stage.status()
    assert second.asked == [(True, 0), (True, 1)]
    assert stage.told() == [
        ("state", "starting"),
        ("rebalance", "one"),
        ("rebalance", "two"),
        ("rebalance", "three"),
    ]
    assert [e.number for e in stage.report.shown().timeline] == [1, 2, 3, 4]


def test_states_are_told_with_their_moment_and_why():
    stage = Stage()
    stage.now += 5
    stage.report.become("running")
    stage.report.pause(True)
    stage.report.pause(True)
    assert stage.report.shown().state == "paused"
    stage.report.pause(False)
    stage.now += 5
    stage.report.become("failed", JobFailed(ValueError("no such country")))
    shown = stage.report.shown()
    assert (shown.state, shown.state_since_s) == ("failed", 1_020.0)
    assert [text for _, text in stage.told()[:-1]] == ["starting", "running", "paused", "running"]
    assert stage.told()[-1] == ("state", "failed: ValueError: no such country")
    assert stage.report.seen().why == "ValueError: no such country"
    stage.report.become("failed", JobFailed(NoText()))
    assert stage.report.seen().why == "NoText"


def test_at_the_end_the_last_status_stays_with_the_state_that_it_ended_in():
    stage = Stage()
    coordinator = stage.coordinator("one")
    stage.report.become("stopping")
    stage.report.final = stage.status()
    stage.report.become("stopped")
    stage.running.clear()
    asked = len(coordinator.asked)
    status = stage.status()
    assert (status.state, status.records, len(status.partitions)) == ("stopped", 70, 1)
    assert len(coordinator.asked) == asked


def test_commits_of_which_the_coordinator_has_not_said_anything_are_not_called_confirmed():
    stage = Stage()
    stage.coordinator("one")
    assert stage.status().unconfirmed == []
    stage.report.final = stage.status()
    stage.report.unheard = True
    assert stage.status().unconfirmed == [("t", 0)]


def test_what_health_is_judged_by():
    stage = Stage()
    coordinator = stage.coordinator()
    stage.report.become("running")
    stage.status()
    stage.now += 2
    seen = stage.report.seen()
    assert (seen.looked_at, seen.answered_at, seen.coordinator) == (12.0, 10.0, True)
    assert (seen.member, seen.heartbeat_age_s, seen.workers_ready) == ("stable", 2.5, 1)
    assert (seen.state, seen.fatal, seen.session_timeout_s) == ("running", "", 45.0)
    coordinator.fatal = pack(JobFailure("FencedInstanceIdError: fenced", b""))
    asyncio.run(stage.report.verdict(1.0))
    assert stage.report.seen().fatal == "FencedInstanceIdError: fenced"


def test_a_status_has_the_rates_the_health_and_the_moments_of_the_job():
    stage = Stage()
    coordinator = stage.coordinator()
    stage.report.become("running")
    assert stage.status().totals.records_per_s is None, "the first one"
    coordinator.records += 100
    stage.now += 2
    status = stage.status()
    assert (status.totals.records_per_s, status.totals.lag, status.lag) == (50.0, 8, 8)
    assert (status.workers[0].records_per_s, status.workers[0].busy) == (50.0, 0.0)
    assert (status.name, status.topics, status.session_timeout_s) == (None, ["t"], 45.0)
    assert (status.at_s, status.answered_s, status.group.heartbeat_age_s) == (1_012.0, 1_012.0, 2.5)
    assert (status.health.live, status.health.ready, status.health.reason) == (True, True, "")


def test_rates_are_unknown_and_heartbeats_older_when_the_coordinator_does_not_answer():
    stage = Stage()
    coordinator = stage.coordinator()
    stage.report.become("running")
    stage.status()
    coordinator.records += 100
    stage.now += 1
    stage.status()
    coordinator.dead = True
    stage.now += UNANSWERED_S
    assert stage.status().totals.records_per_s == 100
    stage.now += 1
    status = stage.status()
    assert (status.totals.records_per_s, status.workers[0].records_per_s, status.lag) == (None, None, 8)
    assert (status.answered_s, status.group.heartbeat_age_s) == (1_011.0, 2.5 + UNANSWERED_S + 1)
    assert status.health.reason == "the coordinator has not answered for 4 s (limit 3 s)"


def test_the_member_id_outlives_the_coordinator():
    stage = Stage()
    stage.coordinator()
    stage.status()
    stage.coordinator(incarnation=2).member = ""
    stage.status()
    assert stage.report.member_id == "m"


def test_events_of_the_supervisor_are_in_the_log_and_in_the_timeline(caplog):
    stage = Stage()
    with caplog.at_level("INFO", logger="kafka_actors.events"):
        stage.report.happened(WorkersChanged(1, 3, "why"))
    stage.report.note("restart", "worker-0.1 died")
    assert "WorkersChanged before=1 after=3 reason=why" in caplog.text
    assert stage.told()[1:] == [("workers", "1 → 3: why"), ("restart", "worker-0.1 died")]


def test_what_a_start_waits_for_is_in_the_status_and_the_verdict_until_the_job_runs():
    stage = Stage()
    stage.report.waits_for = ["topics: none", "a place"]
    assert stage.status().waits_for == ["topics: none", "a place"]
    verdict = health(stage.report.seen(), stage.now)
    assert verdict.reason == "the job is starting: it waits for topics: none; a place"
    stage.report.become("running")
    assert stage.status().waits_for == []
    assert stage.report.seen().why == ""

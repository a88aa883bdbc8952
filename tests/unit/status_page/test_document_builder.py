"""The page's document, out of a job's status."""

import msgspec
from fakes.status_sample import sample_document, sample_history
from fakes.statuses import connection, job, partition, worker

from kafka_actors.job import Autoscale
from kafka_actors.job.messages import GroupState
from kafka_actors.job.status import ActorStatus, ScalingStatus
from kafka_actors.status_page.document import Document, Entry, HealthView, History
from kafka_actors.status_page.machines.document_builder import JobFacts, document_of, totals_of
from kafka_actors.status_page.machines.rates import JobRates, LatencyRate, WorkerRate

ABOUT = JobFacts(name="scorer", topics=["t"], version="9.9", session_timeout_s=45.0)
HEALTH = HealthView(live=True, ready=True, reason="")


def built(status, pace=None, silent_s=0.25):
    totals = totals_of(status, pace)
    return document_of(status, totals, pace, ABOUT, HEALTH, at_s=2_000.0, silent_s=silent_s)


def test_the_job_its_group_and_what_happened():
    happened = [Entry(number=1, at_s=1_000.0, kind="state", text="starting")]
    document = built(job(worker("worker-0.1", 5), timeline=happened, state="paused"))
    assert (document.at_s, document.health, document.timeline) == (2_000.0, HEALTH, happened)
    assert (document.job.name, document.job.group, document.job.topics) == ("scorer", "g", ["t"])
    assert (document.job.state, document.job.state_since_s, document.job.started_s) == (
        "paused",
        1_002.0,
        1_000.0,
    )
    group = document.group
    assert (group.state, group.generation, group.member_id, group.instance_id) == ("stable", 3, "m", "g-a")
    assert (group.heartbeat_age_s, group.answered_s, group.session_timeout_s) == (0.75, 1_999.75, 45.0)


def test_a_group_of_which_nothing_is_known_and_a_generation_that_is_none():
    document = built(job(group=None), silent_s=None)
    assert (document.group.state, document.group.generation) == ("unknown", None)
    assert (document.group.heartbeat_age_s, document.group.answered_s) == (None, None)
    assert built(job(group=GroupState("unjoined", -1, "", None, 0, 0))).group.generation is None


def test_totals_are_sums_over_partitions_and_the_largest_age():
    partitions = [
        partition(0, lag=5, lag_seconds=1.5),
        partition(1, lag=None, lag_seconds=None, reason="retrying: offset 3, ValueError"),
        partition(2, lag=7, lag_seconds=9.0, reason="at end"),
        partition(3, worker=None, state="free", lag=None),
    ]
    status = job(
        worker("worker-0.1", 500), worker("worker-1.2", 0, ready=False), partitions=partitions, restarts={"worker-1": 1, "metadata": 2}
    )  # fmt: skip
    totals = totals_of(status, JobRates(100.0, 1_000.0, LatencyRate(5.0, 50.0), {}))
    assert (totals.lag, totals.lag_s) == (12, 9.0)
    assert (totals.partitions, totals.blocked) == (4, 2)
    assert (totals.workers, totals.workers_ready, totals.restarts) == (2, 1, 3)
    assert (totals.records, totals.value_bytes) == (500, 5_000)
    assert (totals.records_per_s, totals.latency_p50_ms, totals.latency_p99_ms) == (100.0, 5.0, 50.0)
    unknown = totals_of(job(partitions=[partition(lag=None)]), None)
    assert (unknown.lag, unknown.lag_s, unknown.records_per_s, unknown.latency_p50_ms) == (None,) * 4


def test_brokers_with_what_they_lead_and_who_connects_to_them():
    partitions = [
        partition(0, leader=1),
        partition(1, leader=2),
        partition(2, leader=2),
        partition(3, leader=None),
    ]
    coordinator = ActorStatus("coordinator.2", "coordinator", 3, "n1", True, 1)
    document = built(
        job(partitions=partitions, others=[coordinator, connection(1), connection(2, ready=False)])
    )
    assert [(b.broker, b.host, b.port, b.leads) for b in document.brokers] == [
        (1, "b1", 9092, 1),
        (2, "b2", 9092, 2),
    ]
    assert [(c.name, c.broker, c.ready) for c in document.connections] == [
        ("connection-1.1", 1, True),
        ("connection-2.1", 2, False),
    ]
    assert [(c.name, c.role, c.restarts) for c in document.control] == [("coordinator.2", "coordinator", 1)]
    assert [p.leader for p in document.partitions] == [1, 2, 2, None]


def test_actors_of_one_name_on_several_nodes_are_told_apart():
    spare = ActorStatus("spare-0.1", "spare", 3, "aaaabbbbcccc", True, 0)
    document = built(job(others=[connection(1, "aaaabbbbcccc"), connection(1, "ddddeeeeffff"), spare]))
    names = [each.name for each in [*document.connections, *document.control]]
    assert names == ["connection-1.1@aaaabbbb", "connection-1.1@ddddeeee", "spare-0.1@aaaabbbb"]
    assert len(document.brokers) == 1


def test_workers_with_their_pace_and_partitions_with_their_reason():
    status = job(
        worker("worker-0.1", 5, partitions=[("t", 0), ("t", 1)], restarts=2),
        worker("worker-1.1", ready=False),
        worker("worker-2.1", retiring=True),
        partitions=[partition(0, reason="paused"), partition(1, worker=None, state="free")],
    )
    pace = JobRates(1.0, 2.0, None, {"worker-0.1": WorkerRate(11.0, 22.0, 0.5)})
    document = built(status, pace)
    first, *others = document.workers
    assert (first.partitions, first.restarts, first.records_per_s, first.value_bytes_per_s, first.busy) == (
        2, 2, 11.0, 22.0, 0.5,
    )  # fmt: skip
    assert [w.state for w in document.workers] == ["ready", "starting", "retiring"]
    assert [w.busy for w in others] == [None, None]
    assert [p.reason for p in document.partitions] == ["paused", "no worker"]


def test_the_policy_and_what_it_sees():
    scaling = ScalingStatus(
        workers=3,
        autoscale=Autoscale(max=8, target_lag_seconds=20),
        holding="why",
        backlog_seconds=4.5,
        busy=0.5,
    )
    found = built(job(scaling=scaling)).scaling
    assert (found.workers, found.policy, found.target_lag_s) == (3, "1..8", 20)
    assert (found.holding, found.backlog_s, found.busy) == ("why", 4.5, 0.5)
    assert built(job(worker("worker-0.1"))).scaling.policy is None


def test_the_samples_are_what_can_be_read_back():
    for sample, kind in ((sample_document(), Document), (sample_history(), History)):
        assert msgspec.json.decode(msgspec.json.encode(sample), type=kind) == sample

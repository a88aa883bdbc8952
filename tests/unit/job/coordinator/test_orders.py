"""Orders to workers, by the reports that they answer, and the changes that a report makes. The placement and the commit gate are as they are; time stands unless a
test moves it."""

import asyncio
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

import kafka_actors.job.coordinator.context as context_module
from kafka_actors.config import JobConfig, build
from kafka_actors.events import PartitionStalled
from kafka_actors.group import CommittedStart
from kafka_actors.group.commit_metadata import pack
from kafka_actors.job.coordinator.context import CoordinatorContext
from kafka_actors.job.coordinator.orders import WorkerOrders
from kafka_actors.job.messages import CommitEntry, DeathsInCall, Drain, HeldReport, Report, WorkerPlan
from kafka_actors.job.retry_topics import RetryTopics
from kafka_actors.job.status import WindowStatus
from kafka_actors.telemetry.tally import Tally
from kafka_actors.types import OffsetAndMetadata, TopicPartition

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


class StatusReport:
    """Ends of logs that a test gives; notes which ends were seen."""

    def __init__(self):
        self.seen = []

    def end_seen(self, partition):
        self.seen.append(partition)

    def to_read(self, partition, end):
        return end


class Stage:
    """The orders of a coordinator whose group has assigned two partitions, with one worker that is ready."""

    def __init__(
        self,
        *,
        ends=None,
        present=(P0, P1),
        committed=None,
        plan=None,
        recovering=False,
        tiers=None,
        **options,
    ):
        self.now, self.events, self.status = 100.0, [], StatusReport()
        config = build(JobConfig, group_id="g", bootstrap_servers="localhost:9092", **options)
        self.job = CoordinatorContext(
            config,
            1,
            lambda error: None,
            ends=ends,
            events=self.events.append,
            recorder=Tally(),
            clock=lambda: self.now,
            wall=lambda: 0.0,
            tiers=tiers,
        )
        self.job.member = SimpleNamespace(
            assignment=frozenset({P0, P1}), last_heartbeat_sent_and_acked=self.now
        )
        if plan is not None:
            self.job.plan = plan
        self.job.committed_starts = committed or {}
        self.orders = WorkerOrders(self.job, self.status, frozenset(present))
        placement = self.job.placement
        placement.set_worker("w")
        placement.worker_ready("w")
        if recovering:
            placement.recovery.begin({"w": self.now + 50.0})
        placement.assign([P0, P1])
        self.job.poll()
        self.now += 10.0
        self.job.poll()

    def poll(self, seen=(0, 0), holdings=(), worker="w", wait_s=0.0, **more):
        report = Report(worker, seen, True, list(holdings), wait_s=wait_s, **more)
        return asyncio.run(self.orders.poll(report))

    def held(self, orders, **fields):
        """Returns the report of a worker that has taken these orders."""
        return [HeldReport(grant.partition, grant.epoch, **fields) for grant in orders.grants]


def test_a_worker_is_granted_what_is_placed_with_it_and_told_once():
    stage = Stage()

    orders = stage.poll()

    assert {grant.partition for grant in orders.grants} == {P0, P1}
    assert len({grant.epoch for grant in orders.grants}) == 2
    assert (orders.draining, orders.hold) == ([], False)
    again = stage.poll(orders.version, stage.held(orders))
    assert (again.version, again.grants, again.hold) == (orders.version, [], True)


def test_a_worker_that_is_in_no_plan_has_to_drop_all_whatever_it_has_seen():
    orders = Stage().poll(seen=(1, 99), worker="dead", holdings=[HeldReport(P0, (1, 1))])
    assert (orders.version, orders.grants, orders.lease_s, orders.hold) == ((1, 99), [], 0.0, False)


def test_the_lease_is_what_is_left_of_nine_tenths_of_the_session_since_the_last_heartbeat():
    stage = Stage(session_timeout_ms=45_000)
    assert stage.poll().lease_s == pytest.approx(40.5 - 10.0)
    stage.job.member.last_heartbeat_sent_and_acked = None
    assert stage.poll().lease_s == 0.0


def test_a_grant_begins_where_the_group_committed_unless_a_commit_came_since():
    start = CommittedStart(7, 2, b"i" * 16)
    stage = Stage(committed={P0: start})
    grants = {grant.partition: grant for grant in stage.poll().grants}
    assert (grants[P0].offset, grants[P0].leader_epoch, grants[P0].topic_id) == (7, 2, b"i" * 16)
    assert grants[P1].offset is None

    stage.job.gate.baseline(
        {P0: OffsetAndMetadata(9, pack("", None), 3), P1: OffsetAndMetadata(4, pack("", b"o" * 16))}
    )

    grants = {grant.partition: grant for grant in stage.poll().grants}
    assert (grants[P0].offset, grants[P0].leader_epoch, grants[P0].topic_id) == (9, 3, b"i" * 16)
    assert (grants[P1].offset, grants[P1].topic_id) == (4, b"o" * 16)


def test_partitions_that_came_after_the_start_are_read_from_their_beginning():
    grants = {grant.partition: grant for grant in Stage(present=[P0]).poll().grants}
    assert not grants[P0].from_start
    assert grants[P1].from_start


def test_a_bounded_run_ends_where_it_was_told_to_and_reads_nothing_of_what_came_since():
    grants = {grant.partition: grant for grant in Stage(ends={P0: 12}).poll().grants}
    assert (grants[P0].end_offset, grants[P1].end_offset) == (12, 0)
    assert {grant.end_offset for grant in Stage().poll().grants} == {None}


def test_a_grant_says_in_which_calls_of_its_partition_workers_died():
    died = [DeathsInCall(P1, 3, 5, 2, "killed"), DeathsInCall(P1, 9, 9, 1, "killed")]
    plan = WorkerPlan(1, {"w": 1.0}, [], paused=True, complete=True, died=died)
    orders = Stage(plan=plan).poll()
    assert {grant.partition: grant.died for grant in orders.grants} == {P0: [], P1: died}
    assert orders.paused


def test_a_partition_that_is_to_leave_is_drained_under_the_epoch_that_its_worker_has():
    stage = Stage()
    first = stage.poll()
    stage.poll(first.version, stage.held(first))
    stage.job.placement.revoke([P0], stage.now + 30)
    stage.job.poll()

    orders = stage.poll(first.version, stage.held(first))

    (epoch,) = [grant.epoch for grant in first.grants if grant.partition == P0]
    assert orders.draining == [Drain(P0, epoch, None)]
    assert [grant.partition for grant in orders.grants] == [P1]


# ---------------------------------------------------------------- reports


def test_a_report_counts_only_for_what_is_placed_with_its_worker_under_this_epoch():
    stage = Stage()
    first = stage.poll()
    here, former = stage.held(first, processed=5)[0], HeldReport(P1, (0, 3), processed=9)

    stage.poll(first.version, [here, former])

    assert stage.job.held == {here.partition: here}
    assert stage.status.seen == [here.partition]


def test_a_report_that_a_newer_one_has_overtaken_changes_nothing():
    stage = Stage()
    first = stage.poll()
    newer = stage.held(first, processed=9)
    stage.poll(first.version, newer)

    stage.poll((1, 0), stage.held(first, processed=2))

    assert [stage.job.held[held.partition].processed for held in newer] == [9, 9]
    assert stage.job.reports["w"].seen == first.version


def test_what_the_group_took_away_is_forgotten():
    stage = Stage()
    first = stage.poll()
    stage.poll(first.version, stage.held(first))
    stage.orders.forget([P0])
    assert set(stage.job.held) == {P1}


# ---------------------------------------------------------------- stalls


def stalled(stage):
    return [(e.partition, e.reason) for e in stage.events if isinstance(e, PartitionStalled)]


def lagging(stage, orders, **fields):
    return [HeldReport(g.partition, g.epoch, processed=5, end=9, **fields) for g in orders.grants]


def test_a_partition_with_records_to_read_that_stands_still_is_drained_and_granted_anew():
    stage = Stage(max_poll_interval_ms=60_000)
    first = stage.poll()
    stage.poll(first.version, lagging(stage, first))
    stage.now += 59.0
    stage.poll(first.version, lagging(stage, first, blocked="no lease"))
    assert stalled(stage) == []
    stage.now += 1.0

    orders = stage.poll(first.version, lagging(stage, first, blocked="no lease"))

    assert sorted(stalled(stage)) == [(0, "no lease"), (1, "no lease")]
    assert {drain.partition for drain in orders.draining} == {P0, P1}


def test_a_pause_is_no_stall_and_the_time_counts_anew_behind_it():
    stage = Stage(max_poll_interval_ms=60_000)
    first = stage.poll()
    stage.poll(first.version, lagging(stage, first))
    stage.job.plan = WorkerPlan(2, {"w": 1.0}, [], paused=True, complete=True)
    stage.now += 100.0
    stage.poll(first.version, lagging(stage, first))
    stage.job.plan = WorkerPlan(3, {"w": 1.0}, [], paused=False, complete=True)
    stage.orders.unpaused()
    stage.now += 59.0
    stage.poll(first.version, lagging(stage, first))
    assert stalled(stage) == []
    stage.now += 1.0
    stage.poll(first.version, lagging(stage, first))
    assert sorted(stalled(stage)) == [(0, "no progress"), (1, "no progress")]


def test_what_was_forgotten_counts_anew():
    stage = Stage(max_poll_interval_ms=60_000)
    first = stage.poll()
    stage.poll(first.version, lagging(stage, first))
    stage.now += 60.0
    stage.orders.forget([P0])
    stage.poll(first.version, lagging(stage, first))
    assert [partition for partition, _ in stalled(stage)] == [1]


# ---------------------------------------------------------------- waiting


def test_a_new_coordinator_has_workers_keep_what_they_hold_until_they_tell_it():
    stage, holding = Stage(recovering=True), HeldReport(P0, (0, 4))

    early = stage.poll(seen=(0, 7), holdings=[holding])

    assert (early.hold, early.grants) == (True, []), (
        "it has not seen this coordinator: older orders may still change what it holds"
    )
    assert early.lease_s > 0
    orders = stage.poll(seen=(1, 0), holdings=[holding])
    (grant,) = [grant for grant in orders.grants if grant.partition == P0]
    assert (grant.continues, grant.epoch[0]) == ((0, 4), 1)


def test_a_poll_waits_for_news_and_no_longer_than_it_may(monkeypatch):
    stage, waits = Stage(), []
    first = stage.poll()

    async def changes(self, timeout_s):
        waits.append(timeout_s)
        assert len(waits) < 10
        stage.now += 0.2
        if len(waits) == 2:
            self.placement.revoke([P0], stage.now + 30)
            self.poll()

    monkeypatch.setattr(context_module.CoordinatorContext, "wait_for_change", changes)

    orders = stage.poll(first.version, stage.held(first), wait_s=1.0)

    assert waits == [pytest.approx(1.0), pytest.approx(0.8)]
    assert [drain.partition for drain in orders.draining] == [P0]
    waits.clear()
    stage.poll(orders.version, stage.held(first), wait_s=0.3)
    assert waits == [pytest.approx(0.3), pytest.approx(0.1)]


def test_a_failure_that_a_worker_reports_wakes_those_who_wait():
    stage, woken = Stage(), []
    first = stage.poll()
    stage.job.wake = lambda: woken.append(True)
    stage.poll(first.version, stage.held(first))
    assert woken == []
    stage.poll(first.version, stage.held(first), failed=b"packed")
    assert woken == [True]


def dealt_stage(**options):
    """Two workers that share both partitions, of which the group has committed 10."""
    stage = Stage(ordering="key", **options)
    for name in ("worker-0.1", "worker-1.1", "worker-2.1", "worker-3.1"):
        stage.job.placement.set_worker(name)
        stage.job.placement.worker_ready(name)
    stage.job.placement.remove_worker("w")
    stage.job.gate.baseline({P0: OffsetAndMetadata(10), P1: OffsetAndMetadata(10)})
    stage.now += 20.0
    stage.job.poll()
    stage.now += 20.0
    stage.job.poll()
    return stage


def slices_of(orders):
    return {(grant.partition, grant.part, grant.parts): grant for grant in orders.grants}


def test_a_partition_that_workers_share_is_granted_by_slice_under_its_own_name():
    stage = dealt_stage()
    grants = {}
    for name in ("worker-0.1", "worker-1.1", "worker-2.1", "worker-3.1"):
        found = slices_of(asyncio.run(stage.orders.poll(Report(name, (0, 0), True, [], wait_s=0))))
        assert len({grant.partition for grant in found.values()}) == len(found), "never two slices of one"
        grants |= found
    assert set(grants) == {(p, part, 2) for p in (P0, P1) for part in (0, 1)}
    assert {grant.offset for grant in grants.values()} == {10}
    assert len({grant.epoch for grant in grants.values()}) == 4


def test_workers_hear_up_to_where_all_slices_are_done():
    stage = dealt_stage()

    def poll(name, *holdings):
        return asyncio.run(stage.orders.poll(Report(name, (0, 0), True, list(holdings), wait_s=0)))

    first = poll("worker-0.1")
    (grant,) = first.grants
    assert first.watermarks == [(grant.partition, 10)]
    ahead = HeldReport(grant.partition, grant.epoch, 50, part=grant.part, parts=2)
    assert poll("worker-0.1", ahead).watermarks == [(grant.partition, 10)]
    (other,) = [
        (name, each)
        for name in ("worker-1.1", "worker-2.1", "worker-3.1")
        for each in poll(name).grants
        if each.partition == grant.partition
    ]
    name, behind = other
    assert poll(
        name, HeldReport(behind.partition, behind.epoch, 30, part=behind.part, parts=2)
    ).watermarks == [(grant.partition, 30)]


# ------------------------------------------------------------ retry topics

TIERS = RetryTopics("r", delays=("1s", "2s"), dead_letter_topic="d").tiers("t", ordering="key")


def test_a_partition_is_granted_with_its_retry_partitions_under_one_epoch():
    present = TIERS.groups([P0, P1])
    stage = Stage(tiers=TIERS, present=present, committed={TopicPartition("r-1s", 0): CommittedStart(7, 3)})
    orders = stage.poll()
    by_partition = {grant.partition: grant for grant in orders.grants}
    assert set(by_partition) == TIERS.groups([P0, P1])
    for whole in (P0, P1):
        assert len({by_partition[each].epoch for each in TIERS.group(whole)}) == 1
    assert [by_partition[each].offset for each in TIERS.group(P0)] == [None, 7, None]
    assert [by_partition[each].from_start for each in TIERS.group(P0)] == [False, True, True]


def test_a_partition_is_drained_with_its_retry_partitions_and_is_gone_once_it_is_not_reported():
    stage = Stage(tiers=TIERS)
    granted = stage.poll()
    stage.job.placement.revoke([P0], stage.now + 60.0)
    stage.job.poll()
    told = stage.poll(granted.version, stage.held(granted))
    assert {drain.partition for drain in told.draining} == set(TIERS.group(P0))
    assert {grant.partition for grant in told.grants} == set(TIERS.group(P1))


def test_commits_of_a_retry_partition_count_under_the_epoch_of_its_source():
    stage = Stage(tiers=TIERS)
    orders, waiting = stage.poll(), TopicPartition("r-1s", 0)
    epoch = next(grant.epoch for grant in orders.grants if grant.partition == P0)
    assert stage.job.gate.offer("w", [CommitEntry(waiting, epoch, 5)]) == []
    assert stage.job.gate.offer("w", [CommitEntry(waiting, (0, 1), 6)]) == [waiting]
    assert stage.job.gate.offer("other", [CommitEntry(waiting, epoch, 6)]) == [waiting]


def test_a_partition_that_waits_for_its_time_or_for_what_it_has_to_know_is_not_stalled():
    stage, waiting = Stage(tiers=TIERS), TopicPartition("r-1s", 0)
    orders = stage.poll()
    epoch = next(grant.epoch for grant in orders.grants if grant.partition == P0)

    def events(blocked):
        for _ in range(2):
            report = HeldReport(waiting, epoch, 0, end=1, blocked=blocked)
            others = [e for e in stage.held(orders, processed=0, end=0) if e.partition != waiting]
            stage.poll(orders.version, [*others, report])
            stage.now += 301.0
        return [event for event in stage.events if isinstance(event, PartitionStalled)]

    assert events("not due: its next record waits until …") == []
    assert events("reading ahead: which keys wait in …") == []
    assert events("waits for the registry: stage decode: no answer") == []
    (stalled,) = events("")
    assert (stalled.topic, stalled.partition) == waiting


def test_a_retry_partition_is_not_stalled_in_the_moment_in_which_its_record_is_due():
    """It lagged once before it waited, and for longer than the limit."""
    stage, waiting = Stage(tiers=TIERS), TopicPartition("r-1s", 0)
    orders = stage.poll()
    epoch = next(grant.epoch for grant in orders.grants if grant.partition == P0)
    for blocked, lasts_s in (
        ("", 1.0),
        ("not due: its next record waits until …", 600.0),
        ("", 1.0),
        ("", 1.0),
    ):
        report = HeldReport(waiting, epoch, 0, end=1, blocked=blocked)
        others = [e for e in stage.held(orders, processed=0, end=0) if e.partition != waiting]
        stage.poll(orders.version, [*others, report])
        stage.now += lasts_s
    assert stalled(stage) == []


@pytest.mark.parametrize("window", [WindowStatus(records=5, calls=1), WindowStatus(records=5, parked=1)])
def test_a_partition_whose_calls_are_in_hand_or_wait_to_be_made_again_is_not_stalled_by_their_sum(window):
    """Each of four tries may last nearly as long as the limit; whoever looks after single calls sees one that hangs."""
    stage = Stage(max_poll_interval_ms=60_000)
    first = stage.poll()
    for _ in range(5):
        stage.poll(first.version, lagging(stage, first, window=window))
        stage.now += 50.0
    assert stalled(stage) == []
    for _ in range(3):
        stage.poll(first.version, lagging(stage, first, window=WindowStatus(records=5)))
        stage.now += 50.0
    assert sorted(stalled(stage)) == [(0, "no progress"), (1, "no progress")]


def test_a_slice_is_not_stalled_while_calls_of_another_slice_are_in_hand():
    """Its window may be full of records of others, which it waits for."""
    stage = dealt_stage()
    orders = {name: stage.poll(worker=name) for name in stage.job.placement.workers}
    of_first = {grant.partition: name for name, each in orders.items() for grant in each.grants}

    def report(calls):
        for name, each in orders.items():
            found = []
            for held in lagging(stage, each):
                at_work = calls * (of_first[held.partition] == name)
                found.append(replace(held, window=WindowStatus(records=5, calls=at_work)))
            stage.poll(each.version, found, worker=name)
        stage.now += 50.0

    for _ in range(20):
        report(calls=1)
    assert stalled(stage) == []
    for _ in range(8):
        report(calls=0)
    assert {partition for partition, _ in stalled(stage)} == {0, 1}


def test_workers_that_share_a_partition_share_its_retry_partitions_likewise():
    tiers = TIERS
    stage = dealt_stage(tiers=tiers)
    names = ("worker-0.1", "worker-1.1", "worker-2.1", "worker-3.1")

    def grants():
        found = {}
        for name in names:
            for grant in stage.poll(worker=name).grants:
                found.setdefault((name, grant.epoch), []).append((*grant.partition, grant.part, grant.parts))
        return found

    assert {each[-1] for group in grants().values() for each in group} == {1}, (
        "nothing is committed of retry partitions"
    )
    stage.job.gate.baseline(dict.fromkeys(tiers.groups([P0, P1]), OffsetAndMetadata(10)))
    for _ in range(3):
        stage.now += 40.0
        stage.job.poll()
    found = grants()
    assert {each[-1] for group in found.values() for each in group} == {2}
    for group in found.values():
        (numbers,) = {each[1:] for each in group}
        assert {each[0] for each in group} == {"t", "r-1s", "r-2s"}, numbers


def test_a_new_coordinator_adopts_a_partition_with_what_goes_with_it():
    stage = Stage(tiers=TIERS, recovering=True)
    stage.job.member.assignment = TIERS.groups([P0, P1])
    held = [HeldReport(each, (0, 5)) for each in TIERS.group(P0)]
    orders = stage.poll((1, 0), held)
    mine = {grant.partition: grant.continues for grant in orders.grants if grant.continues is not None}
    assert mine == dict.fromkeys(TIERS.group(P0), (0, 5))

"""The job's coordinator over a member that answers as told."""

import asyncio
from types import SimpleNamespace

import pytest
from fakes.loop import turns, turns_until

from kafka_actors.base.machine import Ready
from kafka_actors.config import JobConfig, build
from kafka_actors.errors import (
    DisconnectedError,
    KafkaActorsError,
    TopicAuthorizationFailedError,
    TopicRecreatedError,
)
from kafka_actors.events import (
    DoneOffsetsDropped,
    DrainForced,
    NewSchemaSeen,
    PartitionNotRead,
    PartitionStalled,
    Rebalanced,
    TransactionAborted,
)
from kafka_actors.group import CommittedStart
from kafka_actors.group.commit_metadata import pack, unpack
from kafka_actors.group.done_offsets import DoneOffsets
from kafka_actors.job.coordinator import coordinator as coordinator_module
from kafka_actors.job.coordinator.coordinator import JobCoordinator
from kafka_actors.job.coordinator.machines.placement import DrainEnd
from kafka_actors.job.lanes import slice_of
from kafka_actors.job.messages import (
    CommitEntry,
    CommitRequest,
    DeathsInCall,
    HeldReport,
    Report,
    WorkerPlan,
)
from kafka_actors.job.retry_topics import RetryTopics
from kafka_actors.job.transactions import ProducerGrant, TransactionalIds, TransactionReport
from kafka_actors.telemetry.tally import Tally
from kafka_actors.types import OffsetAndMetadata, ProducerIdentity, TopicPartition

P0, P1, R0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("r-1s", 0)


def origin_of(committed):
    return (
        CommittedStart()
        if committed is None
        else CommittedStart(committed.offset, committed.leader_epoch, counts=True)
    )


class Member:
    """A group member whose committed offsets come when the test lets them."""

    def __init__(self) -> None:
        self.state = SimpleNamespace(name="STABLE")
        self.joined = True
        self.generation, self.member_id, self.group_instance_id = 1, "m", None
        self.assignment: frozenset[TopicPartition] = frozenset()
        self.last_heartbeat_sent_and_acked = 0.0
        self.answer = asyncio.Event()
        self.committed: dict[TopicPartition, OffsetAndMetadata] = {}
        self.asked = 0
        self.refuses: KafkaActorsError | None = None

    async def start(self):
        """It has joined already."""

    async def fetch_committed_starts(self, partitions):
        await self.answer.wait()
        return {p: origin_of(self.committed.get(p)) for p in partitions}

    async def learn_topic_ids(self, offsets):
        """It knows all topics."""

    async def commit_offsets_sync(self, offsets):
        if self.refuses is not None:
            return dict.fromkeys(offsets, self.refuses)
        self.committed.update(offsets)
        return dict.fromkeys(offsets)

    async def count_members(self):
        self.asked += 1
        return 3

    async def close(self, autocommit, leave, timeout_ms):
        self.closed_within_ms, self.left = timeout_ms, leave


async def ends_of_nothing(partitions):
    return {}


async def made(
    ends,
    recorder=None,
    leader=lambda partition: None,
    lookup_ends=ends_of_nothing,
    lookup_starts=ends_of_nothing,
    events=lambda event: None,
    recovering=False,
    plan=None,
    clock=lambda: 1.0,
    transactions=None,
    tiers=None,
    partition_counts=dict,
    **options,
):
    member = Member()
    config = build(JobConfig, group_id="g", bootstrap_servers="localhost:9092", **options)
    coordinator = JobCoordinator(
        config,
        1,
        lambda job: member,
        ends=ends,
        present_at_start=frozenset(ends or ()),
        lookup_ends=lookup_ends,
        lookup_starts=lookup_starts,
        events=events,
        leader=leader,
        recorder=recorder,
        transactions=transactions,
        tiers=tiers,
        partition_counts=partition_counts,
        clock=clock,
        wall=lambda: 1_000.0,
    )
    await coordinator.start(plan or WorkerPlan(1, {"w": 1.0}, [], paused=False, complete=True), recovering)
    return coordinator, member


class Fences:
    """Brokers that are asked for producer ids, and answer at once."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def fence(self, transactional_id, timeout_ms):
        self.asked.append(transactional_id)
        return ProducerIdentity(transactional_id, 7, len(self.asked))

    async def transactional_ids(self):
        return {"g-n-worker-0", "g-n-worker-1"}, True


def test_a_new_coordinator_fences_no_worker_that_goes_on_with_its_session():
    """Its transaction would be aborted for nothing."""

    async def scenario():
        fences = Fences()
        plan = WorkerPlan(
            1, {"worker-0.1": 1.0}, [], paused=False, complete=True, ready=["worker-0.1"], roles=2
        )
        ids = TransactionalIds("g-n", 60_000, named=True)
        coordinator, member = await made(
            None, recovering=True, plan=plan, transactions=(ids, fences), delivery="exactly_once"
        )
        member.answer.set()
        member.assignment = frozenset([P0])
        await coordinator.on_partitions_assigned(frozenset([P0]))
        await turns(20)
        assert fences.asked == []
        own = TransactionReport(session=(0, 5))
        held = [HeldReport(P0, (0, 3))]
        report = Report("worker-0.1", (1, 0), ready=True, holdings=held, wait_s=0, transactions=own)
        orders = await coordinator.poll(report)
        await turns(20)
        assert orders.producer == ProducerGrant((0, 5))
        assert [(g.partition, g.continues) for g in orders.grants] == [(P0, (0, 3))]
        assert fences.asked == ["g-n-worker-1"]  # nobody has that one

    asyncio.run(scenario())


@pytest.mark.parametrize(("retiring", "aborted"), [([], 1), (["worker-0.1"], 0)], ids=["died", "retired"])
def test_a_worker_that_died_in_a_transaction_counts_as_one_aborted_and_one_that_retired_does_not(
    retiring, aborted
):
    """A worker that retires commits before it ends, and its last report may be older than that."""

    async def scenario():
        told = []
        plan = WorkerPlan(
            1, {"worker-0.1": 1.0}, retiring, paused=False, complete=True, ready=["worker-0.1"], roles=1
        )
        ids = TransactionalIds("g-n", 60_000, named=True)
        coordinator, _ = await made(
            None, plan=plan, transactions=(ids, Fences()), delivery="exactly_once", events=told.append
        )
        opened = TransactionReport(session=(0, 5), committed=3, open_s=1.0, open_records=7)
        await coordinator.poll(
            Report("worker-0.1", (1, 0), ready=True, holdings=[], wait_s=0, transactions=opened)
        )
        await coordinator.set_plan(
            WorkerPlan(2, {"worker-0.2": 1.0}, [], paused=False, complete=True, roles=1)
        )
        found = coordinator.status().transactions
        assert (found.committed, found.aborted, found.repeated, found.open_s) == (
            3,
            aborted,
            7 * aborted,
            None,
        )
        assert [type(event) for event in told].count(TransactionAborted) == aborted

    asyncio.run(scenario())


def test_a_schema_that_many_workers_have_seen_is_told_once():
    async def scenario():
        told = []
        coordinator, _ = await made(None, events=told.append)
        seen = [NewSchemaSeen("decode", "9", "schema 7"), NewSchemaSeen("decode", "10", "schema 7")]
        for worker, what in (("w", seen[:1]), ("other", seen[:1]), ("w", seen), ("other", seen)):
            await coordinator.poll(Report(worker, (1, 0), True, [], wait_s=0, new_schemas=what))
        assert [event for event in told if isinstance(event, NewSchemaSeen)] == seen
        texts = [entry.text for entry in coordinator.status().timeline if entry.kind == "schema"]
        assert texts == [
            f"decode: first values by schema {n}, which is new; they are read by schema 7" for n in (9, 10)
        ]

    asyncio.run(scenario())


def test_a_worker_that_was_given_up_goes_on_with_nothing_while_a_new_coordinator_recovers():
    """What it had may be others' since, who go on with it."""

    async def scenario():
        coordinator, _ = await made(None, recovering=True)
        orders = await coordinator.poll(Report("w", (1, 0), ready=True, holdings=[], wait_s=0))
        assert orders.hold
        assert orders.lease_s > 0
        cut_off = Report("given_up", (0, 9), ready=True, holdings=[HeldReport(P0, (0, 3))], wait_s=0)
        orders = await coordinator.poll(cut_off)
        assert (orders.hold, orders.lease_s, orders.grants) == (False, 0.0, [])
        await turns(3)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("before", "waits_s"),
    [
        ({"ready": ["w", "other"]}, 40.5),
        ({"ready": ["w"]}, 3.0),
        ({"ready": ["w"], "silent": ["gone"]}, 40.5),
    ],
    ids=["frozen", "starting", "cut_off"],
)
def test_a_new_coordinator_grants_what_a_worker_may_have_only_when_its_lease_is_over(before, waits_s):
    """A worker that was up is frozen with its node, and nobody has noticed yet; or its node was given up, and it is in no plan
    any more. One that starts has no lease."""

    async def scenario():
        now = 1.0
        plan = WorkerPlan(1, {"w": 1.0, "other": 1.0}, [], paused=False, complete=True, **before)
        coordinator, member = await made(
            None, recovering=True, plan=plan, clock=lambda: now, session_timeout_ms=45_000
        )
        if "silent" in before:
            await coordinator.poll(Report("other", (1, 0), ready=False, holdings=[], wait_s=0))
        member.assignment = frozenset({P0, P1})
        member.answer.set()
        await coordinator.on_partitions_assigned(member.assignment)
        orders = await coordinator.poll(
            Report("w", (1, 0), ready=True, holdings=[HeldReport(P0, (0, 1))], wait_s=0)
        )
        assert {grant.partition for grant in orders.grants} == {P0}
        now = 1.0 + waits_s - 0.1
        orders = await coordinator.poll(Report("w", orders.version, True, [HeldReport(P0, (1, 1))], wait_s=0))
        assert orders.hold, "P1 may still be read by the other one"
        now = 1.0 + waits_s
        orders = await coordinator.poll(Report("w", orders.version, True, [HeldReport(P0, (1, 1))], wait_s=0))
        assert {grant.partition for grant in orders.grants} == {P0, P1}

    asyncio.run(scenario())


def test_a_bounded_run_is_not_finished_while_its_first_assignment_is_taken_in():
    async def scenario():
        coordinator, member = await made({P0: 5})
        assert not coordinator.status().finished
        member.assignment = frozenset({P0})
        taking_in = asyncio.ensure_future(coordinator.on_partitions_assigned(member.assignment))
        await asyncio.sleep(0)
        assert not coordinator.status().finished
        member.answer.set()
        await taking_in
        assert not coordinator.status().finished

        orders = await coordinator.poll(Report("w", (0, 0), ready=True, holdings=[], wait_s=0))
        orders = await coordinator.poll(Report("w", (0, 0), ready=True, holdings=[], wait_s=0))
        (grant,) = orders.grants
        await coordinator.commit(CommitRequest("w", 1, [CommitEntry(P0, grant.epoch, 5)]))
        assert coordinator.status().finished

    asyncio.run(scenario())


@pytest.mark.parametrize("keep_order", [True, False])
@pytest.mark.parametrize("numbers", [{"t": 2, "r-1s": 1}, {"t": 2}], ids=["grown", "deleted"])
def test_a_bounded_run_does_not_wait_for_retry_partitions_that_are_not_there(keep_order, numbers):
    """Meanwhile the source has grown, and its retry topic has not; or somebody has deleted that, of which nothing was to be read."""
    topics = RetryTopics("r", delays=("1s",), dead_letter_topic="d", keep_order=keep_order)
    there = {"t": 2, "r-1s": 2}

    async def scenario():
        coordinator, member = await made(
            {P0: 3, R0: 0}, tiers=topics.tiers("t", ordering="key"), partition_counts=lambda: there
        )
        member.answer.set()
        member.assignment = frozenset({P0, P1, R0})
        await coordinator.on_partitions_assigned(member.assignment)
        orders = await coordinator.poll(Report("w", (0, 0), True, [], wait_s=0.0))
        epochs = {grant.partition: grant.epoch for grant in orders.grants}
        ends = {P0: 3, P1: 0} if "r-1s" not in numbers else {P0: 3, P1: 0, R0: 0}
        entries = [CommitEntry(each, epochs[each], end) for each, end in ends.items()]
        await coordinator.commit(CommitRequest("w", 1, entries))
        assert not coordinator.status().finished, "what is there is read to its end"
        there.clear()
        there.update(numbers)
        assert coordinator.status().finished

    asyncio.run(scenario())


def test_a_bounded_run_waits_for_records_that_a_retry_topic_had():
    tiers = RetryTopics("r", delays=("1s",), dead_letter_topic="d").tiers("t", ordering="key")

    async def scenario():
        coordinator, member = await made({P0: 3, R0: 2}, tiers=tiers, partition_counts=lambda: {"t": 1})
        member.answer.set()
        member.assignment = frozenset({P0})
        await coordinator.on_partitions_assigned(member.assignment)
        orders = await coordinator.poll(Report("w", (0, 0), True, [], wait_s=0.0))
        epoch = next(grant.epoch for grant in orders.grants if grant.partition == P0)
        await coordinator.commit(CommitRequest("w", 1, [CommitEntry(P0, epoch, 3)]))
        assert not coordinator.status().finished

    asyncio.run(scenario())


def test_a_bounded_run_starts_where_the_group_has_committed_and_ends_at_its_ends():
    async def scenario():
        coordinator, member = await made({P0: 5, P1: 7})
        member.committed = {P0: OffsetAndMetadata(3, "", 2)}
        member.assignment = frozenset({P0, P1})
        member.answer.set()
        await coordinator.on_partitions_assigned(member.assignment)
        await coordinator.poll(Report("w", (0, 0), ready=True, holdings=[], wait_s=0))
        orders = await coordinator.poll(Report("w", (0, 0), ready=True, holdings=[], wait_s=0))
        found = {g.partition: (g.offset, g.leader_epoch, g.end_offset, g.from_start) for g in orders.grants}
        assert found == {P0: (3, 2, 5, False), P1: (None, -1, 7, False)}

    asyncio.run(scenario())


def test_a_partition_that_appears_later_is_read_from_its_start():
    async def scenario():
        coordinator, member = await made({P0: 5})
        member.assignment = frozenset({P1})
        member.answer.set()
        await coordinator.on_partitions_assigned(member.assignment)
        await coordinator.poll(Report("w", (0, 0), ready=True, holdings=[], wait_s=0))
        orders = await coordinator.poll(Report("w", (0, 0), ready=True, holdings=[], wait_s=0))
        assert [(g.partition, g.from_start) for g in orders.grants] == [(P1, True)]

    asyncio.run(scenario())


def test_what_a_drain_that_was_cut_off_has_left_is_given_to_a_worker_when_it_comes_back():
    async def scenario():
        coordinator, member = await made(None)
        member.assignment = frozenset({P0})
        member.answer.set()
        await coordinator.on_partitions_assigned(member.assignment)
        await coordinator.poll(Report("w", (0, 0), ready=True, holdings=[], wait_s=0))
        assert coordinator.reads() == {P0}
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):  # the worker says nothing
                await coordinator.on_partitions_revoked(member.assignment, 30.0)
        assert coordinator.reads() == frozenset()
        await coordinator.on_partitions_assigned(member.assignment)
        coordinator._job.clock = lambda: 100.0
        coordinator._job.poll()
        assert coordinator.reads() == {P0}

    asyncio.run(scenario())


def test_an_assignment_that_is_told_again_takes_no_commit_back():
    async def scenario():
        coordinator, member = await made(None)
        member.committed = {P0: OffsetAndMetadata(5)}
        member.assignment = frozenset({P0})
        member.answer.set()
        await coordinator.on_partitions_assigned(member.assignment)
        for _ in range(2):
            orders = await coordinator.poll(Report("w", (0, 0), ready=True, holdings=[], wait_s=0))
        member.answer.clear()
        again = asyncio.ensure_future(coordinator.on_partitions_assigned(member.assignment))
        await asyncio.sleep(0)
        await coordinator.commit(CommitRequest("w", 1, [CommitEntry(P0, orders.grants[0].epoch, 10)]))
        member.committed = {P0: OffsetAndMetadata(5)}  # the answer is older than the commit
        member.answer.set()
        await again
        (status,) = coordinator.status().partitions
        assert status.committed == 10

    asyncio.run(scenario())


def test_a_declared_reset_whose_commit_failed_is_not_called_committed():
    async def scenario():
        coordinator, member = await made(None)
        member.committed = {P0: OffsetAndMetadata(50)}
        member.assignment = frozenset({P0})
        member.answer.set()
        await coordinator.on_partitions_assigned(member.assignment)
        for _ in range(2):
            orders = await coordinator.poll(Report("w", (0, 0), ready=True, holdings=[], wait_s=0))
        (grant,) = orders.grants
        member.refuses = TopicAuthorizationFailedError(request="OffsetCommit", topic="t")
        reset = CommitEntry(P0, grant.epoch, 7, rewind=True)
        reply = await coordinator.commit(CommitRequest("w", 1, [reset]))
        assert (reply.committed, [partition for partition, _ in reply.failed]) == ([], [P0])
        member.refuses = None
        reply = await coordinator.commit(CommitRequest("w", 2, [reset]))
        assert (reply.committed, reply.failed) == ([reset], [])
        assert member.committed[P0].offset == 7

    asyncio.run(scenario())


def test_what_happens_is_told_from_an_entry_on_and_moves_together():
    async def scenario():
        coordinator, member = await made(None, leader=lambda partition: 10 + partition.partition)
        member.assignment = frozenset({P0, P1})
        member.answer.set()
        coordinator.happened(Rebalanced("g", 4, 1.25))
        await coordinator.on_partitions_assigned(member.assignment)
        for _ in range(2):
            await coordinator.poll(Report("w", (0, 0), ready=True, holdings=[], wait_s=0))
        await coordinator.set_plan(WorkerPlan(2, {}, [], paused=False, complete=True))
        told = coordinator.status().timeline
        assert [(e.number, e.at_s, e.kind, e.text) for e in told] == [
            (1, 1_000.0, "rebalance", "generation 4 is there after 1.2 s"),
            (2, 1_000.0, "move", "w gives up t-0, t-1: worker died"),
        ]
        assert [e.number for e in coordinator.status(partitions=False, known=1).timeline] == [2]
        assert [p.leader for p in coordinator.status().partitions] == [10, 11]
        assert [(p.state, p.reason) for p in coordinator.status().partitions] == [("free", "no worker")] * 2

    asyncio.run(scenario())


def test_latency_and_heartbeats_are_told_and_what_the_dead_have_counted_stays():
    async def scenario():
        coordinator, _ = await made(None)
        await coordinator.poll(Report("w", (0, 0), ready=True, holdings=[], wait_s=0, latency={3: 7, 5: 1}))
        assert coordinator.status().latency == {3: 7, 5: 1}
        await coordinator.set_plan(WorkerPlan(2, {"x": 1.0}, [], paused=False, complete=True))
        await coordinator.poll(Report("x", (0, 0), ready=True, holdings=[], wait_s=0, latency={3: 2}))
        assert coordinator.status().latency == {3: 9, 5: 1}
        assert coordinator.status().group.heartbeat_age_s == 1.0

    asyncio.run(scenario())


def test_lag_in_seconds_and_moves_are_told():
    async def scenario():
        tally = Tally()
        coordinator, member = await made(None, tally)
        member.assignment = frozenset({P0})
        member.answer.set()
        await coordinator.on_partitions_assigned(member.assignment)
        await coordinator.poll(Report("w", (0, 0), ready=True, holdings=[], wait_s=0))
        orders = await coordinator.poll(Report("w", (0, 0), ready=True, holdings=[], wait_s=0))
        (grant,) = orders.grants
        for moment, end in ((1.0, 100), (11.0, 200)):
            coordinator._job.clock = lambda moment=moment: moment
            holding = HeldReport(P0, grant.epoch, processed=100, position=100, end=end, blocked="buffer full")
            await coordinator.poll(Report("w", orders.version, ready=True, holdings=[holding], wait_s=0))
        (status,) = coordinator.status().partitions
        assert (status.lag, status.lag_seconds, status.reason) == (100, 10.0, "buffer full")
        await coordinator.set_plan(WorkerPlan(2, {}, [], paused=False, complete=True))
        (moves,) = tally.state().counts
        assert (moves.name, dict(moves.attributes), moves.value) == (
            "kafka_actors.partition.moves",
            {"group": "g", "cause": "worker_died"},
            1,
        )

    asyncio.run(scenario())


def test_drains_are_counted_by_how_they_ended_and_a_forced_one_is_told():
    async def scenario():
        tally, told = Tally(), []
        coordinator, _ = await made(None, tally, events=told.append)
        ends = [DrainEnd(P0, "w", "released"), DrainEnd(P1, "w", "released"), DrainEnd(P1, "w", "forced")]
        coordinator._job.placement.poll = lambda now: Ready(events=tuple(ends))
        coordinator._job.poll()
        counts = {dict(p.attributes)["outcome"]: p.value for p in tally.state().counts}
        assert {p.name for p in tally.state().counts} == {"kafka_actors.partition.drains"}
        assert counts == {"released": 2, "forced": 1}
        assert told == [DrainForced(*P1, "w")]

    asyncio.run(scenario())


async def granted(coordinator, member, *partitions):
    """Has the group give these partitions, and the worker take them. Returns its orders."""
    member.assignment = frozenset(partitions)
    member.answer.set()
    await coordinator.on_partitions_assigned(member.assignment)
    await coordinator.poll(Report("w", (0, 0), ready=True, holdings=[], wait_s=0))
    return await coordinator.poll(Report("w", (0, 0), ready=True, holdings=[], wait_s=0))


def test_where_logs_begin_and_who_is_in_the_group_is_asked_for_only_while_the_job_is_measured():
    wanted = []

    async def starts(partitions):
        wanted.append(set(partitions))
        return {P0: 40}

    async def scenario():
        coordinator, member = await made(None, lookup_starts=starts)
        await granted(coordinator, member, P0)
        await turns(20)
        status = coordinator.status()
        assert (wanted, member.asked) == ([], 0)
        assert ([p.start for p in status.partitions], status.group.members) == ([None], None)

        await coordinator.set_plan(WorkerPlan(2, {"w": 1.0}, [], paused=False, complete=True, measured=True))
        await turns(20)
        status = coordinator.status()
        assert (wanted, member.asked) == ([{P0}], 1)
        assert ([p.start for p in status.partitions], status.group.members) == ([40], 3)

        member.assignment = frozenset({P0, P1})
        await coordinator.on_partitions_assigned(frozenset({P1}))
        await turns(20)
        assert (wanted, member.asked) == ([{P0}, {P0, P1}], 2), "an assignment is asked about at once"

    asyncio.run(scenario())


def test_lag_in_seconds_follows_the_ends_that_were_asked_for_while_full_buffers_fetch_nothing():
    """The worker's own knowledge of the end stays at 100: it fetches nothing more."""
    ends = {P0: 100}
    asked = []

    async def ask(partitions):
        asked.append(1)
        return dict(ends)

    async def scenario():
        coordinator, member = await made(None, lookup_ends=ask)
        orders = await granted(coordinator, member, P0)
        (grant,) = orders.grants
        await coordinator.set_plan(
            WorkerPlan(2, {"w": 1.0}, [], paused=False, complete=True, ends_every_s=0.0)
        )
        for moment, end in ((1.0, 100), (11.0, 100), (21.0, 200)):
            coordinator._job.clock = lambda moment=moment: moment
            ends[P0] = end
            before = len(asked)
            await turns_until(lambda before=before: len(asked) >= before + 2)
            holding = HeldReport(P0, grant.epoch, processed=100, position=100, end=100, blocked="buffer full")
            await coordinator.poll(Report("w", orders.version, ready=True, holdings=[holding], wait_s=0))
        (status,) = coordinator.status().partitions
        assert (status.end, status.lag, status.lag_seconds) == (200, 100, 10.0)
        coordinator._job.tasks.cancel()

    asyncio.run(scenario())


@pytest.mark.parametrize("ends", [{P0: 100}, {}], ids=["asked", "fetched"])
def test_an_end_is_never_shown_below_what_was_read_or_committed(ends):
    """Ends are asked for now and then; reports and commits come in between, each in its own time."""

    async def ask(partitions):
        return ends

    async def scenario():
        coordinator, member = await made(None, lookup_ends=ask)
        orders = await granted(coordinator, member, P0)
        (grant,) = orders.grants
        await coordinator.set_plan(
            WorkerPlan(2, {"w": 1.0}, [], paused=False, complete=True, ends_every_s=60.0)
        )
        await turns(20)

        async def shown(**holding):
            held = HeldReport(P0, grant.epoch, end=100, **holding)
            await coordinator.poll(Report("w", orders.version, ready=True, holdings=[held], wait_s=0))
            (status,) = coordinator.status().partitions
            return status.committed, status.end, status.lag, status.lag_seconds

        assert await shown(processed=90, position=95) == (None, 100, 10, 0.0)
        assert await shown(processed=90, position=110) == (None, 110, 20, 0.0)
        await coordinator.commit(CommitRequest("w", 1, [CommitEntry(P0, grant.epoch, 130)]))
        (status,) = coordinator.status().partitions
        assert (status.committed, status.end, status.lag) == (130, 130, 0), "before the worker's next report"
        assert await shown(processed=120, position=125) == (130, 130, 0, 0.0)
        assert await shown(processed=135, position=140) == (130, 140, 5, 0.0)

        await coordinator.set_plan(
            WorkerPlan(3, {"v": 1.0}, [], paused=False, complete=True, ends_every_s=60.0)
        )
        await coordinator.poll(Report("v", (0, 0), ready=True, holdings=[], wait_s=0))
        taken = await coordinator.poll(Report("v", (0, 0), ready=True, holdings=[], wait_s=0))
        held = HeldReport(P0, taken.grants[0].epoch, processed=130, position=130)
        await coordinator.poll(Report("v", taken.version, ready=True, holdings=[held], wait_s=0))
        (status,) = coordinator.status().partitions
        assert (status.committed, status.end, status.lag) == (130, 140, 10), (
            "what the one before had read is there"
        )
        coordinator._job.tasks.cancel()

    asyncio.run(scenario())


def test_a_position_is_never_shown_below_what_was_committed():
    """The broker's answer to a commit arrives before the worker's next report."""

    async def scenario():
        coordinator, member = await made(None)
        orders = await granted(coordinator, member, P0)
        (grant,) = orders.grants

        async def shown(**holding):
            held = HeldReport(P0, grant.epoch, end=200, **holding)
            await coordinator.poll(Report("w", orders.version, ready=True, holdings=[held], wait_s=0))
            (status,) = coordinator.status().partitions
            return status.position, status.committed

        assert await shown(processed=90, position=95) == (95, None)
        await coordinator.commit(CommitRequest("w", 1, [CommitEntry(P0, grant.epoch, 130)]))
        (status,) = coordinator.status().partitions
        assert (status.position, status.committed) == (130, 130), "before the worker's next report"
        assert await shown(processed=120, position=125) == (130, 130), "a report from before the commit"
        assert await shown(processed=135, position=140) == (140, 130)
        assert await shown() == (None, 130), "a worker that doesn't know its position yet"

    asyncio.run(scenario())


def test_what_was_committed_does_not_say_that_there_is_no_more():
    async def scenario():
        coordinator, member = await made(None)
        member.committed = {P0: OffsetAndMetadata(30, "", 2)}
        (grant,) = (await granted(coordinator, member, P0)).grants
        (status,) = coordinator.status().partitions
        assert (status.committed, status.end, status.lag) == (30, None, None)
        holding = HeldReport(P0, grant.epoch, processed=30, position=30)
        await coordinator.poll(Report("w", (9, 9), ready=True, holdings=[holding], wait_s=0))
        (status,) = coordinator.status().partitions
        assert (status.position, status.end, status.lag) == (30, None, None)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("bound", "log_end", "fetched", "stalled"),
    [
        (None, 9, 5, True),
        (None, 5, 5, False),
        (None, 3, 9, True),
        (5, 9, 9, False),
        (7, 9, 9, True),
    ],
    ids=["nothing-is-fetched", "nothing-to-fetch", "asked-earlier", "read-to-its-bound", "bounded"],
)
def test_a_stall_is_seen_by_where_the_log_ends_not_by_what_was_fetched_of_it(
    bound, log_end, fetched, stalled
):
    events = []

    async def ask(partitions):
        return dict.fromkeys(partitions, log_end)

    async def scenario():
        ends = None if bound is None else {P0: bound}
        coordinator, member = await made(ends, lookup_ends=ask, events=events.append)
        orders = await granted(coordinator, member, P0)
        (grant,) = orders.grants
        await turns(20)
        for second in (1.0, 301.0):
            coordinator._job.clock = lambda second=second: second
            held = HeldReport(P0, grant.epoch, processed=5, position=5, end=fetched)
            await coordinator.poll(Report("w", orders.version, ready=True, holdings=[held], wait_s=0))
        coordinator._job.tasks.cancel()

    asyncio.run(scenario())
    stalls = [event for event in events if isinstance(event, PartitionStalled)]
    assert stalls == [PartitionStalled("t", 0, 300.0, "no progress")] * stalled


def test_a_commit_without_an_answer_is_not_sent_again_once_its_partition_was_elsewhere(monkeypatch):
    monkeypatch.setattr(coordinator_module, "COMMIT_GRACE_S", 0.01)
    sent, no_answer = [], asyncio.Event()

    async def commit(offsets):
        sent.append({partition: committed.offset for partition, committed in offsets.items()})
        if len(sent) == 1:
            await no_answer.wait()
            raise DisconnectedError("no answer")
        return dict.fromkeys(offsets)

    async def scenario():
        coordinator, member = await made(None)
        epochs = {g.partition: g.epoch for g in (await granted(coordinator, member, P0, P1)).grants}
        member.commit_offsets_sync = commit
        first = asyncio.ensure_future(
            coordinator.commit(CommitRequest("w", 1, [CommitEntry(P0, epochs[P0], 5)]))
        )
        await turns_until(lambda: sent)
        await coordinator.on_partitions_revoked(frozenset({P0}), 0.0)
        no_answer.set()
        assert (await first).committed == []
        member.committed = {P0: OffsetAndMetadata(9, "", -1)}
        await coordinator.on_partitions_assigned(frozenset({P0}))
        await coordinator.commit(CommitRequest("w", 2, [CommitEntry(P1, epochs[P1], 3)]))
        assert sent == [{P0: 5}, {P1: 3}]

    asyncio.run(scenario())


def test_a_stalled_partition_is_told_of_taken_back_and_granted_anew():
    """And the one beside it, which moves, is left alone."""
    events = []

    async def scenario():
        coordinator, member = await made(None, events=events.append)
        orders = await granted(coordinator, member, P0, P1)
        epochs = {grant.partition: grant.epoch for grant in orders.grants}
        stuck = HeldReport(P0, epochs[P0], processed=5, end=9, blocked="backing off: no answer in time")

        async def told(seen, second, *holdings):
            coordinator._job.clock = lambda: second
            return await coordinator.poll(Report("w", seen, ready=True, holdings=[*holdings], wait_s=0))

        def moving(processed):
            return HeldReport(P1, epochs[P1], processed=processed, end=999)

        for second in (1.0, 150.0, 300.9):
            assert (await told(orders.version, second, stuck, moving(int(second)))).hold
        taken = await told(orders.version, 301.0, stuck, moving(301))  # after max_poll_interval_ms
        assert [drain.partition for drain in taken.draining] == [P0]
        assert [grant.partition for grant in taken.grants] == [P1]
        stalls = [event for event in events if isinstance(event, PartitionStalled)]
        assert stalls == [PartitionStalled("t", 0, 300.0, "backing off: no answer in time")]

        again = await told(taken.version, 301.5, moving(301))
        assert again.draining == []
        now = {grant.partition: grant.epoch for grant in again.grants}
        assert now[P0] > epochs[P0]
        assert now[P1] == epochs[P1]

    asyncio.run(scenario())


def test_a_verdict_comes_as_soon_as_something_decides_about_the_job():
    async def decided(by):
        coordinator, member = await made({P0: 5})
        member.assignment = frozenset({P0})
        member.answer.set()
        await coordinator.on_partitions_assigned(member.assignment)
        await coordinator.poll(Report("w", (0, 0), ready=True, holdings=[], wait_s=0))
        orders = await coordinator.poll(Report("w", (0, 0), ready=True, holdings=[], wait_s=0))
        verdict = asyncio.ensure_future(coordinator.verdict(0, 3600.0))
        await turns(20)
        assert not verdict.done()
        await by(coordinator, orders.grants[0])
        await turns_until(verdict.done)
        return verdict.result()

    async def commits(coordinator, grant):
        await coordinator.commit(CommitRequest("w", 1, [CommitEntry(P0, grant.epoch, 5)]))

    async def fails(coordinator, grant):
        await coordinator.poll(Report("w", (0, 0), ready=True, holdings=[], wait_s=0, failed=b"why"))

    async def is_fenced(coordinator, grant):
        coordinator.failed(DisconnectedError("fenced"))

    async def loses_all(coordinator, grant):
        coordinator._job.member.assignment = frozenset()
        await coordinator.on_partitions_lost(frozenset({P0}))
        await coordinator.on_partitions_assigned(frozenset())

    assert asyncio.run(decided(commits)).finished
    assert asyncio.run(decided(fails)).workers["w"].failed == b"why"
    assert asyncio.run(decided(is_fenced)).fatal
    assert asyncio.run(decided(loses_all)).finished


def test_a_verdict_that_nothing_decides_comes_after_its_time_and_without_partitions():
    async def scenario():
        coordinator, member = await made({P0: 5})
        member.assignment = frozenset({P0})
        member.answer.set()
        await coordinator.on_partitions_assigned(member.assignment)
        status = await coordinator.verdict(0, 0.0)
        assert (status.finished, status.partitions) == (False, [])
        assert len(coordinator.status().partitions) == 1

    asyncio.run(scenario())


async def stopped(coordinator, member, processed):
    """A worker has processed so much of P0 and P1 when the job is stopped. Returns the status after."""
    member.assignment = frozenset({P0, P1})
    member.answer.set()
    await coordinator.on_partitions_assigned(member.assignment)
    report = Report("w", (0, 0), ready=True, holdings=[], wait_s=0)
    await coordinator.poll(report)
    orders = await coordinator.poll(report)
    epochs = {grant.partition: grant.epoch for grant in orders.grants}
    holdings = [HeldReport(p, epochs[p], done, position=done) for p, done in processed.items()]
    await coordinator.poll(Report("w", orders.version, ready=True, holdings=holdings, wait_s=0))
    entries = [CommitEntry(p, epochs[p], done) for p, done in processed.items()]
    committing = asyncio.ensure_future(coordinator.commit(CommitRequest("w", 1, entries)))
    await turns(10)
    await coordinator.stop(leave=True)
    committing.cancel()
    return coordinator.status()


@pytest.mark.parametrize("leave", [True, False])
def test_a_stop_leaves_the_group_or_keeps_its_place_as_it_was_told(leave):
    async def scenario():
        coordinator, member = await made(None)
        await coordinator.stop(leave)
        assert member.left is leave

    asyncio.run(scenario())


def test_a_stop_names_the_partitions_whose_last_commits_no_broker_has_confirmed(monkeypatch):
    monkeypatch.setattr(coordinator_module, "COMMIT_GRACE_S", 0.01)

    async def scenario(answers):
        coordinator, member = await made(None, drain_timeout_ms=0)
        member.committed = {P0: OffsetAndMetadata(5, "", -1), P1: OffsetAndMetadata(3, "", -1)}
        if not answers:
            member.commit_offsets_sync = lambda offsets: asyncio.get_running_loop().create_future()
        status = await stopped(coordinator, member, {P0: 5, P1: 7})
        assert member.closed_within_ms <= 3_100, "the whole of it is bounded, not each part"
        return status.unconfirmed

    assert asyncio.run(scenario(answers=False)) == [P1]
    assert asyncio.run(scenario(answers=True)) == []


@pytest.mark.parametrize("joins", [True, False], ids=["joins", "never_joins"])
def test_a_stop_of_a_new_coordinator_drains_what_workers_hold_or_says_that_it_could_not(joins):
    """It has no partitions until it is in the group, and its workers have told what they hold."""

    async def scenario():
        now = 1.0
        plan = WorkerPlan(1, {"w": 1.0}, [], paused=False, complete=True, ready=["w"])
        coordinator, member = await made(None, recovering=True, plan=plan, clock=lambda: now)
        member.committed = {P0: OffsetAndMetadata(5, "", -1)}
        member.answer.set()
        held = [HeldReport(P0, (0, 1), 7, position=7)]
        await coordinator.poll(Report("w", (1, 0), ready=True, holdings=held, wait_s=0))
        stopping = asyncio.ensure_future(coordinator.stop(leave=True))
        await turns(5)
        if joins:
            member.assignment = frozenset({P0})
            await coordinator.on_partitions_assigned(member.assignment)
            await turns_until(lambda: coordinator.status().partitions[0].state == "leaving")
            orders = await coordinator.poll(Report("w", (1, 0), ready=True, holdings=held, wait_s=0))
            (drain,) = orders.draining
            commit = CommitRequest("w", 1, [CommitEntry(P0, drain.epoch, 7)])
            assert (await coordinator.commit(commit)).committed
            await coordinator.poll(Report("w", orders.version, ready=True, holdings=[], wait_s=0))
        else:
            now += 100.0
        await stopping
        assert member.committed[P0].offset == (7 if joins else 5)
        assert coordinator.status().unconfirmed == ([] if joins else [P0])

    asyncio.run(scenario())


def test_a_commit_that_a_later_one_has_overtaken_counts_no_more():
    """It has the same offset, and less that is done beyond it."""

    async def scenario():
        coordinator, member = await made(None)
        member.committed = {P0: OffsetAndMetadata(3, "", 2)}
        member.assignment = frozenset({P0})
        member.answer.set()
        await coordinator.on_partitions_assigned(member.assignment)
        orders = await coordinator.poll(Report("w", (0, 0), ready=True, holdings=[], wait_s=0))
        orders = await coordinator.poll(Report("w", (0, 0), ready=True, holdings=[], wait_s=0))
        epoch, text = orders.grants[0].epoch, DoneOffsets([(7, 9)], 2).text(5)
        assert (
            await coordinator.commit(CommitRequest("w", 2, [CommitEntry(P0, epoch, 5, done=text)]))
        ).committed
        late = await coordinator.commit(CommitRequest("w", 1, [CommitEntry(P0, epoch, 5)]))
        assert (late.committed, [p for p, _ in late.failed]) == ([], [P0])
        assert unpack(coordinator._gate.start_of(P0).metadata).done == text
        zombie = await coordinator.commit(CommitRequest("w", 1, [CommitEntry(P0, (0, 9), 5)]))
        assert (zombie.refused, zombie.failed) == ([P0], []), "it is refused first"

    asyncio.run(scenario())


def test_retry_partitions_go_with_their_source_whatever_the_group_assigns():
    """Another member may be assigned the retry partition of a source partition that is ours, and the other way round."""

    tiers = RetryTopics("r", delays=("1s",), dead_letter_topic="d").tiers("t", ordering="key")
    r0, r1 = TopicPartition("r-1s", 0), TopicPartition("r-1s", 1)

    async def scenario():
        coordinator, member = await made(None, tiers=tiers)
        member.answer.set()
        member.committed = {r0: OffsetAndMetadata(4)}
        member.assignment = frozenset({P0, r1})
        await coordinator.on_partitions_assigned(member.assignment)
        await coordinator.poll(Report("w", (0, 0), True, [], wait_s=0.0))
        await turns(5)
        orders = await coordinator.poll(Report("w", (0, 0), True, [], wait_s=0.0))
        assert {grant.partition: grant.offset for grant in orders.grants} == {P0: None, r0: 4}
        assert r1 in coordinator.reads(), "somebody else reads it"
        assert coordinator.commits(member.assignment) == {P0, r0}, "and commits it"
        (epoch,) = {grant.epoch for grant in orders.grants}
        reply = await coordinator.commit(CommitRequest("w", 1, [CommitEntry(r0, epoch, 5)]))
        assert [(entry.partition, entry.offset) for entry in reply.committed] == [(r0, 5)]
        assert {p.topic for p in coordinator.status().partitions} == {"t", "r-1s"}
        await coordinator.on_partitions_revoked(frozenset({r1}), 0.1)
        assert coordinator._placement.slices.sources() == {P0}
        await coordinator.on_partitions_lost(member.assignment)
        assert coordinator._gate.committed == {}
        await coordinator.stop(leave=True)

    asyncio.run(scenario())


def test_text_of_what_is_done_that_cant_be_read_is_told_of():
    """Records that were done beyond the offset come again, which nobody would know of else."""
    told: list[object] = []

    async def scenario():
        coordinator, member = await made(None, events=told.append)
        starts = {
            P0: CommittedStart(7, counts=True, done="3.q????"),
            P1: CommittedStart(8, counts=True, done=DoneOffsets([(9, 11)], 3).text(8)),
        }

        async def fetch_committed_starts(partitions):
            return starts

        member.fetch_committed_starts = fetch_committed_starts
        await coordinator.on_partitions_assigned(frozenset(starts))
        reason = "what the commit's metadata says of them can't be read"
        assert [e for e in told if isinstance(e, DoneOffsetsDropped)] == [
            DoneOffsetsDropped("t", 0, 7, reason)
        ]
        assert coordinator._job.committed_starts == starts
        await coordinator.on_partitions_lost(frozenset(starts))
        await coordinator.stop(leave=True)

    asyncio.run(scenario())


def test_a_partition_whose_retry_partitions_are_missing_is_told_of():
    """The source has grown behind its retry topics: which keys wait can't be read, so nothing of it is."""
    tiers = RetryTopics("r", delays=("1s",), dead_letter_topic="d").tiers("t", ordering="key")
    numbers, told = {"t": 2, "r-1s": 1}, []

    async def scenario():
        coordinator, member = await made(
            None, tiers=tiers, partition_counts=lambda: numbers, events=told.append
        )
        member.answer.set()
        member.assignment = frozenset({P0, P1, R0})
        await coordinator.on_partitions_assigned(member.assignment)
        assert coordinator.reads() == {P0, R0}
        await coordinator.poll(Report("w", (0, 0), True, [], wait_s=0.0))
        coordinator.happened(PartitionNotRead("t", 1, 30.0, "nobody knows why"))
        coordinator.happened(PartitionNotRead("t", 0, 30.0, "no answer yet"))
        reasons = [event.reason for event in told if isinstance(event, PartitionNotRead)]
        assert reasons[0].startswith("r-1s-1 is missing: ")
        assert reasons[1] == "no answer yet"
        shown = {(p.topic, p.partition): p.reason for p in coordinator.status().partitions}
        assert shown == {("t", 0): "", ("t", 1): reasons[0], ("r-1s", 0): "", ("r-1s", 1): reasons[0]}
        numbers["r-1s"] = 2
        assert coordinator.reads() == {P0, P1, R0}
        await coordinator.on_partitions_lost(member.assignment)
        await coordinator.stop(leave=True)

    asyncio.run(scenario())


def test_what_is_lost_while_newer_metadata_is_asked_for_is_not_committed():
    """It would come behind the start of who has the partition next."""

    async def scenario():
        sent, answered = [], asyncio.Event()

        async def learn(offsets):
            assert list(offsets) in ([P0], [])
            await answered.wait()

        coordinator, member = await made(None)
        epoch = (await granted(coordinator, member, P0)).grants[0].epoch
        member.learn_topic_ids, commit = learn, member.commit_offsets_sync
        member.commit_offsets_sync = lambda offsets: sent.append(offsets) or commit(offsets)
        entry = CommitEntry(P0, epoch, 5, topic_id=b"n" * 16)
        asked = asyncio.ensure_future(coordinator.commit(CommitRequest("w", 1, [entry])))
        await turns(5)
        await coordinator.on_partitions_lost(frozenset({P0}))
        answered.set()
        assert (await asked).committed == []
        assert sent == []

    asyncio.run(scenario())


def test_a_reset_that_only_a_commit_has_told_is_where_its_partition_is_at_a_stop():
    """A report from before it says more, of records that are gone."""

    async def scenario(**reset):
        coordinator, member = await made(None, drain_timeout_ms=0)
        member.committed = {P0: OffsetAndMetadata(5, "", -1)}
        epoch = (await granted(coordinator, member, P0)).grants[0].epoch
        holding = HeldReport(P0, epoch, 90, topic_id=b"o" * 16)
        await coordinator.poll(Report("w", (1, 1), True, [holding], wait_s=0))
        entry = CommitEntry(P0, epoch, 0, **reset)
        assert (await coordinator.commit(CommitRequest("w", 1, [entry]))).committed == [entry]
        await coordinator.stop(leave=True)
        return coordinator.status().unconfirmed

    assert asyncio.run(scenario(topic_id=b"o" * 16, rewind=True)) == []
    assert asyncio.run(scenario(topic_id=b"n" * 16, rewind=True)) == []


@pytest.mark.parametrize(
    ("error", "gone"),
    [(TopicRecreatedError("t", 0, 5, "o", "n"), True), (DisconnectedError("no answer"), False)],
)
def test_a_worker_is_told_that_a_commit_is_of_a_topic_that_is_gone(error, gone):
    async def scenario():
        coordinator, member = await made(None)
        epoch = (await granted(coordinator, member, P0)).grants[0].epoch
        member.refuses = error
        entry = CommitEntry(P0, epoch, 5, topic_id=b"o" * 16)
        reply = await coordinator.commit(CommitRequest("w", 1, [entry]))
        assert (reply.committed, reply.gone) == ([], [entry] if gone else [])

    asyncio.run(scenario())


def test_what_was_committed_in_the_topic_before_says_nothing_of_the_one_of_now():
    """Not where a partition is, not that a bounded run is over, nor that a call is past in which workers died."""

    async def scenario():
        coordinator, member = await made({P0: 5})
        member.committed = {P0: OffsetAndMetadata(9, pack("", b"o" * 16), -1)}
        grant = (await granted(coordinator, member, P0)).grants[0]
        died = DeathsInCall(P0, 2, 7, 1, "SIGKILL")
        await coordinator.set_plan(
            WorkerPlan(2, {"w": 1.0}, [], paused=False, complete=True, ready=["w"], died=[died])
        )
        await coordinator.poll(Report("w", (1, 1), True, [HeldReport(P0, grant.epoch, 9)], wait_s=0))
        assert coordinator.status().passed == [died]
        coordinator.recreated(frozenset([P0]))
        await coordinator.poll(
            Report("w", (1, 1), True, [HeldReport(P0, grant.epoch, 3, position=3)], wait_s=0)
        )
        status = coordinator.status()
        assert (status.passed, status.finished) == ([], False)
        assert [(p.worker, p.position, p.committed) for p in status.partitions] == [("w", 3, None)]
        orders = await coordinator.poll(Report("w", (1, 0), True, [HeldReport(P0, grant.epoch, 3)], wait_s=0))
        assert [each.epoch for each in orders.grants] == [grant.epoch], "its worker keeps it"

    asyncio.run(scenario())


def test_what_workers_share_of_a_topic_that_was_made_anew_begins_with_one_of_them():
    async def scenario():
        plan = WorkerPlan(1, {"worker-0.1": 1.0, "worker-1.1": 1.0}, [], paused=False, complete=True)
        coordinator, member = await made(None, plan=plan, ordering="key")
        member.committed, member.assignment = (
            {P0: OffsetAndMetadata(9, pack("", b"o" * 16), -1)},
            frozenset([P0]),
        )
        member.answer.set()
        for worker in plan.capacities:
            await coordinator.poll(Report(worker, (1, 0), True, [], wait_s=0))
        await coordinator.on_partitions_assigned(member.assignment)
        shares = [placed.worker for placed in coordinator._placement.partitions.values()]
        assert sorted(shares) == list(plan.capacities)
        coordinator.recreated(frozenset([P0]))
        assert len(coordinator._placement.partitions) == 2, "workers that have not heard of it may call on"
        for worker in plan.capacities:
            await coordinator.poll(Report(worker, (1, 99), True, [], wait_s=0))
        assert list(coordinator._placement.partitions) == [P0]
        await coordinator.on_partitions_revoked(frozenset([P0]), 0.0)
        coordinator.recreated(frozenset([P0]))
        assert list(coordinator._placement.partitions) == [], "it is not the job's any more"

    asyncio.run(scenario())


async def sharing_with_retry_partitions():
    """Two workers that share a partition and its retry partition. Returns their grants, too."""
    tiers = RetryTopics("r", delays=("1s",), dead_letter_topic="d").tiers("t", ordering="key")
    plan = WorkerPlan(1, {"worker-0.1": 1.0, "worker-1.1": 1.0}, [], paused=False, complete=True)
    coordinator, member = await made(None, plan=plan, ordering="key", tiers=tiers)
    member.committed = {p: OffsetAndMetadata(9, pack("", b"o" * 16), -1) for p in (P0, R0)}
    member.assignment = frozenset([P0, R0])
    member.answer.set()
    for worker in plan.capacities:
        await coordinator.poll(Report(worker, (1, 0), True, [], wait_s=0))
    await coordinator.on_partitions_assigned(member.assignment)
    grants = {}
    for worker in plan.capacities:
        orders = await coordinator.poll(Report(worker, (0, 0), True, [], wait_s=0))
        grants |= {(worker, grant.partition): grant for grant in orders.grants}
    assert [grant.parts for grant in grants.values()] == [2] * 4
    return coordinator, member, grants


def test_others_of_a_retry_partition_begin_where_a_slice_of_it_was_reset():
    async def scenario():
        coordinator, _, grants = await sharing_with_retry_partitions()
        own, other = grants["worker-0.1", R0].epoch, grants["worker-1.1", R0].epoch
        reset = CommitEntry(R0, own, 0, rewind=True, topic_id=b"n" * 16)
        assert (await coordinator.commit(CommitRequest("worker-0.1", 1, [reset]))).committed == [reset]
        await turns(5)
        late = CommitEntry(R0, other, 50, 3, topic_id=b"o" * 16)
        reply = await coordinator.commit(CommitRequest("worker-1.1", 1, [late]))
        assert reply.refused == [R0], "it has another epoch"
        assert [told.offset for told in coordinator._gate.slices_done(R0)] == [0]

    asyncio.run(scenario())


def test_what_workers_share_begins_with_one_of_them_where_its_retry_topic_was_made_anew():
    async def scenario():
        coordinator, _, _ = await sharing_with_retry_partitions()
        coordinator.recreated(frozenset([R0]))
        for worker in ("worker-0.1", "worker-1.1"):
            await coordinator.poll(Report(worker, (1, 99), True, [], wait_s=0))
        assert coordinator._placement.slices.of(P0) == [P0]
        assert set(coordinator._gate.committed) == {P0}, "its own offset counts on"

    asyncio.run(scenario())


def test_a_worker_is_told_that_a_commit_is_of_a_retry_topic_that_is_gone():
    async def scenario():
        coordinator, member, grants = await sharing_with_retry_partitions()
        member.refuses = TopicRecreatedError("r-1s", 0, 5, "o", "n")
        entry = CommitEntry(R0, grants["worker-0.1", R0].epoch, 10, topic_id=b"o" * 16)
        reply = await coordinator.commit(CommitRequest("worker-0.1", 1, [entry]))
        assert (reply.committed, reply.gone) == ([], [entry])

    asyncio.run(scenario())


def test_a_reset_that_is_told_twice_takes_nothing_from_others_again():
    """The answer to the first one was lost on its way."""

    async def scenario():
        coordinator, _, grants = await sharing_with_retry_partitions()
        reset = CommitEntry(P0, grants["worker-0.1", P0].epoch, 0, rewind=True, topic_id=b"o" * 16)
        await coordinator.commit(CommitRequest("worker-0.1", 1, [reset]))
        await turns(5)
        await coordinator.poll(Report("worker-1.1", (1, 99), True, [], wait_s=0))
        orders = await coordinator.poll(Report("worker-1.1", (0, 0), True, [], wait_s=0))
        (grant,) = [grant for grant in orders.grants if grant.partition == P0]
        own = CommitEntry(P0, grant.epoch, 30, topic_id=b"o" * 16)
        assert (await coordinator.commit(CommitRequest("worker-1.1", 1, [own]))).committed == [own]
        again = await coordinator.commit(CommitRequest("worker-0.1", 2, [reset]))
        assert again.committed == [reset]
        await turns(5)
        assert coordinator._gate.start_of(slice_of(P0, grant.part, 2)).offset == 30

    asyncio.run(scenario())

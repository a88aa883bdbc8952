"""Coordinator's side of transactions: fences and offsets are asked for, and a worker is told as whom it may commit."""

import asyncio
from types import SimpleNamespace

import pytest
from fakes.loop import in_loop
from waiting import slow_s

import assignors
from kafka_actors.base.tasks import OwnedTasks
from kafka_actors.events import TransactionAborted
from kafka_actors.group import CommittedStart
from kafka_actors.job.coordinator import transactions
from kafka_actors.job.coordinator.machines.commit_gate import CommitGate
from kafka_actors.job.coordinator.machines.placement import Placement
from kafka_actors.job.coordinator.machines.settlement import Settlement
from kafka_actors.job.coordinator.transactions import JobTransactions
from kafka_actors.job.messages import CommitEntry, CommitRequest, Report
from kafka_actors.job.transactions import TransactionalIds, TransactionReport, added
from kafka_actors.types import ConsumerGroupMetadata, ProducerIdentity, TopicPartition

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
IDS = TransactionalIds("g-n", 60_000, named=True)


class Scene:
    """A coordinator's parts around `JobTransactions`, with brokers that answer at once. It is its own member and brokers."""

    group_id, group_instance_id = "g", "g-n"

    def __init__(self, *, recovering=False, roles=0, ids=IDS, lists=(), unstable=()):
        self.settlement = Settlement(1)
        self.placement = Placement(1, assignors.get("sticky"), 5.0, self.settlement)
        self.gate = CommitGate(self.placement.holder)
        self.committed_starts, self.reports, self.events = {}, {}, []
        self.generation, self.member_id, self.losing = 7, "m-1", False
        self.seen, self.lists, self.unstable = [], list(lists), set(unstable)
        self.tasks = OwnedTasks(self.events.append)
        self.member = self
        self.now = 0.0
        self.stable = asyncio.Event()
        self.transactions = JobTransactions(self, self.settlement, ids, self)
        self.placement.set_worker("worker-0.1")
        self.placement.worker_ready("worker-0.1")
        self.transactions.start(roles, recovering)

    def clock(self):
        return self.now

    def poll(self):
        self.placement.poll(self.now)
        for action in self.settlement.poll(self.now).actions:
            self.transactions.carry_out(action)

    def wake(self):
        self.seen.append("woken")

    def happened(self, event):
        self.events.append(event)

    async def fence(self, transactional_id, timeout_ms):
        self.seen.append((transactional_id, timeout_ms))
        return ProducerIdentity(transactional_id, 5, len(self.seen))

    async def transactional_ids(self):
        self.now += 1.0
        return (set(), True) if not self.lists else self.lists.pop(0)

    async def fetch_committed_starts(self, partitions):
        if self.unstable & set(partitions):
            await self.stable.wait()
        self.seen.append(sorted(partitions))
        return {p: CommittedStart(40 + p.partition) for p in partitions}

    async def until(self, holds):
        async with asyncio.timeout(slow_s(10)):
            while not holds():
                self.poll()
                await asyncio.sleep(0)

    def held(self):
        return {s.partition for s in self.placement.partitions.values() if s.worker}

    def entry(self, partition, offset=50):
        return CommitEntry(partition, self.placement.holder("worker-0.1", partition) or (0, 0), offset)

    def asks(self, *entries, session=None, **more):
        own = self.settlement.session_of("worker-0.1")
        request = CommitRequest(
            "worker-0.1", 1, list(entries), session=session or (own and own.session), **more
        )
        return self.transactions.commit(request)


async def running(**options):
    scene = Scene(**options)
    scene.placement.assign([P0, P1])
    await scene.until(lambda: scene.held() == {P0, P1})
    return scene


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(transactions, "RELIST_S", 0)


@in_loop
async def test_a_role_is_fenced_and_its_partitions_begin_at_their_stable_offsets():
    scene = await running()
    assert scene.seen.index(("g-n-worker-0", 60_000)) >= 0
    assert {p: s.offset for p, s in scene.committed_starts.items()} == {P0: 40, P1: 41}


@in_loop
async def test_what_an_earlier_start_left_is_fenced_once_all_brokers_have_answered():
    scene = Scene(lists=[({"other-worker-1"}, False), ({"g-n-worker-4", "g-other-worker-9"}, True)])
    scene.placement.assign([P0])
    await scene.until(lambda: scene.held() == {P0})
    fences = [seen for seen in scene.seen if isinstance(seen, tuple)]
    assert sorted(name for name, _ in fences) == ["g-n-worker-0", "g-n-worker-4"]
    assert scene.seen.index(("g-n-worker-4", 60_000)) < scene.seen.index([P0])


@in_loop
async def test_brokers_that_do_not_answer_hold_up_a_start_for_a_while_only():
    scene = Scene(lists=[(set(), False)] * 100)
    scene.placement.assign([P0])
    await scene.until(lambda: scene.held() == {P0})
    assert scene.now > transactions.LIST_S


@in_loop
async def test_a_new_incarnation_fences_all_roles_that_there_were_and_nobody_has():
    ids = TransactionalIds("g-x", 60_000, named=False)
    scene = Scene(recovering=True, roles=3, ids=ids)
    scene.placement.assign([P0])
    await scene.until(lambda: scene.held() == {P0})
    assert sorted(seen[0] for seen in scene.seen if isinstance(seen, tuple)) == [
        "g-x-worker-0",
        "g-x-worker-1",
        "g-x-worker-2",
    ]


@in_loop
async def test_a_partition_that_is_not_stable_holds_up_no_other(monkeypatch):
    monkeypatch.setattr(transactions, "TOGETHER_S", 0.05)
    scene = Scene(unstable=[P1])
    scene.placement.assign([P0, P1])
    await scene.until(lambda: scene.held() == {P0})
    assert scene.settlement.reason(P1) == "waits for stable offsets"
    scene.unstable.clear()
    scene.stable.set()
    await scene.until(lambda: scene.held() == {P0, P1})


@in_loop
async def test_a_worker_may_commit_what_it_holds_as_the_member_that_the_job_is_now():
    scene = await running()
    reply = scene.asks(scene.entry(P0), scene.entry(P1))
    assert reply.group == ConsumerGroupMetadata("g", 7, "m-1", "g-n")
    assert reply.refused == []
    scene.generation = 8
    assert scene.asks(scene.entry(P0)).group.generation_id == 8


@pytest.mark.parametrize("lack", [{"generation": -1}, {"member_id": ""}, {"losing": True}])
@in_loop
async def test_without_a_membership_nobody_may_commit(lack):
    """Offsets without a generation would be taken from anybody."""
    scene = await running()
    vars(scene).update(lack)
    reply = scene.asks(scene.entry(P0))
    assert reply.group is None
    assert [partition for partition, _ in reply.failed] == [P0]


@in_loop
async def test_partitions_of_others_and_outdated_sessions_are_refused():
    scene = await running()
    old = CommitEntry(P0, (1, 0), 50)
    assert scene.asks(old, scene.entry(P1)).refused == [P0]
    assert scene.asks(scene.entry(P0), session=(0, 9)).refused == [P0]


@in_loop
async def test_what_was_committed_is_known_afterwards_and_late_news_lowers_nothing():
    scene = await running()
    for offset in (60, 55):
        assert scene.asks(scene.entry(P0, offset), done=True).committed
    assert scene.gate.start_of(P0).offset == 60
    assert scene.asks(CommitEntry(P0, (1, 0), 99), done=True).refused == [P0]
    assert scene.gate.start_of(P0).offset == 60


@pytest.mark.parametrize(
    ("opened", "told", "aborted"),
    [(2.0, [TransactionAborted("worker-0.1", "it died with its transaction open", 12)], 3), (None, [], 2)],
    ids=["open", "none"],
)
@in_loop
async def test_the_open_transaction_of_a_worker_that_died_counts_as_aborted(opened, told, aborted):
    scene = await running()
    session = scene.settlement.session_of("worker-0.1").session
    last = TransactionReport(
        session,
        committed=5,
        aborted=2,
        repeated=4,
        open_s=opened,
        open_records=12 if opened else 0,
        ago_s=0.5,
    )
    after = scene.transactions.died("worker-0.1", last)
    assert scene.events == told
    assert (after.open_s, after.committed, after.aborted) == (None, 5, aborted)
    assert after.repeated == (16 if opened else 4)
    assert added([after]).open_s is None, "an open transaction would be shown for ever"


@in_loop
async def test_a_transaction_that_failed_is_told_once_and_takes_all_partitions():
    scene = await running()
    session = scene.settlement.session_of("worker-0.1").session
    failed = TransactionReport(failed=session, cause="fenced", lost=12)
    report = Report("worker-0.1", (1, 1), True, [], transactions=failed)
    for _ in range(2):
        scene.transactions.reported(report)
    assert scene.events == [TransactionAborted("worker-0.1", "fenced", 12)]
    assert scene.held() == set()
    await scene.until(lambda: scene.held() == {P0, P1})
    scene.transactions.reported(report)  # of the session before
    assert scene.held() == {P0, P1}


def test_transactions_of_workers_are_added_up():
    one = TransactionReport(
        failed=(1, 2), cause="old", committed=3, aborted=1, repeated=5, open_s=0.5, ago_s=2.0
    )
    two = TransactionReport(failed=(1, 4), cause="new", committed=4, aborted=1, repeated=1, open_s=1.5)
    total = added([one, two, TransactionReport()])
    assert (total.committed, total.aborted, total.repeated, total.cause) == (7, 2, 6, "new")
    assert (total.open_s, total.ago_s) == (1.5, 2.0)
    assert SimpleNamespace(x=added([])).x == TransactionReport()

"""Scenario `group`: members (`AsyncConsumer`) and producers (`AsyncProducer`) of one group on a fake cluster, under faults.

For some seconds of the virtual clock, fifteen at most, there are faults; then all is healed, and the group has to settle: all records are read, each partition
is owned by one member, and what was read is committed. `group_checks.py` has the promises.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from random import Random
from typing import Any

from kafka_actors import AsyncConsumer, ConsumerRebalanceListener
from kafka_actors.errors import KafkaActorsError
from kafka_actors.types import TopicPartition

from .group_checks import REQUEST_TIMEOUT_S, GroupChecks, Place
from .group_faults import FAULTS_UNTIL_S, FaultHands, schedule_of
from .group_writer import CALL_S, CLOSE_GRACE_S, SLACK_S, Writer
from .read_watch import ReadWatch
from .schedule import Outcome, Schedule
from .transactional_writer import TransactionalWriter
from .world import Simulation, without_gc

__all__ = ["run", "schedule_of"]

SETTLES_WITHIN_S = 90.0
ASSIGNORS = (["range"], ["roundrobin"], ["sticky"], ["cooperative-sticky"], ["cooperative-sticky", "range"])
SESSION_S = 6.0
ZOMBIE_S = 1.5
"""Seconds after the end of its session within which a member that brokers hear nothing of gives up its partitions."""
POLL_S = 1.0
CLOSE_S = 10.0
UNREAD_S = 8.0
"""Seconds for which an owned partition may be unread without a reason: two requests that get no answer."""
SMALL_BUFFER = 600
ONE_RESPONSE = 1_500
"""Bytes that the largest response of this scenario has, and more."""


class Plan:
    """A seed's choices."""

    def __init__(self, seed: int) -> None:
        random = Random(f"plan {seed}")
        self.brokers = random.choice([2, 3])
        self.topics = {f"t{number}": random.randint(1, 3) for number in range(1, random.randint(2, 3))}
        self.members = random.randint(2, 4)
        self.producers = random.randint(1, 2)
        self.assignors = random.choice(ASSIGNORS)
        self.static = random.random() < 0.3
        self.auto_commit = random.random() < 0.6
        self.pace_s = random.choice([0.3, 0.8])
        self.work_s = random.choice([0.0, 0.05, 0.3])
        # Before 3.2 brokers don't tell a static member that comes back that it leads (KAFKA-13435): nobody would look for new partitions.
        self.release = random.choice(["3.9", "4.1", "4.1"] if self.static else ["2.8", "3.9", "4.1", "4.1"])
        self.buffer = Random(f"buffer {seed}").choice([2**26, 2**26, SMALL_BUFFER])


class Member(ConsumerRebalanceListener):
    """One member, which joins again when it was killed, left, or failed. `client` is its present life."""

    def __init__(self, run: GroupRun, name: str) -> None:
        self.name = name
        self.client = ""
        self.running = False
        self.stall_s = 0.0
        self.stalls = False
        """Whether its user does something else than to poll, and is told of lost partitions only in its next poll."""
        self.seek_back = 0
        self.stopping = False
        self.task: asyncio.Task[Any] | None = None
        self._run = run
        self._lives = 0
        self._consumer: AsyncConsumer | None = None
        self._uncommitted = False
        self._watch = ReadWatch(UNREAD_S)

    @property
    def assignment(self) -> set[TopicPartition]:
        """The partitions that it owns."""
        return set(self._consumer.assignment()) if self._consumer is not None and self.running else set()

    def begin(self) -> None:
        """Starts its next life."""
        if not self.running and not self._run.ending:
            self._lives += 1
            self.client = f"{self.name}.{self._lives}"
            self.running, self.stopping = True, False
            self._consumer = None
            self.task = self._run.world.start(self.client, self._live())

    async def _live(self) -> None:
        run, plan = self._run, self._run.plan
        while not self.stopping:
            consumer = self._consumer = AsyncConsumer(
                run.topics,
                group_id=run.GROUP,
                client_id=self.client,
                group_instance_id=self.name if plan.static else None,
                bootstrap_servers=run.kafka.bootstrap_servers,
                partition_assignment_strategy=plan.assignors,
                enable_auto_commit=plan.auto_commit,
                auto_commit_interval_ms=1_000,
                auto_offset_reset="earliest",
                on_data_loss="reset",
                session_timeout_ms=int(SESSION_S * 1000),
                heartbeat_interval_ms=1_500,
                max_poll_interval_ms=12_000,
                request_timeout_ms=int(REQUEST_TIMEOUT_S * 1000),
                metadata_max_age_ms=8_000,
                fetch_max_wait_ms=1_000,
                worker_buffer_bytes=plan.buffer,
                isolation_level="read_committed" if run.transactions else "read_uncommitted",
                listener=self,
            )
            try:
                await self._read(consumer)
            except KafkaActorsError as error:
                run.count("errors of consumers")
                run.note_error(self.client, error)
            await run.limited(
                f"close of {self.client}",
                CLOSE_S + CLOSE_GRACE_S,
                consumer.close(timeout_ms=CLOSE_S * 1000),
                self.client,
            )
            await asyncio.sleep(0.5)
        self.running = False

    async def _read(self, consumer: AsyncConsumer) -> None:
        run, plan = self._run, self._run.plan
        in_hand: Place | None = None
        while not self.stopping:
            if in_hand is not None:
                run.checks.finished(in_hand)
                in_hand = None
            poll = consumer.poll_batch(timeout_ms=POLL_S * 1000)
            batch = await run.limited(f"poll of {self.client}", POLL_S + SLACK_S, poll, self.client)
            if batch is not None:
                columns = batch.to_pydict()
                tp = TopicPartition(columns["topic"][0], columns["partition"][0])
                records = list(zip(columns["offset"], columns["value"], strict=True))
                run.count("records read", len(records))
                in_hand = run.checks.delivered(self.client, tp, records)
                self._uncommitted = True
                await asyncio.sleep(plan.work_s)
            if self.stall_s:
                stall_s, self.stall_s, self.stalls = self.stall_s, 0.0, True
                await asyncio.sleep(stall_s)
                self.stalls = False
                self._watch = ReadWatch(UNREAD_S)  # what was unread meanwhile is its user's doing
            if self._uncommitted and not plan.auto_commit:
                if in_hand is not None:
                    run.checks.finished(in_hand)
                await self._commit(consumer)
            if self.seek_back and in_hand is not None:
                run.checks.finished(in_hand)
                await self._seek(consumer, tp, records[-1][0] + 1 - self.seek_back)
                self.seek_back, in_hand = 0, None
            run.check_owners()
            self._check_reading(consumer)

    def _check_reading(self, consumer: AsyncConsumer) -> None:
        """Each partition that it owns is read, or waits for a reason that it tells; what it holds in memory is within its limit."""
        run, now = self._run, self._run.world.loop.time()
        session = consumer._session
        if not session.started:
            return
        fetcher, keys = session.fetcher, set()
        # One that stood still has not asked meanwhile, and the answers to what it had asked are lost perhaps.
        disturbed = run.world.network.disturbed(self.client) or now < run.thawed_at(self.client) + UNREAD_S
        held = fetcher.partitions
        for tp in self.assignment:
            key = self.client, tp
            keys.add(key)
            position = fetcher.position(tp) if tp in held else None
            waits = disturbed or (
                tp in held
                and (
                    tp in fetcher.waiting()
                    or bool(fetcher.reason(tp))
                    or not (position is None or run.checks.readable(tp, position))
                )
            )
            if unread_s := self._watch.overdue(key, position, waits, now):
                run.checks.fail(
                    f"{self.client} owns {tp}, and has neither read it for {unread_s:.1f} s nor says why"
                )
        self._watch.only(keys)
        if fetcher.buffered > run.plan.buffer + ONE_RESPONSE:
            run.checks.fail(f"{self.client} holds {fetcher.buffered} bytes: its limit is {run.plan.buffer}")

    async def _seek(self, consumer: AsyncConsumer, tp: TopicPartition, offset: int) -> None:
        beginning = self._run.kafka.beginning_offsets(tp.topic).get(tp, 0)
        self._run.checks.rewound(tp)
        try:
            await consumer.seek(tp, max(offset, beginning))
        except KafkaActorsError as error:  # it is not assigned any more
            self._run.note_error(self.client, error)
        else:
            self._run.checks.sought(self.client, tp, max(offset, beginning))

    async def _commit(self, consumer: AsyncConsumer) -> None:
        commit = consumer.commit(timeout_ms=CALL_S * 1000)
        try:
            await self._run.limited(f"commit of {self.client}", CALL_S + SLACK_S, commit, self.client)
            self._uncommitted = False
        except KafkaActorsError as error:
            self._run.note_error(self.client, error)

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        self._run.count("assignments")
        self._run.checks.assigned(self.client, partitions)

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        pass


class GroupRun:
    """One run."""

    GROUP = "g"

    def __init__(self, world: Simulation, schedule: Schedule) -> None:
        self.world = world
        self.plan = Plan(schedule.seed)
        self.topics = list(self.plan.topics)
        self.kafka = world.kafka(
            self.plan.brokers, version=self.plan.release, config={"offsets.topic.num.partitions": 3}
        )
        for name, partitions in self.plan.topics.items():
            self.kafka.create_topic(name, partitions, min(2, self.plan.brokers))
        self.transactions = schedule.transactions
        self.checks = GroupChecks(self.kafka, world.network, self.GROUP, committed_only=self.transactions)
        self.members = [Member(self, f"m{number}") for number in range(1, self.plan.members + 1)]
        kind = TransactionalWriter if self.transactions else Writer
        self.writers = [kind(self, f"p{number}") for number in range(1, self.plan.producers + 1)]
        self.rules: list[Any] = []
        self.healed = False
        self.ending = False
        self.counts: dict[str, float] = {}
        self._frozen_s: dict[str, float] = {}
        self._thawed_at: dict[str, float] = {}
        self._hands = FaultHands(self)
        self._faults = schedule.faults
        self._faults_until_s = schedule.seconds or FAULTS_UNTIL_S

    # ---------------------------------------------------------------- notes

    def count(self, name: str, number: float = 1) -> None:
        """Counts for the table."""
        self.counts[name] = self.counts.get(name, 0) + number

    def note_error(self, client: str, error: Exception) -> None:
        """Notes an error that a client raised, in the trace."""
        self.world.network.note("error", client, type(error).__name__, str(error))

    async def limited(self, what: str, seconds: float, work: Awaitable[Any], client: str) -> Any:
        """Awaits a call that has to end by its limit; time in which its client stood still does not count."""
        loop = self.world.loop
        began, frozen_s = loop.time(), self._frozen_s.get(client, 0.0)
        task = asyncio.ensure_future(work)
        await asyncio.wait({task}, timeout=seconds + 60.0)
        took = loop.time() - began - (self._frozen_s.get(client, 0.0) - frozen_s)
        if took > seconds:
            self.checks.fail(f"{what} took {took:.3f} s: {seconds:g} are its limit")
        return await task

    def check_owners(self) -> None:
        """Holds the members' assignments against each other, and against what brokers heard of them."""
        self.checks.owners(self.members)
        now = self.world.loop.time()
        for member in self.members:
            heard = max(self.checks.heard.get(member.client, now), self.thawed_at(member.client))
            overdue = now - heard > SESSION_S + ZOMBIE_S
            if overdue and member.running and not member.stalls and member.assignment:
                self.checks.fail(
                    f"{member.client} owns partitions {now - heard:.1f} s after brokers heard of it last"
                )

    def thawed_at(self, client: str) -> float:
        """When a client went on that stood still; 0 for one that never did."""
        return self._thawed_at.get(client, 0.0)

    # ---------------------------------------------------------------- members

    def member(self, name: str) -> Member | None:
        """The member of a name, if it runs."""
        return next((m for m in self.members if m.name == name and m.running), None)

    def later(self, seconds: float, call: Callable[[], object]) -> None:
        """Has something done after some seconds, or when all is healed."""

        def due() -> None:
            if not self.healed:
                call()

        self.world.loop.call_later(seconds, due)

    def kill(self, member: Member, back_after_s: float) -> None:
        """Kills a member; it comes back."""
        self.count("kills")
        self.world.kill(member.client)
        member.running = False
        self.later(back_after_s, member.begin)

    def freeze(self, member: Member, seconds: float) -> None:
        """Has a member stand still. One that does already goes on when it was to."""
        if member.client in self.world.loop.frozen:
            return
        self._frozen_s[member.client] = self._frozen_s.get(member.client, 0.0) + seconds
        self._thawed_at[member.client] = self.world.loop.time() + seconds
        self.world.freeze(member.client, seconds)

    def leave(self, member: Member, back_after_s: float) -> None:
        """Has a member leave in good order; it comes back."""
        member.stopping = True
        self.later(back_after_s + CLOSE_S, member.begin)

    def join(self) -> None:
        """Has one more member join."""
        if len(self.members) < 5:
            self.members.append(Member(self, f"m{len(self.members) + 1}"))
            self.members[-1].begin()

    # ---------------------------------------------------------------- the run

    async def main(self) -> None:
        """Runs it to its end, or to the first broken promise."""
        writing = [self.world.start(writer.name, writer.write()) for writer in self.writers]
        for member in self.members:
            member.begin()
        for fault in self._faults:
            await self._until(fault.at)
            self._hands.carry_out(fault)
        await self._until(self._faults_until_s)
        self._heal()
        healed_at = self.world.loop.time()
        missing = ["it begins"]
        while missing and not self.checks.failures:
            if self.world.loop.time() > healed_at + SETTLES_WITHIN_S:
                self.checks.fail(f"it did not settle in {SETTLES_WITHIN_S:g} s: {'; '.join(missing)}")
                return
            await asyncio.sleep(0.5)
            for member in self.members:
                member.begin()
            missing = self._missing(writing)
        self.count("seconds to settle", self.world.loop.time() - healed_at)
        if not self.checks.failures:
            await self._end()

    async def _until(self, at: float) -> None:
        while self.world.loop.time() < at and not self.checks.failures and not self.world.errors:  # noqa: ASYNC110  a virtual second
            await asyncio.sleep(min(1.0, at - self.world.loop.time()))

    def _heal(self) -> None:
        self.healed = True
        self.world.network.heal()
        for rule in self.rules:
            rule.end()
            rule.release()
        for node in range(1, self.plan.brokers + 1):
            if node not in self.kafka.broker_ids:
                self.kafka.restart(node)
        for topic in self.topics:
            for partition, leader in self.kafka.leaders(topic).items():
                if leader < 0:
                    self.kafka.set_leader(topic, partition, 1)

    def _missing(self, writing: Iterable[asyncio.Task[Any]]) -> list[str]:
        """Returns what the run still waits for, in words."""
        found = ["a producer is not closed" for task in writing if not task.done()]
        owned = [tp for member in self.members for tp in member.assignment]
        for tp in self._partitions():
            end = self.kafka.end_offsets(tp.topic)[tp]
            if owned.count(tp) != 1:
                found.append(f"{tp.topic}-{tp.partition} has {owned.count(tp)} owners")
            committed = self.checks.committed(tp)
            # After a truncation the commit stays behind the end until there is something to read.
            behind = self.checks.readable(tp, committed)
            excused = self.checks.log_of(tp) in self.checks.lossy or self.checks.was_sought(tp, committed)
            if behind or (committed > end and not excused):
                found.append(f"{tp.topic}-{tp.partition} is committed to {committed} of {end}")
            unseen = self.checks.unseen(tp)
            if unseen:
                found.append(
                    f"{tp.topic}-{tp.partition}: {len(unseen)} records were not read, such as {unseen[0]!r}"
                )
        return found

    def _partitions(self) -> list[TopicPartition]:
        return [TopicPartition(topic, p) for topic in self.topics for p in self.kafka.leaders(topic)]

    async def _end(self) -> None:
        self.ending = True
        for member in self.members:
            member.stopping = True
        tasks = {member.task for member in self.members if member.task is not None and member.running}
        if tasks:
            _, left = await asyncio.wait(tasks, timeout=60.0)
            if left:
                self.checks.fail(f"{len(left)} members did not end in 60 s")
        visible: set[bytes] = set()
        for tp in self._partitions():
            self.checks.check_log(tp, [writer.sent for writer in self.writers])
            visible.update(record.value or b"" for record in self.checks.visible(tp))
        for writer in self.writers:
            if isinstance(writer, TransactionalWriter):
                writer.check(self.checks, visible)


def run(schedule: Schedule) -> Outcome:
    """Runs a schedule."""
    return without_gc(lambda: _run(schedule))


def _run(schedule: Schedule) -> Outcome:
    with Simulation(schedule.seed) as world:
        one = GroupRun(world, schedule)
        try:
            world.run(one.main(), within=300.0)
        except TimeoutError:
            one.checks.fail("it did not end in 300 s")
        failures = one.checks.failures or world.errors
        one.count("seconds", world.loop.time())
        one.count("requests", sum(world.network.cluster.counts.values()))
        one.count("commits", one.checks.commits)
        one.count("generations", one.checks.generation)
        run.trace = world.network.trace  # type: ignore[attr-defined]  for who looks into a run
        return Outcome(schedule.seed, failures[0] if failures else "", one.counts)

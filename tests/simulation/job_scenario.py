"""Scenario `job`: one or two jobs of a group with all their actors, and plain consumers, under faults of brokers, of the network, of actors,
of calls between actors, and of the user's function.

In a quarter of the runs calls overlap in the order of each key, and workers share partitions (`key_journal.py`). For some seconds of the virtual clock, half a minute at most, records come in and faults happen; then all is healed, and the group has to settle: all records are
processed and committed, and the jobs stop within their time. `job_journal.py` has what must hold at every step; `actors.py` says what runs as it is
and what stands in for something else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, NamedTuple

from kafka_actors.config import JobConfig, build
from kafka_actors.consumer import AsyncConsumer
from kafka_actors.errors import JobFailed
from kafka_actors.events import Event, PartitionsLost
from kafka_actors.job.lanes import Slice
from kafka_actors.job.plan import JobPlan
from kafka_actors.job.supervisor.runtime import COORDINATOR, Death
from kafka_actors.job.supervisor.supervisor import Supervisor
from kafka_actors.job.worker.user_function import FunctionSpec
from kafka_actors.testing.fake_kafka import AnswerWithError, Delay, LoseResponse, Repeat
from kafka_actors.types import TopicPartition

from .actors import ACTOR, CallTrouble, SimulatedActor, SimulatedNodes, SimulatedRuntime, simulated_actors
from .job_journal import DIED, Journal
from .key_journal import KeyJournal, key_of
from .lockstep import SimulationOver
from .read_watch import ReadWatch
from .schedule import Fault, Outcome, Schedule
from .world import Simulation, without_gc

GROUP, TOPIC = "group", "orders"
START_S = 30.0
TROUBLE_S = 30.0
"""The longest time for which there are faults."""
SECONDS = {5.0: 5, 9.0: 3, TROUBLE_S: 1}
"""Times for which there are faults, and how often."""
SETTLE_S = 120.0
MOST_PARTITIONS = 7
UNREAD_S = 15.0
"""Seconds for which a partition of a worker may be unread without a reason: the slowest calls, their reports, requests without an answer."""
DRAIN_SLACK_S = 1.5
"""Seconds that a drain may take beyond its time, until the coordinator looks next."""
ERRORS = {
    "FindCoordinator": (15,),
    "JoinGroup": (14, 15, 16, 25, 27),
    "SyncGroup": (14, 15, 16, 25, 27),
    "Heartbeat": (14, 15, 16, 25, 27),
    "OffsetCommit": (14, 15, 16, 25, 27),
    "OffsetFetch": (14, 16),
    "Metadata": (7,),
    "Fetch": (3, 6, 74, 75, 100, 103),
    "ListOffsets": (3, 6, 7, 78),
}
"""Errors that brokers may answer with at any time, by API."""
TOLD = 40
"""Lines of the trace that a failure tells."""
BY_KEY = 0.25
"""The part of the runs in which calls overlap."""
LATEST_ANSWER_S = 5.0
"""The longest delay of a broker's answer."""
LONGEST_S = 14.0
"""The longest fault."""
STOP_S = 15.0
STOP_SLACK_S = 8.0
"""Seconds that the end of a job may take beyond its time, for the actors' own ends."""


class Setup(NamedTuple):
    """Jobs, consumers, brokers and topic at the start of a run."""

    brokers: int
    partitions: int
    nodes: int
    workers: tuple[int, ...]
    consumers: int
    static: bool
    retries: int
    skips: bool
    batch_rows: int | None
    linger_ms: int
    drain_ms: int
    by_key: bool
    """Whether calls overlap, in the order of each key, and workers share partitions."""


def setup_of(seed: int) -> Setup:
    """Draws the setup of a seed."""
    random = Random(f"setup {seed}")
    setup = Setup(
        brokers=random.randint(1, 3),
        partitions=random.randint(2, 5),
        nodes=random.randint(1, 2),
        workers=tuple(random.randint(1, 3) for _ in range(random.choice((1, 1, 2)))),
        consumers=random.choice((0, 0, 1)),
        static=random.random() < 0.5,
        retries=random.randint(0, 3),
        skips=random.random() < 0.5,
        batch_rows=random.choice((None, None, 3)),
        linger_ms=random.choice((0, 200)),
        drain_ms=random.choice((500, 2_000, 5_000)),
        by_key=False,
    )
    more = Random(f"order by key {seed}")
    if more.random() > BY_KEY:
        return setup
    workers = tuple(more.randint(2, 5) for _ in setup.workers)
    return setup._replace(by_key=True, partitions=more.randint(1, 3), workers=workers, linger_ms=0)


KINDS = (
    "kill worker",
    "kill worker",
    "kill coordinator",
    "kill coordinator",
    "kill metadata",
    "kill connection",
    "freeze worker",
    "freeze worker",
    "freeze coordinator",
    "freeze connection",
    "freeze metadata",
    "freeze node",
    "lose calls",
    "repeat calls",
    "repeat calls",
    "delay calls",
    "delay calls",
    "delay calls",
    "visit",
    "visit",
    "visit",
    "kill broker",
    "move leader",
    "move coordinator",
    "cut",
    "hole",
    "slow network",
    "scale",
    "scale",
    "scale",
    "pause",
    "recreate topic",
    "truncate",
    "add partitions",
    "answer with error",
    "answer with error",
    "lose response",
    "delay response",
    "answer twice",
)


def schedule_of(seed: int) -> Schedule:
    """Draws the schedule of a seed; its faults are in the order of their times: seconds after the jobs have started. `number`: which of
    those that there are then."""
    random = Random(f"faults {seed}")
    (seconds,) = random.choices(list(SECONDS), list(SECONDS.values()))
    count = random.randint(2, 14) if seconds == TROUBLE_S else random.randint(1, int(seconds))
    found = [
        Fault(
            at=round(random.uniform(0.0, seconds - 0.5), 2),
            kind=random.choice(KINDS),
            seconds=round(random.choice((random.uniform(0.1, 2.0), random.uniform(2.0, LONGEST_S))), 2),
            number=random.randrange(8),
            name=random.choice(list(ERRORS)),
        )
        for _ in range(count)
    ]
    return Schedule("job", seed, tuple(sorted(found, key=lambda fault: fault.at)), seconds)


class Behaviour(NamedTuple):
    """Behaviour of the function at one record in its first `times` calls: slow, raise, hang or die."""

    kind: str
    times: int


class Function:
    """The user's function. Each worker's thread calls it; it takes time, and does what the seed wants at some records."""

    def __init__(self, journal: Journal, world: Simulation, setup: Setup) -> None:
        self._journal, self._world = journal, world
        self._random = Random(f"function {world.seed}")
        self._behaviours: dict[tuple[int, int], Behaviour] = {}
        self._calls: dict[tuple[int, int], int] = {}
        self._setup = setup
        self._by_key = KeyJournal(journal)
        self.written = Written()
        self.active = True

    def comes(self, partition: int, offset: int) -> None:
        """Draws what the function will do at a record."""
        if self._random.random() > 0.04:
            return
        kind = self._random.choice(("slow", "raise", "die", "hang"))
        if kind != "slow" and any(
            at[0] == partition and b.kind != "slow" for at, b in self._behaviours.items()
        ):
            return  # two in one batch would share its tries
        times = self._random.randint(1, 2) if kind in ("slow", "hang") else self._random.randint(1, 3)
        if kind in ("raise", "die") and (self._setup.skips and self._random.random() < 0.3):
            times = 10**6
        elif kind != "slow":
            times = min(times, self._setup.retries)
        if kind == "hang":
            times = min(times, 1)
        if times:
            self._behaviours[partition, offset] = Behaviour(kind, times)

    def __call__(self, batch: Any) -> None:
        partition = TopicPartition(batch["topic"][0].as_py(), batch["partition"][0].as_py())
        offsets, values = batch["offset"].to_pylist(), batch["value"].to_pylist()
        if self._world.loop.lockstep.over:
            raise SimulationOver  # code that catches all goes on for a while
        actor = ACTOR.get()
        held = actor.instance._worker._assignment.held.get(partition)
        job, worker = actor.client.partition("/")[0], actor.client
        epoch = held.epoch if held is not None else None
        life = life_of(values[0])
        self._check_values(partition, offsets, values)
        by_key = self._by_key if self._setup.by_key else None
        (by_key or self._journal).begins(job, worker, epoch, partition, life, offsets)
        self._sleep(self._random.uniform(0.001, 0.03))
        try:
            for offset in offsets:
                self._behave(actor, partition, offset)
        except ValueError:
            if by_key is not None:
                by_key.ended(worker, epoch, partition, offsets)
            else:
                self._journal.leaves(worker, partition)
            raise
        lost = self.written.lost(partition, offsets, values)
        if by_key is not None:
            self._journal.partitions[partition].of(life).finished(set(offsets) - set(lost))
            by_key.ended(worker, epoch, partition, offsets)
        else:
            self._journal.returned(worker, epoch, partition, life, offsets, lost)

    def _check_values(self, partition: TopicPartition, offsets: list[int], values: list[bytes]) -> None:
        for offset, value in zip(offsets, values, strict=True):
            if value not in self.written.ever.get((partition.partition, offset), ()):
                self._journal.fail(f"{partition}: offset {offset} came with the value {value!r}")

    def _behave(self, actor: SimulatedActor, partition: TopicPartition, offset: int) -> None:
        at = partition.partition, offset
        behaviour = self._behaviours.get(at)
        if behaviour is None:
            return
        calls = self._calls[at] = self._calls.get(at, 0) + 1
        if calls > behaviour.times or (not self.active and behaviour.times < 10**6):
            return
        if behaviour.times == 10**6:
            self._journal.note_skipped(partition, offset)
        self._journal.note(f"{actor.client}: {behaviour.kind} at {partition.partition}:{offset}")
        match behaviour.kind:
            case "slow":
                self._sleep(self._random.uniform(0.5, 6.0))
            case "raise":
                raise ValueError(f"the function fails at {offset}")
            case "hang":
                self._world.loop.lockstep.park(None)
            case "die":
                actor.end(Death("its process is gone"))
                self._world.loop.lockstep.park(None)

    def _sleep(self, seconds: float) -> None:
        loop = self._world.loop
        end = loop.time() + seconds
        while (left := end - loop.time()) > 0:
            loop.lockstep.park(left)


class Written:
    """Values that were written. `ends`: of each partition, behind its last record."""

    def __init__(self) -> None:
        self.ever: dict[tuple[int, int], list[bytes]] = {}
        self.ends: list[int] = []
        self._life = 0
        self._number = 0

    def recreated(self) -> None:
        """Takes that the topic is made anew: it has nothing yet."""
        self._life += 1
        self.ends[:] = [0] * len(self.ends)

    def next(self, partition: int) -> bytes:
        """Makes the value of the next record of a partition: where it is written, and a number that no other has."""
        offset, self._number = self.ends[partition], self._number + 1
        value = b"%d:%d:%d:%d" % (partition, offset, self._life, self._number)
        self.ever.setdefault((partition, offset), []).append(value)
        self.ends[partition] += 1
        return value

    def lost(self, partition: TopicPartition, offsets: list[int], values: list[bytes]) -> list[int]:
        """Returns the offsets of records in whose place the log has another one, or that are behind its end; none of a topic that is gone."""
        number, end = partition.partition, self.ends[partition.partition]
        there = {offset: found[-1] for offset in offsets if (found := self.ever.get((number, offset)))}
        return [
            offset
            for offset, value in zip(offsets, values, strict=True)
            if life_of(value) == self._life and (there[offset] != value or offset >= end)
        ]


def life_of(value: bytes) -> int:
    """Number of the topic that a record was written to."""
    return int(value.split(b":")[2])


class JobRun:
    """One run of jobs and consumers in a world."""

    def __init__(self, world: Simulation, setup: Setup) -> None:
        self.world, self.setup = world, setup
        self.kafka = world.kafka(brokers=setup.brokers)
        # Replicas on all brokers, so that a partition has a leader while one of them lives.
        self.kafka.create_topic(TOPIC, setup.partitions, setup.brokers)
        cluster = world.network.cluster
        self.journal = Journal(cluster, GROUP)
        self.journal.use_clock(world.loop.time)
        self.nodes = SimulatedNodes(world, setup.nodes)
        self.nodes.on_answer.append(self.journal.answered)
        self.function = Function(self.journal, world, setup)
        self.supervisors: list[Supervisor] = []
        self.runtimes: list[SimulatedRuntime] = []
        self.dead_brokers: set[int] = set()
        self._visitors = 0
        self.written = self.function.written
        self.written.ends = [0] * setup.partitions
        self._rules: list[Any] = []
        self._late_commits = False
        self._answered_by = 0.0
        """Until then answers to commits may be late."""
        self._watch = ReadWatch(UNREAD_S)
        self._troubled_until = 0.0
        self._random = Random(f"load {world.seed}")
        self.kafka.on("OffsetCommit", Delay(0), times=None, when=self._commit_arrives)
        world.network.on_turn.append(self.journal.turned)

    def _commit_arrives(self, call: Any) -> bool:
        """Tells the journal of a commit; the rule applies to none."""
        link = self.world.network.links.get(call.link.number)
        self.journal.arrived(call.request, late=link is None or not link.open)
        return False

    def plan(self, number: int) -> JobPlan:
        """The definition of one of the jobs."""
        setup = self.setup
        config = build(
            JobConfig,
            group_id=GROUP,
            bootstrap_servers=self.kafka.bootstrap_servers,
            session_timeout_ms=10_000,
            heartbeat_interval_ms=2_000,
            rebalance_timeout_ms=15_000,
            max_poll_interval_ms=20_000,
            request_timeout_ms=8_000,
            drain_timeout_ms=setup.drain_ms,
            batch_rows=setup.batch_rows,
            batch_linger_ms=setup.linger_ms if setup.batch_rows else 0,
            metadata_max_age_ms=20_000,
            on_data_loss="reset",
            ordering="key" if setup.by_key else "partition",
            concurrency=3 if setup.by_key else 1,
        )
        spec = FunctionSpec(self.function, "batch", setup.retries, "skip" if setup.skips else "fail")
        return JobPlan(
            topics=[TOPIC],
            pattern=None,
            spec=spec,
            config=config,
            workers=setup.workers[number],
            bounded=False,
            group_instance_id=f"job-{number}" if setup.static else None,
            name=f"job-{number}",
            resources={},
            log_level=logging.CRITICAL,
        )

    # ---------------------------------------------------------------- life

    async def watched(self, faults: Sequence[Fault], seconds: float) -> None:
        """Lives until the end or the first violation; looks each second."""
        living = asyncio.ensure_future(self._live(faults, seconds))
        while not living.done():
            await asyncio.wait({living}, timeout=1.0)
            self.check_buffers()
            self.check_placement()
            if self.journal.violation is not None:
                raise self.journal.violation
        living.result()

    async def _live(self, faults: Sequence[Fault], seconds: float) -> None:
        """Starts the jobs, lets the faults happen, and waits until all is settled."""
        loop = self.world.loop
        self.produce()
        starting = []
        for number in range(len(self.setup.workers)):
            runtime = SimulatedRuntime(self.nodes, f"job{number}")
            self.runtimes.append(runtime)
            starting.append(self.world.start(f"job{number}/supervisor", self._start(number, runtime)))
        consumers = [
            self.world.start(f"consumer{n}", self._consume(f"consumer{n}"))
            for n in range(self.setup.consumers)
        ]
        async with asyncio.timeout(START_S):
            await asyncio.gather(*starting)
        load = asyncio.ensure_future(self._load())
        began = loop.time()
        for fault in faults:
            await asyncio.sleep(max(0.0, began + fault.at - loop.time()))
            self.journal.note(f"FAULT {fault}")
            self._happens(fault)
        await asyncio.sleep(max(0.0, began + seconds - loop.time()))
        load.cancel()
        self._heal()
        await self._settled()
        for consumer in consumers:
            consumer.cancel()
        await self._stop()

    async def _start(self, number: int, runtime: SimulatedRuntime) -> None:
        supervisor = Supervisor(self.plan(number), runtime, self.world.loop.time)
        self.supervisors.append(supervisor)
        await supervisor.start()

    async def _consume(self, client: str) -> None:
        async with AsyncConsumer(
            topics=[TOPIC],
            group_id=GROUP,
            bootstrap_servers=self.kafka.bootstrap_servers,
            auto_offset_reset="earliest",
            on_data_loss="reset",
            metadata_max_age_ms=20_000,
            session_timeout_ms=10_000,
            heartbeat_interval_ms=2_000,
            auto_commit_interval_ms=1_000,
            max_poll_interval_ms=20_000,
            request_timeout_ms=8_000,
            events=lambda event: self._consumer_tells(client, event),
        ) as consumer:
            while True:
                batch = await consumer.poll_batch(timeout_ms=1_000)
                if batch is None or not batch.num_rows:
                    continue
                partition = TopicPartition(batch["topic"][0].as_py(), batch["partition"][0].as_py())
                offsets, values = batch["offset"].to_pylist(), batch["value"].to_pylist()
                life, lost = life_of(values[0]), self.written.lost(partition, offsets, values)
                self.journal.begins(client, client, None, partition, life, offsets)
                self.journal.returned(client, None, partition, life, offsets, lost)

    def _consumer_tells(self, client: str, event: Event) -> None:
        if isinstance(event, PartitionsLost):
            self.journal.note(f"{client}: {event}")
            self.journal.lost(client, [TopicPartition(*each) for each in event.partitions])

    def produce(self) -> None:
        """Appends some records to each partition."""
        ends = self.written.ends
        for partition in range(len(ends)):
            count = self._random.choice((0, 1, 4))
            if not count or self.kafka.leaders(TOPIC)[partition] < 0:
                continue
            for offset in range(ends[partition], ends[partition] + count):
                self.function.comes(partition, offset)
            values = [self.written.next(partition) for _ in range(count)]
            keys = [key_of(ends[partition] - count + n) for n in range(count)] if self.setup.by_key else None
            self.kafka.produce(TOPIC, values, partition=partition, keys=keys)

    async def _load(self) -> None:
        while True:
            await asyncio.sleep(self._random.uniform(0.2, 2.0))
            self.produce()

    # ---------------------------------------------------------------- what happens

    def _happens(self, fault: Fault) -> None:
        self._troubled_until = max(self._troubled_until, self.world.loop.time() + fault.seconds)
        what, _, which = fault.kind.partition(" ")
        network, now = self.world.network, self.world.loop.time()
        match fault.kind:
            case "kill broker":
                self._kill_broker(fault)
            case "move leader":
                live = self.kafka.broker_ids
                if live:
                    self.kafka.set_leader(
                        TOPIC, fault.number % self.setup.partitions, live[fault.number % len(live)]
                    )
            case "move coordinator":
                live = self.kafka.broker_ids
                if live:
                    self.kafka.set_coordinator(GROUP, live[fault.number % len(live)])
            case "cut":
                if (found := self._one_of(self.nodes.live, fault)) is not None:
                    network.cut(client=found.client)
            case "hole":
                if (found := self._one_of(self.nodes.live, fault)) is not None:
                    network.hole(fault.seconds, client=found.client)
            case "slow network":
                network.slow(fault.seconds, 1.0)
            case "lose calls":
                self.nodes.troubles.append(CallTrouble(now + fault.seconds, lost=0.2))
            case "repeat calls":
                self.nodes.troubles.append(CallTrouble(now + fault.seconds, twice=0.4, late=0.1))
            case "delay calls":
                self.nodes.troubles.append(CallTrouble(now + fault.seconds, late=0.3))
            case "freeze node":
                node = self.nodes.names[-1]
                if len(self.nodes.names) > 1:
                    for found in [a for a in self.nodes.live if a.node == node]:
                        self.nodes.freeze(found, fault.seconds)
            case "visit":
                self._visitors += 1
                visitor = f"visitor{self._visitors}"
                self.nodes.later(fault.seconds, self.world.start(visitor, self._consume(visitor)).cancel)
            case "scale":
                self._in_background(fault, lambda s: s.scale(1 + fault.number % 4))
            case "pause":
                self._in_background(fault, lambda s: s.pause(True))
                self.nodes.later(fault.seconds, self._in_background, fault, lambda s: s.pause(False))
            case "answer with error" | "lose response" | "delay response" | "answer twice":
                self._treat(fault)
            case "recreate topic" | "truncate" | "add partitions":
                self._change_topic(fault)
            case _:
                of_kind = [a for a in self.nodes.live if a.key.kind == which]
                if (found := self._one_of(of_kind, fault)) is None:
                    return
                if what == "kill":
                    found.end(Death("its process is gone"))
                else:
                    self.nodes.freeze(found, fault.seconds)

    def _treat(self, fault: Fault) -> None:
        """Treats requests of an API: the name of the fault, which the other kinds have and do not use."""
        errors = ERRORS[fault.name or "Fetch"]
        actions = {
            "answer with error": AnswerWithError(errors[fault.number % len(errors)]),
            "lose response": LoseResponse(fault.number),
            "delay response": Delay(min(fault.seconds, LATEST_ANSWER_S)),
            "answer twice": Repeat(),
        }
        self._late_commits |= (fault.kind, fault.name) == ("delay response", "OffsetCommit")
        self._rules.append(
            self.kafka.on(fault.name or "Fetch", actions[fault.kind], times=1 + fault.number % 3)
        )

    def _change_topic(self, fault: Fault) -> None:
        ends = self.written.ends
        number = fault.number % len(ends)
        partition = TopicPartition(TOPIC, number)
        match fault.kind:
            case "recreate topic":
                self.journal.recreated()
                self.kafka.recreate_topic(TOPIC)
                self.written.recreated()
            case "truncate":
                self.kafka.truncate(*partition, max(0, ends[number] - 1 - fault.number % 4))
                ends[number] = self.kafka.end_offsets(TOPIC)[partition]
                progress = self.journal.now(partition)
                progress.shortened(ends[number])
                # Whole batches go, and nothing is where a part of one would have stayed.
                there = {record.offset for record in self.kafka.records(*partition)}
                progress.finished(set(range(progress.watermark, ends[number])) - there)
            case "add partitions" if len(ends) < MOST_PARTITIONS and self.kafka.broker_ids:
                self.kafka.add_partitions(TOPIC, len(ends) + 1)
                ends.append(0)

    def _one_of(self, among: list[SimulatedActor], fault: Fault) -> SimulatedActor | None:
        return among[fault.number % len(among)] if among else None

    def _kill_broker(self, fault: Fault) -> None:
        live = self.kafka.broker_ids
        if live:
            broker = live[fault.number % len(live)]
            self.kafka.kill(broker)
            self.dead_brokers.add(broker)
            self.nodes.later(fault.seconds, self._restart, broker)

    def _restart(self, broker: int) -> None:
        if broker in self.dead_brokers:
            self.dead_brokers.discard(broker)
            self.kafka.restart(broker)

    def _in_background(self, fault: Fault, call: Callable[[Supervisor], Any]) -> None:
        number = fault.number % len(self.supervisors)
        self.world.start(f"job{number}/supervisor", call(self.supervisors[number]))

    def _heal(self) -> None:
        self.journal.note("HEAL")
        self._answered_by = self.world.loop.time() + LATEST_ANSWER_S * self._late_commits
        self.function.active = False
        for rule in self._rules:
            rule.end()
        self.nodes.troubles.clear()
        self.world.network.heal()
        for broker in list(self.dead_brokers):
            self._restart(broker)
        for number, supervisor in enumerate(self.supervisors):
            self.world.start(f"job{number}/supervisor", supervisor.pause(False))

    # ---------------------------------------------------------------- the end

    async def _settled(self) -> None:
        end = self.world.loop.time() + SETTLE_S
        while missing := self._missing():
            for supervisor in self.supervisors:
                if supervisor.has_ended:
                    supervisor.result()
            if self.world.loop.time() > end:
                self.journal.fail(f"{SETTLE_S:g} s after the last fault there is missing: {missing}")
            await asyncio.sleep(1.0)

    def _missing(self) -> list[str]:
        found = []
        for number, end in enumerate(self.written.ends):
            journal = self.journal.now(TopicPartition(TOPIC, number))
            # After a truncation the commit may stay where it was until there is something to read.
            committed = min(journal.committed, end) if journal.lossy else journal.committed
            if (journal.watermark, committed) != (end, end):
                found.append(
                    f"{number}: {journal.watermark} processed, {journal.committed} committed of {end}"
                )
        # A coordinator that its supervisor has not begun, one that is dead, also where nobody has noticed that, and one that stands still can't
        # say at a stop what is confirmed, nor one whose workers hear of it too late.
        if late := sum(not call.done() for call in self.nodes.troubled):
            found.append(f"{late} calls are on their way")
        # Nor one to whose commit the broker's answer is on its way for longer than a stop waits.
        if self.world.loop.time() < self._answered_by:
            found.append("a commit may have no answer yet")
        found += [f"{actor.client} stands still" for actor in self.nodes.live if actor.frozen]
        found += [f"{a.client} is in a call" for a in self.nodes.live if self.journal.in_call[a.client]]
        for number, supervisor in enumerate(self.supervisors):
            coordinator = supervisor._job.running.begun(COORDINATOR)
            if coordinator is None or not coordinator.ref.actor.alive:
                found.append(f"job {number} has no coordinator")
        return found

    async def _stop(self) -> None:
        loop = self.world.loop
        began = loop.time()
        stops = [
            self.world.start(f"job{n}/supervisor", supervisor.stop(STOP_S))
            for n, supervisor in enumerate(self.supervisors)
        ]
        _, late = await asyncio.wait(stops, timeout=STOP_S + STOP_SLACK_S)
        if late:
            self.journal.fail(
                f"a job has not stopped {loop.time() - began:.1f} s after it was told to, with {STOP_S:g} s"
            )
        for supervisor, stop in zip(self.supervisors, stops, strict=True):
            if not stop.result() and not self._may_be_unconfirmed(supervisor):
                self.journal.fail("a job that had committed everything does not confirm it")
        for _ in range(int(LONGEST_S) + 2):
            if self.nodes.live:  # one that stands still ends when it goes on
                await asyncio.sleep(1.0)
        if self.nodes.live:
            self.journal.fail(f"actors of ended jobs live on: {self.nodes.live}")

    def _may_be_unconfirmed(self, supervisor: Supervisor) -> bool:
        """Whether all that a stop does not confirm was processed in a topic that ended before it was committed."""
        final = supervisor.report.final
        found = [] if final is None else final.unconfirmed
        return bool(found) and all(self.journal.partitions[each].ended_uncommitted for each in found)

    def check_placement(self) -> None:
        """Checks what coordinators say of their partitions: those of a worker are read, or wait for a reason that is told; drains end by
        their time."""
        now = self.world.loop.time()
        troubled = now < self._troubled_until or bool(self.nodes.troubles) or bool(self.dead_brokers)
        keys: set[Any] = set()
        for found in self.nodes.live:
            if found.key.kind != "coordinator" or found.instance is None or found.frozen:
                continue
            job = getattr(found.instance, "_job", None)
            if job is None or not hasattr(job, "_placement"):
                continue  # it has not begun
            shared = any(isinstance(each, Slice) for each in job._placement.partitions)
            self.journal.counts["seconds with shared partitions"] += shared
            for placed in job._placement.partitions.values():
                if now > placed.deadline + DRAIN_SLACK_S and now > self._troubled_until + DRAIN_SLACK_S:
                    self.journal.fail(
                        f"{found}: {placed.partition} is {placed.state.value} {now - placed.deadline:.1f} s after its deadline"
                    )
            for status in job.status().partitions:
                key = found, status.topic, status.partition
                keys.add(key)
                workers = [
                    f"{found.client.partition('/')[0]}/{each}" for each in (status.worker or "").split(", ")
                ]
                partition = TopicPartition(status.topic, status.partition)
                called = any(partition in self.journal.in_call[worker] for worker in workers)
                waits = troubled or called or status.state != "granted" or status.reason or not status.lag
                moved = (status.position, status.committed, status.lag)
                if unread_s := self._watch.overdue(key, moved, bool(waits), now):
                    self.journal.fail(f"{unread_s:.1f} s without a reason: {status}")
        self._watch.only(keys)

    def check_buffers(self) -> None:
        """Checks that no worker holds more than it may."""
        for found in self.nodes.live:
            if found.key.kind == "worker" and found.instance is not None:
                worker = found.instance
                if worker._worker.buffered > worker._budget + 2**20:
                    self.journal.fail(
                        f"{found}: {worker._worker.buffered} bytes, the limit is {worker._budget}"
                    )


def run_jobs(schedule: Schedule) -> Journal:
    """Runs a schedule. Raises `Violation`, or the error of a job or a consumer."""
    return without_gc(lambda: _run(schedule))


def _run(schedule: Schedule) -> Journal:
    seed, seconds = schedule.seed, schedule.seconds or TROUBLE_S
    setup = setup_of(seed)
    with Simulation(seed) as world:
        run = JobRun(world, setup)
        with simulated_actors(world, run.nodes, run.journal.happened):
            try:
                within = START_S + seconds + SETTLE_S + 60
                world.run(run.watched(schedule.faults, seconds), within=within)
            except JobFailed as failed:
                if setup.skips or DIED not in str(failed):
                    raise
                run.journal.counts["failed for deaths in one call"] += 1
            except Exception as error:
                error.add_note("\n".join([f"seed {seed}: {setup}", *run.journal.trace[-TOLD:]]))
                raise
    return run.journal


def run(schedule: Schedule) -> Outcome:
    """Runs a schedule."""
    journal = run_jobs(schedule)
    return Outcome(schedule.seed, "", {name: float(count) for name, count in journal.counts.items()})

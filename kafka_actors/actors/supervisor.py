"""The supervisor: keeps a job's actors what they should be, and wires them to each other.

It runs in the driver (or, detached, in the job actor) on one event loop. `Supervision` decides; this class
starts, pings, kills and tells. It keeps one pending call on each actor, whose end is the death notice, and it
never waits for an actor in its own loop: every call is a task that comes back with what it learned.
"""

from __future__ import annotations

import asyncio
import logging
import pickle
import time
from collections.abc import Callable, Mapping
from typing import Any

from kafka_actors.errors import DisconnectedError, JobError, JobFailed, KafkaActorsError, StartTimeoutError

from .autoscale import Autoscale
from .autoscaling import Autoscaling
from .loops import Loops
from .machines.supervision import Action, ActorKey, Dismiss, Fail, Kill, Ping, Probe, Start, Supervision
from .messages import (
    ActorInfo,
    Identity,
    JobFailure,
    JobStart,
    Topology,
    WorkerPlan,
    WorkerPong,
    pack,
    unpack,
)
from .observing import JobObserver
from .plan import JobPlan
from .reporting import Reporting
from .roster import COORDINATOR, METADATA, Roster, Running, actor_name
from .runtime import ActorRef, Runtime, quietly
from .status import JobStatus

__all__ = ["Supervisor"]

logger = logging.getLogger(__name__)

VERDICT_S = 0.2
TOPOLOGY_S = 0.5
CLOSE_S = 2.0
QUIT_S = 2.0
ANSWER_S = 0.5
LOOK_S = 1.0


class Supervisor:
    """One job. `start` returns when it works, `wait` when it has ended. `report`: what it tells of itself."""

    report: Reporting

    def __init__(self, plan: JobPlan, runtime: Runtime, clock: Callable[[], float] = time.monotonic) -> None:
        self.plan = plan
        self._runtime = runtime
        self._clock = clock
        self._created = clock()
        self._machine = Supervision(plan.timings)
        self._running = Roster(plan)
        self._scaling = Autoscaling(plan.workers, runtime, clock, lambda event: self.report.happened(event))
        self.report = Reporting(plan, self._running, self._machine.restarts, self._scaling.status, clock)
        self._job_start: JobStart | None = None
        self._coordinator_began = False
        self._wake = asyncio.Event()
        self._nodes_told = asyncio.Event()
        self._loops = Loops(self._fail)
        self._started: asyncio.Future[None] = asyncio.get_event_loop().create_future()
        self._ended: asyncio.Future[None] = asyncio.get_event_loop().create_future()
        self._stopping: asyncio.Task[None] | None = None
        self._observer = JobObserver(plan.config.group_id, plan.telemetry is not None)

    # ------------------------------------------------------------ life

    async def start(self) -> None:
        """Starts everything. Raises what keeps the job from starting, after having taken it down again."""
        self._want()
        self._loops.go(self._loop())
        try:
            await asyncio.shield(self._started)
        except BaseException:
            await self._leave()
            await self._see_all_off()
            raise
        self.report.become("running")
        self._observer.begin(self.status)
        self._loops.go(self._watch_verdict())
        self._loops.go(self._follow_load())

    async def _leave(self) -> None:
        """A job that can't start holds nothing in the group until its session would end."""
        if (coordinator := self._running.begun(COORDINATOR)) is not None:
            await self._bounded(coordinator.ref.call("stop", True), CLOSE_S)

    async def wait(self) -> None:
        """Returns when the job has ended. Raises `JobFailed` if it failed."""
        await asyncio.shield(self._ended)

    async def ended_within(self, limit_s: float | None) -> bool:
        """Waits so long. Returns whether the job has ended; raises `JobFailed` if it failed."""
        if not self.has_ended:
            try:
                await asyncio.wait_for(self.wait(), limit_s)
            except TimeoutError:
                return False
        return self.result()

    @property
    def has_ended(self) -> bool:
        """Whether the job is over, however it ended."""
        return self._ended.done()

    def result(self) -> bool:
        """What `wait` would say now: whether the job has ended. Raises `JobFailed` if it failed."""
        if not self._ended.done():
            return False
        self._ended.result()
        return True

    async def stop(self, timeout_s: float, leave: bool = True) -> None:
        """Drains, commits, leaves the group, ends all actors; returns within the timeout."""
        if self._stopping is None:
            self._stopping = asyncio.ensure_future(self._stop(timeout_s, leave, None))
        await asyncio.shield(self._stopping)

    async def _stop(self, timeout_s: float, leave: bool, failure: BaseException | None) -> None:
        """Each part gets what is left of the time; whatever did not stop by then is ended all the same."""
        self.report.become("stopping")
        deadline = self._clock() + timeout_s

        def left(at_most: float) -> float:
            return max(0.1, min(at_most, deadline - self._clock()))

        try:
            if (coordinator := self._running.begun(COORDINATOR)) is not None:
                await self._bounded(coordinator.ref.call("stop", leave), left(timeout_s - CLOSE_S))
                self.report.final = await self._bounded(self.status(), left(ANSWER_S))
            workers = [r for r in self._running.of_kind("worker").values() if r.begun]
            await asyncio.gather(*(self._bounded(w.ref.call("close"), left(CLOSE_S)) for w in workers))
            await self._bounded(self._last_counts(), left(ANSWER_S))
        finally:
            self._observer.end()
            await self._see_all_off()
            await self._bounded(self._scaling.give_back(), left(CLOSE_S))
            self.report.become("failed" if failure else "stopped", failure)
        if not self._ended.done():
            if failure is None:
                self._ended.set_result(None)
            else:
                self._ended.set_exception(failure)
                self._ended.exception()  # whoever waits gets it; nobody has to

    async def _last_counts(self) -> None:
        """What was counted since the last pings; of a short run that may be all."""
        if self._observer.on:
            counting = [(k, r) for k, r in self._running.items() if k.kind in ("worker", "coordinator")]
            answers = [quietly(running.ref.call("ping")) for _, running in counting]
            for (key, running), answer in zip(counting, await asyncio.gather(*answers), strict=True):
                self._observer.counted(actor_name(key, running.incarnation), tally_of(key, answer))

    async def _see_all_off(self) -> None:
        """Ends all actors, each within `QUIT_S`; for good."""
        self._machine.want(())
        self._loops.cancel()  # from here on nobody is pinged or replaced
        await asyncio.gather(*(self._see_off(self._running.pop(key)) for key in list(self._running)))

    async def _see_off(self, running: Running) -> None:
        """Has an actor end by itself, because of one that is killed Ray prints a page."""
        try:
            await asyncio.wait_for(quietly(running.ref.call("quit")), QUIT_S)
        except Exception:
            self._runtime.kill(running.ref, running.info)

    async def _bounded(self, call: Any, timeout_s: float) -> Any:
        try:
            return await asyncio.wait_for(call, timeout_s)
        except TimeoutError:
            logger.warning("a part of the job did not stop within %.1f s and is ended", timeout_s)
        except Exception as error:
            logger.warning("while stopping: %s: %s", type(error).__name__, error)
        return None

    def _fail(self, error: BaseException) -> None:
        """Before the job has started, `start` raises the error as it is; afterwards the job ends with it."""
        if not self._started.done():
            self._started.set_exception(error)
        elif self._stopping is None:
            failure = error if isinstance(error, JobFailed) else JobFailed(error)
            drain = self.plan.config.drain_timeout_ms / 1000
            self._stopping = asyncio.ensure_future(self._stop(drain + 3 * CLOSE_S, True, failure))

    # ------------------------------------------------------------ the loop

    async def _loop(self) -> None:
        while True:
            self._step()
            try:
                await asyncio.wait_for(
                    self._wake.wait(), max(0.0, self._machine.next_wake(self._clock()) - self._clock())
                )
            except TimeoutError:
                pass
            self._wake.clear()

    def _step(self) -> None:
        for action in self._machine.step(self._clock()):
            self._carry_out(action)

    def _carry_out(self, action: Action) -> None:
        if isinstance(action, Start):
            self._create(action.key, action.incarnation)
        elif isinstance(action, Kill):
            self._kill(action)
        elif isinstance(action, Dismiss):
            self._dismiss(action)
        elif isinstance(action, Fail):
            self._fail(self._not_started(action))
        elif (running := self._running.get(action.key)) is not None:
            self._loops.go(
                self._ping(action, running) if isinstance(action, Ping) else self._probe(action, running)
            )

    def _not_started(self, fail: Fail) -> KafkaActorsError:
        if fail.deaths:
            what = "its process ended, by itself or by a signal, each time while it made the class of process"
            return JobError(f"{fail.key} was started {fail.deaths} times in vain: {what}")
        if not fail.placed:
            return StartTimeoutError(self._runtime.why_not_placed(fail.key), fail.after_s)
        what = "the constructor of process" if fail.key.kind == "worker" else "an answer"
        return StartTimeoutError(f"{what} of {fail.key}, which is still not done", fail.after_s)

    # ------------------------------------------------------------ wanted

    def _want(self) -> None:
        """What there should be now: metadata first, the rest once it knows the topics."""
        wanted, waiting = {METADATA}, set[ActorKey]()
        if self._job_start is not None:
            wanted.add(COORDINATOR)
            workers = {ActorKey("worker", n) for n in range(self._scaling.workers)}
            if self._started.done() and self._scaling.autoscale is not None:
                waiting = workers
            wanted |= workers
            wanted |= {ActorKey("worker", n) for n in self._running.retiring}
            wanted |= self._running.brokers.keys()
        if self._started.done():
            wanted |= {ActorKey("spare", 0, node) for node in {k.node for k in self._running.brokers}}
        self._machine.want(wanted, waiting)
        self._wake.set()

    # ------------------------------------------------------------ starting an actor

    def _create(self, key: ActorKey, incarnation: int) -> None:
        ref = self._spare_for(key)
        if ref is None:
            ref = self._runtime.create(key, actor_name(key, incarnation), self._constructor(key, incarnation))
        self._running[key] = Running(incarnation, ref)
        if incarnation > 1 and key.kind != "spare":
            self._observer.restarted(key.kind)
        self._loops.go(self._bring_up(key, self._running[key]))
        self._loops.go(self._await_death(key, incarnation, ref))

    def _spare_for(self, key: ActorKey) -> ActorRef | None:
        """A process takes a second to come up, and until then nobody reads from that broker: so one that is up
        already takes the place of a connection actor that died."""
        spare = ActorKey("spare", 0, key.node)
        running = self._running.get(spare)
        if key.kind != "connection" or running is None or not running.begun:
            return None
        del self._running[spare]
        self._machine.took_over(spare, self._clock())
        ref: ActorRef = running.ref
        return ref

    def _constructor(self, key: ActorKey, incarnation: int) -> tuple[Any, ...]:
        plan, setup = self.plan, self.plan.setup(str(key), incarnation)
        if key.kind == "metadata":
            return plan.config, plan.topics, plan.pattern, setup
        if key.kind == "coordinator":
            identity = pack(Identity(plan.group_instance_id, self.report.member_id))
            assert self._job_start is not None
            return (
                plan.config,
                incarnation,
                plan.topics,
                plan.pattern,
                pack(self._job_start),
                identity,
                setup,
            )
        if key.kind in ("connection", "spare"):
            return plan.config, setup
        return actor_name(key, incarnation), plan.spec, plan.config, setup

    async def _bring_up(self, key: ActorKey, running: Running) -> None:
        try:
            running.info = unpack(await running.ref.call("whereabouts"), ActorInfo)
            self._machine.ponged(key, running.incarnation, self._clock(), ready=False)
            if key.kind == "worker":
                self._loops.go(self._plan_changed())
                self._loops.go(self._tell_nodes())
            await self._begin(key, running)
        except DisconnectedError:
            return  # the death notice says more
        except Exception as error:
            self._begin_failed(key, running, error)
            return
        running.begun = True
        self._machine.ponged(key, running.incarnation, self._clock())
        await self._begun(key, running)
        self._wake.set()

    async def _begin(self, key: ActorKey, running: Running) -> None:
        call = running.ref.call
        if key.kind == "metadata":
            await call("begin", self._time_to_start())
            if self._job_start is None:
                answer = await call("job_start", self.plan.bounded, self._time_to_start())
                self._job_start = unpack(answer, JobStart)
        elif key.kind == "coordinator":
            recovering, self._coordinator_began = self._coordinator_began, True
            await call("begin", pack(self._worker_plan()), recovering)
        elif key.kind == "worker":
            self._running.wiring_version += 1
            await call("begin", self._running.wiring(running.info))
        elif key.kind == "connection":
            await call("begin", key.number, *self._running.brokers[key])

    def _time_to_start(self) -> float:
        """What is left of `start_timeout_s` for finding the cluster and its topics, so that what is missing is
        named by who looks for it; of a later incarnation it is all."""
        whole = self.plan.config.start_timeout_s
        if self._started.done():
            return whole
        return max(ANSWER_S, whole - (self._clock() - self._created) - ANSWER_S)

    def _begin_failed(self, key: ActorKey, running: Running, error: Exception) -> None:
        """The user's constructor, or the first contact with the cluster, ends the job; else it is tried again."""
        if not self._machine.is_current(key, running.incarnation):
            return
        if key.kind == "worker" or not self._started.done():
            self._fail(error)
            return
        self._machine.died(key, running.incarnation, self._clock())
        self._lost(key, running, f"{key} could not begin and is replaced: {error}")

    async def _begun(self, key: ActorKey, running: Running) -> None:
        if key == METADATA:
            self._want()
            self._loops.go(self._watch_topology(running))
        if key == COORDINATOR:
            # A worker that came up while there was no coordinator isn't in the plan that this one began with.
            self._loops.go(self._plan_changed())
        if key.kind not in ("worker", "spare"):
            self._rewire()
        self._check_started()

    def _check_started(self) -> None:
        workers = [r for r in self._running.of_kind("worker").values() if r.begun]
        up = self._running.begun(COORDINATOR) is not None and len(workers) >= self._scaling.workers
        if up and not self._started.done():
            self._started.set_result(None)
            self._loops.go(self._plan_changed())
            self._want()

    # ------------------------------------------------------------ ends of actors

    async def _await_death(self, key: ActorKey, incarnation: int, ref: ActorRef) -> None:
        death = await ref.died()
        if not self._machine.died(key, incarnation, self._clock()):
            return
        name = actor_name(key, incarnation)
        if death.unmade and not self._started.done():
            self._fail(JobError(f"{name} could not be made: {death.reason}"))
            return
        self._lost(key, self._running[key], f"{name} died ({death.reason}); a replacement starts")

    def _kill(self, kill: Kill) -> None:
        running = self._running.get(kill.key)
        if running is not None and running.incarnation == kill.incarnation:
            name = actor_name(kill.key, kill.incarnation)
            self._lost(kill.key, running, f"{name} is ended: {kill.reason}")

    def _lost(self, key: ActorKey, running: Running, what: str) -> None:
        """An actor has failed: the line says whom it is about as its own lines do."""
        origin = self.plan.setup(str(key), running.incarnation).origin
        logger.warning("%s", what, extra={"fields": origin.fields()})
        self.report.note("restart", what)
        self._gone(key, running)

    def _dismiss(self, dismissed: Dismiss) -> None:
        running = self._running.get(dismissed.key)
        if running is not None and running.incarnation == dismissed.incarnation:
            del self._running[dismissed.key]
            self._loops.go(self._dismissed(dismissed.key, running))
            self._tell_of_end(dismissed.key, running)

    async def _dismissed(self, key: ActorKey, running: Running) -> None:
        """A worker closes the user's object first."""
        if key.kind == "worker" and running.begun:
            await self._bounded(running.ref.call("close"), CLOSE_S)
        await self._see_off(running)

    def _gone(self, key: ActorKey, running: Running) -> None:
        """An actor is not to be used any more: its partitions, or its place, go to others at once."""
        if self._running.get(key) is running:
            del self._running[key]
        self._runtime.kill(running.ref, running.info)
        self._tell_of_end(key, running)

    def _tell_of_end(self, key: ActorKey, running: Running) -> None:
        self._observer.gone(actor_name(key, running.incarnation))
        if key.kind == "worker":
            self._loops.go(self._plan_changed())
            self._loops.go(self._forget_worker(actor_name(key, running.incarnation)))
        else:
            self._rewire()
        self._wake.set()

    async def _forget_worker(self, name: str) -> None:
        for running in self._running.of_kind("connection").values():
            await quietly(running.ref.call("forget", [name]))

    # ------------------------------------------------------------ pings and probes

    async def _ping(self, ping: Ping, running: Running) -> None:
        answer = await quietly(running.ref.call("ping"))
        if self._running.get(ping.key) is running:
            self._observer.counted(actor_name(ping.key, running.incarnation), tally_of(ping.key, answer))
        if ping.key.kind == "worker":
            if answer is None:
                return
            pong = unpack(answer, WorkerPong)
            self._machine.ponged(
                ping.key,
                ping.incarnation,
                self._clock(),
                ready=pong.ready and running.begun,
                busy_s=pong.busy_s,
            )
            if running.begun and pong.wiring < self._running.wiring_version:
                await quietly(running.ref.call("wire", self._running.wiring(running.info)))
        elif self._running.get(ping.key) is running:
            self._machine.ponged(ping.key, ping.incarnation, self._clock(), ready=running.begun)
        self._wake.set()

    async def _probe(self, probe: Probe, running: Running) -> None:
        runs = running.info is not None and await self._runtime.is_running(running.info)
        for action in self._machine.probed(probe.key, probe.incarnation, runs, self._clock()):
            self._carry_out(action)

    # ------------------------------------------------------------ telling the actors

    def _worker_plan(self) -> WorkerPlan:
        measured = self._observer.measured
        looked_at = measured or self.plan.status_address is not None
        return self._running.worker_plan(
            paused=self.report.paused,
            complete=self._started.done(),
            expected=self._scaling.workers,
            ends_every_s=self._scaling.ends_every_s(looked_at=looked_at),
            measured=measured,
        )

    async def _plan_changed(self) -> None:
        if (coordinator := self._running.begun(COORDINATOR)) is not None:
            await quietly(coordinator.ref.call("set_plan", pack(self._worker_plan())))

    def _rewire(self) -> None:
        self._running.wiring_version += 1
        for running in self._running.of_kind("worker").values():
            if running.info is not None:
                self._loops.go(quietly(running.ref.call("wire", self._running.wiring(running.info))))

    async def _tell_nodes(self) -> None:
        nodes = self._running.worker_nodes()
        if (metadata := self._running.begun(METADATA)) is not None:
            await quietly(metadata.ref.call("set_nodes", nodes))
            self._nodes_told.set()

    async def _watch_topology(self, metadata: Running) -> None:
        """Follows the metadata actor: one connection actor for each broker on each node that has workers."""
        await self._tell_nodes()
        while self._running.get(METADATA) is metadata:
            answer = await quietly(metadata.ref.call("topology"))
            if answer is None:
                return
            wanted = unpack(answer, Topology).wanted
            connections = {ActorKey("connection", w.broker, w.node): (w.host, w.port) for w in wanted}
            if connections and connections != self._running.brokers:
                self._move_brokers(connections)
            self._nodes_told.clear()
            try:
                await asyncio.wait_for(self._nodes_told.wait(), TOPOLOGY_S)
            except TimeoutError:
                pass

    def _move_brokers(self, connections: Mapping[ActorKey, tuple[str, int]]) -> None:
        """A broker with another address gets another connection actor."""
        for key, address in connections.items():
            running = self._running.get(key)
            if running is not None and self._running.brokers.get(key) != address:
                self._machine.died(key, running.incarnation, self._clock())
                self._gone(key, running)
        self._running.brokers = dict(connections)
        self._want()

    # ------------------------------------------------------------ what becomes of the job

    async def _watch_verdict(self) -> None:
        """Follows the coordinator: a bounded run may be finished, a function or the member may have failed."""
        while self._stopping is None:
            status = await self.report.ask(partitions=False)
            if status is not None:
                failed = [w.failed for w in status.workers.values() if w.failed is not None]
                for failure in [f for f in [status.fatal, *failed] if f is not None]:
                    self._fail(unpacked_failure(failure))
                    return
                self._drop_retired(status.retired)
                if status.finished:
                    drain = self.plan.config.drain_timeout_ms / 1000
                    self._stopping = asyncio.ensure_future(self._stop(drain + 3 * CLOSE_S, True, None))
            await asyncio.sleep(VERDICT_S)

    def _drop_retired(self, names: list[str]) -> None:
        """Those that hold nothing any more go in this same moment: a later one might want the number again."""
        for key, running in self._running.of_kind("worker").items():
            if key.number in self._running.retiring and actor_name(key, running.incarnation) in names:
                self._running.retiring.discard(key.number)
                self._want()
                self._step()

    # ------------------------------------------------------------ the policy

    async def _follow_load(self) -> None:
        """Looks at the load every second, for as long as a policy decides about the number of workers."""
        while self._stopping is None:
            if self._scaling.autoscale is not None and not self.report.paused:
                await self._look_at_load()
            await self._scaling.see_to_room(self._why_unplaced())
            await asyncio.sleep(LOOK_S)

    async def _look_at_load(self) -> None:
        status = await self.report.ask(partitions=True)
        if status is None or status.group.state != "stable":
            return
        bounds = dict(self._job_start.ends or ()) if self._job_start is not None else {}
        workers = self._running.of_kind("worker")
        ready = sum(r.begun for key, r in workers.items() if key.number < self._scaling.workers)
        if (decision := self._scaling.look(status, bounds, ready)) is not None:
            await self._rescale(decision.before)

    def _why_unplaced(self) -> str:
        """The first worker that has no place, and what it waits for; empty while all have one."""
        for key, running in self._running.of_kind("worker").items():
            if running.info is None and key.number < self._scaling.workers:
                return self._runtime.why_not_placed(key)
        return ""

    async def _rescale(self, before: int) -> None:
        """More workers start; fewer are drained first. One that has no place yet holds nothing that could be."""
        workers = self._scaling.workers
        placed = {k.number for k, r in self._running.of_kind("worker").items() if r.info is not None}
        gone = set(range(workers, before)) & placed
        self._running.retiring = {n for n in self._running.retiring | gone if n >= workers}
        self._want()
        await self._plan_changed()

    # ------------------------------------------------------------ what a user asks

    async def scale(self, workers: int | Autoscale) -> None:
        """So many workers from now on, or as many as a policy decides. Only the partitions that must move do."""
        before = self._scaling.workers
        self._scaling.say(workers)
        await self._rescale(before)

    async def pause(self, paused: bool) -> None:
        """No new call of the user's function while paused; the group and its partitions stay."""
        self.report.pause(paused)
        await self._plan_changed()

    async def status(self) -> JobStatus:
        """The job now; once it has ended, as it was at its end."""
        return await self.report.status()

    def __repr__(self) -> str:
        return f"<Supervisor of {self.plan.config.group_id} {self.report.state} {self._machine!r}>"


def tally_of(key: ActorKey, pong: bytes | None) -> bytes:
    """What an actor counted, in its answer to a ping; empty where it does not count."""
    if pong is None:
        return b""
    return unpack(pong, WorkerPong).tally if key.kind == "worker" else pong


def unpacked_failure(data: bytes) -> BaseException:
    failure = unpack(data, JobFailure)
    try:
        error: BaseException = pickle.loads(failure.pickled)
    except Exception:
        return KafkaActorsError(failure.text)
    return error

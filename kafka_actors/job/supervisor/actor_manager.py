"""`ActorManager`, the shell of `machines/supervision.py`: starts, watches, replaces and ends a job's actors.

It carries out the machine's actions and feeds it what happened. One call stays pending on each actor; its failure is the
death notice. The loop never waits for an actor: every call is a task of its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from functools import partial

from kafka_actors import events
from kafka_actors.base.machine_driver import MachineDriver
from kafka_actors.base.tasks import woken
from kafka_actors.errors import DisconnectedError, JobError, KafkaActorsError, StartTimeoutError
from kafka_actors.job.actor_setup import Topology
from kafka_actors.job.messages import ActorInfo, unpack

from .announcements import ActorStarter, Announcements
from .context import SupervisorContext
from .health_checks import HealthChecks
from .machines.supervision import (
    Action,
    ActorKey,
    AnsweringNode,
    DismissActor,
    FailJob,
    KillActor,
    PingActor,
    SilentNode,
    StartActor,
)
from .runtime import (
    COORDINATOR,
    METADATA,
    ActorRef,
    Death,
    RunningActor,
    actor_name,
    bounded,
    none_if_disconnected,
    retry_while,
)

__all__ = ["CLOSE_S", "UNCLOSED", "ActorManager"]

logger = logging.getLogger(__name__)

CLOSE_S = 2.0
"""Time in which a worker closes the user's object."""
UNCLOSED = "its process is ended; what must not be lost belongs in flush(), which each commit waits for"
QUIT_S = 2.0
TOPOLOGY_S = 0.5


class ActorManager:
    """Starts, watches and replaces the actors of one job; failures of the job as a whole go to `job.fail`."""

    def __init__(self, job: SupervisorContext, announcements: Announcements) -> None:
        self._job = job
        self._machine = job.machine
        self._running = job.running
        self._clock = job.clock
        self._create_task = job.tasks.create_task
        self._announcements = announcements
        self._starter = ActorStarter(job, announcements)
        self._driver = MachineDriver(job.clock)
        self._driver.add(self._machine, self._carry_out)
        self._wake = self._driver.wake
        self._health = HealthChecks(job, announcements, self._wake)
        self.last_counts = self._health.last_counts

    # ------------------------------------------------------------ the loop

    async def run(self) -> None:
        """Runs until it is cancelled."""
        await self._driver.run()

    def poll(self) -> None:
        """Carries out at once what is due now."""
        self._driver.poll()

    def _carry_out(self, action: Action) -> None:
        if isinstance(action, StartActor):
            self._create(action.key, action.incarnation)
        elif isinstance(action, KillActor):
            self._kill(action)
        elif isinstance(action, DismissActor):
            self._dismiss(action)
        elif isinstance(action, FailJob):
            self._job.fail(self._not_started(action))
        elif isinstance(action, SilentNode | AnsweringNode):
            self._report_node(action)
        elif (running := self._running.get(action.key)) is not None:
            self._create_task(
                self._health.ping(action, running)
                if isinstance(action, PingActor)
                else self._health.probe(action, running)
            )

    def _not_started(self, fail: FailJob) -> KafkaActorsError:
        if fail.deaths:
            what = "each time its process ended, by itself or by a signal, while it constructed the class of process"
            return JobError(f"{fail.key} was started {fail.deaths} times in vain: {what}")
        if not fail.placed:
            return StartTimeoutError(self._job.runtime.why_not_placed(fail.key), fail.after_s)
        what = "the constructor of process" if fail.key.kind == "worker" else "an answer"
        return StartTimeoutError(f"{what} of {fail.key} is still missing", fail.after_s)

    # ------------------------------------------------------------ wanted

    def want(self) -> None:
        """Sets which actors there should be: the metadata actor, and workers, whose processes take long to come up; the rest
        once the topics are known."""
        wanted, started = {METADATA}, self._job.started.done()
        wanted |= {ActorKey("worker", n) for n in range(self._job.scaling.workers)}
        wanted |= {ActorKey("worker", n) for n in self._running.retiring}
        if self._job.job_start is not None:
            wanted.add(COORDINATOR)
            wanted |= self._running.brokers.keys()
        if started:
            wanted |= {ActorKey("spare", 0, node) for node in {k.node for k in self._running.brokers}}
        self._machine.want(wanted, started=started)
        self._wake()

    async def _watch_topology(self, metadata: RunningActor) -> None:
        """Follows the brokers that the metadata actor lists: one connection actor per broker on each node with workers."""
        await self._announcements.send_nodes()
        while self._running.get(METADATA) is metadata:
            try:
                answer = await retry_while(
                    partial(metadata.ref.call, "topology"), lambda: self._running.get(METADATA) is metadata
                )
            except DisconnectedError:
                return
            wanted = [w for w in unpack(answer, Topology).wanted if w.node not in self._running.lost]
            connections = {ActorKey("connection", w.broker, w.node): (w.host, w.port) for w in wanted}
            if connections and connections != self._running.brokers:
                self._update_brokers(connections)
            self._announcements.nodes_sent.clear()
            await woken(self._announcements.nodes_sent, TOPOLOGY_S)

    def _update_brokers(self, connections: Mapping[ActorKey, tuple[str, int]]) -> None:
        """Takes the brokers' addresses; one with a new address gets a new connection actor."""
        for key, address in connections.items():
            running = self._running.get(key)
            if running is not None and self._running.brokers.get(key) != address:
                self._machine.died(key, running.incarnation, self._clock())
                self._remove(key, running)
        self._running.brokers = dict(connections)
        self.want()

    # ------------------------------------------------------------ starting an actor

    def _create(self, key: ActorKey, incarnation: int) -> None:
        ref = self._spare_for(key)
        if ref is None:
            arguments = self._starter.constructor(key, incarnation)
            ref = self._job.runtime.create(key, actor_name(key, incarnation), arguments)
        self._running[key] = RunningActor(incarnation, ref)
        if incarnation > 1 and key.kind != "spare":
            self._job.telemetry.restarted(key.kind)
        self._create_task(self._bring_up(key, self._running[key]))
        self._create_task(self._await_death(key, incarnation, self._running[key]))

    def _spare_for(self, key: ActorKey) -> ActorRef | None:
        """Returns the node's spare for a connection actor that died: a new process would take a second to come up, in which
        nobody reads from that broker."""
        spare = ActorKey("spare", 0, key.node)
        running = self._running.get(spare)
        if key.kind != "connection" or running is None or not running.begun:
            return None
        del self._running[spare]
        self._machine.took_over(spare, self._clock())
        ref: ActorRef = running.ref
        return ref

    async def _bring_up(self, key: ActorKey, running: RunningActor) -> None:
        lasts = partial(self._machine.is_current, key, running.incarnation)
        try:
            answer = await retry_while(partial(running.ref.call, "whereabouts"), lasts)
            running.info = unpack(answer, ActorInfo)
            self._running.lost.discard(running.info.node)
            self._machine.placed(key, running.incarnation, running.info.node, self._clock())
            if key.kind == "worker":
                self._create_task(self._announcements.send_plan())
                self._create_task(self._announcements.send_nodes())
                await self._starter.topics_known.wait()
                self._machine.begins(key, running.incarnation, self._clock())
            await retry_while(partial(self._starter.begin, key, running), lasts)
        except DisconnectedError:
            return  # the death notice follows
        except Exception as error:
            self._begin_failed(key, running, error)
            return
        running.begun = True
        self._machine.ponged(key, running.incarnation, self._clock())
        self._on_begun(key, running)
        self._wake()

    def _begin_failed(self, key: ActorKey, running: RunningActor, error: Exception) -> None:
        """Fails the job if a worker's constructor raised, or the job has not started; else replaces the actor."""
        if not self._machine.is_current(key, running.incarnation):
            return
        if key.kind == "worker" or not self._job.started.done():
            self._job.fail(error)
            return
        self._machine.died(key, running.incarnation, self._clock())
        self._failed(key, running, f"{key} could not begin and is replaced: {error}")

    def _on_begun(self, key: ActorKey, running: RunningActor) -> None:
        if key == METADATA:
            self.want()
            self._create_task(self._watch_topology(running))
        if key == COORDINATOR:
            # A worker that came up meanwhile isn't in the plan with which this coordinator began.
            self._create_task(self._announcements.send_plan())
        if key.kind not in ("worker", "spare"):
            self._announcements.rewire()
        if key.kind == "connection" and self._running.connects(key.node):
            self._create_task(self._announcements.send_plan())
        self._check_started()

    def _check_started(self) -> None:
        workers = [r for r in self._running.of_kind("worker").values() if r.begun]
        up = self._running.begun(COORDINATOR) is not None and len(workers) >= self._job.scaling.workers
        if up and not self._job.started.done():
            self._job.started.set_result(None)
            self._create_task(self._announcements.send_plan())
            self.want()

    # ------------------------------------------------------------ ends of actors

    async def _await_death(self, key: ActorKey, incarnation: int, running: RunningActor) -> None:
        death = await self._health.death(key, running)
        what = f": {death.how}" if death.how else ""
        node_lives = not (death.node_gone or death.node_unknown)
        if key.kind == "worker" and node_lives and self._machine.is_current(key, incarnation):
            # First of all: whoever gets its partitions makes the same call again, and has to know.
            what = await self._health.calls_at_death(key, self._running[key], death) or what
        if not self._machine.died(key, incarnation, self._clock()):
            return
        self._check_node(key, death)
        name = actor_name(key, incarnation)
        if death.init_failed and not self._job.started.done():
            self._job.fail(JobError(f"{name} could not be made: {death.reason}"))
            return
        self._failed(key, self._running[key], f"{name} died ({death.reason}{what}); a replacement starts")

    def _check_node(self, key: ActorKey, death: Death) -> None:
        """Drops the node from the wanted connection actors and spares if it died with the actor."""
        info = self._running[key].info
        node = info.node if info is not None else key.node
        if key.kind == "worker" and death.node_gone and node in self._machine.silent:
            self._announcements.cut_off(actor_name(key, self._running[key].incarnation))
        if death.node_gone or (death.node_unknown and self._machine.is_deserted(node)):
            self._running.lose_node(node)
            self.want()
            self._create_task(self._announcements.send_nodes())

    def _kill(self, kill: KillActor) -> None:
        running = self._running.get(kill.key)
        if running is None or running.incarnation != kill.incarnation:
            return
        if kill.stuck:
            self._create_task(self._kill_stuck(kill, running))
        else:
            self._failed(
                kill.key, running, f"{actor_name(kill.key, kill.incarnation)} is ended: {kill.reason}"
            )

    async def _kill_stuck(self, kill: KillActor, running: RunningActor) -> None:
        """Ends a worker in a call that lasts too long; the call counts as one in which a worker died."""
        end = Death(kill.reason, how=kill.reason)
        why = await self._health.calls_at_death(kill.key, running, end) or f": {kill.reason}"
        self._failed(kill.key, running, f"{actor_name(kill.key, kill.incarnation)} is ended{why}")

    def _failed(self, key: ActorKey, running: RunningActor, what: str) -> None:
        """Logs that an actor failed, with the same fields as its own log lines, and removes it."""
        origin = self._job.plan.setup(str(key), running.incarnation).origin
        logger.warning("%s", what, extra={"fields": origin.fields()})
        self._job.report.note("restart", what)
        self._remove(key, running)

    def _remove(self, key: ActorKey, running: RunningActor) -> None:
        """Removes an actor: its partitions, or its place, go to others at once."""
        if self._running.get(key) is running:
            del self._running[key]
        self._end(running)
        self._announce_end(key, running)

    def _end(self, running: RunningActor) -> None:
        """Kills the actor's process; another actor of its node also sends SIGKILL, because Ray can't end a stopped process."""
        self._job.runtime.kill(running.ref, running.info)
        if running.info is not None:
            neighbour = self._machine.neighbour(running.info.node, self._clock())
            if neighbour is not None and (other := self._running.get(neighbour)) is not None:
                self._create_task(none_if_disconnected(other.ref.call("end", running.info.pid)))

    def _dismiss(self, dismissed: DismissActor) -> None:
        running = self._running.get(dismissed.key)
        if running is not None and running.incarnation == dismissed.incarnation:
            del self._running[dismissed.key]
            ending = self._create_task(self._dismissed(dismissed.key, running))
            ending.add_done_callback(partial(self._end_dismissed, running))
            self._announce_end(dismissed.key, running)

    async def _dismissed(self, key: ActorKey, running: RunningActor) -> None:
        """Ends an actor that is not wanted any more; a worker closes the user's object first."""
        if key.kind == "worker" and running.begun:
            closing = retry_while(partial(running.ref.call, "close"), lambda: True)
            await bounded(closing, CLOSE_S, f"close of {actor_name(key, running.incarnation)}", UNCLOSED)
        await self._quit(running)

    def _end_dismissed(self, running: RunningActor, ending: asyncio.Task[None]) -> None:
        """Ends a dismissed actor of which the end of the job has cancelled the task: nobody else would."""
        if ending.cancelled():
            self._end(running)

    def _announce_end(self, key: ActorKey, running: RunningActor) -> None:
        name = actor_name(key, running.incarnation)
        self._job.telemetry.gone(name)
        if key.kind == "worker":
            # It was to go: a replacement might even wait for a place.
            if key.number in self._running.retiring:
                self._running.retiring.discard(key.number)
                self.want()
            self._create_task(self._announcements.send_plan())
            self._create_task(self._announcements.forget_worker(name))
        else:
            self._announcements.rewire()
        self._wake()

    async def quit_all(self) -> None:
        """Ends all actors for good, each within `QUIT_S`."""
        self._machine.want(())
        self._job.tasks.cancel()  # from now on no actor is pinged or replaced
        await asyncio.gather(*(self._quit(self._running.pop(key)) for key in list(self._running)))

    async def _quit(self, running: RunningActor) -> None:
        """Has an actor end by itself, because Ray prints a page about one that is killed. It is killed only if that fails."""
        try:
            async with asyncio.timeout(QUIT_S):
                await none_if_disconnected(running.ref.call("quit"))
                await running.ref.died()
        except BaseException as error:  # also of a stop whose time is over: nobody else would kill it
            self._end(running)
            if not isinstance(error, Exception):
                raise

    # ------------------------------------------------------------ nodes

    def _report_node(self, news: SilentNode | AnsweringNode) -> None:
        """Publishes that a node fell silent or answers again, and sends the plan: the coordinator moves the partitions of
        silent workers when their leases have ended."""
        workers = self._running.workers_on(news.node)
        if isinstance(news, SilentNode):
            self._job.report.happened(events.NodeSilent(news.node, news.seconds, workers))
        else:
            self._job.report.happened(events.NodeAnswers(news.node, workers))
        self._create_task(self._announcements.send_plan())

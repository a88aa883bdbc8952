"""`BaseCoordinator`: a member of a group, whatever the group shares out.

The machines decide; this shell sends what they ask for, tells them what came back, and wakes them in time. It has
one loop task; nothing that takes long runs in it.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from kafka_actors.errors import KafkaTimeoutError, UsageError
from kafka_actors.events import CoordinatorChanged, EventSink, Rejoining, log_event
from kafka_actors.protocol.messages.join_group import JoinGroupResponseMember
from kafka_actors.protocol.messages.sync_group import SyncGroupRequestAssignment

from .channels import LOST_CONNECTION, Channels
from .heartbeat import Heartbeat
from .machines.commits import CommitQueue
from .machines.group import GroupMember
from .machines.policy import GroupConfig, Policy
from .machines.states import MemberState
from .machines.steps import (
    NO_GENERATION,
    ComputeAssignment,
    CoordinatorFound,
    CoordinatorLost,
    Event,
    Failed,
    Outgoing,
    RejoinStarted,
)
from .machines.tickets import Standing, Ticket
from .ports import GroupClient

log = logging.getLogger(__name__)

__all__ = ["BaseCoordinator"]

LEAVE_TIMEOUT = 5.0


class BaseCoordinator(ABC):
    """Group management for one member, over the coordinator that the group has.

    From a high level: register with the coordinator with one's own metadata; one member is chosen as leader; it
    assigns; everybody gets its part. A subclass says what the metadata is (its `Policy`), assigns as leader
    (`_perform_assignment`), and acts on what happens (`_on_event`).

    clock: seconds, monotonic. rand: 0..1. Bound to the event loop in which `start` or any `ensure_…` is called.
    """

    def __init__(
        self,
        client: GroupClient,
        config: GroupConfig,
        policy: Policy,
        *,
        member_id: str = "",
        clock: Callable[[], float] = time.monotonic,
        rand: Callable[[], float] = random.random,
        events: EventSink = log_event,
        on_fatal: Callable[[Exception], None] | None = None,
    ) -> None:
        self._client = client
        self._group_config = config
        self._clock = clock
        self._rand = rand
        self._events = events
        self._on_fatal = on_fatal
        self._policy = policy
        self._member = GroupMember(config, policy, rand=rand, member_id=member_id)
        self._commits = CommitQueue(config, rand=rand)
        self._channels = Channels(client, f"member-{config.group_id}-{id(self):x}")
        self._crashed: Exception | None = None
        self._broken = False
        self._wakeup = asyncio.Event()
        self._changed = asyncio.Condition()
        self._loop_task: asyncio.Task[None] | None = None
        self._work_task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} {self._group_config.group_id} {self.state.value} "
            f"generation {self.generation}>"
        )

    # ------------------------------------------------------------ what is

    @property
    def state(self) -> MemberState:
        """Where the member stands."""
        return self._member.state

    @property
    def joined(self) -> bool:
        """Whether the member has its assignment and no rebalance is under way."""
        return self.state is MemberState.STABLE and self._member.rejoin_reason is None

    @property
    def generation(self) -> int:
        """The group's generation that this member is in, -1 if none."""
        return self._member.generation.id

    @property
    def member_id(self) -> str:
        """The id the coordinator gave this member, empty if none."""
        return self._member.generation.member_id

    @property
    def group_id(self) -> str:
        """The group."""
        return self._group_config.group_id

    @property
    def group_instance_id(self) -> str | None:
        """The id of a static member (KIP-345)."""
        return self._group_config.group_instance_id

    @property
    def leader(self) -> bool:
        """Whether this member assigns for the group."""
        return self._member.leader

    @property
    def coordinator_id(self) -> int | None:
        """The node id of the group's coordinator, if it is known."""
        node = self._member.coordinator
        return None if node is None else node.node_id

    @property
    def fatal(self) -> Exception | None:
        """The error that ended the membership."""
        return self._member.fatal or self._crashed

    @property
    def last_heartbeat_sent_and_acked(self) -> float | None:
        """When (by `clock`) the last request was *sent* that the coordinator acknowledged; None if none."""
        return self._member.heartbeat.acknowledged_at

    @property
    def heartbeat(self) -> Heartbeat:
        """The times of this member's heartbeats."""
        return Heartbeat(clock=self._clock, timer=self._member.heartbeat)

    def group_protocols(self) -> list[tuple[str, bytes]]:
        """(name, metadata) of each supported protocol, the most preferred first."""
        return self._policy.protocols()

    def protocol_type(self) -> str:
        """What kind of group this is: `consumer`, `connect`…"""
        return self._group_config.protocol_type

    def need_rejoin(self) -> bool:
        """Whether the group is to be joined, or joined again."""
        return not self.joined

    def coordinator_unknown(self) -> bool:
        """Whether the coordinator is not known, or not connected."""
        return self._member.coordinator is None

    def coordinator_dead(self, error: object) -> None:
        """Marks the coordinator as gone; it is looked for again."""
        self._member.coordinator_lost(str(error), self._clock())
        self._wake()

    # ------------------------------------------------------------ what is done

    async def start(self) -> None:
        """Begins to become a member, and returns at once."""
        self._run()
        self._member.start(self._clock())
        self._wake()

    async def ensure_coordinator_known(self, timeout_ms: float | None = None) -> None:
        """Returns when the coordinator is known and connected.

        Raises what ended the membership, `KafkaTimeoutError` after `timeout_ms` (None: never).
        """
        self._run()
        self._member.find_coordinator()
        self._wake()
        await self._until(lambda: not self.coordinator_unknown(), timeout_ms, "the coordinator is not known")

    async def ensure_active_group(self, timeout_ms: float | None = None) -> None:
        """Returns when the group is active: joined and synced. Raises as `ensure_coordinator_known`."""
        await self.start()
        await self._until(lambda: self.joined, timeout_ms, "the group could not be joined")

    def user_progress(self) -> None:
        """The user asked for more: `max_poll_interval_ms` counts from now."""
        self._member.user_progress(self._clock())
        self._wake()

    def enable_heartbeats(self, enabled: bool) -> None:
        """Sends heartbeats or not. Turned on, the session begins now. See `HeartbeatTask`."""
        self._member.heartbeat.enabled = enabled
        if enabled:
            self._member.heartbeat.reset(self._clock())
        self._wake()

    def request_rejoin(self, reason: str) -> None:
        """Has the group rebalance."""
        self._member.request_rejoin(reason)
        self._wake()

    async def _leave(self, seconds: float, ask: bool, reason: str) -> None:
        """Ends the membership, within `seconds` and a little."""
        if self._loop_task is None:
            return
        self._member.leave(self._clock(), seconds, ask=ask, reason=reason)
        self._wake()
        try:
            async with asyncio.timeout(seconds + 1.0), self._changed:
                await self._changed.wait_for(lambda: self._member.ended or self._broken)
        except TimeoutError:
            log.warning("group %s: could not leave in time", self.group_id)

    async def _stop(self) -> None:
        """Ends all tasks and connections."""
        for task in (self._loop_task, self._work_task):
            if task is not None:
                task.cancel()
                await asyncio.wait({task})
        self._loop_task = self._work_task = None
        await self._channels.close()

    # ------------------------------------------------------------ for subclasses

    @abstractmethod
    async def _perform_assignment(
        self, protocol: str, members: Sequence[JoinGroupResponseMember]
    ) -> Sequence[SyncGroupRequestAssignment]:
        """As leader: every member's assignment under the protocol that the group chose."""

    @abstractmethod
    def _on_event(self, event: Event) -> None:
        """Something happened to what this member owns. Must not wait."""

    @abstractmethod
    def _standing(self) -> Standing:
        """What the member may commit now."""

    @abstractmethod
    def _on_committed(self, ticket: Ticket) -> None:
        """A commit that was asked for is done."""

    @abstractmethod
    def _after_step(self) -> None:
        """Called after each step, when everything that it brought has been carried out."""

    def _fail(self, error: Exception) -> None:
        """Ends the membership for an error found outside of its machine; the group is told."""
        if self.fatal is not None or self._member.ended or self._member.leaving:
            log.warning("group %s: while ending: %s: %s", self.group_id, type(error).__name__, error)
            return
        self._crashed = error
        self._member.leave(self._clock(), LEAVE_TIMEOUT, reason=f"failed: {type(error).__name__}")
        self._tell_fatal(error)
        self._wake()

    # ------------------------------------------------------------ the loop

    def _run(self) -> None:
        if self.fatal is not None:
            raise self.fatal
        if self._member.ended:
            raise UsageError(f"the membership in group {self.group_id!r} has ended")
        if self._loop_task is None:
            self._loop_task = asyncio.get_running_loop().create_task(self._loop())

    def _wake(self) -> None:
        self._wakeup.set()

    async def _loop(self) -> None:
        while not self._broken:
            self._wakeup.clear()
            try:
                wake = self._step()
            except Exception as error:  # a defect of ours must not leave a member that looks alive
                log.exception("group %s: the coordinator failed", self.group_id)
                self._broken = True
                self._fail(error)
                break
            async with self._changed:
                self._changed.notify_all()
            try:
                async with asyncio.timeout(None if wake is None else max(0.0, wake - self._clock())):
                    await self._wakeup.wait()
            except TimeoutError:
                pass
        async with self._changed:
            self._changed.notify_all()

    def _step(self) -> float | None:
        """Polls both machines once, and carries out what they say. Returns when to do so again."""
        now = self._clock()
        ready = self._member.poll(now)
        for event in ready.events:
            self._carry_out(event)
        for request in ready.requests:
            self._channels.start(request, self._deliver)
        commits = self._commits.poll(now, self._standing())
        if commits.request is not None:
            self._channels.start(commits.request, self._deliver_commit)
        for notice in commits.notices:
            self._member.on_membership_error(notice.error, notice.verdict, notice.generation, now)
            self._wake()
        for ticket in commits.done:
            self._on_committed(ticket)
        self._after_step()
        return min((w for w in (ready.next_wake, commits.next_wake) if w is not None), default=None)

    def _deliver(self, request: Outgoing, outcome: object) -> None:
        self._member.on_response(request, outcome, self._clock())
        self._wake()

    def _deliver_commit(self, request: Outgoing, outcome: object) -> None:
        self._commits.on_response(request, outcome, self._clock(), self._standing())
        self._wake()

    def _carry_out(self, event: Event) -> None:
        match event:
            case CoordinatorFound(node):
                self._events(CoordinatorChanged(self.group_id, node.node_id))
            case CoordinatorLost(reason):
                log.info("group %s: coordinator lost: %s", self.group_id, reason)
                self._channels.disconnect()
                self._commits.connection_lost(LOST_CONNECTION, self._clock(), self._standing())
            case RejoinStarted(reason):
                self._events(Rejoining(self.group_id, reason))
            case ComputeAssignment(token, protocol, members):
                self._compute(token, protocol, members)
            case Failed(error):
                self._tell_fatal(error)
            case _:
                self._on_event(event)

    def _tell_fatal(self, error: Exception) -> None:
        if self._on_fatal is not None:
            self._on_fatal(error)
        else:
            log.error("group %s: %s: %s", self.group_id, type(error).__name__, error)

    def _compute(self, token: int, protocol: str, members: Sequence[JoinGroupResponseMember]) -> None:
        async def work() -> None:
            try:
                outcome: Sequence[SyncGroupRequestAssignment] | Exception
                outcome = await self._perform_assignment(protocol, members)
            except Exception as error:
                outcome = error
            self._member.on_assignment(token, outcome, self._clock())
            self._wake()

        if self._work_task is not None:
            self._work_task.cancel()
        self._work_task = asyncio.get_running_loop().create_task(work())

    async def _until(self, condition: Callable[[], bool], timeout_ms: float | None, problem: str) -> None:
        def over() -> bool:
            return condition() or self.fatal is not None or self._member.ended

        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000), self._changed:
                await self._changed.wait_for(over)
        except TimeoutError:
            raise KafkaTimeoutError(f"group {self.group_id}: {problem} after {timeout_ms:g} ms") from None
        if self.fatal is not None:
            raise self.fatal
        if not condition():
            raise UsageError(f"the membership in group {self.group_id!r} has ended")


def may_commit(member: GroupMember) -> bool:
    """Whether the coordinator would take a commit of the member's generation (`ClassicGroup.validateOffsetCommit`)."""
    committing = (MemberState.STABLE, MemberState.REVOKING, MemberState.JOINING)
    return member.generation.id != NO_GENERATION and member.state in committing


def ended_error(member: GroupMember, crashed: Exception | None) -> Exception | None:
    """Why this member will commit nothing any more."""
    if member.fatal is not None or crashed is not None:
        return member.fatal or crashed
    if member.state is MemberState.LEFT:
        return UsageError(f"the membership in group {member.config.group_id!r} has ended")
    return None

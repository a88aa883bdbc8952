"""Runs one membership: sends what its machine asks for, carries out what it says, and wakes it in time."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence

from kafka_actors.base.machine_driver import MachineDriver
from kafka_actors.errors import KafkaTimeoutError, UsageError
from kafka_actors.events import CoordinatorChanged, EventSink, Rebalanced, Rejoining
from kafka_actors.metrics import Metrics
from kafka_actors.protocol.messages.join_group import JoinGroupResponseMember
from kafka_actors.protocol.messages.sync_group import SyncGroupRequestAssignment

from .coordinator_channels import CoordinatorChannels
from .heartbeat import Heartbeat
from .listener_calls import ListenerCalls
from .machines.embedded_protocol import EmbeddedProtocol, GroupConfig
from .machines.member import ClassicMember
from .machines.member_events import (
    ComputeAssignment,
    CoordinatorFound,
    Disconnect,
    GroupRequest,
    MemberAction,
    MemberEvent,
    MemberFailed,
    RejoinStarted,
    TakePartitions,
)
from .membership import Membership
from .metrics import GroupCoordinatorMetrics
from .ports import GroupClient

log = logging.getLogger(__name__)

LEAVE_TIMEOUT = 5.0
"""Seconds for what is still to be said when a membership ends."""
GRACE = 1.0
"""Seconds that ending a membership may take beyond what was asked for."""


class MemberDriver(Membership, ABC):
    """A machine with its connections, its loop and its calls. `BaseCoordinator` is what others see of it."""

    def __init__(
        self,
        client: GroupClient,
        config: GroupConfig,
        policy: EmbeddedProtocol,
        *,
        metrics: Metrics,
        metric_group_prefix: str,
        client_id: str,
        member_id: str,
        clock: Callable[[], float],
        rand: Callable[[], float],
        events: EventSink,
        on_fatal: Callable[[Exception], None] | None,
    ) -> None:
        self._client = client
        self._group_config = config
        self._clock = clock
        self._rand = rand
        self._events = events
        self._on_fatal = on_fatal
        self._policy = policy
        self._member = ClassicMember(config, policy, rand=rand, member_id=member_id)
        self._channels = CoordinatorChannels(client, f"member-{config.group_id}-{id(self):x}")
        self._calls = ListenerCalls(clock, self._fail)
        self._loop = MachineDriver(clock, after_poll=self._after_poll, on_crash=self._on_crash)
        self._loop.add(self._member, self._carry_out, self._publish)
        self._work_task: asyncio.Task[None] | None = None
        self.metrics = metrics
        self._tags = {"client-id": client_id}
        self.heartbeat = Heartbeat(clock=clock, timer=self._member.heartbeat)
        """The times of this member's heartbeats."""
        self.sensors = GroupCoordinatorMetrics(
            self.heartbeat, metrics, metric_group_prefix, self._tags, group_id=config.group_id
        )

    @abstractmethod
    async def _perform_assignment(
        self, leader_id: str, protocol: str, members: Sequence[JoinGroupResponseMember]
    ) -> Mapping[str, bytes]:
        """As leader: every member's part, by member id, under the protocol that the group chose."""

    @abstractmethod
    def _on_action(self, action: MemberAction) -> None:
        """Carries out what concerns the partitions of this member. Must not wait."""

    def _on_disconnected(self) -> None:
        """The connections to the coordinator have been closed."""

    def _after_poll(self) -> None:
        """Ends a turn of the loop."""

    # ------------------------------------------------------------ the loop

    def _run(self) -> None:
        if self.fatal is not None:
            raise self.fatal
        if self._member.ended:
            raise UsageError(f"the membership in group {self.group_id!r} has ended")
        self._loop.start()

    def _wake(self) -> None:
        self._loop.wake()

    def _on_crash(self, error: Exception) -> None:
        log.error("group %s: the coordinator failed", self.group_id, exc_info=error)
        self._fail(error)

    def _deliver(self, request: GroupRequest, outcome: object) -> None:
        now = self._clock()
        if not isinstance(outcome, Exception):
            succeeded = not getattr(outcome, "error_code", 0)
            self.sensors.answered(request.api, now - request.sent_at, succeeded)
        self._member.on_response(request, outcome, now)
        self._wake()

    def _carry_out(self, action: GroupRequest | MemberAction) -> None:
        match action:
            case GroupRequest():
                self._channels.start(action, self._deliver)
            case Disconnect(reason):
                log.info("group %s: coordinator lost: %s", self.group_id, reason)
                self._channels.disconnect()
                self._on_disconnected()
            case ComputeAssignment(token, protocol, members):
                self._compute(token, protocol, members)
            case _:
                if (
                    isinstance(action, TakePartitions)
                    and (took := self.sensors.rebalance_ended()) is not None
                ):
                    self._events(Rebalanced(self.group_id, self.generation, round(took, 3)))
                self._on_action(action)

    def _publish(self, event: MemberEvent) -> None:
        match event:
            case CoordinatorFound(node):
                self._events(CoordinatorChanged(self.group_id, node.node_id))
            case RejoinStarted(reason):
                self.sensors.rebalance_started()
                self._events(Rejoining(self.group_id, reason))
            case MemberFailed(error):
                self._tell_fatal(error)

    def _tell_fatal(self, error: Exception) -> None:
        if self._on_fatal is not None:
            self._on_fatal(error)
        else:
            log.error("group %s: %s: %s", self.group_id, type(error).__name__, error)

    def _compute(self, token: int, protocol: str, members: Sequence[JoinGroupResponseMember]) -> None:
        async def work() -> None:
            outcome: Sequence[SyncGroupRequestAssignment] | Exception
            try:
                parts = await self._perform_assignment(self.member_id, protocol, members)
                outcome = [SyncGroupRequestAssignment(member_id=m, assignment=a) for m, a in parts.items()]
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

        seconds = None if timeout_ms is None else timeout_ms / 1000
        if not await self._loop.until(over, seconds):
            raise KafkaTimeoutError(f"group {self.group_id}: {problem} after {timeout_ms:g} ms")
        if self.fatal is not None:
            raise self.fatal
        if not condition():
            raise UsageError(f"the membership in group {self.group_id!r} has ended")

    # ------------------------------------------------------------ the end

    def _fail(self, error: Exception) -> None:
        """Ends the membership for an error found outside of its machine; the group is told."""
        if self.fatal is not None or self._member.ended or self._member.leaving:
            log.warning("group %s: while ending: %s: %s", self.group_id, type(error).__name__, error)
            return
        self._crashed = error
        self._member.leave(self._clock(), LEAVE_TIMEOUT, reason=f"failed: {type(error).__name__}")
        self._tell_fatal(error)
        self._wake()

    async def _leave(self, seconds: float, ask: bool, reason: str) -> None:
        """Ends the membership, within `seconds` and a little."""
        if not self._loop.running:
            return
        self._member.leave(self._clock(), seconds, ask=ask, reason=reason)
        self._wake()
        if not await self._loop.until(lambda: self._member.ended or self._loop.crashed, seconds + GRACE):
            log.warning("group %s: could not leave in time", self.group_id)

    async def _drain_calls(self) -> None:
        try:
            async with asyncio.timeout(LEAVE_TIMEOUT):
                await self._calls.drained()
        except TimeoutError:
            log.warning("group %s: what learns of rebalances did not return while closing", self.group_id)

    async def _stop(self) -> None:
        """Ends all tasks and connections."""
        await self._calls.close()
        await self._loop.stop()
        if self._work_task is not None:
            self._work_task.cancel()
            await asyncio.wait({self._work_task})
            self._work_task = None
        await self._channels.close()
        self.sensors.close()

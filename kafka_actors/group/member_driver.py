"""One membership at work: its machine with the loop, the connections, and the calls of the rebalance listener.

`MemberDriver` carries out what the machine asks for. `ListenerCalls` is the queue of the listener's calls: one at a time, in order,
each bounded by the deadlines of those behind it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kafka_actors.base.machine_driver import MachineDriver
from kafka_actors.errors import KafkaTimeoutError, UsageError
from kafka_actors.events import CoordinatorChanged, EventSink, Rebalanced, Rejoining
from kafka_actors.protocol.messages.join_group import JoinGroupResponseMember
from kafka_actors.protocol.messages.sync_group import SyncGroupRequestAssignment

from .coordinator_channels import CoordinatorChannels, GroupClient
from .machines.error_actions import GroupApi
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
from .metrics import GroupCoordinatorMetrics

log = logging.getLogger(__name__)


_FOREVER = float("inf")


MINIMUM = 1.0
"""Seconds that every call has, however late its turn comes: the listener must learn of everything."""


@dataclass(slots=True)
class ListenerCall:
    """A call to make, at most until `deadline`. `after` is called when it is over, however it ended.

    `yields`: it can be made again, so it is cancelled at once for a call that has a deadline.
    """

    make: Callable[[], Awaitable[None]]
    name: str
    deadline: float | None = None
    after: Callable[[], None] = lambda: None
    yields: bool = False
    start_by: float = _FOREVER
    """Time at which the call before it is cancelled: half of its own time is left then."""


class ListenerCalls:
    """Runs calls in order. An exception of a call goes to `on_error`; the calls behind it still run."""

    def __init__(self, clock: Callable[[], float], on_error: Callable[[Exception], None]) -> None:
        self._clock = clock
        self._on_error = on_error
        self._calls: deque[ListenerCall] = deque()
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._idle = asyncio.Event()
        self._idle.set()

    def put(self, call: ListenerCall) -> None:
        """Makes the call when it is its turn."""
        if call.deadline is not None:
            call.start_by = (self._clock() + call.deadline) / 2
        self._calls.append(call)
        self._idle.clear()
        self._changed.set()
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def drained(self) -> None:
        """Returns when no call is running or waiting."""
        await self._idle.wait()

    async def close(self) -> None:
        """Cancels what runs and forgets the rest."""
        self._calls.clear()
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _run(self) -> None:
        try:
            while self._calls:
                await self._one(self._calls[0])
                if self._calls:  # else closed meanwhile
                    self._calls.popleft().after()
        finally:
            self._idle.set()

    async def _one(self, call: ListenerCall) -> None:
        task = asyncio.ensure_future(_coroutine(call))
        earliest = self._clock() + MINIMUM
        try:
            while not task.done() and (timeout := self._limit(call, earliest) - self._clock()) > 0:
                self._changed.clear()
                changed = asyncio.ensure_future(self._changed.wait())
                await asyncio.wait(
                    {task, changed},
                    timeout=None if timeout == _FOREVER else timeout,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                changed.cancel()
        finally:
            if not task.done():
                again = ", to be called again" if call.yields else ""
                log.warning("%s did not return in time: cancelled%s", call.name, again)
                task.cancel()
                await asyncio.wait({task}, timeout=1.0)
        if task.done() and not task.cancelled() and isinstance(error := task.exception(), Exception):
            self._on_error(error)

    def _limit(self, call: ListenerCall, earliest: float) -> float:
        own = _FOREVER if call.deadline is None else call.deadline
        behind = (waiting.start_by for waiting in self._calls if waiting is not call)
        limit = min(own, *behind, _FOREVER)
        return earliest if call.yields and limit < _FOREVER else max(earliest, limit)


async def _coroutine(call: ListenerCall) -> None:
    await call.make()


LEAVE_TIMEOUT = 5.0
"""Seconds that the listener's last calls, and LeaveGroup after a failure, may take when a membership ends."""
_TOWARDS_GROUP = (GroupApi.FIND_COORDINATOR, GroupApi.CONNECT, GroupApi.JOIN, GroupApi.SYNC)
TROUBLE_S = 10.0
"""Seconds for which the coordinator may refuse a member before that is logged: while it moves, that is nothing to be told of."""
AGAIN_S = 60.0
"""Seconds until it is logged again."""
GRACE = 1.0
"""Seconds that ending a membership may take beyond the time that the caller gave."""

PerformAssignment = Callable[[str, str, Sequence[JoinGroupResponseMember]], Awaitable[Mapping[str, bytes]]]
"""The leader's part: (own member id, protocol, members) → each member's assignment by member id."""


class MemberDriver:
    """Drives a `ClassicMember`: sends its requests, makes its calls, publishes its events, ends it.

    perform_assignment: computes the assignment when this member leads. on_action: carries out what concerns the member's
    partitions; must not wait. on_disconnected: learns that the connections to the coordinator have been closed. after_poll: ends
    each turn of the loop. on_fatal: learns what ended the membership; without it the error is logged. Other machines that
    depend on the membership are added to `loop`, and so are polled after it in each turn.
    """

    def __init__(
        self,
        client: GroupClient,
        machine: ClassicMember,
        sensors: GroupCoordinatorMetrics,
        *,
        perform_assignment: PerformAssignment,
        on_action: Callable[[MemberAction], None],
        on_disconnected: Callable[[], None],
        after_poll: Callable[[], None],
        on_fatal: Callable[[Exception], None] | None,
        events: EventSink,
        clock: Callable[[], float],
    ) -> None:
        self.machine = machine
        self.group_id = machine.config.group_id
        self.now = clock
        self.channels = CoordinatorChannels(client, f"member-{self.group_id}-{id(self):x}")
        self.calls = ListenerCalls(clock, self.fail)
        self.loop = MachineDriver(clock, after_poll=after_poll, on_crash=self._on_crash)
        self.loop.add(machine, self._carry_out, self._publish)
        self.wake = self.loop.wake
        self._sensors = sensors
        self._perform_assignment = perform_assignment
        self._on_action = on_action
        self._on_disconnected = on_disconnected
        self._on_fatal = on_fatal
        self._events = events
        self._crashed: Exception | None = None
        self._warn_at: float | None = None
        self._work_task: asyncio.Task[None] | None = None

    @property
    def fatal(self) -> Exception | None:
        """The error that ended the membership, found by its machine or outside of it."""
        return self.machine.fatal or self._crashed

    @property
    def last_acknowledged(self) -> float | None:
        """When (by `now`) the last request was *sent* that the coordinator acknowledged; None if none was."""
        return self.machine.heartbeat.acknowledged_at

    # ------------------------------------------------------------ inputs

    def run(self) -> None:
        """Starts the loop. Raises what ended the membership, `UsageError` where it was closed."""
        if self.fatal is not None:
            raise self.fatal
        if self.machine.ended:
            raise UsageError(f"the membership in group {self.group_id!r} has ended")
        self.loop.start()

    def find_coordinator(self) -> None:
        """Starts the loop, and has the coordinator found and connected, with or without a membership."""
        self.run()
        self.machine.find_coordinator()
        self.wake()

    async def coordinator_known(self, timeout_ms: float | None = None) -> None:
        """Returns when the coordinator is known and connected. Raises as `until`."""
        self.find_coordinator()
        await self.until(
            lambda: self.machine.coordinator is not None, timeout_ms, "the coordinator is not known"
        )

    def coordinator_lost(self, error: object) -> None:
        """Has the coordinator looked for again."""
        self.machine.coordinator_lost(str(error), self.now())
        self.wake()

    def request_rejoin(self, reason: str) -> None:
        """Has the group rebalance."""
        self.machine.request_rejoin(reason)
        self.wake()

    def released(self, token: int) -> None:
        """Reports that the partitions of that `RevokePartitions` are given up."""
        self.machine.on_released(token, self.now())
        self.wake()

    def fail(self, error: Exception) -> None:
        """Ends the membership for an error found outside of its machine; the group is told."""
        if self.fatal is not None or self.machine.ended or self.machine.leaving:
            log.warning("group %s: while ending: %s: %s", self.group_id, type(error).__name__, error)
            return
        self._crashed = error
        self.machine.leave(self.now(), LEAVE_TIMEOUT, reason=f"failed: {type(error).__name__}")
        self._report_fatal(error)
        self.wake()

    def work(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs work of the leader, in place of what still runs of an earlier generation."""
        if self._work_task is not None:
            self._work_task.cancel()
        self._work_task = asyncio.get_running_loop().create_task(work)

    async def until(self, condition: Callable[[], bool], timeout_ms: float | None, problem: str) -> None:
        """Returns when the condition holds after a turn.

        Raises what ended the membership, `UsageError` where it was closed, `KafkaTimeoutError` with the `problem` after
        `timeout_ms` (None: never).
        """

        def over() -> bool:
            return condition() or self.fatal is not None or self.machine.ended

        seconds = None if timeout_ms is None else timeout_ms / 1000
        if not await self.loop.until(over, seconds):
            raise KafkaTimeoutError(f"group {self.group_id}: {problem} after {timeout_ms:g} ms")
        if self.fatal is not None:
            raise self.fatal
        if not condition():
            raise UsageError(f"the membership in group {self.group_id!r} has ended")

    # ------------------------------------------------------------ what the machine asks for

    def _carry_out(self, action: GroupRequest | MemberAction) -> None:
        match action:
            case GroupRequest():
                self.channels.start(action, self._deliver)
            case Disconnect(reason):
                log.info("group %s: coordinator lost: %s", self.group_id, reason)
                self.channels.disconnect()
                self._on_disconnected()
            case ComputeAssignment(token, protocol, members):
                self.work(self._compute(token, protocol, members))
            case _:
                if (
                    isinstance(action, TakePartitions)
                    and (took := self._sensors.rebalance_ended()) is not None
                ):
                    self._events(Rebalanced(self.group_id, self.machine.generation.id, round(took, 3)))
                self._on_action(action)

    def _publish(self, event: MemberEvent) -> None:
        match event:
            case CoordinatorFound(node):
                self._events(CoordinatorChanged(self.group_id, node.node_id))
            case RejoinStarted(reason):
                self._sensors.rebalance_started()
                self._events(Rejoining(self.group_id, reason))
            case MemberFailed(error):
                self._report_fatal(error)

    def _deliver(self, request: GroupRequest, outcome: object) -> None:
        now = self.now()
        succeeded = not isinstance(outcome, Exception) and not getattr(outcome, "error_code", 0)
        if not isinstance(outcome, Exception):
            self._sensors.answered(request.api, now - request.sent_at, succeeded)
        self.machine.on_response(request, outcome, now)
        # A JoinGroup that succeeds is half of the way, on which others may be waited for.
        if request.api in _TOWARDS_GROUP and not (succeeded and request.api is GroupApi.JOIN):
            self._warn_of_trouble(now)
        self.wake()

    def _warn_of_trouble(self, now: float) -> None:
        """Logs why the coordinator is not known, or the group not joined, once that has lasted for `TROUBLE_S`, and then each minute."""
        trouble = self.machine.trouble
        if not trouble or self.machine.ended:
            self._warn_at = None
        elif self._warn_at is None:
            self._warn_at = now + TROUBLE_S
        elif now >= self._warn_at:
            self._warn_at = now + AGAIN_S
            log.warning(
                "group %s: its coordinator doesn't serve this member, trying on: %s", self.group_id, trouble
            )

    async def _compute(self, token: int, protocol: str, members: Sequence[JoinGroupResponseMember]) -> None:
        member_id = self.machine.generation.member_id
        try:
            parts = await self._perform_assignment(member_id, protocol, members)
            assignments = [SyncGroupRequestAssignment(member_id=m, assignment=a) for m, a in parts.items()]
        except Exception as error:
            # Not by the machine, whose end tells the group nothing: all members wait for this one.
            if self.machine.computes(token):
                self.fail(error)
            return
        self.machine.on_assignment(token, assignments, self.now())
        self.wake()

    def _report_fatal(self, error: Exception) -> None:
        if self._on_fatal is not None:
            self._on_fatal(error)
        else:
            log.error("group %s: %s: %s", self.group_id, type(error).__name__, error)

    def _on_crash(self, error: Exception) -> None:
        log.error("group %s: the coordinator failed", self.group_id, exc_info=error)
        self.fail(error)

    # ------------------------------------------------------------ the end

    async def leave(self, seconds: float, ask: bool, reason: str) -> None:
        """Ends the membership within `seconds` and a little: drains, sends LeaveGroup if `ask`, awaits the listener's calls."""
        if self.loop.running:
            self.machine.leave(self.now(), seconds, ask=ask, reason=reason)
            self.wake()
            if not await self.loop.until(lambda: self.machine.ended or self.loop.crashed, seconds + GRACE):
                log.warning("group %s: could not leave in time", self.group_id)
        try:
            async with asyncio.timeout(LEAVE_TIMEOUT):
                await self.calls.drained()
        except TimeoutError:
            log.warning("group %s: the rebalance listener did not return while closing", self.group_id)

    async def stop(self) -> None:
        """Ends all tasks and closes all connections."""
        await self.calls.close()
        await self.loop.stop()
        if self._work_task is not None:
            self._work_task.cancel()
            await asyncio.wait({self._work_task})
            self._work_task = None
        await self.channels.close()
        self._sensors.close()

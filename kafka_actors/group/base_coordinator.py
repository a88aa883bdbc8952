"""`BaseCoordinator`: a member of a group, whatever the group shares out. `ConsumerCoordinator` shares out partitions."""

from __future__ import annotations

import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kafka_actors.config import ConsumerConfig
from kafka_actors.errors import ProtocolError, raise_for_code
from kafka_actors.events import EventSink, log_event
from kafka_actors.metrics import Metrics
from kafka_actors.protocol import DescribeGroupsRequest
from kafka_actors.protocol.messages.join_group import JoinGroupResponseMember
from kafka_actors.types import ConsumerGroupMetadata

from .coordinator_channels import GroupClient
from .heartbeat import Heartbeat, HeartbeatTask
from .machines.embedded_protocol import EmbeddedProtocol, GroupConfig, OpaqueAssignment
from .machines.member import ClassicMember
from .machines.member_core import MemberState
from .machines.member_events import LosePartitions, MemberAction, RevokePartitions, TakePartitions
from .member_driver import LEAVE_TIMEOUT, ListenerCall, MemberDriver
from .metrics import GroupCoordinatorMetrics
from .options import FROM_CONFIG, GROUP_OPTIONS, defaults_of, group_config, read_options

__all__ = ["BaseCoordinator"]


class BaseCoordinator(ABC):
    """Group management for one member, over the coordinator that the group has.

    Each member registers with the coordinator with its own metadata; one of them is chosen as leader and assigns; each gets its
    part. A subclass has to define:

    - `protocol_type`, `group_protocols`: what kind of group this is, and this member's metadata under each
      protocol that it can follow, the most preferred first;
    - `_perform_assignment`: as leader, everybody's part;
    - `_on_join_complete`, `_on_join_prepare`, `_on_membership_lost`: what to do with one's part, before it is
      given up for the next rebalance, and when it is gone without that.

    An assignment is given up before each rebalance (eager). A subclass that can keep a share of it, as a consumer can, brings
    an `EmbeddedProtocol` (`_make_policy`) and carries out single actions (`_on_action`).

    client: metadata, and connections to the coordinator. metrics: where what is measured is registered (default: a
    registry of its own), in the group `{metric_group_prefix}-coordinator-metrics`, with the tag client-id. config, or
    single options: those of `DEFAULT_CONFIG`, in milliseconds. group_instance_id: "auto" makes one up. member_id: of a
    dynamic member that goes on with a membership of an earlier process. incarnation: of a dynamic member, the number of this process
    where earlier and later ones have the same member id and each needs a generation of its own. rebalance_timeout_ms: how long the group waits
    for its members to rejoin (default `max_poll_interval_ms`, as in Java). revoke_timeout_ms: how long a drain may
    take (default half of that). max_poll_interval_ms: None where nobody calls `user_progress`. on_fatal: learns what
    ended the membership. clock: seconds, monotonic. rand: 0..1. Bound to the event loop in which `start` or any
    `ensure_…` is called.

    Raises `ConfigError` for a missing group_id, an unknown option, contradicting timeouts.
    """

    DEFAULT_CONFIG: Mapping[str, Any] = {"metric_group_prefix": "", **defaults_of(GROUP_OPTIONS)}

    def __init__(
        self,
        client: GroupClient,
        metrics: Metrics | None = None,
        *,
        config: ConsumerConfig | None = None,
        metric_group_prefix: str = "",
        group_instance_id: str | None = FROM_CONFIG,
        member_id: str = "",
        incarnation: int | None = None,
        rebalance_timeout_ms: int | None = None,
        revoke_timeout_ms: int | None = None,
        max_poll_interval_ms: int | None = FROM_CONFIG,
        on_fatal: Callable[[Exception], None] | None = None,
        events: EventSink = log_event,
        clock: Callable[[], float] = time.monotonic,
        rand: Callable[[], float] = random.random,
        **options: Any,
    ) -> None:
        self._config = read_options(config, options, self.DEFAULT_CONFIG, type(self).__name__)
        group = group_config(
            self._config,
            group_instance_id=group_instance_id,
            rebalance_timeout_ms=rebalance_timeout_ms,
            revoke_timeout_ms=revoke_timeout_ms,
            max_poll_interval_ms=max_poll_interval_ms,
            incarnation=incarnation,
        )
        group = replace(group, protocol_type=self.protocol_type())
        self._client = client
        self._clock = clock
        self._rand = rand
        self._events = events
        self._policy = self._make_policy(group)
        self._member = ClassicMember(
            group, self._policy, rand=rand, member_id="" if group.group_instance_id else member_id
        )
        self.metrics = metrics or self._config.metrics or Metrics(clock=clock)
        """The registry of what is measured."""
        self._tags = {"client-id": self._config.client_id}
        self.heartbeat = Heartbeat(clock=clock, timer=self._member.heartbeat)
        """The times of this member's heartbeats."""
        self.heartbeat_task = HeartbeatTask(self)
        """Turns the heartbeats off and on."""
        self.sensors = GroupCoordinatorMetrics(
            self.heartbeat, self.metrics, metric_group_prefix, self._tags, group_id=group.group_id
        )
        self._driver = MemberDriver(
            client,
            self._member,
            self.sensors,
            perform_assignment=self._perform_assignment,
            on_action=self._on_action,
            on_disconnected=self._on_disconnected,
            after_poll=self._after_poll,
            on_fatal=on_fatal,
            events=events,
            clock=clock,
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.group_id} {self.state.value} generation {self.generation}>"

    # ------------------------------------------------------------ the membership as it is

    @property
    def state(self) -> MemberState:
        """The member's state in its group."""
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
        """The id that the coordinator gave this member, empty if none."""
        return self._member.generation.member_id

    @property
    def group_id(self) -> str:
        """The group's name."""
        return self._member.config.group_id

    @property
    def group_instance_id(self) -> str | None:
        """The id of a static member (KIP-345)."""
        return self._member.config.group_instance_id

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Returns the membership as it is, for offsets that a transaction commits. For any thread."""
        generation = self._member.generation
        return ConsumerGroupMetadata(
            self.group_id, generation.id, generation.member_id, self.group_instance_id
        )

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
        return self._driver.fatal

    @property
    def last_heartbeat_sent_and_acked(self) -> float | None:
        """When (by `clock`) the last request was *sent* that the coordinator acknowledged; None if none."""
        return self._driver.last_acknowledged

    def need_rejoin(self) -> bool:
        """Whether the group is to be joined, or joined again."""
        return not self.joined

    def coordinator_unknown(self) -> bool:
        """Whether the coordinator is not known, or not connected."""
        return self._member.coordinator is None

    def now(self) -> float:
        """Returns the time by this coordinator's clock, in seconds."""
        return self._clock()

    # ------------------------------------------------------------ requests of the user

    def coordinator_dead(self, error: object) -> None:
        """Marks the coordinator as gone; it is looked for again."""
        self._driver.coordinator_lost(error)

    async def start(self) -> None:
        """Begins to become a member, and returns at once."""
        self._driver.run()
        self._member.start(self._clock())
        self._driver.wake()

    async def ensure_coordinator_known(self, *, timeout_ms: float | None = None) -> None:
        """Returns when the coordinator is known and connected.

        Raises what ended the membership, `KafkaTimeoutError` after `timeout_ms` (None: never).
        """
        await self._driver.coordinator_known(timeout_ms)

    async def ensure_active_group(self, *, timeout_ms: float | None = None) -> None:
        """Returns when the group is active: joined and synced. Raises as `ensure_coordinator_known`."""
        await self.start()
        await self._driver.until(lambda: self.joined, timeout_ms, "the group could not be joined")

    async def count_members(self) -> int:
        """Returns the number of members that the group has now, this one among them, as its coordinator says.

        Raises the coordinator's error, and `NodeNotReadyError` while it is not known; needs the right to describe the
        group, which who may read it has.
        """
        request = DescribeGroupsRequest(groups=[self.group_id])
        response = await self._driver.channels.ask(request, self._member.config.request_timeout * 1000)
        if len(response.groups) != 1:
            raise ProtocolError(f"DescribeGroups of one group was answered with {len(response.groups)}")
        (group,) = response.groups
        raise_for_code(group.error_code, group.error_message, request="DescribeGroups", group=self.group_id)
        return len(group.members)

    def user_progress(self) -> None:
        """Notes that the user asked for more: `max_poll_interval_ms` counts from now."""
        self._member.user_progress(self._clock())
        self._driver.wake()

    def enable_heartbeats(self, enabled: bool) -> None:
        """Sends heartbeats or not. Turned on, the session begins now. See `HeartbeatTask`."""
        self._member.heartbeat.enabled = enabled
        if enabled:
            self._member.heartbeat.reset(self._clock())
        self._driver.wake()

    def request_rejoin(self, reason: str) -> None:
        """Has the group rebalance; the reason is told to its coordinator (KIP-800)."""
        self._driver.request_rejoin(reason)

    async def close(self, *, leave: bool = True, timeout_ms: float = 10_000) -> None:
        """Gives everything up, leaves the group, and closes all connections, within `timeout_ms` and a little.

        leave: tell the group; without it a static member's part waits for it until its session ends. Never raises
        for a broker that doesn't answer.
        """
        if self._member.fatal is None:  # what failed outside of the machine is told to the group
            await self._driver.leave(timeout_ms / 1000, leave, "the member is being closed")
        await self._driver.stop()

    # ------------------------------------------------------------ for subclasses

    @abstractmethod
    def protocol_type(self) -> str:
        """Returns the kind of group: `consumer`, `connect`… All members have the same."""

    @abstractmethod
    def group_protocols(self) -> list[tuple[str, bytes]]:
        """Returns (name, metadata) of each supported protocol, the most preferred first."""

    @abstractmethod
    async def _perform_assignment(
        self, leader_id: str, protocol: str, members: Sequence[JoinGroupResponseMember]
    ) -> Mapping[str, bytes]:
        """Computes, as leader, each member's assignment by member id, under the protocol that the group chose."""

    async def _on_join_prepare(self, generation: int, member_id: str) -> None:  # noqa: B027  a group may do without
        """Finishes with the part, which is about to be given up. Cancelled after `revoke_timeout_ms`."""

    async def _on_join_complete(  # noqa: B027  a group may do without
        self, generation: int, member_id: str, protocol: str, assignment: bytes
    ) -> None:
        """Takes this member's part: the group is active."""

    async def _on_membership_lost(self, reason: str) -> None:  # noqa: B027  a group may do without
        """Learns that the part is gone already: others may have it."""

    def _on_disconnected(self) -> None:  # noqa: B027  a group may do without
        """Learns that the connections to the coordinator have been closed."""

    def _after_poll(self) -> None:  # noqa: B027  a group may do without
        """Ends a turn of the loop, after which the membership may have changed."""

    def _make_policy(self, config: GroupConfig) -> EmbeddedProtocol:
        """Makes what decides how an assignment is taken over and given up."""
        return OpaqueAssignment(self.group_protocols)

    def _on_action(self, action: MemberAction) -> None:
        """Carries out what concerns the partitions of this member. Must not wait."""
        match action:
            case TakePartitions(generation, _, _):
                # A subclass with another one carries out actions itself.
                assert isinstance(self._policy, OpaqueAssignment)
                protocol, assignment = self._member.generation.protocol or "", self._policy.assignment
                self._driver.calls.put(
                    ListenerCall(
                        lambda: self._on_join_complete(generation, self.member_id, protocol, assignment),
                        "_on_join_complete",
                    )
                )
            case RevokePartitions(token, _, deadline):
                generation = self.generation
                self._driver.calls.put(
                    ListenerCall(
                        lambda: self._on_join_prepare(generation, self.member_id),
                        "_on_join_prepare",
                        deadline,
                        lambda: self._driver.released(token),
                    )
                )
            case LosePartitions(_, reason):
                deadline = self._clock() + LEAVE_TIMEOUT
                self._driver.calls.put(
                    ListenerCall(lambda: self._on_membership_lost(reason), "_on_membership_lost", deadline)
                )

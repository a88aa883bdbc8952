"""The member of a group for programs that build a client of their own: names of `kafka_actors.group` that stay where they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_actors.lazy import lazily

if TYPE_CHECKING:
    from kafka_actors.group import (
        AutoCommitTask,
        BaseCoordinator,
        CommitCallback,
        CommittedStart,
        ConsumerCoordinator,
        ConsumerCoordinatorMetrics,
        GroupBroker,
        GroupClient,
        GroupCoordinatorMetrics,
        Heartbeat,
        HeartbeatTask,
        IgnoreRebalances,
        MemberState,
        RebalanceListener,
        default_offset_commit_callback,
        fetch_offsets_of_groups,
    )

__all__ = [
    "AutoCommitTask",
    "BaseCoordinator",
    "CommitCallback",
    "CommittedStart",
    "ConsumerCoordinator",
    "ConsumerCoordinatorMetrics",
    "GroupBroker",
    "GroupClient",
    "GroupCoordinatorMetrics",
    "Heartbeat",
    "HeartbeatTask",
    "IgnoreRebalances",
    "MemberState",
    "RebalanceListener",
    "default_offset_commit_callback",
    "fetch_offsets_of_groups",
]

__getattr__ = lazily(__name__, dict.fromkeys(__all__, "kafka_actors.group"))


def __dir__() -> list[str]:
    return __all__

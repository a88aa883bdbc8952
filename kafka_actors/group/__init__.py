"""A member of a classic consumer group: machines that decide, and asyncio shells under the names of kafka-python's coordinator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_actors.lazy import lazily

if TYPE_CHECKING:
    from .base_coordinator import BaseCoordinator
    from .commit_sender import CommitCallback
    from .consumer_coordinator import AutoCommitTask, ConsumerCoordinator, default_offset_commit_callback
    from .coordinator_channels import GroupBroker, GroupClient
    from .heartbeat import Heartbeat, HeartbeatTask
    from .machines.member_core import MemberState
    from .machines.topic_ids import CommittedStart
    from .metrics import ConsumerCoordinatorMetrics, GroupCoordinatorMetrics
    from .offset_fetcher import fetch_offsets_of_groups
    from .rebalance_listener import IgnoreRebalances, RebalanceListener

# Loaded at the first use of a name: workers of a job need the forms of what is committed, and no member.
_HOMES = {
    "AutoCommitTask": "consumer_coordinator",
    "BaseCoordinator": "base_coordinator",
    "CommitCallback": "commit_sender",
    "CommittedStart": "machines.topic_ids",
    "ConsumerCoordinator": "consumer_coordinator",
    "ConsumerCoordinatorMetrics": "metrics",
    "GroupBroker": "coordinator_channels",
    "GroupClient": "coordinator_channels",
    "GroupCoordinatorMetrics": "metrics",
    "Heartbeat": "heartbeat",
    "HeartbeatTask": "heartbeat",
    "IgnoreRebalances": "rebalance_listener",
    "MemberState": "machines.member_core",
    "RebalanceListener": "rebalance_listener",
    "default_offset_commit_callback": "consumer_coordinator",
    "fetch_offsets_of_groups": "offset_fetcher",
}

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

__getattr__ = lazily(__name__, _HOMES)


def __dir__() -> list[str]:
    return __all__

"""A member of a classic consumer group: machines that decide, and asyncio shells under the names of kafka-python's coordinator."""

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

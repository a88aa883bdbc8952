"""A member of a classic consumer group: machines that decide, and asyncio shells under the known names."""

from .base_coordinator import BaseCoordinator
from .commit_sender import CommitCallback
from .consumer_coordinator import ConsumerCoordinator, default_offset_commit_callback
from .heartbeat import Heartbeat
from .machines.committed_starts import CommittedStart
from .machines.member_states import MemberState
from .metrics import ConsumerCoordinatorMetrics, GroupCoordinatorMetrics
from .offset_fetcher import fetch_offsets_of_groups
from .ports import GroupBroker, GroupClient, IgnoreRebalances, RebalanceListener
from .tasks import AutoCommitTask, HeartbeatTask

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

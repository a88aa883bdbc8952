"""A member of a classic consumer group: machines that decide, and asyncio shells under the known names."""

from .base import BaseCoordinator
from .committing import CommitCallback
from .consumer import ConsumerCoordinator, default_offset_commit_callback
from .fetching import fetch_offsets_of_groups
from .heartbeat import Heartbeat
from .machines.origins import Origin
from .machines.states import MemberState
from .metrics import ConsumerCoordinatorMetrics, GroupCoordinatorMetrics
from .ports import GroupBroker, GroupClient, IgnoreRebalances, RebalanceListener
from .tasks import AutoCommitTask, HeartbeatTask

__all__ = [
    "AutoCommitTask",
    "BaseCoordinator",
    "CommitCallback",
    "ConsumerCoordinator",
    "ConsumerCoordinatorMetrics",
    "GroupBroker",
    "GroupClient",
    "GroupCoordinatorMetrics",
    "Heartbeat",
    "HeartbeatTask",
    "IgnoreRebalances",
    "MemberState",
    "Origin",
    "RebalanceListener",
    "default_offset_commit_callback",
    "fetch_offsets_of_groups",
]

"""A member of a classic consumer group: machines that decide, and asyncio shells under the known names."""

from .base import BaseCoordinator
from .consumer import ConsumerCoordinator, default_offset_commit_callback
from .heartbeat import Heartbeat
from .machines.states import MemberState
from .ports import GroupBroker, GroupClient, IgnoreRebalances, RebalanceListener
from .tasks import AutoCommitTask, HeartbeatTask

__all__ = [
    "AutoCommitTask",
    "BaseCoordinator",
    "ConsumerCoordinator",
    "GroupBroker",
    "GroupClient",
    "Heartbeat",
    "HeartbeatTask",
    "IgnoreRebalances",
    "MemberState",
    "RebalanceListener",
    "default_offset_commit_callback",
]

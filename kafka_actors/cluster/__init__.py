"""What a client knows of its cluster: metadata, the mapping of brokers to connections, the subscription."""

from .cluster import Cluster
from .future import Future
from .metadata import ClusterMetadata
from .snapshot import BrokerMetadata, ClusterSnapshot, PartitionMetadata, TopicMetadata
from .subscription import SubscriptionMode, SubscriptionState

__all__ = [
    "BrokerMetadata",
    "Cluster",
    "ClusterMetadata",
    "ClusterSnapshot",
    "Future",
    "PartitionMetadata",
    "SubscriptionMode",
    "SubscriptionState",
    "TopicMetadata",
]

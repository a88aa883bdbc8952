"""The cluster as a client knows it: metadata, connections by broker, the subscription of a consumer."""

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

"""Partition assignors: they distribute partitions over the members of a group.

They are pure functions of the group, without clock, network or Kafka client, and return the same result for the same
members in any order. They are used by the leader of a Kafka group for its members, and inside a job for its workers.
"""

from assignors.claims import cooperative_adjust, current_owned
from assignors.range import RangeAssignor
from assignors.registry import available, get
from assignors.roundrobin import RoundRobinAssignor
from assignors.sticky import CooperativeStickyAssignor, StickyAssignor
from assignors.types import Assignment, Assignor, Member, Racks, TopicPartition

__all__ = [
    "Assignment",
    "Assignor",
    "CooperativeStickyAssignor",
    "Member",
    "Racks",
    "RangeAssignor",
    "RoundRobinAssignor",
    "StickyAssignor",
    "TopicPartition",
    "available",
    "cooperative_adjust",
    "current_owned",
    "get",
]

"""Partition assignors: who in a group gets which partitions.

Pure functions of the group: they know no clock, no network and no Kafka client, and give the same result for
the same members in whatever order these come. Used twice: by the leader of a Kafka group, and inside a job
for its workers.
"""

from assignors.claims import current_owned
from assignors.cooperative import cooperative_adjust
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

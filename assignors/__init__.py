"""Partition assignors: they distribute partitions over the members of a group.

They are pure functions of the group, without clock, network or Kafka client, and return the same result for the same
members in any order. They are used by the leader of a Kafka group for its members, and inside a job for its workers.

A part of kafka-actors, installed with it and released in its versions. It is a top-level package of its own because it stands alone:
it imports nothing of `kafka_actors` and nothing but the standard library, so that a client of another kind can use it.
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

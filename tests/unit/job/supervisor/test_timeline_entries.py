"""Events and facts in the words of the timeline."""

import pytest

from kafka_actors.events import (
    CoordinatorChanged,
    NoCommittedOffset,
    NodeAnswers,
    NodeSilent,
    NoRoomForWorkers,
    PartitionMoved,
    PartitionNotRead,
    PartitionsAssigned,
    PartitionsLost,
    PartitionsRevoked,
    PartitionStalled,
    Rebalanced,
    Rejoining,
    WorkersChanged,
)
from kafka_actors.job.coordinator.machines.placement import DrainEnd, Withdrawal
from kafka_actors.job.supervisor.machines.timeline_entries import entries_of_facts, entry_of
from kafka_actors.types import TopicPartition

TWO = (("t", 1), ("t", 0))
MANY = tuple(("t", n) for n in range(12))


@pytest.mark.parametrize(
    ("event", "told"),
    [
        (Rejoining("g", "topics changed"), ("rebalance", "joins the group: topics changed")),
        (PartitionsAssigned(3, TWO), ("rebalance", "the group gave t-0, t-1 in generation 3")),
        (PartitionsAssigned(3, ()), ("rebalance", "the group gave no partitions in generation 3")),
        (PartitionsRevoked(3, MANY), ("rebalance", "the group took 12 partitions in generation 3")),
        (PartitionsLost(MANY, "the session ended"), ("rebalance", "12 partitions lost: the session ended")),
        (Rebalanced("g", 4, 1.04), ("rebalance", "generation 4 is there after 1.0 s")),
        (CoordinatorChanged("g", 2), ("rebalance", "broker 2 coordinates the group")),
        (PartitionNotRead("t", 5, 30.2, "no worker"), ("stall", "t-5 has not been read for 30 s: no worker")),
        (PartitionStalled("t", 5, 300.4, "paused"), ("stall", "t-5 has not moved for 300 s: paused")),
        (WorkersChanged(2, 4, "the backlog is 44 s"), ("workers", "2 → 4: the backlog is 44 s")),
        (NoRoomForWorkers(4, 2, "it needs 1"), ("workers", "2 of 4 have a place: it needs 1")),
        (
            NodeSilent("0123456789", 3.0, ["worker-0.1", "worker-1.1"]),
            ("stall", "no actor on node 01234567 (worker-0.1, worker-1.1) has answered for 3 s"),
        ),
        (NodeSilent("01", 3.0, []), ("stall", "no actor on node 01 has answered for 3 s")),
        (NodeAnswers("0123456789", []), ("stall", "node 01234567 answers again")),
        (PartitionMoved("t", 0, "worker-0.1", "balance"), None),
        (NoCommittedOffset("t", 0, 0, "earliest"), None),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, tuple) else "",
)
def test_an_event_is_a_kind_and_a_line(event, told):
    assert entry_of(event) == told


def test_partitions_that_move_for_one_cause_are_one_line():
    facts = [Withdrawal(TopicPartition("t", n), "worker-0.1", "worker_died") for n in range(5)]
    facts += [Withdrawal(TopicPartition("t", 9), "worker-1.1", "balance")]
    facts += [DrainEnd(TopicPartition("u", n), "worker-2.1", "released") for n in range(2)]
    facts += [DrainEnd(TopicPartition("u", 7), "worker-2.1", "forced")]
    assert entries_of_facts(facts) == [
        ("move", "worker-0.1 gives up 5 partitions: worker died"),
        ("move", "worker-1.1 gives up t-9: balance"),
        ("drain", "worker-2.1 has drained u-0, u-1"),
        ("forced", "worker-2.1 had not drained u-7 by the deadline"),
    ]
    assert entries_of_facts([]) == []

"""The timeline of a job: bounded, read from a number on; and events in its words."""

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
from kafka_actors.job.machines.timeline import Timeline, entry_of

TWO = (("t", 1), ("t", 0))
MANY = tuple(("t", n) for n in range(12))


def test_a_timeline_counts_on_and_keeps_the_last():
    timeline = Timeline(most=3)
    for n in range(5):
        timeline.note("state", f"{n}", 10.0 + n)
    assert [(e.number, e.text, e.at_s) for e in timeline.after()] == [
        (3, "2", 12.0),
        (4, "3", 13.0),
        (5, "4", 14.0),
    ]
    assert [e.number for e in timeline.after(4)] == [5]
    assert timeline.after(5) == []


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

"""A worker with a backlog in each of its partitions: all of them move, and status says who waits for whom."""

import pytest
from waiting import until

pytestmark = [pytest.mark.ray, pytest.mark.kafka]

EACH = 5_000
"""Records of each partition: the worker takes two minutes for all of them, so that it is still at work at each look."""


def test_partitions_with_long_queues_have_turns_and_their_positions_move(scene, produce):
    produce(
        scene.topic,
        [b"v"] * (12 * EACH),
        partition=[n % 12 for n in range(12 * EACH)],
        bootstrap_servers=scene.cluster.bootstrap_servers,
    )
    scene.start(workers=1, work=0.01, batch_rows=5)

    seen = []

    def all_move():
        seen[:] = [p.position or 0 for p in scene.status().partitions]
        return min(seen, default=0) > 0

    until(all_move, 20, "all partitions to move")
    assert max(seen) < EACH, "long before the first of them is done"
    reasons = set()

    def said():
        reasons.update(p.reason for p in scene.status().partitions)
        return any(reason.startswith("waits for its turn: behind ") for reason in reasons)

    until(said, 20, f"somebody to say for whom it waits: {reasons}")

    def ahead():
        return [p for p in scene.status().partitions if (p.position or 0) > (p.committed or 0)]

    until(ahead, 10, "positions to move between commits")
    scene.running.stop()

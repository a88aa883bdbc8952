"""A job that has as many workers as its records need, on real Kafka and Ray: a burst, a hand on the wheel, a full cluster."""

from __future__ import annotations

import json
import time

import pyarrow as pa
import pytest
from waiting import at_pace_s, until

import kafka_actors as ka

pytestmark = [pytest.mark.ray, pytest.mark.kafka]

# A call takes 200 ms, most of them asleep, and has 200 records: a worker does at most 1,000 a second, on any machine, and is busy for most of
# its time where each call costs as much again.
WORK = {"work": 0.2, "batch_rows": 200}
TARGET_S, DOWN_S, MOST = 5, 4, 4
BURST = 30_000
"""Records that are six targets of work for one worker, on a quiet machine."""
START_S = 15.0
"""Seconds that a few workers may take to start on a busy machine with two cores."""


def burst(scene, records):
    """Produces `records` at once, the same number to each partition."""
    each = records // len(scene.partitions)
    with ka.Producer(bootstrap_servers=scene.cluster.bootstrap_servers) as producer:
        for partition in scene.partitions:
            values = pa.array([b"burst-%d" % n for n in range(each)], pa.binary())
            where = pa.array([partition.partition] * each, pa.int32())
            producer.send_batch(pa.record_batch({"value": values, "partition": where}), topic=partition.topic)
        producer.flush()


def policy_at(pace):
    """The policy for a machine of this pace: decisions wait as much longer as workers take to start."""
    return ka.Autoscale(
        min=1,
        max=MOST,
        target_lag_seconds=round(TARGET_S * pace),
        upscale_delay_seconds=2 * pace,
        downscale_delay_seconds=round(DOWN_S * pace),
    )


def drained(scene):
    return scene.committed() == scene.ends()


def test_a_burst_is_worked_off_in_time_and_a_number_holds_until_the_policy_has_its_say_again(scene):
    """The group never notices."""
    pace = max(1.0, at_pace_s(0.4))  # what waits is asleep most of the time, whatever the pace
    policy = policy_at(pace)
    scene.start(workers=policy, **WORK)
    scene.under_load(each=1, rounds=1)
    scene.flowing()
    before = scene.status()
    assert len(before.workers) == 1
    burst(scene, int(BURST * pace))  # half a minute for one worker, where the machine is quiet
    began = time.monotonic()
    until(lambda: len(scene.status().workers) > 1, 15, "more workers", shown=scene.status)
    scene.load.stop()
    # Two steps of more workers, each with their start; then what waits is to be done within the target.
    until(lambda: drained(scene), 2 * START_S + 2 * TARGET_S, "the burst worked off", pause=0.2)
    took = time.monotonic() - began
    at_top = scene.status()
    print(
        f"{int(BURST * pace)} records in {took:.1f} s; {[(c.before, c.after, c.reason) for c in at_top.scaling.changes]}"
    )
    assert max(c.after for c in at_top.scaling.changes) == MOST
    assert (
        f"s of work for 1 worker; the target is {policy.target_lag_seconds} s"
        in at_top.scaling.changes[0].reason
    )

    until(lambda: [w for w in scene.status().workers if w.ready][1:] == [], 60, "one worker again", pause=0.2)
    after = scene.status()
    changes = [(c.before, c.after) for c in after.scaling.changes]
    ups = [c for c in changes if c[1] > c[0]]
    assert changes == ups + [c for c in changes if c[1] < c[0]], "up, then down, and nothing else"
    assert len(changes) <= 5
    assert after.scaling.workers == 1
    assert (after.group.generation, after.group.rebalances) == (
        before.group.generation,
        before.group.rebalances,
    )
    assert {p.worker for p in after.partitions} == {before.workers[0].name}, (
        "the first worker is the one that stays"
    )
    assert scene.settle(stop=False).total() == 0
    number_holds(scene, policy)


def number_holds(scene, policy):
    """An idle job has the number of workers that was asked for, until it is given back to the policy."""
    scene.running.scale(3)
    scene.spread(3, 60)
    time.sleep(policy.downscale_delay_seconds + 2)  # the policy would have given two up by then
    status = scene.status()
    assert (len(status.workers), status.scaling.workers, status.scaling.autoscale) == (3, 3, None)
    assert status.scaling.changes[-1].reason == f"scale(3) instead of 1..{MOST}"
    scene.running.scale(policy)
    scene.spread(1, 30)
    status = scene.status()
    assert (status.scaling.workers, status.scaling.autoscale) == (1, policy)
    assert status.scaling.changes[-1].reason == f"nothing to do for {policy.downscale_delay_seconds} s"
    until(lambda: len(scene.pids("worker")) == 1, 20, "the retired workers' ends")


def test_workers_without_room_are_asked_for_and_waited_for_and_the_job_goes_on(scene):
    policy = ka.Autoscale(
        min=1, max=4, target_lag_seconds=2, upscale_delay_seconds=1, downscale_delay_seconds=6
    )
    limit_s = max(8.0, at_pace_s(5))
    scene.start(
        workers=policy,
        **WORK,
        resources_per_worker={"num_cpus": 3},
        config={"start_timeout_s": limit_s},
    )
    # Ten seconds of work: longer than the target for the two that the policy looks on, and for the start of the work.
    burst(scene, int(2 * limit_s * 1_000))
    until(lambda: scene.status().scaling.workers > 1, 20, "more workers wanted", shown=scene.status)
    wanted = time.monotonic()
    burst(scene, int(1.1 * limit_s * 1_000))  # of the first one a part is done by now
    until(lambda: requested() == [{"CPU": 3}] * scene.status().scaling.workers, 10, "room asked for")
    until(lambda: "num_cpus=3" in scene.status().scaling.holding, 20, "what is missing, named")
    status = scene.status()
    assert "CPU 1 of 4 free" in status.scaling.holding
    assert len([w for w in status.workers if w.ready]) == 1 < status.scaling.workers <= MOST
    until(lambda: drained(scene), 60, "the burst worked off by one", pause=0.2)
    assert time.monotonic() - wanted > limit_s, (
        "it outlives the time in which a worker has to be there when the job starts"
    )
    until(lambda: scene.status().scaling.workers == 1, 30, "nobody waited for any more")
    until(lambda: requested() == [], 5, "room given back")
    assert scene.status().state == "running"
    scene.running.stop()
    assert requested() == []


def requested():
    """Resources that Ray's autoscaler is asked for."""
    from ray._private.ray_constants import AUTOSCALER_RESOURCE_REQUEST_CHANNEL
    from ray.experimental.internal_kv import _internal_kv_get

    return json.loads(_internal_kv_get(AUTOSCALER_RESOURCE_REQUEST_CHANNEL) or b"[]")

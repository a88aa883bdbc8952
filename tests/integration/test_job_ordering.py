"""Jobs whose calls overlap, with order by key or without, on real Kafka and Ray: many calls at once, each key in order, nothing lost
whatever dies, and little again."""

import os
import re
import signal

import pytest
from fakes.commits import committed_by
from jobs.by_key import InTasks, InThreads, Waiting, missing, out_of_order, repeated
from jobs.ordered import LONG, OrderedJob, by_value, hit_again_and_again
from waiting import until

from kafka_actors.group.commit_metadata import unpack
from kafka_actors.group.done_offsets import DoneOffsets

pytestmark = [pytest.mark.ray, pytest.mark.kafka]

__all__ = ["by_value"]


@pytest.fixture
def scene(kafka_cluster, kafka_topic, group_id, tmp_path, produce):
    return OrderedJob(kafka_cluster, kafka_topic(4), group_id, tmp_path, produce)


@pytest.mark.parametrize("kind", [InTasks, InThreads])
def test_calls_overlap_and_each_key_keeps_its_order(scene, kind):
    scene.fill(600, lambda n: None if n % 20 == 0 else b"hot" if n % 2 else b"%d" % (n % 60), 4)
    with scene.job(kind, ordering="key", concurrency=16, workers=2).start() as running:
        running.wait()
    calls = scene.check()
    assert repeated(calls) == []
    assert most_at_once(calls) > 4


def test_unordered_records_of_one_key_overlap(scene):
    scene.fill(200, lambda n: b"one", 4)
    with scene.job(InTasks, ordering="unordered", concurrency=16).start() as running:
        running.wait()
    calls = scene.calls()
    assert missing(calls, scene.ends()) == {}
    assert out_of_order(calls) != []
    assert most_at_once(calls) > 4


def most_at_once(calls):
    steps = sorted([(call.began, 1) for call in calls] + [(call.ended, -1) for call in calls])
    most = now = 0
    for _, step in steps:
        now += step
        most = max(most, now)
    return most


def committed_as_done(scene):
    """Partitions and offsets below the committed ones, or beyond them and done."""
    found = committed_by(scene.cluster.bootstrap_servers, scene.group, scene.topic, 4)
    done = set()
    for partition, (committed, metadata) in found.items():
        beyond = DoneOffsets.of_text(unpack(metadata).done, committed).ranges.tolist()
        for first, end in [(0, committed), *beyond]:
            done.update((partition, offset) for offset in range(first, end))
    return done


def test_what_was_done_beyond_a_slow_record_is_not_done_again(scene, tmp_path):
    """One record lasts, its worker is killed: of all others, which were done and committed long before, none comes again."""
    gate = tmp_path / "gate"

    scene.fill(300, lambda n: b"%d" % n, 4)
    with scene.job(Waiting, 0.0, str(gate), ordering="key", concurrency=8).start() as running:

        def ended():
            return {(c.partition, c.offset) for c in scene.calls() if c.ended}

        until(lambda: len(ended()) == 296, 60, "the other keys' calls")
        done = ended()
        until(lambda: done <= committed_as_done(scene), 30, "the commit of these calls")

        def window():
            return running.status().totals.window  # None until a worker has told of one

        def slow_ones_alone():
            held = window()
            return held and (held.records, held.calls, held.parked) == (300, 4, 0) and held.held_s > 2

        until(slow_ones_alone, 30, "the slow records alone", shown=window)
        assert re.fullmatch("offset 0, key #[0-9a-f]{8}", window().held_by)
        (worker,) = [pid for name, pid in running.status().actors.items() if name.startswith("worker")]
        os.kill(worker, signal.SIGKILL)
        until(lambda: len({c.pid for c in scene.calls()}) == 2, 60, "the next worker's calls")
        gate.touch()
        running.wait()
    again = {(after.partition, after.offset) for _, after in repeated(scene.calls())}
    assert again.isdisjoint(done), sorted(again & done)
    assert {offset for _, offset in again} == {0}
    assert missing(scene.calls(), scene.ends()) == {}


@LONG
def test_by_key_nothing_is_lost_or_out_of_order_whatever_dies(scene):
    """Workers are killed and stopped at random moments, and their number changes."""
    job = scene.job(
        InTasks,
        0.06,
        ordering="key",
        concurrency=32,
        workers=3,
        until=None,
        config={"start_timeout_s": 600},
    )
    with job.start() as running:
        hit_again_and_again(scene, running, 4)
        scene.end(running)
    scene.check()

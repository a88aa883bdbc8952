"""A job whose calls overlap, its topic, and the ledger of its calls: for tests of order by key on real Kafka and Ray."""

import os
import random
import signal
import time

import pytest
from waiting import slow_s, until

import kafka_actors as ka

from .audit import first_committed
from .by_key import deliveries, missing, noting, out_of_order, repeated, without_reason

__all__ = ["LONG", "OrderedJob", "by_value", "hit_again_and_again"]

KILLS = int(os.environ.get("KAFKA_ACTORS_TEST_KILLS_BY_KEY", "12"))
"""Faults of the ledger by key; some 3 s each."""
MOST_S = float(os.environ.get("KAFKA_ACTORS_TEST_KILLS_BY_KEY_S", "inf"))
"""Time after which there are no more of them, however many there were, and what they have left is checked."""
SEED = int(os.environ.get("KAFKA_ACTORS_TEST_SEED", "21"))
LONG = pytest.mark.timeout(900 + 30 * KILLS)


@pytest.fixture(autouse=True)
def by_value(ray_local):
    from jobs import by_key
    from ray import cloudpickle

    cloudpickle.register_pickle_by_value(by_key)
    yield
    cloudpickle.unregister_pickle_by_value(by_key)


class OrderedJob:
    """A topic, a job over it, and the ledger of its calls."""

    def __init__(self, cluster, topic, group, directory, produce):
        self.cluster, self.topic, self.group, self.produce = cluster, topic, group, produce
        self.directory = directory / "calls"
        self.faults = {}

    def fill(self, count, key, partitions):
        keys = [key(n) for n in range(count)]
        where = [0 if k is None else sum(k) % partitions for k in keys]
        servers = self.cluster.bootstrap_servers
        self.produce(self.topic, [b"v"] * count, keys=keys, partition=where, bootstrap_servers=servers)

    def job(self, kind, most_s=0.02, *more, **options):
        return ka.Job(
            topics=[self.topic],
            group_id=self.group,
            bootstrap_servers=self.cluster.bootstrap_servers,
            process_message=noting(kind, self.directory, most_s, *more),
            **{"until": "latest", "config": {"start_timeout_s": 600}, **options},
        )

    def calls(self):
        return deliveries(self.directory)

    def made(self):
        """Processes in which the function has been made."""
        return {int(path.name.partition("-")[0]) for path in self.directory.glob("*.calls")}

    def noted(self):
        """Size of what calls have noted."""
        return sum(path.stat().st_size for path in self.directory.glob("*.calls"))

    def ends(self):
        return {ka.TopicPartition(*tp): end for tp, end in self.cluster.end_offsets(self.topic).items()}

    def committed(self):
        return {ka.TopicPartition(*tp): offset for tp, offset in self.cluster.committed(self.group).items()}

    def end(self, running):
        """Stops the job when a call on each record has ended, and all of it is committed."""

        def left():
            return missing(self.calls(), self.ends())

        until(lambda: not left(), 300, "the end of each record", 1.0, shown=left)
        until(lambda: self.committed() == self.ends(), 60, "the commits", shown=self.committed)
        assert running.stop(timeout=slow_s(30))

    def check(self):
        calls, ends = self.calls(), self.ends()
        assert missing(calls, ends) == {}
        assert out_of_order(calls) == []
        assert {tp: offset for tp, offset in self.committed().items() if ends[tp]} == {
            tp: end for tp, end in ends.items() if end
        }
        if found := repeated(calls):
            committed = first_committed(self.cluster.bootstrap_servers, self.group)
            again = without_reason(calls, self.faults, committed, slow_s(0.1))
            assert again == [], f"{len(again)} of {len(found)} that came again, such as {again[:3]}"
        return calls


def hit(scene, running, chance, actors):
    """Kills or stops one of these actors; of workers one whose function is made, for a job fails where that dies five times in a row. Returns
    whether there was one."""
    made = scene.made()
    found = {
        pid
        for name, pid in running.status().actors.items()
        if name.startswith(actors) and pid and (pid in made or not name.startswith("worker"))
    }
    if not found:
        return False
    pid = chance.choice(sorted(found))
    scene.faults.setdefault(pid, []).append(time.monotonic())
    try:
        if chance.random() < 0.5:
            os.kill(pid, signal.SIGKILL)
            return True
        os.kill(pid, signal.SIGSTOP)
        time.sleep(chance.uniform(0.5, 6.0))
        os.kill(pid, signal.SIGCONT)
    except ProcessLookupError:
        return False
    return True


def hit_again_and_again(scene, running, partitions, workers=(2, 4), actors=("worker",)):
    """Makes `KILLS` faults at random moments, each after calls since the one before, writes records between them, and changes the number of
    workers after each third one. One record of eight has one key, and one of 25 has none."""
    chance, keys = random.Random(SEED), random.Random(SEED + 1)

    def key(n):
        return None if n % 25 == 0 else b"hot" if n % 8 == 1 else b"%d" % keys.randrange(500)

    scene.fill(4_000, key, partitions)
    began, hits = time.monotonic(), 0
    while hits < KILLS and time.monotonic() < began + MOST_S:
        before = scene.noted()

        def goes_on(before=before):
            if running.status().state == "failed":
                running.wait()  # raises why
            return scene.noted() > before

        until(goes_on, 180, f"calls after {hits} faults", 0.2, shown=running.status)
        time.sleep(chance.uniform(0.2, 2.0))
        hits += hit(scene, running, chance, actors)
        if hits % 3 == 0:
            running.scale(chance.randint(*workers))
        scene.fill(400, key, partitions)
        if hits % 20 == 0:
            print(f"{hits} faults in {time.monotonic() - began:.0f} s", flush=True)
    print(f"{hits} faults in {time.monotonic() - began:.0f} s, {sum(scene.ends().values())} records")

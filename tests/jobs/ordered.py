"""A job whose calls overlap, its topic, and the ledger of its calls: for tests of order by key on real Kafka and Ray."""

import os
import signal
import time
from contextlib import suppress

import pytest
from waiting import slow_s

import kafka_actors as ka

from .by_key import deliveries, missing, noting, out_of_order, repeated, without_reason

__all__ = ["KILLS", "SEED", "OrderedJob", "by_value", "hit"]

KILLS = int(os.environ.get("KAFKA_ACTORS_TEST_KILLS_BY_KEY", "12"))
"""Faults of the ledger by key; some 2 s each."""
SEED = int(os.environ.get("KAFKA_ACTORS_TEST_SEED", "21"))


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

    def ends(self):
        return {ka.TopicPartition(*tp): end for tp, end in self.cluster.end_offsets(self.topic).items()}

    def committed(self):
        return {ka.TopicPartition(*tp): offset for tp, offset in self.cluster.committed(self.group).items()}

    def check(self, slack_s=None):
        calls, ends = self.calls(), self.ends()
        assert missing(calls, ends) == {}
        assert out_of_order(calls) == []
        assert {tp: offset for tp, offset in self.committed().items() if ends[tp]} == {
            tp: end for tp, end in ends.items() if end
        }
        again = without_reason(calls, self.faults, slow_s(3.0) if slack_s is None else slack_s)
        assert again == [], f"{len(again)} of {len(repeated(calls))} that came again, such as {again[:3]}"
        return calls


def hit(scene, running, chance, number, fewest=2, most=4, actors=("worker",)):
    """Kills or stops one of these actors, or changes how many workers there are."""
    workers = {n: pid for n, pid in running.status().actors.items() if n.startswith(actors) and pid}
    if number % 4 == 3 or not workers:
        running.scale(chance.randint(fewest, most))
        return
    pid = chance.choice(sorted(workers.values()))
    scene.faults[pid] = time.monotonic()
    if chance.random() < 0.5:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        return
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
        time.sleep(chance.uniform(0.5, 6.0))
        os.kill(pid, signal.SIGCONT)

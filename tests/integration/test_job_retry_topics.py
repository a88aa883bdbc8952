"""Jobs with retry topics in real Ray: a failing record is tried again when it is due, those of its key come behind it, and what is missing is
named at the start."""

import itertools
import json
import os
import time
from collections import Counter
from contextlib import closing

import pytest
from jobs.by_key import Failing, missing, out_of_order
from jobs.journal import complete_lines
from jobs.ordered import LONG, OrderedJob, by_value, hit_again_and_again
from waiting import slow_s, until

import kafka_actors as ka
from kafka_actors.errors import ConfigError

pytestmark = pytest.mark.ray

__all__ = ["by_value"]


class Calls:
    """The calls of a job, each a line in a file of its process: `bad(value)` is how often those on a record fail."""

    def __init__(self, directory, bad):
        self.directory = directory / "calls"
        self.directory.mkdir()
        where = str(self.directory)

        class Noting:
            def __init__(self):
                name = os.path.join(where, f"{os.getpid()}-{time.monotonic_ns()}.calls")
                self._file = os.open(name, os.O_CREAT | os.O_APPEND | os.O_WRONLY)

            def __call__(self, message):
                times = bad(int(message.value))
                tries = os.path.join(where, f"{message.partition}-{message.offset}.tries")
                with open(tries, "ab") as file:
                    file.write(b"x")
                fails = os.path.getsize(tries) <= times
                key = None if message.key is None else message.key.decode()
                headers = [(name, value.decode()) for name, value in message.headers]
                line = [
                    message.topic,
                    message.partition,
                    message.offset,
                    key,
                    message.timestamp,
                    headers,
                    fails,
                    time.time(),
                ]
                os.write(self._file, json.dumps(line).encode() + b"\n")
                if fails:
                    raise ValueError(f"no good: {message.value.decode()}")

        self.function = Noting

    def lines(self):
        found = [json.loads(line) for path in self.directory.glob("*.calls") for line in complete_lines(path)]
        return sorted(found, key=lambda line: line[-1])

    def done(self):
        """Places in the source of records on which a call has ended well."""
        return {(line[1], line[2]) for line in self.lines() if not line[-2]}

    def out_of_order(self):
        """First calls on records of one key that came before the last try of the one before it."""
        chains = {}
        for _, partition, offset, key, _, _, fails, at in self.lines():
            if key is not None:
                begun, ended = chains.setdefault((partition, key), {}).get(offset, (at, None))
                chains[partition, key][offset] = begun, ended if ended is not None or fails else at
        pairs = [pair for chain in chains.values() for pair in itertools.pairwise(sorted(chain.items()))]
        return [pair for pair in pairs if pair[0][1][1] is not None and pair[1][1][0] < pair[0][1][1]]


@pytest.fixture
def topics(cluster, kafka_topic, ray_local):
    """A topic of two partitions, and its retry topics."""
    name = kafka_topic(2)
    for each in (f"{name}-retry-1s", f"{name}-retry-2s", f"{name}-dead"):
        cluster.create_topic(each, 2)
    return name


UNHURRIED = {"start_timeout_s": 600, "drain_timeout_ms": 300_000, "rebalance_timeout_ms": 600_000}
"""A drain that is forced repeats what is in hand."""


@pytest.fixture
def job(cluster, topics, group_id):
    def make(calls, keep_order=True, config=(), **options):
        retries = ka.RetryTopics(
            f"{topics}-retry",
            delays=("1s", "2s"),
            dead_letter_topic=f"{topics}-dead",
            keep_order=keep_order,
        )
        given = {"ordering": "key", "concurrency": 4, "retries": 0, "on_error": retries, **options}
        return ka.Job(
            topics=topics,
            group_id=group_id,
            bootstrap_servers=cluster.bootstrap_servers,
            process_message=calls.function,
            config={**UNHURRIED, **dict(config)},
            **given,
        )

    return make


def fill(cluster, topic, count, keys, first=0, partitions=2):
    with ka.Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for n in range(first, first + count):
            key = None if n % 10 == 9 else b"%d" % (n % keys)
            own = [("n", b"%d" % n)]
            at = 1_700_000_000_000 + n
            producer.send(
                topic, b"%d" % n, key=key, partition=n % keys % partitions, headers=own, timestamp_ms=at
            )


def ends(cluster, topics):
    return {tp: end for each in topics for tp, end in cluster.end_offsets(each).items()}


def test_a_failing_record_comes_again_as_it_was_and_its_key_keeps_its_order(
    cluster, topics, job, tmp_path, group_id
):
    """Three of 60 records fail: one once, one twice, and one each time."""
    calls = Calls(tmp_path, lambda n: {4: 1, 12: 2, 21: 9}.get(n, 0))
    fill(cluster, topics, 60, 6)
    with job(calls).start() as running:
        until(lambda: len(calls.done()) == 59, 60, "all calls but those that always fail")
        until(lambda: sum(cluster.end_offsets(f"{topics}-dead").values()) == 1, 30, "the dead letter")
        all_topics = [topics, f"{topics}-retry-1s", f"{topics}-retry-2s"]
        until(
            lambda: cluster.committed(group_id) == ends(cluster, all_topics),
            30,
            "the commits",
            shown=lambda: running.status().partitions,
        )
    assert calls.out_of_order() == []
    lines = calls.lines()
    assert Counter(line[5][0][1] for line in lines) == Counter(
        {"12": 3, "4": 2, "21": 3} | {str(n): 1 for n in range(60) if n not in (4, 12, 21)}
    )
    for topic, partition, offset, _, timestamp, headers, _, _ in lines:
        n = int(headers[0][1])
        assert (topic, timestamp, headers) == (topics, 1_700_000_000_000 + n, [["n", str(n)]])
        assert (partition, offset) == next((line[1], line[2]) for line in lines if line[5] == headers)


def test_without_keep_order_others_of_its_key_overtake_it(topics, cluster, job, tmp_path):
    calls = Calls(tmp_path, lambda n: int(n == 0))
    fill(cluster, topics, 20, 2)
    with job(calls, keep_order=False).start():
        until(lambda: len(calls.done()) == 20, 60, "all calls")
    first = [line[2] for line in calls.lines() if line[3] == "0"]
    assert first.count(0) == 2
    assert first[:2] != [0, 0], "others came before its second try"


def test_a_next_job_goes_on_with_what_waits(cluster, topics, job, tmp_path):
    """Records of the key that came since follow those that wait, and a bounded run leaves there what it put there."""
    calls = Calls(tmp_path, lambda n: 2 * int(n == 0))
    fill(cluster, topics, 20, 2)
    with job(calls, until="latest").start() as running:
        running.wait(timeout=slow_s(60))
    assert len(calls.done()) == 10, "those of key 1, and those without a key"
    fill(cluster, topics, 20, 2, first=20)
    with job(calls, workers=2).start():
        until(lambda: len(calls.done()) == 40, 60, "all calls")
    assert calls.out_of_order() == []


def test_workers_that_share_a_partition_keep_the_order_of_each_key(cluster, topics, job, tmp_path):
    calls = Calls(tmp_path, lambda n: int(n % 13 == 0))
    fill(cluster, topics, 400, 40)
    with job(calls, workers=4).start() as running:
        until(lambda: len(calls.done()) == 400, 60, "all calls")
        sharing = {p.topic: p.worker for p in running.status().partitions if p.partition == 0}
        until(
            lambda: all("," in (p.worker or "") for p in running.status().partitions),
            60,
            "workers that share",
            shown=lambda: sharing,
        )
        fill(cluster, topics, 400, 40)
        until(lambda: len(calls.done()) == 800, 60, "all calls")
    assert calls.out_of_order() == []
    assert len(list(calls.directory.glob("*.calls"))) == 4


@LONG
@pytest.mark.kafka
def test_nothing_is_lost_and_each_key_keeps_its_order_whatever_dies(
    kafka_cluster, kafka_topic, group_id, tmp_path, produce, by_value
):
    """Workers and the coordinator are killed and stopped at random moments, and the number of workers changes, so that partitions are shared or
    not, while one record of forty fails once or twice."""
    scene = OrderedJob(kafka_cluster, kafka_topic(2), group_id, tmp_path, produce)
    delays = ("500ms", "2s")
    retries = ka.RetryTopics(f"{scene.topic}-retry", delays, f"{scene.topic}-dead")
    for each in (*retries.topics, f"{scene.topic}-dead"):
        kafka_cluster.create_topic(each, 2)
    job = scene.job(
        Failing,
        0.04,
        "10",
        ordering="key",
        concurrency=16,
        workers=3,
        until=None,
        retries=0,
        on_error=retries,
    )
    servers, found = kafka_cluster.bootstrap_servers, set()
    dead = ka.Consumer(
        [f"{scene.topic}-dead"],
        group_id=f"{group_id}-dead",
        bootstrap_servers=servers,
        auto_offset_reset="earliest",
    )

    def calls():
        """Returns all calls; the last one on a record that is a dead letter has ended, too."""
        while (batch := dead.poll_batch(timeout_ms=100)) is not None:
            found.update(map(place_of, batch["headers"].to_pylist()))
        made = scene.calls()
        return [
            c._replace(ended=c.failed) if (c.partition, c.offset) in found and c.failed else c for c in made
        ]

    with closing(dead), job.start() as running:
        hit_again_and_again(scene, running, 2, (1, 5), ("worker", "coordinator"))
        until(
            lambda: missing(calls(), scene.ends()) == {},
            120,
            "the end of each record",
            shown=lambda: (missing(calls(), scene.ends()), [p for p in running.status().partitions if p.lag]),
        )
        made = calls()
    assert out_of_order(made) == []
    assert sum(kafka_cluster.end_offsets(retries.topics[1]).values()) > 0


def place_of(headers):
    """Returns partition and offset of a dead letter."""
    said = {header["key"]: header["value"] for header in headers}
    return int(said["kafka_actors.error.partition"]), int(said["kafka_actors.error.offset"])


def test_jobs_that_share_a_group_have_what_waits_of_their_own_partitions(cluster, topics, job, tmp_path):
    """The second one takes over a partition, and the records that wait behind it, though the group assigns topics apart; then it goes."""
    # Of a key one record in each hundred: a third one would meet the second in the last retry topic, with one try left.
    calls = Calls(tmp_path, lambda n: int(n % 7 == 0 and n % 100 < 70))
    fill(cluster, topics, 100, 10)

    def numbers(running):
        """Numbers of partitions, by topic."""
        found = {}
        for partition in running.status().partitions:
            found.setdefault(partition.topic, set()).add(partition.partition)
        return found

    with job(calls).start() as first:
        until(lambda: len(calls.done()) >= 50, 60, "the first calls")
        with job(calls).start() as second:
            until(
                lambda: all(len(numbers(each).get(topics, ())) == 1 for each in (first, second)),
                60,
                "a partition for each",
            )
            fill(cluster, topics, 100, 10, first=100)
            for each in (first, second):
                until(
                    lambda each=each: (
                        len(numbers(each)) == 3 and len(set(map(frozenset, numbers(each).values()))) == 1
                    ),
                    30,
                    "what goes together, together",
                    shown=lambda each=each: numbers(each),
                )
            until(lambda: len(calls.done()) >= 180, 60, "calls by both")
        until(lambda: len(calls.done()) == 200, 60, "all calls", shown=lambda: len(calls.done()))
    assert calls.out_of_order() == []


def test_jobs_that_share_a_group_commit_what_they_read_whatever_the_group_assigns(
    cluster, job, topics, tmp_path, group_id
):
    """With nine partitions, the group assigns some retry partitions to the job that doesn't have their sources."""
    for each in (topics, f"{topics}-retry-1s", f"{topics}-retry-2s"):
        cluster.add_partitions(each, 3)
    calls = Calls(tmp_path, lambda n: 2 * int(n < 9))
    with job(calls).start() as first, job(calls).start() as second:
        until(
            lambda: sorted(len(each.status().partitions) for each in (first, second)) == [3, 6],
            60,
            "partitions for each",
        )
        fill(cluster, topics, 90, 9, partitions=3)
        until(lambda: len(calls.done()) == 90, 60, "all calls")
        all_topics = [topics, f"{topics}-retry-1s", f"{topics}-retry-2s"]
        until(
            lambda: cluster.committed(group_id) == ends(cluster, all_topics),
            30,
            "the commits",
            shown=lambda: (
                cluster.committed(group_id),
                [
                    (p.topic, p.partition, p.worker)
                    for each in (first, second)
                    for p in each.status().partitions
                ],
            ),
        )
        assert len(ends(cluster, all_topics)) == 9


def test_a_partition_that_came_before_its_retry_partitions_is_told_of_and_read_once_they_are_there(
    cluster, topics, job, tmp_path
):
    calls = Calls(tmp_path, lambda n: 0)
    fill(cluster, topics, 10, 2)
    with job(calls, config={"metadata_max_age_ms": 500}).start() as running:
        until(lambda: len(calls.done()) == 10, 60, "the first calls")
        cluster.add_partitions(topics, 3)
        fill(cluster, topics, 9, 9, first=10, partitions=3)

        def reasons():
            return {p.topic: p.reason for p in running.status().partitions if p.partition == 2}

        missing = f"{topics}-retry-1s-2, {topics}-retry-2s-2 are missing: "
        until(
            lambda: reasons().get(topics, "").startswith(missing), 60, "the reason", shown=lambda: reasons()
        )
        for each in (f"{topics}-retry-1s", f"{topics}-retry-2s"):
            cluster.add_partitions(each, 3)
        until(lambda: len(calls.done()) == 19, 60, "all calls", shown=lambda: reasons())


def test_missing_retry_topics_are_named_at_the_start(cluster, kafka_topic, group_id, ray_local):
    name = kafka_topic(2)
    cluster.create_topic(f"{name}-retry-2s", 3)
    job = ka.Job(
        topics=name,
        group_id=group_id,
        bootstrap_servers=cluster.bootstrap_servers,
        process_message=lambda message: None,
        ordering="key",
        on_error=ka.RetryTopics(f"{name}-retry", delays=("1s", "2s"), dead_letter_topic=f"{name}-dead"),
    )
    with pytest.raises(ConfigError) as refused:
        job.start()
    assert str(refused.value) == (
        f"on_error: is RetryTopics and needs topics with as many partitions as {name}, which has 2: {name}-retry-1s is missing, "
        f"{name}-retry-2s has 3; create them, as by kafka-actors topics create --topic {name}-retry-1s --partitions 2"
    )

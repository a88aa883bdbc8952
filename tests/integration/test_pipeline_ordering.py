"""Pipelines whose batches overlap, with order by key, on Ray and an embedded broker: what a stage says of its run, a failing key, and what
sinks hold when offsets are committed."""

import asyncio
import os
import signal
import threading
import time
from collections import defaultdict

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from waiting import slow_s, until

import kafka_actors as ka
from kafka_actors.base.message import messages_of
from kafka_actors.errors import StageError
from kafka_actors.group.commit_metadata import unpack
from kafka_actors.group.done_offsets import DoneOffsets

pytestmark = pytest.mark.ray

OFTEN = {"auto_commit_interval_ms": 100, "start_timeout_s": 600}


class Topics:
    """An input of one partition, an output, and the group of a pipeline between them."""

    def __init__(self, cluster, topic, produce, group):
        self.cluster, self.group, self._produce = cluster, group, produce
        self.input, self.output = topic(1), topic(1)

    def fill(self, keys):
        """Records with these keys, whose values are their offsets."""
        self._produce(self.input, [b"%d" % n for n in range(len(keys))], keys=keys, partition=0)

    def read(self, **options):
        return ka.Pipeline.read_kafka(
            self.input,
            group_id=self.group,
            bootstrap_servers=self.cluster.bootstrap_servers,
            **OFTEN,
            **options,
        )

    def sent(self):
        """Key and value of each record of the output, in its order."""
        with ka.Consumer(
            bootstrap_servers=self.cluster.bootstrap_servers, auto_offset_reset="earliest"
        ) as consumer:
            partition = ka.TopicPartition(self.output, 0)
            consumer.assign([partition])
            (end,) = consumer.end_offsets([partition]).values()
            found = []
            while (consumer.position(partition) or 0) < end:
                batch = consumer.poll_batch(timeout_ms=100)
                found += [] if batch is None else [(m.key, int(m.value)) for m in messages_of(batch)]
        return found

    def committed(self):
        """The committed offset, and what is committed as done beyond it."""
        commit = self.cluster.commits(self.group).get((self.input, 0))
        if commit is None:
            return 0, set()
        done = DoneOffsets.of_text(unpack(commit.metadata).done, commit.offset)
        return commit.offset, {offset for first, end in done.ranges.tolist() for offset in range(first, end)}


@pytest.fixture
def topics(ray_local, cluster, kafka_topic, produce, group_id):
    return Topics(cluster, kafka_topic, produce, group_id)


def by_key(pairs):
    found = defaultdict(list)
    for key, value in pairs:
        found[key].append(value)
    return found


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_messages_overlap_each_key_keeps_its_order_and_a_failing_one_waits_alone(topics, tmp_path, kind):
    """The calls on one key fail until all others are through: retries with pauses hold neither them nor a caller."""
    keys = [b"bad" if n % 10 == 3 else b"k%d" % (n % 7) for n in range(200)]
    topics.fill(keys)
    gate, together = tmp_path / "gate", tmp_path / "together"

    class Score:
        def __init__(self):
            self.at_once, self.lock = 0, threading.Lock()

        def begins(self, message):
            with self.lock:
                self.at_once += 1
                if self.at_once > 1:
                    together.touch()

        def ended(self, message):
            with self.lock:
                self.at_once -= 1
            if message.key == b"bad" and not gate.exists():
                raise ValueError("no answer")
            return {"key": message.key, "value": message.value}

    class Plain(Score):
        def __call__(self, message):
            self.begins(message)
            threading.Event().wait(0.005)
            return self.ended(message)

    class Async(Score):
        async def __call__(self, message):
            self.begins(message)
            await asyncio.sleep(0.005)
            return self.ended(message)

    pipeline = (
        topics.read()
        .map_messages(
            Plain if kind == "plain" else Async,
            schema="key BINARY, value BINARY",
            ordering="key",
            concurrency=4,
            name="score",
        )
        .write_kafka(topics.output, format="columns")
        .on_error("fail", retries=500)
    )
    pauses = ka.Backoff(initial_ms=20, max_ms=500)
    with pipeline.on_ray(until="latest", batch_rows=20, retry_backoff=pauses).start() as run:
        good = [n for n, key in enumerate(keys) if key != b"bad"]
        until(lambda: len(topics.sent()) >= len(good), 60, "the other keys' results")
        assert sorted(value for _, value in topics.sent()) == good
        until(lambda: topics.committed() == (3, {n for n in good if n > 3}), 30, "their commit")
        gate.touch()
        run.wait(timeout=slow_s(60))
    sent = topics.sent()
    assert sorted(value for _, value in sent) == list(range(200))
    assert all(values == sorted(values) for values in by_key(sent).values())
    assert together.exists()
    assert topics.committed() == (200, set())


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_a_key_whose_rows_the_sink_refuses_waits_alone(topics, tmp_path, kind):
    """In the pauses between the tries neither a thread nor the event loop is held."""
    keys = [b"bad" if n % 10 == 3 else b"k%d" % (n % 7) for n in range(200)]
    topics.fill(keys)
    gate, stored = tmp_path / "gate", str(tmp_path / "stored")

    def score(message):
        return {"key": message.key, "n": message.offset}

    async def later(message):
        await asyncio.sleep(0)
        return score(message)

    def post(batch):
        if b"bad" in batch["key"].to_pylist() and not gate.exists():
            raise OSError("no answer")
        with open(stored, "a") as file:
            file.writelines(f"{n}\n" for n in batch["n"].to_pylist())

    def offsets():
        return list(map(int, open(stored).read().split())) if os.path.exists(stored) else []

    pipeline = (
        topics.read()
        .map_messages(
            score if kind == "plain" else later,
            schema="key BINARY, n BIGINT",
            ordering="key",
            concurrency=2,
        )
        .write(post)
        .on_error("fail", retries=500)
    )
    pauses = ka.Backoff(initial_ms=20, max_ms=500)
    with pipeline.on_ray(until="latest", retry_backoff=pauses).start() as run:
        good = [n for n, key in enumerate(keys) if key != b"bad"]
        until(lambda: sorted(offsets()) == good, 60, "the other keys' rows")
        until(lambda: topics.committed() == (3, {n for n in good if n > 3}), 30, "their commit")
        gate.touch()
        run.wait(timeout=slow_s(60))
    assert sorted(offsets()) == list(range(200))
    assert [n for n in offsets() if keys[n] == b"bad"] == [n for n in range(200) if keys[n] == b"bad"]


def test_a_stage_that_fails_for_good_ends_the_run_with_its_attempts(topics):
    topics.fill([b"a", b"b", b"c"])

    def refuse(message):
        if message.offset == 1:
            raise ValueError("no good")
        return {"n": message.offset}

    pipeline = topics.read().map_messages(refuse, schema="n BIGINT", ordering="key", name="score")
    run = pipeline.write(lambda batch: None).on_error("fail", retries=2).on_ray(until="latest")
    with pytest.raises(ka.JobFailed) as failed:
        run.run()
    cause = failed.value.__cause__
    assert isinstance(cause, StageError)
    assert (cause.stage, cause.first_offset, cause.last_offset, cause.attempts) == ("score", 1, 1, 3)


@pytest.mark.parametrize("kind", ["job", "pipeline"])
def test_only_what_sinks_have_flushed_is_committed_as_done_beyond_the_offset(topics, tmp_path, kind):
    """The first record waits for a gate, others overtake it; then the worker is killed, and loses what its sink holds in memory."""
    topics.fill([b"%d" % n for n in range(300)])
    gate, stored = tmp_path / "gate", str(tmp_path / "stored")

    class Holding:
        """Holds rows in memory until `flush`."""

        def __init__(self):
            self.held = []

        def write(self, batch):
            self.held += batch["n"].to_pylist()

        def flush(self):
            with open(stored, "a") as file:
                file.writelines(f"{n}\n" for n in self.held)
            self.held.clear()

    async def score(message):
        while message.offset == 0 and not await asyncio.to_thread(gate.exists):  # noqa: ASYNC110  another process says so
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.01)
        return {"n": message.offset}

    async def score_to_batch(message):
        return pa.RecordBatch.from_pylist([await score(message)])

    def flushed():
        return set(map(int, open(stored).read().split())) if os.path.exists(stored) else set()

    if kind == "pipeline":
        pipeline = topics.read().map_messages(score, schema="n BIGINT", ordering="key", concurrency=8)
        job = pipeline.write(Holding).on_ray(until="latest", batch_rows=4).job
    else:
        job = ka.Job(
            topics=topics.input,
            group_id=topics.group,
            bootstrap_servers=topics.cluster.bootstrap_servers,
            process_message=score_to_batch,
            sink=Holding,
            ordering="key",
            concurrency=8,
            until="latest",
            config=OFTEN,
        )
    with job.start() as running:
        seen = set()

        def most():
            seen.clear()
            seen.update(
                topics.committed()[1]
            )  # before the sink's file is read: a flush comes before its commit
            assert seen <= flushed()
            return len(seen) >= 100

        until(most, 60, "a commit of records that are done beyond the first")
        (worker,) = [pid for name, pid in running.status().actors.items() if name.startswith("worker")]
        os.kill(worker, signal.SIGKILL)
        gate.touch()
        running.wait(timeout=slow_s(120))
    assert flushed() == set(range(300))
    assert topics.committed() == (300, set())


@pytest.mark.parametrize("kind", ["job", "pipeline"])
def test_files_of_workers_that_share_a_partition_have_every_row_also_after_a_kill(topics, tmp_path, kind):
    topics.fill([b"%d" % (n % 90) for n in range(1500)])
    path, made, gate = str(tmp_path / "files"), tmp_path / "made", tmp_path / "gate"
    made.mkdir()

    class Score:
        def __init__(self):
            (made / str(os.getpid())).touch()
            while len(os.listdir(made)) < 3:  # one that came later would find nothing left to do
                time.sleep(0.05)

        async def __call__(self, message):
            while message.offset >= 1200 and not await asyncio.to_thread(gate.exists):  # noqa: ASYNC110  another process says so
                await asyncio.sleep(0.05)
            await asyncio.sleep(0.03)
            return {"n": message.offset, "pid": os.getpid()}

    class ScoreToBatch(Score):
        async def __call__(self, message):
            return pa.RecordBatch.from_pylist([await super().__call__(message)])

    if kind == "pipeline":
        pipeline = topics.read().map_messages(
            Score, schema="n BIGINT, pid BIGINT", ordering="key", concurrency=2
        )
        options = {"batch_rows": 5, "config": {"auto_commit_interval_ms": 100}}
        job = pipeline.write_parquet(path).on_ray(workers=3, until="latest", **options).job
    else:
        job = ka.Job(
            topics=topics.input,
            group_id=topics.group,
            bootstrap_servers=topics.cluster.bootstrap_servers,
            process_message=ScoreToBatch,
            sink=ka.ParquetSink(path),
            ordering="key",
            concurrency=2,
            workers=3,
            until="latest",
            config=OFTEN,
        )

    def written():
        return pq.read_table(path).to_pylist() if os.path.exists(path) and os.listdir(path) else []

    with job.start() as running:
        until(lambda: len({row["pid"] for row in written()}) == 3, 60, "rows of each worker")
        os.kill(written()[0]["pid"], signal.SIGKILL)
        gate.touch()
        running.wait(timeout=slow_s(120))
    assert {row["n"] for row in written()} == set(range(1500))
    assert topics.committed() == (1500, set())

"""A topic that is deleted and made anew under the members of a group, and what their commits say to who comes next."""

import asyncio
import base64
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from fakes.commits import commit, committed_by
from fakes.reading import consumers, values
from waiting import slow_s, until_async
from waiting import until as wait_until

import kafka_actors as ka
from kafka_actors.errors import IllegalGenerationError, JobFailed, TopicRecreatedError
from kafka_actors.events import OffsetReset
from kafka_actors.group.commit_metadata import pack, unpack
from kafka_actors.job import messages
from kafka_actors.job.coordinator.coordinator import JobCoordinator
from kafka_actors.ray.actors import coordinator_actor
from kafka_actors.types import OffsetAndMetadata, TopicPartition

COUNT = 400


@pytest.fixture
def consumer_of(cluster, group_id):
    yield from consumers(
        cluster.bootstrap_servers,
        group_id=group_id,
        heartbeat_interval_ms=300,
        metadata_max_age_ms=500,
        auto_commit_interval_ms=20,
    )


class Broker:
    """State of the broker: ids of topics, and commits as any other client sees them."""

    def __init__(self, cluster, group):
        self.cluster, self.group = cluster, group
        self.servers = cluster.bootstrap_servers

    def topic_id(self, topic):
        with ka.Admin(bootstrap_servers=self.servers) as admin:
            return base64.urlsafe_b64decode(admin.describe_topics([topic])[topic].topic_id + "==")

    def cluster_id(self):
        with ka.Admin(bootstrap_servers=self.servers) as admin:
            return admin.describe_cluster().cluster_id

    def committed(self, topic, partitions=4):
        """Commits of a topic: partition → (offset, metadata)."""
        return committed_by(self.servers, self.group, topic, partitions)

    def make_anew(self, topic, gap_s, partitions, produce):
        """Deletes the topic and makes it again, with other records."""
        self.cluster.delete_topic(topic)
        time.sleep(gap_s)
        self.cluster.create_topic(topic, partitions)
        produce(topic, values(COUNT, COUNT), partition=[n % partitions for n in range(COUNT)])


def spread(partitions):
    return [n % partitions for n in range(COUNT)]


def poll(consumer, seen, until, commits, timeout=40.0):
    """Polls, and commits by hand where that is wanted, until all is there or an error comes out."""
    deadline = time.monotonic() + slow_s(timeout)
    while not until():
        assert time.monotonic() < deadline, (len(seen), consumer.assignment())
        batch = consumer.poll_batch(timeout_ms=20)
        if batch is not None:
            seen += batch["value"].to_pylist()
        if commits:
            try:
                consumer.commit()
            except (IllegalGenerationError, TopicRecreatedError):
                pass  # of what was lost meanwhile; poll says more


CASES = [
    pytest.param(0, 4, "latest", "reset", False, id="at-once"),
    pytest.param(1, 2, "latest", "fail", False, id="fewer-after-1s"),
    *[
        pytest.param(gap, after, reset, loss, commits, marks=pytest.mark.slow)
        for gap in (0, 1, 3)
        for after in (4, 2)
        for reset, loss in (
            ("earliest", "fail"),
            ("latest", "fail"),
            ("earliest", "reset"),
            ("latest", "reset"),
            ("none", "reset"),
        )
        for commits in (False, True)
    ],
]


@pytest.mark.parametrize(("gap_s", "after", "reset", "loss", "commits"), CASES)
def test_a_topic_that_is_made_anew_under_a_member(
    consumer_of, cluster, kafka_topic, produce, group_id, gap_s, after, reset, loss, commits
):
    topic, broker = kafka_topic(4), Broker(cluster, group_id)
    if reset == "none":
        commit(broker.servers, group_id, topic, 4, 0, "")
    events, seen = [], []
    consumer = consumer_of([topic], auto_offset_reset=reset, on_data_loss=loss, events=events.append)
    poll(consumer, seen, lambda: len(consumer.assignment()) == 4, False)
    for tp in consumer.assignment():
        consumer.position(tp)
    produce(topic, values(COUNT), partition=spread(4))
    poll(consumer, seen, lambda: len(seen) >= COUNT, commits)
    old_id = broker.topic_id(topic)

    with ThreadPoolExecutor(1) as other:
        made = other.submit(broker.make_anew, topic, gap_s, after, produce)
        if loss == "fail" or reset == "none":
            with pytest.raises(TopicRecreatedError) as caught:
                poll(consumer, seen, lambda: False, commits)
            assert caught.value.topic == topic
            made.result()
            consumer.close()
            assert sorted(seen) == values(COUNT)
        else:
            poll(consumer, seen, lambda: made.done() and len(set(seen)) >= 2 * COUNT, commits)
            made.result()
            # What is in hand at the close is not committed. Some records may come twice, and last: a partition that was taken anew is read again.
            ends = dict.fromkeys((TopicPartition(topic, p) for p in range(after)), COUNT // after)
            wait_until(
                lambda: (
                    consumer.poll_batch(timeout_ms=20) is None
                    and {tp: consumer.position(tp) for tp in consumer.assignment()} == ends
                ),
                40,
                "the last records",
                pause=0.0,
                shown=consumer.assignment,
            )
            consumer.close()
            assert sorted(set(seen)) == values(2 * COUNT)
            resets = [e for e in events if isinstance(e, OffsetReset)]
            assert {(e.partition, e.new, e.reason) for e in resets} == {
                (p, 0, "recreated") for p in range(after)
            }
    new_id = broker.topic_id(topic)
    assert new_id != old_id
    for partition, (offset, metadata) in broker.committed(topic, after).items():
        named = unpack(metadata).topic_id
        assert named in (old_id, new_id)
        if loss == "fail" or reset == "none":
            assert named == old_id
        else:
            assert (named, offset) == (new_id, COUNT // after), partition


@pytest.mark.kafka
@pytest.mark.parametrize("loss", ["fail", "reset"])
def test_a_commit_of_the_topic_before_does_not_count_for_the_process_that_starts_next(
    consumer_of, cluster, kafka_topic, produce, group_id, loss
):
    topic, broker = kafka_topic(4), Broker(cluster, group_id)
    old_id = broker.topic_id(topic)
    broker.make_anew(topic, 0, 4, produce)
    commit(broker.servers, group_id, topic, 4, 50, pack("", old_id))  # one that reaches the coordinator late
    events, seen = [], []
    consumer = consumer_of(
        [topic], auto_offset_reset="latest", on_data_loss=loss, events=events.append, enable_auto_commit=False
    )
    if loss == "fail":
        with pytest.raises(TopicRecreatedError, match="at offset 50: the topic was recreated") as caught:
            poll(consumer, seen, lambda: False, False)
        assert caught.value.old_topic_id == old_id.hex()
        assert seen == []
        return
    poll(consumer, seen, lambda: len(seen) >= COUNT, False)
    assert sorted(seen) == values(COUNT, COUNT)
    resets = {e.partition: e for e in events if isinstance(e, OffsetReset)}
    assert resets == {p: OffsetReset(topic, p, 50, 0, "recreated", 0) for p in range(4)}
    assert consumer.committed(consumer.assignment()) == dict.fromkeys(consumer.assignment())
    consumer.commit()
    ours = OffsetAndMetadata(COUNT // 4, "", 0)
    assert consumer.committed(consumer.assignment()) == dict.fromkeys(consumer.assignment(), ours)


def test_a_users_metadata_and_that_of_other_clients_is_handed_back_as_it_is(
    consumer_of, cluster, kafka_topic, produce, group_id
):
    topic, broker = kafka_topic(1), Broker(cluster, group_id)
    tp, topic_id = TopicPartition(topic, 0), broker.topic_id(topic)
    produce(topic, values(10))
    consumer = consumer_of(enable_auto_commit=False)
    consumer.assign([tp])
    for text in ("my note", pack("looks like ours", topic_id)):
        consumer.commit({tp: OffsetAndMetadata(3, text)})
        assert consumer.committed([tp])[tp] == OffsetAndMetadata(3, text)
        offset, metadata = broker.committed(topic, 1)[0]
        assert (offset, unpack(metadata)[:2]) == (3, (text, topic_id))
        assert unpack(metadata).cluster_id == broker.cluster_id()
        with ka.Admin(bootstrap_servers=broker.servers) as admin:
            shown = admin.list_consumer_group_offsets(group_id)
        assert shown[tp].metadata == text
    consumer.close()
    commit(broker.servers, group_id, topic, 1, 4, "theirs")
    consumer = consumer_of([topic], enable_auto_commit=False)
    seen = []
    poll(consumer, seen, lambda: len(seen) >= 6, False)
    assert seen == values(6, 4)
    assert consumer.committed([tp])[tp].metadata == "theirs"


@pytest.mark.slow
@pytest.mark.parametrize("gap_s", [0, 1])
def test_the_async_twin_reads_a_topic_that_is_made_anew(cluster, kafka_topic, produce, group_id, gap_s):
    topic, broker, events = kafka_topic(4), Broker(cluster, group_id), []
    at_ends = dict.fromkeys((TopicPartition(topic, p) for p in range(4)), COUNT // 4)

    async def read():
        seen = []
        options = {"auto_offset_reset": "latest", "on_data_loss": "reset", "auto_commit_interval_ms": 20}
        async with ka.AsyncConsumer(
            [topic],
            bootstrap_servers=broker.servers,
            group_id=group_id,
            heartbeat_interval_ms=300,
            metadata_max_age_ms=500,
            events=events.append,
            **options,
        ) as consumer:

            async def poll_until(holds):
                async with asyncio.timeout(slow_s(60)):
                    while not holds():
                        batch = await consumer.poll_batch(timeout_ms=20)
                        if batch is not None:
                            seen.extend(batch["value"].to_pylist())

            await poll_until(lambda: len(consumer.assignment()) == 4)
            for tp in consumer.assignment():
                await consumer.position(tp)
            await asyncio.to_thread(produce, topic, values(COUNT), partition=spread(4))
            await poll_until(lambda: len(seen) >= COUNT)
            made = asyncio.create_task(asyncio.to_thread(broker.make_anew, topic, gap_s, 4, produce))
            await poll_until(lambda: made.done() and len(set(seen)) >= 2 * COUNT)
            async with asyncio.timeout(slow_s(40)):  # as above: some may come twice, and last
                while await consumer.poll_batch(timeout_ms=20) is not None or at_ends != {
                    tp: await consumer.position(tp) for tp in consumer.assignment()
                }:
                    pass
        return seen

    seen = asyncio.run(read())
    assert sorted(set(seen)) == values(2 * COUNT)
    new_id = broker.topic_id(topic)
    found = {
        p: (offset, unpack(metadata).topic_id) for p, (offset, metadata) in broker.committed(topic).items()
    }
    assert found == dict.fromkeys(range(4), (COUNT // 4, new_id))


@pytest.mark.ray
@pytest.mark.parametrize("gap_s", [0, 1])
@pytest.mark.parametrize("loss", ["fail", "reset"])
@pytest.mark.slow
def test_a_job_under_which_a_topic_is_made_anew(job_under, loss, gap_s):
    job_under(loss=loss, gap_s=gap_s)


@pytest.mark.ray
@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_a_job_hears_of_a_topic_that_is_made_anew_long_before_its_metadata_is_too_old(job_under, delivery):
    job_under(loss="reset", gap_s=1, metadata_max_age_ms=300_000, delivery=delivery)


@pytest.fixture
def job_under(ray_local, cluster, kafka_topic, produce, group_id, tmp_path):
    """Runs a job under which a topic is made anew, and checks what it has read and committed."""

    def run(*, loss, gap_s, metadata_max_age_ms=500, delivery="at_least_once"):
        topic, broker = kafka_topic(4), Broker(cluster, group_id)
        produce(topic, values(COUNT), partition=spread(4))
        written, exact = tmp_path / "seen", delivery == "exactly_once"

        def process(batch):
            with written.open("ab") as file:
                file.write(b"".join(value + b"\n" for value in batch["value"].to_pylist()))
            return batch.select(["value"]) if exact else None

        def seen():
            return written.read_bytes().split() if written.exists() else []

        config = {
            "metadata_max_age_ms": metadata_max_age_ms,
            "heartbeat_interval_ms": 300,
            "start_timeout_s": 600,
        }
        job = ka.Job(
            topics=[topic],
            process=process,
            group_id=group_id,
            bootstrap_servers=broker.servers,
            workers=1,
            sink=ka.KafkaSink(kafka_topic(1)) if exact else None,
            delivery=delivery,
            config={**config, "on_data_loss": loss, "auto_commit_interval_ms": 50},
        )

        def committed_of(topic_id):
            found = broker.committed(topic).items()
            return {p: offset for p, (offset, text) in found if unpack(text).topic_id == topic_id}

        running = job.start()
        try:
            wait_until(lambda: len(seen()) >= COUNT, 120, shown=lambda: len(seen()))
            broker.make_anew(topic, gap_s, 4, produce)
            if loss == "fail":
                with pytest.raises(JobFailed, match=f"{topic}-.*: the topic was recreated"):
                    running.wait()
                assert sorted(set(seen())) == values(COUNT)
            else:
                wait_until(lambda: len(set(seen())) >= 2 * COUNT, 120, shown=lambda: len(seen()))
                # Some may come twice, and last: what is begun again at the stop is committed no further than it has come.
                new_id, all_of_it = broker.topic_id(topic), dict.fromkeys(range(4), COUNT // 4)
                wait_until(lambda: committed_of(new_id) == all_of_it, 60, "the commits of the new topic")
        finally:
            with suppress(JobFailed):
                running.stop()
        ours = committed_of(broker.topic_id(topic))
        assert ours == ({} if loss == "fail" else dict.fromkeys(range(4), COUNT // 4))

    return run


def test_a_jobs_coordinator_learns_that_a_topic_was_made_anew_and_keeps_its_partitions(
    fake_kafka, group_id, monkeypatch
):
    """Its workers find that by themselves; a member of its own would lose the partitions and take them anew."""
    assigned, recreated, lost = [], [], []

    class Noting(JobCoordinator):
        async def on_partitions_assigned(self, partitions):
            await super().on_partitions_assigned(partitions)
            assigned.append(partitions)

        def recreated(self, partitions):
            super().recreated(partitions)
            recreated.append(partitions)

        async def on_partitions_lost(self, partitions):
            lost.append(partitions)

    monkeypatch.setattr(coordinator_actor, "JobCoordinator", Noting)
    monkeypatch.setattr(coordinator_actor, "set_up_process", lambda setup: None)
    fake_kafka.create_topic("t", 1)
    plan = ka.Job(
        topics=["t"],
        group_id=group_id,
        bootstrap_servers=fake_kafka.bootstrap_servers,
        process=print,
        config={"metadata_max_age_ms": 100},
    ).plan()
    actor = coordinator_actor.CoordinatorActor(
        plan.config,
        1,
        ["t"],
        None,
        messages.pack(messages.JobStart([])),
        messages.pack(messages.Identity(None)),
        plan.setup("coordinator", 1),
    )

    async def watch():
        workers = messages.WorkerPlan(1, {"worker-0.1": 1.0}, [], False, True)
        await actor.begin(messages.pack(workers), False)
        try:
            await until_async(lambda: assigned, 20)
            fake_kafka.recreate_topic("t")
            enough = fake_kafka.count("Metadata") + 10
            await until_async(lambda: recreated or lost or fake_kafka.count("Metadata") >= enough, 20)
        finally:
            await actor.stop(True)

    asyncio.run(watch())
    assert (recreated, lost) == ([{TopicPartition("t", 0)}], [])

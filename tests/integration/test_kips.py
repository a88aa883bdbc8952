"""Promises of Kafka's improvement proposals to a consumer, on two real brokers in a rack each."""

import re
import shutil
import subprocess
import time
from collections import Counter

import pytest
from jobs.journal import Journal
from jobs.scene import recorder
from pace import this_run
from waiting import slow_s, until

import kafka_actors as ka
from kafka_actors.errors import LogTruncationError, NoOffsetForPartitionError
from kafka_actors.events import NoCommittedOffset, OffsetReset
from kafka_actors.fetch import BrokerFetcher
from kafka_actors.testing.plugin import started
from kafka_actors.types import TopicPartition

pytestmark = pytest.mark.kafka

NEAR, FAR = "near", "far"


@pytest.fixture(scope="module")
def _racks():
    config = {
        "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
        "broker.session.timeout.ms": 10_000,
        "unclean.leader.election.enable": "true",
        "offsets.retention.minutes": 1,
        "offsets.retention.check.interval.ms": 1000,
    }
    yield from started(2, racks=[FAR, NEAR], broker_config=config)


@pytest.fixture
def racks(_racks):
    """Broker 1 is far, broker 2 near. The cluster misses a dead broker only after 10 s."""
    yield _racks
    _racks.heal()


@pytest.fixture
def topic(racks, kafka_topic):
    """Led by the broker that is far."""
    return kafka_topic(cluster=racks, replica_assignment=[[1, 2]])


@pytest.fixture
def produce_to(racks, produce, topic):
    def send(values, **more):
        return produce(topic, values, bootstrap_servers=racks.bootstrap_servers, **more)

    return send


@pytest.fixture
def open_consumer(racks):
    made = []

    def make(*topics, **options):
        options.setdefault("auto_offset_reset", "earliest")
        consumer = ka.Consumer(topics=topics or None, bootstrap_servers=racks.bootstrap_servers, **options)
        made.append(consumer)
        return consumer

    yield make
    for consumer in made:
        consumer.close()


@pytest.fixture
def counted_answers(monkeypatch):
    """Broker id → pulls that it answered and bytes of records that it gave, of all consumers in this process."""
    pulls, sizes = Counter(), Counter()
    fetch = BrokerFetcher.fetch

    def counted(self, pull, answered, queued):
        def note(outcome):
            if not isinstance(outcome, Exception):
                pulls[self.broker] += 1
                sizes[self.broker] += sum(fetched.size for fetched in outcome[0].partitions)
            answered(outcome)

        fetch(self, pull, note)  # without a queue: each answer is counted

    monkeypatch.setattr(BrokerFetcher, "fetch", counted)
    return pulls, sizes


def read(consumer, count, timeout=30.0):
    """Reads `count` records; returns their offsets as they come."""
    got, deadline = [], time.monotonic() + slow_s(timeout)
    while len(got) < count:
        assert time.monotonic() < deadline, f"{len(got)} of {count}"
        batch = consumer.poll_batch(timeout_ms=500)
        if batch is not None:
            got += batch["offset"].to_pylist()
    return got


# ---------------------------------------------------------------- KIP-392: the nearest replica


def test_records_come_from_the_replica_in_the_own_rack_and_from_the_leader_when_it_dies(
    racks, topic, produce_to, open_consumer, counted_answers
):
    _, sizes = counted_answers
    produce_to([b"x" * 1000] * 5000, config={"batch.size": 16_384})  # what is fetched ahead is little
    consumer = open_consumer(
        client_rack=NEAR,
        metadata_max_age_ms=15_000,
        worker_buffer_bytes=200_000,
        max_partition_fetch_bytes=50_000,
    )
    consumer.assign([TopicPartition(topic, 0)])
    offsets = read(consumer, 2000)
    assert (sizes[1], sizes[2] > 2_000_000) == (0, True)
    killed = time.monotonic()
    racks.kill(2)
    while not sizes[1]:
        offsets += read(consumer, 1)
    quick = this_run().quiet_s(killed, time.monotonic()) < 5
    assert quick or 2 in racks.live_brokers(), "the cluster helped: it knew already that the broker is dead"
    offsets += read(consumer, 5000 - len(offsets))
    assert offsets == list(range(5000))
    assert sizes[1] > 2_000_000

    racks.restart(2)
    near = sizes[2]
    until(lambda: produce_to([b"x"] * 10) and read(consumer, 10) and sizes[2] > near, 60, "near again")
    assert consumer.position(TopicPartition(topic, 0)) % 10 == 0


def test_the_leader_is_asked_again_for_the_nearest_replica(topic, produce_to, open_consumer, counted_answers):
    pulls, sizes = counted_answers
    produce_to([b"x" * 1000] * 100)
    consumer = open_consumer(client_rack=NEAR, metadata_max_age_ms=500, fetch_max_wait_ms=100)
    consumer.assign([TopicPartition(topic, 0)])
    assert read(consumer, 100) == list(range(100))
    asked = pulls[1]
    until(lambda: consumer.poll_batch(timeout_ms=50) or pulls[1] >= asked + 3, 30, "the leader to be asked")
    produce_to([b"x" * 1000] * 100)
    assert read(consumer, 100) == list(range(100, 200))
    assert sizes[1] == 0


@pytest.mark.parametrize("rack", ["", FAR, "elsewhere"])
def test_without_a_replica_in_the_own_rack_records_come_from_the_leader(
    topic, produce_to, open_consumer, counted_answers, rack
):
    _, sizes = counted_answers
    produce_to([b"x" * 1000] * 100)
    consumer = open_consumer(client_rack=rack)
    consumer.assign([TopicPartition(topic, 0)])
    assert read(consumer, 100) == list(range(100))
    assert (sizes[1] > 100_000, sizes[2]) == (True, 0)


def received(processes, port):
    """Bytes that sockets of these processes have received from a port, as the kernel counts."""
    listing = ["ss", "-tinpHO", "state", "established", f"dport = :{port}"]
    lines = subprocess.run(listing, capture_output=True, text=True, check=True).stdout.splitlines()
    own = [line for line in lines if any(f"pid={process}," in line for process in processes)]
    return sum(int(size) for line in own for size in re.findall(r"bytes_received:(\d+)", line))


@pytest.mark.ray
@pytest.mark.skipif(shutil.which("ss") is None, reason="needs ss, of iproute2, to count bytes by socket")
def test_a_jobs_records_come_from_the_replica_in_its_rack(racks, topic, produce_to, ray_local, group_id):
    job = ka.Job(
        topics=[topic],
        group_id=group_id,
        bootstrap_servers=racks.bootstrap_servers,
        process=lambda batch: None,
        workers=1,
        config={"client_rack": NEAR, "start_timeout_s": 600},
    )
    with job.start() as running:

        def read_all(count):
            produce_to([b"x" * 1000] * count)
            until(lambda: racks.committed(group_id) == racks.end_offsets(topic), 60, "all committed")
            actors = set(running.status().actors.values())
            return Counter({node: received(actors, racks.address(node)[1]) for node in racks.broker_ids})

        # While the connection actor of the near broker is still in the making the leader gives the first records.
        until(lambda: read_all(10)[2] > 10_000, 60, "records of the near broker")
        before = read_all(1)
        by_broker = read_all(5000) - before
    assert by_broker[2] > 5_000_000 > 500_000 > by_broker[1]


# ---------------------------------------------------------------- KIP-320: a log that lost its end


def test_a_log_that_lost_its_end_is_an_error_or_goes_on_from_where_both_are_the_same(
    racks, topic, produce_to, open_consumer
):
    """The leader takes ten records that its follower, which is down, never sees; then it goes and the follower leads."""
    tp = TopicPartition(topic, 0)
    produce_to([b"both %d" % n for n in range(10)])
    events = []
    strict = open_consumer()
    lenient = open_consumer(on_data_loss="reset", auto_offset_reset="latest", events=events.append)
    for consumer in (strict, lenient):
        consumer.assign([tp])
        consumer.seek(tp, 0)
        assert read(consumer, 10) == list(range(10))
    racks.shutdown(2)
    produce_to([b"lost %d" % n for n in range(10)])
    for consumer in (strict, lenient):
        assert read(consumer, 10) == list(range(10, 20))
    racks.shutdown(1)
    racks.restart(2)
    until(lambda: racks.leaders(topic) == {0: 2}, 30, "the other broker to lead")
    assert racks.end_offsets(topic) == {(topic, 0): 10}
    produce_to([b"new %d" % n for n in range(15)])

    with pytest.raises(LogTruncationError) as caught:
        read(strict, 1)
    assert (caught.value.offset, caught.value.divergent_offset) == (20, 10)
    assert strict.position(tp) == 20
    assert read(lenient, 15) == list(range(10, 25))
    assert [e for e in events if isinstance(e, OffsetReset)] == [
        OffsetReset(topic, 0, 20, 10, "truncated", 0)
    ]


# ---------------------------------------------------------------- KIP-211: offsets of a group without members


@pytest.mark.slow
@pytest.mark.ray
def test_offsets_of_a_group_without_members_expire_and_the_policy_says_what_follows(
    racks, topic, produce_to, open_consumer, group_id, ray_local, tmp_path
):
    """After a minute without a member. A member that is idle keeps its group's."""
    gone, idle = f"{group_id}-gone", f"{group_id}-idle"
    produce_to([b"x"] * 10)
    consumers = {group: open_consumer(topic, group_id=group) for group in (gone, idle)}
    for group, consumer in consumers.items():
        assert read(consumer, 10) == list(range(10))
        consumer.commit()
        assert racks.committed(group) == {(topic, 0): 10}
    consumers[gone].close()
    until(lambda: consumers[idle].poll_batch(timeout_ms=500) or not racks.committed(gone), 100, "expiry")
    assert racks.committed(gone) == {}
    assert racks.committed(idle) == {(topic, 0): 10}
    produce_to([b"x"])
    assert read(consumers[idle], 1) == [10]

    strict = open_consumer(topic, group_id=gone, auto_offset_reset="none")
    with pytest.raises(NoOffsetForPartitionError, match=topic):
        read(strict, 1)
    strict.close()
    events = []
    latest = open_consumer(
        topic, group_id=gone, auto_offset_reset="latest", enable_auto_commit=False, events=events.append
    )
    chosen = NoCommittedOffset(topic, 0, 11, "latest")
    until(
        lambda: latest.poll_batch(timeout_ms=100) is None and chosen in events, 30, "the choice of an offset"
    )
    latest.close()

    journal = Journal(tmp_path / "journal")
    job = {
        "topics": [topic],
        "group_id": gone,
        "bootstrap_servers": racks.bootstrap_servers,
        "process": recorder(journal),
        "workers": 1,
        "until": "latest",
        "config": {"start_timeout_s": 600},
    }
    with pytest.raises(ka.JobFailed) as failed, ka.Job(**job, auto_offset_reset="none").start() as running:
        running.wait(timeout=slow_s(60))
    assert isinstance(failed.value.cause, NoOffsetForPartitionError)
    assert journal.records() == 0
    with ka.Job(**job).start() as running:
        running.wait(timeout=slow_s(60))
    assert journal.counts() == {TopicPartition(topic, 0): dict.fromkeys(range(11), 1)}
    assert racks.committed(gone) == {(topic, 0): 11}

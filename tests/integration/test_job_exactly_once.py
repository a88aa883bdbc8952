"""A job that delivers exactly once, on real Kafka and real Ray, while its processes and brokers are killed and stopped."""

import math
import os
import signal
import time
from contextlib import closing, suppress

import pytest
from jobs.faults import keep_alive
from jobs.ledger import CrashLedger, copier
from waiting import at_pace_s, until

import kafka_actors as ka
from kafka_actors.testing import KafkaCluster

pytestmark = [pytest.mark.ray, pytest.mark.kafka]

PARTITIONS = 8
RECORDS = 50_000
FAULTS = int(os.environ.get("KAFKA_ACTORS_TEST_FAULTS", "12"))
CRASHES = int(os.environ.get("KAFKA_ACTORS_TEST_CRASHES", "200"))
"""Numbers of faults of the short ledger and of the long one."""
PAUSES_S = (0.3, 3.0)
FENCED = ("ProducerFencedError", "InvalidProducerEpochError", "IllegalGenerationError")
"""The errors with which brokers refuse a producer that another one has taken the place of."""


@pytest.fixture
def ledger(ray_local, kafka_cluster_3, kafka_topic, group_id, tmp_path):
    """A ledger of crashes between two topics of three brokers."""
    with closing(ledger_on(kafka_cluster_3, kafka_topic, group_id, tmp_path)) as made:
        yield made


def ledger_on(cluster, kafka_topic, group_id, tmp_path):
    source, target = (kafka_topic(PARTITIONS, cluster=cluster, replication_factor=3) for _ in range(2))
    seed = int(os.environ.get("KAFKA_ACTORS_TEST_SEED", "19"))
    return CrashLedger(cluster, source, target, PARTITIONS, group_id, tmp_path / "traps", seed)


def crashes(ledger, count, **options):
    """Records come for as long as there are faults, and all of them have to be there once and in order."""
    ledger.start(**options)
    ledger.produce(RECORDS, rate=RECORDS / (count * sum(PAUSES_S) / 2))
    for _ in range(count):
        ledger.fault()
        print(f"{time.monotonic():.1f} {ledger.told[-1]}", flush=True)
        time.sleep(ledger.random.uniform(*PAUSES_S))
    ledger.settle(180)
    ledger.check()
    print(ledger.last, *ledger.traps.refused(), sep="\n")


def test_each_record_is_delivered_once_whatever_dies(ledger):
    crashes(ledger, FAULTS)


@pytest.mark.slow
@pytest.mark.timeout(600 + 20 * CRASHES)
def test_each_record_is_delivered_once_whatever_dies_many_times(ledger):
    crashes(ledger, CRASHES)


@pytest.mark.slow
def test_each_record_of_an_async_function_is_delivered_once_whatever_dies(ledger):
    crashes(ledger, FAULTS, process=copier(str(ledger.traps.directory), is_async=True))


@pytest.mark.slow
def test_each_record_is_delivered_once_by_brokers_of_transaction_version_1(
    ray_local, kafka_topic, group_id, tmp_path
):
    with (
        KafkaCluster(brokers=3, version="3.9.2") as cluster,
        closing(ledger_on(cluster, kafka_topic, group_id, tmp_path)) as ledger,
    ):
        crashes(ledger, FAULTS)


def test_a_worker_that_goes_on_when_others_have_its_partitions_is_refused_by_a_named_error(ledger):
    """It stops in the midst of a commit, and the supervisor can't end it: whichever step comes next, brokers refuse it."""
    ledger.start()
    keep_alive(ledger.running, lambda pid: pid in ledger.traps.stopped())
    ledger.produce(math.inf, rate=100)  # a worker comes to the last step however long the others took
    for step in ("after produce", "before offsets", "before end"):
        known = set(ledger.traps.stopped())
        ledger.traps.set(step, signal.SIGSTOP)
        until(lambda known=known: set(ledger.traps.stopped()) - known, 60, f"a worker to stop {step}")
        (zombie,) = set(ledger.traps.stopped()) - known
        until(
            lambda pid=zombie: pid not in ledger.status().actors.values(), 60, "another worker in its place"
        )
        until(lambda: all_granted(ledger), 60, "its partitions with others", shown=ledger.status)
        os.kill(zombie, signal.SIGCONT)
        until(lambda pid=zombie: refusals(ledger, pid), 20, f"a refusal of the worker that stopped {step}")
        assert refusals(ledger, zombie)[0].split(": ")[1] in FENCED, refusals(ledger, zombie)
        os.kill(zombie, signal.SIGKILL)
    ledger.end_load()
    ledger.settle(120)
    ledger.check()


def all_granted(ledger):
    """Whether workers that there are have all partitions, whatever these wait for."""
    status = ledger.status()
    return all(p.state == "granted" and p.worker in status.actors for p in status.partitions)


def refusals(ledger, pid):
    """Returns the errors that this worker's calls to its producer have had."""
    return [line for line in ledger.traps.refused() if line.startswith(f"{pid} ")]


def test_a_job_that_was_killed_whole_ends_what_it_left_open_when_it_is_started_again(ledger):
    """Its transactions time out after ten minutes: the next start doesn't wait for that, with fewer workers."""
    sink = {"transaction_timeout_ms": 600_000}
    killed = ledger.start_apart(sink, config={"auto_commit_interval_ms": 500_000})

    def shared():
        counts = [len(partitions) for partitions in killed.ask()["workers"].values()]
        return sum(counts) == ledger.partitions and max(counts) - min(counts) <= 1

    until(shared, 60, "all workers to have partitions")  # what moves later is committed by its worker first
    ledger.produce(800, rate=4_000)
    until(lambda: written(ledger) >= 800, 60, "all results to be written")
    assert sum(map(len, ledger.results().values())) == 0  # in transactions that nobody ends from now on
    killed.send(signal.SIGKILL)
    until(lambda: not killed.left(), 60, "the actors to end")
    ledger.start(sink=ka.KafkaSink(ledger.target, **sink), workers=2)
    ledger.settle(60)
    ledger.check()
    assert written(ledger) > 1_600  # twice, and markers


def test_without_a_name_a_start_waits_for_the_timeout_and_says_so(ledger):
    sink = {
        "transaction_timeout_ms": round(1000 * max(45.0, at_pace_s(12)))
    }  # the next start comes within it
    options = {"name": None, "workers": 2, "config": {"group_instance_id": None}}
    ledger.traps.set("after offsets", signal.SIGSTOP)  # they are pending from here on
    killed = ledger.start_apart(sink, **options)
    ledger.produce(400, rate=4_000)
    until(ledger.traps.stopped, 60, "a worker to stop")
    killed.send(signal.SIGKILL)
    for pid in killed.left():
        with suppress(ProcessLookupError):  # Ray ends them, too
            os.kill(pid, signal.SIGKILL)
    ledger.start(sink=ka.KafkaSink(ledger.target, **sink), **options)
    until(
        lambda: any(p.reason == "waits for stable offsets" for p in ledger.status().partitions),
        60,
        "a partition to wait for stable offsets",
    )
    ledger.settle(120)
    ledger.check()


def written(ledger):
    """Results that are in the log, committed or not, and markers."""
    return sum(ledger.cluster.end_offsets(ledger.target).values())

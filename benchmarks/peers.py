"""The other clients, written as their documentation recommends and at the settings that were fastest here.

`python -m benchmarks tune` measures confluent-kafka's settings again.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from benchmarks.reading import Check, Clock, Run, Task, cpu_of
from kafka_actors.testing import BENCHMARK_JVM, KafkaCluster

CONFLUENT = "confluent-kafka"
"""The client that the others are compared with."""
JAVA = "Java"

# The one setting that matters of those that `tune` tries is fetch.queue.backoff.ms: librdkafka stops fetching for that
# long whenever a partition's queue is full, and with its default of a second the queues run dry (0.2 million records/s
# here instead of 1.7). Longer queues or another size of a fetch on top of it change less than two runs differ.
CONFLUENT_SETTINGS: dict[str, Any] = {
    "enable.auto.commit": False,
    "check.crcs": True,
    "fetch.queue.backoff.ms": 10,
}
CONFLUENT_NOTE = "All with their defaults, but confluent-kafka with " + ", ".join(
    f"`{name}={str(value).lower()}`" for name, value in CONFLUENT_SETTINGS.items()
)


def confluent_consumer(task: Task) -> Any:
    """confluent-kafka's consumer of all partitions from their starts, assigned by hand."""
    from confluent_kafka import Consumer, TopicPartition

    settings = {"bootstrap.servers": task.bootstrap, "group.id": "benchmark"}
    consumer = Consumer({**settings, **CONFLUENT_SETTINGS, **task.options})
    consumer.assign([TopicPartition(task.topic, p, 0) for p in task.expected])
    return consumer


def confluent(told: dict[str, Any]) -> Run:
    """`consume(10000)`, the value of each message read: the fastest way that its documentation names."""
    return _confluent(told, fold)


def confluent_messages(told: dict[str, Any]) -> Run:
    """The same with the key read as well."""
    return _confluent(told, fold_with_keys)


def _confluent(told: dict[str, Any], fold: Callable[[Iterable[Any], Check], None]) -> Run:
    task = Task.of(told)
    clock = Clock(task)
    while True:
        clock.making()
        check = Check(task.expected)
        consumer = confluent_consumer(task)
        clock.start()
        while not check.complete:
            messages = consumer.consume(at_once(task, check), timeout=1.0)
            if messages:
                fold(messages, check)
                clock.first()
        more = clock.passed(check.records)
        consumer.close()
        check.verify()
        if not more:
            return clock.run()


def at_once(task: Task, check: Check) -> int:
    """How many messages to ask `consume` for: it waits until it has so many, so never for more than are left."""
    return min(task.at_once, check.left)


def fold(messages: Iterable[Any], check: Check) -> None:
    """Every value byte into the checksum. A message that is an error shows as a wrong checksum."""
    by_partition: dict[int, list[bytes]] = {}
    for message in messages:
        by_partition.setdefault(message.partition(), []).append(message.value())
    for partition, values in by_partition.items():
        check.add(partition, len(values), b"".join(values))


def fold_with_keys(messages: Iterable[Any], check: Check) -> None:
    by_partition: dict[int, list[bytes]] = {}
    for message in messages:
        _ = message.key()
        by_partition.setdefault(message.partition(), []).append(message.value())
    for partition, values in by_partition.items():
        check.add(partition, len(values), b"".join(values))


def confluent_polls(told: dict[str, Any]) -> Run:
    """`poll()`, one message a call, key and value read."""
    task = Task.of(told)
    clock = Clock(task)
    while True:
        clock.making()
        check = Check(task.expected)
        consumer = confluent_consumer(task)
        clock.start()
        while not check.complete:
            messages: list[Any] = []
            while len(messages) < 10_000 and (message := consumer.poll(1.0)) is not None:
                messages.append(message)
                if check.records + len(messages) == task.total:
                    break
            if messages:
                fold_with_keys(messages, check)
                clock.first()
        more = clock.passed(check.records)
        consumer.close()
        check.verify()
        if not more:
            return clock.run()


def aiokafka(told: dict[str, Any]) -> Run:
    """aiokafka, `getmany`."""
    from aiokafka import AIOKafkaConsumer, TopicPartition

    async def run() -> Run:
        task = Task.of(told)
        partitions = [TopicPartition(task.topic, p) for p in task.expected]
        clock = Clock(task)
        while True:
            clock.making()
            check = Check(task.expected)
            consumer = AIOKafkaConsumer(bootstrap_servers=task.bootstrap, auto_offset_reset="earliest")
            await consumer.start()
            consumer.assign(partitions)
            await consumer.seek_to_beginning(*partitions)
            clock.start()
            while not check.complete:
                for tp, records in (await consumer.getmany(timeout_ms=1000)).items():
                    check.add(tp.partition, len(records), b"".join([r.value for r in records]))
                    clock.first()
            more = clock.passed(check.records)
            await consumer.stop()
            check.verify()
            if not more:
                return clock.run()

    return asyncio.run(run())


def java(cluster: KafkaCluster, task: Task) -> Run:
    """Kafka's own ConsumerPerformance: one pass over the topic, by `fetch.nMsg.sec`. It counts, and looks at no value."""
    done = cluster.tool(
        "org.apache.kafka.tools.ConsumerPerformance",
        *("--bootstrap-server", task.bootstrap, "--topic", task.topic, "--messages", str(task.total)),
        *("--timeout", "60000", "--hide-header"),
        timeout=task.seconds * 20 + 300,
        jvm_options=BENCHMARK_JVM,
    )
    # start, end, MB, MB/s, records, records/s, rebalance ms, fetch ms, fetch MB/s, fetch records/s
    figures = [field.strip() for field in done.stdout.strip().splitlines()[-1].split(",")]
    read, fetch_ms, fetch_rate = int(figures[4]), float(figures[7]), float(figures[9])
    if read < task.total:
        raise SystemExit(f"Java read {read} of {task.total} records: {done.stdout}{done.stderr}")
    return {"records": read, "seconds": fetch_ms / 1000, "rate": fetch_rate}


# ---------------------------------------------------------------- processes in one group


def confluent_group(told: dict[str, Any]) -> Run:
    """As many confluent-kafka processes in one group as `task.options["members"]`, each a `confluent_member`; the
    clock of a pass runs from the first assignment that has its final share to the last record of any."""
    task = Task.of(told)
    members = task.options["members"]
    seconds, records, cpu, broker_cpu = 0.0, 0, 0.0, 0.0
    firsts: list[float] = []
    while seconds < task.seconds:
        made = time.monotonic()
        command = [sys.executable, "-m", "benchmarks.client", "benchmarks.peers:confluent_member"]
        asked = json.dumps({**told, "options": {**task.options, "group": f"bench-{uuid.uuid4()}"}})
        broker_before = cpu_of(task.broker_pid)
        processes = [
            subprocess.Popen([*command, asked], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for _ in range(members)
        ]
        lines = [process.stdout.readline() for process in processes if process.stdout is not None]
        broker_cpu += cpu_of(task.broker_pid) - broker_before
        for process in processes:
            process.communicate()  # closes its input: it may leave the group
        if not all(lines):
            raise SystemExit("a member of the group failed")
        reports = [json.loads(line) for line in lines]
        read = sorted(p for report in reports for p in report["partitions"])
        if read != sorted(task.expected):
            raise SystemExit(f"the members read partitions {read}")
        seconds += max(r["ended"] for r in reports) - min(r["began"] for r in reports)
        records += sum(r["records"] for r in reports)
        cpu += sum(r["cpu"] for r in reports)
        firsts.append(min(r["began"] for r in reports) - made)
    return {
        "records": records,
        "seconds": seconds,
        "rate": records / seconds,
        "cpu": cpu,
        "broker_cpu": broker_cpu,
        "start_up": min(firsts),
    }


def confluent_member(told: dict[str, Any]) -> None:
    """One process of a group: takes nothing before its share is final, then reads that from start to end. Prints its
    report, and stays in the group until its input ends: leaving would take the others' partitions away from them."""
    from confluent_kafka import Consumer

    task = Task.of(told)
    share = len(task.expected) // task.options["members"]
    mine: list[int] = []
    began = cpu = 0.0

    def assigned(consumer: Any, partitions: list[Any]) -> None:
        nonlocal began, cpu
        if len(partitions) > share:  # alone as yet: the others are about to join
            consumer.assign([])
            return
        mine.extend(tp.partition for tp in partitions)
        began, cpu = time.monotonic(), time.process_time()

    settings = {
        "bootstrap.servers": task.bootstrap,
        "group.id": task.options["group"],
        "auto.offset.reset": "earliest",
        # Who joined first learns of the others by its heartbeats. That time is not on the clock.
        "heartbeat.interval.ms": 200,
    }
    consumer = Consumer({**settings, **CONFLUENT_SETTINGS})
    consumer.subscribe([task.topic], on_assign=assigned)
    early: list[Any] = []
    while not mine:
        early = consumer.consume(10_000, timeout=0.1)
    check = Check({p: task.expected[p] for p in mine})
    take = decoding(task.options["schema"]) if "schema" in task.options else fold
    take(early, check)
    while not check.complete:
        take(consumer.consume(at_once(task, check), timeout=1.0), check)
    ended = time.monotonic()
    if take is fold:
        check.verify()
    report = {"partitions": mine, "records": check.records, "began": began, "ended": ended}
    print(json.dumps({**report, "cpu": time.process_time() - cpu}), flush=True)
    sys.stdin.read()
    consumer.close()


def decoding(schema: str) -> Callable[[Iterable[Any], Check], None]:
    """A function that decodes Avro values by `AvroDeserializer`, and sums the amounts; `Check` only counts."""
    from confluent_kafka.serialization import MessageField, SerializationContext

    from benchmarks.schemas import confluent_deserializer

    deserialize, context = confluent_deserializer(schema), SerializationContext("orders", MessageField.VALUE)
    amount = 0.0

    def take(messages: Iterable[Any], check: Check) -> None:
        nonlocal amount
        counts: Counter[int] = Counter()
        for message in messages:
            amount += deserialize(message.value(), context)["amount"]
            counts[message.partition()] += 1
        for partition, count in counts.items():
            check.add(partition, count, b"")

    return take

"""The clients under comparison: each reads a topic from its start to its end, again and again, and checks what it read.

One run is one fresh process. The clock starts with the first poll after the assignment; every value byte goes
into a CRC-32C per partition, in order, which has to be that of what was produced.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import crc32c


@dataclass
class Task:
    """What to read: `expected` is (records, CRC-32C of all values) by partition."""

    bootstrap: str
    topic: str
    expected: dict[int, tuple[int, int]]
    seconds: float
    options: dict[str, object] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return sum(count for count, _ in self.expected.values())


class Check:
    """Counts and checksums of one pass over the topic."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self.records = 0
        self._sums = dict.fromkeys(task.expected, 0)
        self._counts = dict.fromkeys(task.expected, 0)

    def add(self, partition: int, count: int, values: bytes | memoryview) -> None:
        self._sums[partition] = crc32c.crc32c(values, self._sums[partition])
        self._counts[partition] += count
        self.records += count

    @property
    def complete(self) -> bool:
        return self.records >= self._task.total

    def verify(self) -> None:
        found = {p: (self._counts[p], self._sums[p]) for p in self._task.expected}
        if found != self._task.expected:
            raise SystemExit(
                f"read something else than was produced: {found}, expected {self._task.expected}"
            )


@dataclass
class Result:
    records: int
    seconds: float
    start_up: float
    cpu: float
    rss_early: float
    rss_late: float


def rss_mb() -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 1e6


class Clock:
    """Runs from the first poll after an assignment to the last record of a pass, and pass after pass until the time of a
    run is over. Each pass has a client of its own: a seek would first wait for a long poll at the end of the log.
    And the memory at 25 % and 90 % of the way."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._seconds = self._cpu = self._began = self._cpu_began = 0.0
        self._early = self._late = 0.0
        self._start_up = 0.0
        self._records = 0

    def start(self, made: float) -> None:
        """The assignment is made; `made` is when the client's construction began."""
        self._began, self._cpu_began = time.perf_counter(), time.process_time()
        self._start_up = self._start_up or self._began - made

    def passed(self, records: int) -> bool:
        """The last record of a pass is read; whether another one is to begin."""
        self._seconds += time.perf_counter() - self._began
        self._cpu += time.process_time() - self._cpu_began
        self._records += records
        if not self._early and self._seconds >= self._task.seconds / 4:
            self._early = rss_mb()
        if self._seconds >= self._task.seconds * 0.9:
            self._late = rss_mb()
        return self._seconds < self._task.seconds

    def result(self) -> Result:
        late = self._late or rss_mb()
        return Result(self._records, self._seconds, self._start_up, self._cpu, self._early or late, late)


# ---------------------------------------------------------------- ours


def ours(task: Task) -> Result:
    """`Consumer.poll_batch`, all eight columns built."""
    from kafka_actors import Consumer, TopicPartition

    clock = Clock(task)
    while True:
        made, check = time.perf_counter(), Check(task)
        with Consumer(
            bootstrap_servers=task.bootstrap, auto_offset_reset="earliest", **task.options
        ) as consumer:
            consumer.assign([TopicPartition(task.topic, p) for p in task.expected])
            clock.start(made)
            while not check.complete:
                batch = consumer.poll_batch(timeout_ms=1000)
                if batch is not None:
                    check.add(
                        batch.column("partition")[0].as_py(),
                        batch.num_rows,
                        value_bytes(batch.column("value")),
                    )
            more = clock.passed(check.records)
        check.verify()
        if not more:
            return clock.result()


def value_bytes(column: object) -> memoryview:
    """All bytes of a binary column, in place."""
    _, offsets, data = column.buffers()  # type: ignore[attr-defined]
    first = column.offset  # type: ignore[attr-defined]
    bounds = memoryview(offsets).cast("i")
    return memoryview(data)[bounds[first] : bounds[first + len(column)]]  # type: ignore[arg-type]


def ours_messages(task: Task) -> Result:
    """`for message in consumer`, key and value read."""
    from kafka_actors import Consumer, TopicPartition

    clock = Clock(task)
    while True:
        made, left, size = time.perf_counter(), task.total, 0
        with Consumer(
            bootstrap_servers=task.bootstrap, auto_offset_reset="earliest", **task.options
        ) as consumer:
            consumer.assign([TopicPartition(task.topic, p) for p in task.expected])
            clock.start(made)
            for message in consumer:
                size += len(message.key) + len(message.value)
                left -= 1
                if not left:
                    break
            more = clock.passed(task.total)
        if not size or not more:
            return clock.result()


def floor(task: Task) -> Result:
    """Raw Fetch requests for all partitions, the next in flight, the bytes dropped: what any client could reach."""
    from kafka_actors.config import ConsumerConfig, build
    from kafka_actors.fetch import BrokerFetcher, Pull, Want
    from kafka_actors.net import FetchSocket, KafkaClient

    async def run() -> Result:
        config = build(ConsumerConfig, bootstrap_servers=task.bootstrap)
        client = KafkaClient(config)
        client.set_topics([task.topic])
        snapshot = await client.bootstrap()
        (broker,) = snapshot.brokers.values()
        topic_id = snapshot.topic_id(task.topic)
        clock = Clock(task)
        while True:
            made = time.perf_counter()
            fetcher = BrokerFetcher(broker.node_id, broker.host, broker.port, config, connect=FetchSocket)
            wants = [
                Want(task.topic, p, (0, 0), 0, config.max_partition_fetch_bytes, topic_id)
                for p in task.expected
            ]
            clock.start(made)
            pulls = [fetcher.pull(Pull(0, wants, max_bytes=config.fetch_max_bytes, max_wait_ms=500))]
            sequence, reached = 0, dict.fromkeys(task.expected, 0)
            while any(reached[p] < count for p, (count, _) in task.expected.items()):
                while len(pulls) < 3:
                    sequence += 1
                    pulls.append(
                        fetcher.pull(Pull(sequence, max_bytes=config.fetch_max_bytes, max_wait_ms=500))
                    )
                ((reply, _),) = await pulls.pop(0)
                for fetched in reply.partitions:
                    reached[fetched.partition] = fetched.next_offset
            more = clock.passed(task.total)
            await fetcher.close()
            await asyncio.gather(*pulls, return_exceptions=True)
            if not more:
                await client.close()
                return clock.result()

    return asyncio.run(run())


# ---------------------------------------------------------------- others


def confluent(task: Task) -> Result:
    """confluent-kafka, `consume(10000)`: the fastest way its documentation names."""
    from confluent_kafka import Consumer, TopicPartition

    clock = Clock(task)
    while True:
        made, check = time.perf_counter(), Check(task)
        consumer = Consumer(
            {
                "bootstrap.servers": task.bootstrap,
                "group.id": "benchmark",
                "enable.auto.commit": False,
                "check.crcs": True,
                # Its default of a second is how long it stops fetching once its queue is full.
                "fetch.queue.backoff.ms": 10,
            }
        )
        consumer.assign([TopicPartition(task.topic, p, 0) for p in task.expected])
        clock.start(made)
        while not check.complete:
            by_partition: dict[int, list[bytes]] = {}
            for message in consumer.consume(10_000, timeout=1.0):
                by_partition.setdefault(message.partition(), []).append(message.value())
            for partition, values in by_partition.items():
                check.add(partition, len(values), b"".join(values))
        more = clock.passed(check.records)
        consumer.close()
        check.verify()
        if not more:
            return clock.result()


def aiokafka(task: Task) -> Result:
    """aiokafka, `getmany`."""
    from aiokafka import AIOKafkaConsumer, TopicPartition

    async def run() -> Result:
        partitions = [TopicPartition(task.topic, p) for p in task.expected]
        clock = Clock(task)
        while True:
            made, check = time.perf_counter(), Check(task)
            consumer = AIOKafkaConsumer(bootstrap_servers=task.bootstrap, auto_offset_reset="earliest")
            await consumer.start()
            consumer.assign(partitions)
            await consumer.seek_to_beginning(*partitions)
            clock.start(made)
            while not check.complete:
                for tp, records in (await consumer.getmany(timeout_ms=1000)).items():
                    check.add(tp.partition, len(records), b"".join([r.value for r in records]))
            more = clock.passed(check.records)
            await consumer.stop()
            check.verify()
            if not more:
                return clock.result()

    return asyncio.run(run())


CLIENTS: dict[str, Callable[[Task], Result]] = {
    "ours": ours,
    "ours messages": ours_messages,
    "confluent-kafka": confluent,
    "aiokafka": aiokafka,
    "floor": floor,
}


def main(arguments: Iterable[str]) -> None:
    """One run: the client's name and its task as JSON; prints the result as JSON."""
    name, text = arguments
    data = json.loads(text)
    data["expected"] = {int(p): tuple(e) for p, e in data["expected"].items()}
    print(json.dumps(CLIENTS[name](Task(**data)).__dict__))


if __name__ == "__main__":
    main(sys.argv[1:])

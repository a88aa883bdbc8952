"""The topics that the benchmarks read: made once per broker with confluent-kafka, shared, deleted after their last reader."""

from __future__ import annotations

import itertools
import random
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import crc32c

from kafka_actors.testing import KafkaCluster

Expected = dict[int, tuple[int, int]]
"""(records, CRC-32C of all values in order) by partition."""

LARGE, DEFAULT = 262_144, 16_384
"""Bytes of a producer's batch: a throughput setting, and what Kafka's producers have by default."""
FEWER = 5_000_000
"""Records for the slowest clients, which no target is about: fifty million take them minutes."""
KEY_BYTES = 8
BLOCK_BYTES = 16_000_000
TEXT_BYTES = 1_000_000
AVRO_ROWS = 65_521


@dataclass(frozen=True)
class Data:
    """A topic of JSON values of `size` bytes under 8-byte keys, written with linger.ms=20 in batches of
    `batch_size` bytes before compression, whatever the number of partitions. `avro`: of framed Avro values of about that size."""

    codec: str = "none"
    size: int = 100
    partitions: int = 8
    batch_size: int = LARGE
    records: int = 50_000_000
    avro: bool = False

    @property
    def topic(self) -> str:
        return f"{'avro-' if self.avro else ''}{self.codec}-{self.size}B-{self.partitions}p-{self.batch_size // 1024}KiB-{self.records}"

    def block(self) -> tuple[list[bytes], list[bytes]]:
        """Values and keys that the topic repeats."""
        if not self.avro:
            return block_of(self.size)
        from benchmarks.schemas import avro_values

        values = avro_values(AVRO_ROWS)
        return values, [b"%08d" % number for number in range(len(values))]

    @property
    def record_bytes(self) -> int:
        return self.size + KEY_BYTES

    def smaller(self, share: float) -> Data:
        """The same with fewer records, for a smoke run; at least some for each partition."""
        return replace(self, records=max(int(self.records * share), self.partitions * 100))


def block_of(size: int) -> tuple[list[bytes], list[bytes]]:
    """Values and keys that a topic repeats, over more bytes than a compressor looks back in one batch. The same each
    time. The text is made of random words, so that compression has about as much to do as with people's own."""
    rows = max(64, min(65_521, BLOCK_BYTES // size))
    rand = random.Random(5)
    letters = "etaoinshrdlu"
    vocabulary = ["".join(rand.choices(letters, k=rand.randint(2, 9))) for _ in range(2_000)]
    text = " ".join(rand.choices(vocabulary, k=TEXT_BYTES // 6)).encode()
    values = []
    for number in range(rows):
        head = b'{"id":%d,"amount":%d,"note":"' % (10**9 + number, 10**5 + rand.randrange(900_000))
        start = rand.randrange(TEXT_BYTES - size)
        values.append((head + text[start : start + size])[: size - 2] + b'"}')
    return values, [b"%08d" % number for number in range(rows)]


def runs_of(data: Data) -> Iterator[tuple[int, slice]]:
    """(partition, rows of the block, twice over): a batch's worth of records to one partition after the other, so that
    batches are full with any number of partitions."""
    rows = AVRO_ROWS if data.avro else len(block_of(data.size)[0])
    run = max(1, min(data.batch_size // (data.record_bytes + 12), rows, data.records // data.partitions))
    left, start = data.records, 0
    for partition in itertools.cycle(range(data.partitions)):
        if not left:
            return
        count = min(run, left)
        yield partition, slice(start, start + count)
        start = (start + count) % rows
        left -= count


def produce(bootstrap: str, data: Data) -> Expected:
    """Fills the topic of `data`, which exists and is empty."""
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": data.codec,
            "linger.ms": 20,
            "batch.size": data.batch_size,
            "queue.buffering.max.messages": 500_000,
            "queue.buffering.max.kbytes": 200_000,
            "enable.idempotence": True,
            "log_level": 3,  # a broker that has just come up makes it warn
        }
    )
    values, keys = (column * 2 for column in data.block())
    counts, sums = [0] * data.partitions, [0] * data.partitions
    send, topic = producer.produce, data.topic
    for partition, rows in runs_of(data):
        chosen = values[rows]
        for value, key in zip(chosen, keys[rows], strict=True):
            while True:
                try:
                    send(topic, value, key, partition)
                    break
                except BufferError:
                    producer.poll(0.05)
        counts[partition] += len(chosen)
        sums[partition] = crc32c.crc32c(b"".join(chosen), sums[partition])
        producer.poll(0)
    if producer.flush(120):
        raise SystemExit(f"{topic}: not all records were delivered")
    return dict(enumerate(zip(counts, sums, strict=True)))


class Shelf:
    """The topics of one broker. `uses` lists what the benchmarks to come read, once for each of them."""

    def __init__(self, cluster: KafkaCluster, uses: Iterable[Data]) -> None:
        self._cluster = cluster
        self._uses = Counter(uses)
        self._made: dict[Data, Expected] = {}

    def get(self, data: Data) -> Expected:
        """What the topic of `data` holds; makes it at first."""
        if data not in self._made:
            began = time.monotonic()
            self._cluster.create_topic(data.topic, data.partitions)
            expected = produce(self._cluster.bootstrap_servers, data)
            written = {p: end for (_, p), end in self._cluster.end_offsets(data.topic).items()}
            if written != {p: count for p, (count, _) in expected.items()}:
                raise SystemExit(f"{data.topic}: produced {expected}, the topic ends at {written}")
            self._made[data] = expected
            took = time.monotonic() - began
            print(f"made {data.topic} in {took:.0f} s: {self.stored_mb(data):,.0f} MB", file=sys.stderr)
        return self._made[data]

    def stored_mb(self, data: Data) -> float:
        """What the topic takes on the broker's disk."""
        directories = self._cluster.data_directory(1).glob(f"{data.topic}-*")
        return sum(log.stat().st_size for place in directories for log in place.glob("*.log")) / 1e6

    def done(self, data: Data) -> None:
        """One reader less; after the last the topic is deleted, so that all that is left fits into the page cache."""
        self._uses[data] -= 1
        if not self._uses[data] and self._made.pop(data, None) is not None:
            self._cluster.delete_topic(data.topic)

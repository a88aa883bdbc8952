"""Records the loads in this folder anew: producers send by four shapes to real Kafka for five minutes, and the ends of the
partitions are asked for each second.

    python tests/loads/record.py

One line a second, one column a partition, in which the log's end stands then. Keys are skewed, as those of real topics
are, and producers pause and catch up.
"""

import csv
import math
import random
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import kafka_actors as ka
from kafka_actors.testing import KafkaCluster

SECONDS, PARTITIONS, KEYS = 300, 12, 400
SHAPES: dict[str, Callable[[float], float]] = {
    "step": lambda t: 150.0 if t < 100 else 1_200.0,
    "ramp": lambda t: 100.0 + 5.0 * t,
    "spike": lambda t: 30_000.0 if 100 <= t < 101 else 100.0,
    "night": lambda t: 50.0 + max(0.0, 1_200.0 * math.sin(2 * math.pi * t / 150)),
}
"""Seconds since the start → records a second."""
TICK_S = 0.1
VALUE = b"x" * 500  # with little ones a producer would stay with one partition for seconds


def produce(servers: str, topic: str, shape: Callable[[float], float], began: float) -> None:
    """Sends what is due, at moments that are not quite even."""
    dice = random.Random(topic)
    due = 0.0
    with ka.Producer(bootstrap_servers=servers, linger_ms=20) as producer:
        while (at := time.monotonic() - began) < SECONDS:
            due += shape(at) * TICK_S
            if dice.random() < 0.8:  # else it has paused, and catches up at the next turn
                for _ in range(int(due)):
                    key = b"%d" % min(KEYS, int(dice.paretovariate(1.0)))
                    producer.send(topic, VALUE, key=key if dice.random() < 0.3 else None)
                due -= int(due)
            time.sleep(max(0.0, began + (at // TICK_S + 1) * TICK_S - time.monotonic()))


def record(folder: Path) -> None:
    """Writes `step.csv`, `ramp.csv`, `spike.csv` and `night.csv`."""
    with KafkaCluster(brokers=1) as cluster:
        servers = cluster.bootstrap_servers
        for topic in SHAPES:
            cluster.create_topic(topic, partitions=PARTITIONS)
        began = time.monotonic()
        threads = [threading.Thread(target=produce, args=(servers, *item, began)) for item in SHAPES.items()]
        for thread in threads:
            thread.start()
        seen: dict[str, list[list[int]]] = {topic: [] for topic in SHAPES}
        partitions = [ka.TopicPartition(topic, p) for topic in SHAPES for p in range(PARTITIONS)]
        with ka.Consumer(bootstrap_servers=servers) as consumer:
            for second in range(1, SECONDS + 1):
                time.sleep(max(0.0, began + second - time.monotonic()))
                ends = consumer.end_offsets(partitions)
                for topic, rows in seen.items():
                    rows.append([ends[ka.TopicPartition(topic, p)] for p in range(PARTITIONS)])
        for thread in threads:
            thread.join()
    for topic, rows in seen.items():
        with open(folder / f"{topic}.csv", "w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(rows)


if __name__ == "__main__":
    record(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)

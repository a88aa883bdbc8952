"""Milliseconds that a plan of fetching takes, by default over 20,000 partitions of 3 brokers, each read from a follower.

    python benchmarks/bench_plan.py [--partitions 20000] [--brokers 3] [--plans 200]

A plan is made for each response: it says what to fetch next. `nothing new`: between two responses; `a response`: taking one with
records of one partition, handing them out, and the plan behind it. The median of the plans.
"""

from __future__ import annotations

import argparse
import statistics
import time

from kafka_actors.cluster.snapshot import BrokerMetadata, ClusterSnapshot, PartitionMetadata, TopicMetadata
from kafka_actors.config import ConsumerConfig, build
from kafka_actors.fetch.machines.fetch_machine import FetchMachine, PullToSend
from kafka_actors.fetch.machines.partition_state import PartitionStart
from kafka_actors.fetch.messages import FetchedPartition, FetchReply
from kafka_actors.types import TopicPartition

EPOCH = (1, 1)


def snapshot(partitions: int, brokers: int) -> ClusterSnapshot:
    """Leaders in turn; each partition's follower is the next broker."""
    led = {n: PartitionMetadata(n, n % brokers, 1) for n in range(partitions)}
    return ClusterSnapshot(
        brokers={n: BrokerMetadata(n, f"broker-{n}", 9092) for n in range(brokers)},
        topics={"t": TopicMetadata("t", b"i" * 16, partitions=led)},
    )


def pulls(machine: FetchMachine, now: float) -> list[PullToSend]:
    return [action for action in machine.poll(now).actions if isinstance(action, PullToSend)]


def answer(machine: FetchMachine, pull: PullToSend, fetched: list[FetchedPartition], now: float) -> None:
    reply = FetchReply(pull.broker, pull.pull.sequence, fetched, size=sum(each.size for each in fetched))
    machine.on_reply(pull, reply, [bytes(each.size) for each in fetched], now)


def measure(args: argparse.Namespace) -> dict[str, float]:
    """Median seconds of each step."""
    machine = FetchMachine(build(ConsumerConfig, {"auto_offset_reset": "earliest"}), rand=lambda: 0.5)
    machine.update_metadata(snapshot(args.partitions, args.brokers))
    for number in range(args.partitions):
        machine.assign(TopicPartition("t", number), PartitionStart(EPOCH, 10))
    for pull in pulls(machine, 0.0):  # leaders name followers
        named = [
            FetchedPartition(
                "t", w.partition, EPOCH, 10, 10, preferred_read_replica=(w.partition + 1) % args.brokers
            )
            for w in pull.pull.wants
        ]
        answer(machine, pull, named, 0.1)
    now, waiting = 1.0, pulls(machine, 1.0)
    idle, full, offset = [], [], 10
    for _ in range(args.plans):
        began = time.perf_counter()
        machine.poll(now)
        idle.append(time.perf_counter() - began)
        pull = next(each for each in waiting if each.broker == 1 % args.brokers)
        waiting.remove(pull)
        fetched = FetchedPartition("t", 0, EPOCH, offset, offset + 1, size=100, high_watermark=offset + 1)
        began = time.perf_counter()
        answer(machine, pull, [fetched], now)
        item = machine.take()
        assert item is not None
        assert machine.consumed(item)
        waiting += pulls(machine, now)
        full.append(time.perf_counter() - began)
        now, offset = now + 0.001, offset + 1
    return {"nothing new": statistics.median(idle), "a response": statistics.median(full)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--partitions", type=int, default=20_000)
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--plans", type=int, default=200)
    args = parser.parse_args()
    print(f"{args.partitions} partitions, {args.brokers} brokers, milliseconds")
    for step, seconds in measure(args).items():
        print(f"  {step:12} {seconds * 1e3:8.3f}")


if __name__ == "__main__":
    main()

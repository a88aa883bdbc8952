"""Heavy loads, and what each leaves behind: `make loads`, or `python -m loads.heavy group --partitions 5000`.

Each runs on `FakeKafka`, in a process of its own, or on the servers of `--kafka`, and prints a row of the table: what was done, in how many
seconds, and tasks, threads, sockets, descriptors, memory and Ray's objects before and after. Before is after a first small round, so
that what is made once, and kept, does not count. The exit status is 1 where more is left than `ALLOWED` says, or something did not
come out.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from kafka_actors import Admin, AsyncAdmin, AsyncConsumer, AsyncProducer, Job
from kafka_actors.admin import NewTopic
from kafka_actors.testing import FakeKafka
from kafka_actors.types import TopicPartition

PARTITIONS, TOPICS, REBALANCES, WORKERS = 1_000, 200, 100, 4
ALLOWED = {"tasks": 0, "threads": 1, "sockets": 2, "descriptors": 3, "objects": 0}
"""Allowance for what may be more afterwards, such as a thread or a connection that is about to end."""
WITHIN_S = 900.0


class Counts(msgspec.Struct):
    """Resources that a process holds. `memory`: MiB of its own. `objects`: of Ray, in its whole cluster."""

    tasks: int
    threads: int
    sockets: int
    descriptors: int
    memory: int
    objects: int = 0

    def __str__(self) -> str:
        return "  ".join(f"{name} {getattr(self, name)}" for name in self.__struct_fields__)


def counts(*, ray: bool = False) -> Counts:
    """Counts what this process holds now."""
    gc.collect()
    links = [os.readlink(path) for path in _descriptors()]
    tasks = 0
    try:
        tasks = len(asyncio.all_tasks())
    except RuntimeError:  # no loop runs here
        pass
    memory = next(
        line for line in Path("/proc/self/smaps_rollup").read_text().splitlines() if "Private_Dirty" in line
    )
    return Counts(
        tasks,
        threading.active_count(),
        sum(link.startswith("socket:") for link in links),
        len(links),
        int(memory.split()[1]) // 1024,
        _ray_objects() if ray else 0,
    )


def _descriptors() -> list[str]:
    found = []
    for name in os.listdir("/proc/self/fd"):
        path = f"/proc/self/fd/{name}"
        if os.path.islink(path):
            found.append(path)
    return [path for path in found if os.path.lexists(path)]


def _ray_objects() -> int:
    from ray._private.internal_api import memory_summary

    return sum("LOCAL_REFERENCE" in line or "PINNED" in line for line in memory_summary().splitlines())


class Row(msgspec.Struct):
    """One line of the table."""

    load: str
    done: str
    seconds: float
    before: Counts
    after: Counts

    @property
    def left(self) -> list[str]:
        """Returns what is left behind beyond the allowance, in words."""
        grown = {name: getattr(self.after, name) - getattr(self.before, name) for name in ALLOWED}
        return [f"{more} {name} more than before" for name, more in grown.items() if more > ALLOWED[name]]

    def __str__(self) -> str:
        told = "".join(f"\n  LEFT: {left}" for left in self.left)
        return f"{self.load}: {self.done}, {self.seconds:.1f} s\n  before: {self.before}\n  after:  {self.after}{told}"


async def until(what: str, holds: Callable[[], bool]) -> None:
    """Waits until something holds. Raises `TimeoutError` with its name."""
    try:
        async with asyncio.timeout(WITHIN_S):
            while not holds():  # noqa: ASYNC110  what others do
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise TimeoutError(f"{what}: not within {WITHIN_S:g} s") from None


async def create(servers: str, *topics: NewTopic) -> None:
    """Creates topics."""
    async with AsyncAdmin(bootstrap_servers=servers) as admin:
        await admin.create_topics(topics)


@asynccontextmanager
async def reading(
    servers: str, group: str, seen: set[TopicPartition], **options: Any
) -> AsyncIterator[AsyncConsumer]:
    """A member that polls in a task, and notes the partitions that it was given records of."""
    options.setdefault("topics", "load")
    async with AsyncConsumer(
        bootstrap_servers=servers,
        group_id=group,
        auto_offset_reset="earliest",
        partition_assignment_strategy=["cooperative-sticky"],
        heartbeat_interval_ms=300,
        metadata_max_age_ms=1_000,
        **options,
    ) as consumer:

        async def poll() -> None:
            while True:
                batch = await consumer.poll_batch(timeout_ms=200)
                if batch is not None and batch.num_rows:
                    seen.add(TopicPartition(batch["topic"][0].as_py(), batch["partition"][0].as_py()))

        polling = asyncio.create_task(poll())
        try:
            yield consumer
        finally:
            polling.cancel()
            await asyncio.wait({polling})


async def group(servers: str, options: argparse.Namespace) -> tuple[str, Any]:
    """Two members of one group over so many partitions, each of which gets a record."""
    await create(servers, NewTopic("load", options.partitions, 1))

    async def work(partitions: int, name: str) -> None:
        seen: set[TopicPartition] = set()
        async with AsyncProducer(bootstrap_servers=servers) as producer:
            for partition in range(partitions):
                await producer.send("load", b"value", partition=partition)
        async with reading(servers, name, seen) as one, reading(servers, name, seen) as other:
            owned = lambda: len(one.assignment()) + len(other.assignment())  # noqa: E731
            await until("all partitions are owned", lambda: owned() == options.partitions)
            await until("all partitions are read", lambda: len(seen) >= partitions)

    return f"{options.partitions} partitions, 2 members", (
        lambda: work(10, "small"),
        lambda: work(options.partitions, "large"),
    )


async def topics(servers: str, options: argparse.Namespace) -> tuple[str, Any]:
    """A member of so many topics by a pattern; half of them appear while it reads."""
    made = 0

    async def make(count: int) -> None:
        nonlocal made
        await create(servers, *(NewTopic(f"load-{number}", 2, 1) for number in range(made, made + count)))
        made += count

    async def work(count: int) -> None:
        seen: set[TopicPartition] = set()
        await make(count // 2)
        async with reading(servers, f"g{count}", seen, topics=None, pattern="load-.*") as member:
            await until("the first topics are owned", lambda: len(member.assignment()) == 2 * made)
            await make(count - count // 2)
            await until("new topics are owned", lambda: len(member.assignment()) == 2 * made)
            async with AsyncProducer(bootstrap_servers=servers) as producer:
                for number in range(made):
                    await producer.send(f"load-{number}", b"value", partition=number % 2)
            await until("all topics are read", lambda: len({tp.topic for tp in seen}) == made)

    return f"{options.topics} topics by pattern, half of them new", (
        lambda: work(4),
        lambda: work(options.topics),
    )


async def records(servers: str, options: argparse.Namespace) -> tuple[str, Any]:
    """Records of 1 and 50 MB go through a producer and a consumer, and come out as they were."""
    await create(servers, NewTopic("load", 1, 1, configs={"max.message.bytes": str(64 * 2**20)}))

    async def work(sizes: list[int]) -> None:
        values = [os.urandom(2**16) * (size // 2**16) for size in sizes]
        async with AsyncProducer(
            bootstrap_servers=servers, max_request_size=64 * 2**20, buffer_memory=128 * 2**20
        ) as producer:
            for value in values:
                await (await producer.send("load", value, partition=0))
        found: list[bytes] = []
        async with AsyncConsumer(
            bootstrap_servers=servers, topics="load", group_id="g", auto_offset_reset="earliest"
        ) as consumer:
            async with asyncio.timeout(WITHIN_S):
                while len(found) < len(values):
                    batch = await consumer.poll_batch(timeout_ms=500)
                    found += [] if batch is None else [value.as_py() for value in batch["value"]]
            await consumer.commit()
        if found != values:
            raise AssertionError(
                f"records of {sizes} bytes came out as others: {[len(value) for value in found]}"
            )

    return "20 records of 1 MB and 3 of 50 MB", (
        lambda: work([2**16]),
        lambda: work([2**20] * 20 + [50 * 2**20] * 3),
    )


async def rebalances(servers: str, options: argparse.Namespace) -> tuple[str, Any]:
    """A member stays while another joins and leaves so many times."""
    await create(servers, NewTopic("load", 12, 1))

    async def work(times: int) -> None:
        seen: set[TopicPartition] = set()
        async with reading(servers, "g", seen) as stays:
            await until("the member owns all", lambda: len(stays.assignment()) == 12)
            for _ in range(times // 2):
                async with reading(servers, "g", seen) as other:
                    await until(
                        "both own half", lambda: len(stays.assignment()) == len(other.assignment()) == 6
                    )
                await until("the member owns all again", lambda: len(stays.assignment()) == 12)

    return f"{options.rebalances} rebalances", (lambda: work(4), lambda: work(options.rebalances))


async def measured(load: str, servers: str, options: argparse.Namespace) -> Row:
    """Makes a small round, then the large one, and counts before and after it."""
    done, (small, large) = await LOADS[load](servers, options)
    await small()
    before, began = counts(), time.monotonic()
    await large()
    seconds = time.monotonic() - began
    await asyncio.sleep(0.5)  # connections that were closed end
    return Row(load, done, seconds, before, counts())


LOADS: dict[str, Any] = {"group": group, "topics": topics, "records": records, "rebalances": rebalances}


def job(servers: str, options: argparse.Namespace) -> Row:
    """A job with so many workers processes a topic of so many partitions to its end."""
    import ray

    ray.init(address="local", num_cpus=4, include_dashboard=False, logging_level="WARNING")
    asyncio.run(create(servers, NewTopic("load", options.partitions, 1)))

    def work(batch: Any) -> None:
        pass

    async def write() -> None:
        async with AsyncProducer(bootstrap_servers=servers) as producer:
            for partition in range(options.partitions):
                await producer.send("load", b"value", partition=partition)

    def once(workers: int) -> int:
        asyncio.run(write())
        made = Job(
            topics=["load"],
            group_id="g",
            bootstrap_servers=servers,
            process=work,
            workers=workers,
            resources_per_worker={
                "num_cpus": 0.01
            },  # Ray starts a process for each CPU that it is said to have
            until="latest",
            config={"start_timeout_s": 600},
        )
        with made.start() as running:
            pids = [worker.pid for worker in running.status().workers if worker.pid]
            memory = sum(private_mib(pid) for pid in pids)
            running.wait(timeout=WITHIN_S)
        return memory // max(1, len(pids))

    try:
        once(1)
        before, began = counts(ray=True), time.monotonic()
        each = once(options.workers)
        seconds = time.monotonic() - began
        with Admin(bootstrap_servers=servers) as admin:
            committed = {tp: at.offset for tp, at in admin.list_consumer_group_offsets("g").items()}
        if [*committed.values()] != [2] * options.partitions:
            raise AssertionError(
                f"{options.partitions} partitions have 2 records each; committed: {committed}"
            )
        time.sleep(1.0)
        done = f"{options.partitions} partitions, {options.workers} workers of {each} MiB each"
        return Row("job", done, seconds, before, counts(ray=True))
    finally:
        ray.shutdown()


def private_mib(pid: int) -> int:
    """Memory of a process that no other one shares, in MiB."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) // 1024


def run_one(load: str, options: argparse.Namespace) -> int:
    """Runs a load in this process, and prints its row."""

    def on(servers: str) -> Row:
        return job(servers, options) if load == "job" else asyncio.run(measured(load, servers, options))

    if options.kafka:
        row = on(options.kafka)
    else:
        with FakeKafka(brokers=1) as kafka:
            row = on(kafka.bootstrap_servers)
    sys.stdout.write(f"{row}\n")
    return int(bool(row.left))


def main() -> int:
    """Runs the loads that are options for, each in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("loads", nargs="*", choices=[*LOADS, "job"], default=[*LOADS, "job"])
    parser.add_argument("--partitions", type=int, default=PARTITIONS)
    parser.add_argument("--topics", type=int, default=TOPICS)
    parser.add_argument("--rebalances", type=int, default=REBALANCES)
    parser.add_argument("--workers", type=int, default=WORKERS)
    parser.add_argument("--kafka", help="servers of real brokers")
    parser.add_argument("--here", action="store_true", help="in this process")
    options = parser.parse_args()
    if options.here:
        return run_one(options.loads[0], options)
    options = [argument for argument in sys.argv[1:] if argument not in options.loads]
    codes = [
        subprocess.run([sys.executable, "-m", "loads.heavy", load, "--here", *options]).returncode
        for load in options.loads
    ]
    return int(any(codes))


if __name__ == "__main__":
    sys.exit(main())

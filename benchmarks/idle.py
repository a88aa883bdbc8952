"""What it costs to hold 1,000 partitions in which nothing arrives: CPU of each process, in percent of a core."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any

from benchmarks.common import OURS, Section, Stage
from benchmarks.job import TWO_WORKERS
from benchmarks.peers import CONFLUENT, CONFLUENT_NOTE
from benchmarks.reading import Run, Task, cpu_of

PARTITIONS = 1_000
SETTLE_S = 10.0
WINDOW_S, QUICK_WINDOW_S = 20.0, 5.0


def sections() -> list[Section]:
    clients = {OURS: "idle:ours", CONFLUENT: "idle:confluent", TWO_WORKERS: "idle:job"}
    title = f"CPU with {PARTITIONS:,} partitions assigned and nothing arriving"
    return [
        Section(
            "idle",
            title,
            {name: measured(where) for name, where in clients.items()},
            once=frozenset({CONFLUENT}),  # no target is about it
            notes=CONFLUENT_NOTE,
        )
    ]


def measured(where: str) -> Callable[[Stage], Run]:
    def run(stage: Stage) -> Run:
        window = QUICK_WINDOW_S if stage.options.quick else WINDOW_S
        return stage.run_on_a_new_topic(where, stage.task(window=window, workers=2), PARTITIONS)

    return run


def watched(pids: dict[str, int], window: float) -> Run:
    """CPU of each process over the window."""
    before = {name: cpu_of(pid) for name, pid in pids.items()}
    began = time.monotonic()
    time.sleep(window)
    seconds = time.monotonic() - began
    percent = {name: (cpu_of(pid) - before[name]) / seconds * 100 for name, pid in pids.items()}
    of_ours = {name: value for name, value in percent.items() if not name.startswith("ray ")}
    return {"busiest_percent": max(of_ours.values()), "percent": percent}


def of_thread(task: Task, poll: Callable[[], Any]) -> Run:
    """Polls in this thread while another watches this process; then a record has to arrive, as the proof that all
    was assigned and being read."""
    results: list[Run] = []

    def watch() -> None:
        time.sleep(SETTLE_S)
        results.append(watched({"client": os.getpid()}, task.options["window"]))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    while watcher.is_alive():
        if poll() is not None:
            raise SystemExit("something arrived in an empty topic")
    send_one(task)
    deadline = time.monotonic() + 10
    while poll() is None:
        if time.monotonic() > deadline:
            raise SystemExit("a record did not arrive: the partitions were not being read")
    return results[0]


def send_one(task: Task) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": task.bootstrap})
    producer.produce(task.topic, b"there", partition=PARTITIONS * 7 // 9)
    producer.flush(10)


def ours(told: dict[str, Any]) -> Run:
    from benchmarks.our_consumer import reader

    task = Task.of(told)
    with reader(task.of_all(PARTITIONS)) as consumer:
        return of_thread(task, lambda: consumer.poll_batch(timeout_ms=1000))


def confluent(told: dict[str, Any]) -> Run:
    from benchmarks.peers import confluent_consumer

    task = Task.of(told)
    consumer = confluent_consumer(task.of_all(PARTITIONS))
    result = of_thread(task, lambda: consumer.poll(1.0))
    consumer.close()
    return result


def job(told: dict[str, Any]) -> Run:
    """Each actor, and the driver; Ray's own processes are told beside them."""
    import psutil

    from benchmarks.our_jobs import job_over, own_ray, wait_until

    task = Task.of(told)
    with own_ray(), tempfile.TemporaryDirectory() as directory:

        def process(batch: Any) -> None:
            open(f"{directory}/arrived", "w").close()

        defined = job_over(task, process, task.options["workers"])
        with defined.start() as running:
            wait_until(lambda: sum(len(w.partitions) for w in running.status().workers) == PARTITIONS, 60)
            time.sleep(SETTLE_S)
            pids = {name: pid for name, pid in running.status().actors.items() if pid is not None}
            pids["driver"] = os.getpid()
            for child in psutil.Process().children(recursive=True):
                if child.name() in ("raylet", "gcs_server"):
                    pids[f"ray {child.name()}"] = child.pid
            result = watched(pids, task.options["window"])
            send_one(task)
            wait_until(lambda: os.path.exists(f"{directory}/arrived"), 10)
    return result

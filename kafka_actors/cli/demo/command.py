"""`kafka-actors demo`: runs a job over orders, kills a worker half way, and checks every cent."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import click

from kafka_actors.cli.command import EXIT_DONE, EXIT_FAILED, IntRange, command, needs
from kafka_actors.cli.job_views import view_for
from kafka_actors.cli.output import Output, slow_notice
from kafka_actors.cli.run import WatchEnd, start, watch

from .cluster import DemoCluster, DemoFailed, Filled, embedded, fill, real
from .summary import DemoResult, failures, show

__all__ = ["demo"]

WORKERS = 4
BATCH_ROWS = 500
SECONDS_PER_ORDER = 120e-6
"""With this, four workers take some ten seconds for 300,000 orders, and one can be killed half way."""
LATENCY_LABEL = "age of the backlog"
"""All orders were produced before the job starts, so the time since then is their age, and says nothing about latency."""
KIB, MIB = 1024, 1024 * 1024
SMALL = {"worker_buffer_bytes": 16 * MIB, "max_partition_fetch_bytes": 64 * KIB}
"""Buffers that fit any machine, and a thousand orders in a fetch, so that a worker changes partitions often."""
START_TIMEOUT_S = 300
"""A slow machine has time to start all actors."""


@click.command()
@click.option("--kafka", metavar="HOST:PORT", help="A real plaintext cluster, in place of embedded brokers.")
@click.option(
    "--ray", "ray_address", metavar="ADDRESS", help="A Ray cluster, in place of a local one for the demo."
)
@click.option(
    "--orders", type=IntRange(min=1_000), default=300_000, show_default=True, help="Number of orders."
)
@command
def demo(output: Output, kafka: str | None, ray_address: str | None, orders: int) -> int:
    """Run a job of 4 workers over three topics of orders, kill a worker half way, and check every cent.

    It needs nothing but this machine: the brokers are embedded unless --kafka names real ones, on which the demo
    creates topics of its own and deletes them. The exit code is 0 only if no order is missing, the revenue agrees to
    the cent, and every partition is committed to its end.
    """
    needs("ray", "ray,testing", "the demo runs on Ray, which is not installed")
    needs("confluent_kafka", "ray,testing", "the demo's producer is confluent-kafka, which is not installed")
    with (
        slow_notice(output.print, f"waiting for {kafka or 'the embedded brokers'}") as there,
        real(kafka) if kafka else embedded() as cluster,
    ):
        there()
        output.print(f"3 topics with 4 partitions each on {cluster.brokers}")
        filled = fill(cluster, orders, output.print)
        with _ray(output, ray_address):
            result = _run(output, cluster, filled)
    if result is None:
        raise DemoFailed("stopped by a signal before its end")
    show(result, output.print)
    return _verdict(output, failures(result))


@contextmanager
def _ray(output: Output, address: str | None) -> Iterator[None]:
    """Context manager for the Ray of the demo: a small local one, or the given cluster."""
    import ray

    from kafka_actors.ray.cluster import start_local_ray

    output.print(f"joining the Ray cluster at {address}" if address else "starting a local Ray")
    if address:
        ray.init(address=address, log_to_driver=True, logging_level="warning")
    else:
        start_local_ray(object_store_memory=256 * MIB, log_to_driver=True)
    try:
        yield
    finally:
        with slow_notice(output.print, "waiting for Ray to end"):
            ray.shutdown()


def _run(output: Output, cluster: DemoCluster, filled: Filled) -> DemoResult | None:
    """Runs the job to its end, with the kill half way. Returns None where a signal stopped it."""
    import ray

    from kafka_actors.ray import Job

    from .work import Killer, LedgerActor, Revenue

    ledger = ray.remote(LedgerActor).options(num_cpus=0).remote()
    job = Job(
        pattern=cluster.pattern,
        group_id=cluster.group_id,
        bootstrap_servers=cluster.bootstrap_servers,
        process=Revenue(ledger, SECONDS_PER_ORDER),
        workers=WORKERS,
        until="latest",
        batch_rows=BATCH_ROWS,
        config={**SMALL, "start_timeout_s": START_TIMEOUT_S},
    )
    output.print(f"starting a job of {WORKERS} workers on Ray, subscribed to {cluster.pattern!r}")
    began = time.monotonic()
    title = f"demo on {cluster.brokers}"
    with view_for(output, title, every_s=1.0, latency_label=LATENCY_LABEL) as view:
        running = start(job, view)
        if running is None:
            return None
        try:
            view.note(f"started after {time.monotonic() - began:.1f} s")
            began = time.monotonic()
            killer = Killer(ledger, filled.orders, view.note)
            end, _, _ = watch(running, view, stop=running.stop, each=killer)
            took_s = time.monotonic() - began
        finally:
            with slow_notice(view.note, "waiting for the job to stop"):
                running.stop()
    if end is WatchEnd.STOPPED:
        return None
    account = ray.get(ledger.account.remote())
    return DemoResult(filled, account, cluster.committed(), took_s, killer.killed)


def _verdict(output: Output, found: list[str]) -> int:
    if not found:
        output.print(
            "Every order was counted once, the revenue agrees to the cent, all offsets are committed."
        )
        return EXIT_DONE
    for problem in found:
        output.print(f"WRONG: {problem}")
    output.error(f"the demo did not show what it should: {found[0]}")
    return EXIT_FAILED

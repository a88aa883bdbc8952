"""As many workers as the orders need: a quiet topic, a burst, and quiet again, on a broker of its own.

    python examples/autoscale.py
    BOOTSTRAP=broker:9092 python examples/autoscale.py

One worker scores 1,000 orders a second. After a while 30,000 come at once: half a minute of work for one, while none is
to wait for more than ten seconds. Watch the workers come, and go when the work is done. It takes a minute.
"""

import time
import uuid
from collections.abc import Callable

import pyarrow as pa
from place import brokers, produce_orders

import kafka_actors as ka

POLICY = ka.Autoscale(
    min=1,
    max=8,
    target_lag_seconds=10,
    # Short times for a short show; the defaults, 10 and 120 seconds, keep workers longer.
    upscale_delay_seconds=2,
    downscale_delay_seconds=10,
)
FIRST, BURST = 500, 30_000


def score(batch: pa.RecordBatch) -> None:
    """Asks a service that takes a millisecond for each order."""
    time.sleep(batch.num_rows / 1_000)


def main() -> None:
    topic = f"orders-{uuid.uuid4().hex[:6]}"
    with brokers() as place:
        place.create(topic, partitions=8)
        job = ka.Job(
            topics=[topic],
            group_id=f"scorer-of-{topic}",
            bootstrap_servers=place.servers,
            process=score,
            batch_rows=100,
            workers=POLICY,
        )
        with job.start() as running:
            show = Show(running)
            produce_orders(place.servers, topic, FIRST)
            before = show.until(lambda status: status.records >= FIRST)
            print(f"{BURST:,} orders come in at once")
            produce_orders(place.servers, topic, BURST)
            show.until(lambda status: status.records >= FIRST + BURST)
            print("all of them are scored; how long until the workers go?")
            after = show.until(lambda status: len(status.workers) == POLICY.min)
            print(f"scored {after.records:,} orders")
            print(
                f"generation of the Kafka group: {before.group.generation} before, {after.group.generation} after"
            )


class Show:
    """What the job says of itself, in lines."""

    def __init__(self, running: ka.RunningJob) -> None:
        self.running = running
        self.told = 0

    def until(self, done: Callable[[ka.JobStatus], bool]) -> ka.JobStatus:
        """A line every second until it is done, and each change of the number of workers with its reason."""
        while True:
            status = self.running.status()
            for change in status.scaling.changes:
                if change.number > self.told:
                    self.told = change.number
                    print(f"    {change.before} → {change.after} workers: {change.reason}")
            if done(status):
                return status
            ready = sum(worker.ready for worker in status.workers)
            wanted = status.scaling.workers
            print(f"lag {status.lag:>6,}  {ready} of {wanted} workers  {status.scaling.holding}", flush=True)
            time.sleep(1)


if __name__ == "__main__":
    main()

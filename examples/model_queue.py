"""A model's engine that batches by itself, fed record by record with many in flight, and once more batch after batch for comparison.

    python examples/model_queue.py
    BOOTSTRAP=broker:9092 python examples/model_queue.py

Engines such as vLLM's take requests as they come: in each step they work on all that are under way, and whoever is done makes room for the
next. Given a batch, they have room that nobody uses until its longest answer is done. The engine here is a stand-in whose steps cost what
a batch's do: something for the step, and a little for each request in it.
"""

import asyncio
import time
import uuid
import zlib
from collections import deque

import pyarrow as pa
from place import brokers

import kafka_actors as ka
from kafka_actors import Message

PROMPTS = 1_200
SLOTS = 32
"""Requests that the engine works on at once."""
STEP_S, REQUEST_S = 0.004, 0.0002
"""Seconds of a step, and of each request in it."""


class Engine:
    """Answers prompts in as many steps as an answer has words, up to `SLOTS` of them at once."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, asyncio.Future[int]]] = deque()
        self._work: asyncio.Task[None] | None = None

    async def generate(self, prompt: bytes) -> int:
        """The number of words of the answer, once all of them are there."""
        answer = asyncio.get_running_loop().create_future()
        words = 4 + zlib.crc32(prompt) % 37
        self._waiting.append((words, answer))
        if self._work is None or self._work.done():
            self._work = asyncio.create_task(self._steps())
        await answer
        return words

    async def _steps(self) -> None:
        running: list[tuple[int, asyncio.Future[int]]] = []
        while running or self._waiting:
            while self._waiting and len(running) < SLOTS:
                running.append(self._waiting.popleft())
            await asyncio.sleep(STEP_S + REQUEST_S * len(running))
            for words, answer in running:
                if words == 1:
                    answer.set_result(words)
            running = [(words - 1, answer) for words, answer in running if words > 1]


class ByRecord:
    """Each record is a call of its own; the job has `concurrency` of them in flight."""

    def __init__(self) -> None:
        self.engine = Engine()

    async def __call__(self, message: Message) -> None:
        await self.engine.generate(message.value or b"")


class ByBatch:
    """A batch is done when its longest answer is."""

    def __init__(self) -> None:
        self.engine = Engine()

    async def __call__(self, batch: pa.RecordBatch) -> None:
        await asyncio.gather(*map(self.engine.generate, batch["value"].to_pylist()))


def seconds(servers: str, topic: str, name: str, **options: object) -> float:
    """Runs a job over the topic, from its workers' start to its end."""
    job = ka.Job(
        topics=[topic], group_id=f"{name}-{topic}", bootstrap_servers=servers, until="latest", **options
    )
    with job.start() as running:
        began = time.monotonic()
        running.wait()
        took = time.monotonic() - began
        print(f"{name}: {running.status().records:,} prompts in {took:.1f} s")
    return took


def main() -> None:
    topic = f"prompts-{uuid.uuid4().hex[:6]}"
    with brokers() as place:
        place.create(topic, partitions=1)
        with ka.Producer(bootstrap_servers=place.servers) as producer:
            for number in range(PROMPTS):
                producer.send(topic, b"prompt %d" % number)
        fed = {"process_message": ByRecord, "ordering": "unordered", "concurrency": 2 * SLOTS}
        by_record = seconds(place.servers, topic, "record by record", **fed)
        by_batch = seconds(place.servers, topic, "batch after batch", process=ByBatch, batch_rows=SLOTS)
        print(f"{by_batch / by_record:.1f} times as fast record by record")


if __name__ == "__main__":
    main()

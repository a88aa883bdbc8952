"""Processes of producers and readers that write down what they do: `python -m histories.clients '{"kind": "consumer", …}'`.

Each ends in good order when its standard input ends, and at once when it is killed.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import subprocess
import sys
import threading
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from waiting import until_ended

from .history import Acknowledged, Assigned, Committed, Polled, Processed, Refused, Revoked, Sent, Writer, now

POLL_MS = 200.0
MOST_ERRORS = 50
"""So many calls in a row may raise an error before a reader gives up."""


class Told:
    """The argument of a process: `kind`, `name` and `reader`, where to read or write, and the file of its history."""

    def __init__(self, text: str) -> None:
        told: dict[str, Any] = json.loads(text)
        self.kind: str = told["kind"]
        self.name: str = told["name"]
        self.reader: str = told.get("reader", "")
        self.servers: str = told["servers"]
        self.topic: str = told["topic"]
        self.group: str = told.get("group", "")
        self.partitions: int = told["partitions"]
        self.each: int = told.get("each", 1)
        self.pause_s: float = told.get("pause_s", 0.1)
        self.directory = Path(told["directory"])
        self.writer = Writer(self.directory / f"{self.name}.jsonl")
        self.end = threading.Event()


# ---------------------------------------------------------------- producers


def ours(told: Told) -> None:
    """`Producer`, idempotent as it is by default."""
    import kafka_actors as ka
    from kafka_actors.errors import KafkaActorsError, UndeliveredError

    def settled(value: str, partition: int, future: Any) -> None:
        try:
            offset = future.result().offset
        except KafkaActorsError:
            traceback.print_exc()  # whether it is written is unknown
        else:
            told.writer.write(Acknowledged(now(), told.topic, partition, told.name, value, offset))

    producer = ka.Producer(bootstrap_servers=told.servers, request_timeout_ms=4_000, linger_ms=5)

    def send(value: str, partition: int) -> None:
        try:
            future = producer.send(told.topic, value, partition=partition)
        except KafkaActorsError as error:
            told.writer.write(Refused(now(), told.topic, partition, told.name, value, repr(error)))
        else:
            future.add_done_callback(lambda f: settled(value, partition, f))

    _rounds(told, send)
    try:
        producer.close()
    except UndeliveredError:
        traceback.print_exc()


def confluent(told: Told) -> None:
    """confluent-kafka's producer with `enable.idempotence`. It may write a record twice nevertheless, when a leader moves: with an error of
    one partition it begins a new epoch for all of them (librdkafka, issue 4953)."""
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": told.servers,
            "enable.idempotence": True,
            "linger.ms": 5,
            "socket.timeout.ms": 4000,
            "request.timeout.ms": 3000,
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        }
    )

    def settled(value: str, partition: int, error: Any, message: Any) -> None:
        if error is not None:
            print(value, error, file=sys.stderr)
        else:
            # None where the broker had the record already and no longer knew its offset.
            offset = -1 if message.offset() is None else message.offset()
            told.writer.write(Acknowledged(now(), told.topic, partition, told.name, value, offset))

    def send(value: str, partition: int) -> None:
        producer.produce(
            told.topic, value, partition=partition, on_delivery=lambda e, m: settled(value, partition, e, m)
        )
        producer.poll(0)

    _rounds(told, send, once=False)
    producer.flush(150)


def _rounds(told: Told, send: Callable[[str, int], None], *, once: bool = True) -> None:
    """Sends `each` unique values to every partition, again and again, until the end."""
    numbers = itertools.count()
    while not told.end.wait(told.pause_s):
        for number in itertools.islice(numbers, told.each):
            for partition in range(told.partitions):
                value = f"{told.name}/{partition}/{number}"
                told.writer.write(Sent(now(), told.topic, partition, told.name, number, value, once))
                send(value, partition)


# ---------------------------------------------------------------- members of groups


class Member:
    """Notes of one member: assignments, polls, and what it has processed."""

    def __init__(self, told: Told) -> None:
        self._told = told
        self._epochs: dict[int, int] = {}
        self._numbers = itertools.count(1)
        self._asked = deque([now()] * 3, maxlen=3)
        self.errors = 0

    def polls(self) -> None:
        """Before each poll. An assignment that the next one tells of was asked for after the last poll but one had begun."""
        self._asked.append(now())

    def assigned(self, partitions: list[Any]) -> None:
        told = self._told
        for tp in partitions:
            self._epochs[tp.partition] = epoch = next(self._numbers)
            event = Assigned(
                now(), tp.topic, tp.partition, told.reader, told.name, epoch, since=self._asked[0]
            )
            told.writer.write(event)

    def revoked(self, partitions: list[Any]) -> None:
        told = self._told
        for tp in partitions:
            epoch = self._epochs.pop(tp.partition, 0)
            told.writer.write(Revoked(now(), tp.topic, tp.partition, told.reader, told.name, epoch))

    def took(self, batch: Any) -> None:
        """A poll returned this."""
        self.errors = 0
        if batch is not None:
            partition = batch["partition"][0].as_py()
            record(
                self._told.writer, self._told.reader, self._told.name, batch, self._epochs.get(partition, 0)
            )

    def failed(self) -> None:
        """A poll raised an error: raises it again where too many did."""
        traceback.print_exc()
        self.errors += 1
        if self.errors > MOST_ERRORS:
            raise

    def listener(self) -> Any:
        from kafka_actors.consumer import ConsumerRebalanceListener

        member = self

        class Listener(ConsumerRebalanceListener):
            def on_partitions_assigned(self, partitions: list[Any]) -> None:
                member.assigned(partitions)

            def on_partitions_revoked(self, partitions: list[Any]) -> None:
                member.revoked(partitions)

        return Listener()


def record(writer: Writer, reader: str, member: str, batch: Any, epoch: int | None) -> None:
    """Writes that the records of a batch were polled, and processed."""
    topic, partition = batch["topic"][0].as_py(), batch["partition"][0].as_py()
    offsets = batch["offset"].to_pylist()
    values = [value.decode() for value in batch["value"].to_pylist()]
    writer.write(Polled(now(), topic, partition, reader, member, offsets, values, epoch))
    writer.write(Processed(now(), topic, partition, reader, member, offsets))


def _options(told: Told) -> dict[str, Any]:
    return {
        "topics": [told.topic],
        "group_id": told.group,
        "bootstrap_servers": told.servers,
        "auto_offset_reset": "earliest",
        "session_timeout_ms": 6_000,
        "heartbeat_interval_ms": 1_000,
        "auto_commit_interval_ms": 500,
        "request_timeout_ms": 4_000,
    }


def consumer(told: Told) -> None:
    """`Consumer`."""
    import kafka_actors as ka
    from kafka_actors.errors import KafkaActorsError

    member = Member(told)
    with ka.Consumer(listener=member.listener(), **_options(told)) as reading:
        while not told.end.is_set():
            member.polls()
            try:
                member.took(reading.poll_batch(timeout_ms=POLL_MS))
            except KafkaActorsError:
                member.failed()
                time.sleep(POLL_MS / 1000)


def async_consumer(told: Told) -> None:
    """`AsyncConsumer`."""
    import kafka_actors as ka
    from kafka_actors.errors import KafkaActorsError

    async def run() -> None:
        member = Member(told)
        async with ka.AsyncConsumer(listener=member.listener(), **_options(told)) as reading:
            while not told.end.is_set():
                member.polls()
                try:
                    member.took(await reading.poll_batch(timeout_ms=POLL_MS))
                except KafkaActorsError:
                    member.failed()
                    await asyncio.sleep(POLL_MS / 1000)

    asyncio.run(run())


def recording(directory: Path, reader: str) -> type:
    """A `process` class of a job, which keeps the history of each of its processes in a file."""

    class Recording:
        def __init__(self) -> None:
            self._member = f"{reader}.{os.getpid()}"
            self._writer = Writer(directory / f"{self._member}.jsonl")

        def __call__(self, batch: Any) -> None:
            record(self._writer, reader, self._member, batch, None)

    return Recording


# ---------------------------------------------------------------- Spark


def spark(told: Told) -> None:
    """The source for Spark, in one query after the other over one checkpoint: a query that fails is started again, as its user would.
    A batch that a query ended in comes again; the end of one that was processed counts as committed."""
    from fakes.spark import spark_session

    from kafka_actors.types import TopicPartition

    member = Member(told)

    def take(frame: Any, _number: int) -> None:
        table = frame.select("topic", "partition", "offset", "value").toArrow()
        rows = table.sort_by([("partition", "ascending"), ("offset", "ascending")])
        at = 0
        for partition, count in Counter(rows["partition"].to_pylist()).items():
            batch = rows.slice(at, count)
            at += count
            member.took(batch)
            end = batch["offset"][count - 1].as_py() + 1
            told.writer.write(Committed(now(), told.topic, partition, told.reader, end))

    partitions = [TopicPartition(told.topic, p) for p in range(told.partitions)]
    with spark_session(told.directory / "warehouse") as session:
        given = {
            "kafka.bootstrap.servers": told.servers,
            "subscribe": told.topic,
            "startingOffsets": "earliest",
            "kafka.request.timeout.ms": "4000",
        }
        while not told.end.is_set():
            member.polls()
            member.assigned(partitions)
            frame = session.readStream.format("kafka_actors").options(**given).load()
            writer = frame.writeStream.option("checkpointLocation", str(told.directory / "checkpoint"))
            query = writer.trigger(processingTime="1 second").foreachBatch(take).start()
            while query.isActive and not told.end.wait(0.2):
                pass
            if query.exception() is not None:
                print(query.exception(), file=sys.stderr, flush=True)
            query.stop()
            member.revoked(partitions)


# ---------------------------------------------------------------- the process, inside and outside

KINDS: dict[str, Callable[[Told], None]] = {
    "ours": ours,
    "confluent": confluent,
    "consumer": consumer,
    "async": async_consumer,
    "spark": spark,
}


def main() -> None:
    told = Told(sys.argv[1])

    def ended() -> None:
        sys.stdin.read()
        told.end.set()

    threading.Thread(target=ended, daemon=True).start()
    KINDS[told.kind](told)


class Client:
    """One such process, as the soak starts and ends it. Its standard error goes to a file beside its history."""

    def __init__(self, directory: Path, kind: str, name: str, **told: Any) -> None:
        self.kind = kind
        self.name = name
        self.log = directory / f"{name}.log"
        told = {"kind": kind, "name": name, "directory": str(directory), **told}
        path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "histories.clients", json.dumps(told)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": path},
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def ask_to_end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def ended(self, seconds: float) -> int:
        """Waits for its end after `ask_to_end`; returns the exit code."""
        return until_ended(self.process, seconds, lambda: self.log.read_text()[-4000:])

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


if __name__ == "__main__":
    main()

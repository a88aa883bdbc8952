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
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from waiting import until_ended

from .history import Acknowledged, Assigned, Committed, Polled, Processed, Refused, Revoked, Sent, Writer, now

POLL_MS = 200.0
MOST_ERRORS = 50
"""So many calls in a row may raise an error before a reader gives up."""
GAVE_UP = 3
"""Exit code of a producer that is not ours, and that nothing can be sent with any more."""


class Told:
    """The argument of a process: `kind`, `name` and `reader`, where to read or write, and the file of its history."""

    def __init__(self, text: str) -> None:
        told: dict[str, Any] = json.loads(text)
        self.kind: str = told["kind"]
        self.name: str = told["name"]
        self.reader: str = told.get("reader", "")
        self.servers: str = told["servers"]
        self.topics: dict[str, int] = told["topics"]
        """Topics with their numbers of partitions."""
        self.group: str = told.get("group", "")
        self.each: int = told.get("each", 1)
        self.pause_s: float = told.get("pause_s", 0.1)
        self.directory = Path(told["directory"])
        self.writer = Writer(self.directory / f"{self.name}.jsonl")
        self.end = threading.Event()


# ---------------------------------------------------------------- producers

SENDING: dict[str, Any] = {"request_timeout_ms": 4_000, "linger_ms": 5}
"""Options of our producers."""


def _settled(told: Told, topic: str, partition: int, value: str, future: Any) -> None:
    from kafka_actors.errors import KafkaActorsError

    try:
        offset = future.result().offset
    except KafkaActorsError:
        traceback.print_exc()  # whether it is written is unknown
    else:
        told.writer.write(Acknowledged(now(), topic, partition, told.name, value, offset))


def producer(told: Told) -> None:
    """`Producer`, idempotent as it is by default."""
    import kafka_actors as ka
    from kafka_actors.errors import KafkaActorsError, UndeliveredError

    sending = ka.Producer(bootstrap_servers=told.servers, **SENDING)
    for event in _records(told):
        topic, partition, value = event.topic, event.partition, event.value
        try:
            future = sending.send(topic, value, partition=partition)
        except KafkaActorsError as error:
            told.writer.write(Refused(now(), topic, partition, told.name, value, repr(error)))
        else:
            future.add_done_callback(partial(_settled, told, topic, partition, value))
    try:
        sending.close()
    except UndeliveredError:
        traceback.print_exc()


def async_producer(told: Told) -> None:
    """`AsyncProducer`, idempotent as it is by default."""
    import kafka_actors as ka
    from kafka_actors.errors import KafkaActorsError, UndeliveredError

    async def send(sending: Any, event: Sent) -> None:
        topic, partition, value = event.topic, event.partition, event.value
        try:
            future = await sending.send(topic, value, partition=partition)
        except KafkaActorsError as error:
            told.writer.write(Refused(now(), topic, partition, told.name, value, repr(error)))
        else:
            future.add_done_callback(partial(_settled, told, topic, partition, value))

    async def run() -> None:
        sending = ka.AsyncProducer(bootstrap_servers=told.servers, **SENDING)
        records = _records(told)
        # Waiting for the next round blocks, and the producer's loop has to go on.
        while (event := await asyncio.to_thread(next, records, None)) is not None:
            await send(sending, event)
        try:
            await sending.close()
        except UndeliveredError:
            traceback.print_exc()

    asyncio.run(run())


def confluent(told: Told) -> None:
    """confluent-kafka's producer with `enable.idempotence`. It may write a record twice nevertheless, when a leader moves: with an error of
    one partition it begins a new epoch for all of them (librdkafka, issue 4953). After a fatal error, as where sequences do not fit, it sends
    nothing any more: the process ends with `GAVE_UP`."""
    from confluent_kafka import KafkaException, Producer

    sending = Producer(
        {
            "bootstrap.servers": told.servers,
            "enable.idempotence": True,
            "linger.ms": 5,
            "socket.timeout.ms": 4000,
            "request.timeout.ms": 3000,
            "reconnect.backoff.max.ms": 500,
            "topic.metadata.refresh.interval.ms": 10_000,
            "log_level": 0,
        }
    )

    def settled(event: Sent, error: Any, message: Any) -> None:
        if error is not None:
            print(event.value, error, file=sys.stderr)
        else:
            # None where the broker had the record already and no longer knew its offset.
            offset = -1 if message.offset() is None else message.offset()
            acknowledged = Acknowledged(now(), event.topic, event.partition, told.name, event.value, offset)
            told.writer.write(acknowledged)

    def served(call: Callable[[float], object], timeout_s: float) -> None:
        try:
            call(timeout_s)
        except KafkaException as error:
            print(error, file=sys.stderr)
            if error.args[0].fatal():
                sys.exit(GAVE_UP)

    for event in _records(told, once=False):
        topic, partition, value = event.topic, event.partition, event.value
        try:
            sending.produce(topic, value, partition=partition, on_delivery=partial(settled, event))
        except (BufferError, KafkaException) as error:
            told.writer.write(Refused(now(), topic, partition, told.name, value, repr(error)))
        served(sending.poll, 0)
    served(sending.flush, 45)  # of a topic that was made anew it may hold records for minutes


def _records(told: Told, *, once: bool = True) -> Iterator[Sent]:
    """Yields `each` unique values for every partition, again and again, until the end: each is in the history when it comes."""
    numbers = itertools.count()
    while not told.end.wait(told.pause_s):
        for number in itertools.islice(numbers, told.each):
            for topic, partitions in told.topics.items():
                for partition in range(partitions):
                    value = f"{told.name}/{topic}/{partition}/{number}"
                    event = Sent(now(), topic, partition, told.name, number, value, once)
                    told.writer.write(event)
                    yield event


# ---------------------------------------------------------------- members of groups


class Member:
    """Notes of one member: assignments, polls, and what it has processed."""

    def __init__(self, told: Told) -> None:
        self._told = told
        self._epochs: dict[tuple[str, int], int] = {}
        self._numbers = itertools.count(1)
        self._asked = deque([now()] * 3, maxlen=3)
        self.errors = 0

    def polls(self) -> None:
        """Before each poll. An assignment that the next one tells of was asked for after the last poll but one had begun."""
        self._asked.append(now())

    def assigned(self, partitions: Iterable[tuple[str, int]], since: float | None = None) -> None:
        told = self._told
        since = self._asked[0] if since is None else since
        for topic, partition in partitions:
            self._epochs[topic, partition] = epoch = next(self._numbers)
            told.writer.write(Assigned(now(), topic, partition, told.reader, told.name, epoch, since=since))

    def revoked(self, partitions: Iterable[tuple[str, int]]) -> None:
        told = self._told
        for topic, partition in partitions:
            epoch = self._epochs.pop((topic, partition), 0)
            told.writer.write(Revoked(now(), topic, partition, told.reader, told.name, epoch))

    def took(self, batch: Any) -> None:
        """A poll returned this."""
        self.errors = 0
        if batch is not None:
            place = batch["topic"][0].as_py(), batch["partition"][0].as_py()
            record(self._told.writer, self._told.reader, self._told.name, batch, self._epochs.get(place, 0))

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
                member.assigned((tp.topic, tp.partition) for tp in partitions)

            def on_partitions_revoked(self, partitions: list[Any]) -> None:
                member.revoked((tp.topic, tp.partition) for tp in partitions)

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
        "topics": list(told.topics),
        "group_id": told.group,
        "bootstrap_servers": told.servers,
        "auto_offset_reset": "earliest",
        "on_data_loss": "reset",
        "metadata_max_age_ms": 10_000,
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
    A batch that a query ended in comes again; the end of one that was processed counts as committed. Whether Spark knows that of the last
    one, only Spark does."""
    from fakes.spark import spark_session

    member = Member(told)
    checkpoint = told.directory / "checkpoint"

    def take(frame: Any, _number: int) -> None:
        table = frame.select("topic", "partition", "offset", "value").toArrow()
        rows = table.sort_by([(name, "ascending") for name in ("topic", "partition", "offset")])
        at = 0
        places = zip(rows["topic"].to_pylist(), rows["partition"].to_pylist(), strict=True)
        for (topic, partition), count in Counter(places).items():
            batch = rows.slice(at, count)
            at += count
            member.took(batch)
            end = batch["offset"][count - 1].as_py() + 1
            told.writer.write(Committed(now(), topic, partition, told.reader, end))

    def planned() -> float:
        """The moment at which the last batch was planned: what was committed before, Spark knows."""
        files = [file for file in (checkpoint / "offsets").glob("*") if file.name.isdigit()]
        return max((file.stat().st_mtime for file in files), default=now())

    partitions = [(topic, p) for topic, count in told.topics.items() for p in range(count)]
    with spark_session(told.directory / "warehouse") as session:
        given = {
            "kafka.bootstrap.servers": told.servers,
            "subscribe": ",".join(told.topics),
            "startingOffsets": "earliest",
            "failOnDataLoss": "false",
            "kafka.request.timeout.ms": "4000",
        }
        while not told.end.is_set():
            member.assigned(partitions, planned())
            try:
                frame = session.readStream.format("kafka_actors").options(**given).load()
                writer = frame.writeStream.option("checkpointLocation", str(checkpoint))
                query = writer.trigger(processingTime="1 second").foreachBatch(take).start()
            except Exception as error:  # of Spark, which starts a Python process for it
                print(error, file=sys.stderr, flush=True)
                member.revoked(partitions)
                told.end.wait(1)
                continue
            while query.isActive and not told.end.wait(0.2):
                pass
            if query.exception() is not None:
                print(query.exception(), file=sys.stderr, flush=True)
            query.stop()
            member.revoked(partitions)


# ---------------------------------------------------------------- the process, inside and outside

KINDS: dict[str, Callable[[Told], None]] = {
    "producer": producer,
    "async_producer": async_producer,
    "confluent": confluent,
    "consumer": consumer,
    "async_consumer": async_consumer,
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

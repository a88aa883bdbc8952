"""Time limits hold from the first call: with no broker, with one that takes connections and never answers, and with one that
no longer does."""

from __future__ import annotations

import asyncio
import inspect
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest
from fakes.refusing import refusing_address
from pace import this_run
from waiting import slow_s, until

import kafka_actors as ka
from kafka_actors.admin import (
    EARLIEST,
    AclBinding,
    AclBindingFilter,
    AlterConfigOp,
    ConfigResource,
    NewTopic,
    OffsetTarget,
)
from kafka_actors.base import tasks
from kafka_actors.errors import (
    KafkaTimeoutError,
    NoBrokersAvailable,
    TopicAlreadyExistsError,
    TransactionOutcomeUnknownError,
    UndeliveredError,
)
from kafka_actors.testing import FakeKafka, KafkaCluster
from kafka_actors.testing.fake_kafka import Hold

LIMIT_MS = 400
LATE_S = LIMIT_MS / 1000 + 3
"""With all calls of a class at once, on a busy machine; the client's own limit is 30 s."""

TP = ka.TopicPartition("time-limits", 0)
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "alter_consumer_group_offsets": ("g", {TP: 1}),
    "beginning_offsets": ([TP],),
    "commit": ({TP: 1},),
    "committed": ([TP],),
    "create_acls": ([AclBinding("TOPIC", "t", "User:u", "READ", "ALLOW")],),
    "create_partitions": ({TP.topic: 9},),
    "create_topics": ([NewTopic("time-limits-2")],),
    "delete_acls": ([AclBindingFilter("TOPIC", "t")],),
    "delete_consumer_groups": (["g"],),
    "delete_records": ({TP: 1},),
    "delete_topics": (["time-limits-3"],),
    "describe_configs": ([ConfigResource("TOPIC", TP.topic)],),
    "describe_consumer_groups": (["g"],),
    "end_offsets": ([TP],),
    "incremental_alter_configs": ({ConfigResource("TOPIC", TP.topic): [AlterConfigOp("retention.ms", "1")]},),
    "lag": ("g",),
    "list_consumer_group_offsets": ("g",),
    "list_offsets": ({TP: EARLIEST},),
    "offsets_for_times": ({TP: 0},),
    "partitions_for": (TP.topic,),
    "partitions_for_topic": (TP.topic,),
    "position": (TP,),
    "reset_offsets": ("g", OffsetTarget.earliest()),
    "send": (TP.topic, b"v"),
    "send_batch": (pa.record_batch({"value": [b"v"]}), TP.topic),
    "send_offsets_to_transaction": ({TP: 1}, ka.ConsumerGroupMetadata("g")),
    "topic_configs": ([TP.topic],),
}
"""Arguments of the calls beside the limit."""

UNDER_MAX_BLOCK = {"partitions_for", "send", "send_batch"}
OF_TRANSACTIONS = ("_transaction", "_transactions")
CLASSES = [ka.Admin, ka.AsyncAdmin, ka.AsyncConsumer, ka.AsyncProducer, ka.Consumer, ka.Producer]
Ended = tuple[str, float]
"""The class of the error, `NoneType` for none, and how many seconds it took."""


@pytest.fixture(params=["nobody", "silent"])
def address(request: pytest.FixtureRequest) -> Iterator[str]:
    """Addresses: one where nobody listens, and one that takes connections and never answers."""
    if request.param == "nobody":
        with refusing_address() as address:
            yield address
        return
    with socket.create_server(("127.0.0.1", 0), backlog=100) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def limited(cls: type) -> list[str]:
    """The calls of a class that have a limit, and so have to keep it."""
    calls = inspect.getmembers(cls, inspect.isfunction)
    named = [n for n, call in calls if "timeout_ms" in inspect.signature(call).parameters and n[0] != "_"]
    return named + [name for name, _ in calls if name in UNDER_MAX_BLOCK]


def made(cls: type, name: str, address: str) -> Any:
    options: dict[str, Any] = {"bootstrap_servers": address}
    if "Producer" in cls.__name__:
        options["max_block_ms"] = LIMIT_MS if name in UNDER_MAX_BLOCK else 60_000
        if name.endswith(OF_TRANSACTIONS):
            options["transactional_id"] = f"limits-{uuid.uuid4().hex}"
    if "Consumer" in cls.__name__:
        options["group_id"] = f"limits-{uuid.uuid4().hex}"
    return cls(**options)


async def awaited(result: Any) -> Any:
    return await result if inspect.isawaitable(result) else result


class Call:
    """One call of a client of its own, as if all clients were asynchronous: those that aren't have a thread each."""

    def __init__(self, cls: type, name: str, address: str) -> None:
        self.name = name
        self._client = made(cls, name, address)
        self._thread = None if cls.__name__.startswith("Async") else ThreadPoolExecutor(1)

    async def do(self, method: str, *args: Any, **named: Any) -> Any:
        call = getattr(self._client, method)
        if self._thread is None:
            return await awaited(call(*args, **named))
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, lambda: call(*args, **named))

    async def assign(self) -> None:
        if hasattr(self._client, "assign"):
            await self.do("assign", [TP])

    async def succeed(self) -> None:
        """Anything that needs a broker, so that the call is not the first one."""
        first = {"assign": "topics", "send": "send", "list_topics": "list_topics"}
        method = next(first[name] for name in first if hasattr(self._client, name))
        if self.name == "init_transactions":
            method = "partitions_for"
        elif self.name.endswith(OF_TRANSACTIONS):
            await self.do("init_transactions")
            await self.do("begin_transaction")
        until = time.monotonic() + slow_s(30)
        while True:
            try:
                sent = await self.do(method, *ARGUMENTS.get(method, ()))
                break
            except (KafkaTimeoutError, NoBrokersAvailable):  # its limit may be too short to connect
                if time.monotonic() > until:
                    raise
        if method == "send":
            await self.do("flush")
            assert sent.done()
        elif method == "partitions_for":
            assert sent == {0}
        else:
            assert TP.topic in str(sent)

    async def measured(self) -> Ended:
        began, error = time.monotonic(), None
        limit = {} if self.name in UNDER_MAX_BLOCK else {"timeout_ms": LIMIT_MS}
        try:
            await self.do(self.name, *ARGUMENTS.get(self.name, ()), **limit)
        except Exception as raised:
            error = raised
        return type(error).__name__, this_run().quiet_s(began, time.monotonic())

    async def close(self) -> None:
        limit = {"timeout_ms": LIMIT_MS} if "timeout_ms" in str(inspect.signature(self._client.close)) else {}
        with suppress(
            UndeliveredError, TransactionOutcomeUnknownError
        ):  # of what was sent while nobody answered
            await self.do("close", **limit)
        if self._thread is not None:
            self._thread.shutdown(wait=False)


async def first_call(cls: type, name: str, address: str) -> Ended:
    call = Call(cls, name, address)
    await call.assign()
    try:
        return await call.measured()
    finally:
        await call.close()


async def all_first_calls(cls: type, names: list[str], address: str) -> list[Ended]:
    return await asyncio.gather(*(first_call(cls, name, address) for name in names))


@pytest.mark.parametrize("cls", CLASSES)
def test_a_limit_holds_in_the_first_call(cls: type, address: str) -> None:
    names, began = limited(cls), time.monotonic()
    ended = dict(zip(names, asyncio.run(all_first_calls(cls, names, address)), strict=True))
    assert this_run().quiet_s(began, time.monotonic()) < LATE_S, "with closing"
    assert late(ended) == {}
    without_error = {"close", "flush", "poll_batch"} & ended.keys()
    assert {ended[name][0] for name in without_error} <= {"NoneType"}
    assert {ended[name][0] for name in ended.keys() - without_error} <= {"NoBrokersAvailable"}


def late(ended: dict[str, Ended]) -> dict[str, Ended]:
    return {name: one for name, one in ended.items() if one[1] > LATE_S}


async def later_calls(cls: type, names: list[str], cluster: KafkaCluster) -> list[Ended]:
    calls = [Call(cls, name, cluster.bootstrap_servers) for name in names]
    await asyncio.gather(*(call.assign() for call in calls))
    await asyncio.gather(*(call.succeed() for call in calls))
    cluster.pause(1)
    try:
        ended = await asyncio.gather(*(call.measured() for call in calls))
        began = time.monotonic()
        await asyncio.gather(*(call.close() for call in calls))
        assert this_run().quiet_s(began, time.monotonic()) < LATE_S
        return ended
    finally:
        cluster.resume(1)


@pytest.mark.kafka
@pytest.mark.parametrize("cls", CLASSES)
def test_a_limit_holds_where_the_broker_no_longer_answers(cls: type, kafka_cluster: KafkaCluster) -> None:
    with ka.Admin(bootstrap_servers=kafka_cluster.bootstrap_servers) as admin:
        with suppress(TopicAlreadyExistsError):
            admin.create_topics([NewTopic(TP.topic)])
        until(
            lambda: TP.topic in {topic.name for topic in admin.list_topics()},
            20,
            "the broker to know of its new topic",
        )
    names = limited(cls)
    ended = dict(zip(names, asyncio.run(later_calls(cls, names, kafka_cluster)), strict=True))
    assert late(ended) == {}
    assert not {name: one for name, one in ended.items() if one[0] in ("TypeError", "UsageError")}


def test_connecting_goes_on_between_polls_until_its_own_limit(
    address: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A poll with a short limit would else never get to a broker that takes longer to connect to."""
    consumer = ka.Consumer("t", group_id="g", bootstrap_servers=address, request_timeout_ms=2_500)
    assert consumer.poll_batch(timeout_ms=0) is None
    core = consumer._session.core

    def poll_on() -> bool:
        assert consumer.poll_batch(timeout_ms=100) is None
        assert consumer._session.core is core
        return False

    with pytest.raises(NoBrokersAvailable, match=rf"within 2\.5 s: {address}"):
        until(poll_on, 10, "the end of connecting", pause=0.0)
    said = [record.message for record in caplog.records if "trying on" in record.message]
    assert len(said) == 1
    assert address in said[0]
    assert consumer.poll_batch(timeout_ms=0) is None, "and begins anew"
    consumer.subscribe("u")
    assert not consumer._session.started, "what it has to ask for has changed"
    assert consumer.subscription() == {"u"}
    consumer.close()


def test_a_with_block_that_no_broker_answers_leaves_no_thread(address: str) -> None:
    options = {"bootstrap_servers": address, "request_timeout_ms": 300}
    for client in (ka.Consumer(**options), ka.Producer(max_block_ms=200, **options)):
        with pytest.raises(NoBrokersAvailable), client:
            pass
    names = {thread.name for thread in threading.enumerate()}
    assert not {name for name in names if name.startswith(("kafka-consumer-no", "kafka-producer"))}


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """The lines that clients have logged, at once rather than after two seconds."""
    monkeypatch.setattr(tasks, "SILENT_S", 0.1)
    return lambda: [r.message for r in caplog.records if r.name.startswith("kafka_actors")]


@pytest.mark.parametrize("client", [ka.Consumer, ka.Producer])
def test_a_with_block_says_that_no_broker_answers_yet(
    address: str, said: Callable[[], list[str]], client: Any
) -> None:
    with pytest.raises(NoBrokersAvailable), client(bootstrap_servers=address, request_timeout_ms=400):
        pass
    (line,) = said()
    assert line.startswith("trying on: none of the bootstrap_servers answered")
    assert address in line


def test_records_for_a_topic_that_is_missing_say_so_once(
    fake_kafka: FakeKafka, said: Callable[[], list[str]]
) -> None:
    async def send_many() -> None:
        async with ka.AsyncProducer(
            bootstrap_servers=fake_kafka.bootstrap_servers, max_block_ms=400
        ) as producer:
            sent = [producer.send("absent", value=b"x") for _ in range(10)]
            ended = await asyncio.gather(*sent, return_exceptions=True)
            assert {type(error) for error in ended} == {KafkaTimeoutError}

    asyncio.run(send_many())
    (line,) = [line for line in said() if "topic 'absent'" in line]
    assert "is not in the cluster's metadata yet, and waited for until max_block_ms (400)" in line


@pytest.mark.parametrize("transactional_id", [None, "closing"])
def test_close_says_what_it_waits_for(
    fake_kafka: FakeKafka, said: Callable[[], list[str]], transactional_id: str | None
) -> None:
    fake_kafka.create_topic("closing")

    def lines() -> list[str]:
        return [line for line in said() if line.startswith("close waits for")]

    def answer_when_said() -> None:
        try:
            until(lines, 20, "close to say what it waits for")
        finally:
            held.release()

    answering = threading.Thread(target=answer_when_said, daemon=True)
    with ka.Producer(
        bootstrap_servers=fake_kafka.bootstrap_servers, transactional_id=transactional_id
    ) as producer:
        if transactional_id is not None:
            producer.init_transactions()
            producer.begin_transaction()
        producer.send("closing", value=b"x").result()
        held = fake_kafka.on("Produce" if transactional_id is None else "EndTxn", Hold())
        producer.send("closing", value=b"x")
        answering.start()
    answering.join(slow_s(30))
    (line,) = lines()
    if transactional_id is None:
        assert "close waits for 1 batches to be acknowledged" in line
        assert "the first is for closing-0" in line
    else:
        assert "close waits for the end of the transaction" in line

"""Records on their way into batches: what closes these, and what comes while a producer is closed."""

import asyncio
import gc
import os
import weakref

import pytest

from kafka_actors.config import ProducerConfig, build
from kafka_actors.errors import DisconnectedError, UsageError
from kafka_actors.producer import AsyncProducer, record_intake
from kafka_actors.producer.producer_io import ProducerIO
from kafka_actors.producer.record_intake import RecordIntake
from kafka_actors.records import decode
from kafka_actors.records.kernel import ACTIVE
from kafka_actors.types import TopicPartition

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)
LOST = DisconnectedError("lost")


class Intake(RecordIntake):
    """Batches that were closed are `handed`, and `nudges` counts how often the producer's thread was told."""

    def __init__(self, **options):
        self.handed, self.nudges = [], 0
        config = build(ProducerConfig, bootstrap_servers="b:1", **options)
        super().__init__(config, ACTIVE, lambda: 0.0, self.handed.append, self.nudge)

    def nudge(self):
        self.nudges += 1

    def put(self, partition=A, size=600):
        self.append_one(partition, None, b"x" * size, None, 0)


class Lock:
    """A lock that calls `then` when it is first let go of: another thread's turn."""

    def __init__(self, lock, then):
        self._lock, self._then = lock, [then]

    def __enter__(self):
        self._lock.acquire()

    def __exit__(self, *_):
        self._lock.release()
        while self._then:
            self._then.pop()()


def test_what_comes_while_a_producer_is_closed_is_refused_and_what_was_open_gets_its_error():
    async def close():
        core = ProducerIO(build(ProducerConfig, bootstrap_servers="b:1"))
        result, _ = core.intake.append_one(A, None, b"value", None, 0)
        await core.close(LOST)
        assert result.done
        assert result.error is LOST
        with pytest.raises(UsageError, match="is closed"):
            core.intake.append_one(A, None, b"value", None, 0)
        assert not core.intake.unsettled

    asyncio.run(close())


def test_who_waits_for_a_topic_hears_that_the_producer_is_closed():
    async def wait():
        core = ProducerIO(build(ProducerConfig, bootstrap_servers="b:1"))
        await core.close(LOST)
        with pytest.raises(UsageError, match="is closed"):
            await core.learn("orders", core.client.now() + 60)

    asyncio.run(wait())


# ------------------------------------------------------------ memory


def test_a_batch_counts_with_all_its_memory_and_not_with_its_records_alone():
    intake = Intake(buffer_memory=1_000_000)
    while not intake.full:
        intake.put(size=1)
        intake.close_all()
    assert len(intake.handed) < 1_000_000 / 2_000  # a batch of one small record takes about so much
    assert intake.used == sum(batch.charge for batch in intake.handed)


def test_records_count_where_they_need_more_than_was_reserved():
    intake = Intake(batch_size=100_000)
    intake.put(size=1)
    reserved = intake.used
    intake.put(size=1)
    assert intake.used == reserved
    intake.put(size=50_000)
    assert 51_000 < intake.used < 53_000
    intake.close_all()
    intake.release(intake.handed[0].charge)
    assert intake.used == 0


def test_a_batch_behind_a_full_one_does_not_count_as_full_itself():
    intake = Intake()
    intake.put(size=262_000)
    full = intake.used
    intake.put()
    assert intake.handed
    assert intake.used - full < 20_000


# ------------------------------------------------------------ closed batches

CODEC = {"compression_type": "lz4", "batch_size": 1000, "linger_ms": 0}


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize("closes", [Intake.put, Intake.close_all, Intake.close_due])
def test_batches_whose_compression_is_cut_off_are_sent_as_they_are(closes, error, monkeypatch):
    def compress(*_):
        raise error

    intake = Intake(**CODEC)
    intake.put(A)
    intake.put(B)
    monkeypatch.setattr(record_intake, "compress", compress)
    before = intake.nudges
    with pytest.raises(error):
        closes(intake)
    assert intake.handed
    assert intake.nudges > before
    for batch in intake.handed:
        assert batch.ready
        rows = decode(batch.content.seal(-1, -1, -1), topic="orders", partition=0)
        assert rows["value"].to_pylist() == [b"x" * 600]


def test_a_full_batch_is_compressed_and_sent_where_the_record_behind_it_is_refused():
    intake = Intake(**CODEC)
    intake.put()
    intake.refusal = "the transaction is being ended"
    with pytest.raises(UsageError, match="being ended"):
        intake.put()
    (batch,) = intake.handed
    assert batch.ready
    assert batch.size < 200
    assert intake.nudges


def test_what_is_refused_finds_no_batch_open():
    intake = Intake(**CODEC)
    intake.put()
    seen = []
    intake._lock = Lock(intake._lock, lambda: seen.append((intake.refusal, len(intake.handed))))
    intake.shut("closed")
    assert seen == [("closed", 1)]
    assert intake.handed[0].ready


def test_at_the_end_of_the_process_a_producer_that_was_never_closed_says_once_what_it_has_not_sent(
    caplog, monkeypatch
):
    """Its thread ends with the process, whatever it still has."""
    monkeypatch.setattr(record_intake, "_UNTOLD", weakref.WeakSet())
    intake, empty = Intake(), Intake()
    record_intake._tell_unsent()
    assert not caplog.messages
    intake.put(A)
    intake.put(B)
    record_intake._tell_unsent()
    record_intake._tell_unsent()
    (said,) = caplog.messages
    assert said.startswith("a producer was never closed")
    assert "2 batches without an acknowledgement, the first for orders-0" in said
    assert not empty.unsettled


def test_a_producer_that_is_closed_says_nothing_nor_does_the_child_of_a_fork(caplog):
    async def close():
        core = ProducerIO(build(ProducerConfig, bootstrap_servers="b:1"))
        core.intake.append_one(A, None, b"value", None, 0)
        await core.close(LOST)
        core.intake.tell_unsent()

    asyncio.run(close())
    open_one = Intake()
    open_one.put()
    if (child := os.fork()) == 0:
        os._exit(len(record_intake._UNTOLD))
    assert os.waitpid(child, 0)[1] == 0
    assert not caplog.messages
    open_one.unsettled.clear()


def test_an_async_producer_that_nobody_has_closed_says_so_when_it_is_forgotten(caplog):
    producer = AsyncProducer(bootstrap_servers="b:1")
    intake = producer._core.intake
    intake.append_one(A, None, b"value", None, 0)
    del producer
    gc.collect()
    assert "the first for orders-0" in caplog.text
    intake.unsettled.clear()

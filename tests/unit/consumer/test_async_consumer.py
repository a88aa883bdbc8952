"""`AsyncConsumer`: how its calls wait in the event loop, and what a cancellation, a close and another loop do to them."""

import asyncio
import functools
import inspect
import threading
from concurrent.futures import Future
from types import SimpleNamespace

import pyarrow as pa
import pytest
from fakes.loop import in_loop, turns, turns_until
from fakes.planned import planned
from fakes.reading import assign_while_taking

from kafka_actors import AsyncConsumer, Consumer
from kafka_actors.cluster.snapshot import BrokerMetadata, ClusterSnapshot, PartitionMetadata, TopicMetadata
from kafka_actors.consumer.delivery import Delivery
from kafka_actors.consumer.telemetry import ConsumerTelemetry
from kafka_actors.consumer.waiting import Block, Call, CallLimit, Done, Notify
from kafka_actors.errors import KafkaTimeoutError, UsageError
from kafka_actors.fetch import FetchedPartition, Fetcher, FetchReply, PartitionStart
from kafka_actors.records import SCHEMA, encode
from kafka_actors.types import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
ROWS = 5


class Thread:
    """In place of the IO thread: work runs in the test's own loop, and its result comes in a future of threads."""

    inside = False

    def __init__(self):
        self.tasks = set()

    def submit(self, work):
        future = Future()

        async def run():
            try:
                future.set_result(await work)
            except BaseException as error:
                if not future.cancelled():
                    future.set_exception(error)

        task = asyncio.ensure_future(run())
        self.tasks.add(task)
        future.add_done_callback(lambda done: task.cancel() if done.cancelled() else None)
        return future

    def post(self, call):
        call()

    def stop(self, seconds):
        return True


def open_consumer(records=2 * ROWS):
    """One in the running loop, with records of one partition in batches of five, and no connection."""
    made = AsyncConsumer(batch_rows=ROWS)
    session = made._session
    fetcher = Fetcher(session.config, sources=lambda _: None, lookups=None, events=lambda _: None)
    of_topic = {p: PartitionMetadata(p, 1, 4) for p in range(2)}
    fetcher.update_metadata(
        ClusterSnapshot(
            brokers={1: BrokerMetadata(1, "h", 1)},
            topics={"t": TopicMetadata("t", None, partitions=of_topic)},
        )
    )
    fetcher.assign({T0: PartitionStart((0, 1), 0)})
    session.subscription.assign_from_user([T0])
    observer = ConsumerTelemetry(None, "test", 0)
    session._reader = Delivery(fetcher, observer)
    session._io = Thread()
    session.ready = True
    session._core = SimpleNamespace(
        fetcher=fetcher,
        observer=observer,
        error=None,
        commit_due=False,
        progress=lambda: None,
        auto_commits=False,
        close=nothing,
        rebalances=SimpleNamespace(next=lambda: None, pending=False, lost=frozenset()),
    )
    made._wake.loop = asyncio.get_running_loop()
    if records:
        arrive(fetcher, records)
    return made


def arrive(fetcher, records):
    """So many records of the partition, from offset 0 on."""
    rows = [{"value": b"v", "offset": o, "timestamp": 0, "timestampType": 0} for o in range(records)]
    data = bytes(encode(pa.RecordBatch.from_pylist(rows, schema=SCHEMA)))
    issue = planned(fetcher._machine, 0.0).pulls[0]
    part = FetchedPartition("t", 0, (0, 1), 0, records, size=len(data))
    fetcher._machine.on_reply(issue, FetchReply(1, issue.pull.sequence, [part], size=len(data)), [data], 0.0)


async def nothing(*_):
    """What a test doesn't need."""


async def never(*_):
    await asyncio.Event().wait()


def opened(test):
    """Decorator: a plain test of an open consumer in a loop of its own, which is closed behind it."""

    @in_loop
    @functools.wraps(test)
    async def run(*args, **kwargs):
        consumer = open_consumer()
        try:
            await test(consumer, *args, **kwargs)
        finally:
            await consumer.close()

    del run.__wrapped__  # its fixtures are those of the test, without the consumer
    run.__signature__ = inspect.Signature(list(inspect.signature(test).parameters.values())[1:])
    return run


def offsets(batch):
    return None if batch is None else batch["offset"].to_pylist()


def test_its_calls_are_those_of_the_blocking_consumer_with_the_same_parameters():
    blocking = {n: c for n, c in inspect.getmembers(Consumer, inspect.isfunction) if not n.startswith("_")}
    assert len(blocking) > 20
    for name, call in blocking.items():
        ours, theirs = inspect.signature(getattr(AsyncConsumer, name)), inspect.signature(call)
        assert [str(p) for p in ours.parameters.values()] == [str(p) for p in theirs.parameters.values()], (
            name
        )


# ------------------------------------------------------------ polls


@opened
async def test_the_listener_hears_of_an_assignment_before_its_first_record_is_handed_out(consumer):
    heard = assign_while_taking(consumer._session, "next_batch", T0)
    assert offsets(await consumer.poll_batch(timeout_ms=0)) == list(range(ROWS))
    assert heard.calls == [("assigned", [0])]
    consumer = open_consumer()
    heard = assign_while_taking(consumer._session, "next_cursor", T0)
    assert (await anext(aiter(consumer))).offset == 0
    assert heard.calls == [("assigned", [0])]
    await consumer.close()


@opened
async def test_batches_come_in_order_and_then_a_poll_without_time_returns_none(consumer):
    found = [offsets(await consumer.poll_batch(timeout_ms=0)) for _ in range(3)]
    assert found == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], None]


@in_loop
async def test_a_poll_waits_until_another_thread_has_brought_records():
    consumer = open_consumer(records=0)
    poll = asyncio.create_task(consumer.poll_batch(timeout_ms=None))
    await turns(10)
    assert not poll.done()
    arrive(consumer._session.fetcher, ROWS)
    thread = threading.Thread(target=consumer._wake)
    thread.start()
    assert offsets(await poll) == [0, 1, 2, 3, 4]
    thread.join()
    await consumer.close()


@in_loop
async def test_a_second_task_that_reads_is_refused_and_leaves_the_records_of_the_first():
    """Each would take the wake-ups of the other, and count its batch as done."""
    consumer = open_consumer(records=0)
    poll = asyncio.create_task(consumer.poll_batch(timeout_ms=None))
    await turns(10)
    for read in (consumer.poll_batch(timeout_ms=0), anext(aiter(consumer))):
        with pytest.raises(UsageError, match=r"^another task is reading from this AsyncConsumer"):
            await read
    arrive(consumer._session.fetcher, 2 * ROWS)
    consumer._wake()
    assert offsets(await poll) == [0, 1, 2, 3, 4]
    poll = asyncio.create_task(consumer.poll_batch(timeout_ms=0))
    assert offsets(await poll) == [5, 6, 7, 8, 9]
    poll = asyncio.create_task(consumer.poll_batch(timeout_ms=None))
    await turns(10)
    poll.cancel()
    await asyncio.wait({poll})
    assert await consumer.poll_batch(timeout_ms=0) is None
    await consumer.close()


@opened
async def test_a_poll_whose_time_ends_while_it_connects_returns_none_and_the_next_one_goes_on(consumer):
    session, delays = consumer._session, []
    session.ready = False
    session._bootstrap = SimpleNamespace(done=Future(), log_delay=lambda: delays.append("logged"))
    assert await consumer.poll_batch(timeout_ms=0) is None
    assert delays == ["logged"]
    session._bootstrap.done.set_result(None)
    assert offsets(await consumer.poll_batch(timeout_ms=0)) == [0, 1, 2, 3, 4]


@opened
async def test_records_are_decoded_in_a_thread_of_their_own(consumer):
    threads = []
    take = consumer._session.reader.next_batch
    consumer._session.reader.next_batch = lambda: threads.append(threading.current_thread().name) or take()
    await consumer.poll_batch(timeout_ms=0)
    assert threads[0].startswith("kafka-decode")


@pytest.mark.parametrize("again", [False, True], ids=["once", "twice"])
@opened
async def test_what_was_taken_for_a_poll_that_was_cancelled_comes_with_the_next_one(consumer, again):
    taking, may_go_on = threading.Event(), threading.Event()
    take = consumer._session.reader.next_batch

    def slowly():
        taking.set()
        assert may_go_on.wait(10)
        return take()

    consumer._session.reader.next_batch = slowly
    poll = asyncio.create_task(consumer.poll_batch(timeout_ms=None))
    await turns_until_set(taking)
    for _ in range(1 + again):
        poll.cancel()
        await turns(3)
    assert not poll.done(), "the thread still has the records"
    may_go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await poll
    consumer._session.reader.next_batch = take
    assert offsets(await consumer.poll_batch(timeout_ms=0)) == [0, 1, 2, 3, 4]


async def turns_until_set(event):
    """Waits for an event of another thread, without holding the loop up."""
    await asyncio.get_running_loop().run_in_executor(None, event.wait, 10)


@opened
async def test_messages_come_one_by_one_and_a_batch_in_between_takes_the_rest(consumer):
    messages = aiter(consumer)
    assert [(await anext(messages)).offset for _ in range(2)] == [0, 1]
    assert offsets(await consumer.poll_batch(timeout_ms=0)) == [2, 3, 4]
    assert (await anext(messages)).offset == 5
    await messages.aclose()


@opened
async def test_a_poll_that_waits_while_another_task_closes_the_consumer_says_so(consumer):
    for _ in range(2):
        await consumer.poll_batch(timeout_ms=0)
    poll = asyncio.create_task(consumer.poll_batch(timeout_ms=None))
    await turns(10)
    await consumer.close()
    with pytest.raises(UsageError, match="this consumer is closed"):
        await poll
    await consumer.close()


@opened
async def test_where_the_system_gives_no_thread_no_record_is_lost(consumer, monkeypatch):
    def no_more(_):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as system:
        system.setattr(threading.Thread, "start", no_more)
        assert offsets(await consumer.poll_batch(timeout_ms=0)) == [0, 1, 2, 3, 4]
    assert offsets(await consumer.poll_batch(timeout_ms=0)) == [5, 6, 7, 8, 9]


def test_it_can_not_be_used_in_another_loop_than_before():
    consumer = None

    async def first():
        nonlocal consumer
        consumer = open_consumer()

    async def second():
        for call in (consumer.poll_batch(), consumer.pause(T0)):
            with pytest.raises(UsageError, match="this AsyncConsumer belongs to the event loop that it was"):
                await call
        consumer._session.closed = True

    asyncio.run(first())
    asyncio.run(second())


def test_it_is_no_iterator_and_says_what_to_write():
    with pytest.raises(TypeError, match="AsyncConsumer is no iterator: messages = aiter"):
        anext(AsyncConsumer(group_id="g"))


# ------------------------------------------------------------ calls that wait for the IO thread


@opened
async def test_a_call_that_takes_too_long_is_a_timeout_and_its_work_is_cancelled(consumer):
    cancelled = asyncio.Event()

    async def work():
        try:
            await never()
        finally:
            cancelled.set()

    with pytest.raises(KafkaTimeoutError, match="no answer within 0 s"):
        await consumer._call(work(), CallLimit(0))
    await turns_until(cancelled.is_set)


@opened
async def test_a_timeout_that_the_work_itself_raises_is_passed_on(consumer):
    async def work():
        raise TimeoutError("of a socket")

    with pytest.raises(TimeoutError, match="of a socket"):
        await consumer._call(work(), CallLimit(10_000))


@opened
async def test_a_call_that_is_given_up_because_another_task_closes_the_consumer_says_so(consumer):
    def closing(work):
        work.close()
        consumer._session.closed = True
        future = Future()
        future.cancel()
        return future

    consumer._session.io.submit = closing
    with pytest.raises(UsageError, match="this consumer is closed"):
        await consumer._call(nothing(), CallLimit(10_000))


@opened
async def test_a_task_that_is_cancelled_in_a_call_is_cancelled(consumer):
    call = asyncio.create_task(consumer._call(never(), CallLimit(10_000)))
    await turns(3)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert not consumer._session.closed


@opened
async def test_each_step_of_a_call_is_waited_for_and_its_result_or_error_goes_back(consumer):
    seen = []

    async def answer():
        return 7

    async def refuse():
        raise OSError("no")

    async def listener():
        seen.append("listener")

    def steps():
        seen.append((yield Call(answer(), CallLimit(10_000))))
        try:
            yield Call(refuse(), CallLimit(10_000))
        except OSError as error:
            seen.append(str(error))
        over, pending = Future(), Future()
        over.set_exception(OSError("not retrieved"))
        seen.append((yield Done(over, None)))
        seen.append((yield Done(pending, 0)))
        yield Notify(listener)
        yield Notify(lambda: seen.append("plain"))
        seen.append((yield Block(threading.get_ident)) != threading.get_ident())
        return "result"

    assert await consumer._drive(steps()) == "result"
    assert seen == [7, "no", True, False, "listener", "plain", True]


@opened
async def test_a_call_that_ends_early_leaves_its_generator_no_step_behind(consumer):
    ended = []

    def steps():
        try:
            yield Call(never(), CallLimit(10_000))
        finally:
            ended.append("ended")

    call = asyncio.create_task(consumer._drive(steps()))
    await turns(3)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert ended == ["ended"]


@opened
async def test_pauses_hold_records_back_and_are_shown(consumer):
    assert consumer.paused() == set()
    await consumer.pause(T0)
    assert consumer.paused() == {T0}
    assert await consumer.poll_batch(timeout_ms=0) is None
    await consumer.resume()
    assert offsets(await consumer.poll_batch(timeout_ms=0)) == [0, 1, 2, 3, 4]
    with pytest.raises(UsageError, match="t-1 is not assigned"):
        await consumer.pause(T1)


@opened
async def test_its_decoder_ends_with_it_also_where_closing_fails(consumer):
    async def fail(*_):
        raise OSError("reset by peer")

    consumer._session.core.close = fail
    with pytest.raises(OSError, match="reset by peer"):
        await consumer.close()
    with pytest.raises(RuntimeError, match="after shutdown"):
        consumer._decoder.submit(print)

"""Schemas are asked for once: in a process by all copies of a registry; in a job by its metadata actor for all workers, and by a worker only
where there is no such actor."""

import asyncio
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from fakes.loop import turns
from waiting import slow_s

from kafka_actors.errors import DisconnectedError
from kafka_actors.registry import lookups
from kafka_actors.registry.lookups import SchemaCache, SchemaLookups, ask_by
from kafka_actors.schemas.errors import SchemaNotFoundError, SchemaRegistryUnavailableError
from kafka_actors.schemas.registry import Schema, SchemaRequest

FIRST, SECOND = (Schema(number, "AVRO", '"int"') for number in (1, 2))


def never():
    raise AssertionError("it is known")


def test_copies_in_a_process_know_what_one_of_them_has_asked_for():
    plan = pickle.dumps(SchemaCache())
    task, next_task = pickle.loads(plan), pickle.loads(plan)
    assert task.once(1, lambda: FIRST) == FIRST
    assert next_task.once(1, never) == FIRST
    assert pickle.loads(plan).once(1, never) == FIRST


def test_a_copy_brings_along_what_is_known():
    made = SchemaCache()
    made.known({1: FIRST, ("orders-value", 2): SECOND})
    copy = pickle.loads(pickle.dumps(made))
    assert copy.once(1, never) == FIRST
    assert copy.once(("orders-value", 2), never) == SECOND


def test_other_registries_share_nothing():
    one, other = (pickle.loads(pickle.dumps(SchemaCache())) for _ in range(2))
    one.known({1: FIRST})
    assert other.once(1, lambda: SECOND) == SECOND


def test_what_could_not_be_asked_for_is_asked_for_again():
    made = SchemaCache()
    with pytest.raises(AssertionError):
        made.once(1, never)
    assert made.once(1, lambda: FIRST) == FIRST


def test_what_is_not_there_is_asked_for_again_after_some_seconds_and_not_with_each_batch():
    now, asked = [0.0], []
    made = SchemaCache(lambda: now[0])

    def ask():
        asked.append(now[0])
        if now[0] < 7:
            raise SchemaNotFoundError("schema id 9: http://r doesn't have it")
        return FIRST

    for now[0] in (0.0, 1.0, lookups.MISSING_S - 0.1, lookups.MISSING_S, 9.0):
        with pytest.raises(SchemaNotFoundError, match="schema id 9"):
            made.once(9, ask)
    assert asked == [0.0, lookups.MISSING_S]
    made.known({9: SECOND})
    assert made.once(9, never) == SECOND, "as when it was registered here"
    assert pickle.loads(pickle.dumps(made)).once(8, lambda: FIRST) == FIRST


def test_few_of_many_broken_ids_are_kept_in_mind(monkeypatch):
    monkeypatch.setattr(lookups, "MOST_MISSING", 3)
    made, asked = SchemaCache(lambda: 0.0), []

    def ask(number):
        asked.append(number)
        raise SchemaNotFoundError(f"schema id {number}")

    for number in (1, 2, 3, 1, 4, 1):
        with pytest.raises(SchemaNotFoundError, match=f"schema id {number}"):
            made.once(number, lambda number=number: ask(number))
    assert asked == [1, 2, 3, 4, 1]
    assert made._asking == {}


def test_nothing_is_kept_of_an_id_that_could_not_be_asked_for():
    """Any value that begins with a zero byte names an id, so in a topic without frames they are many."""
    made = SchemaCache()

    def ask():
        raise SchemaRegistryUnavailableError("no answer")

    for number in range(3):
        with pytest.raises(SchemaRegistryUnavailableError):
            made.once(number, ask)
    assert made._asking == {}


def test_a_process_keeps_some_caches_and_no_more():
    plans = [pickle.dumps(SchemaCache()) for _ in range(lookups.MOST_CACHES + 1)]
    for plan in plans:
        pickle.loads(plan).known({1: FIRST})
    assert pickle.loads(plans[-1]).once(1, never) == FIRST
    assert pickle.loads(plans[0]).once(1, lambda: SECOND) == SECOND


class SlowRegistry:
    """Answers when `open` is set: with a schema, or with the next of `errors`."""

    def __init__(self):
        self.asked, self.errors, self.open = [], [], threading.Event()
        self.first = None

    def schema_by_id(self, schema_id):
        self.asked.append(schema_id)
        assert self.open.wait(30)
        if self.errors:
            raise self.errors.pop(0)
        return FIRST

    def schema_by_guid(self, guid):
        return self.schema_by_id(guid)

    def schema_of(self, subject, version="latest"):
        return self.schema_by_id((subject, version))

    def ask_first(self, other):
        self.first = other


@pytest.mark.parametrize("address", [1, "a-guid", ("orders-value", 2)])
def test_many_who_ask_the_same_are_answered_by_one_request(address):
    async def ask():
        registry = SlowRegistry()
        asks = SchemaLookups([SlowRegistry(), registry])
        asking = [asyncio.ensure_future(asks.find(SchemaRequest(1, address))) for _ in range(500)]
        await asyncio.sleep(0)
        registry.open.set()
        return set(await asyncio.gather(*asking)), registry.asked

    assert asyncio.run(ask()) == ({FIRST}, [address])


def test_all_who_wait_get_the_error_and_whoever_asks_later_asks_anew():
    async def ask():
        registry = SlowRegistry()
        registry.errors = [SchemaRegistryUnavailableError("down")]
        registry.open.set()
        asks = SchemaLookups([registry])
        found = await asyncio.gather(
            *(asks.find(SchemaRequest(0, 1)) for _ in range(3)), return_exceptions=True
        )
        assert [str(error) for error in found] == ["down"] * 3
        assert await asks.find(SchemaRequest(0, 1)) == FIRST
        return registry.asked

    assert asyncio.run(ask()) == [1, 1]


def test_one_who_no_longer_waits_takes_nobodys_answer():
    async def ask():
        registry = SlowRegistry()
        asks = SchemaLookups([registry])
        gone, waits = (asyncio.ensure_future(asks.find(SchemaRequest(0, 1))) for _ in range(2))
        await asyncio.sleep(0)
        gone.cancel()
        registry.open.set()
        return await waits

    assert asyncio.run(ask()) == FIRST


def test_a_registry_that_hangs_takes_no_threads_of_others():
    """Names of brokers are looked up in the threads of the loop."""

    async def ask():
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2))
        registry = SlowRegistry()
        asks = SchemaLookups([registry])
        asking = [asyncio.ensure_future(asks.find(SchemaRequest(0, number))) for number in range(20)]
        await turns(3)
        async with asyncio.timeout(slow_s(3)):
            found = await asyncio.to_thread(lambda: "an address")
        registry.open.set()
        return found, await asyncio.gather(*asking)

    assert asyncio.run(ask()) == ("an address", [FIRST] * 20)


def test_without_a_thread_the_worker_is_to_ask_by_itself(monkeypatch):
    def no_thread(thread):
        raise RuntimeError("can't start new thread")

    async def ask():
        monkeypatch.setattr(threading.Thread, "start", no_thread)
        await SchemaLookups([SlowRegistry()]).find(SchemaRequest(0, 1))

    with pytest.raises(DisconnectedError, match="no thread to ask the registry: can't start new thread"):
        asyncio.run(ask())


class Link:
    """The metadata actor, which answers with an outcome."""

    def __init__(self, outcome):
        self.outcome, self.requests = outcome, []

    async def schema(self, request):
        self.requests.append(request)
        if self.outcome is None:
            await asyncio.Event().wait()
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


def answer_of(outcome, timeout_s=30.0):
    """Answers that a worker's registry gets from the metadata actor, asked in another thread."""

    async def ask():
        link, registries = Link(outcome), [SlowRegistry(), SlowRegistry()]
        ask_by(link, registries, timeout_s)
        try:
            return await asyncio.to_thread(registries[1].first, ("orders-value", 3))
        finally:
            assert link.requests == [SchemaRequest(1, ("orders-value", 3))]

    return asyncio.run(ask())


def test_a_worker_gets_the_metadata_actors_answer():
    assert answer_of(FIRST) == FIRST


def test_a_refusal_of_the_registry_is_the_workers_too():
    with pytest.raises(SchemaNotFoundError, match="not there"):
        answer_of(SchemaNotFoundError("not there"))


@pytest.mark.parametrize(("outcome", "timeout_s"), [(DisconnectedError("it is dead"), 30.0), (None, 0.5)])
def test_a_worker_asks_by_itself_where_the_actor_is_dead_or_silent(outcome, timeout_s):
    assert answer_of(outcome, timeout_s) is None

"""The door of a connection actor: little answers by a Unix socket, in the order of their pulls."""

import asyncio
import gc
import os

import pytest

from kafka_actors.actors.broker_link import LITTLE_BYTES, MUCH_BYTES, BrokerLink
from kafka_actors.actors.door import Door, DoorKeeper
from kafka_actors.actors.messages import pack, unpack
from kafka_actors.errors import DisconnectedError
from kafka_actors.fetch.messages import Fetched, FetchReply, Pull


def answer(sequence: int, *records: bytes, size: int | None = None):
    """One response with a partition for each of `records`."""
    fetched = [Fetched("t", n, (0, 1), 0, 1, size=len(data)) for n, data in enumerate(records)]
    told = sum(map(len, records)) if size is None else size
    return FetchReply(broker=1, sequence=sequence, partitions=fetched, size=told), [*records]


class Pulls:
    """Carries pulls out as told: futures that the test resolves."""

    def __init__(self):
        self.asked = []
        self.answers = []

    def pull(self, pull):
        self.asked.append(pull)
        self.answers.append(asyncio.get_running_loop().create_future())
        return self.answers[-1]


async def until(condition):
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - polls what has no event
            await asyncio.sleep(0.001)


def plain(answers):
    return [(reply, [bytes(data) for data in records]) for reply, records in answers]


def complained():
    """What the loop complains of from now on."""
    complaints = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    return complaints


async def a_door(worker="w-1"):
    pulls, workers = Pulls(), []
    keeper = DoorKeeper(lambda name: workers.append(name) or pulls)
    door = await Door.open(await keeper.name(), worker)
    return keeper, door, pulls, workers


def test_answers_come_with_their_bytes_in_the_order_of_the_pulls():
    async def body():
        _, door, pulls, workers = await a_door()
        first, second = door.pull(Pull(1, max_bytes=10)), door.pull(Pull(2))
        await until(lambda: len(pulls.asked) == 2)
        assert workers == ["w-1"]
        assert pulls.asked == [Pull(1, max_bytes=10), Pull(2)]
        big = os.urandom(3_000_000)
        pulls.answers[0].set_result([answer(1, b"abc", b"", big), answer(1, b"x")])
        pulls.answers[1].set_result([answer(2)])
        assert plain(await first) == [answer(1, b"abc", b"", big), answer(1, b"x")]
        assert plain(await second) == [answer(2)]

    asyncio.run(body())


def test_a_pull_that_fails_closes_the_door_and_says_why():
    async def body():
        _, door, pulls, _ = await a_door()
        first, second = door.pull(Pull(1)), door.pull(Pull(2))
        await until(lambda: len(pulls.asked) == 2)
        pulls.answers[0].set_exception(DisconnectedError("broker 1 at h:1: reset"))
        for failed in (first, second):
            with pytest.raises(DisconnectedError, match="broker 1 at h:1: reset"):
                await failed
        assert door.closed
        with pytest.raises(DisconnectedError):
            await door.pull(Pull(3))

    asyncio.run(body())


def test_when_the_connection_actor_is_gone_all_pulls_fail():
    async def body():
        loop = asyncio.get_running_loop()
        pulls, writers = Pulls(), []
        keeper = DoorKeeper(lambda name: pulls)
        serve = keeper._serve

        async def noted(reader, writer):
            writers.append(writer)
            await serve(reader, writer)

        keeper._serve = noted
        door = await Door.open(await keeper.name(), "w")
        waiting = door.pull(Pull(1))
        await until(lambda: pulls.asked)
        writers[0].transport.abort()
        began = loop.time()
        with pytest.raises(DisconnectedError, match="gone"):
            await waiting
        assert loop.time() - began < 5

    asyncio.run(body())


def test_an_actor_that_gives_up_its_tasks_has_nothing_to_complain_of():
    """As `ActorShell.quit` does: what is logged then would be the last that a user reads."""

    async def body():
        complaints = complained()
        _, door, pulls, _ = await a_door()
        waiting = door.pull(Pull(1))
        await until(lambda: pulls.asked)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        with pytest.raises(DisconnectedError):
            await waiting
        await asyncio.sleep(0.01)
        assert complaints == []

    asyncio.run(body())


def test_a_pull_that_fails_when_its_worker_is_gone_is_nobodys_complaint():
    async def body():
        complaints = complained()
        _, door, pulls, _ = await a_door()
        waiting = door.pull(Pull(1))
        await until(lambda: pulls.asked)
        door._writer.close()
        with pytest.raises(DisconnectedError):
            await waiting
        await asyncio.sleep(0.05)
        pulls.answers.pop().set_exception(DisconnectedError("closed by this side"))
        await asyncio.sleep(0.01)
        gc.collect()
        assert complaints == []

    asyncio.run(body())


def test_a_process_of_another_user_is_not_let_in(monkeypatch):
    async def body():
        keeper, *_ = await a_door()
        monkeypatch.setattr("kafka_actors.actors.door.os.getuid", lambda: os.geteuid() + 1)
        door = await Door.open(await keeper.name(), "w")
        with pytest.raises(DisconnectedError):
            await door.pull(Pull(1))

    asyncio.run(body())


class Method:
    def __init__(self, run):
        self.remote = run


class Actor:
    """A connection actor's handle. Pulls through Ray and by the door are noted, and answered as `sizes` say."""

    def __init__(self, sizes, name=True):
        self.sizes = list(sizes)
        self.way = []
        self.held = None
        self._keeper = DoorKeeper(lambda worker: ByDoor(self))
        self._name = name
        self.pull = Method(self._by_ray)
        self.door = Method(self._door)

    async def _door(self):
        self.way.append("door")
        return await self._keeper.name() if self._name else None

    async def _by_ray(self, worker, told):
        pull = unpack(told, Pull)
        self.way.append(("ray", pull.sequence, pull.pace_ms))
        if self.held is not None:
            await self.held.wait()
        reply, records = answer(pull.sequence, size=self.sizes.pop(0))
        return [(pack(reply), records)]


class ByDoor:
    """The same, where the door finds it."""

    def __init__(self, actor):
        self._actor = actor

    def pull(self, pull):
        actor = self._actor
        actor.way.append(("by door", pull.sequence, pull.pace_ms))
        future = asyncio.get_running_loop().create_future()
        future.set_result([answer(pull.sequence, size=actor.sizes.pop(0))])
        return future


def linked(sizes, name=True):
    actor = Actor(sizes, name)
    return actor, BrokerLink("w-1", actor)


def test_what_is_little_goes_by_the_door_and_what_is_much_through_ray():
    async def body():
        little, much = LITTLE_BYTES - 1, MUCH_BYTES
        actor, link = linked([little, little, much - 1, much, much, little])
        for sequence in range(6):
            await link.pull(Pull(sequence, fetches=4))
        assert actor.way == [
            ("ray", 0, 10),
            "door",
            ("by door", 1, 1),
            ("by door", 2, 1),
            ("by door", 3, 1),
            ("ray", 4, 10),
            ("ray", 5, 10),
        ]
        # A stream begins anew through Ray, which brings the errors of a login as they were raised.
        actor.sizes = [little]
        await link.pull(Pull(0))
        assert actor.way[-1] == ("ray", 0, 10)

    asyncio.run(body())


def test_what_is_under_way_one_way_is_answered_before_one_goes_the_other():
    async def body():
        actor, link = linked([0, 0, 0, 0])
        await link.pull(Pull(0))
        link._little = False
        actor.held = asyncio.Event()
        first = asyncio.ensure_future(link.pull(Pull(1)))
        await until(lambda: ("ray", 1, 10) in actor.way)
        link._little = True
        second, third = (asyncio.ensure_future(link.pull(Pull(n))) for n in (2, 3))
        await asyncio.sleep(0.05)
        assert actor.way[-1] == "door"
        actor.held.set()
        await asyncio.gather(first, second, third)
        assert actor.way[-2:] == [("by door", 2, 1), ("by door", 3, 1)]

    asyncio.run(body())


def test_where_there_is_no_door_all_goes_through_ray():
    async def body():
        actor, link = linked([0, 0, 0], name=False)
        for sequence in range(3):
            await link.pull(Pull(sequence))
        assert actor.way == [("ray", 0, 10), "door", ("ray", 1, 10), ("ray", 2, 10)]

    asyncio.run(body())


def test_a_link_answers_each_pull_once_with_what_came_or_why_nothing_did():
    async def body():
        actor, link = linked([0, 0])
        outcomes = []
        link.fetch(Pull(0), outcomes.append)
        await until(lambda: len(outcomes) == 1)
        assert [reply.sequence for reply, _ in outcomes[0]] == [0]
        actor.sizes = []  # the actor fails at the next one
        link._has_door = False
        link.fetch(Pull(1), outcomes.append)
        await until(lambda: len(outcomes) == 2)
        assert isinstance(outcomes[1], Exception)

    asyncio.run(body())

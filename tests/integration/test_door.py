"""The door of a connection actor: record bytes by a Unix socket and by shared memory, in the order of their pulls."""

import asyncio
import contextlib
import errno
import gc
import os
import queue
import secrets
import socket
import struct
import subprocess
import sys
import threading
import weakref
from types import SimpleNamespace

import pytest
from waiting import slow_s, until

from kafka_actors.errors import AuthenticationError, DisconnectedError
from kafka_actors.fetch.messages import FetchedPartition, FetchReply, Pull
from kafka_actors.job.messages import CallInHand, CrashReport, pack, unpack
from kafka_actors.job.transport import shm_server as doorkeeper
from kafka_actors.job.transport.shm_client import SharedMemoryClient, receive
from kafka_actors.job.transport.shm_server import SharedMemoryServer
from kafka_actors.net.receive_ring import SMALL, ReceiveRing
from kafka_actors.ray.broker_link import BrokerLink
from kafka_actors.types import TopicPartition

SOON_S = slow_s(10)


def reply_of(sequence, records):
    fetched = [FetchedPartition("t", n, (0, 1), 0, 1, size=len(data)) for n, data in enumerate(records)]
    return FetchReply(broker=1, sequence=sequence, partitions=fetched, size=sum(map(len, records)))


def plain(outcome):
    reply, records = outcome
    return reply, [bytes(data) for data in records]


class Pulls:
    """Carries pulls out as told, in the memory that the door gives."""

    def __init__(self, memory):
        self._ring = ReceiveRing(memory.allocate)
        self.asked = queue.Queue()
        self.shut_down = threading.Event()

    def fetch(self, pull, answered):
        self.asked.put((pull, answered))

    def shut(self):
        self.shut_down.set()

    def next(self):
        return self.asked.get(timeout=SOON_S)

    def answer(self, *records):
        """Answers the next pull with one partition for each of `records`, as `BrokerFetcher` does: with slices of what was
        received. Returns the pull, and where in memory they lie."""
        pull, answered = self.next()
        whole = self._ring.lend(sum(map(len, records)), 0.0)
        parts, at = [], 0
        for data in records:
            whole[at : at + len(data)] = data
            parts.append(whole[at : at + len(data)])
            at += len(data)
        answered((reply_of(pull.sequence, records), parts))
        return pull


class Doorway:
    """A keeper in a loop of its own thread, as in a connection actor, and a worker's door to it."""

    def __init__(self, loop):
        self._loop = loop
        self.made = queue.Queue()
        self.keeper = SharedMemoryServer(self._fetcher)
        self.door = self.open()
        self.pulls = self.made.get(timeout=SOON_S)
        self.outcomes = queue.Queue()

    def _fetcher(self, memory):
        pulls = Pulls(memory)
        self.made.put(pulls)
        return pulls

    def open(self, worker="w-1"):
        name = asyncio.run_coroutine_threadsafe(self.keeper.name(), self._loop).result(SOON_S)
        return SharedMemoryClient.open(name, worker)

    def fetch(self, *sequences):
        for sequence in sequences:
            self.door.fetch(Pull(sequence), self.outcomes.put)

    def next_outcome(self):
        return self.outcomes.get(timeout=SOON_S)

    @property
    def memory(self):
        """What the door's other side keeps of pieces."""
        return len(next(iter(self.keeper._visits))._memory._pieces)


@pytest.fixture
def loop():
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield loop

    async def end():
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    asyncio.run_coroutine_threadsafe(end(), loop).result(SOON_S)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.fixture
def doorway(loop):
    doorway = Doorway(loop)
    yield doorway
    doorway.door.close()
    assert doorway.pulls.shut_down.wait(SOON_S)


def test_answers_come_with_their_bytes_in_the_order_of_the_pulls(doorway):
    doorway.door.fetch(Pull(1, max_bytes=10), doorway.outcomes.put)
    doorway.fetch(2, 3)
    much = os.urandom(3 * SMALL)
    assert doorway.pulls.answer(b"abc", b"", much) == Pull(1, max_bytes=10)
    assert plain(doorway.next_outcome()) == (reply_of(1, [b"abc", b"", much]), [b"abc", b"", much])
    assert doorway.pulls.answer(b"x", b"yz") == Pull(2)
    doorway.pulls.answer()
    assert plain(doorway.next_outcome()) == (reply_of(2, [b"x", b"yz"]), [b"x", b"yz"])
    assert plain(doorway.next_outcome()) == (reply_of(3, []), [])


def test_much_lies_where_it_was_received_and_little_comes_by_itself(doorway):
    doorway.fetch(1, 2)
    doorway.pulls.answer(bytes(SMALL - 1))
    doorway.next_outcome()
    assert doorway.memory == 0
    doorway.pulls.answer(bytes(SMALL))
    doorway.next_outcome()
    assert doorway.memory == 1


def test_memory_is_received_into_again_once_it_was_read(doorway):
    """Otherwise each response would have a piece of its own."""
    seen = set()
    for sequence in range(20):
        doorway.fetch(sequence)
        doorway.pulls.answer(bytes([sequence]) * SMALL)
        _, records = doorway.next_outcome()
        seen.add(bytes(records[0]))
        del records
    assert seen == {bytes([n]) * SMALL for n in range(20)}
    assert doorway.memory <= 3


def test_what_is_still_read_is_not_received_into(doorway):
    held = []
    for sequence in range(6):
        doorway.fetch(sequence)
        doorway.pulls.answer(bytes([sequence]) * SMALL)
        held.append(doorway.next_outcome()[1][0])
        assert [bytes(data) for data in held] == [bytes([n]) * SMALL for n in range(sequence + 1)]


def test_as_many_partitions_as_there_may_be_come_at_once(doorway):
    records = [b"%d" % n for n in range(3000)]
    doorway.fetch(0)
    doorway.pulls.answer(*records)
    assert plain(doorway.next_outcome())[1] == records


def test_an_error_comes_as_it_was_raised_and_the_door_stays_open(doorway):
    doorway.fetch(1, 2, 3)
    _, answered = doorway.pulls.next()
    answered(AuthenticationError("SCRAM: the broker refused the password"))
    _, answered = doorway.pulls.next()
    answered(DisconnectedError("broker 1 at h:1: reset"))
    first, second = doorway.next_outcome(), doorway.next_outcome()
    assert (type(first), str(first)) == (AuthenticationError, "SCRAM: the broker refused the password")
    assert (type(second), str(second)) == (DisconnectedError, "broker 1 at h:1: reset")
    doorway.pulls.answer(b"a")
    assert plain(doorway.next_outcome())[1] == [b"a"]
    assert not doorway.door.closed


def test_when_the_connection_actor_is_gone_all_pulls_fail_and_what_came_stays_readable(doorway):
    doorway.fetch(1, 2, 3)
    doorway.pulls.answer(b"z" * SMALL)
    _, records = doorway.next_outcome()
    doorway.keeper.forget(["w-1"])
    for _ in range(2):
        failed = doorway.next_outcome()
        assert isinstance(failed, DisconnectedError)
        assert "gone" in str(failed)
    doorway.fetch(4)
    assert isinstance(doorway.next_outcome(), DisconnectedError)
    assert doorway.door.closed
    assert bytes(records[0]) == b"z" * SMALL


def test_of_a_worker_that_is_gone_no_memory_is_kept(doorway):
    """Though it never said that it has read what was in it."""
    doorway.fetch(1)
    doorway.pulls.answer(b"z" * SMALL)
    doorway.next_outcome()
    memory = weakref.ref(next(iter(doorway.keeper._visits))._memory)
    doorway.door.close()
    assert doorway.pulls.shut_down.wait(SOON_S)
    for thread in threading.enumerate():
        if thread.name == "doorkeeper":
            thread.join(SOON_S)
    doorway.keeper.forget(["w-1"])
    doorway.pulls = SimpleNamespace(shut_down=doorway.pulls.shut_down)
    gc.collect()
    assert memory() is None


def test_a_message_that_breaks_off_leaves_none_of_its_descriptors_open():
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with ours, open(os.devnull) as file:
        socket.send_fds(theirs, [struct.pack(">II", 100, 0) + b"cut off"], [file.fileno()])
        theirs.close()
        before = len(os.listdir("/proc/self/fd"))
        with pytest.raises(EOFError):
            receive(ours)
        assert len(os.listdir("/proc/self/fd")) == before


def test_only_those_who_are_gone_are_forgotten(doorway):
    doorway.keeper.forget(["w-2"])
    doorway.fetch(1)
    doorway.pulls.answer(b"a")
    assert plain(doorway.next_outcome())[1] == [b"a"]


def test_a_worker_that_goes_takes_its_pulls_with_it(doorway, caplog):
    doorway.fetch(1)
    _, answered = doorway.pulls.next()
    doorway.door.close()
    assert isinstance(doorway.next_outcome(), DisconnectedError)
    assert doorway.pulls.shut_down.wait(SOON_S)
    answered(DisconnectedError("closed by this side"))  # nobody's complaint
    assert caplog.records == []


def test_an_actor_that_gives_up_its_tasks_has_nothing_to_complain_of(loop):
    """As `ActorShell.quit` does: what is logged then would be the last that a user reads."""
    complaints = []
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    doorway = Doorway(loop)

    async def give_up():
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    asyncio.run_coroutine_threadsafe(give_up(), loop).result(SOON_S)
    asyncio.run_coroutine_threadsafe(asyncio.sleep(0.01), loop).result(SOON_S)
    doorway.door.close()
    gc.collect()
    assert complaints == []


def test_a_process_of_another_user_is_not_let_in(doorway, monkeypatch):
    monkeypatch.setattr(doorkeeper, "same_user", lambda sock: False)
    outcomes = queue.Queue()
    try:
        doorway.open("w-2").fetch(Pull(0), outcomes.put)
    except OSError:  # it was fast
        return
    assert isinstance(outcomes.get(timeout=SOON_S), DisconnectedError)


OTHERS_DOOR = """
import os, socket, sys
os.setuid(65534)
listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
listening.bind("\\0" + sys.argv[1])
listening.listen()
print("open", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_a_worker_doesnt_enter_where_a_process_of_another_user_listens():
    name = f"others-{secrets.token_hex(8)}"
    command = [sys.executable, "-c", OTHERS_DOOR, name]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "open\n"
        with pytest.raises(PermissionError, match="another user"):
            SharedMemoryClient.open(name, "w-1")
        other.communicate()


def test_a_worker_checks_whose_door_it_is_before_it_says_anything(doorway, monkeypatch):
    monkeypatch.setattr(doorkeeper, "same_user", lambda sock: True)
    monkeypatch.setattr("kafka_actors.job.transport.shm_client.os.getuid", lambda: os.geteuid() + 1)
    with pytest.raises(PermissionError, match="another user"):
        doorway.open("w-2")


def test_a_worker_that_could_not_be_let_in_keeps_no_other_out(doorway, monkeypatch, caplog):
    accept, refused = doorway._loop.sock_accept, []

    async def refuse_one(listening):
        sock, address = await accept(listening)
        if refused:
            return sock, address
        refused.append(sock)
        sock.close()
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(doorkeeper, "LET_IN_AGAIN_S", 0.0)
    # The first worker is let in before the keeper turns to the next one; behind this it has.
    asyncio.run_coroutine_threadsafe(asyncio.sleep(0), doorway._loop).result(SOON_S)
    monkeypatch.setattr(doorway._loop, "sock_accept", refuse_one)
    doorway.open("w-2").close()  # taken by the call that was under way
    doorway.made.get(timeout=SOON_S)
    with contextlib.suppress(OSError):  # it may notice at once
        doorway.open("w-3").close()
    outcomes = queue.Queue()
    door = doorway.open("w-4")
    door.fetch(Pull(0), outcomes.put)
    doorway.made.get(timeout=SOON_S).answer(b"a")
    assert outcomes.get(timeout=SOON_S)[0].sequence == 0
    assert refused
    assert "a worker could not be let in: [Errno" in caplog.text
    door.close()


class Method:
    def __init__(self, run):
        self.remote = run


class Actor:
    """A connection actor's handle, which notes the way that pulls come, and answers them."""

    def __init__(self, *, has_door=True):
        self.way = []
        self._has_door = has_door
        self._keeper = SharedMemoryServer(lambda memory: self)
        self.pull = Method(self._by_ray)
        self.door = Method(self._door)

    async def _door(self):
        self.way.append("door")
        await asyncio.sleep(0.05)
        return await self._keeper.name() if self._has_door else None

    async def _by_ray(self, worker, told):
        pull = unpack(told, Pull)
        self.way.append(("by ray", pull.sequence, pull.pace_ms))
        return pack(reply_of(pull.sequence, [b"a"])), [b"a"]

    def fetch(self, pull, answered):
        self.way.append(("by door", pull.sequence, pull.pace_ms))
        answered((reply_of(pull.sequence, [b"a"]), [b"a"]))

    def shut(self):
        pass


async def sequences(outcomes, count):
    """Of so many answers."""
    return [(await asyncio.to_thread(outcomes.get, timeout=SOON_S))[0].sequence for _ in range(count)]


def test_pulls_go_by_the_door_in_their_order_also_while_it_is_being_opened():
    async def body():
        actor, outcomes = Actor(), queue.Queue()
        link = BrokerLink("w-1", actor)
        for sequence in range(3):
            link.fetch(Pull(sequence), outcomes.put)
        assert await sequences(outcomes, 3) == [0, 1, 2]
        for sequence in (3, 4):
            link.fetch(Pull(sequence), outcomes.put)
        assert await sequences(outcomes, 2) == [3, 4]
        assert actor.way == ["door"] + [("by door", sequence, 0) for sequence in range(5)]

    asyncio.run(body())


def test_a_door_that_was_closed_is_opened_anew():
    async def body():
        actor, outcomes = Actor(), queue.Queue()
        link = BrokerLink("w-1", actor)
        link.fetch(Pull(0), outcomes.put)
        assert await sequences(outcomes, 1) == [0]
        actor._keeper.forget(["w-1"])
        async with asyncio.timeout(SOON_S):
            while not link._door.closed:  # noqa: ASYNC110 - a thread closes it
                await asyncio.sleep(0.001)
        link.fetch(Pull(0), outcomes.put)
        assert await sequences(outcomes, 1) == [0]
        assert actor.way.count("door") == 2

    asyncio.run(body())


def test_where_there_is_no_door_all_goes_through_ray():
    async def body():
        actor, outcomes = Actor(has_door=False), queue.Queue()
        link = BrokerLink("w-1", actor)
        for sequence in range(3):
            link.fetch(Pull(sequence), outcomes.put)
        assert await sequences(outcomes, 3) == [0, 1, 2]
        assert actor.way == ["door"] + [("by ray", sequence, 10) for sequence in range(3)]

    asyncio.run(body())


def test_a_door_that_could_not_be_opened_is_tried_again_later(monkeypatch):
    async def body():
        actor, outcomes, now, opened = Actor(), queue.Queue(), [100.0], SharedMemoryClient.open

        def fail(*how):
            raise OSError(errno.EMFILE, "Too many open files")

        monkeypatch.setattr(SharedMemoryClient, "open", fail)
        link = BrokerLink("w-1", actor, clock=lambda: now[0])
        for sequence, at in enumerate((100.0, 109.0, 110.0, 129.0)):
            now[0] = at
            link.fetch(Pull(sequence), outcomes.put)
            assert await sequences(outcomes, 1) == [sequence]
        monkeypatch.setattr(SharedMemoryClient, "open", opened)
        now[0] = 130.0
        link.fetch(Pull(4), outcomes.put)
        assert await sequences(outcomes, 1) == [4]
        ray = [("by ray", sequence, 10) for sequence in range(4)]
        assert actor.way == ["door", ray[0], ray[1], "door", ray[2], ray[3], "door", ("by door", 4, 0)]

    asyncio.run(body())


def test_a_pull_that_ray_fails_is_answered_with_the_reason():
    async def body():
        actor, outcomes = Actor(has_door=False), queue.Queue()

        async def fail(worker, told):
            raise DisconnectedError("pull: ActorDiedError")

        actor.pull = Method(fail)
        BrokerLink("w-1", actor).fetch(Pull(0), outcomes.put)
        failed = await asyncio.to_thread(outcomes.get, timeout=SOON_S)
        assert isinstance(failed, DisconnectedError)

    asyncio.run(body())


DYING = """
import ctypes, os, sys
from kafka_actors.job.worker.call_record import CallNote
from kafka_actors.job.transport.shm_client import Door
from kafka_actors.types import TopicPartition

def process(how):
    if how == "exits":
        os._exit(3)
    if how == "fails in a process that it forked":
        if not os.fork():
            os._exit(7)
        os.wait()
    if how == "reads where nothing is":
        ctypes.string_at(0)
    os.kill(os.getpid(), 9)

note = CallNote.of_this_process()
Door.open(sys.argv[1], "w-9", note.descriptor)
orders = TopicPartition("orders", 3)
for n in range(40):
    note.begins(TopicPartition("orders", n), 0, n)
    note.ends(TopicPartition("orders", n))
note.begins(orders, 40, 59)
print("begun", flush=True)
sys.stdin.readline()
process(sys.argv[2])
"""


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("exits", "exit code 3"),
        ("reads where nothing is", "SIGSEGV in string_at (__init__.py:"),
        ("is killed", ""),
        ("fails in a process that it forked", ""),
    ],
)
def test_what_a_worker_had_in_hand_and_how_it_ended_is_known_at_the_door(doorway, how, said):
    name = asyncio.run_coroutine_threadsafe(doorway.keeper.name(), doorway._loop).result(SOON_S)
    command = [sys.executable, "-c", DYING, name, how]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout.readline() == "begun\n"
        doorway.made.get(timeout=SOON_S)
        orders = CallInHand(TopicPartition("orders", 3), 40, 59)
        until(lambda: doorway.keeper.last_words("w-9"))
        assert doorway.keeper.last_words("w-9") == CrashReport([orders])
        worker.stdin.write("\n")
        worker.stdin.flush()
        worker.wait(SOON_S)
    words = doorway.keeper.last_words("w-9")
    assert words.calls == [orders]
    assert words.ended.startswith(said)
    assert bool(words.ended) == bool(said)
    doorway.keeper.forget(["w-9"])
    assert doorway.keeper.last_words("w-9") is None

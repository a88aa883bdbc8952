"""The shared-memory transport: record bytes over a Unix socket and in shared memory, in the order of their pulls."""

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
from kafka_actors.job.transport import shm_server
from kafka_actors.job.transport.shm_client import SharedMemoryClient, receive
from kafka_actors.job.transport.shm_server import SharedMemoryServer
from kafka_actors.net.receive_ring import SMALL, ReceiveRing
from kafka_actors.ray.links import BrokerLink
from kafka_actors.types import TopicPartition

SOON_S = slow_s(10)


def reply_of(sequence, records):
    fetched = [FetchedPartition("t", n, (0, 1), 0, 1, size=len(data)) for n, data in enumerate(records)]
    return FetchReply(broker=1, sequence=sequence, partitions=fetched, size=sum(map(len, records)))


def plain(outcome):
    reply, records = outcome
    return reply, [bytes(data) for data in records]


class Pulls:
    """A pull target that answers as a test says, in the memory that the server gives."""

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


class Transport:
    """A server in a loop of its own thread, as in a connection actor, and a worker's client of it."""

    def __init__(self, loop):
        self._loop = loop
        self.made = queue.Queue()
        self.server = SharedMemoryServer(self._fetcher)
        self.client = self.open()
        self.pulls = self.made.get(timeout=SOON_S)
        self.outcomes = queue.Queue()

    def _fetcher(self, memory):
        pulls = Pulls(memory)
        self.made.put(pulls)
        return pulls

    def open(self, worker="w-1"):
        name = asyncio.run_coroutine_threadsafe(self.server.name(), self._loop).result(SOON_S)
        return SharedMemoryClient.open(name, worker)

    def fetch(self, *sequences):
        for sequence in sequences:
            self.client.fetch(Pull(sequence), self.outcomes.put)

    def next_outcome(self):
        return self.outcomes.get(timeout=SOON_S)

    @property
    def memory(self):
        """How many pieces of memory the server keeps."""
        return len(next(iter(self.server._clients))._memory._pieces)


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
def transport(loop):
    transport = Transport(loop)
    yield transport
    transport.client.close()
    assert transport.pulls.shut_down.wait(SOON_S)


def test_answers_come_with_their_bytes_in_the_order_of_the_pulls(transport):
    transport.client.fetch(Pull(1, max_bytes=10), transport.outcomes.put)
    transport.fetch(2, 3)
    much = os.urandom(3 * SMALL)
    assert transport.pulls.answer(b"abc", b"", much) == Pull(1, max_bytes=10)
    assert plain(transport.next_outcome()) == (reply_of(1, [b"abc", b"", much]), [b"abc", b"", much])
    assert transport.pulls.answer(b"x", b"yz") == Pull(2)
    transport.pulls.answer()
    assert plain(transport.next_outcome()) == (reply_of(2, [b"x", b"yz"]), [b"x", b"yz"])
    assert plain(transport.next_outcome()) == (reply_of(3, []), [])


def test_much_lies_where_it_was_received_and_little_comes_by_itself(transport):
    transport.fetch(1, 2)
    transport.pulls.answer(bytes(SMALL - 1))
    transport.next_outcome()
    assert transport.memory == 0
    transport.pulls.answer(bytes(SMALL))
    transport.next_outcome()
    assert transport.memory == 1


def test_memory_is_received_into_again_once_it_was_read(transport):
    """Otherwise each response would have a piece of its own."""
    seen = set()
    for sequence in range(20):
        transport.fetch(sequence)
        transport.pulls.answer(bytes([sequence]) * SMALL)
        _, records = transport.next_outcome()
        seen.add(bytes(records[0]))
        del records
    assert seen == {bytes([n]) * SMALL for n in range(20)}
    assert transport.memory <= 3


def test_what_is_still_read_is_not_received_into(transport):
    held = []
    for sequence in range(6):
        transport.fetch(sequence)
        transport.pulls.answer(bytes([sequence]) * SMALL)
        held.append(transport.next_outcome()[1][0])
        assert [bytes(data) for data in held] == [bytes([n]) * SMALL for n in range(sequence + 1)]


def test_as_many_partitions_as_there_may_be_come_at_once(transport):
    records = [b"%d" % n for n in range(3000)]
    transport.fetch(0)
    transport.pulls.answer(*records)
    assert plain(transport.next_outcome())[1] == records


def test_an_error_comes_as_it_was_raised_and_the_connection_stays_open(transport):
    transport.fetch(1, 2, 3)
    _, answered = transport.pulls.next()
    answered(AuthenticationError("SCRAM: the broker refused the password"))
    _, answered = transport.pulls.next()
    answered(DisconnectedError("broker 1 at h:1: reset"))
    first, second = transport.next_outcome(), transport.next_outcome()
    assert (type(first), str(first)) == (AuthenticationError, "SCRAM: the broker refused the password")
    assert (type(second), str(second)) == (DisconnectedError, "broker 1 at h:1: reset")
    transport.pulls.answer(b"a")
    assert plain(transport.next_outcome())[1] == [b"a"]
    assert not transport.client.closed


def test_when_the_connection_actor_is_gone_all_pulls_fail_and_what_came_stays_readable(transport):
    transport.fetch(1, 2, 3)
    transport.pulls.answer(b"z" * SMALL)
    _, records = transport.next_outcome()
    transport.server.forget(["w-1"])
    for _ in range(2):
        failed = transport.next_outcome()
        assert isinstance(failed, DisconnectedError)
        assert "gone" in str(failed)
    transport.fetch(4)
    assert isinstance(transport.next_outcome(), DisconnectedError)
    assert transport.client.closed
    assert bytes(records[0]) == b"z" * SMALL


def test_of_a_worker_that_is_gone_no_memory_is_kept(transport):
    """Though it never said that it has read what was in it."""
    transport.fetch(1)
    transport.pulls.answer(b"z" * SMALL)
    transport.next_outcome()
    memory = weakref.ref(next(iter(transport.server._clients))._memory)
    transport.client.close()
    assert transport.pulls.shut_down.wait(SOON_S)
    for thread in threading.enumerate():
        if thread.name == "shm-server":
            thread.join(SOON_S)
    transport.server.forget(["w-1"])
    transport.pulls = SimpleNamespace(shut_down=transport.pulls.shut_down)
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


def test_only_those_who_are_gone_are_forgotten(transport):
    transport.server.forget(["w-2"])
    transport.fetch(1)
    transport.pulls.answer(b"a")
    assert plain(transport.next_outcome())[1] == [b"a"]


def test_a_worker_that_goes_takes_its_pulls_with_it(transport, caplog):
    transport.fetch(1)
    _, answered = transport.pulls.next()
    transport.client.close()
    assert isinstance(transport.next_outcome(), DisconnectedError)
    assert transport.pulls.shut_down.wait(SOON_S)
    answered(DisconnectedError("closed by this side"))  # nobody's complaint
    assert caplog.records == []


def test_an_actor_that_gives_up_its_tasks_has_nothing_to_complain_of(loop):
    """As `ActorShell.quit` does: what is logged then would be the last that a user reads."""
    complaints = []
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    transport = Transport(loop)

    async def give_up():
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    asyncio.run_coroutine_threadsafe(give_up(), loop).result(SOON_S)
    asyncio.run_coroutine_threadsafe(asyncio.sleep(0.01), loop).result(SOON_S)
    transport.client.close()
    gc.collect()
    assert complaints == []


def test_a_process_of_another_user_is_refused(transport, monkeypatch):
    monkeypatch.setattr(shm_server, "same_user", lambda sock: False)
    outcomes = queue.Queue()
    try:
        transport.open("w-2").fetch(Pull(0), outcomes.put)
    except OSError:  # it was fast
        return
    assert isinstance(outcomes.get(timeout=SOON_S), DisconnectedError)


OTHER_USER = """
import os, socket, sys
os.setuid(65534)
listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
listening.bind("\\0" + sys.argv[1])
listening.listen()
print("open", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_a_worker_doesnt_connect_where_a_process_of_another_user_listens():
    name = f"others-{secrets.token_hex(8)}"
    command = [sys.executable, "-c", OTHER_USER, name]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "open\n"
        with pytest.raises(PermissionError, match="another user"):
            SharedMemoryClient.open(name, "w-1")
        other.communicate()


def test_a_worker_checks_whose_socket_it_is_before_it_says_anything(transport, monkeypatch):
    monkeypatch.setattr(shm_server, "same_user", lambda sock: True)
    monkeypatch.setattr("kafka_actors.job.transport.shm_client.os.getuid", lambda: os.geteuid() + 1)
    with pytest.raises(PermissionError, match="another user"):
        transport.open("w-2")


def test_a_worker_that_could_not_be_accepted_keeps_no_other_out(transport, monkeypatch, caplog):
    accept, refused = transport._loop.sock_accept, []

    async def refuse_one(listening):
        sock, address = await accept(listening)
        if refused:
            return sock, address
        refused.append(sock)
        sock.close()
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(shm_server, "ACCEPT_RETRY_S", 0.0)
    # The first worker is accepted before the server turns to the next one; after this it has.
    asyncio.run_coroutine_threadsafe(asyncio.sleep(0), transport._loop).result(SOON_S)
    monkeypatch.setattr(transport._loop, "sock_accept", refuse_one)
    transport.open("w-2").close()  # taken by the call that was under way
    transport.made.get(timeout=SOON_S)
    with contextlib.suppress(OSError):  # it may notice at once
        transport.open("w-3").close()
    outcomes = queue.Queue()
    client = transport.open("w-4")
    client.fetch(Pull(0), outcomes.put)
    transport.made.get(timeout=SOON_S).answer(b"a")
    assert outcomes.get(timeout=SOON_S)[0].sequence == 0
    assert refused
    assert "the connection of a worker could not be accepted: [Errno" in caplog.text
    client.close()


class Method:
    def __init__(self, run):
        self.remote = run


class Actor:
    """A connection actor's handle, which notes the way by which pulls come, and answers them."""

    def __init__(self, *, has_shared_memory=True):
        self.way = []
        self._has_shared_memory = has_shared_memory
        self._server = SharedMemoryServer(lambda memory: self)
        self.pull = Method(self._by_ray)
        self.shared_memory_name = Method(self._shared_memory_name)

    async def _shared_memory_name(self):
        self.way.append("connect")
        await asyncio.sleep(0.05)
        return await self._server.name() if self._has_shared_memory else None

    async def _by_ray(self, worker, told):
        pull = unpack(told, Pull)
        self.way.append(("by ray", pull.sequence, pull.pace_ms))
        return pack(reply_of(pull.sequence, [b"a"])), [b"a"]

    def fetch(self, pull, answered):
        self.way.append(("by shared memory", pull.sequence, pull.pace_ms))
        answered((reply_of(pull.sequence, [b"a"]), [b"a"]))

    def shut(self):
        pass


async def sequences(outcomes, count):
    """Of so many answers."""
    return [(await asyncio.to_thread(outcomes.get, timeout=SOON_S))[0].sequence for _ in range(count)]


def test_pulls_go_by_shared_memory_in_their_order_also_while_it_is_being_connected():
    async def body():
        actor, outcomes = Actor(), queue.Queue()
        link = BrokerLink("w-1", actor)
        for sequence in range(3):
            link.fetch(Pull(sequence), outcomes.put)
        assert await sequences(outcomes, 3) == [0, 1, 2]
        for sequence in (3, 4):
            link.fetch(Pull(sequence), outcomes.put)
        assert await sequences(outcomes, 2) == [3, 4]
        assert actor.way == ["connect"] + [("by shared memory", sequence, 0) for sequence in range(5)]

    asyncio.run(body())


def test_a_connection_that_was_closed_is_opened_again():
    async def body():
        actor, outcomes = Actor(), queue.Queue()
        link = BrokerLink("w-1", actor)
        link.fetch(Pull(0), outcomes.put)
        assert await sequences(outcomes, 1) == [0]
        actor._server.forget(["w-1"])
        async with asyncio.timeout(SOON_S):
            while not link._client.closed:  # noqa: ASYNC110 - a thread closes it
                await asyncio.sleep(0.001)
        link.fetch(Pull(0), outcomes.put)
        assert await sequences(outcomes, 1) == [0]
        assert actor.way.count("connect") == 2

    asyncio.run(body())


def test_where_there_is_no_shared_memory_all_goes_through_ray():
    async def body():
        actor, outcomes = Actor(has_shared_memory=False), queue.Queue()
        link = BrokerLink("w-1", actor)
        for sequence in range(3):
            link.fetch(Pull(sequence), outcomes.put)
        assert await sequences(outcomes, 3) == [0, 1, 2]
        assert actor.way == ["connect"] + [("by ray", sequence, 10) for sequence in range(3)]

    asyncio.run(body())


def test_a_connection_that_could_not_be_opened_is_tried_again_later(monkeypatch):
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
        assert actor.way == [
            "connect",
            ray[0],
            ray[1],
            "connect",
            ray[2],
            ray[3],
            "connect",
            ("by shared memory", 4, 0),
        ]

    asyncio.run(body())


def test_a_pull_that_ray_fails_is_answered_with_the_reason():
    async def body():
        actor, outcomes = Actor(has_shared_memory=False), queue.Queue()

        async def fail(worker, told):
            raise DisconnectedError("pull: ActorDiedError")

        actor.pull = Method(fail)
        BrokerLink("w-1", actor).fetch(Pull(0), outcomes.put)
        failed = await asyncio.to_thread(outcomes.get, timeout=SOON_S)
        assert isinstance(failed, DisconnectedError)

    asyncio.run(body())


DYING = """
import ctypes, os, sys
from kafka_actors.job.worker.call_record import CallRecord
from kafka_actors.job.transport.shm_client import SharedMemoryClient
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

record = CallRecord.of_this_process()
SharedMemoryClient.open(sys.argv[1], "w-9", record.descriptor)
orders = TopicPartition("orders", 3)
for n in range(40):
    record.call_began(TopicPartition("orders", n), 0, n)
    record.call_ended(TopicPartition("orders", n))
record.call_began(orders, 40, 59)
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
def test_what_a_worker_had_in_hand_and_how_it_ended_is_known_to_the_server(transport, how, said):
    name = asyncio.run_coroutine_threadsafe(transport.server.name(), transport._loop).result(SOON_S)
    command = [sys.executable, "-c", DYING, name, how]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout.readline() == "begun\n"
        transport.made.get(timeout=SOON_S)
        orders = CallInHand(TopicPartition("orders", 3), 40, 59)
        until(lambda: transport.server.crash_report("w-9"))
        assert transport.server.crash_report("w-9") == CrashReport([orders])
        worker.stdin.write("\n")
        worker.stdin.flush()
        worker.wait(SOON_S)
    words = transport.server.crash_report("w-9")
    assert words.calls == [orders]
    assert words.ended.startswith(said)
    assert bool(words.ended) == bool(said)
    transport.server.forget(["w-9"])
    assert transport.server.crash_report("w-9") is None

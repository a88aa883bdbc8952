"""The status page's server over real sockets, without a job: who is answered, who is sent away, and what the slow cost."""

import asyncio
import contextlib
import socket
import threading

import pytest
from fakes.loop import in_loop
from waiting import slow_s, until_async

from kafka_actors.cli.top import PageClient
from kafka_actors.errors import ConfigError, DisconnectedError, UsageError
from kafka_actors.status_page import server
from kafka_actors.status_page.machines.http import HttpResponse, plain
from kafka_actors.status_page.server import MOST_CLIENTS, StatusServer, is_loopback, listen


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """Clients are waited for as long as anything may stand still; tests of who is given up set what they wait out."""
    for limit in ("READ_S", "BUSY_READ_S", "WRITE_S"):
        monkeypatch.setattr(server, limit, slow_s(60))


def answer(request):
    if request.path == "/broken":
        raise OSError("no such file")
    if request.path == "/slow":
        return plain(200, threading.current_thread().name)
    return HttpResponse(200, f"{request.method} {request.path} {request.query}".encode())


@contextlib.asynccontextmanager
async def serving(host="127.0.0.1", answering=answer, slow=("/slow",)):
    listening = listen("status_address", host, 0)
    served = StatusServer(answering, slow)
    await served.start(listening)
    try:
        yield listening.getsockname()[1]
    finally:
        await served.close()


async def ask(port, first="GET / HTTP/1.1", host="localhost", more=b""):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"{first}\r\nHost: {host}\r\n\r\n".encode() + more)
    try:
        return await reader.read()
    finally:
        writer.close()


async def clients(count):
    """Waits until the server has so many: each is a task, and no others are there but the test's."""
    await until_async(lambda: len(asyncio.all_tasks()) == count + 1, what=f"{count} clients")


def status_of(data):
    return int(data.split(b" ", 2)[1])


@in_loop
async def test_a_request_is_answered_and_the_connection_closed():
    async with serving() as port:
        sent = await ask(port, "GET /a?b=1 HTTP/1.1")
        assert sent.startswith(b"HTTP/1.1 200 OK\r\n")
        assert sent.endswith(b"\r\n\r\nGET /a {'b': '1'}")
        assert (await ask(port, "HEAD / HTTP/1.1")).endswith(b"\r\n\r\n")


@in_loop
async def test_nothing_but_reading_from_this_machine_is_answered():
    async with serving() as port:
        posted = await ask(port, "POST / HTTP/1.1", more=b"x" * 10)
        assert (status_of(posted), b"Allow: GET, HEAD" in posted) == (405, True)
        assert status_of(await ask(port, host="evil.example")) == 421
        assert status_of(await ask(port, "GET / HTTP/1.1\r\nX: " + "x" * 20_000)) == 431
        assert status_of(await ask(port, "nonsense")) == 400


@in_loop
async def test_a_page_for_all_may_be_called_by_any_name():
    async with serving("0.0.0.0") as port:
        assert status_of(await ask(port, host="head.ray.svc:8000")) == 200


@in_loop
async def test_an_answer_that_fails_is_said_to_have_failed_and_the_next_is_given():
    async with serving() as port:
        assert status_of(await ask(port, "GET /broken HTTP/1.1")) == 500
        assert status_of(await ask(port)) == 200


@in_loop
async def test_what_takes_a_moment_is_done_on_another_thread():
    async with serving() as port:
        sent = await ask(port, "GET /slow HTTP/1.1")
        assert threading.current_thread().name.encode() not in sent.split(b"\r\n\r\n")[1]


@in_loop
async def test_a_client_that_says_nothing_is_given_up(monkeypatch):
    monkeypatch.setattr(server, "READ_S", 0.1)
    async with serving() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HT")
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()


@in_loop
async def test_a_client_that_takes_nothing_is_given_up(monkeypatch):
    monkeypatch.setattr(server, "WRITE_S", 0.2)
    much, asked = b"x" * 50_000_000, asyncio.Event()

    def answering(request):
        asked.set()
        return HttpResponse(200, much)

    async with serving(answering=answering) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await asked.wait()
        await clients(0)
        got = 0
        with contextlib.suppress(ConnectionError):
            while piece := await reader.read(1 << 20):
                got += len(piece)
        assert got < len(much)
        writer.close()


@in_loop
async def test_more_clients_than_there_may_be_are_sent_away_and_those_that_leave_make_room():
    async with serving() as port:
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(MOST_CLIENTS)]
        sent = await ask(port)
        assert (status_of(sent), b"too many clients" in sent) == (503, True)
        for _, writer in silent:
            writer.close()
        await clients(0)
        assert status_of(await ask(port)) == 200


@in_loop
async def test_the_end_of_the_server_is_the_end_of_its_clients():
    async with serving() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HT")
        await clients(1)
    with contextlib.suppress(ConnectionError):
        assert await reader.read() == b""
    writer.close()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)


def test_an_address_that_is_taken_is_named_with_its_option():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            ConfigError, match=rf"status_address: localhost:{port} can't be listened on: .*in use"
        ):
            listen("status_address", "localhost", port)


def test_only_loopback_is_loopback():
    for host, here in (("localhost", True), ("127.0.0.1", True), ("0.0.0.0", False)):
        with listen("status_address", host, 0) as listening:
            assert is_loopback(listening) is here


def test_an_unknown_host_is_an_error_of_the_option():
    with pytest.raises(
        ConfigError, match=r"status_address: no.such.host.invalid:0 can't be listened on: .*known"
    ):
        listen("status_address", "no.such.host.invalid", 0)


# ---------------------------------------------------------------- who asks


@in_loop
async def test_top_says_who_does_not_answer_and_who_is_no_status_page():
    async with serving() as port:
        with pytest.raises(
            UsageError, match=rf"http://localhost:{port}/status.json is not the status page of a job"
        ):
            await asyncio.to_thread(PageClient(f":{port}").status)
    with pytest.raises(DisconnectedError, match=rf"http://localhost:{port}/status.json: .*refused"):
        await asyncio.to_thread(PageClient(f"http://localhost:{port}").status)

"""The queue of a connection's requests, without a socket: what it writes, when, and what each caller gets."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from fakes.loop import in_loop, turns

from kafka_actors.config import ClientConfig, build
from kafka_actors.errors import CorrelationIdError, DisconnectedError, NodeNotReadyError
from kafka_actors.net.request_queue import RequestQueue
from kafka_actors.protocol import (
    ApiKey,
    HeartbeatRequest,
    HeartbeatResponse,
    decode_header,
    response_frame,
)

VERSION = 1


class Wire:
    """A queue with a wire that keeps what is written, and a clock that stands still until it is moved."""

    def __init__(self, window: int = 5) -> None:
        config = build(ClientConfig, max_in_flight_requests_per_connection=window)
        self.now = 100.0
        self.written: list[bytes] = []
        self.closes: list[Exception | None] = []
        self.renewals = 0
        self.queue = RequestQueue(
            "broker:9092",
            config,
            lambda: self.now,
            None,
            write=self.written.append,
            close=self.closes.append,
            renew=self._renew,
        )

    def _renew(self) -> None:
        self.renewals += 1

    def send(self, seconds: float = 30.0) -> asyncio.Task[Any]:
        return asyncio.ensure_future(self.queue.send(HeartbeatRequest("g", 1, "m"), VERSION, seconds))

    def answer(self, nth: int, **fields: Any) -> None:
        header, _ = decode_header(ApiKey.HEARTBEAT, VERSION, "request", self.written[nth][4:])
        response = HeartbeatResponse(**fields)
        self.queue.on_response(response_frame(ApiKey.HEARTBEAT, VERSION, header.correlation_id, response)[4:])


def with_wire(window: int = 5) -> Callable[[Callable[[Wire], Awaitable[None]]], Callable[[], None]]:
    def decorate(test: Callable[[Wire], Awaitable[None]]) -> Callable[[], None]:
        @in_loop
        async def run() -> None:
            wire = Wire(window)
            await test(wire)
            wire.queue.fail(DisconnectedError("the end"))

        run.__name__ = test.__name__
        return run

    return decorate


@with_wire(window=2)
async def test_requests_beyond_the_window_wait_in_order(wire: Wire) -> None:
    tasks = [wire.send() for _ in range(4)]
    await turns(3)
    assert (len(wire.written), len(wire.queue)) == (2, 4)
    wire.answer(0)
    assert len(wire.written) == 3
    assert (await tasks[0]).error_code == 0
    wire.answer(1)
    wire.answer(2)
    wire.answer(3)
    assert [(await task).error_code for task in tasks] == [0, 0, 0, 0]
    assert len(wire.queue) == 0
    assert wire.closes == []


@with_wire(window=1)
async def test_a_request_whose_time_ended_in_the_queue_is_not_written(wire: Wire) -> None:
    first, second, third = wire.send(), wire.send(5.0), wire.send()
    await turns(3)
    wire.now += 5.0  # the process was suspended, and hears of the response before its timers run
    wire.answer(0)
    with pytest.raises(NodeNotReadyError, match="too busy to send Heartbeat"):
        await second
    assert (len(wire.written), wire.closes) == (2, []), "the first and the third"
    wire.answer(1)
    assert [(await task).error_code for task in (first, third)] == [0, 0]


class Counted(float):
    """A time limit whose sums with a clock count how often they are compared."""

    compared = 0

    def __radd__(self, other: float) -> Counted:
        return Counted(other + float(self))

    def __lt__(self, other: float) -> bool:
        Counted.compared += 1
        return float(self) < other


@with_wire()
async def test_a_request_is_not_compared_with_all_that_wait(wire: Wire) -> None:
    tasks = [wire.send(Counted(30.0)) for _ in range(500)]
    await turns(3)
    for number in range(500):
        wire.answer(number)
    assert [(await task).error_code for task in tasks] == [0] * 500
    assert Counted.compared < 500 * 20


@with_wire(window=1)
async def test_of_requests_that_wait_the_one_with_the_least_time_ends_first(wire: Wire) -> None:
    first, long, short = wire.send(60.0), wire.send(30.0), wire.send(5.0)
    await turns(3)
    assert wire.queue._next_event(wire.now) == wire.now + 5.0
    wire.now += 5.0
    wire.queue._on_time()
    with pytest.raises(NodeNotReadyError, match="too busy"):
        await short
    assert wire.queue._next_event(wire.now) == wire.now + 25.0
    wire.answer(0)
    wire.answer(1)
    assert [(await task).error_code for task in (first, long)] == [0, 0]


@with_wire()
async def test_a_throttle_holds_the_next_request_back(wire: Wire) -> None:
    first = wire.send()
    await turns(3)
    wire.answer(0, throttle_time_ms=5_000)
    await first
    second, impatient = wire.send(), wire.send(2.0)
    await turns(3)
    assert (len(wire.written), wire.queue.throttle_delay()) == (1, 5.0)
    wire.now += 2.0
    wire.queue._on_time()
    with pytest.raises(
        NodeNotReadyError, match=r"throttled by a quota for 3\.0 s more, and not free to send Hea"
    ):
        await impatient
    wire.now += 3.0
    wire.queue.resume()
    assert len(wire.written) == 2
    wire.answer(1)
    await second


@with_wire()
async def test_a_renewal_waits_for_the_requests_in_flight_and_holds_back_the_others(wire: Wire) -> None:
    first = wire.send()
    await turns(3)
    wire.queue.renew_at = wire.now
    second = wire.send()
    await turns(3)
    assert (len(wire.written), wire.renewals) == (1, 0)
    wire.answer(0)
    await first
    third = wire.send()
    await turns(3)
    assert (len(wire.written), wire.renewals) == (1, 1)
    wire.queue.renew_at = float("inf")
    wire.queue.resume()
    assert len(wire.written) == 3
    wire.answer(1)
    wire.answer(2)
    await second
    await third


@with_wire(window=1)
async def test_a_failure_tells_requests_that_were_written_from_those_that_never_were(wire: Wire) -> None:
    written, queued = wire.send(), wire.send()
    await turns(3)
    wire.queue.fail(ValueError("the cable is cut"))
    with pytest.raises(DisconnectedError, match="the cable is cut"):
        await written
    with pytest.raises(NodeNotReadyError, match="the cable is cut"):
        await queued


@with_wire(window=1)
async def test_a_request_whose_caller_was_cancelled_is_not_written(wire: Wire) -> None:
    first, second, third = wire.send(), wire.send(), wire.send()
    await turns(3)
    second.cancel()
    await turns(3)
    wire.answer(0)
    await first
    assert len(wire.written) == 2
    wire.answer(1)
    await turns(3)
    assert third.done()


@with_wire()
async def test_a_response_to_another_request_is_an_error(wire: Wire) -> None:
    task = wire.send()
    await turns(3)
    with pytest.raises(CorrelationIdError):
        wire.queue.on_response(response_frame(ApiKey.HEARTBEAT, VERSION, 77, HeartbeatResponse())[4:])
    wire.answer(0)
    await task

"""Polls for responses: each that waits gets what comes meanwhile, and a future ends the wait."""

from __future__ import annotations

import asyncio

from fakes.loop import in_loop, turns

from kafka_actors.net.response_watch import ResponseWatch
from kafka_actors.protocol import HeartbeatResponse

FIRST, SECOND = HeartbeatResponse(), HeartbeatResponse(error_code=27)


@in_loop
async def test_each_poll_gets_the_responses_of_one_turn() -> None:
    watch = ResponseWatch()
    watch.received(FIRST)
    polls = [asyncio.ensure_future(watch.collect(None)) for _ in range(2)]
    await turns(2)
    watch.received(FIRST)
    watch.received(SECOND)
    assert [await poll for poll in polls] == [[FIRST, SECOND]] * 2


@in_loop
async def test_a_poll_for_a_future_goes_on_until_it_is_settled() -> None:
    watch = ResponseWatch()
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    poll = asyncio.ensure_future(watch.collect(None, future))
    await turns(2)
    watch.received(FIRST)
    await turns(5)
    assert not poll.done()
    watch.received(SECOND)
    future.set_result(None)
    assert await poll == [FIRST, SECOND]


@in_loop
async def test_a_poll_whose_time_is_over_returns_nothing_and_is_forgotten() -> None:
    watch = ResponseWatch()
    assert await watch.collect(0.0) == []
    watch.received(FIRST)
    poll = asyncio.ensure_future(watch.collect(None))
    await turns(2)
    watch.received(SECOND)
    assert await poll == [SECOND]

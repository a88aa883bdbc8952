"""The future that needs no loop."""

from __future__ import annotations

import asyncio
import threading

import pytest

from kafka_actors.cluster import Future


def test_it_is_settled_once() -> None:
    future: Future[int] = Future()
    with pytest.raises(RuntimeError, match="not settled"):
        future.result()
    future.success(1)
    future.success(2)
    future.failure(ValueError())
    assert future.is_done
    assert future.done()
    assert future.result() == 1
    assert future.exception() is None


def test_callbacks_are_called_once_also_when_late() -> None:
    future: Future[int] = Future()
    heard: list[object] = []
    future.add_done_callback(lambda f: heard.append(f.result()))
    future.success(1)
    future.add_done_callback(lambda f: heard.append(-f.result()))
    assert heard == [1, -1]


def test_it_can_be_awaited_before_and_after_and_by_many() -> None:
    async def main() -> None:
        future: Future[int] = Future()

        async def wait() -> int:
            return await future

        waiting = [asyncio.create_task(wait()) for _ in range(3)]
        await asyncio.sleep(0)
        threading.Thread(target=future.success, args=(5,)).start()
        assert await asyncio.gather(*waiting) == [5, 5, 5]
        assert await future == 5

    asyncio.run(main())


def test_a_failure_is_raised_where_it_is_awaited() -> None:
    async def main() -> None:
        future: Future[int] = Future()
        waiting = asyncio.ensure_future(_awaited(future))
        await asyncio.sleep(0)
        future.failure(KeyError("x"))
        with pytest.raises(KeyError):
            await waiting

    asyncio.run(main())


def test_a_waiter_that_was_cancelled_is_left_alone() -> None:
    async def main() -> None:
        future: Future[int] = Future()
        waiting = asyncio.ensure_future(_awaited(future))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        future.success(1)
        await asyncio.sleep(0)
        assert waiting.cancelled()

    asyncio.run(main())


async def _awaited(future: Future[int]) -> int:
    return await future

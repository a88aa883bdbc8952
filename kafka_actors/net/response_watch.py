"""`ResponseWatch`: the responses that arrive during a `KafkaClient.poll`."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from kafka_actors.protocol.schema import Response


class SettledFuture(Protocol):
    """A future, of asyncio or of `kafka_actors.cluster`."""

    def done(self) -> bool: ...
    def add_done_callback(self, callback: Any, /) -> None: ...


class ResponseWatch:
    """Hands each response to all polls that wait at that moment. None is kept for later polls."""

    def __init__(self) -> None:
        self._polls: list[tuple[list[Response], asyncio.Event]] = []

    def received(self, response: Response) -> None:
        """Hands a response to the polls that wait."""
        for responses, arrived in self._polls:
            responses.append(response)
            arrived.set()

    async def collect(self, seconds: float | None, future: SettledFuture | None = None) -> list[Response]:
        """Waits for a response, or with `future` until that is settled, at most `seconds` (None: no bound).

        Returns the responses that came meanwhile.
        """
        responses: list[Response] = []
        woken = asyncio.Event()
        poll = responses, woken
        loop = asyncio.get_running_loop()
        if future is not None:
            poll = responses, asyncio.Event()  # a response alone ends no wait for a future
            future.add_done_callback(lambda _: _wake(loop, woken))
        self._polls.append(poll)
        try:
            async with asyncio.timeout(seconds):
                await woken.wait()
            await asyncio.sleep(0)  # answers that came in one piece are handed over in one turn of the loop
        except TimeoutError:
            pass
        finally:
            self._polls.remove(poll)
        return responses


def _wake(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    try:
        loop.call_soon_threadsafe(event.set)
    except RuntimeError:  # the loop that polled is closed: nobody waits
        pass

"""`AsyncProducer`: `Producer` for an event loop, in that loop."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

import pyarrow as pa

from kafka_actors.arguments import limit_of
from kafka_actors.config import ProducerConfig, build, resolved
from kafka_actors.errors import KafkaActorsError, KafkaTimeoutError, UsageError
from kafka_actors.net.process_bound import ProcessBound, another_loop
from kafka_actors.timeouts import timeouts_by_name

from .core import Core
from .futures import BatchFuture, RecordFuture
from .producer import _no_room
from .steps import Full, Headers, Sending, Steps, Wait

T = TypeVar("T")

logger = logging.getLogger(__name__)


@timeouts_by_name
class AsyncProducer(ProcessBound):
    """`Producer` with coroutines; the same options, results and errors; see there. For the loop it is first used in.

    async with AsyncProducer(bootstrap_servers="localhost:9092") as producer:
        sent = await producer.send("orders", b"value")   # in memory
        where = await sent                               # in the log
    """

    def __init__(self, *, config: Mapping[str, Any] | None = None, **options: Any) -> None:
        super().__init__()
        self.config = resolved(build(ProducerConfig, config, **options))
        self._beginning: asyncio.Task[None] | None = None
        self._room: asyncio.Event | None = None
        self._closed = False
        self._make()

    def _make(self) -> None:
        self._core = Core(self.config)
        self._sending = Sending(self._core, random.random)

    async def __aenter__(self) -> Self:
        await self._started()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.close()
        except KafkaActorsError as failure:
            if error is None:
                raise
            logger.error("beside the error being raised: %s", failure)

    def __repr__(self) -> str:
        return f"<AsyncProducer to {','.join(self.config.bootstrap_servers)}>"

    # ------------------------------------------------------------ sending

    async def send_batch(self, batch: pa.RecordBatch | pa.Table, topic: str | None = None) -> BatchFuture:
        """As `Producer.send_batch`."""
        await self._started()
        return await self._walk(self._sending.batch(batch, topic))

    async def send(
        self,
        topic: str,
        value: bytes | str | None = None,
        key: bytes | str | None = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> RecordFuture:
        """As `Producer.send`."""
        await self._started()
        return await self._walk(self._sending.record(topic, value, key, headers, partition, timestamp_ms))

    async def _walk(self, steps: Steps[T]) -> T:
        try:
            while True:
                wait = next(steps)
                await self._wait(wait)
        except StopIteration as done:
            value: T = done.value
            return value
        finally:
            steps.close()

    async def _wait(self, wait: Wait) -> None:
        loop = asyncio.get_running_loop()
        seconds = self.config.max_block_ms / 1000
        if not isinstance(wait, Full):
            await self._core.learn(wait.topic, self._core.client.now() + seconds, wait.partition)
            return
        self._core.intake.close_all()
        assert self._room is not None
        try:
            async with asyncio.timeout_at(loop.time() + seconds):
                while self._core.intake.full:
                    self._room.clear()
                    await self._room.wait()
                    if self._closed:
                        raise UsageError("this AsyncProducer is closed")
        except TimeoutError:
            raise _no_room(wait.topic, self.config) from None

    # ------------------------------------------------------------ life

    async def flush(self, *, timeout_ms: float | None = None) -> None:
        """As `Producer.flush`."""
        limit_s = limit_of(timeout_ms)
        self._check_open()
        self._check_loop()
        await self._flush(limit_s)
        self._tell()

    async def _flush(self, limit_s: float | None) -> None:
        self._core.intake.close_all()
        results = list(self._core.intake.unsettled)
        if not results:
            return
        done = asyncio.get_running_loop().create_future()
        left = len(results)

        def one() -> None:
            nonlocal left
            left -= 1
            if not left and not done.done():
                done.set_result(None)

        for result in results:
            result.when_done(one)
        try:
            async with asyncio.timeout(limit_s):
                await done
        except TimeoutError:
            raise KafkaTimeoutError(f"flush: {left} batches are not acknowledged yet") from None

    def _tell(self) -> None:
        error = self._core.unseen.take()
        if error is not None:
            raise error

    async def close(self, *, timeout_ms: float | None = None) -> None:
        """As `Producer.close`."""
        if self._closed:
            return
        limit_s = limit_of(timeout_ms)
        self._check_process()
        self._check_loop()
        self._closed = True
        if self._beginning is None:
            return
        try:
            await self._flush(limit_s)
        except KafkaTimeoutError:
            pass  # what is left gets its error below
        finally:
            late = KafkaTimeoutError("the producer was closed before it was acknowledged; it may be written")
            await self._core.close(late)
        self._tell()

    def _check_open(self) -> None:
        self._check_process()
        if self._closed:
            raise UsageError("this AsyncProducer is closed")

    def _check_loop(self) -> None:
        """Raises `UsageError` in another event loop than its own, where no outcome would ever come."""
        if self._beginning is not None and self._beginning.get_loop() is not asyncio.get_running_loop():
            raise UsageError(another_loop(self))

    async def _started(self) -> None:
        self._check_open()
        if self._beginning is None:
            self._room = asyncio.Event()
            self._core.on_room = self._room.set
            self._beginning = asyncio.create_task(self._begin())
        self._check_loop()
        if not self._beginning.done():
            await asyncio.shield(self._beginning)

    async def _begin(self) -> None:
        try:
            await self._core.begin()
        except BaseException:
            failed = self._core
            self._make()  # the next call tries again
            self._beginning = None
            await failed.client.close()
            raise

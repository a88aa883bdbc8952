"""Connecting: what a name that can't be looked up comes to."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from fakes.loop import in_loop

from kafka_actors.errors import ConnectionFailedError
from kafka_actors.net.connect import SocketOptions, connect


@in_loop
async def test_a_name_is_looked_up_again_where_the_system_gave_no_thread_for_it() -> None:
    class NoThreads(ThreadPoolExecutor):
        def submit(self, *args: Any, **kwargs: Any) -> Any:
            raise RuntimeError("can't start new thread")

    asyncio.get_running_loop().set_default_executor(NoThreads())
    with pytest.raises(ConnectionFailedError, match=r"kafka:9092: .*: can't start new thread") as caught:
        await connect("kafka", 9092, SocketOptions(), 10)
    assert caught.value.retriable

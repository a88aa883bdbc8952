"""A job's supervisor with its status page, in one process: the driver, or the job actor.

The page has a thread of its own and gets a snapshot from the supervisor's loop once a second. So requests never hold up the
job, and when the supervisor hangs, the page still answers and says so.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
import time
from collections.abc import Coroutine
from typing import Any

import ray

from kafka_actors.base.addresses import format_address
from kafka_actors.base.io_thread import IoThread
from kafka_actors.base.tasks import OwnedTasks
from kafka_actors.job.plan import JobPlan
from kafka_actors.job.supervisor.report import JobReport
from kafka_actors.job.supervisor.supervisor import Supervisor
from kafka_actors.status_page.machines.history import INTERVAL_S
from kafka_actors.status_page.server import StatusServer, listen
from kafka_actors.status_page.site import SLOW, Site
from kafka_actors.telemetry.sdk import exposition

from .runtime import RayRuntime

__all__ = ["JobProcess", "StatusPage"]

logger = logging.getLogger(__name__)


class StatusPage:
    """Status page of one job. `open` and `close` are called in the supervisor's loop."""

    def __init__(self, address: tuple[str, int], report: JobReport) -> None:
        self._address = address
        self._report = report
        self._site = Site(secrets.token_hex(8), metrics=exposition, clock=time.monotonic)
        self._server = StatusServer(self._site.answer, SLOW)
        self._thread: IoThread | None = None
        self._tasks = OwnedTasks(_log_failure)

    async def open(self) -> None:
        """Starts to serve. Raises `ConfigError` if its address can't be listened on."""
        listening = listen("status_address", *self._address)
        self._thread = IoThread("kafka-actors-status")
        await self._in_page_thread(self._server.start(listening))
        self._report.page = _url_of(listening)
        self._report.page_node = ray.util.get_node_ip_address()
        self._tasks.create_task(self._look())

    async def close(self) -> None:
        """Ends the page. Safe to call at any time, and twice."""
        await self._tasks.ended()
        if (thread := self._thread) is not None:
            await self._in_page_thread(self._server.close())
            self._thread = None
            await asyncio.to_thread(thread.stop)

    async def _in_page_thread(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs a coroutine on the page's own thread."""
        assert self._thread is not None  # open() has made it
        await asyncio.wrap_future(self._thread.submit(work))

    async def _look(self) -> None:
        """Feeds the page once a second. While the coordinator doesn't answer one request stays pending, and the rest is shown."""
        loop = asyncio.get_running_loop()
        request: asyncio.Task[None] | None = None
        try:
            while True:
                began = loop.time()
                if request is None or request.done():
                    request = asyncio.ensure_future(self._request_status())
                await asyncio.wait({request}, timeout=INTERVAL_S / 2)
                self._site.look(self._report.shown(), self._report.seen())
                await asyncio.sleep(max(0.0, INTERVAL_S - (loop.time() - began)))
        finally:
            if request is not None:
                request.cancel()

    async def _request_status(self) -> None:
        try:
            await self._report.status()
        except Exception as error:
            logger.debug("the status page has no news: %s: %s", type(error).__name__, error)


def _log_failure(error: BaseException) -> None:
    logger.error("the status page shows no news any more: %s: %s", type(error).__name__, error)


def _url_of(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    everywhere = host in ("0.0.0.0", "::")
    return f"http://{format_address(ray.util.get_node_ip_address() if everywhere else host, port)}/"


class JobProcess:
    """Supervisor and status page of one job. Made and used in the supervisor's loop."""

    def __init__(self, plan: JobPlan) -> None:
        self.supervisor = Supervisor(plan, RayRuntime(plan.resources))
        self._page: StatusPage | None = None
        if plan.status_address is not None:
            self._page = StatusPage(plan.status_address, self.supervisor.report)

    async def start(self) -> None:
        """Opens the page first, so that a bad address is refused before anything starts. Raises as `Supervisor.start`."""
        try:
            if self._page is not None:
                await self._page.open()
            await self.supervisor.start()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Closes the page, which shows an ended job until then."""
        if self._page is not None:
            await self._page.close()

"""Steady fetching: small responses of one fetch session, exchanged and digested without the interpreter.

Theory of operation. A record that comes alone costs a response, and by the general way (`BrokerFetcher`, `FetchSession`) each response costs
some hundred calls of Python in three threads, whose code and objects are cold by then: five times the CPU of a client in C. So after a few
small responses in a row the fetch thread leaves the session to a `FetchLoop`, which is compiled: it sends the next request, receives
the response, checks it, advances the session and queues the answer, as long as

- the socket is plain: TLS is OpenSSL's, which Python has;
- the session goes on as it is (`FetchSession.steady`), with nothing but records in responses of `SMALL_BYTES` at most: no error, no throttling,
  no aborted transaction, no other replica to read from, no batch of an old format;
- the terms of the pull hold: half of its `max_bytes` is left, nobody has interrupted it, no login has to be renewed
  and no memory to be given back.

Whatever else comes is the general way's again: it gets the response as it was received, and the session as it stands then
(`FetchSession.went_on`). So there is one place that knows what an error means, and the loop knows none.

The one who made the pull drains the answers from a queue (`messages.AnswerQueue`), in the thread that wants the records; a `wake` is all that it
costs the fetch thread. Such a pull has several answers, of which all but the last say `FetchReply.more`. The loop of a process without the
compiled module is None, and each response goes the general way.

Workers of a job take no queue: each of their pulls has one answer. Where the cores are full it is a worker's next pull, which comes when it is
through with the answer before, that has records come together; without that each is carried alone through two processes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from enum import IntEnum
from typing import TYPE_CHECKING

from msgspec.structs import replace

from kafka_actors.protocol import FetchRequest

from .messages import FetchReply, PartitionFetch, Pull

if TYPE_CHECKING:
    from .local_sources import BlockingChannel

try:
    from ._fetch_loop import FetchLoop
except ImportError:
    FetchLoop = None  # type: ignore[assignment,misc]  # not compiled: each response goes the general way

__all__ = [
    "AFTER",
    "SMALL_BYTES",
    "End",
    "FetchLoop",
    "SteadyFetch",
    "may_go_on",
    "template_of",
    "to_name",
    "worth_after",
]

SMALL_BYTES = 64 * 1024
"""Size of a response up to which the loop takes it."""
AFTER = 2
"""Small responses in a row after which a loop is set up, at least."""
PARTITIONS_FOR_ONE = 128
"""Partitions whose setting up costs what the loop saves with one response."""
_NOTHING_BEHIND = 3
"""Bytes behind the topics of a request without forgotten ones, rack and tagged fields."""


class End(IntEnum):
    """Reasons for which a loop ends."""

    TERMS = 0
    LARGE = 1  # the length of a response was received, and nothing else of it
    OTHER = 2  # a response that isn't plain


class SteadyFetch:
    """Runs the loops of one fetch thread. Pulls that wait behind the present one are noted in any thread: one that changes what is fetched
    ends the loop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: FetchLoop | None = None
        self._changes = 0  # pulls that wait and change something

    def waits(self, pull: Pull) -> None:
        """Notes a pull that has to wait."""
        with self._lock:
            self._changes += pull.changes
            if pull.changes and self._loop is not None:
                self._loop.interrupt()

    def begins(self, pull: Pull) -> None:
        """Notes that a pull waits no more."""
        with self._lock:
            self._changes -= pull.changes

    def run(
        self,
        loop: FetchLoop,
        channel: BlockingChannel,
        request: bytes,
        credit: int,
        least: int,
        limit_ms: float,
    ) -> tuple[int, int, bytes]:
        """Runs a loop from a request on: see `FetchLoop.run`. Raises as `FetchSocket.receive`."""
        with self._lock:
            self._loop = loop
            if self._changes:
                loop.interrupt()
        try:
            with channel.descriptor(timeout_ms=limit_ms) as descriptor:
                return loop.run(descriptor, request, credit, least, channel.due_in_s, limit_ms / 1000)
        finally:
            with self._lock:
                self._loop = None


def worth_after(partitions: int) -> int:
    """Returns the number of small responses in a row after which it is worth while to set up a loop for so many partitions."""
    return max(AFTER, partitions // PARTITIONS_FOR_ONE)


def may_go_on(pull: Pull, reply: FetchReply) -> bool:
    """Whether the terms of a pull allow another response behind a reply. A pull that keeps away from followers, or at a pace, is for one: these
    end with time."""
    return (
        not reply.error_code
        and not reply.throttle_ms
        and pull.followers
        and not pull.pace_ms
        and 2 * reply.size <= pull.max_bytes
    )


def to_name(
    loop: FetchLoop, partitions: list[PartitionFetch], request: FetchRequest
) -> list[tuple[tuple[str, int], int]]:
    """Returns the partitions that the request behind a loop has to name, each with its next fetch offset: those that the loop has advanced, or
    those of its first request, where that was not sent."""
    if not loop.requests:
        return [
            ((t.topic, each.partition), each.fetch_offset) for t in request.topics for each in t.partitions
        ]
    return [(partitions[n].key, offset) for n, offset in loop.advanced()]


def template_of(request: FetchRequest, encode: Callable[[FetchRequest], bytes]) -> tuple[bytes, int]:
    """Returns a request without partitions, encoded, and the number of bytes behind its topics."""
    request = replace(request, topics=[], forgotten_topics_data=[])
    template = encode(request)
    return template, _NOTHING_BEHIND + len(template) - len(encode(replace(request, rack_id="")))

"""Spans of the operations on messages, by the semantic conventions for messaging: names, kinds, attributes, links.

| operation | span | kind | covers |
|---|---|---|---|
| poll | `poll {topic}` | CLIENT | a `Consumer` returns a batch; a Spark task receives one |
| process | `process {topic}` | CONSUMER | one call of a job's function, or a pipeline's stages on a batch in a Spark task; it is the current span meanwhile |
| commit | `commit` | CLIENT | a commit of a worker or a consumer, until it is acknowledged; automatic commits too |
| send | `send {topic}` | PRODUCER | one `send` or `send_batch`, until all its records are acknowledged |

A batch's span links to the trace contexts of its records. No spans are made while no SDK records (`tracing`). A span of
a single message has its offset, and says if it is a tombstone; it never has the key, because keys are bytes here, and the
conventions exclude keys that have no textual form.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, TypeVar

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from .attributes import Attributes, error_type, of_operation
from .instruments import ERROR_TYPE, OFFSET, PARTITION, SCHEMA_URL, TOMBSTONE
from .sdk import has_tracer_provider

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "MOST_LINKS",
    "TRACEPARENT",
    "ProcessSpans",
    "committing",
    "end",
    "failed",
    "links_to",
    "parse",
    "received",
    "settling",
    "spread",
    "start",
    "traceparent",
    "tracing",
]

TRACEPARENT = "traceparent"
MOST_LINKS = 128
"""Most links of a span: as many as an SDK keeps by default (`OTEL_LINK_COUNT_LIMIT`)."""

T = TypeVar("T")
_TRACEPARENT = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")

COUNT = "messaging.batch.message_count"
CLIENT_ID = "messaging.client.id"

_commit: ContextVar[Span | None] = ContextVar("_commit", default=None)
"""The span of `committing`, for code that sends the request: it may run in another task, or in another thread's loop."""
Answered = Callable[[Attributes, BaseException | None], None]

LOOK_S = 0.5
_look_at = 0.0
_on = False


def tracing() -> bool:
    """Whether an SDK records spans in this process.

    The answer is cached for half a second: asking OpenTelemetry for each batch would cost more than everything else that
    is done for an untraced batch.
    """
    global _look_at, _on
    now = time.monotonic()
    if now >= _look_at:
        _look_at, _on = now + LOOK_S, has_tracer_provider()
    return _on


@lru_cache(maxsize=1)
def tracer() -> trace.Tracer:
    """This library's tracer. It follows the SDK that the process has or will have."""
    from kafka_actors import __version__

    return trace.get_tracer("kafka_actors", __version__, schema_url=SCHEMA_URL)


def start(
    operation: str,
    kind: SpanKind,
    *,
    group: str | None = None,
    topic: str | None = None,
    partition: int | None = None,
    count: int | None = None,
    client_id: str | None = None,
    links: Iterable[Link] = (),
    parent: Any = None,
    start_time: int | None = None,
    more: Attributes = (),
) -> Span:
    """Starts a span without making it current. count: messages of the batch; None for an operation on a single message."""
    attributes: dict[str, Any] = dict(of_operation(operation, group, topic))
    if partition is not None:
        attributes[PARTITION] = str(partition)
    if count is not None:
        attributes[COUNT] = count
    if client_id is not None:
        attributes[CLIENT_ID] = client_id
    attributes.update(more)
    name = operation if topic is None else f"{operation} {topic}"
    return tracer().start_span(
        name, parent, kind=kind, attributes=attributes, links=list(links), start_time=start_time
    )


def failed(span: Span, error: BaseException) -> None:
    """Marks a span as failed, with the error's type only: its text may contain data of a message."""
    kind = error_type(error)
    span.set_attribute(ERROR_TYPE, kind)
    span.set_status(Status(StatusCode.ERROR, kind))


def end(span: Span, error: BaseException | None) -> None:
    """Ends a span, as failed if there was an error."""
    if error is not None:
        failed(span, error)
    span.end()


def received(group: str | None, client_id: str | None, batch: pa.RecordBatch, seconds: float) -> None:
    """Records a `poll` span that ends now: a consumer or a Spark task has received a batch after a wait of `seconds`."""
    now = time.time_ns()  # wall clock: a span's times are of the day
    span = start(
        "poll",
        SpanKind.CLIENT,
        group=group,
        topic=batch["topic"][0].as_py(),
        partition=batch["partition"][0].as_py(),
        count=batch.num_rows,
        client_id=client_id,
        links=_links_of(batch),
        start_time=now - int(seconds * 1e9),
    )
    span.end(now)


def _links_of(batch: pa.RecordBatch) -> list[Link]:
    from .headers import links_of  # Arrow's compute functions are slow to import, and most users don't trace

    return links_of(batch)


class ProcessSpans:
    """Makes the `process` spans of a job's function. `where`: attributes of the messages' cluster, once it is known."""

    def __init__(self, group: str | None, client_id: str | None) -> None:
        self.where: Attributes = ()
        self._group = group
        self._client_id = client_id
        # Calls since the last commit; the commit's span links to them.
        self._recent: deque[SpanContext] = deque(maxlen=MOST_LINKS)

    def call(self, batch: pa.RecordBatch, unit: str) -> AbstractContextManager[Span | None]:
        """Returns a context manager for one call; the span is current in it. unit: `batch` or `message`, whichever the
        function takes."""
        return self._span(batch, unit) if tracing() else nullcontext()

    @contextmanager
    def _span(self, batch: pa.RecordBatch, unit: str) -> Iterator[Span]:
        single = unit == "message" and batch.num_rows == 1
        span = start(
            "process",
            SpanKind.CONSUMER,
            group=self._group,
            topic=batch["topic"][0].as_py(),
            partition=batch["partition"][0].as_py(),
            count=None if single else batch.num_rows,
            client_id=self._client_id,
            links=_links_of(batch),
            more=(*self.where, *(_of_message(batch) if single else ())),
        )
        self._recent.append(span.get_span_context())
        with trace.use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
            yield span

    def take(self) -> list[SpanContext]:
        """Returns the contexts of the calls since the last `take`."""
        taken = []
        while self._recent:
            taken.append(self._recent.popleft())
        return taken


def _of_message(batch: pa.RecordBatch) -> Attributes:
    tombstone = not batch["value"][0].is_valid
    return ((OFFSET, batch["offset"][0].as_py()), *(((TOMBSTONE, True),) if tombstone else ()))


@contextmanager
def settling(group: str | None) -> Iterator[Answered]:
    """Surrounds an OffsetCommit request, within the span of `committing` or, for an automatic commit, in a span of its own.

    Yields a function that takes the response's details for the span: the attributes of the broker that answered, and the
    first error.
    """
    if not tracing():
        yield _nothing
        return
    around = _commit.get()
    if around is not None and around.is_recording():
        yield partial(_answered, around)
    else:
        with committing(group, unasked=True):
            yield partial(_answered, trace.get_current_span())


def _nothing(who: Attributes, error: BaseException | None) -> None:
    pass


def _answered(span: Span, who: Attributes, error: BaseException | None) -> None:
    span.set_attributes(dict(who))
    if error is not None:
        failed(span, error)


@contextmanager
def committing(
    group: str | None,
    of: Iterable[SpanContext] = (),
    requested_by: Iterable[str] = (),
    *,
    where: Attributes = (),
    unasked: bool = False,
) -> Iterator[str]:
    """Surrounds a commit with a span that links to the `process` spans `of` what is committed. Yields its `traceparent`, to be
    sent to other processes.

    requested_by: `traceparent`s of the commits that this one gathers. One of them becomes the parent, several become links.
    where: attributes of the cluster, if it is known. unasked: an automatic commit, which begins a trace of its own,
    because the span that was current when its loop was started is unrelated. An exception marks the span as failed.
    """
    if not tracing():
        yield ""
        return
    asking = [context for context in map(parse, requested_by) if context is not None]
    parent = Context() if unasked else None
    if len(asking) == 1:
        parent = trace.set_span_in_context(trace.NonRecordingSpan(asking[0]))
        asking = []
    links = links_to([*of, *asking])
    span = start("commit", SpanKind.CLIENT, group=group, links=links, parent=parent, more=where)
    token = _commit.set(span)
    try:
        with trace.use_span(span, record_exception=False, set_status_on_exception=False):
            yield traceparent(span.get_span_context())
    except BaseException as error:
        failed(span, error)
        raise
    finally:
        _commit.reset(token)
        span.end()


# ---------------------------------------------------------------- W3C trace context, as text and as links


def parse(value: bytes | str | None) -> SpanContext | None:
    """Parses a `traceparent`; returns None for invalid text (W3C Trace Context, level 1; later versions are read as this one)."""
    data = value.encode() if isinstance(value, str) else value
    found = _TRACEPARENT.fullmatch(data) if data is not None else None
    if found is None or found[1] == b"ff" or (found[1] == b"00" and found[5]):
        return None
    context = SpanContext(
        int(found[2], 16), int(found[3], 16), is_remote=True, trace_flags=TraceFlags(int(found[4], 16) & 3)
    )
    return context if context.is_valid else None


def traceparent(context: SpanContext) -> str:
    """The `traceparent` of a span's context; empty for an invalid context."""
    if not context.is_valid:
        return ""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def links_to(contexts: Iterable[SpanContext | None]) -> list[Link]:
    """Links to contexts, without duplicates; if there are more than `MOST_LINKS`, to a sample spread evenly over them."""
    different = list({(c.trace_id, c.span_id): c for c in contexts if c is not None and c.is_valid}.values())
    return [Link(context) for context in spread(different)]


def spread(items: Sequence[T]) -> Iterator[T]:
    """Yields `MOST_LINKS` items at most, spread evenly over the sequence."""
    count = min(len(items), MOST_LINKS)
    return (items[n * len(items) // count] for n in range(count))

"""Spans of the operations on messages, as the conventions want them: names, kinds, attributes, links.

| operation | span | kind | of |
|---|---|---|---|
| poll | `poll {topic}` | CLIENT | a `Consumer` hands out a batch; a task of Spark gets one |
| process | `process {topic}` | CONSUMER | one call of a job's function, or the stages of a pipeline on a batch in a task of Spark; it is current meanwhile |
| commit | `commit` | CLIENT | a worker's or a consumer's offsets, until they are acknowledged; also those that nobody asked for |
| send | `send {topic}` | PRODUCER | one `send` or `send_batch`, until all of it is acknowledged |

A span of a batch links to the contexts of its records. Where no SDK records, `tracing()` says so and nothing is made. Of a single
message its offset is told, and that it is a tombstone; never its key: keys are bytes here, and the conventions want those left out that
have no text of their own.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode

from .attributes import Attributes, error_type, of_operation
from .context import MOST_LINKS, links_to, parse, traceparent
from .instruments import ERROR_TYPE, OFFSET, PARTITION, SCHEMA_URL, TOMBSTONE
from .settings import has_tracer_provider

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ProcessSpans", "committing", "end", "failed", "received", "settling", "start", "tracing"]

COUNT = "messaging.batch.message_count"
CLIENT_ID = "messaging.client.id"

_commit: ContextVar[Span | None] = ContextVar("_commit", default=None)
"""The span of `committing`, for who asks the broker within: another task, maybe, or another thread's loop."""
Answered = Callable[[Attributes, BaseException | None], None]

LOOK_S = 0.5
_look_at = 0.0
_on = False


def tracing() -> bool:
    """Whether anybody records spans in this process. One that comes later is seen within half a second: to ask
    OpenTelemetry each time costs more than all else that is done for a batch that nobody traces."""
    global _look_at, _on
    now = time.monotonic()
    if now >= _look_at:
        _look_at, _on = now + LOOK_S, has_tracer_provider()
    return _on


@lru_cache(maxsize=1)
def tracer() -> trace.Tracer:
    """This library's tracer, of whatever SDK the process has or will have."""
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
    """A span that is not current. count: of a batch's messages; None for an operation on a single one."""
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
    """The operation failed. Of the error its kind alone is told: its text may be of a message."""
    kind = error_type(error)
    span.set_attribute(ERROR_TYPE, kind)
    span.set_status(Status(StatusCode.ERROR, kind))


def end(span: Span, error: BaseException | None) -> None:
    """The operation is over."""
    if error is not None:
        failed(span, error)
    span.end()


def received(group: str | None, client_id: str | None, batch: pa.RecordBatch, seconds: float) -> None:
    """A consumer's poll, or a task of Spark that waited for records, has brought a batch, after so many seconds."""
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
    from .headers import links_of  # Arrow's functions take a while to be imported, and few trace

    return links_of(batch)


class ProcessSpans:
    """The calls of a job's function. `where`: the cluster that their messages are of, once it is known."""

    def __init__(self, group: str | None, client_id: str | None) -> None:
        self.where: Attributes = ()
        self._group = group
        self._client_id = client_id
        # Those since the last commit, which then links to them.
        self._recent: deque[SpanContext] = deque(maxlen=MOST_LINKS)

    def call(self, batch: pa.RecordBatch, unit: str) -> AbstractContextManager[Span | None]:
        """Around one call; the span is current in it. `unit`: whether the function takes a batch or one message."""
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
        """Those since the last time."""
        taken = []
        while self._recent:
            taken.append(self._recent.popleft())
        return taken


def _of_message(batch: pa.RecordBatch) -> Attributes:
    tombstone = not batch["value"][0].is_valid
    return ((OFFSET, batch["offset"][0].as_py()), *(((TOMBSTONE, True),) if tombstone else ()))


@contextmanager
def settling(group: str | None) -> Iterator[Answered]:
    """Around the request to the group's coordinator: within the span of `committing`, or one of its own where offsets are committed
    without having been asked for. Gives what is to be told of the answer: who gave it, and the first error in it."""
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
    asked_by: Iterable[str] = (),
    *,
    where: Attributes = (),
    unasked: bool = False,
) -> Iterator[str]:
    """Around a commit: links to the spans `of` what is committed. Gives its `traceparent`, which travels.

    asked_by: `traceparent`s of others' commits that go with this one. Of a single one it is the child, more are
    links. where: the cluster, if it is known already. unasked: it begins a trace of its own: what is current where a loop was started has
    nothing to do with it. An exception that passes through makes the span a failed one.
    """
    if not tracing():
        yield ""
        return
    asking = [context for context in map(parse, asked_by) if context is not None]
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

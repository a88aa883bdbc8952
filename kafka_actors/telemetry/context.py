"""W3C trace context: as text, and as links."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from opentelemetry.trace import Link, SpanContext, TraceFlags

__all__ = ["MOST_LINKS", "TRACEPARENT", "links_to", "parse", "spread", "traceparent"]

TRACEPARENT = "traceparent"
MOST_LINKS = 128
"""As many as an SDK keeps by default (`OTEL_LINK_COUNT_LIMIT`)."""

T = TypeVar("T")
_FORM = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


def parse(value: bytes | str | None) -> SpanContext | None:
    """A `traceparent`; None for what is none (W3C Trace Context, level 1: later versions are read as this one)."""
    data = value.encode() if isinstance(value, str) else value
    found = _FORM.fullmatch(data) if data is not None else None
    if found is None or found[1] == b"ff" or (found[1] == b"00" and found[5]):
        return None
    context = SpanContext(
        int(found[2], 16), int(found[3], 16), is_remote=True, trace_flags=TraceFlags(int(found[4], 16) & 3)
    )
    return context if context.is_valid else None


def traceparent(context: SpanContext) -> str:
    """The `traceparent` of a span; empty where there is none."""
    if not context.is_valid:
        return ""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def links_to(contexts: Iterable[SpanContext | None]) -> list[Link]:
    """Links to contexts, each once; of many a sample that is spread evenly over them."""
    different = list({(c.trace_id, c.span_id): c for c in contexts if c is not None and c.is_valid}.values())
    return [Link(context) for context in spread(different)]


def spread(items: Sequence[T]) -> Iterator[T]:
    """A sample of many that is spread evenly over them."""
    count = min(len(items), MOST_LINKS)
    return (items[n * len(items) // count] for n in range(count))

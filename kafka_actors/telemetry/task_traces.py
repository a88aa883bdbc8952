"""Traces of a process that works on one task after the other, of which each is a resource of its own: a Python worker of Spark.

A provider of the SDK has one resource for as long as it lives. So each task has a provider of its own, all of them over the same
exporters. This module knows the API alone; `sdk.begin_task` brings the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from opentelemetry import trace

__all__ = ["TaskTraces"]


class TaskTraces(trace.TracerProvider):
    """Spans have the resource of the task in which they begin, whoever got their tracer, and when.

    `provider_of` makes the provider of a task; its argument is what the task's resource has beside that of the process.
    """

    def __init__(self, provider_of: Callable[[Mapping[str, str | int]], trace.TracerProvider]) -> None:
        self._provider_of = provider_of
        self._now = provider_of({})

    def begin(self, attributes: Mapping[str, str | int]) -> None:
        """Another task begins, with these attributes of its resource."""
        self._now = self._provider_of(attributes)

    def get_tracer(self, *args: Any, **kwargs: Any) -> trace.Tracer:
        """As of any provider."""
        return _TaskTracer(lambda: self._now.get_tracer(*args, **kwargs))


class _TaskTracer(trace.Tracer):
    def __init__(self, now: Callable[[], trace.Tracer]) -> None:
        self._now = now

    def start_span(self, *args: Any, **kwargs: Any) -> trace.Span:
        return self._now().start_span(*args, **kwargs)

    def start_as_current_span(self, *args: Any, **kwargs: Any) -> Any:
        return self._now().start_as_current_span(*args, **kwargs)

"""Base of engines: a pipeline bound to an engine, before it starts, while it runs, and after."""

from __future__ import annotations

from abc import ABC, abstractmethod
from html import escape
from types import TracebackType
from typing import ClassVar, Generic, Literal, Protocol, Self, TypeVar

from kafka_actors.base.timeouts import timeouts_by_name, wait_of
from kafka_actors.errors import UsageError

from .pipeline import Pipeline
from .progress import LiveLine, RunProgress, display_for, html


class EngineRun(Protocol):
    """Run that an engine has started."""

    def wait(self, *, timeout: float | None) -> None:
        """Waits for the end. Raises `JobFailed`, `KafkaTimeoutError`."""
        ...


R = TypeVar("R", bound=EngineRun)


@timeouts_by_name
class BoundPipeline(ABC, Generic[R]):
    """Pipeline and its run. The engine's subclass starts and stops it, and reads its progress."""

    _engine: ClassVar[Literal["ray", "spark"]]

    def __init__(self, pipeline: Pipeline, progress: bool | None) -> None:
        self.pipeline = pipeline
        self._running: R | None = None
        self._live = LiveLine(self._read, display_for(progress))

    @abstractmethod
    def start(self) -> Self: ...

    @abstractmethod
    def _read(self) -> RunProgress:
        """The run's progress, for the live line."""

    def run(self) -> None:
        """Starts, waits for the end, and leaves nothing behind. Raises as `start` and `wait`."""
        with self.start():
            self.wait()

    def wait(self, *, timeout: float | None = None) -> None:
        """Waits until the run has ended, which a bounded one does by itself.

        Raises `JobFailed`, whose cause is a `StageError` or a `SinkError` where the pipeline failed, and
        `KafkaTimeoutError` after `timeout` seconds.
        """
        limit_s = wait_of(timeout)
        with self._live.until_over():
            self._run.wait(timeout=limit_s)

    def explain(self) -> str:
        """Describes which stage runs where on this engine."""
        return self.pipeline.explain(self._engine)

    @property
    def _run(self) -> R:
        if self._running is None:
            raise UsageError("it is not started: call start() or run()")
        return self._running

    def _check_new(self) -> None:
        """Raises `UsageError` for a pipeline that was started before."""
        if self._running is not None:
            raise UsageError(f"it was started already: make another one with on_{self._engine}(…)")

    def __enter__(self) -> Self:
        return self

    @abstractmethod
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def _repr_html_(self) -> str:
        """A table of the progress, or the plan before the start, for notebooks."""
        return html(self._read()) if self._running is not None else f"<pre>{escape(self.explain())}</pre>"

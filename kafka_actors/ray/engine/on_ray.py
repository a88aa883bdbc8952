"""`OnRay`: a pipeline bound to Ray, before it starts, while it runs, and after."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

from kafka_actors.base.timeouts import timeouts_by_name
from kafka_actors.errors import ConfigError
from kafka_actors.job import Autoscale, JobStatus
from kafka_actors.pipeline import Pipeline
from kafka_actors.pipeline.bound_pipeline import BoundPipeline, RunProgress
from kafka_actors.pipeline.engines import RUN_OPTIONS, CheckedPipeline, check_travels, explain
from kafka_actors.pipeline.stages import WriteParquet
from kafka_actors.ray import Job, RunningJob
from kafka_actors.ray.log_settings import quiet_lines

from .pipeline_function import PipelinePlan, function_of

PARQUET_COMMIT_MS = 10_000
"""Commit interval with a Parquet sink, which writes a file per partition at each commit: one a second would be many."""

_PIPELINES = (
    "on_error",
    "retries",
    "dead_letter_topic",
    "process",
    "process_message",
    "sink",
    "topics",
    "pattern",
)
"""Arguments of `Job` that the pipeline's stages set."""

_SOURCES = ("bootstrap_servers", "group_id")
"""Arguments of `Job` that `read_kafka` sets; `config` may override them."""


@timeouts_by_name
class OnRay(BoundPipeline[RunningJob]):
    """A job whose workers run all stages of a pipeline on each batch, and its sinks.

        run = orders.on_ray(workers=8).start()
        run.status(); run.wait(); run.stop()

    As a context manager it stops at the end of the block. `job` is the `Job` behind it. `progress`: a live line on
    stderr, or in a notebook's cell; None shows it where there is a terminal or a notebook.
    """

    engine = "ray"

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        workers: int | Autoscale = 1,
        resources_per_worker: Mapping[str, Any] | None = None,
        config: Mapping[str, Any] | None = None,
        progress: bool | None = None,
        **options: Any,
    ) -> None:
        pipeline = pipeline.ready()
        checked = pipeline.check("ray")
        source = pipeline.source
        assert source is not None  # the check requires one, and a sink
        more = {str(name).replace(".", "_"): value for name, value in (config or {}).items()}
        wrong = [n for n in options if n in (*_PIPELINES, *_SOURCES)] + [n for n in more if n in _PIPELINES]
        if wrong:
            raise ConfigError(wrong[0], "is the pipeline's: say it there")
        # Options of this call override those of the source.
        merged = {**{n: v for n, v in source.options.items() if n not in options}, **more}
        for option, (value, stage) in checked.run_options.items():
            other = options.get(option, merged.setdefault(option, value))
            if other != value:
                raise ConfigError(
                    stage,
                    f"{option} is {value!r}, and the run's options say {other!r}: a run has one; say it once",
                )
        if any(isinstance(sink.step.stage, WriteParquet) for sink in checked.sinks):
            merged.setdefault("auto_commit_interval_ms", PARQUET_COMMIT_MS)
        resources = resources_per_worker
        if checked.num_gpus and (resources is None or isinstance(resources, Mapping)):
            resources = {"num_gpus": checked.num_gpus, **(resources or {})}
        group_id = merged.pop("group_id")
        by_partition = {**merged, **options}.get("ordering", "partition") == "partition"
        super().__init__(pipeline, progress)
        self._arguments = {"workers": workers, "resources_per_worker": resources_per_worker, **options}
        self._config = more
        with _naming_stages(checked):
            self.job = Job(
                topics=source.topics,
                pattern=source.pattern,
                group_id=group_id,
                bootstrap_servers=merged.pop("bootstrap_servers"),
                process=function_of(PipelinePlan(pipeline, group_id, by_partition)),
                workers=workers,
                resources_per_worker=resources,
                retries=0 if by_partition else pipeline.retries,  # by partition stages have their own
                config=merged,
                **options,
            )

    def changed(
        self,
        options: Mapping[str, Any],
        *,
        topics: Iterable[str] | None = None,
        pattern: str | None = None,
        resources_per_worker: Mapping[str, Any] | None = None,
        **arguments: Any,
    ) -> OnRay:
        """A copy that has not started, with other values for what is given, as `Job.changed` makes one: `options` are those
        of `JobConfig`, underscored, and hold for sink and dead letters where these use the source's connection.

        Raises `ConfigError` as making it does.
        """
        pipeline = self.pipeline.reading(options, topics=topics, pattern=pattern)
        kept = {name: value for name, value in self._arguments.items() if name not in options}
        if resources_per_worker is not None:
            kept["resources_per_worker"] = {**(kept["resources_per_worker"] or {}), **resources_per_worker}
        config = {name: value for name, value in self._config.items() if name not in options}
        return OnRay(pipeline, config=config, progress=False, **{**kept, **arguments})

    def check_travels(self) -> None:
        """Checks that users' code can be sent to the workers. Raises `ConfigError`, naming stage and variable."""
        if (dumps := _dumps()) is not None:
            check_travels(self.pipeline.check("ray"), dumps)

    def start(self) -> Self:
        """Starts and returns when all workers are ready. Raises as `Job.start`."""
        self._check_new()
        self.check_travels()
        self._running = self.job.start(each=self._live.starting(self._reading))
        self._live.start()
        return self

    def stop(self, *, timeout: float | None = None, leave: bool = True) -> None:
        """Finishes what is in hand, flushes the sinks, commits, leaves the group. Safe to call twice. `timeout`: as of `RunningJob.stop`."""
        if self._running is not None:
            self._live.end()
            self._running.stop(timeout=timeout, leave=leave)
            self._live.last()

    def status(self) -> JobStatus:
        """Workers, partitions, positions, lag."""
        return self._run.status()

    def scale(self, workers: int | Autoscale) -> None:
        """Sets the number of workers, or the policy that decides about it; see `RunningJob.scale`."""
        self._run.scale(workers)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._running is not None:
            self._live.end()
            try:
                self._running.__exit__(kind, error, trace)
            finally:
                self._live.last()

    def explain(self) -> str:
        """Describes which stage runs where; and, where it delivers exactly once, the transactions so far."""
        config = self.job.config
        text = explain(self.pipeline, self.engine, {name: getattr(config, name) for name in RUN_OPTIONS})
        if config.delivery != "exactly_once":
            return text
        text += "\n  exactly once: results, dead letters and offsets are in transactions, one each commit"
        found = None if self._running is None else self._running.status().transactions
        if found is None:
            return text
        last = "none yet" if found.committed_ago_s is None else f"the last {found.committed_ago_s:.1f} s ago"
        opened = "" if found.open_s is None else f", open for {found.open_s:.1f} s"
        aborted = f"; {found.aborted:,} aborted: {found.cause}" if found.aborted else ""
        return f"{text}\n  {found.committed:,} committed, {last}{opened}{aborted}"

    def progress(self) -> RunProgress:
        """The run's progress now."""
        return self._reading(self.status())

    def _reading(self, status: JobStatus) -> RunProgress:
        return RunProgress(
            title=self.pipeline.title,
            state=status.state,
            elapsed_s=max(0.0, status.at_s - status.started_s),
            records=status.records,
            records_per_s=status.totals.records_per_s or 0.0,
            lag=status.totals.lag,
            workers=len(status.workers),
            waits_for=status.waits_for,
        )

    def __repr__(self) -> str:
        state = "not started" if self._running is None else "started"
        return f"<OnRay {self.pipeline!r}, {self.job.workers} workers, {state}>"


@contextmanager
def _naming_stages(checked: CheckedPipeline) -> Iterator[None]:
    """Context in which a refusal of what a stage says of the run names that stage."""
    try:
        yield
    except ConfigError as error:
        said = checked.run_options
        name = "ordering" if error.option == "batch_linger_ms" else error.option
        if name not in said:
            raise
        raise ConfigError(said[name][1], f"{error.option} {error.message}") from None


def _dumps() -> Callable[[Any], bytes] | None:
    """Returns Ray's pickler; None where Ray is not installed, which `Job.start` reports."""
    quiet_lines()
    try:
        from ray import cloudpickle
    except ModuleNotFoundError:
        return None
    dumps: Callable[[Any], bytes] = cloudpickle.dumps
    return dumps

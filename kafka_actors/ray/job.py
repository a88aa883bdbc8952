"""`Job`, what a user defines, and `RunningJob`, what a user holds while it runs."""

from __future__ import annotations

import copy
import difflib
import inspect
import logging
import os
import signal
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping
from types import FrameType, ModuleType, TracebackType
from typing import Any, Literal, Protocol

import assignors
from kafka_actors.base.addresses import parse_listening
from kafka_actors.base.timeouts import checked_amount, timeouts_by_name, wait_of
from kafka_actors.base.topics import check_dlq_topic, check_pattern, check_results, check_topic, check_topics
from kafka_actors.config import JobConfig, build, refusal
from kafka_actors.errors import ConfigError, JobFailed, KafkaTimeoutError, UsageError, kind_of
from kafka_actors.job.autoscale import Autoscale, checked_workers
from kafka_actors.job.plan import JobPlan
from kafka_actors.job.status import JobStatus
from kafka_actors.job.worker.outputs import OutputsSpec
from kafka_actors.job.worker.user_function import checked
from kafka_actors.options import WORKER_RESOURCES
from kafka_actors.sinks import KafkaSink, as_sink
from kafka_actors.telemetry.settings import Settings

from .log_settings import quiet_lines

__all__ = ["Job", "RunningJob"]

logger = logging.getLogger(__name__)

AMOUNTS = frozenset({"num_cpus", "num_gpus", "memory"})


class Job:
    """A consumer group member that runs as worker actors on Ray. Options are checked here; `start` runs the job.

    Arguments:
        topics: names to consume (a str is one name), or `pattern`: a regular expression that whole topic names match.
        group_id: the Kafka consumer group.
        bootstrap_servers: `host:port`, several with commas, or a list.
        process: a function or async function over a `pyarrow.RecordBatch` of one partition, or a class. A class is
            constructed once per worker and called per batch; its `close()`, if any, is called at the end.
        process_message: the same over one `Message` instead.
        sink: takes the RecordBatches that `process` returns: `KafkaSink("scored")`, `ParquetSink(path)`, a function
            over batches, or a class with `write(batch)` and optionally `flush()` and `close()`, constructed once per
            worker. It is flushed before offsets are committed. A `process` class may have a `flush()` too, which is
            called then, possibly while another call is under way.
        workers: how many worker actors; or `Autoscale(min=1, max=16)` for as many as the records need.
        until: None runs until stopped; "latest" stops at the end offsets that the topics have at the start (the
            last stable offsets under `read_committed`).
        partition_assignment_strategy: assignors offered to the group, in order of preference.
        worker_assignor: the assignor that spreads the job's partitions over its workers.
        auto_offset_reset: "earliest", "latest", "none" or "by_duration:PT1H", where the group has no offset.
        on_error: what happens after `retries` retries. "fail" ends the job; the other two find the records at fault by calling
            `process` on halves of the batch: "skip" goes on without them, with an event; "dead_letter" sends them to
            `dead_letter_topic`, acknowledged before their offsets are committed.
        dead_letter_topic: must not be a topic that the job reads.
        batch_rows: regroup records into batches of this many rows.
        batch_linger_ms: how long to wait for a batch to fill; needs `batch_rows`.
        name: keeps the member's identity over restarts, and is what `attach` looks for.
        detached: go on after the driver has ended; needs a `name`.
        status_address: where to serve a status page, such as `":8000"`, with JSON, metrics and health beside it: to this
            machine only, unless a host is given (`"0.0.0.0:8000"` for all). With port 0 the system picks a free port,
            and `status().page` says which.
        resources_per_worker: Ray's names: num_cpus, num_gpus, memory (bytes), resources, accelerator_type, runtime_env.
        config: any other option of `JobConfig`, with underscores or dots.

    Raises `ConfigError`, naming the option, before anything connects.
    """

    def __init__(
        self,
        *,
        group_id: str,
        bootstrap_servers: str | Iterable[str],
        topics: str | Iterable[str] | None = None,
        pattern: str | None = None,
        process: Any = None,
        process_message: Any = None,
        sink: Any = None,
        workers: int | Autoscale = 1,
        until: Literal["latest"] | None = None,
        partition_assignment_strategy: Any = "cooperative-sticky",
        worker_assignor: Any = "sticky",
        auto_offset_reset: str = "earliest",
        on_error: str = "fail",
        retries: int = 3,
        dead_letter_topic: str | None = None,
        batch_rows: int | None = None,
        batch_linger_ms: int = 0,
        name: str | None = None,
        detached: bool = False,
        status_address: str | None = None,
        resources_per_worker: Mapping[str, Any] | None = None,
        config: Mapping[str, Any] | None = None,
        **unknown: Any,
    ) -> None:
        _check_names(unknown, config)
        arguments = _not_in(
            config,
            group_id=group_id,
            bootstrap_servers=bootstrap_servers,
            partition_assignment_strategy=partition_assignment_strategy,
            worker_assignor=worker_assignor,
            auto_offset_reset=auto_offset_reset,
            on_error=on_error,
            retries=retries,
            batch_rows=batch_rows,
            batch_linger_ms=batch_linger_ms,
        )
        self.config = build(JobConfig, config, **arguments)
        self.topics = _topics(topics, pattern)
        self.pattern = pattern
        self.workers = checked_workers(workers)
        self.until = until
        self.name = _name(name)
        self.detached = detached
        self.status_address = status_address
        self.resources = _resources(resources_per_worker)
        self._process = process
        self._process_message = process_message
        self._sink = None if sink is None else as_sink(sink)
        self.dead_letter_topic = dead_letter_topic
        self._check()

    def _check(self) -> None:
        """What the options say together, and what workers are told of them. Raises `ConfigError`."""
        config = self.config
        self._page_at = _listening(self.status_address)
        letters = _dead_letters(config.on_error, self.dead_letter_topic)
        if letters is not None:
            check_dlq_topic(letters, "dead_letter_topic", self.topics, self.pattern)
        if (
            isinstance(sink := self._sink, KafkaSink)
            and sink.topic
            and "bootstrap_servers" not in sink.options
        ):
            check_results(sink.topic, "sink", self.topics, self.pattern)
        outputs = OutputsSpec(self._sink, letters)
        self._spec = checked(self._process, self._process_message, config.retries, config.on_error, outputs)
        if self.until not in (None, "latest"):
            raise ConfigError("until", f"is {self.until!r}: accepts None or 'latest'")
        if self.detached and not self.name:
            raise ConfigError("name", "is needed for a detached job: it is what Job.attach(name) looks for")
        if config.group_id is None:
            raise ConfigError("group_id", "is required")
        if config.batch_linger_ms and config.batch_rows is None:
            said = f"is {config.batch_linger_ms} without batch_rows: nothing says when a batch is full"
            raise ConfigError("batch_linger_ms", said)
        _check_assignors(config)

    def changed(
        self,
        options: Mapping[str, Any] | None = None,
        *,
        topics: str | Iterable[str] | None = None,
        pattern: str | None = None,
        workers: int | Autoscale | None = None,
        until: Literal["latest"] | None = None,
        dead_letter_topic: str | None = None,
        name: str | None = None,
        status_address: str | None = None,
        resources_per_worker: Mapping[str, Any] | None = None,
    ) -> Job:
        """A copy with other values for what is given; `options` are those of `JobConfig`, underscored. `topics` or a
        `pattern` take the place of both; of `resources_per_worker` those that are named.

        Raises `ConfigError` as making it does.
        """
        job = copy.copy(self)
        if options:
            known = {name: getattr(self.config, name) for name in self.config.__struct_fields__}
            job.config = build(JobConfig, {**known, **options})
        if topics is not None or pattern is not None:
            job.topics, job.pattern = _topics(topics, pattern), pattern
        if workers is not None:
            job.workers = checked_workers(workers)
        if until is not None:
            job.until = until
        if dead_letter_topic is not None:
            job.dead_letter_topic = dead_letter_topic
        if name is not None:
            job.name = _name(name)
        if status_address is not None:
            job.status_address = status_address
        job.resources = {**job.resources, **_resources(resources_per_worker)}
        job._check()
        return job

    def start(self, *, each: Callable[[JobStatus], None] | None = None) -> RunningJob:
        """Starts the job on the Ray cluster that is connected or found, else on a local one. Returns when all workers
        are ready.

        Until then `each` is called twice a second with the job's status, whose `waits_for` says what is missing. Without
        it, what is missing for more than a few seconds is logged as a warning.

        Raises what keeps it from starting: `NoBrokersAvailable`, `UnknownTopicOrPartitionError`,
        `StartTimeoutError` (which names the missing resource), `JobNameInUseError`, `ConfigError`, `UsageError`
        where Ray is not installed, or what the constructor of a `process` class raised.
        """
        running: RunningJob = _starting().start_job(self, each)
        return running

    @staticmethod
    def attach(name: str) -> RunningJob:
        """The detached job of this name in the Ray cluster. Raises `UsageError` if there is none."""
        running: RunningJob = _starting().attach_job(name)
        return running

    def plan(self) -> JobPlan:
        """The definition for a supervisor, with the identity that this start has."""
        config = self.config
        identity = config.group_instance_id
        if identity == "auto":
            identity = f"{config.group_id}-{self.name or uuid.uuid4()}"
        return JobPlan(
            topics=self.topics,
            pattern=self.pattern,
            spec=self._spec,
            config=config,
            workers=self.workers,
            bounded=self.until == "latest",
            group_instance_id=identity,
            name=self.name,
            resources=self.resources,
            log_level=logging.getLogger("kafka_actors").getEffectiveLevel(),
            telemetry=Settings.of_process(os.environ, page=self._page_at is not None),
            status_address=self._page_at,
        )

    def __repr__(self) -> str:
        what = self.pattern or ",".join(self.topics or ())
        return f"<Job {self.config.group_id} on {what}, {self.workers} workers>"


class JobControl(Protocol):
    """A supervisor, wherever it runs. All calls block; `timeout` in seconds."""

    def status(self) -> JobStatus: ...
    def scale(self, workers: int | Autoscale) -> None: ...
    def pause(self, paused: bool) -> None: ...
    def wait(self, timeout: float | None) -> bool: ...
    def stop(self, timeout: float, leave: bool) -> bool: ...
    def detach(self) -> None: ...


@timeouts_by_name
class RunningJob:
    """A running job. As a context manager it stops the job at the end of the block."""

    def __init__(self, control: JobControl, *, stop_at_exit: bool = True) -> None:
        self._control = control
        self._stop_at_exit = stop_at_exit
        self._raised = False

    def status(self) -> JobStatus:
        """Workers, their partitions, positions, lag and restarts."""
        return self._control.status()

    def scale(self, workers: int | Autoscale) -> None:
        """Sets the number of workers, or the policy that decides it. The last call counts: after `scale(8)` there are
        8 workers until `scale(job.workers)` lets the job's own policy decide again.

        Only the partitions that must move do, drained first; the group doesn't notice. Returns at once; `status()`
        shows the progress. If the Ray cluster has no room for that many within `start_timeout_s`, the log and
        `status().scaling` say what is missing, and the job goes on with the workers it has."""
        self._control.scale(checked_workers(workers))

    def pause(self) -> None:
        """No new call of the user's function until `resume()`; the job keeps its partitions."""
        self._control.pause(True)

    def resume(self) -> None:
        """Ends a `pause()`."""
        self._control.pause(False)

    def wait(self, *, timeout: float | None = None) -> None:
        """Waits until the job has ended.

        SIGTERM, in the main thread, stops the job and ends the wait; a second one ends the process at once.
        Raises `JobFailed`, whose `__cause__` says why, and `KafkaTimeoutError` after `timeout` seconds.
        """
        limit_s = wait_of(timeout)
        with _StopOnSigterm() as signals:
            try:
                ended = (
                    self._control.wait(limit_s)
                    if not signals.possible
                    else self._wait_or_stop(signals, limit_s)
                )
            except JobFailed:
                self._raised = True
                raise
        if not ended:
            raise KafkaTimeoutError(f"the job still runs after {timeout:g} s")

    def _wait_or_stop(self, signals: _StopOnSigterm, timeout: float | None) -> bool:
        """In slices, so that a signal's handler gets to run and is heeded."""
        left = timeout
        while True:
            if signals.asked:
                self.stop()
                return True
            piece = 0.2 if left is None else min(0.2, left)
            if self._control.wait(piece):
                return True
            if left is not None:
                left -= piece
                if left <= 0:
                    return False

    def stop(self, *, timeout: float = 30.0, leave: bool = True) -> bool:
        """Drains within `drain_timeout_ms`, commits, leaves the group (unless `leave=False`, for rolling
        deploys) and ends all actors; returns within `timeout` seconds. Safe to call twice.

        Returns whether the brokers have confirmed the commits of all that was processed, False too where a detached job is gone
        and nobody can say. If not, `status().unconfirmed`
        names the partitions whose last records come again at the next start."""
        return self._control.stop(checked_amount("timeout", timeout), leave)

    def __enter__(self) -> RunningJob:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._stop_at_exit:
            self._control.detach()
            return
        self.stop()
        if error is None and not self._raised:
            self._control.wait(0)

    def __repr__(self) -> str:
        return f"<RunningJob {self._control!r}>"


class _StopOnSigterm:
    """Installed for the time of a `wait`, after Ray's own handler; only the main thread can."""

    def __init__(self) -> None:
        self.asked = False
        self.possible = False
        self._before: Any = None

    def __enter__(self) -> _StopOnSigterm:
        self.possible = threading.current_thread() is threading.main_thread()
        if self.possible:
            self._before = signal.signal(signal.SIGTERM, self._heard)
        return self

    def _heard(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.raise_signal(signal.SIGTERM)
        self.asked = True

    def __exit__(self, *_: object) -> None:
        if self.possible:
            signal.signal(signal.SIGTERM, self._before)


def _starting() -> ModuleType:
    """What needs Ray; a job can be defined, and a `Consumer` used, without it."""
    quiet_lines()
    try:
        from . import start
    except ModuleNotFoundError as error:
        if error.name != "ray":
            raise
        raise UsageError(
            "a job runs on Ray, which is not installed: pip install 'kafka-actors[ray]'"
        ) from None
    return start


def _check_names(unknown: Mapping[str, Any], config: Any) -> None:
    """What is an argument, and what belongs into `config`."""
    kinds = inspect.Parameter.KEYWORD_ONLY
    arguments = [n for n, p in inspect.signature(Job.__init__).parameters.items() if p.kind is kinds]
    options = JobConfig.__struct_fields__
    for name in unknown:
        if name in options:
            raise ConfigError(name, f"is no argument of Job; give it as config={{{name!r}: …}}")
        if (why := refusal(name)) is not None:
            raise ConfigError(name, why)
        close = difflib.get_close_matches(name, [*arguments, *options], n=1)
        raise ConfigError(name, "is not an option" + (f"; did you mean {close[0]!r}?" if close else ""))
    for name in config if isinstance(config, Mapping) else ():
        if name in arguments and name not in options:
            raise ConfigError(name, "is an argument of Job; give it there, not in config={…}")


def _not_in(config: Any, **arguments: Any) -> dict[str, Any]:
    """The arguments, without those that were left at their defaults and stand in `config`."""
    if not isinstance(config, Mapping):
        return arguments
    parameters = inspect.signature(Job.__init__).parameters
    there = {str(name).replace(".", "_") for name in config}
    return {
        name: value
        for name, value in arguments.items()
        if name not in there or value != parameters[name].default
    }


def _topics(topics: str | Iterable[str] | None, pattern: Any) -> list[str] | None:
    if (topics is None) == (pattern is None):
        raise ConfigError("topics", "give exactly one of topics= and pattern=")
    if pattern is not None:
        if not isinstance(pattern, str):
            raise ConfigError("pattern", f"is {pattern!r}, {kind_of(pattern)}: accepts a str")
        check_pattern(pattern)
        return None
    names = check_topics([topics] if isinstance(topics, str) else topics)
    if not names:
        raise ConfigError("topics", "is empty")
    return sorted(names)


def _dead_letters(on_error: str, topic: Any) -> str | None:
    if (on_error == "dead_letter") != (topic is not None):
        raise ConfigError(
            "dead_letter_topic",
            "is missing: on_error='dead_letter' needs one"
            if topic is None
            else "is given without on_error='dead_letter'",
        )
    return None if topic is None else check_topic(topic, "dead_letter_topic")


def _listening(address: Any) -> tuple[str, int] | None:
    if address is not None and not isinstance(address, str):
        raise ConfigError(
            "status_address", f"is {address!r}, {kind_of(address)}: accepts a text such as ':8000'"
        )
    return None if address is None else parse_listening("status_address", address)


def _name(name: Any) -> str | None:
    if name is not None and (not isinstance(name, str) or not name.strip()):
        raise ConfigError("name", f"is {name!r}: accepts a name that is not empty, or None for none")
    return name


def _resources(resources: Any) -> dict[str, Any]:
    if resources is None:
        return {}
    known = ", ".join(sorted(WORKER_RESOURCES))
    if not isinstance(resources, Mapping):
        what = f"{resources!r}, {kind_of(resources)}"
        raise ConfigError("resources_per_worker", f"is {what}: accepts a dict with {known}")
    for name, value in resources.items():
        if name not in WORKER_RESOURCES:
            raise ConfigError("resources_per_worker", f"has {name!r}: accepts {known}")
        if name == "resources" and isinstance(value, Mapping):
            for kind, amount in value.items():
                _check_amount(f"resources[{kind!r}]", amount)
        elif name in AMOUNTS:
            _check_amount(name, value)
    return dict(resources)


def _check_amount(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise ConfigError(
            "resources_per_worker", f"has {name}={value!r}: accepts a number of 0 or more (memory in bytes)"
        )


def _check_assignors(config: JobConfig) -> None:
    for option, names in (
        ("partition_assignment_strategy", config.partition_assignment_strategy),
        ("worker_assignor", [config.worker_assignor]),
    ):
        for name in names:
            try:
                assignors.get(name)
            except (TypeError, ValueError) as error:
                raise ConfigError(option, str(error)) from None

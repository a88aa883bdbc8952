"""`Job`: the definition of a job."""

from __future__ import annotations

import copy
import inspect
import logging
import os
import uuid
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

from kafka_actors.base.backoff import Backoff
from kafka_actors.base.topics import check_dlq_topic, check_results
from kafka_actors.config import JobConfig, build
from kafka_actors.errors import ConfigError, UsageError
from kafka_actors.job.autoscale import Autoscale, checked_workers
from kafka_actors.job.plan import JobPlan
from kafka_actors.job.retry_topics import RetryTiers, RetryTopics
from kafka_actors.job.status import JobStatus
from kafka_actors.job.transactions import TransactionalIds, prefix_of
from kafka_actors.job.worker.outputs import OutputsSpec
from kafka_actors.job.worker.user_function import checked
from kafka_actors.sinks.sink import as_sinks
from kafka_actors.telemetry.sdk import Settings

from .job_options import (
    check_assignors,
    check_names,
    check_ordering,
    checked_backoff,
    checked_dead_letter_topic,
    checked_name,
    checked_producer_options,
    checked_resources,
    checked_retry_topics,
    checked_topics,
    explicit_arguments,
    names_of,
    option_of,
    parsed_status_address,
    transaction_timeout_ms,
    with_read_committed,
)
from .log_settings import quiet_lines

if TYPE_CHECKING:
    from kafka_actors.config.typed_options import JobOptions

    from .running_job import RunningJob

__all__ = ["Job"]


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
            worker; or a list of these, each of which gets all results. All are flushed before offsets are committed.
            A `process` class may have a `flush()` too, which is called then, possibly while another call is under way.
        workers: how many worker actors; or `Autoscale(min=1, max=16)` for as many as the records need.
        until: None runs until stopped; "latest" stops at the end offsets that the topics have at the start (the
            last stable offsets under `read_committed`).
        partition_assignment_strategy: assignors offered to the group, in order of preference.
        worker_assignor: the assignor that spreads the job's partitions over its workers.
        auto_offset_reset: "earliest", "latest", "none" or "by_duration:PT1H", where the group has no offset.
        on_error: what happens after `retries` retries. "fail" ends the job; the others find the records at fault by calling
            `process` on halves of the batch: "skip" goes on without them, with an event; "dead_letter" sends them to
            `dead_letter_topic`, acknowledged before their offsets are committed; `RetryTopics(…)` has them wait in topics of their own,
            and tries them again later.
        retry_backoff: how long to wait before each retry, by default 0.1 seconds, which double up to 2. Other partitions, or with
            `ordering="key"` other keys, go on meanwhile.
        delivery: "at_least_once"; or "exactly_once": results and dead letters are written in transactions together with the
            offsets of their records, so that who reads them with `read_committed` sees each once, whatever dies. The job
            reads with `read_committed` then, each sink has to be a `KafkaSink` to the job's own cluster, and it ends what an
            earlier start under the same `name` or `group_instance_id` left open.
        dead_letter_topic: must not be a topic that the job reads.
        ordering: which records wait for each other. "partition": each for those before it in its partition, one call at a time.
            "key": for those before it with the same key in its partition; records without a key for none. "unordered": for none.
        concurrency: how many calls each worker makes at once, with another `ordering` than "partition": of an async function as
            tasks in one loop, of others in threads. Offsets are committed up to the first record that isn't done, and what is
            done beyond it is kept with them.
        batch_rows: regroup records into batches of this many rows; with another `ordering`, the most rows of a call.
        batch_linger_ms: how long to wait for a batch to fill; needs `batch_rows`.
        name: keeps the member's identity over restarts, and is what `attach` looks for.
        detached: go on after the driver has ended; needs a `name`, and a Ray cluster that is there.
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
        on_error: str | RetryTopics = "fail",
        retries: int = 3,
        retry_backoff: Backoff | None = None,
        delivery: str = "at_least_once",
        dead_letter_topic: str | None = None,
        ordering: Literal["partition", "key", "unordered"] = "partition",
        concurrency: int = 1,
        batch_rows: int | None = None,
        batch_linger_ms: int = 0,
        name: str | None = None,
        detached: bool = False,
        status_address: str | None = None,
        resources_per_worker: Mapping[str, Any] | None = None,
        config: JobOptions | Mapping[str, Any] | None = None,
        **unknown: Any,
    ) -> None:
        check_names(_DEFAULTS, unknown, config)
        self.retry_topics = on_error if isinstance(on_error, RetryTopics) else None
        arguments = explicit_arguments(
            _DEFAULTS,
            config,
            group_id=group_id,
            bootstrap_servers=bootstrap_servers,
            partition_assignment_strategy=partition_assignment_strategy,
            worker_assignor=worker_assignor,
            auto_offset_reset=auto_offset_reset,
            on_error=on_error if self.retry_topics is None else "dead_letter",
            retries=retries,
            delivery=delivery,
            ordering=ordering,
            concurrency=concurrency,
            batch_rows=batch_rows,
            batch_linger_ms=batch_linger_ms,
        )
        self.config = build(JobConfig, config, **arguments)
        self._isolation_level = option_of(config, "isolation_level")
        self._explicit = names_of(config)
        self.topics = checked_topics(topics, pattern)
        self.pattern = pattern
        self.workers = checked_workers(workers)
        self.until = until
        self.name = checked_name(name)
        self.detached = detached
        self.status_address = status_address
        self.resources = checked_resources(resources_per_worker)
        self._process = process
        self._process_message = process_message
        self._sinks = as_sinks(sink)
        self.dead_letter_topic = dead_letter_topic
        self.retry_backoff = checked_backoff(retry_backoff, self.config)
        self._check()

    def _check_results(self, tiers: RetryTiers) -> None:
        """Raises `ConfigError` for a sink that writes into a topic which the job reads."""
        from kafka_actors.sinks import KafkaSink  # imports a producer, as a job without sinks doesn't

        read = self.topics and [*self.topics, *tiers.topics]
        for sink in self._sinks:
            if isinstance(sink, KafkaSink) and sink.topic and "bootstrap_servers" not in sink.options:
                check_results(sink.topic, "sink", read, self.pattern)

    def _check(self) -> None:
        """Checks the options together, and makes the parts of the plan that depend on several. Raises `ConfigError`."""
        config = self.config
        self._page_at = parsed_status_address(self.status_address)
        dead_letter_topic, tiers = self._after_errors()
        if dead_letter_topic is not None:
            check_dlq_topic(dead_letter_topic, "dead_letter_topic", self.topics, self.pattern)
        if self._sinks:
            self._check_results(tiers)
        producer_options = None
        if config.delivery == "exactly_once":
            self.config = config = with_read_committed(config, self._isolation_level)
            producer_options = checked_producer_options(
                config, self._sinks, self._process, dead_letters=dead_letter_topic is not None
            )
        outputs = OutputsSpec(self._sinks, dead_letter_topic, producer_options, tiers)
        self._spec = checked(
            self._process, self._process_message, config.retries, config.on_error, outputs, self.retry_backoff
        )
        if self.until not in (None, "latest"):
            raise ConfigError("until", f"is {self.until!r}: accepts None or 'latest'")
        if self.detached and not self.name:
            raise ConfigError("name", "is needed for a detached job: it is what Job.attach(name) looks for")
        if config.group_id is None:
            raise ConfigError("group_id", "is required")
        if config.batch_linger_ms and config.batch_rows is None:
            reason = f"is {config.batch_linger_ms} without batch_rows: nothing says when a batch is full"
            raise ConfigError("batch_linger_ms", reason)
        check_ordering(config, self._explicit)
        check_assignors(config)

    def _after_errors(self) -> tuple[str | None, RetryTiers]:
        """Returns the topic of dead letters, None for none, and the retry topics. Raises `ConfigError`."""
        if self.retry_topics is None:
            return checked_dead_letter_topic(self.config.on_error, self.dead_letter_topic), RetryTiers()
        if self.dead_letter_topic is not None:
            raise ConfigError("dead_letter_topic", "is given twice: on_error=RetryTopics(…) has one")
        tiers = checked_retry_topics(self.retry_topics, self.config, self.topics)
        return self.retry_topics.dead_letter_topic, tiers

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
            job._isolation_level = option_of(options, "isolation_level") or job._isolation_level
            job._explicit = self._explicit | names_of(options)
            if option_of(options, "on_error") is not None:
                job.retry_topics = None
        if topics is not None or pattern is not None:
            job.topics, job.pattern = checked_topics(topics, pattern), pattern
        if workers is not None:
            job.workers = checked_workers(workers)
        if until is not None:
            job.until = until
        if dead_letter_topic is not None:
            job.dead_letter_topic = dead_letter_topic
        if name is not None:
            job.name = checked_name(name)
        if status_address is not None:
            job.status_address = status_address
        job.resources = {**job.resources, **checked_resources(resources_per_worker)}
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
        running: RunningJob = _start_module().start_job(self, each)
        return running

    @staticmethod
    def attach(name: str) -> RunningJob:
        """The detached job of this name in the Ray cluster. Raises `UsageError` if there is none, `KafkaTimeoutError` where its actor
        doesn't answer."""
        running: RunningJob = _start_module().attach_job(name)
        return running

    def plan(self) -> JobPlan:
        """The definition for a supervisor, with the identity that this start has."""
        config = self.config
        identity = config.group_instance_id
        if identity == "auto":
            identity = f"{config.group_id}-{self.name or uuid.uuid4()}"
        return JobPlan(
            topics=self.topics and [*self.topics, *self._spec.outputs.tiers.topics],
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
            transactions=self._transactional_ids(),
        )

    def _transactional_ids(self) -> TransactionalIds | None:
        """The ids of the workers' producers: the same at each start of a job with a `name` or a `group_instance_id`."""
        options, config = self._spec.outputs.producer_options, self.config
        if options is None:
            return None
        instance = config.group_instance_id
        own = self.name or (instance if instance not in (None, "auto") else None)
        prefix = prefix_of(str(config.group_id), own or str(uuid.uuid4()))
        return TransactionalIds(prefix, transaction_timeout_ms(options), own is not None)

    def __repr__(self) -> str:
        what = self.pattern or ",".join(self.topics or ())
        return f"<Job {self.config.group_id} on {what}, {self.workers} workers>"


def _start_module() -> ModuleType:
    """Imports the part that needs Ray: without it a job can be defined, and a `Consumer` used."""
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


_DEFAULTS = {
    name: parameter.default
    for name, parameter in inspect.signature(Job.__init__).parameters.items()
    if parameter.kind is inspect.Parameter.KEYWORD_ONLY
}
"""The arguments of `Job` and their default values."""

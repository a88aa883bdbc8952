"""Arguments and options of `Job`, checked one by one. All raise `ConfigError`, which names the option.

With `delivery="exactly_once"` one producer of each worker writes to all sinks, in the cluster whose offsets its transactions commit: so
sinks have to be of one kind, of one cluster, and agree about their options.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

import assignors
from kafka_actors.base.addresses import parse_listening
from kafka_actors.base.backoff import Backoff
from kafka_actors.base.topics import check_pattern, check_retry_topic, check_topic, check_topics
from kafka_actors.config import JobConfig, ProducerConfig, refusal
from kafka_actors.errors import ConfigError, kind_of
from kafka_actors.job.retry_topics import RetryTiers, RetryTopics
from kafka_actors.options import WORKER_RESOURCES

__all__ = [
    "check_assignors",
    "check_names",
    "check_ordering",
    "checked_backoff",
    "checked_dead_letter_topic",
    "checked_name",
    "checked_producer_options",
    "checked_resources",
    "checked_retry_topics",
    "checked_topics",
    "explicit_arguments",
    "names_of",
    "option_of",
    "parsed_status_address",
    "transaction_timeout_ms",
    "with_read_committed",
]

WHERE_CALLS_OVERLAP = ("max_in_flight_records", "lanes_per_partition")
"""Options that do nothing with `ordering="partition"`."""
AMOUNTS = frozenset({"num_cpus", "num_gpus", "memory"})
"""Resources that are plain amounts."""
THE_JOBS_OWN = ("transactional_id", "acks", "enable_idempotence")
"""Options that the job sets: the id is that of a worker, and transactions need the others as they are."""
_DEFAULT_TIMEOUT_MS: int = ProducerConfig().transaction_timeout_ms


def check_names(defaults: Mapping[str, Any], unknown: Mapping[str, Any], config: Any) -> None:
    """Refuses unknown arguments, options that belong into `config`, and arguments that `config` has.

    `defaults`: the arguments of `Job` and their default values.
    """
    arguments = list(defaults)
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


def explicit_arguments(defaults: Mapping[str, Any], config: Any, **arguments: Any) -> dict[str, Any]:
    """Returns the arguments, without those that have their default value and are options in `config`."""
    if not isinstance(config, Mapping):
        return arguments
    configured = {str(name).replace(".", "_") for name in config}
    return {
        name: value for name, value in arguments.items() if name not in configured or value != defaults[name]
    }


def checked_topics(topics: str | Iterable[str] | None, pattern: Any) -> list[str] | None:
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


def checked_dead_letter_topic(on_error: str, topic: Any) -> str | None:
    if (on_error == "dead_letter") != (topic is not None):
        raise ConfigError(
            "dead_letter_topic",
            "is missing: on_error='dead_letter' needs one"
            if topic is None
            else "is given without on_error='dead_letter'",
        )
    return None if topic is None else check_topic(topic, "dead_letter_topic")


def checked_retry_topics(retries: RetryTopics, config: JobConfig, topics: list[str] | None) -> RetryTiers:
    """Returns the tiers of a job that reads these topics, None for a pattern."""
    if config.ordering == "partition":
        raise ConfigError(
            "on_error",
            "is RetryTopics with ordering='partition', whose records wait for each other: choose 'key' or 'unordered', or retry_backoff=, "
            "with which a partition waits",
        )
    if topics is None or len(topics) != 1:
        what = "a pattern" if topics is None else f"{len(topics)} topics"
        raise ConfigError("on_error", f"is RetryTopics with {what}: each goes with one topic, so give one")
    for topic in retries.topics:
        check_retry_topic(topic, "on_error", topics)
    return retries.tiers(topics[0], ordering=config.ordering)


def parsed_status_address(address: Any) -> tuple[str, int] | None:
    if address is not None and not isinstance(address, str):
        raise ConfigError(
            "status_address", f"is {address!r}, {kind_of(address)}: accepts a text such as ':8000'"
        )
    return None if address is None else parse_listening("status_address", address)


def checked_name(name: Any) -> str | None:
    if name is not None and (not isinstance(name, str) or not name.strip()):
        raise ConfigError("name", f"is {name!r}: accepts a name that is not empty, or None for none")
    return name


def checked_resources(resources: Any) -> dict[str, Any]:
    if resources is None:
        return {}
    known = ", ".join(sorted(WORKER_RESOURCES))
    if not isinstance(resources, Mapping):
        raise ConfigError("resources_per_worker", f"is {kind_of(resources)}: accepts a dict with {known}")
    for name, value in resources.items():
        if name not in WORKER_RESOURCES:
            raise ConfigError("resources_per_worker", f"has {name!r}: accepts {known}")
        if name == "resources" and isinstance(value, Mapping):
            for kind, amount in value.items():
                _check_amount(f"resources[{kind!r}]", amount)
        elif name in AMOUNTS:
            _check_amount(name, value)
        elif name == "runtime_env" and isinstance(value, Mapping):
            _check_variables(value.get("env_vars"))
    return dict(resources)


def _check_variables(variables: Any) -> None:
    """Refuses a variable that is no text, which Ray would at the start, in an error that shows it."""
    for name, value in variables.items() if isinstance(variables, Mapping) else ():
        if not isinstance(value, str):
            where = f"runtime_env['env_vars'][{name!r}]"
            raise ConfigError("resources_per_worker", f"has {where}, {kind_of(value)}: variables are str")


def _check_amount(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise ConfigError(
            "resources_per_worker", f"has {name}={value!r}: accepts a number of 0 or more (memory in bytes)"
        )


def checked_backoff(backoff: Any, config: JobConfig) -> Backoff:
    """The waits between retries, which together have to be shorter than the time after which a partition counts as stalled."""
    if backoff is None:
        return Backoff()
    if not isinstance(backoff, Backoff):
        raise ConfigError(
            "retry_backoff", f"is {backoff!r}, {kind_of(backoff)}: accepts a kafka_actors.Backoff"
        )
    longest_ms = backoff.longest_s(config.retries) * 1000
    if longest_ms >= config.max_poll_interval_ms:
        raise ConfigError(
            "retry_backoff",
            f"waits {longest_ms:,.0f} ms in {config.retries} retries, and a partition that stands still for max_poll_interval_ms "
            f"({config.max_poll_interval_ms:,}) is taken from its worker: raise that, or wait less",
        )
    return backoff


def check_ordering(config: JobConfig, explicit: Collection[str]) -> None:
    """Checks which other options go with the `ordering`. `explicit`: names of those that a user gave."""
    ordering, refused, reason = config.ordering, "ordering", ""
    without_use = [name for name in WHERE_CALLS_OVERLAP if name in explicit]
    if ordering == "partition":
        if without_use:
            refused = without_use[0]
            reason = f"is {getattr(config, refused)} with ordering='partition', where no calls overlap: leave it out, or choose 'key' or 'unordered'"
        if config.concurrency > 1:
            refused = "concurrency"
            reason = f"is {config.concurrency} with ordering='partition', one call at a time: choose 'key' or 'unordered'"
    elif config.delivery == "exactly_once":
        reason = f"is {ordering!r} with delivery='exactly_once', whose transactions have one offset before which all is done: choose 'partition'"
    elif config.batch_linger_ms:
        refused = "batch_linger_ms"
        reason = f"is {config.batch_linger_ms} with ordering={ordering!r}, where calls get what is ready: leave it out"
    if reason:
        raise ConfigError(refused, reason)


def check_assignors(config: JobConfig) -> None:
    for option, names in (
        ("partition_assignment_strategy", config.partition_assignment_strategy),
        ("worker_assignor", [config.worker_assignor]),
    ):
        for name in names:
            try:
                assignors.get(name)
            except (TypeError, ValueError) as error:
                raise ConfigError(option, str(error)) from None


def names_of(options: Any) -> frozenset[str]:
    """Returns the names of the options that a user gave, underscored; none where they aren't in a mapping."""
    if not isinstance(options, Mapping):
        return frozenset()
    return frozenset(str(name).replace(".", "_") for name, value in options.items() if value is not None)


def option_of(options: Any, name: str) -> Any:
    """Returns the value that a user gave for an option, in either spelling; None for none."""
    if not isinstance(options, Mapping):
        return None
    return next((value for key, value in options.items() if str(key).replace(".", "_") == name), None)


def with_read_committed(config: JobConfig, wanted: Any) -> JobConfig:
    """Returns the options of a job that delivers exactly once. `wanted`: the isolation level that the user wants, if any."""
    if wanted == "read_uncommitted":
        raise ConfigError(
            "isolation_level",
            "is 'read_uncommitted' with delivery='exactly_once': results of records that are aborted later would stay; leave it out",
        )
    return replace(config, isolation_level="read_committed")


def checked_producer_options(
    config: JobConfig, sinks: Sequence[Any], process: Any, *, dead_letters: bool
) -> dict[str, Any]:
    """Returns the options of the one producer that writes to all sinks. `process` may be a pipeline, which has its own."""
    # It imports a producer, which a job that delivers at least once does without.
    from kafka_actors.sinks import KafkaSink

    of_pipeline = getattr(process, "transactional_sinks", None)
    named = [(repr(sink), sink) for sink in sinks] if of_pipeline is None else of_pipeline()
    if not named and not dead_letters:
        raise ConfigError(
            "sink",
            "is missing with delivery='exactly_once': give the KafkaSink to which process returns results",
        )
    for name, sink in named:
        if not isinstance(sink, KafkaSink):
            raise ConfigError(
                "sink", f"is {name} with delivery='exactly_once': only a KafkaSink takes part in transactions"
            )
        _check_options(name, sink.options)
    options = [dict(sink.options) for _, sink in named]
    for (name, _), other in zip(named[1:], options[1:], strict=True):
        if other != options[0]:
            differs = sorted(
                key for key in other.keys() | options[0].keys() if other.get(key) != options[0].get(key)
            )
            raise ConfigError(
                "sink",
                f"is {name} with another {differs[0]} than {named[0][0]}: with delivery='exactly_once' one producer writes to all",
            )
    found: dict[str, Any] = options[0] if options else {}
    if transaction_timeout_ms(found) <= config.auto_commit_interval_ms:
        raise ConfigError(
            "auto_commit_interval_ms",
            f"is {config.auto_commit_interval_ms}, and each transaction lasts as long: it must be below the sink's "
            f"transaction_timeout_ms ({transaction_timeout_ms(found)})",
        )
    return found


def _check_options(name: str, options: Mapping[str, Any]) -> None:
    if "bootstrap_servers" in options:
        raise ConfigError(
            "sink",
            f"is {name} with bootstrap_servers of its own: with delivery='exactly_once' results go to the cluster that the job "
            "reads, whose offsets its transactions commit",
        )
    for option in THE_JOBS_OWN:
        if option in options:
            raise ConfigError(
                "sink", f"is {name} with {option}, which delivery='exactly_once' sets: leave it out"
            )


def transaction_timeout_ms(options: Mapping[str, Any]) -> int:
    """Returns the time after which a broker aborts a transaction that nobody ends."""
    found: int = options.get("transaction_timeout_ms", _DEFAULT_TIMEOUT_MS)
    return found

"""Options of a job with `delivery="exactly_once"`, checked before it starts. All raise `ConfigError`, which names the option.

One producer of each worker writes to all sinks, in the cluster whose offsets its transactions commit: so sinks have to be of one
kind, of one cluster, and agree about their options.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from kafka_actors.config import JobConfig, ProducerConfig
from kafka_actors.errors import ConfigError
from kafka_actors.sinks import KafkaSink

__all__ = ["checked_producer_options", "option_of", "transaction_timeout_ms", "with_read_committed"]

THE_JOBS_OWN = ("transactional_id", "acks", "enable_idempotence")
"""Options that the job sets: the id is that of a worker, and transactions need the others as they are."""
_DEFAULT_TIMEOUT_MS: int = ProducerConfig().transaction_timeout_ms


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

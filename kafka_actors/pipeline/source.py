"""Source of a pipeline: topics, group, and options of the connection."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from kafka_actors.base.topics import check_topics
from kafka_actors.config import ClientConfig, JobConfig, ProducerConfig, build, convert, producer_over
from kafka_actors.errors import ConfigError

STAGE = "read_kafka"
_SET_ON_PIPELINE = ("on_error", "retries")
"""Options of a job that a pipeline has in methods of its own."""


class ReadKafka(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Topics to read. `options` are checked, and named with underscores; secrets are wrapped."""

    topics: tuple[str, ...] | None
    pattern: str | None
    options: dict[str, Any]

    @property
    def group_id(self) -> str | None:
        return self.options.get("group_id")

    @property
    def what(self) -> str:
        return self.pattern or ", ".join(self.topics or ())

    def selects(self, topic: str) -> bool:
        """Whether a topic of this name is read."""
        return topic in self.topics if self.topics else bool(re.fullmatch(self.pattern or "", topic))

    @property
    def connection(self) -> dict[str, Any]:
        """Options for any client of this cluster."""
        known = ClientConfig.__struct_fields__
        return {name: value for name, value in self.options.items() if name in known}


def read_kafka(
    topics: str | Iterable[str] | None, pattern: str | None, config: Mapping[str, Any] | None, options: Any
) -> ReadKafka:
    """Checks the arguments of `Pipeline.read_kafka`. Raises `ConfigError` with the option's name."""
    if (topics is None) == (pattern is None):
        raise ConfigError("topics", "give exactly one of topics and pattern=")
    names = (topics,) if isinstance(topics, str) else tuple(topics) if topics is not None else None
    if names is not None and (not names or not all(isinstance(n, str) and n for n in names)):
        raise ConfigError("topics", f"is {topics!r}: accepts the name of a topic, or several")
    if names is not None:
        check_topics(names)
    present = {name: value for name, value in options.items() if value is not None}
    for name in _SET_ON_PIPELINE:
        if name in present or (isinstance(config, Mapping) and name in config):
            raise ConfigError(name, f"is no option of the source: give it to the pipeline, .{_SET_BY[name]}")
    build(JobConfig, config, **present)
    return ReadKafka(topics=names, pattern=pattern, options=convert(JobConfig, config, **present))


def changed_source(
    source: ReadKafka, options: Mapping[str, Any], topics: Iterable[str] | None, pattern: str | None
) -> ReadKafka:
    """A copy with other options, and other topics where some are given. Raises as `read_kafka`."""
    if topics is None and pattern is None:
        topics, pattern = source.topics, source.pattern
    return read_kafka(topics, pattern, None, {**source.options, **options})


_SET_BY = {"on_error": "on_error(…), or to a stage", "retries": "on_error(…, retries=…)"}


def producer_options(
    stage: str, config: Mapping[str, Any] | None, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Checks the options of a sink's producer. Raises `ConfigError`, naming the stage."""
    try:
        return convert(ProducerConfig, config, **options)
    except ConfigError as error:
        raise ConfigError(stage, f"{error.option}: {error.message}") from None


def producer_config(stage: str, source: ReadKafka, options: Mapping[str, Any]) -> ProducerConfig:
    """The config of a sink's producer: on the source's cluster and with its security, unless the options name other
    servers. References to secrets are not resolved here, but where the producer is made.

    Raises `ConfigError`, naming the stage, for options that contradict each other.
    """
    try:
        return producer_over(source.connection, options)
    except ConfigError as error:
        raise ConfigError(stage, f"{error.option}: {error.message}") from None


def transactional_config(
    stage: str, source: ReadKafka, options: Mapping[str, Any], transactional_id: str, timeout_ms: int
) -> ProducerConfig:
    """The config of a sink's producer with transactions, which last up to `timeout_ms` unless the options say otherwise. Raises as
    `producer_config`."""
    config = producer_config(stage, source, {"transaction_timeout_ms": timeout_ms, **options})
    return msgspec.structs.replace(config, transactional_id=transactional_id)

"""What `on_spark` is given: where to start and end, how often, and options of the data source."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from kafka_actors.config import JobConfig
from kafka_actors.errors import ConfigError
from kafka_actors.pipeline.source import ReadKafka
from kafka_actors.pipeline.stages import WriteKafka
from kafka_actors.security import Secret

SPLITTING = ("minPartitions", "maxRecordsPerPartition")
_GROUP_ID = "kafka.group.id"
_SAID_BY_THE_PIPELINE = ("subscribe", "subscribePattern", "assign", "includeHeaders")


def source_options(source: ReadKafka) -> dict[str, str]:
    """The pipeline's options as those of the data source: what only a job has stays behind."""
    found = (
        {"subscribe": ",".join(source.topics)}
        if source.topics
        else {"subscribePattern": source.pattern or ""}
    )
    for name, value in source.options.items():
        if name in _OF_JOBS or value is None:
            continue
        found["kafka." + name.replace("_", ".")] = _text(name, value)
    return {**found, "includeHeaders": "true"}


_OF_JOBS = frozenset(JobConfig.__struct_fields__) - frozenset(
    name
    for name in JobConfig.__struct_fields__
    if name.startswith(("bootstrap", "client", "security", "ssl", "sasl", "fetch", "request", "reconnect"))
    or name in ("isolation_level", "max_partition_fetch_bytes", "check_crcs", "max_decompressed_batch_bytes")
)


def _text(name: str, value: Any) -> str:
    if isinstance(value, Secret):
        return value.reveal()
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)) and all(isinstance(part, str) for part in value):
        return ",".join(value)
    if isinstance(value, (str, int, float)):
        return str(value)
    raise ConfigError(name, "can't be sent to Spark's executors: it is no text or number")


def more_options(source: ReadKafka, given: Mapping[str, Any]) -> dict[str, str]:
    """Options that the user gives by the data source's own names. The group is the pipeline's, where it is used."""
    for name in given:
        if name in _SAID_BY_THE_PIPELINE or name.startswith("kafka."):
            raise ConfigError(name, "is the pipeline's: say it in read_kafka(…)")
    found = {name: _text(name, value) for name, value in given.items()}
    lower = {name.lower(): value.lower() for name, value in found.items()}
    uses_group = lower.get("commitoffsets") == "true" or lower.get("startingoffsets") == "committed"
    if uses_group and source.group_id is not None:
        found[_GROUP_ID] = source.group_id
    return found


def position_options(start: Any, end: Any) -> dict[str, str]:
    """`start` and `end` as options of the data source. Raises `ConfigError`."""
    found = {}
    for name, given, word in (("start", start, "starting"), ("end", end, "ending")):
        if given is None:
            continue
        if isinstance(given, datetime):
            if given.tzinfo is None:
                raise ConfigError(name, f"is {given!r}: it needs a time zone")
            found[f"{word}Timestamp"] = str(int(given.timestamp() * 1000))
        elif isinstance(given, str):
            found[f"{word}Offsets"] = given
        elif isinstance(given, Mapping):
            found[f"{word}Offsets"] = _offsets(name, given)
        else:
            raise ConfigError(
                name,
                f"is {given!r}: accepts a word such as 'earliest', offsets {{topic: {{partition: offset}}}}, or a "
                "datetime",
            )
    return found


def _offsets(name: str, given: Mapping[Any, Any]) -> str:
    """By topic and partition, or by (topic, partition). Spark wants every partition named."""
    nested: dict[str, dict[str, int]] = {}
    for key, value in given.items():
        if isinstance(key, tuple) and len(key) == 2 and isinstance(value, int):
            nested.setdefault(str(key[0]), {})[str(key[1])] = value
        elif isinstance(key, str) and isinstance(value, Mapping):
            nested.setdefault(key, {}).update({str(p): o for p, o in value.items()})
        else:
            raise ConfigError(
                name,
                f"has {key!r}: {value!r}: accepts {{topic: {{partition: offset}}}} or {{(topic, partition): offset}}",
            )
    return json.dumps(nested)


def trigger_of(given: str | None) -> dict[str, Any]:
    """The arguments of `DataStreamWriter.trigger`. None: the next micro-batch as soon as there is something."""
    if given is None:
        return {"processingTime": "0 seconds"}
    if not isinstance(given, str) or not given.strip():
        raise ConfigError(
            "trigger", f"is {given!r}: accepts 'availableNow', 'once', or a time such as '10 seconds'"
        )
    if given in ("availableNow", "once"):
        return {given: True}
    return {"processingTime": given}


def check_ordered(stage: Any, options: Mapping[str, str], ordered: bool) -> None:
    """A partition that is split over tasks is written in any order. Raises `ConfigError`."""
    if ordered and isinstance(stage, WriteKafka):
        for name in SPLITTING:
            if any(given.lower() == name.lower() for given in options):
                raise ConfigError(
                    name,
                    f"splits partitions over tasks, and {stage.name} would write their records out of order: "
                    "ordered=False says that it may",
                )

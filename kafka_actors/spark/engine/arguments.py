"""What `on_spark` is given: where to start and end, how often, and options of the data source."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from numbers import Integral  # those of numpy and pandas, too
from typing import Any

from kafka_actors.config.security import Secret
from kafka_actors.errors import ConfigError
from kafka_actors.pipeline.source import ReadKafka
from kafka_actors.pipeline.stages import DataFrames, WriteKafka
from kafka_actors.spark.source.checkpoint_path import checkpoint_of

SPLITTING = ("minPartitions", "maxRecordsPerPartition")
_GROUP_ID = "kafka.group.id"
_SAID_BY_THE_PIPELINE = ("subscribe", "subscribepattern", "assign", "includeheaders")
_ASYNC = "asyncprogresstrackingenabled"
_INTERVAL = re.compile(r"\s*(interval\s+)?[+-]?\.?[0-9]", re.IGNORECASE)
"""How Spark's intervals begin. What comes behind the number is Spark's to check."""


def source_options(source: ReadKafka) -> dict[str, str]:
    """The pipeline's options as those of the data source. What is about the group's membership and a job's workers
    stays behind; where to start is `start_options`'. Raises `ConfigError` for what can't be done on Spark."""
    found = (
        {"subscribe": ",".join(source.topics)}
        if source.topics
        else {"subscribePattern": source.pattern or ""}
    )
    for name, value in source.options.items():
        if value is None or name in NOT_ON_SPARK or name == _RESET:
            continue
        if name == "on_data_loss":
            found["failOnDataLoss"] = str(value == "fail").lower()
        elif name == "exclude_internal_topics":
            if not value and source.pattern is not None:
                raise ConfigError(name, "is False: on Spark a pattern matches no internal topic; name them")
        else:
            found["kafka." + name.replace("_", ".")] = _text(name, value)
    return {**found, "includeHeaders": "true"}


NOT_ON_SPARK = frozenset(
    {
        "auto_commit_interval_ms",
        "batch_linger_ms",
        "drain_timeout_ms",
        "enable_auto_commit",
        "group_id",  # where it is used `more_options` gives it
        "group_instance_id",
        "group_protocol",
        "heartbeat_interval_ms",
        "max_poll_interval_ms",
        "on_error",
        "partition_assignment_strategy",
        "ping_interval_ms",
        "ping_timeout_ms",
        "rebalance_timeout_ms",
        "retries",
        "session_timeout_ms",
        "start_timeout_s",
        "worker_assignor",
        "worker_capacity",
    }
)
"""Options of a job that say nothing about which records are read and how: a pipeline for both engines may have them."""

_RESET = "auto_offset_reset"
_STARTS = ("startingoffsets", "startingtimestamp", "startingoffsetsbytimestamp")


def start_options(source: ReadKafka, given: Mapping[str, Any], *, streaming: bool) -> dict[str, str]:
    """Where a read starts that nobody gave a start: where the pipeline says by `auto_offset_reset`, or at the earliest
    offsets. `given` are the data source's options. Raises `ConfigError` for what only a group's member can do."""
    if any(name.lower() in _STARTS for name in given):
        return {}
    reset = source.options.get(_RESET, "earliest")
    if reset == "latest" and not streaming:
        raise ConfigError(_RESET, "is 'latest', where a batch would have nothing to read: say start=")
    if reset not in ("earliest", "latest"):
        raise ConfigError(_RESET, f"is {reset!r}, which is for members of a group: on Spark say start=")
    return {"startingOffsets": reset}


def _text(name: str, value: Any) -> str:
    if isinstance(value, Secret):
        return value.reveal()
    if isinstance(value, bool):
        return str(value).lower()
    if name == "api_version":
        return ".".join(map(str, value))
    if isinstance(value, (list, tuple)) and all(isinstance(part, str) for part in value):
        return ",".join(value)
    if isinstance(value, (str, int, float)):
        return str(value)
    raise ConfigError(name, "can't be sent to Spark's executors: it is no text or number")


def more_options(source: ReadKafka, given: Mapping[str, Any]) -> dict[str, str]:
    """Options that the user gives by the data source's own names. The group is the pipeline's, where it is used."""
    for name in given:
        if name.lower() in _SAID_BY_THE_PIPELINE or name.lower().startswith("kafka."):
            raise ConfigError(name, "is the pipeline's: say it in read_kafka(…)")
        if name.lower() == _ASYNC:
            raise ConfigError(name, "is for Spark's own sinks: Spark has it for no Python sink")
    found = {name: _text(name, value) for name, value in given.items()}
    lower = {name.lower(): value.lower() for name, value in found.items()}
    uses_group = lower.get("commitoffsets") == "true" or lower.get("startingoffsets") == "committed"
    if uses_group and source.group_id is not None:
        found[_GROUP_ID] = source.group_id
    return found


def state_option(
    spark: Any, checkpoint: str, options: Mapping[str, str], stages: Iterable[Any]
) -> dict[str, str]:
    """`stateLocation` where `offsetFormat` is given without it: in the checkpoint, where Spark's own source keeps its first
    start. Raises `ConfigError` where nobody knows which source of the query this one is, and where the checkpoint is out
    of reach."""
    given = {name.lower(): value for name, value in options.items()}
    if "offsetformat" not in given or "statelocation" in given:
        return {}
    found = checkpoint_of(spark, checkpoint)
    for reason, holds in (
        ("the session is one of Spark Connect", found is None),
        (
            "the query may have other sources behind a DataFrame stage",
            any(isinstance(s, DataFrames) for s in stages),
        ),
    ):
        if holds:
            raise ConfigError(
                "offsetFormat", f"is given without stateLocation, and {reason}: say stateLocation="
            )
    assert found is not None
    return {"stateLocation": f"{found.location.rstrip('/')}/sources/0"}


def all_given(positions: Mapping[str, str], more: Mapping[str, Any]) -> dict[str, Any]:
    """`start` and `end` with the options given by the data source's own names, which may be written in any case.

    Raises `ConfigError` for what is said twice.
    """
    found: dict[str, Any] = dict(positions)
    for name, value in more.items():
        for other in found:
            if other.lower() == name.lower():
                raise ConfigError(
                    name, f"is said by {'start= or end=' if other in positions else other}, too"
                )
        found[name] = value
    return found


_WORDS = {"start": ("earliest", "latest", "committed"), "end": ("latest",)}


def position_options(start: Any, end: Any) -> dict[str, str]:
    """`start` and `end` as options of the data source. Raises `ConfigError`."""
    found = {}
    for name, given, word in (("start", start, "starting"), ("end", end, "ending")):
        if given is None:
            continue
        if isinstance(given, datetime):
            if given.tzinfo is None:
                raise ConfigError(name, f"is {given!r}: it needs a time zone")
            found[f"{word}Timestamp"] = str(max(0, int(given.timestamp() * 1000)))  # no record is older
        elif isinstance(given, str) and (given.lower() in _WORDS[name] or given.startswith("{")):
            found[f"{word}Offsets"] = given
        elif isinstance(given, Mapping):
            found[f"{word}Offsets"] = _offsets(name, given)
        else:
            raise ConfigError(
                name,
                f"is {given!r}: accepts a word ({', '.join(_WORDS[name])}), offsets "
                "{topic: {partition: offset}}, or a datetime",
            )
    return found


def _offsets(name: str, given: Mapping[Any, Any]) -> str:
    """By topic and partition, or by (topic, partition). Spark wants every partition named."""
    nested: dict[str, dict[str, int]] = {}
    for key, value in given.items():
        if isinstance(key, tuple) and len(key) == 2 and isinstance(value, Integral):
            nested.setdefault(str(key[0]), {})[str(key[1])] = int(value)
        elif (
            isinstance(key, str)
            and isinstance(value, Mapping)
            and all(isinstance(o, Integral) for o in value.values())
        ):
            nested.setdefault(key, {}).update({str(p): int(o) for p, o in value.items()})
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
    if given in ("availableNow", "once"):
        return {given: True}
    if not isinstance(given, str) or not _INTERVAL.match(given):
        raise ConfigError(
            "trigger", f"is {given!r}: accepts 'availableNow', 'once', or a time such as '10 seconds'"
        )
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

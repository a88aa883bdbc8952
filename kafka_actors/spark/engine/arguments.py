"""Arguments of `on_spark`, as options of the data source and of Spark: start, end, trigger, more options."""

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
from kafka_actors.spark.source.checkpoint import checkpoint_of
from kafka_actors.spark.source.machines.offset_ranges import milliseconds_of

SPLITTING = ("minPartitions", "maxRecordsPerPartition")
_GROUP_ID = "kafka.group.id"
_SET_BY_THE_PIPELINE = ("subscribe", "subscribepattern", "assign", "includeheaders")
_ASYNC = "asyncprogresstrackingenabled"
_INTERVAL = re.compile(r"\s*(interval\s+)?[+-]?\.?[0-9]", re.IGNORECASE)
"""Begin of an interval of Spark's. Spark itself checks the rest."""


def source_options(source: ReadKafka) -> dict[str, str]:
    """The options of a pipeline's source as ones of the data source, without those of membership in a group and of a job's
    workers; see `start_options` for the start. Raises `ConfigError` for options that Spark can't fulfil."""
    found = (
        {"subscribe": ",".join(source.topics)}
        if source.topics
        else {"subscribePattern": source.pattern or ""}
    )
    for name, value in source.options.items():
        if name == "ordering" and value != "partition":
            raise ConfigError(
                name, f"is {value!r}: on Spark one task reads a partition, in its order; leave it out"
            )
        if name == "delivery" and value == "exactly_once":
            raise ConfigError(
                name,
                "is 'exactly_once', which is a job's: give it to on_ray(…, delivery='exactly_once'), and on Spark say "
                "write_kafka(…, delivery='exactly_once')",
            )
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
        "concurrency",
        "delivery",
        "drain_timeout_ms",
        "enable_auto_commit",
        "group_id",  # `more_options` adds it where it is used
        "group_instance_id",
        "group_protocol",
        "heartbeat_interval_ms",
        "max_in_flight_records",
        "lanes_per_partition",
        "max_poll_interval_ms",
        "on_error",
        "ordering",
        "partition_assignment_strategy",
        "ping_interval_ms",
        "ping_timeout_ms",
        "rebalance_timeout_ms",
        "redact_keys",
        "retries",
        "session_timeout_ms",
        "start_timeout_s",
        "worker_assignor",
        "worker_capacity",
    }
)
"""Options of a job that do not concern which records are read and how: ignored, so that one pipeline suits both engines."""

_RESET = "auto_offset_reset"
_STARTS = ("startingoffsets", "startingtimestamp", "startingoffsetsbytimestamp")


def start_options(source: ReadKafka, options: Mapping[str, Any], *, streaming: bool) -> dict[str, str]:
    """The option for the start, unless `options`, the data source's options, has one: the pipeline's `auto_offset_reset`, or the
    earliest offsets. Raises `ConfigError` for a value that only a member of a group can have."""
    if any(name.lower() in _STARTS for name in options):
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
    raise ConfigError(name, "can't be sent to Spark's executors: it is neither text nor a number")


def more_options(source: ReadKafka, options: Mapping[str, Any]) -> dict[str, str]:
    """Checks the user's options by the data source's own names, and adds the pipeline's group where they use one. Raises
    `ConfigError`."""
    for name in options:
        if name.lower() in _SET_BY_THE_PIPELINE or name.lower().startswith("kafka."):
            raise ConfigError(name, "is the pipeline's: set it in read_kafka(…)")
        if name.lower() == _ASYNC:
            raise ConfigError(name, "is for Spark's own sinks: Spark does not support it for Python sinks")
    found = {name: _text(name, value) for name, value in options.items()}
    lower = {name.lower(): value.lower() for name, value in found.items()}
    uses_group = lower.get("commitoffsets") == "true" or lower.get("startingoffsets") == "committed"
    if uses_group and source.group_id is not None:
        found[_GROUP_ID] = source.group_id
    return found


def state_option(
    spark: Any, checkpoint: str, options: Mapping[str, str], stages: Iterable[Any]
) -> dict[str, str]:
    """The option `stateLocation` where `offsetFormat` is set without it: in the checkpoint, where Spark's own source stores its
    first start. Raises `ConfigError` where the number of this source in the query is unknown, and for a checkpoint that
    can't be reached."""
    lower = {name.lower(): value for name, value in options.items()}
    if "offsetformat" not in lower or "statelocation" in lower:
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
                "offsetFormat", f"is set without stateLocation, and {reason}: set stateLocation="
            )
    assert found is not None
    return {"stateLocation": f"{found.location.rstrip('/')}/sources/0"}


def joined_options(positions: Mapping[str, str], more: Mapping[str, Any]) -> dict[str, Any]:
    """Joins `start` and `end` with the options by the data source's own names, whose case doesn't matter.

    Raises `ConfigError` for a duplicate.
    """
    found: dict[str, Any] = dict(positions)
    for name, value in more.items():
        for other in found:
            if other.lower() == name.lower():
                raise ConfigError(name, f"is set by {'start= or end=' if other in positions else other}, too")
        found[name] = value
    return found


_WORDS = {"start": ("earliest", "latest", "committed"), "end": ("latest",)}


def position_options(start: Any, end: Any) -> dict[str, str]:
    """`start` and `end` as options of the data source. Raises `ConfigError`."""
    found = {}
    for name, position, word in (("start", start, "starting"), ("end", end, "ending")):
        if position is None:
            continue
        if isinstance(position, datetime):
            if position.tzinfo is None:
                raise ConfigError(name, f"is {position!r}: it needs a time zone")
            found[f"{word}Timestamp"] = str(max(0, milliseconds_of(position)))  # no record is older
        elif isinstance(position, str) and (position.lower() in _WORDS[name] or position.startswith("{")):
            found[f"{word}Offsets"] = position
        elif isinstance(position, Mapping):
            found[f"{word}Offsets"] = _offsets(name, position)
        else:
            raise ConfigError(
                name,
                f"is {position!r}: accepts a word ({', '.join(_WORDS[name])}), offsets "
                "{topic: {partition: offset}}, or a datetime",
            )
    return found


def _offsets(name: str, offsets: Mapping[Any, Any]) -> str:
    """Offsets by topic and partition, or by (topic, partition), as JSON of the data source. Spark wants all partitions named."""
    nested: dict[str, dict[str, int]] = {}
    for key, value in offsets.items():
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


def trigger_of(trigger: str | None) -> dict[str, Any]:
    """The arguments of `DataStreamWriter.trigger`. None: a micro-batch as soon as there are records."""
    if trigger is None:
        return {"processingTime": "0 seconds"}
    if trigger in ("availableNow", "once"):
        return {trigger: True}
    if not isinstance(trigger, str) or not _INTERVAL.match(trigger):
        raise ConfigError(
            "trigger", f"is {trigger!r}: accepts 'availableNow', 'once', or a time such as '10 seconds'"
        )
    return {"processingTime": trigger}


def check_ordered(stage: Any, options: Mapping[str, str], ordered: bool) -> None:
    """Raises `ConfigError` for options that split partitions over tasks, which would write them out of order, unless
    `ordered` is false."""
    if ordered and isinstance(stage, WriteKafka):
        for name in SPLITTING:
            if any(option.lower() == name.lower() for option in options):
                raise ConfigError(
                    name,
                    f"splits partitions over tasks, and {stage.name} would write their records out of order: "
                    "ordered=False says that it may",
                )

"""`transactional(df)`: the check of a DataFrame's plan in the driver, and the options with which a sink writes it in transactions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from kafka_actors.errors import ConfigError, kind_of

from .machines.plan_operators import check_repeatable_rows
from .machines.task_markers import splits_digest
from .options import transactional_options

OPTION = "transactional"

Sources = list[tuple[str, Mapping[str, str]]]


def transactional(df: Any) -> dict[str, str]:
    """Options with which `df` is written exactly once, whatever dies meanwhile: each task in a transaction, with a marker of what it wrote.

        df.writeStream.format("kafka_actors").options(**kafka_actors.spark.transactional(df)).option("topic", "scored")…

    A task that is run again must get the same rows, so plans are refused that have a shuffle, a join, a limit, `coalesce`, or a streaming
    source whose splits depend on the number of cores. It has to be the DataFrame that is written, with nothing done to it afterwards.
    Works in a session of Spark Connect, too.

    Raises `ConfigError`, naming the operator.
    """
    if not hasattr(df, "isStreaming"):
        raise ConfigError(OPTION, f"is given {kind_of(df)}: accepts the DataFrame that is written")
    streaming = bool(df.isStreaming)
    check_repeatable_rows(explained(df), streaming=streaming, option=OPTION)
    return transactional_options(splits_digest(sources_of(df)), df.schema)


def explained(df: Any) -> str:
    """The physical plan, in a session of any kind."""
    if hasattr(df, "_explain_string"):  # Spark Connect: the server says it
        return str(df._explain_string(mode="formatted"))
    strings = df.sparkSession.sparkContext._jvm.PythonSQLUtils
    return str(strings.explainString(df._jdf.queryExecution(), "formatted"))


def sources_of(df: Any) -> Sources:
    """The sources of a plan with their options, from left to right: their order is that of the tasks."""
    if hasattr(df, "_plan"):
        return list(_read(df._plan.to_proto(df.sparkSession.client)))
    leaves = df._jdf.queryExecution().analyzed().collectLeaves()
    return [_of_leaf(leaves.apply(number)) for number in range(leaves.size())]


def _of_leaf(leaf: Any) -> tuple[str, Mapping[str, str]]:
    """A leaf of a logical plan in the JVM. Leaves that have no options are named only."""
    found: dict[str, str] = {}
    with suppress(Exception):  # a method that this kind of leaf lacks
        found = dict(leaf.extraOptions().asCaseSensitiveMap())
    with suppress(Exception):
        options = leaf.dataSource().options().iterator()
        while options.hasNext():
            pair = options.next()
            found[pair._1()] = pair._2()
    return str(leaf.nodeName()), found


def _read(message: Any) -> Iterator[tuple[str, Mapping[str, str]]]:
    """The sources in a plan of Spark Connect, which is a tree of protobuf messages."""
    if message.DESCRIPTOR.name == "Read" and message.HasField("data_source"):
        yield message.data_source.format, dict(message.data_source.options)
        return
    for field, value in message.ListFields():
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        for each in value if hasattr(value, "__len__") and not hasattr(value, "DESCRIPTOR") else (value,):
            yield from _read(each)

"""`transactional(df)`: the check of a DataFrame's plan in the driver, and the options with which a sink writes it in transactions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from kafka_actors.errors import ConfigError, kind_of

from .machines.plan_operators import check_repeatable_rows
from .machines.task_markers import splits_digest
from .sink_options import transactional_options

OPTION = "transactional"


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


def sources_of(df: Any) -> list[Mapping[str, str]]:
    """The options of a plan's sources, from left to right: their order is that of the tasks. Raises `ConfigError` where Spark Connect has them
    behind a view."""
    if hasattr(df, "_plan"):
        return list(_read(df._plan.to_proto(df.sparkSession.client)))
    leaves = df._jdf.queryExecution().analyzed().collectLeaves()
    return [_of_leaf(leaves.apply(number)) for number in range(leaves.size())]


def _of_leaf(leaf: Any) -> Mapping[str, str]:
    """The options of a leaf of a logical plan in the JVM; none of those that have none."""
    found: dict[str, str] = {}
    with suppress(Exception):  # a method that this kind of leaf lacks
        found = dict(leaf.extraOptions().asCaseSensitiveMap())
    with suppress(Exception):
        options = leaf.dataSource().options().iterator()
        while options.hasNext():
            pair = options.next()
            found[pair._1()] = pair._2()
    return found


def _read(message: Any) -> Iterator[Mapping[str, str]]:
    """The options of the sources in a plan of Spark Connect, which is a tree of protobuf messages."""
    kind = message.DESCRIPTOR.name
    if kind == "Read" and message.HasField("data_source"):
        yield dict(message.data_source.options)
        return
    if kind == "SQL" or (kind == "Read" and message.HasField("named_table")):
        raise ConfigError(
            OPTION,
            "the options of a source can't be seen behind a view or a table in Spark Connect: write the DataFrame that was read itself",
        )
    for field, value in message.ListFields():
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        if kind == "WithRelations" and field.name == "root":
            continue  # the text of a query; its sources are the references
        for each in value if hasattr(value, "__len__") and not hasattr(value, "DESCRIPTOR") else (value,):
            yield from _read(each)

"""`kafka-actors offsets` (as `kafka-get-offsets.sh`) and `kafka-actors lag`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from kafka_actors.errors import UnknownTopicOrPartitionError
from kafka_actors.types import TopicPartition

from .connection import admin_command
from .errors import EXIT_DONE
from .group_choice import all_lags, all_or_named, group_options
from .output import Output
from .results import columns, show
from .scopes import exclude_internal_option, time_of, topic_scope, topics_option

if TYPE_CHECKING:
    from kafka_actors.admin import AsyncAdmin, PartitionLag, TopicDescription

__all__ = ["lag", "offsets"]

KEYS = {"partition": 3, "topic": 2, "group": 1}
"""How many of group, topic and partition tell the rows of `lag --by` apart."""


@click.command()
@topics_option("All topics by default.")
@click.option(
    "--time",
    "at",
    default="latest",
    show_default=True,
    metavar="TIME",
    help="earliest, latest, max-timestamp, milliseconds since 1970, or YYYY-MM-DDTHH:mm:SS.sss.",
)
@exclude_internal_option("--exclude-internal-topics")
@admin_command
async def offsets(
    output: Output,
    admin: AsyncAdmin,
    form: str,
    topics: tuple[str, ...],
    at: str,
    exclude_internal: bool,
) -> int:
    """Show the offsets of partitions: at the ends of their logs, or the first at or after a time.

    The lines are TOPIC:PARTITION:OFFSET; a partition without a record as young as that has none.
    """
    time, scope = time_of(at), topic_scope(topics)
    described = await admin.describe_topics(scope or None)
    wanted = [
        tp
        for topic in described.values()
        if not (exclude_internal and topic.is_internal)
        for tp in _partitions(topic, scope.get(topic.name))
    ]
    found = await admin.list_offsets(dict.fromkeys(wanted, time))
    rows = [(tp.topic, tp.partition, found[tp]) for tp in sorted(found) if found[tp].offset >= 0]
    document = [
        {
            "topic": topic,
            "partition": partition,
            "offset": listed.offset,
            "timestamp": listed.timestamp if listed.timestamp >= 0 else None,
        }
        for topic, partition, listed in rows
    ]
    show(output, form, [f"{topic}:{p}:{listed.offset}" for topic, p, listed in rows], document)
    return EXIT_DONE


def _partitions(topic: TopicDescription, chosen: Sequence[int] | None) -> list[TopicPartition]:
    existing = {p.partition for p in topic.partitions}
    for partition in chosen or ():
        if partition not in existing:
            raise UnknownTopicOrPartitionError(topic=topic.name, partition=partition)
    return [TopicPartition(topic.name, partition) for partition in sorted(chosen or existing)]


@click.command()
@group_options
@click.option(
    "--by",
    type=click.Choice(list(KEYS)),
    default="partition",
    show_default=True,
    help="A row for each of these, with the sums of its partitions.",
)
@admin_command
async def lag(
    output: Output, admin: AsyncAdmin, form: str, group_ids: tuple[str, ...], all_groups: bool, by: str
) -> int:
    """Show how far groups are behind.

    A partition counts where the group has committed an offset or a member reads it; "-" is what isn't known.
    """
    chosen = await all_or_named(admin, group_ids, all_groups)
    lags = (await all_lags(admin, chosen)).values()
    rows = [row for group in lags for row in group if row.partition is not None]
    titles = ["GROUP", "TOPIC", "PARTITION"][: KEYS[by]]
    if by == "partition":
        table = [(r.group_id, r.topic, r.partition, r.current_offset, r.log_end_offset, r.lag) for r in rows]
        titles += ["CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"]
    else:
        table = summed(rows, KEYS[by])
        titles += ["PARTITIONS", "LAG"]
    document = [_named(titles, row) for row in table]
    show(output, form, columns(titles, table), document)
    return EXIT_DONE


def summed(rows: Iterable[PartitionLag], keys: int) -> list[tuple[Any, ...]]:
    """(group, topic, partitions, lag) or (group, partitions, lag). Of a sum with an unknown part the lag is None."""
    sums: dict[tuple[Any, ...], list[int | None]] = {}
    for row in rows:
        sums.setdefault((row.group_id, row.topic)[:keys], []).append(row.lag)
    return [
        (*key, len(lags), None if None in lags else sum(lag for lag in lags if lag is not None))
        for key, lags in sums.items()
    ]


def _named(titles: Sequence[str], row: Sequence[Any]) -> dict[str, Any]:
    return {
        ("group_id" if title == "GROUP" else title.lower().replace("-", "_")): cell
        for title, cell in zip(titles, row, strict=True)
    }

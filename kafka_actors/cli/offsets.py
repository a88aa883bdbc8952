"""`kafka-actors offsets`: the ends of logs, or the first offsets at or after a time, as `kafka-get-offsets.sh`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kafka_actors.types import TopicPartition

from .command import EXIT_DONE, EXIT_FAILED
from .connection import admin_command
from .output import Output, note
from .results import show
from .scopes import exclude_internal_option, existing_partitions, time_of, topic_scope, topics_option

if TYPE_CHECKING:
    from kafka_actors.admin import AsyncAdmin

__all__ = ["offsets"]


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

    The lines are TOPIC:PARTITION:OFFSET; a partition without a record at or after the time has no line. One without a leader is
    said on stderr, and the exit code is 1 then.
    """
    time, scope = time_of(at), topic_scope(topics)
    described = await admin.describe_topics(scope or None)
    wanted = [
        TopicPartition(topic.name, partition)
        for topic in described.values()
        if not (exclude_internal and topic.is_internal)
        for partition in existing_partitions(
            topic.name, scope.get(topic.name), {p.partition for p in topic.partitions}
        )
    ]
    leaderless = {
        TopicPartition(topic.name, p.partition)
        for topic in described.values()
        for p in topic.partitions
        if p.leader is None
    }
    found = await admin.list_offsets({tp: time for tp in wanted if tp not in leaderless})
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
    left_out = sorted(leaderless.intersection(wanted))
    for tp in left_out:
        note(f"{tp.topic}-{tp.partition} has no leader: its offset is left out")
    return EXIT_FAILED if left_out else EXIT_DONE

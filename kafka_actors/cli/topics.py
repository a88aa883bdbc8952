"""`kafka-actors topics`: lists, describes, creates, grows and deletes topics, with the names and lines of `kafka-topics.sh`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import click

from kafka_actors.errors import TopicAlreadyExistsError, UnknownTopicOrPartitionError, UsageError

from .command import EXIT_DONE, INT_MAX, IntRange
from .connection import admin_command, in_turn
from .output import Output, note
from .results import plain, show
from .scopes import exclude_internal_option, names, setting

if TYPE_CHECKING:
    from kafka_actors.admin import AsyncAdmin, PartitionDescription, TopicDescription

__all__ = ["topics"]


@click.group()
def topics() -> None:
    """Topics: list, describe, create, alter, delete."""


@topics.command("list")
@click.option("--topic", "pattern", metavar="REGEX", help="Only topics whose whole name matches.")
@exclude_internal_option("--exclude-internal")
@admin_command
async def list_topics(
    output: Output, admin: AsyncAdmin, form: str, pattern: str | None, exclude_internal: bool
) -> int:
    """List the topics."""
    matches = _compiled(pattern or ".*").fullmatch
    listed = await admin.list_topics(exclude_internal=exclude_internal)
    found = [topic for topic in listed if matches(topic.name)]
    show(output, form, [topic.name for topic in found], found)
    return EXIT_DONE


@topics.command()
@click.option("-t", "--topic", "wanted", metavar="TOPIC", multiple=True, help="A topic; may be repeated.")
@exclude_internal_option("--exclude-internal")
@click.option(
    "--under-replicated-partitions", is_flag=True, help="Only partitions with replicas out of sync."
)
@click.option("--unavailable-partitions", is_flag=True, help="Only partitions without a leader.")
@admin_command
async def describe(
    output: Output,
    admin: AsyncAdmin,
    form: str,
    wanted: tuple[str, ...],
    exclude_internal: bool,
    under_replicated_partitions: bool,
    unavailable_partitions: bool,
) -> int:
    """Describe topics (all of them by default): partitions, leaders, replicas, settings that are not defaults."""
    named = names(wanted, "--topic") if wanted else None
    found = (await admin.describe_topics(named)).values()
    described = [topic for topic in found if not (exclude_internal and topic.is_internal)]
    configs = await admin.topic_configs(topic.name for topic in described)

    def chosen(partition: PartitionDescription) -> bool:
        behind = len(partition.isr) < len(partition.replicas)
        return (behind or not under_replicated_partitions) and (
            partition.leader is None or not unavailable_partitions
        )

    troubles = under_replicated_partitions or unavailable_partitions
    lines = [line for topic in described for line in _lines(topic, configs[topic.name], chosen, troubles)]
    document = [
        {
            **plain(topic),
            "partitions": [plain(p) for p in topic.partitions if chosen(p)],
            "configs": configs[topic.name],
        }
        for topic in described
        if not troubles or any(map(chosen, topic.partitions))
    ]
    show(output, form, lines, document)
    return EXIT_DONE


def _lines(
    topic: TopicDescription,
    configs: Mapping[str, str | None],
    chosen: Callable[[PartitionDescription], bool],
    troubles: bool,
) -> Iterator[str]:
    replicas = len(topic.partitions[0].replicas) if topic.partitions else 0
    settings = ",".join(f"{name}={value}" for name, value in sorted(configs.items()))
    if not troubles:
        yield (
            f"Topic: {topic.name}\tTopicId: {topic.topic_id or ''}\tPartitionCount: {len(topic.partitions)}\t"
            f"ReplicationFactor: {replicas}\tConfigs: {settings}"
        )
    for p in filter(chosen, topic.partitions):
        leader = "none" if p.leader is None else p.leader
        yield (
            f"\tTopic: {topic.name}\tPartition: {p.partition}\tLeader: {leader}\t"
            f"Replicas: {_joined(p.replicas)}\tIsr: {_joined(p.isr)}"
        )


def _joined(ids: tuple[int, ...]) -> str:
    return ",".join(map(str, ids))


@topics.command()
@click.option("-t", "--topic", "name", metavar="TOPIC", required=True, help="Name of the topic.")
@click.option(
    "--partitions", type=IntRange(1, INT_MAX), help="Number of partitions; by default the broker's."
)
@click.option(
    "--replication-factor",
    type=IntRange(1, 0x7FFF),
    help="Number of replicas; by default the broker's.",
)
@click.option(
    "--replica-assignment",
    metavar="ID:ID,ID:ID,…",
    help="Brokers of each partition, the preferred leader first, in place of the two numbers.",
)
@click.option(
    "-c", "--config", "configs", metavar="NAME=VALUE", multiple=True, help="A setting of the topic."
)
@click.option("--if-not-exists", is_flag=True, help="Do nothing if the topic exists.")
@click.option("--validate-only", is_flag=True, help="Only check whether the topic could be created.")
@admin_command
async def create(
    output: Output,
    admin: AsyncAdmin,
    form: str,
    name: str,
    partitions: int | None,
    replication_factor: int | None,
    replica_assignment: str | None,
    configs: tuple[str, ...],
    if_not_exists: bool,
    validate_only: bool,
) -> int:
    """Create a topic."""
    from kafka_actors.admin import NewTopic

    if replica_assignment is not None and (partitions is not None or replication_factor is not None):
        raise UsageError("--replica-assignment goes with neither --partitions nor --replication-factor")
    topic = NewTopic(
        name,
        partitions,
        replication_factor,
        None if replica_assignment is None else _assignment(replica_assignment),
        dict(setting(text, "--config") for text in configs),
    )
    created = not validate_only
    try:
        await admin.create_topics([topic], validate_only=validate_only)
    except TopicAlreadyExistsError:
        if not if_not_exists:
            raise
        created = False
        note(f"Topic {name} already exists.")
    else:
        text = f"Created topic {name}." if created else f"Topic {name} could be created."
        note(text) if form != "text" else show(output, form, [text], None)
    if form != "text":
        show(output, form, [], {"name": name, "created": created})
    return EXIT_DONE


@topics.command()
@click.option(
    "-t", "--topic", "wanted", metavar="TOPIC", multiple=True, required=True, help="May be repeated."
)
@click.option(
    "--partitions", type=IntRange(1, INT_MAX), required=True, help="Number of partitions afterwards."
)
@click.option("--validate-only", is_flag=True, help="Only check whether partitions could be added.")
@admin_command
async def alter(
    output: Output,
    admin: AsyncAdmin,
    form: str,
    wanted: tuple[str, ...],
    partitions: int,
    validate_only: bool,
) -> int:
    """Add partitions to topics. Records stay where they are, and later ones of a key may go to another partition."""
    named = names(wanted, "--topic")
    done = "could have" if validate_only else "has"
    lines = await in_turn(
        named,
        lambda name: admin.create_partitions({name: partitions}, validate_only=validate_only),
        lambda name: f"Topic {name} {done} {partitions} partitions.",
    )
    document = [{"name": name, "partitions": partitions, "altered": not validate_only} for name in named]
    show(output, form, lines, document)
    return EXIT_DONE


@topics.command()
@click.option(
    "-t", "--topic", "wanted", metavar="TOPIC", multiple=True, required=True, help="May be repeated."
)
@click.option("--if-exists", is_flag=True, help="Do nothing for a topic that doesn't exist.")
@admin_command
async def delete(
    output: Output, admin: AsyncAdmin, form: str, wanted: tuple[str, ...], if_exists: bool
) -> int:
    """Delete topics with all their records."""
    named = names(wanted, "--topic")
    gone = set()

    async def delete_one(name: str) -> None:
        try:
            await admin.delete_topics([name])
        except UnknownTopicOrPartitionError:
            if not if_exists:
                raise
            gone.add(name)

    def line(name: str) -> str:
        return f"Topic {name} does not exist." if name in gone else f"Deleted topic {name}."

    await in_turn(named, delete_one, line)
    for name in filter(gone.__contains__, named):
        note(line(name))
    lines = [line(name) for name in named if name not in gone]
    show(output, form, lines, [{"name": name, "deleted": name not in gone} for name in named])
    return EXIT_DONE


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise UsageError(f"--topic {pattern!r} is not a regular expression: {error}") from None


def _assignment(text: str) -> list[list[int]]:
    try:
        found = [[int(broker) for broker in replicas.split(":")] for replicas in text.split(",")]
    except ValueError:
        found = []
    if not found or not all(0 <= broker <= INT_MAX for replicas in found for broker in replicas):
        raise UsageError(
            f"--replica-assignment {text!r}: give broker ids such as 1:2,2:3, a group for each partition"
        )
    return found

"""Scopes of commands, as the command line names them: groups, topics with partitions, times, offsets in a file."""

from __future__ import annotations

import asyncio
import csv
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kafka_actors.base.timeouts import parse_iso8601
from kafka_actors.errors import ClusterAuthorizationFailedError, UnknownTopicOrPartitionError, UsageError
from kafka_actors.spark.source.machines.task_markers import is_marker_group
from kafka_actors.types import TopicPartition

from .command import INT_MAX
from .output import note

if TYPE_CHECKING:
    from kafka_actors.admin import AsyncAdmin, GroupListing, PartitionLag

__all__ = [
    "ago",
    "all_lags",
    "all_or_named",
    "consumer_groups",
    "exclude_internal_option",
    "existing_partitions",
    "group_options",
    "ids",
    "milliseconds",
    "moment",
    "names",
    "offsets_of_file",
    "setting",
    "time_of",
    "topic_scope",
    "topics_option",
]

CONSUMERS = ("consumer", "")
"""Protocol types of consumer groups; the empty one is that of a group without members, known by its commits alone."""
SPECIAL_TIMES = {"latest": -1, "earliest": -2, "max-timestamp": -3}
LAGS_AT_ONCE = 16
FIRST_YEAR, EARLY_MS = 1_000, 10**11
"""Numbers between these are years, or seconds since 1970, rather than milliseconds, which would be before 1974."""
_RANGE = re.compile(r"(\d+)?(-)?(\d+)?")


def names(values: Iterable[str], option: str) -> list[str]:
    """Values of an option that may be repeated and holds comma-separated lists, in order and each once."""
    found = list(dict.fromkeys(part.strip() for value in values for part in value.split(",")))
    if "" in found:
        raise UsageError(f"{option}: has an empty name")
    return found


def setting(text: str, option: str) -> tuple[str, str]:
    """Name and value of an option NAME=VALUE."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise UsageError(f"{option} {text!r}: give NAME=VALUE")
    return name.strip(), value


def topics_option(more: str = "") -> Callable[[Any], Any]:
    """Option `--topic`, which may be repeated; `topic_scope` reads its values. `more` is appended to its help."""
    text = f"A topic, or partitions of it; may be repeated. {more}".rstrip()
    return click.option("-t", "--topic", "topics", metavar="TOPIC[:0,1]", multiple=True, help=text)


def exclude_internal_option(flag: str) -> Callable[[Any], Any]:
    """Flag under one of the names that Kafka's tools have for it; its argument is called `exclude_internal`."""
    return click.option(flag, "exclude_internal", is_flag=True, help="Without Kafka's own topics.")


def topic_scope(values: Iterable[str]) -> dict[str, list[int] | None]:
    """Topics of `--topic` with their partitions: `orders` is all of them (None), `orders:0,1` two."""
    scope: dict[str, list[int] | None] = {}
    for value in values:
        topic, colon, numbers = value.partition(":")
        if not topic:
            raise UsageError(f"--topic {value!r}: names no topic")
        partitions = ids(numbers, f"--topic {value}") if colon else None
        known = scope.get(topic, [])
        scope[topic] = None if partitions is None or known is None else sorted({*known, *partitions})
    return scope


def existing_partitions(
    topic: str, chosen: Iterable[int] | None, existing: Collection[int] | None
) -> list[int]:
    """Partitions of a topic that a command is about: the chosen ones, or all. Raises `UnknownTopicOrPartitionError` for one that
    doesn't exist, or where there is no such topic (`existing` is None)."""
    if existing is None:
        raise UnknownTopicOrPartitionError(topic=topic)
    for partition in chosen or ():
        if partition not in existing:
            raise UnknownTopicOrPartitionError(topic=topic, partition=partition)
    return sorted(chosen or existing)


def ids(text: str, option: str) -> list[int]:
    """Partition ids: `0,2,5-7`."""
    found: set[int] = set()
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None or match[1] is None or bool(match[2]) != bool(match[3]):
            raise UsageError(f"{option}: {part!r} is not a partition: give ids such as 0,2,5-7")
        first, last = int(match[1]), int(match[3] or match[1])
        if last < first or last > INT_MAX:
            raise UsageError(f"{option}: {part!r} is not a range of partitions")
        if last - first > 1_000_000:
            raise UsageError(f"{option}: {part!r} is more partitions than a topic can have")
        found.update(range(first, last + 1))
    return sorted(found)


def time_of(text: str) -> int:
    """Time of `--time`: latest, earliest, max-timestamp, -1, -2, -3, milliseconds since 1970, or a date."""
    if text.lower() in SPECIAL_TIMES:
        return SPECIAL_TIMES[text.lower()]
    if re.fullmatch(r"-?\d+", text):
        number = int(text)
        if min(SPECIAL_TIMES.values()) <= number < 1 << 63:
            return _told_if_early(number, "--time")
        raise UsageError(f"--time {text}: accepts -1, -2, -3 and milliseconds since 1970")
    return moment(text, "--time", "earliest, latest, max-timestamp, milliseconds since 1970, or ")


def milliseconds(text: str, option: str, others: str = "") -> int:
    """Milliseconds since 1970 of a text that is that number, or a date and time as `moment` reads it."""
    if re.fullmatch(r"\d{1,18}", text):
        return _told_if_early(int(text), option)
    return moment(text, option, f"{others}milliseconds since 1970, or ")


def _told_if_early(number: int, option: str) -> int:
    """A number of milliseconds as it is; a note says which time it is taken for, if it is rather a year or seconds."""
    if FIRST_YEAR <= number < EARLY_MS:
        at = datetime.fromtimestamp(number / 1000, UTC).isoformat(timespec="milliseconds")
        note(f"{option} {number} is taken for milliseconds since 1970: {at}")
    return number


def moment(text: str, option: str, others: str = "") -> int:
    """Milliseconds since 1970 of a date and time such as 2026-01-31T17:05:00.000+01:00; UTC where it doesn't say.

    `others`: the other values that the option takes, for the text of the error."""
    try:
        if "T" not in text:
            raise ValueError
        found = datetime.fromisoformat(text)
    except ValueError:
        accepted = "YYYY-MM-DDTHH:mm:SS.sss, with Z or an offset such as +01:00 unless it is in UTC"
        raise UsageError(f"{option} {text!r}: give {others}{accepted}") from None
    found = found.replace(tzinfo=UTC) if found.tzinfo is None else found
    return _milliseconds(found)


def ago(text: str, now: datetime) -> int:
    """Milliseconds since 1970 of the time that was a duration (PT1H30M, P7D) before now."""
    try:
        seconds = parse_iso8601(text)
    except ValueError as error:
        raise UsageError(f"--by-duration: {error}") from None
    return max(0, _milliseconds(now) - round(seconds * 1000))


def _milliseconds(at: datetime) -> int:
    """Milliseconds since 1970, exact, unlike `timestamp()`. At least 0: no record is older, and brokers give negative numbers
    meanings of their own, such as -1 for the end of the log."""
    since = at - datetime(1970, 1, 1, tzinfo=UTC)
    return max(0, (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000)


def offsets_of_file(path: str, groups: list[str]) -> Mapping[str, dict[TopicPartition, int]]:
    """Offsets by group, from a file of `topic,partition,offset`, or of `group,topic,partition,offset`."""
    found: dict[str, dict[TopicPartition, int]] = {}
    try:
        text = Path(path).read_text(encoding="utf-8-sig")  # Excel puts a mark first
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--from-file {path}: {error}") from None
    for number, row in enumerate(csv.reader(text.splitlines()), 1):
        if not row:
            continue
        cells = [cell.strip() for cell in row]
        if len(cells) == 3 and len(groups) == 1:
            cells = [groups[0], *cells]
        if len(cells) != 4 or not (cells[2].isdecimal() and cells[3].isdecimal()) or not cells[1]:
            form = "topic,partition,offset" if len(groups) == 1 else "group,topic,partition,offset"
            raise UsageError(f"--from-file {path}, line {number}: is not {form}")
        group, topic, partition, offset = cells
        if group not in groups:
            raise UsageError(f"--from-file {path}, line {number}: group {group!r} is not given with --group")
        found.setdefault(group, {})[TopicPartition(topic, int(partition))] = int(offset)
    if not found:
        raise UsageError(f"--from-file {path}: has no offsets")
    return found


# ------------------------------------------------------------ groups


def group_options(function: Any) -> Any:
    """Adds `--group`, which may be repeated, and `--all-groups`."""
    function = click.option(
        "--all-groups", is_flag=True, help="All consumer groups, without Spark's markers."
    )(function)
    return click.option(
        "-g", "--group", "group_ids", metavar="GROUP", multiple=True, help="A group; may be repeated."
    )(function)


async def all_or_named(admin: AsyncAdmin, group_ids: tuple[str, ...], all_groups: bool) -> list[str]:
    """Groups that a command is about. Raises `UsageError` unless exactly one of the two options is given."""
    if bool(group_ids) == all_groups:
        raise UsageError("give either --group or --all-groups")
    if group_ids:
        return list(dict.fromkeys(group_ids))
    return [group.group_id for group in await consumer_groups(admin)]


async def consumer_groups(
    admin: AsyncAdmin, states: Collection[str] = (), types: Collection[str] = (), *, markers: bool = False
) -> list[GroupListing]:
    """Consumer groups that the principal may describe, of all or of some states and types; those in which tasks of Spark's transactional
    writes have their markers only with `markers`.

    Brokers leave out groups that it may not describe. So a warning is printed where there may be such groups, and
    `ClusterAuthorizationFailedError` is raised where the list would be empty for that reason.
    """
    listed = await admin.list_groups(states=states, types=types)
    operations = (await admin.describe_cluster(include_authorized_operations=True)).authorized_operations
    if operations is not None and "DESCRIBE" not in operations:
        if not listed and not states and not types:
            raise ClusterAuthorizationFailedError(
                "no group can be shown: name groups that you may describe", request="ListGroups"
            )
        note(
            "Warning: groups that you may not describe are left out: to see all, you need the right Describe on the cluster."
        )
    return [
        group
        for group in listed
        if group.protocol_type in CONSUMERS and (markers or not is_marker_group(group.group_id))
    ]


async def all_lags(admin: AsyncAdmin, group_ids: list[str]) -> dict[str, list[PartitionLag]]:
    """Lag of each group by its id; a few groups are asked for at a time. All at once, the last of thousands would wait for their
    answers behind all others, until their time is over."""
    at_once = asyncio.Semaphore(LAGS_AT_ONCE)

    async def lag_of(group_id: str) -> list[PartitionLag]:
        async with at_once:
            return await admin.lag(group_id)

    lags = await asyncio.gather(*map(lag_of, group_ids))
    return dict(zip(group_ids, lags, strict=True))

"""Which groups a command is about: `--group` or `--all-groups`."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import click

from kafka_actors.errors import ClusterAuthorizationFailedError, UsageError

from .connection import note

if TYPE_CHECKING:
    from kafka_actors.admin import AsyncAdmin, GroupListing, PartitionLag

__all__ = ["all_lags", "all_or_named", "consumer_groups", "group_options"]

CONSUMERS = ("consumer", "")
"""Protocol types of groups that consume: by the consumer protocol, or without members, by commits alone."""


def group_options(function: Any) -> Any:
    """`--group` (again and again, or with commas) and `--all-groups`."""
    function = click.option("--all-groups", is_flag=True, help="All consumer groups.")(function)
    return click.option(
        "-g", "--group", "group_ids", metavar="GROUP", multiple=True, help="A group; may be repeated."
    )(function)


async def all_or_named(admin: AsyncAdmin, group_ids: tuple[str, ...], all_groups: bool) -> list[str]:
    """The groups that a command is about. Raises `UsageError` unless either is given."""
    if bool(group_ids) == all_groups:
        raise UsageError("give either --group or --all-groups")
    if group_ids:
        return list(dict.fromkeys(group_ids))
    return [group.group_id for group in await consumer_groups(admin)]


async def consumer_groups(
    admin: AsyncAdmin, states: Collection[str] = (), types: Collection[str] = ()
) -> list[GroupListing]:
    """The consumer groups that the principal may describe, of all or of some states and types.

    Says so where there may be others, and raises `ClusterAuthorizationFailedError` where it may describe none: brokers
    leave out such groups without a word, and an empty list looks like an answer.
    """
    listed = await admin.list_groups(states=states, types=types)
    operations = (await admin.describe_cluster(include_authorized_operations=True)).authorized_operations
    if operations is not None and "DESCRIBE" not in operations:
        if not listed and not states and not types:
            raise ClusterAuthorizationFailedError(
                "no group is shown: name groups that you may describe", request="ListGroups"
            )
        note(
            "Warning: groups that you may not describe are left out: that needs the right Describe on the cluster."
        )
    return [group for group in listed if group.protocol_type in CONSUMERS]


async def all_lags(admin: AsyncAdmin, group_ids: list[str]) -> dict[str, list[PartitionLag]]:
    """The lag of each group, asked for all at once."""
    lags = await asyncio.gather(*(admin.lag(group_id) for group_id in group_ids))
    return dict(zip(group_ids, lags, strict=True))

"""`kafka-actors groups`: lists, describes and deletes groups, with the names and columns of `kafka-consumer-groups.sh`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import click

from kafka_actors.errors import UsageError

from .command import EXIT_DONE
from .connection import admin_command, in_turn
from .output import Output, note
from .reset_offsets import reset_offsets
from .results import columns, plain, show
from .scopes import all_lags, all_or_named, consumer_groups, group_options, names

if TYPE_CHECKING:
    from kafka_actors.admin import AsyncAdmin, GroupDescription, GroupListing, MemberDescription, PartitionLag
    from kafka_actors.types import TopicPartition

__all__ = ["groups"]

STATES = (
    "Stable",
    "Empty",
    "Dead",
    "PreparingRebalance",
    "CompletingRebalance",
    "Assigning",
    "Reconciling",
)
TYPES = ("Classic", "Consumer")
"""Types of consumer groups, as Kafka's tool names them."""
KEY = ("GROUP", "TOPIC", "PARTITION")
EPOCH = "LEADER-EPOCH"
OFFSETS = (
    "CURRENT-OFFSET",
    "LOG-END-OFFSET",
    "LAG",
    "CONSUMER-ID",
    "HOST",
    "CLIENT-ID",
)


@click.group()
def groups() -> None:
    """Consumer groups: list, describe, reset offsets, delete."""


@groups.command("list")
@click.option(
    "--state", metavar="[STATE,…]", is_flag=False, flag_value="", help="Show states, or only these."
)
@click.option(
    "--type", "kind", metavar="[TYPE,…]", is_flag=False, flag_value="", help="Show types, or only these."
)
@click.option("--markers", is_flag=True, help="Also the groups of markers of Spark's transactional writes.")
@admin_command
async def list_groups(
    output: Output, admin: AsyncAdmin, form: str, state: str | None, kind: str | None, markers: bool
) -> int:
    """List the consumer groups."""
    states, types = _some(state, "--state", STATES), _some(kind, "--type", TYPES)
    consumers = await consumer_groups(admin, states, types, markers=markers)
    show(output, form, list_lines(consumers, state is not None, kind is not None), consumers)
    return EXIT_DONE


def _some(value: str | None, option: str, known: tuple[str, ...]) -> list[str]:
    """Values of an option that narrows the list. Raises `UsageError` for a name that isn't `known`, which would find no group."""
    chosen = names([value], option) if value else []
    for name in chosen:
        if name.lower() not in map(str.lower, known):
            raise UsageError(f"{option}: {name!r} is none of {', '.join(known)}")
    return chosen


@groups.command()
@group_options
@click.option("--offsets", "view", flag_value="offsets", default=True, help="Offsets and lag (the default).")
@click.option("--members", "view", flag_value="members", help="The members of each group.")
@click.option("--state", "view", flag_value="state", help="The state of each group.")
@click.option("--verbose", is_flag=True, help="With more columns: epochs, assignments.")
@admin_command
async def describe(
    output: Output,
    admin: AsyncAdmin,
    form: str,
    group_ids: tuple[str, ...],
    all_groups: bool,
    view: str,
    verbose: bool,
) -> int:
    """Describe groups: their offset in each partition, their lag, and the member that reads it."""
    chosen = await all_or_named(admin, group_ids, all_groups)
    described = (await admin.describe_consumer_groups(chosen)).values()
    lags = await all_lags(admin, chosen) if view == "offsets" else {}
    for group in described:
        _warn_of_state(group)
    lines = describe_lines(list(described), lags, view, verbose)
    document = [
        {**plain(group), **({"partitions": lags[group.group_id]} if view == "offsets" else {})}
        for group in described
    ]
    show(output, form, lines, document)
    return EXIT_DONE


def _warn_of_state(group: GroupDescription) -> None:
    """Says why columns may be empty, in the words of Kafka's tool."""
    if group.state == "Empty":
        note(f"Consumer group '{group.group_id}' has no active members.")
    elif group.state in ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"):
        note(f"Warning: Consumer group '{group.group_id}' is rebalancing.")


@groups.command()
@group_options
@admin_command
async def delete(
    output: Output, admin: AsyncAdmin, form: str, group_ids: tuple[str, ...], all_groups: bool
) -> int:
    """Delete groups without members, with all their committed offsets."""
    chosen = await all_or_named(admin, group_ids, all_groups)
    await in_turn(
        chosen,
        lambda group_id: admin.delete_consumer_groups([group_id]),
        lambda group_id: f"Deletion of requested consumer groups ('{group_id}') was successful.",
    )
    quoted = ", ".join(f"'{group_id}'" for group_id in chosen)
    text = [f"Deletion of requested consumer groups ({quoted}) was successful."]
    show(output, form, text, [{"group_id": group_id, "deleted": True} for group_id in chosen])
    return EXIT_DONE


groups.add_command(reset_offsets)


# ------------------------------------------------------------ tables


def list_lines(groups: Sequence[GroupListing], states: bool, types: bool) -> list[str]:
    """Lines with the names of groups, and columns for their types and states where these are wanted."""
    if not states and not types:
        return [group.group_id for group in groups]
    titles = ["GROUP", *(["TYPE"] if types else []), *(["STATE"] if states else [])]
    rows = (
        [group.group_id, *([group.type] if types else []), *([group.state] if states else [])]
        for group in groups
    )
    return columns(titles, rows)


def describe_lines(
    groups: Sequence[GroupDescription], lags: Mapping[str, Sequence[PartitionLag]], view: str, verbose: bool
) -> list[str]:
    """Lines with a table for each group; `view` is offsets, members or state."""
    lines: list[str] = []
    for group in groups:
        if view == "state":
            table = _state(group, verbose)
        elif view == "members":
            table = _members(group, verbose)
        else:
            table = _offsets(lags[group.group_id], verbose)
        lines += ["", *table] if lines else table
    return lines


def _offsets(lags: Iterable[PartitionLag], verbose: bool) -> list[str]:
    titles = (*KEY, *((EPOCH,) if verbose else ()), *OFFSETS)
    rows = (
        (
            *(row.group_id, row.topic, row.partition),
            *((row.leader_epoch,) if verbose else ()),
            *(row.current_offset, row.log_end_offset, row.lag, row.member_id, row.host, row.client_id),
        )
        for row in lags
    )
    return columns(titles, rows)


def _members(group: GroupDescription, verbose: bool) -> list[str]:
    static = any(member.group_instance_id is not None for member in group.members)
    titles = ["GROUP", "CONSUMER-ID", *(["GROUP-INSTANCE-ID"] if static else []), "HOST", "CLIENT-ID"]
    titles.append("#PARTITIONS")
    if verbose:
        titles += ["CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT"]
    return columns(titles, (_member_row(group, member, static, verbose) for member in group.members))


def _member_row(
    group: GroupDescription, member: MemberDescription, static: bool, verbose: bool
) -> list[object]:
    row: list[object] = [group.group_id, member.member_id]
    row += [member.group_instance_id] if static else []
    row += [member.host, member.client_id, len(member.assignment)]
    if verbose:
        row += [member.member_epoch, _assignment(member.assignment)]
        row += [group.target_assignment_epoch, _assignment(member.target_assignment)]
    return row


def _assignment(partitions: Iterable[TopicPartition] | None) -> str | None:
    """Assignment of a member as text: `clicks:2;orders:0,1`."""
    by_topic = groupby(sorted(partitions or ()), key=lambda tp: tp.topic)
    text = ";".join(f"{topic}:{','.join(str(tp.partition) for tp in tps)}" for topic, tps in by_topic)
    return text or None


def _state(group: GroupDescription, verbose: bool) -> list[str]:
    at = group.coordinator
    titles = ["GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE"]
    row: list[object] = [group.group_id, f"{at.host}:{at.port} ({at.node_id})", group.assignor or None]
    row.append(group.state)
    if verbose:
        titles += ["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH"]
        row += [group.group_epoch, group.target_assignment_epoch]
    return columns([*titles, "#MEMBERS"], [[*row, len(group.members)]])

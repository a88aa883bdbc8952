"""`kafka-actors groups`: what `kafka-consumer-groups.sh` does, with its names and columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kafka_actors.errors import UsageError

from .connection import admin_command, note
from .errors import EXIT_DONE
from .group_choice import all_lags, all_or_named, consumer_groups, group_options
from .group_tables import describe_lines, list_lines
from .output import Output
from .reset import reset_offsets
from .results import plain, show
from .scopes import names

if TYPE_CHECKING:
    from kafka_actors.admin import AsyncAdmin, GroupDescription

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
"""Of consumer groups, as Kafka's tool names them."""


@click.group()
def groups() -> None:
    """Consumer groups: list, describe, reset offsets, delete."""


@groups.command("list")
@click.option(
    "--state", metavar="[STATE,…]", is_flag=False, flag_value="", help="Show states, or only these."
)
@click.option("--type", "kind", metavar="[TYPE,…]", is_flag=False, flag_value="", help="As --state, by type.")
@admin_command
async def list_groups(
    output: Output, admin: AsyncAdmin, form: str, state: str | None, kind: str | None
) -> int:
    """List the consumer groups."""
    states, types = _some(state, "--state", STATES), _some(kind, "--type", TYPES)
    consumers = await consumer_groups(admin, states, types)
    show(output, form, list_lines(consumers, state is not None, kind is not None), consumers)
    return EXIT_DONE


def _some(given: str | None, option: str, known: tuple[str, ...]) -> list[str]:
    """What an option of the list is narrowed to: a misspelled name would find no group, and look like an answer."""
    chosen = names([given], option) if given else []
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
    """Describe groups: where they are in each partition, how far behind, and who reads it."""
    chosen = await all_or_named(admin, group_ids, all_groups)
    described = (await admin.describe_consumer_groups(chosen)).values()
    lags = await all_lags(admin, chosen) if view == "offsets" else {}
    for group in described:
        _say_what_it_lacks(group)
    lines = describe_lines(list(described), lags, view, verbose)
    document = [
        {**plain(group), **({"partitions": lags[group.group_id]} if view == "offsets" else {})}
        for group in described
    ]
    show(output, form, lines, document)
    return EXIT_DONE


def _say_what_it_lacks(group: GroupDescription) -> None:
    """As Kafka's tool does, for those who wonder about an empty column."""
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
    """Delete groups without members, and all they have committed."""
    chosen = await all_or_named(admin, group_ids, all_groups)
    await admin.delete_consumer_groups(chosen)
    quoted = ", ".join(f"'{group_id}'" for group_id in chosen)
    text = [f"Deletion of requested consumer groups ({quoted}) was successful."]
    show(output, form, text, [{"group_id": group_id, "deleted": True} for group_id in chosen])
    return EXIT_DONE


groups.add_command(reset_offsets)

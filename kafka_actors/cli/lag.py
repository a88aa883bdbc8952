"""`kafka-actors lag`: how far groups are behind, by partition, topic or group."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from .command import EXIT_DONE
from .connection import admin_command
from .output import Output
from .results import columns, show
from .scopes import all_lags, all_or_named, group_options

if TYPE_CHECKING:
    from kafka_actors.admin import AsyncAdmin, PartitionLag

__all__ = ["lag"]

KEYS = {"partition": 3, "topic": 2, "group": 1}
"""Value of `--by` → how many of group, topic and partition are the key of a row."""


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

    Partitions count that the group has committed an offset for, or that a member reads; "-" is an unknown value.
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
    """Rows of (group, topic, partitions, lag) or (group, partitions, lag). A sum with an unknown part is None."""
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

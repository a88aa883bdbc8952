"""`kafka-actors groups reset-offsets`: shows a plan of new offsets, and commits them with --execute (KIP-122)."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from kafka_actors.errors import UsageError

from .command import EXIT_DONE, IntRange
from .connection import admin_command, in_turn
from .output import Output, note
from .results import columns, show
from .scopes import (
    ago,
    all_or_named,
    group_options,
    moment,
    offsets_of_file,
    topic_scope,
    topics_option,
)

if TYPE_CHECKING:
    from kafka_actors.admin import AsyncAdmin, OffsetReset, OffsetTarget

__all__ = ["reset_offsets"]

TARGETS = (
    "--to-earliest",
    "--to-latest",
    "--to-current",
    "--to-offset",
    "--to-datetime",
    "--by-duration",
    "--shift-by",
    "--from-file",
)
COLUMNS = ("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET")


@click.command("reset-offsets")
@group_options
@topics_option()
@click.option("--all-topics", is_flag=True, help="All topics that the group has committed for.")
@click.option("--to-earliest", is_flag=True, help="To the start of the log.")
@click.option("--to-latest", is_flag=True, help="To the end of the log.")
@click.option("--to-current", is_flag=True, help="To the committed offset; to the end where there is none.")
@click.option("--to-offset", type=IntRange(min=0), metavar="OFFSET", help="To one offset.")
@click.option(
    "--to-datetime",
    metavar="TIME",
    help="To a time: YYYY-MM-DDTHH:mm:SS.sss, in UTC unless it has an offset.",
)
@click.option("--by-duration", metavar="DURATION", help="To the time that was this duration ago: PnDTnHnMnS.")
@click.option("--shift-by", type=int, metavar="N", help="Forward by N offsets, or back if N is negative.")
@click.option(
    "--from-file", metavar="FILE", help="To the offsets of a CSV file: [GROUP,]TOPIC,PARTITION,OFFSET."
)
@click.option("--dry-run", is_flag=True, help="Only show the plan; the default.")
@click.option("--execute", is_flag=True, help="Commit the offsets of the plan.")
@click.option("--export", is_flag=True, help="Print the plan as CSV, for --from-file.")
@admin_command
async def reset_offsets(
    output: Output,
    admin: AsyncAdmin,
    form: str,
    group_ids: tuple[str, ...],
    all_groups: bool,
    topics: tuple[str, ...],
    all_topics: bool,
    dry_run: bool,
    execute: bool,
    export: bool,
    **where: Any,
) -> int:
    """Show the offsets from which groups would go on, and commit them with --execute.

    Groups with members are refused. Offsets outside of a log move to its nearest end.
    """
    if dry_run and execute:
        raise UsageError("give either --dry-run or --execute")
    if export and form != "text":
        raise UsageError(f"--export is CSV: it goes with --output text, not with {form}")
    scope = _scope(topics, all_topics, where["from_file"])
    target = _target(where, group_ids)
    chosen = await all_or_named(admin, group_ids, all_groups)
    if isinstance(target, dict):
        chosen = [group_id for group_id in chosen if group_id in target]

    async def reset(group_id: str, now: bool) -> list[OffsetReset]:
        to = target[group_id] if isinstance(target, dict) else target
        return await admin.reset_offsets(group_id, to, scope, execute=now)

    async def commit(group_id: str) -> None:
        committed.extend(await reset(group_id, True))

    # All groups are planned before any is changed: the last one may be refused.
    plan = [row for group_id in chosen for row in await reset(group_id, False)]
    if execute:
        committed: list[OffsetReset] = []
        await in_turn(chosen, commit, lambda group_id: f"Offsets of group {group_id} were committed.")
        plan = committed
    for row in plan:
        if row.note is not None:
            note(f"{row.group_id}: {row.topic}-{row.partition}: {row.note}: {row.new_offset} is taken")
    lines = _csv(plan, len(chosen) > 1) if export else _table(plan)
    show(output, form, lines, {"executed": execute, "offsets": plan})
    if not execute and form == "text":
        note("Nothing was changed: --execute commits these offsets.")
    return EXIT_DONE


def _scope(
    topics: Sequence[str], all_topics: bool, from_file: str | None
) -> dict[str, list[int] | None] | None:
    if from_file is not None:
        if topics or all_topics:
            raise UsageError("--from-file names the topics: give neither --topic nor --all-topics")
        return None
    if bool(topics) == all_topics:
        raise UsageError("give either --topic or --all-topics")
    return topic_scope(topics) if topics else None


def _target(where: Mapping[str, Any], group_ids: tuple[str, ...]) -> OffsetTarget | dict[str, OffsetTarget]:
    """Target that is given; with --from-file one for each group."""
    from kafka_actors.admin import OffsetTarget

    flags = [name for name, value in where.items() if value is not None and value is not False]
    if len(flags) != 1:
        raise UsageError(f"give one of {', '.join(TARGETS)}")
    [name] = flags
    value = where[name]
    if name == "from_file":
        offsets = offsets_of_file(value, list(dict.fromkeys(group_ids)))
        return {group_id: OffsetTarget.explicit(found) for group_id, found in offsets.items()}
    if name == "to_datetime":
        return OffsetTarget.timestamp(moment(value, "--to-datetime"))
    if name == "by_duration":
        return OffsetTarget.timestamp(ago(value, datetime.now(UTC)))  # wall clock: a duration before now
    if name == "to_offset":
        return OffsetTarget.offset(value)
    if name == "shift_by":
        return OffsetTarget.shift_by(value)
    made = {"to_earliest": OffsetTarget.earliest, "to_latest": OffsetTarget.latest}
    return made.get(name, OffsetTarget.current)()


def _table(plan: Iterable[OffsetReset]) -> list[str]:
    return columns(COLUMNS, ((r.group_id, r.topic, r.partition, r.new_offset) for r in plan))


def _csv(plan: Iterable[OffsetReset], several: bool) -> list[str]:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for r in plan:
        writer.writerow([*([r.group_id] if several else []), r.topic, r.partition, r.new_offset])
    return text.getvalue().splitlines()

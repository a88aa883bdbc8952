"""Groups in the columns of `kafka-consumer-groups.sh`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from .results import columns

if TYPE_CHECKING:
    from kafka_actors.admin import GroupDescription, GroupListing, MemberDescription, PartitionLag
    from kafka_actors.types import TopicPartition

__all__ = ["describe_lines", "list_lines"]

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


def list_lines(groups: Sequence[GroupListing], states: bool, types: bool) -> list[str]:
    """Names alone, or with a column for what was asked for."""
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
    """A table for each group; `view` is offsets, members or state."""
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
    """`orders:0,1;clicks:2`"""
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

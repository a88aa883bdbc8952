"""The Grafana dashboard that the chart brings, from the list of its panels: `make docs-dashboard`.

Lag and offsets of a partition are those that the job tells, else those that others tell of its group under their own names:
kafka_exporter (`kafka_consumergroup_lag`), kafka-lag-exporter (`kafka_consumergroup_group_lag_seconds`). The collector's
kafkametrics receiver has the job's names.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

FILE = Path(__file__).parents[2] / "helm" / "kafka-actors" / "files" / "dashboard.json"

WIDTH = 24
"""Grafana's columns."""


class Panel(NamedTuple):
    """`queries`: legend → expression. `kind`: `stat` shows the value of now, `timeseries` how it came to it."""

    title: str
    says: str
    queries: dict[str, str]
    unit: str = "short"
    kind: str = "timeseries"
    width: int = 8


def _called(metric: str) -> str:
    """A metric of kafka_exporter, of the chosen groups, with the group under the name that it has elsewhere."""
    return f'label_replace({metric}{{consumergroup=~"$group"}}, "group", "$1", "consumergroup", "(.*)")'


def _first(ours: str, theirs: str, by: str = "group, topic, partition") -> str:
    """Expression for the job's metric, and an exporter's where the job has none: each series once."""
    return f"(max by ({by}) ({ours}) or max by ({by}) ({theirs}))"


def _of(metric: str, more: str = "", label: str = "group") -> str:
    """A metric of ours, of the chosen groups."""
    return f'{metric}{{{label}=~"$group"{more}}}'


def _rate(metric: str, more: str = "", label: str = "group") -> str:
    return f"rate({_of(metric, more, label)}[$__rate_interval])"


def _quantile(of: str, metric: str, by: str = "", more: str = "", label: str = "group") -> str:
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({of}, sum by ({labels}) ({_rate(f'{metric}_bucket', more, label)}))"


MESSAGES = "messaging_consumer_group_name"
OPERATION = "messaging_client_operation_duration_seconds"
PROCESS = "messaging_process_duration_seconds"
READY, NOT_DONE, FAILED = ', ready="true"', ', reason!~"at_end|not_due|reading_ahead"', ', error_type!=""'
COMMITS, FETCHES = (f', messaging_operation_name="{name}"' for name in ("commit", "fetch"))
LAG = _first(_of("kafka_consumer_group_lag"), _called("kafka_consumergroup_lag"))
LAG_TIME = _first(
    _of("kafka_actors_consumer_group_lag_time_seconds"), _of("kafka_consumergroup_group_lag_seconds")
)
COMMITTED = _first(_of("kafka_consumer_group_offset"), _called("kafka_consumergroup_current_offset"))
MEMBERS = _first(_of("kafka_consumer_group_members"), _called("kafka_consumergroup_members"), "group")
CONSUMED = _rate("messaging_client_consumed_messages_total", label=MESSAGES)

PANELS = [
    Panel("Lag", "Records that are not processed yet.", {"": f"sum({LAG})"}, kind="stat", width=4),
    Panel(
        "Behind",
        "How long ago the log of the partition that is furthest behind ended where the group is now.",
        {"": f"max({LAG_TIME})"},
        "s",
        "stat",
        4,
    ),
    Panel("Records a second", "Processed, over all workers.", {"": f"sum({CONSUMED})"}, kind="stat", width=4),
    Panel(
        "Latency, p99",
        "From a record's timestamp to its having been processed.",
        {"": _quantile("0.99", "kafka_actors_latency_seconds")},
        "s",
        "stat",
        4,
    ),
    Panel(
        "Workers ready",
        "Of the job.",
        {"": f"sum({_of('kafka_actors_workers', READY)})"},
        kind="stat",
        width=4,
    ),
    Panel(
        "Blocked",
        "Partitions from which nothing is read or processed; those of a bounded run that are at their end left out.",
        {"": f"sum({_of('kafka_actors_partition_blocked', NOT_DONE)}) or vector(0)"},
        kind="stat",
        width=4,
    ),
    Panel(
        "Lag, by topic",
        "As the job tells it; of partitions that other members of its group have, as an exporter does.",
        {"{{group}} {{topic}}": f"sum by (group, topic) ({LAG})"},
    ),
    Panel(
        "Lag in time, by topic",
        "Of the partition that is furthest behind.",
        {"{{group}} {{topic}}": f"max by (group, topic) ({LAG_TIME})"},
        "s",
    ),
    Panel(
        "Committed, a second",
        "How fast the group's offsets move.",
        {"{{group}} {{topic}}": f"sum by (group, topic) (deriv({COMMITTED}[5m:30s]))"},
    ),
    Panel(
        "Records processed, by topic",
        "A second.",
        {"{{messaging_destination_name}}": f"sum by (messaging_destination_name) ({CONSUMED})"},
    ),
    Panel(
        "Latency",
        "From a record's timestamp to its having been processed.",
        {
            "p50": _quantile("0.5", "kafka_actors_latency_seconds"),
            "p99": _quantile("0.99", "kafka_actors_latency_seconds"),
        },
        "s",
    ),
    Panel(
        "Calls of the function",
        "How long one takes, and how many fail.",
        {
            "p50": _quantile("0.5", PROCESS, label=MESSAGES),
            "p99": _quantile("0.99", PROCESS, label=MESSAGES),
            "{{error_type}} a second": f"sum by (error_type) ({_rate(PROCESS + '_count', FAILED, MESSAGES)})",
        },
        "s",
    ),
    Panel(
        "Blocked partitions, by reason",
        "paused, buffer_full, no_leader, open_transaction, retrying, failed and others: see the failure guide.",
        {"{{reason}}": f"sum by (reason) ({_of('kafka_actors_partition_blocked')})"},
    ),
    Panel(
        "Rebalances",
        "How many there were in five minutes, and how long they took in the mean.",
        {
            "rebalances": f"sum(increase({_of('kafka_actors_consumer_group_rebalance_duration_seconds_count')}[5m]))",
            "failed": f"sum(increase({_of('kafka_actors_consumer_group_rebalance_failures_total')}[5m]))",
            "seconds each": f"sum(increase({_of('kafka_actors_consumer_group_rebalance_duration_seconds_sum')}[5m]))"
            f" / sum(increase({_of('kafka_actors_consumer_group_rebalance_duration_seconds_count')}[5m]))",
        },
    ),
    Panel(
        "Moves and drains inside the job",
        "Partitions in five minutes. The group doesn't rebalance for them.",
        {
            "{{cause}}": f"sum by (cause) (increase({_of('kafka_actors_partition_moves_total')}[5m]))",
            "drains {{outcome}}": f"sum by (outcome) (increase({_of('kafka_actors_partition_drains_total')}[5m]))",
        },
    ),
    Panel(
        "Restarts",
        "Actors that were replaced in five minutes, by role.",
        {"{{role}}": f"sum by (role) (increase({_of('kafka_actors_actor_restarts_total')}[5m]))"},
    ),
    Panel(
        "Workers and members",
        "Workers of the job; members of the Kafka group, of which the job is one.",
        {
            "workers, ready {{ready}}": f"sum by (ready) ({_of('kafka_actors_workers')})",
            "members of {{group}}": MEMBERS,
        },
    ),
    Panel(
        "Commits",
        "How long one takes, and how many fail.",
        {
            "p99": _quantile("0.99", OPERATION, more=COMMITS, label=MESSAGES),
            "{{error_type}} a second": "sum by (error_type) ("
            + _rate(f"{OPERATION}_count", COMMITS + FAILED, MESSAGES)
            + ")",
        },
        "s",
    ),
    Panel(
        "Fetched, by broker",
        "Bytes a second, as the broker sends them: compressed.",
        {
            "{{server_address}}:{{server_port}}": "sum by (server_address, server_port) ("
            + _rate("kafka_actors_fetch_size_bytes_total", label=MESSAGES)
            + ")"
        },
        "Bps",
    ),
    Panel(
        "Fetches, by broker",
        "How long nine of ten take; where there is nothing to read, the broker waits for fetch_max_wait_ms.",
        {
            "{{server_address}}:{{server_port}}": _quantile(
                "0.9",
                OPERATION,
                "server_address, server_port",
                FETCHES,
                MESSAGES,
            )
        },
        "s",
    ),
    Panel(
        "Buffers",
        "What workers have fetched and not processed, as a part of what they may hold.",
        {
            "{{worker}}": f"{_of('kafka_actors_buffer_usage_bytes')} / {_of('kafka_actors_buffer_limit_bytes')}"
        },
        "percentunit",
    ),
    Panel(
        "What went wrong",
        "In five minutes: calls that were repeated, records that failed for good, batches that can't be read, positions that "
        "moved, partitions that didn't.",
        {
            "retries": f"sum(increase({_of('kafka_actors_process_retries_total', label=MESSAGES)}[5m]))",
            "{{outcome}}": f"sum by (outcome) (increase({_of('kafka_actors_failed_messages_total', label=MESSAGES)}[5m]))",
            "bad batches": f"sum(increase({_of('kafka_actors_bad_batches_total', label=MESSAGES)}[5m]))",
            "reset: {{reason}}": f"sum by (reason) (increase({_of('kafka_actors_offset_resets_total', label=MESSAGES)}[5m]))",
            "stalls": f"sum(increase({_of('kafka_actors_partition_stalls_total', label=MESSAGES)}[5m]))",
            "fetches": f"sum(increase({_of('kafka_actors_fetch_failures_total', label=MESSAGES)}[5m]))",
        },
        width=16,
    ),
]

GROUPS = (
    "query_result(count by (group) (kafka_consumer_group_lag)"
    ' or count by (group) (label_replace(kafka_consumergroup_lag, "group", "$1", "consumergroup", "(.*)")))'
)


def dashboard() -> dict[str, Any]:
    """Dashboard as Grafana imports it, from 10 on."""
    return {
        "title": "kafka-actors",
        "uid": "kafka-actors",
        "tags": ["kafka"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [_source(), _groups()]},
        "panels": list(_placed(PANELS)),
    }


def expressions() -> Iterator[tuple[str, str]]:
    """Each query under its panel's title, as Prometheus takes it: of all groups, and over as long as Grafana would say."""
    for panel in PANELS:
        for query in panel.queries.values():
            yield panel.title, query.replace("$__rate_interval", "1m").replace("$group", ".*")


def _source() -> dict[str, Any]:
    return {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}


def _groups() -> dict[str, Any]:
    return {
        "name": "group",
        "label": "Group",
        "type": "query",
        "datasource": _DATASOURCE,
        "query": {"query": GROUPS, "refId": "groups"},
        "regex": '/group="([^"]+)"/',
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


_DATASOURCE = {"type": "prometheus", "uid": "${source}"}


def _placed(panels: list[Panel]) -> Iterator[dict[str, Any]]:
    """From left to right, in lines of Grafana's width."""
    x = y = height = 0
    for number, panel in enumerate(panels, 1):
        if x + panel.width > WIDTH:
            x, y = 0, y + height
        height = 4 if panel.kind == "stat" else 8
        yield _panel(number, panel, {"x": x, "y": y, "w": panel.width, "h": height})
        x += panel.width


def _panel(number: int, panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    targets = [
        {"refId": chr(ord("A") + n), "datasource": _DATASOURCE, "expr": query, "legendFormat": legend}
        for n, (legend, query) in enumerate(panel.queries.items())
    ]
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.says,
        "datasource": _DATASOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": targets,
    }


def text() -> str:
    return json.dumps(dashboard(), indent=1) + "\n"


def main() -> int:
    FILE.write_text(text())
    return 0


if __name__ == "__main__":
    sys.exit(main())

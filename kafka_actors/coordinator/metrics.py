"""What a coordinator measures: the sensors and metrics that Kafka's own clients have, by their names.

After `GroupCoordinatorMetrics` in `AbstractCoordinator.java` and `ConsumerCoordinatorMetrics` in
`ConsumerCoordinator.java`. Latencies are milliseconds. The group of all of them is `{prefix}-coordinator-metrics`.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafka_actors.cluster import SubscriptionState
from kafka_actors.errors import ConfigError
from kafka_actors.metrics import MetricName, Metrics, Sensor, Stat

from .heartbeat import Heartbeat
from .machines.verdicts import Api

__all__ = ["ConsumerCoordinatorMetrics", "GroupCoordinatorMetrics"]

UNKNOWN = -1.0
"""What a gauge says of something that has not happened yet, as in Java's client."""


class _Group:
    """Metrics of one group, which go together when their owner ends."""

    def __init__(self, metrics: Metrics, prefix: str, tags: Mapping[str, str] | None) -> None:
        self.metrics = metrics
        self.metric_group_name = f"{prefix}-coordinator-metrics"
        self._tags = tags
        self._names: list[MetricName] = []

    def _name(self, name: str, description: str) -> MetricName:
        made = self.metrics.metric_name(name, self.metric_group_name, description, self._tags)
        if made in self.metrics:
            self.close()
            of = f" of {dict(self._tags)!r}" if self._tags else ""
            raise ConfigError(
                "metrics",
                f"holds another coordinator's {name}{of}: give each its own client_id, or a registry of its own",
            )
        self._names.append(made)
        return made

    def _sensor(self, name: str, stats: Mapping[str, tuple[Stat, str]]) -> Sensor:
        unit = "ms" if name.endswith("-latency") else ""
        sensor = self.metrics.sensor(name, self._tags, unit=unit)
        for metric, (stat, description) in stats.items():
            sensor.add(self._name(metric, description), stat)
        return sensor

    def close(self) -> None:
        """Takes the metrics out of the registry: their owner has ended."""
        for name in self._names:
            self.metrics.remove_metric(name)
        self._names.clear()


class GroupCoordinatorMetrics(_Group):
    """Of a membership: how long the coordinator takes to answer, and how the group rebalances.

    heartbeat: of whom `last-heartbeat-seconds-ago` tells. metrics: where they are registered; tags: which
    coordinator, where one registry serves several. Raises `ConfigError` where these names are in use there.
    """

    def __init__(
        self, heartbeat: Heartbeat, metrics: Metrics, prefix: str, tags: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(metrics, prefix, tags)
        self.heartbeat = heartbeat
        self.heartbeat_latency = self._sensor(
            "heartbeat-latency",
            {
                "heartbeat-response-time-max": (Stat.MAX, "The longest time to an answer to a heartbeat"),
                "heartbeat-rate": (Stat.RATE, "Heartbeats a second"),
                "heartbeat-total": (Stat.COUNT, "Heartbeats"),
            },
        )
        self.join_latency = self._sensor(
            "join-latency",
            {
                "join-time-avg": (Stat.AVG, "The mean time of joining the group"),
                "join-time-max": (Stat.MAX, "The longest time of joining the group"),
                "join-rate": (Stat.RATE, "Joins a second"),
                "join-total": (Stat.COUNT, "Joins"),
            },
        )
        self.sync_latency = self._sensor(
            "sync-latency",
            {
                "sync-time-avg": (Stat.AVG, "The mean time of waiting for the assignment"),
                "sync-time-max": (Stat.MAX, "The longest time of waiting for the assignment"),
                "sync-rate": (Stat.RATE, "Assignments received a second"),
                "sync-total": (Stat.COUNT, "Assignments received"),
            },
        )
        self.rebalance_latency = self._sensor(
            "rebalance-latency",
            {
                "rebalance-latency-avg": (Stat.AVG, "The mean time from wanting to join to being assigned"),
                "rebalance-latency-max": (
                    Stat.MAX,
                    "The longest time from wanting to join to being assigned",
                ),
                "rebalance-latency-total": (Stat.TOTAL, "The time spent on rebalances that succeeded"),
                "rebalance-total": (Stat.COUNT, "Rebalances that succeeded"),
                "rebalance-rate-per-hour": (Stat.RATE_PER_HOUR, "Rebalances that succeeded, an hour"),
            },
        )
        self.failed_rebalance = self._sensor(
            "failed-rebalance",
            {
                "failed-rebalance-total": (Stat.COUNT, "Rebalances that failed"),
                "failed-rebalance-rate-per-hour": (Stat.RATE_PER_HOUR, "Rebalances that failed, an hour"),
            },
        )
        self._rebalancing_since: float | None = None
        self._rebalanced_at: float | None = None
        metrics.add_metric(
            self._name("last-heartbeat-seconds-ago", "Seconds since a heartbeat was last sent"),
            lambda now: _ago(self.heartbeat.last_send, now),
        )
        metrics.add_metric(
            self._name("last-rebalance-seconds-ago", "Seconds since a rebalance last succeeded"),
            lambda now: _ago(self._rebalanced_at, now),
        )

    def answered(self, api: Api, seconds: float, succeeded: bool) -> None:
        """An answer came, this long after its request. Of joins and syncs those that succeeded are counted."""
        if api is Api.HEARTBEAT:
            self.heartbeat_latency.record(seconds * 1000)
        elif api is Api.JOIN and succeeded:
            self.join_latency.record(seconds * 1000)
        elif api is Api.SYNC and succeeded:
            self.sync_latency.record(seconds * 1000)

    def rebalance_started(self) -> None:
        """The member wants to join. Where the last attempt has brought no assignment, it failed."""
        now = self.metrics.now()
        if self._rebalancing_since is not None:
            self.failed_rebalance.record()
        self._rebalancing_since = now

    def rebalance_ended(self) -> None:
        """The member has its assignment."""
        now = self.metrics.now()
        if self._rebalancing_since is not None:
            self.rebalance_latency.record((now - self._rebalancing_since) * 1000)
        self._rebalancing_since, self._rebalanced_at = None, now


class ConsumerCoordinatorMetrics(_Group):
    """Of a consumer: how long commits take, and how many partitions it has. Arguments as for the group's."""

    def __init__(
        self,
        metrics: Metrics,
        metric_group_prefix: str,
        subscription: SubscriptionState,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(metrics, metric_group_prefix, tags)
        self.commit_latency = self._sensor(
            "commit-latency",
            {
                "commit-latency-avg": (Stat.AVG, "The mean time to an answer to a commit"),
                "commit-latency-max": (Stat.MAX, "The longest time to an answer to a commit"),
                "commit-rate": (Stat.RATE, "Commits a second"),
                "commit-total": (Stat.COUNT, "Commits"),
            },
        )
        metrics.add_metric(
            self._name("assigned-partitions", "Partitions that are assigned"),
            lambda now: len(subscription.assigned),
        )


def _ago(then: float | None, now: float) -> float:
    return UNKNOWN if then is None else now - then

"""Metrics of a coordinator: the sensors that Kafka's own clients have, by their names.

After `GroupCoordinatorMetrics` in `AbstractCoordinator.java` and `ConsumerCoordinatorMetrics` in
`ConsumerCoordinator.java`. Latencies are milliseconds. The group of all of them is `{prefix}-coordinator-metrics`.
They are views on the instruments of `kafka_actors.telemetry`, which get the same values, in seconds.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafka_actors.cluster import SubscriptionState
from kafka_actors.errors import ConfigError, KafkaError, error_for_code
from kafka_actors.metrics import MetricName, Metrics, Sensor, Stat
from kafka_actors.telemetry.attributes import Attributes, of_group, of_operation, with_error
from kafka_actors.telemetry.instruments import (
    GROUP_REQUEST_DURATION,
    OPERATION_DURATION,
    REBALANCE_DURATION,
    REBALANCE_FAILURES,
    Instrument,
)
from kafka_actors.telemetry.recorder import GroupRecorder, Recorder, metered

from .heartbeat import Heartbeat
from .machines.error_actions import GroupApi

__all__ = ["ConsumerCoordinatorMetrics", "GroupCoordinatorMetrics"]

UNKNOWN = -1.0
"""The value of a gauge about something that has not happened yet, as in Java's client."""


class _MetricGroup:
    """Metrics of one group, which go together when their owner ends."""

    def __init__(
        self, metrics: Metrics, prefix: str, tags: Mapping[str, str] | None, group_id: str | None
    ) -> None:
        self.metrics = metrics
        self.recorder: Recorder = GroupRecorder(metrics.recorder or metered(), group_id)
        self._group_id = group_id
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

    def _sensor(
        self,
        name: str,
        instrument: Instrument | None,
        attributes: Attributes,
        stats: Mapping[str, tuple[Stat, str]],
    ) -> Sensor:
        """instrument: of which the sensor is a view; None where its owner records into both, with more attributes."""
        export = None if instrument is None else self.recorder.into(instrument, attributes)
        scale = 1000 if name.endswith("-latency") else 1
        sensor = self.metrics.sensor(name, self._tags, export=export, scale=scale)
        for metric, (stat, description) in stats.items():
            sensor.add(self._name(metric, description), stat)
        return sensor

    def close(self) -> None:
        """Takes the metrics out of the registry, when their owner has ended."""
        for name in self._names:
            self.metrics.remove_metric(name)
        self._names.clear()


class GroupCoordinatorMetrics(_MetricGroup):
    """Measures a membership: how long the coordinator takes to answer, and how the group rebalances.

    heartbeat: the source of `last-heartbeat-seconds-ago`. metrics: the registry; tags: name the coordinator where one registry
    serves several. group_id: an attribute of what the instruments get. Raises `ConfigError` where
    these names are in use there.
    """

    def __init__(
        self,
        heartbeat: Heartbeat,
        metrics: Metrics,
        prefix: str,
        tags: Mapping[str, str] | None = None,
        *,
        group_id: str | None = None,
    ) -> None:
        super().__init__(metrics, prefix, tags, group_id)
        group = of_group(group_id)
        self.heartbeat = heartbeat
        self.heartbeat_latency = self._sensor(
            "heartbeat-latency",
            GROUP_REQUEST_DURATION,
            of_group(group_id, request="heartbeat"),
            {
                "heartbeat-response-time-max": (Stat.MAX, "The longest time to an answer to a heartbeat"),
                "heartbeat-rate": (Stat.RATE, "Heartbeats a second"),
                "heartbeat-total": (Stat.COUNT, "Heartbeats"),
            },
        )
        self.join_latency = self._sensor(
            "join-latency",
            GROUP_REQUEST_DURATION,
            of_group(group_id, request="join_group"),
            {
                "join-time-avg": (Stat.AVG, "The mean time of joining the group"),
                "join-time-max": (Stat.MAX, "The longest time of joining the group"),
                "join-rate": (Stat.RATE, "Joins a second"),
                "join-total": (Stat.COUNT, "Joins"),
            },
        )
        self.sync_latency = self._sensor(
            "sync-latency",
            GROUP_REQUEST_DURATION,
            of_group(group_id, request="sync_group"),
            {
                "sync-time-avg": (Stat.AVG, "The mean time of waiting for the assignment"),
                "sync-time-max": (Stat.MAX, "The longest time of waiting for the assignment"),
                "sync-rate": (Stat.RATE, "Assignments received a second"),
                "sync-total": (Stat.COUNT, "Assignments received"),
            },
        )
        self.rebalance_latency = self._sensor(
            "rebalance-latency",
            REBALANCE_DURATION,
            group,
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
            REBALANCE_FAILURES,
            group,
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

    def answered(self, api: GroupApi, seconds: float, succeeded: bool) -> None:
        """Records an answer that came this long after its request. Only joins and syncs that succeeded count."""
        if api is GroupApi.HEARTBEAT:
            self.heartbeat_latency.record(seconds)
        elif api is GroupApi.JOIN and succeeded:
            self.join_latency.record(seconds)
        elif api is GroupApi.SYNC and succeeded:
            self.sync_latency.record(seconds)

    def rebalance_started(self) -> None:
        """Notes that the member wants to join. If its last attempt has brought no assignment, that failed."""
        now = self.metrics.now()
        if self._rebalancing_since is not None:
            self.failed_rebalance.record()
        self._rebalancing_since = now

    def rebalance_ended(self) -> float | None:
        """Notes that the member has its assignment. Returns the seconds since it wanted to join, None if it did not."""
        now, since = self.metrics.now(), self._rebalancing_since
        self._rebalancing_since, self._rebalanced_at = None, now
        if since is None:
            return None
        self.rebalance_latency.record(now - since)
        return now - since


class ConsumerCoordinatorMetrics(_MetricGroup):
    """Measures a consumer: how long commits take, and how many partitions it has. Arguments as for `GroupCoordinatorMetrics`."""

    def __init__(
        self,
        metrics: Metrics,
        metric_group_prefix: str,
        subscription: SubscriptionState,
        tags: Mapping[str, str] | None = None,
        *,
        group_id: str | None = None,
    ) -> None:
        super().__init__(metrics, metric_group_prefix, tags, group_id)
        self.commit_latency = self._sensor(
            "commit-latency",
            None,
            (),
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
        self._commit = of_operation("commit", group_id)

    def answered(self, seconds: float, outcome: object, server: Attributes = ()) -> None:
        """Records the end of an OffsetCommit to this broker: an `OffsetCommitResponse`, or the exception that came
        instead. Only answers are in the statistics, as in Java's; the instrument has failures too, by their error."""
        if isinstance(outcome, Exception):
            error: BaseException | None = outcome
        else:
            self.commit_latency.record(seconds)
            error = first_error(outcome)
        self.recorder.record(OPERATION_DURATION, seconds, with_error((*self._commit, *server), error))


def first_error(response: object) -> KafkaError | None:
    """Returns the first partition's error in an `OffsetCommitResponse`, None if there is none."""
    for topic in getattr(response, "topics", ()):
        for partition in topic.partitions:
            if partition.error_code:
                return error_for_code(partition.error_code, request="OffsetCommit")
    return None


def _ago(then: float | None, now: float) -> float:
    return UNKNOWN if then is None else now - then

"""Every instrument of this library as data: name, kind, unit, description, attributes, bucket boundaries.

The first four come from OpenTelemetry's semantic conventions for messaging, version 1.44. Names with `kafka.` come from
the collector's `kafkametrics` receiver, with its units and attributes. Names that neither source has begin with
`kafka_actors.`. Prometheus names are derived from these: dots become underscores, seconds and bytes are spelt out,
counters end in `_total`.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

__all__ = ["BY_NAME", "INSTRUMENTS", "SCHEMA_URL", "Instrument", "InstrumentKind"]

SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.44.0"
SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""Bucket boundaries for durations, as the semantic conventions advise."""
LONG_SECONDS: Final = (*SECONDS[5:], 30.0, 60.0, 120.0, 300.0)
"""Bucket boundaries for durations that may reach the session timeout."""
LATENCY_SECONDS: Final = tuple(2**n / 1000 for n in range(23))
"""Bucket boundaries from a millisecond to more than an hour. Each is the end of one of the finer buckets in which latencies
are counted (`machines/latency.py`)."""


class InstrumentKind(Enum):
    """Kinds of instruments."""

    COUNTER = "counter"
    HISTOGRAM = "histogram"
    DISTRIBUTION = "distribution"
    """A histogram with so many values that they arrive as counts by bucket. OpenTelemetry's instruments take values one by
    one, so `export` adds these to the exports."""
    GAUGE = "gauge"
    UP_DOWN_COUNTER = "up_down_counter"
    """A gauge whose values can be summed over series."""


class Instrument(NamedTuple):
    """Declaration of one instrument. `attributes`: the keys that its values may have. `boundaries`: bucket boundaries, of a
    histogram or distribution."""

    name: str
    kind: InstrumentKind
    unit: str
    description: str
    attributes: tuple[str, ...] = ()
    boundaries: tuple[float, ...] = ()


SYSTEM: Final = "messaging.system"
OPERATION: Final = "messaging.operation.name"
OPERATION_TYPE: Final = "messaging.operation.type"
GROUP: Final = "messaging.consumer.group.name"
LABEL: Final = "group"
"""The collector's name for the group. Every series of a consumer or a job has this label, those of the semantic conventions
too, so that one label selects all of them: see `GroupRecorder`."""
DESTINATION: Final = "messaging.destination.name"
PARTITION: Final = "messaging.destination.partition.id"
ERROR_TYPE: Final = "error.type"
SERVER: Final = ("server.address", "server.port")
"""Keys of a broker's host and port."""
CLUSTER_ID: Final = "messaging.kafka.cluster.id"
OFFSET: Final = "messaging.kafka.offset"
TOMBSTONE: Final = "messaging.kafka.message.tombstone"

# ---------------------------------------------------------------- semconv 1.44

OPERATION_DURATION: Final = Instrument(
    "messaging.client.operation.duration",
    InstrumentKind.HISTOGRAM,
    "s",
    "Duration of messaging operation initiated by a producer or consumer client.",
    (SYSTEM, OPERATION, OPERATION_TYPE, LABEL, GROUP, DESTINATION, ERROR_TYPE, *SERVER),
    SECONDS,
)
"""Operations: `poll` (a consumer waits for records), `fetch` (one Fetch request, with the broker's wait for records),
`commit`, `send` (one Produce request)."""
SENT_MESSAGES: Final = Instrument(
    "messaging.client.sent.messages",
    InstrumentKind.COUNTER,
    "{message}",
    "Number of messages producer attempted to send to the broker.",
    (SYSTEM, OPERATION, DESTINATION, PARTITION, ERROR_TYPE, *SERVER),
)
CONSUMED_MESSAGES: Final = Instrument(
    "messaging.client.consumed.messages",
    InstrumentKind.COUNTER,
    "{message}",
    "Number of messages that were delivered to the application.",
    (SYSTEM, OPERATION, LABEL, GROUP, DESTINATION, PARTITION),
)
"""Operations: `poll` of a consumer, `process` of a job. A job counts a message once, however many tries it took."""
PROCESS_DURATION: Final = Instrument(
    "messaging.process.duration",
    InstrumentKind.HISTOGRAM,
    "s",
    "Duration of processing operation.",
    (SYSTEM, OPERATION, LABEL, GROUP, DESTINATION, ERROR_TYPE),
    SECONDS,
)
"""Duration of one call of a job's function, by topic. By partition a job with a thousand partitions would have 16,000 buckets."""

# ---------------------------------------------------------------- the collector's kafkametrics receiver

LAG: Final = Instrument(
    "kafka.consumer_group.lag",
    InstrumentKind.GAUGE,
    "1",
    "Current approximate lag of consumer group at partition of topic",
    (LABEL, "topic", "partition"),
)
LAG_SUM: Final = Instrument(
    "kafka.consumer_group.lag_sum",
    InstrumentKind.GAUGE,
    "1",
    "Current approximate sum of consumer group lag across all partitions of topic",
    (LABEL, "topic"),
)
"""Sum over the partitions of this job; other members of the group report theirs."""
GROUP_OFFSET: Final = Instrument(
    "kafka.consumer_group.offset",
    InstrumentKind.GAUGE,
    "1",
    "Current offset of the consumer group at partition of topic",
    (LABEL, "topic", "partition"),
)
GROUP_OFFSET_SUM: Final = Instrument(
    "kafka.consumer_group.offset_sum",
    InstrumentKind.GAUGE,
    "1",
    "Sum of consumer group offset across partitions of topic",
    (LABEL, "topic"),
)
MEMBERS: Final = Instrument(
    "kafka.consumer_group.members",
    InstrumentKind.UP_DOWN_COUNTER,
    "{members}",
    "Count of members in the consumer group",
    (LABEL,),
)
"""Members of the whole group. A job is one member, however many workers it has."""
CURRENT_OFFSET: Final = Instrument(
    "kafka.partition.current_offset",
    InstrumentKind.GAUGE,
    "1",
    "Current offset of partition of topic.",
    (LABEL, "topic", "partition"),
)
OLDEST_OFFSET: Final = Instrument(
    "kafka.partition.oldest_offset",
    InstrumentKind.GAUGE,
    "1",
    "Oldest offset of partition of topic",
    (LABEL, "topic", "partition"),
)
"""The receiver's other metrics (`kafka.brokers`, `kafka.topic.partitions`, replicas) describe the cluster, not a group, and
are not reported here."""

# ---------------------------------------------------------------- the group and its partitions

LAG_TIME: Final = Instrument(
    "kafka_actors.consumer_group.lag.time",
    InstrumentKind.GAUGE,
    "s",
    "How long ago the end of the partition was where the group is now",
    (LABEL, "topic", "partition"),
)
POSITION: Final = Instrument(
    "kafka_actors.partition.position",
    InstrumentKind.GAUGE,
    "1",
    "The next offset that is not processed yet",
    (LABEL, "topic", "partition"),
)
BLOCKED: Final = Instrument(
    "kafka_actors.partition.blocked",
    InstrumentKind.UP_DOWN_COUNTER,
    "{partition}",
    "Partitions from which nothing is read or processed, by the reason",
    (LABEL, "topic", "partition", "reason"),
)
WINDOW: Final = Instrument(
    "kafka_actors.partition.window",
    InstrumentKind.UP_DOWN_COUNTER,
    "{message}",
    "Messages from the first that is not done to the newest one fetched, where calls overlap",
    (LABEL, "topic", "partition"),
)
CALLS: Final = Instrument(
    "kafka_actors.partition.calls",
    InstrumentKind.UP_DOWN_COUNTER,
    "{call}",
    "Calls of the function in hand, and failed ones that are parked until they are made again, where calls overlap",
    (LABEL, "topic", "partition", "state"),
)
"""States: in_flight, parked."""
WATERMARK_AGE: Final = Instrument(
    "kafka_actors.partition.watermark.age",
    InstrumentKind.GAUGE,
    "s",
    "How long the first message that is not done has held up the offset to commit, where calls overlap",
    (LABEL, "topic", "partition"),
)
ASSIGNED: Final = Instrument(
    "kafka_actors.consumer_group.assigned_partitions",
    InstrumentKind.UP_DOWN_COUNTER,
    "{partition}",
    "Partitions that the group has assigned to this member",
    (LABEL,),
)
REBALANCE_DURATION: Final = Instrument(
    "kafka_actors.consumer_group.rebalance.duration",
    InstrumentKind.HISTOGRAM,
    "s",
    "From wanting to join the group to being assigned partitions",
    (LABEL,),
    LONG_SECONDS,
)
REBALANCE_FAILURES: Final = Instrument(
    "kafka_actors.consumer_group.rebalance.failures",
    InstrumentKind.COUNTER,
    "{rebalance}",
    "Attempts to join the group that brought no assignment",
    (LABEL,),
)
GROUP_REQUEST_DURATION: Final = Instrument(
    "kafka_actors.consumer_group.request.duration",
    InstrumentKind.HISTOGRAM,
    "s",
    "From a request to the group's coordinator to its answer",
    (LABEL, "request"),
    LONG_SECONDS,
)
"""Requests: `join_group`, `sync_group`, `heartbeat`. Commits are an operation of `messaging.client.operation.duration`."""

# ---------------------------------------------------------------- inside a job

DRAINS: Final = Instrument(
    "kafka_actors.partition.drains",
    InstrumentKind.COUNTER,
    "{drain}",
    "Partitions taken from a worker: released by it, or forced because its deadline passed",
    (LABEL, "outcome"),
)
MOVES: Final = Instrument(
    "kafka_actors.partition.moves",
    InstrumentKind.COUNTER,
    "{move}",
    "Partitions that left a worker, by the cause",
    (LABEL, "cause"),
)
"""Causes: worker_died, worker_silent (its node did not answer until the worker's lease was over), worker_retired, balance
(workers were added, or their capacities changed), stalled, group_revoked, group_lost, conflict (two workers claimed the
partition after the coordinator was replaced), reset (a worker that shares the partition was reset, and all begin there), transaction_aborted and fenced (of a job that delivers exactly once: the worker lost
its transaction, and with it all partitions)."""
TRANSACTIONS: Final = Instrument(
    "kafka_actors.transactions",
    InstrumentKind.COUNTER,
    "{transaction}",
    "Transactions of a job that delivers exactly once: committed, or aborted",
    (LABEL, "outcome"),
)
RESTARTS: Final = Instrument(
    "kafka_actors.actor.restarts",
    InstrumentKind.COUNTER,
    "{restart}",
    "Actors that were replaced, by their role",
    (LABEL, "role"),
)
WORKERS: Final = Instrument(
    "kafka_actors.workers",
    InstrumentKind.UP_DOWN_COUNTER,
    "{worker}",
    "Workers of the job, ready and not",
    (LABEL, "ready"),
)
LATENCY: Final = Instrument(
    "kafka_actors.latency",
    InstrumentKind.DISTRIBUTION,
    "s",
    "From the timestamp of a message to its having been processed, estimated from sixteen messages of each batch",
    (LABEL,),
    LATENCY_SECONDS,
)
RETRIES: Final = Instrument(
    "kafka_actors.process.retries",
    InstrumentKind.COUNTER,
    "{retry}",
    "Calls of the job's function that were repeated because the one before failed",
    (LABEL, GROUP, DESTINATION, ERROR_TYPE),
)
FAILED_MESSAGES: Final = Instrument(
    "kafka_actors.failed.messages",
    InstrumentKind.COUNTER,
    "{message}",
    "Messages that failed in each retry, and what became of them: skipped, dead_lettered or retried_later",
    (LABEL, GROUP, DESTINATION, PARTITION, "outcome"),
)
PROCESSED_BYTES: Final = Instrument(
    "kafka_actors.processed.size",
    InstrumentKind.COUNTER,
    "By",
    "Bytes of the values of processed messages, decompressed",
    (LABEL, GROUP, DESTINATION, PARTITION),
)

# ---------------------------------------------------------------- reading

FETCH_BYTES: Final = Instrument(
    "kafka_actors.fetch.size",
    InstrumentKind.COUNTER,
    "By",
    "Bytes of fetch responses, by broker",
    (LABEL, GROUP, *SERVER),
)
FETCH_FAILURES: Final = Instrument(
    "kafka_actors.fetch.failures",
    InstrumentKind.COUNTER,
    "{request}",
    "Fetches that brought no response, by broker and error",
    (LABEL, GROUP, ERROR_TYPE, *SERVER),
)
BUFFER_USAGE: Final = Instrument(
    "kafka_actors.buffer.usage",
    InstrumentKind.UP_DOWN_COUNTER,
    "By",
    "Bytes fetched and not processed yet, by worker",
    (LABEL, "worker"),
)
BUFFER_LIMIT: Final = Instrument(
    "kafka_actors.buffer.limit",
    InstrumentKind.UP_DOWN_COUNTER,
    "By",
    "What a worker may hold of them",
    (LABEL, "worker"),
)
BAD_BATCHES: Final = Instrument(
    "kafka_actors.bad_batches",
    InstrumentKind.COUNTER,
    "{batch}",
    "Record batches that could not be read and were skipped, by what is wrong with them",
    (LABEL, GROUP, DESTINATION, PARTITION, ERROR_TYPE),
)
OFFSET_RESETS: Final = Instrument(
    "kafka_actors.offset_resets",
    InstrumentKind.COUNTER,
    "{reset}",
    "Positions that moved without a record being delivered, by the reason",
    (LABEL, GROUP, DESTINATION, PARTITION, "reason"),
)
STALLS: Final = Instrument(
    "kafka_actors.partition.stalls",
    InstrumentKind.COUNTER,
    "{stall}",
    "Partitions with records to read that did not move for max_poll_interval_ms",
    (LABEL, GROUP, DESTINATION, PARTITION),
)

# ---------------------------------------------------------------- connections

CONNECTIONS: Final = Instrument(
    "kafka_actors.client.connections",
    InstrumentKind.COUNTER,
    "{connection}",
    "Connections to brokers that were made and that ended",
    (LABEL, "state"),
)
IO: Final = Instrument(
    "kafka_actors.client.io",
    InstrumentKind.COUNTER,
    "By",
    "Bytes of requests and responses, those of the read path excepted",
    (LABEL, "network.io.direction"),
)
REQUEST_DURATION: Final = Instrument(
    "kafka_actors.client.request.duration",
    InstrumentKind.HISTOGRAM,
    "s",
    "From a request to its answer, those of the read path excepted",
    (LABEL,),
    LONG_SECONDS,
)

INSTRUMENTS: Final = tuple(value for value in list(globals().values()) if isinstance(value, Instrument))
"""All instruments, in the order of this file."""
BY_NAME: Final = {instrument.name: instrument for instrument in INSTRUMENTS}

"""The options: one declaration each, with Kafka's name, type, bounds, default and meaning.

`ClientConfig` holds what any connection needs, `ConsumerConfig` adds fetching and the group, `JobConfig` adds what a
job of workers needs and changes the defaults that a job has of its own; `ProducerConfig` adds sending. How values
become one of them, and what is refused, is in `kafka_actors.config.builder`. docs/reference/options.md is made from the
declarations and the texts below them: `make docs-options`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from kafka_actors.config.security import Secret

__all__ = ["ClientConfig", "ConsumerConfig", "JobConfig", "ProducerConfig"]

KIB, MIB = 1024, 1024 * 1024

TCP_NODELAY = ((6, 1, 1),)
"""IPPROTO_TCP, TCP_NODELAY, on: numbers that are the same on every system, so that no option needs a socket."""

WORKER_RESOURCES = frozenset(
    {"num_cpus", "num_gpus", "memory", "resources", "accelerator_type", "runtime_env"}
)
"""Ray's names of what `resources_per_worker` may hold."""

NonNegative = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
NonNegativeInt32 = Annotated[int, Meta(ge=0, le=2**31 - 1)]
PositiveInt32 = Annotated[int, Meta(ge=1, le=2**31 - 1)]
"""What the protocol, or the system's call, has 32 bits for."""


def default_client_id() -> str:
    from kafka_actors import __version__

    return f"kafka-actors-{__version__}"


class ClientConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a connection to a Kafka cluster needs. Times are milliseconds, sizes bytes."""

    bootstrap_servers: list[str] = msgspec.field(default_factory=lambda: ["localhost:9092"])
    """Brokers to find the cluster by: `host:port`, several with commas. One that answers is enough."""
    client_id: str = msgspec.field(default_factory=default_client_id)
    """Who asks, in the brokers' logs, metrics and quotas."""
    client_rack: str = ""
    """The rack or zone of this client. Brokers with a `replica.selector.class` name a replica there to read from
    (KIP-392). If that replica fails, the leader is read from, and names none again before `metadata_max_age_ms` has
    passed. Assignors are told the rack, too."""
    api_version: tuple[int, ...] | None = None
    """The newest release whose API versions are used; without it the newest that a broker speaks."""
    api_version_auto_timeout_ms: Positive | None = None
    """How long `KafkaClient.bootstrap` waits for a broker that says what it speaks; only without `api_version`."""
    request_timeout_ms: PositiveInt32 = 30_000
    """How long an answer may take before its connection is given up."""
    retry_backoff_ms: NonNegative = 100
    """The wait before a failed request is tried again; it doubles with each failure, with jitter (KIP-580)."""
    retry_backoff_max_ms: NonNegative = 1_000
    """The longest such wait."""
    reconnect_backoff_ms: NonNegative = 50
    """The wait before a broker that could not be reached is tried again; it doubles with each failure."""
    reconnect_backoff_max_ms: NonNegative = 1_000
    """The longest such wait."""
    connections_max_idle_ms: Positive = 540_000
    """A connection that is idle for this long is closed, before a firewall forgets it silently."""
    socket_connection_setup_timeout_ms: Positive = 10_000
    """How long connecting may take; it doubles with each failure (KIP-601)."""
    socket_connection_setup_timeout_max_ms: Positive = 30_000
    """The longest that connecting may take."""
    metadata_max_age_ms: Positive = 300_000
    """How old the metadata of topics and leaders may become before it is asked for again."""
    max_in_flight_requests_per_connection: Positive = 5
    """Requests on their way over one connection; an idempotent producer has 5 at most."""
    receive_buffer_bytes: PositiveInt32 | None = None
    """SO_RCVBUF; without it the system decides."""
    send_buffer_bytes: PositiveInt32 | None = None
    """SO_SNDBUF; without it the system decides."""
    socket_options: tuple[tuple[int, int, int | bytes], ...] = TCP_NODELAY
    """What is given to `socket.setsockopt`, each (level, option, value)."""
    metrics: Any = None
    """A `kafka_actors.metrics.Metrics` for what connections do; without it nothing is counted. Not for a job."""
    metric_group_prefix: str = ""
    """A prefix for the names of the groups of these metrics."""

    # TLS: files are PEM; `ssl_context` takes the place of all other ssl_ options
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    """Whether connections are encrypted (SSL) and authenticate (SASL)."""
    ssl_context: Any = None
    """An `ssl.SSLContext`, in place of all other `ssl_` options. Not for a job, whose options travel."""
    ssl_check_hostname: bool = True
    """Whether a broker's certificate has to be for the host name under which it is reached."""
    ssl_cafile: str | None = None
    """A PEM file with the certificates of the CAs that are trusted; without it those of the system."""
    ssl_certfile: str | None = None
    """A PEM file with this client's certificate chain."""
    ssl_keyfile: str | None = None
    """A PEM file with the certificate's key, unless it is in `ssl_certfile`."""
    ssl_password: Secret | None = None
    """The key's password."""
    ssl_crlfile: str | None = None
    """A PEM file with certificates that are revoked."""
    ssl_ciphers: str | None = None
    """Ciphers up to TLS 1.2, in OpenSSL's format."""

    # SASL
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI"] | None = None
    """How to authenticate; required with SASL."""
    sasl_plain_username: str | None = None
    """The user of PLAIN and SCRAM."""
    sasl_plain_password: Secret | None = None
    """The password of PLAIN and SCRAM."""
    sasl_kerberos_service_name: str = "kafka"
    """The first part of the brokers' Kerberos principal."""
    sasl_kerberos_domain_name: str | None = None
    """The host in that principal; without it the host name under which a broker is reached."""
    sasl_oauth_token_provider: Any = None
    """An object with `token()`, and `extensions()` if there are any, in place of the four options below."""
    sasl_oauthbearer_token_endpoint_url: str | None = None
    """The `https://` address that gives tokens for client credentials."""
    sasl_oauthbearer_client_credentials_client_id: str | None = None
    """The client's id there."""
    sasl_oauthbearer_client_credentials_client_secret: Secret | None = None
    """The client's secret there."""
    sasl_oauthbearer_scope: str | None = None
    """The scope to ask for."""


class ConsumerConfig(ClientConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A consumer: fetching, positions, and the group. Defaults are Kafka's where Kafka has one."""

    # fetching
    fetch_min_bytes: NonNegativeInt32 = 1
    """A broker answers a fetch when it has this much, or after `fetch_max_wait_ms`."""
    fetch_max_wait_ms: NonNegativeInt32 = 500
    """The longest that a broker holds a fetch back."""
    fetch_max_bytes: PositiveInt32 = 50 * MIB
    """The most that an answer holds; its first batch always comes whole (KIP-74)."""
    max_partition_fetch_bytes: PositiveInt32 | None = None
    """The most that an answer holds of one partition; its first batch always comes whole. None: 2 MiB, or, for a
    broker with fewer than eight partitions to read, an equal share of 16 MiB."""
    check_crcs: bool = True
    """Whether the checksum of each batch is compared."""
    isolation_level: Literal["read_uncommitted", "read_committed"] = "read_uncommitted"
    """`read_committed`: only records of committed transactions, up to the first open transaction."""
    max_decompressed_batch_bytes: Positive = 128 * MIB
    """The most that a batch may decompress to. A larger one is a bad batch: see `on_bad_batch`."""
    worker_buffer_bytes: Positive = 64 * MIB
    """The most that a consumer holds of records that were fetched and not yet handed out. In a job this is for each
    worker: one half for fetched bytes, the other for what is decoded from them."""
    batch_rows: Positive | None = None
    """Regroups records into batches of this many; without it batches are as they were fetched."""

    # where to start, and what to do where data can't be read as asked
    auto_offset_reset: str = "latest"
    """Where to start without a committed offset: `earliest`, `latest`, `none` (an error) or
    `by_duration:PT1H` (KIP-1106). Partitions that appear later are read from their start."""
    on_data_loss: Literal["fail", "reset"] = "fail"
    """When an offset is gone, a log was truncated or a topic recreated: end with an error, or go on as
    `auto_offset_reset` says; after a truncation, from where the logs part; in a recreated topic, from its start."""
    on_bad_batch: Literal["fail", "skip"] = "fail"
    """When a batch can't be read: end with an error, or go on after it, with an event."""

    # the group
    group_id: str | None = None
    """The consumer group."""
    group_instance_id: str | None = None
    """The identity of a static member (KIP-345); without it the member is dynamic. A job's `auto` is
    `{group}-{uuid}`, or `{group}-{name}` for a job with a name."""
    group_protocol: Literal["classic"] = "classic"
    """The protocol of the group."""
    partition_assignment_strategy: list[Any] = msgspec.field(default_factory=lambda: ["cooperative-sticky"])
    """Assignors offered to the group, in order of preference: range, roundrobin, sticky, cooperative-sticky, or
    one of yours. A list with an eager one is eager."""
    session_timeout_ms: PositiveInt32 = 45_000
    """How long the group waits for a heartbeat before it gives a member's partitions to others."""
    heartbeat_interval_ms: PositiveInt32 = 3_000
    """The time between heartbeats; best a third of `session_timeout_ms` at most."""
    max_poll_interval_ms: PositiveInt32 = 300_000
    """How long a consumer may take between polls, or a worker of a job for one call of `process`."""
    enable_auto_commit: bool = True
    """Whether offsets are committed automatically; a job always does."""
    auto_commit_interval_ms: Positive = 5_000
    """How often offsets are committed automatically."""
    exclude_internal_topics: bool = True
    """Whether a pattern leaves out Kafka's internal topics."""


class JobConfig(ConsumerConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job of worker actors: `ConsumerConfig` with a job's defaults, and the options that only a job has."""

    auto_offset_reset: str = "earliest"
    group_instance_id: str | None = "auto"
    auto_commit_interval_ms: Positive = 1_000
    rebalance_timeout_ms: PositiveInt32 = 60_000
    """How long the group waits for this member in a rebalance. Java uses `max.poll.interval.ms` for this; here they
    differ, because a job rebalances while its workers work."""
    drain_timeout_ms: NonNegative = 5_000
    """How long a worker may take to finish and commit what is in hand when a partition is taken from it, or the job
    is stopped."""
    worker_assignor: Any = "sticky"
    """The assignor that spreads the job's partitions over its workers."""
    worker_capacity: dict[int, Annotated[float, Meta(gt=0)]] = {}
    """For workers, by number, how many partitions they take compared with the others, which count as 1."""
    start_timeout_s: Annotated[float, Meta(gt=0)] = 60.0
    """How long, in seconds, the workers may take to be ready, and topics to be found."""
    ping_interval_ms: Positive = 1_000
    """How often each actor is pinged."""
    ping_timeout_ms: Positive = 3_000
    """How long the answer to a ping may take before the actor's process is checked."""
    batch_linger_ms: NonNegative = 0
    """How long a batch waits to be filled up to `batch_rows`, which has to be given."""
    on_error: Literal["fail", "skip", "dead_letter"] = "fail"
    """When `process` has failed for good: end the job, go on without the records at fault and tell of them in an event, or send them
    to the dead letter topic."""
    retries: NonNegative = 3
    """How often `process` is retried with a batch that it failed on. (Requests to brokers are retried independently
    of this.)"""


class ProducerConfig(ClientConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A producer. Defaults are Kafka's but that of `batch_size`."""

    acks: Literal["all", "1"] = "all"
    """Who has a record before it counts as sent: all replicas in sync, or the leader."""
    enable_idempotence: bool = True
    """Each record is written once and in order, whatever is retried (KIP-98)."""
    compression_type: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "none"
    """The codec of the batches."""
    linger_ms: NonNegative = 5
    """How long a batch waits to be filled up to `batch_size`."""
    batch_size: Positive = 262_144
    """Bytes of a record batch, uncompressed. Kafka's smaller default suits records that come one by one; Arrow
    batches bring many at a time, and brokers and readers are faster with large record batches."""
    max_request_size: Positive = MIB
    """The most bytes of a request, and of a record with the batch around it."""
    buffer_memory: Positive = 32 * MIB
    """Bytes that may wait to be sent and acknowledged. One batch may exceed it."""
    max_block_ms: NonNegative = 60_000
    """How long sending may wait for the first connection, for `buffer_memory`, and for a topic's metadata."""
    delivery_timeout_ms: Positive = 120_000
    """The longest time from the beginning of a record's batch to its acknowledgement, retries included."""

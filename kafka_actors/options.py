"""Declarations of all options: Kafka's name, type, bounds, default and meaning of each.

`ClientConfig` has the options of every connection. `ConsumerConfig` adds fetching and the group, `JobConfig` the options
of a job and its own defaults, `ProducerConfig` sending. `kafka_actors.config.builder` makes one of these from a user's
values, or refuses them. docs/reference/options.md and the command line's help are made from the declarations and the
texts below them (`make docs-options`).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from kafka_actors.config.security import Secret

__all__ = ["ClientConfig", "ConsumerConfig", "JobConfig", "ProducerConfig"]

KIB, MIB = 1024, 1024 * 1024

TCP_NODELAY = ((6, 1, 1),)
"""IPPROTO_TCP, TCP_NODELAY, on. The numbers are the same on every system, so `socket` isn't imported here."""

WORKER_RESOURCES = frozenset(
    {"num_cpus", "num_gpus", "memory", "resources", "accelerator_type", "runtime_env"}
)
"""Keys that `resources_per_worker` may have; the names are Ray's."""

NonNegative = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Positive = Annotated[int, Meta(ge=1, le=2**63 - 1)]
"""Bounds of numbers that are a long in Java's clients."""
NonNegativeInt32 = Annotated[int, Meta(ge=0, le=2**31 - 1)]
PositiveInt32 = Annotated[int, Meta(ge=1, le=2**31 - 1)]
"""Bounds of numbers that have 32 bits in the protocol, in a system call or in Arrow's columns."""


def default_client_id() -> str:
    from kafka_actors import __version__

    return f"kafka-actors-{__version__}"


class ClientConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of a connection to a Kafka cluster. Times are in milliseconds, sizes in bytes."""

    bootstrap_servers: list[str] = msgspec.field(default_factory=lambda: ["localhost:9092"])
    """Brokers for the first connection to the cluster: `host:port`, several separated by commas. One that answers is enough."""
    client_id: str = msgspec.field(default_factory=default_client_id)
    """The client's name in the brokers' logs, metrics and quotas."""
    client_rack: str = ""
    """The rack or zone of this client. Brokers with a `replica.selector.class` name a replica in it to fetch from
    (KIP-392). If that replica fails, records are fetched from the leader, and from a replica again after
    `metadata_max_age_ms` at the earliest. Assignors use the rack, too."""
    api_version: tuple[int, ...] | None = None
    """The Kafka release whose API versions are the newest to be used; without it, the newest that a broker supports."""
    api_version_auto_timeout_ms: Positive | None = None
    """The longest wait of `KafkaClient.bootstrap` for a broker's list of API versions; only without `api_version`."""
    request_timeout_ms: PositiveInt32 = 30_000
    """The longest wait for a response; then the connection is closed."""
    retry_backoff_ms: NonNegative = 100
    """The wait before a failed request is retried; it doubles with each failure, with jitter (KIP-580)."""
    retry_backoff_max_ms: NonNegative = 1_000
    """The longest such wait."""
    reconnect_backoff_ms: NonNegative = 50
    """The wait before the next connection to a broker that could not be reached; it doubles with each failure."""
    reconnect_backoff_max_ms: NonNegative = 1_000
    """The longest such wait."""
    connections_max_idle_ms: Positive = 540_000
    """A connection that is idle for this long is closed, before a firewall drops it silently."""
    socket_connection_setup_timeout_ms: Positive = 10_000
    """The timeout for establishing a connection; it doubles with each failure (KIP-601)."""
    socket_connection_setup_timeout_max_ms: Positive = 30_000
    """The longest such timeout."""
    metadata_max_age_ms: Positive = 300_000
    """The age at which the metadata of topics and leaders is refreshed."""
    max_in_flight_requests_per_connection: Positive = 5
    """The most requests without a response on one connection; at most 5 for an idempotent producer."""
    receive_buffer_bytes: PositiveInt32 | None = None
    """The socket's receive buffer (SO_RCVBUF); without it the system decides."""
    send_buffer_bytes: PositiveInt32 | None = None
    """The socket's send buffer (SO_SNDBUF); without it the system decides."""
    socket_options: tuple[tuple[int, int, int | bytes], ...] = TCP_NODELAY
    """Arguments for `socket.setsockopt`, each (level, option, value)."""
    metrics: Any = None
    """A `kafka_actors.metrics.Metrics` for the metrics of connections; without it there are none. Not for a job."""
    metric_group_prefix: str = ""
    """A prefix for the group names of these metrics."""

    # TLS: files are PEM; `ssl_context` takes the place of all other ssl_ options
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    """Whether connections are encrypted (SSL) and authenticate (SASL)."""
    ssl_context: Any = None
    """An `ssl.SSLContext`, in place of all other `ssl_` options. Not for a job, whose options are sent to other processes."""
    ssl_check_hostname: bool = True
    """Whether a broker's certificate must match the host name under which it is reached."""
    ssl_cafile: str | None = None
    """A PEM file with the certificates of trusted CAs; without it, those of the system."""
    ssl_certfile: str | None = None
    """A PEM file with this client's certificate chain."""
    ssl_keyfile: str | None = None
    """A PEM file with the certificate's key, unless it is in `ssl_certfile`."""
    ssl_password: Secret | None = None
    """The key's password."""
    ssl_crlfile: str | None = None
    """A PEM file with the list of revoked certificates (CRL)."""
    ssl_ciphers: str | None = None
    """Ciphers for TLS up to 1.2, in OpenSSL's format."""

    # SASL
    sasl_mechanism: (
        Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI", "AWS_MSK_IAM"] | None
    ) = None
    """The SASL mechanism; required with `SASL_PLAINTEXT` and `SASL_SSL`."""
    sasl_plain_username: str | None = None
    """The user name for PLAIN and SCRAM."""
    sasl_plain_password: Secret | None = None
    """The password for PLAIN and SCRAM."""
    sasl_kerberos_service_name: str = "kafka"
    """The first part of the brokers' Kerberos principal."""
    sasl_kerberos_domain_name: str | None = None
    """The host in that principal; without it, the host name under which a broker is reached."""
    sasl_oauth_token_provider: Any = None
    """An object with `token()`, and with `extensions()` if needed, or its import path, such as
    `kafka_actors.identity:Azure`; in place of the `sasl_oauthbearer_` options."""
    sasl_identity: dict[str, Any] | None = None
    """The arguments of a token provider that is named by its import path, or those of
    `kafka_actors.identity:AwsMsk` for AWS_MSK_IAM. Texts may be references."""
    sasl_oauthbearer_token_endpoint_url: str | None = None
    """The `https://` address that issues tokens for client credentials."""
    sasl_oauthbearer_client_credentials_client_id: str | None = None
    """The client id for the token endpoint."""
    sasl_oauthbearer_client_credentials_client_secret: Secret | None = None
    """The client secret for the token endpoint."""
    sasl_oauthbearer_scope: str | None = None
    """The scope of the requested token."""
    sasl_oauthbearer_assertion_file: str | None = None
    """A file with a signed JWT, by which the client proves who it is, in place of the client secret (KIP-1258)."""
    sasl_oauthbearer_assertion_private_key_file: str | None = None
    """The private key (PEM) that signs such a JWT for each request, in place of the client secret (KIP-1258)."""
    sasl_oauthbearer_assertion_private_key_passphrase: Secret | None = None
    """The password of that key."""
    sasl_oauthbearer_assertion_algorithm: Literal["RS256", "ES256"] = "RS256"
    """The algorithm by which it signs."""
    sasl_oauthbearer_assertion_claim_iss: str | None = None
    """The claim `iss` of the signed JWT; mostly the client id."""
    sasl_oauthbearer_assertion_claim_sub: str | None = None
    """The claim `sub` of the signed JWT; mostly the client id."""
    sasl_oauthbearer_assertion_claim_aud: str | None = None
    """The claim `aud` of the signed JWT; mostly the address of the token endpoint."""
    sasl_oauthbearer_assertion_claim_exp_seconds: PositiveInt32 = 300
    """The seconds for which the signed JWT is valid."""
    sasl_oauthbearer_assertion_claim_nbf_seconds: NonNegativeInt32 = 60
    """The seconds before its making from which the signed JWT is valid."""
    sasl_oauthbearer_assertion_claim_jti_include: bool = False
    """Whether each signed JWT has an id of its own (`jti`)."""
    sasl_oauthbearer_assertion_template_file: str | None = None
    """A JSON file with more of the signed JWT: `{"header": {…}, "payload": {…}}`, for `kid` and others."""


class ConsumerConfig(ClientConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of a consumer: fetching, positions, and the group. Defaults are Kafka's where Kafka has one."""

    # fetching
    fetch_min_bytes: NonNegativeInt32 = 1
    """A broker answers a fetch when it has this many bytes, or after `fetch_max_wait_ms`."""
    fetch_max_wait_ms: NonNegativeInt32 = 500
    """The longest time for which a broker delays a fetch to fill it."""
    fetch_max_bytes: PositiveInt32 = 50 * MIB
    """The most bytes of a fetch response; its first batch always comes whole (KIP-74)."""
    max_partition_fetch_bytes: PositiveInt32 | None = None
    """The most bytes of one partition in a fetch response; its first batch always comes whole. None: 2 MiB, or, for a
    broker with fewer than eight partitions to fetch, an equal share of 16 MiB."""
    check_crcs: bool = True
    """Whether the checksum (CRC) of each batch is verified. That of messages of the formats before Kafka 0.11 always is."""
    isolation_level: Literal["read_uncommitted", "read_committed"] = "read_uncommitted"
    """`read_committed`: only records of committed transactions are read, up to the first open transaction."""
    max_decompressed_batch_bytes: PositiveInt32 = 128 * MIB
    """The most bytes that a batch may decompress to. A larger one is a bad batch: see `on_bad_batch`."""
    worker_buffer_bytes: Positive = 64 * MIB
    """The most bytes of fetched records that a consumer holds before they are delivered. In a job this is for each worker:
    one half for fetched bytes, the other for batches decoded from them."""
    batch_rows: PositiveInt32 | None = None
    """Regroups records into batches of this many rows; without it, batches are as they were fetched."""

    # where to start, and what to do where data can't be read as asked
    auto_offset_reset: str = "latest"
    """The start position without a committed offset: `earliest`, `latest`, `none` (an error) or `by_duration:PT1H`
    (KIP-1106). Partitions that are added later are read from their start."""
    on_data_loss: Literal["fail", "reset"] = "fail"
    """If an offset is no longer in the log, a log was truncated or a topic was recreated: `fail` ends with an error, `reset`
    continues as `auto_offset_reset` says; after a truncation, where the logs diverge; in a recreated topic, at its start."""
    on_bad_batch: Literal["fail", "skip"] = "fail"
    """If a batch can't be read: `fail` ends with an error, `skip` continues behind it, with an event."""

    # the group
    group_id: str | None = None
    """The id of the consumer group."""
    group_instance_id: str | None = None
    """The id of a static member (KIP-345); without it the member is dynamic. In a job, `auto` means `{group}-{uuid}`, or
    `{group}-{name}` for a job with a name."""
    group_protocol: Literal["classic"] = "classic"
    """The rebalance protocol of the group."""
    partition_assignment_strategy: list[Any] = msgspec.field(default_factory=lambda: ["cooperative-sticky"])
    """Assignors offered to the group, in order of preference: range, roundrobin, sticky, cooperative-sticky, or one of
    yours. If one of the list is eager, rebalances are eager."""
    session_timeout_ms: PositiveInt32 = 45_000
    """The longest time without a heartbeat before the group removes a member and reassigns its partitions."""
    heartbeat_interval_ms: PositiveInt32 = 3_000
    """The time between heartbeats; at most a third of `session_timeout_ms` is advised."""
    max_poll_interval_ms: PositiveInt32 = 300_000
    """The longest time between two polls of a consumer, or for one call of `process` in a job."""
    enable_auto_commit: bool = True
    """Whether offsets are committed automatically; a job always commits."""
    auto_commit_interval_ms: Positive = 5_000
    """The time between two automatic commits."""
    exclude_internal_topics: bool = True
    """Whether a pattern excludes Kafka's internal topics."""

    @property
    def chunk_rows(self) -> int | None:
        """The most records that are decoded together; None for the decoder's own."""
        return self.batch_rows


class JobConfig(ConsumerConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of a job of worker actors: `ConsumerConfig` with a job's defaults, and the options that only a job has."""

    auto_offset_reset: str = "earliest"
    group_instance_id: str | None = "auto"
    auto_commit_interval_ms: Positive = 1_000
    rebalance_timeout_ms: PositiveInt32 = 60_000
    """The time for which the group waits for this member in a rebalance. Java uses `max.poll.interval.ms` for this; here it
    is an option of its own, because a job rebalances while its workers process."""
    drain_timeout_ms: NonNegative = 5_000
    """The time that a worker has to finish its call and commit when a partition is taken from it or the job is stopped."""
    worker_assignor: Any = "sticky"
    """The assignor that distributes the job's partitions over its workers."""
    worker_capacity: dict[int, Annotated[float, Meta(gt=0)]] = {}
    """Weights of workers, by number: how many partitions they take compared with the others, whose weight is 1."""
    start_timeout_s: Annotated[float, Meta(gt=0)] = 60.0
    """The time in which the workers must be ready and the topics found, in seconds."""
    ping_interval_ms: Positive = 1_000
    """The time between two pings of an actor."""
    ping_timeout_ms: Positive = 3_000
    """The time that an actor has to answer a ping before its process is checked."""
    batch_linger_ms: NonNegative = 0
    """The longest time that a batch waits to be filled up to `batch_rows`, which must be set."""
    on_error: Literal["fail", "skip", "dead_letter"] = "fail"
    """If `process` has failed for good: `fail` ends the job, `skip` continues without the failed records, with an event, and
    `dead_letter` sends them to the dead letter topic."""
    delivery: Literal["at_least_once", "exactly_once"] = "at_least_once"
    """`exactly_once`: results and dead letters are written in transactions, together with the offsets of their records, and the job
    reads with `read_committed`. Whoever reads them with `read_committed` sees each once. Only for sinks that are a `KafkaSink`,
    in the cluster that the job reads."""
    ordering: Literal["partition", "key", "unordered"] = "partition"
    """The records that wait for others. `partition`: each for those before it in its partition, one call at a time. `key`: for those before
    it with the same key; records without a key for none. `unordered`: for none."""
    concurrency: Annotated[int, Meta(ge=1, le=100_000)] = 1
    """The number of calls that each worker makes at once, with another `ordering` than `partition`: of an async function as tasks, of
    others in threads."""
    max_in_flight_records: Positive = 20_000
    """The most records of a partition from the first that isn't done to the newest one fetched, with another `ordering` than
    `partition`."""
    lanes_per_partition: Positive = 64
    """The number of lanes of a partition, with another `ordering` than `partition`: the most workers that can share one. A record's lane
    follows from its key."""
    redact_keys: bool = True
    """Whether the status shows keys of records as digests only: they may be personal."""
    retries: NonNegative = 3
    """The number of retries of `process` with a batch for which it failed. (Requests to brokers are retried independently.)"""

    @property
    def chunk_rows(self) -> int | None:
        """The most records that are decoded together; None for the decoder's own. Where calls overlap they take rows of a chunk."""
        return self.batch_rows if self.ordering == "partition" else None

    @property
    def lanes(self) -> int:
        """The most workers that can share a partition."""
        return 1 if self.ordering == "partition" else self.lanes_per_partition


class ProducerConfig(ClientConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of a producer. Defaults are Kafka's, except that of `batch_size`."""

    acks: Literal["all", "1"] = "all"
    """The replicas that must have a record before it is acknowledged: all in sync, or the leader (`1`)."""
    enable_idempotence: bool = True
    """Whether each record is written exactly once and in order, also over retries (KIP-98)."""
    compression_type: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "none"
    """The compression codec of record batches."""
    linger_ms: NonNegative = 5
    """The longest time that a batch waits to be filled up to `batch_size`."""
    batch_size: Positive = 262_144
    """The size of a record batch in bytes, uncompressed. Kafka's smaller default suits records that are sent one by one;
    Arrow batches bring many at once, and brokers and consumers are faster with large record batches."""
    max_request_size: Positive = MIB
    """The most bytes of a request, and of a single record with its batch."""
    buffer_memory: Positive = 32 * MIB
    """The most bytes that may wait to be sent and acknowledged. A batch counts with its memory, 2 KB and more; one may exceed it."""
    max_block_ms: NonNegative = 60_000
    """The longest time for which `send` blocks: for the first connection, for `buffer_memory`, and for a topic's metadata."""
    delivery_timeout_ms: Positive = 120_000
    """The longest time from the creation of a record's batch to its acknowledgement, retries included."""
    transactional_id: str | None = None
    """The name under which a producer has transactions (KIP-98). A producer that begins with it fences every other one that has
    it, and ends the transaction that this one left open. Needs `acks="all"` and idempotence."""
    transaction_timeout_ms: PositiveInt32 = 60_000
    """The time after which the transactions' coordinator aborts a transaction that is not ended; at most the brokers'
    `transaction.max.timeout.ms`, 15 minutes by default."""

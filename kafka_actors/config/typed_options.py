"""Options as typed names, for editors and type checkers.

They are only types: the declarations in `kafka_actors.options` decide which options are accepted, and a test compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

from assignors import Assignor


class ConnectionOptions(TypedDict, total=False):
    """Options of every connection, the keyword arguments of `Admin` and `AsyncAdmin`: see `ClientConfig`."""

    bootstrap_servers: str | Sequence[str]
    client_id: str
    client_rack: str
    api_version: tuple[int, ...] | str | None
    api_version_auto_timeout_ms: int | None
    request_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    connections_max_idle_ms: int
    socket_connection_setup_timeout_ms: int
    socket_connection_setup_timeout_max_ms: int
    metadata_max_age_ms: int
    max_in_flight_requests_per_connection: int
    receive_buffer_bytes: int | None
    send_buffer_bytes: int | None
    socket_options: Sequence[tuple[int, int, int | bytes]]
    metrics: Any
    metric_group_prefix: str
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
    ssl_context: Any
    ssl_check_hostname: bool
    ssl_cafile: str | None
    ssl_certfile: str | None
    ssl_keyfile: str | None
    ssl_password: str | None
    ssl_crlfile: str | None
    ssl_ciphers: str | None
    sasl_mechanism: (
        Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI", "AWS_MSK_IAM"] | None
    )
    sasl_plain_username: str | None
    sasl_plain_password: str | None
    sasl_kerberos_service_name: str
    sasl_kerberos_domain_name: str | None
    sasl_oauth_token_provider: Any
    sasl_identity: Mapping[str, Any] | None
    sasl_oauthbearer_token_endpoint_url: str | None
    sasl_oauthbearer_client_credentials_client_id: str | None
    sasl_oauthbearer_client_credentials_client_secret: str | None
    sasl_oauthbearer_scope: str | None
    sasl_oauthbearer_assertion_file: str | None
    sasl_oauthbearer_assertion_private_key_file: str | None
    sasl_oauthbearer_assertion_private_key_passphrase: str | None
    sasl_oauthbearer_assertion_algorithm: Literal["RS256", "ES256"]
    sasl_oauthbearer_assertion_claim_iss: str | None
    sasl_oauthbearer_assertion_claim_sub: str | None
    sasl_oauthbearer_assertion_claim_aud: str | None
    sasl_oauthbearer_assertion_claim_exp_seconds: int
    sasl_oauthbearer_assertion_claim_nbf_seconds: int
    sasl_oauthbearer_assertion_claim_jti_include: bool
    sasl_oauthbearer_assertion_template_file: str | None


class ConsumerOptions(ConnectionOptions, total=False):
    """Options of fetching, positions and the group, the keyword arguments of `Consumer` and `AsyncConsumer`: see `ConsumerConfig`."""

    fetch_min_bytes: int
    fetch_max_wait_ms: int
    fetch_max_bytes: int
    max_partition_fetch_bytes: int | None
    check_crcs: bool
    isolation_level: Literal["read_uncommitted", "read_committed"]
    max_decompressed_batch_bytes: int
    worker_buffer_bytes: int
    batch_rows: int | None
    auto_offset_reset: str
    on_data_loss: Literal["fail", "reset"]
    on_bad_batch: Literal["fail", "skip"]
    group_id: str | None
    group_instance_id: str | None
    group_protocol: Literal["classic"]
    partition_assignment_strategy: str | Assignor | type[Assignor] | Sequence[str | Assignor | type[Assignor]]
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    exclude_internal_topics: bool


class JobOptions(ConsumerOptions, total=False):
    """Options of a `Job`, for its `config`: see `JobConfig`."""

    rebalance_timeout_ms: int
    drain_timeout_ms: int
    worker_assignor: str | Assignor | type[Assignor]
    worker_capacity: Mapping[int, float]
    start_timeout_s: float
    ping_interval_ms: int
    ping_timeout_ms: int
    batch_linger_ms: int
    on_error: Literal["fail", "skip", "dead_letter"]
    delivery: Literal["at_least_once", "exactly_once"]
    ordering: Literal["partition", "key", "unordered"]
    concurrency: int
    max_in_flight_records: int
    lanes_per_partition: int
    redact_keys: bool
    retries: int


class ProducerOptions(ConnectionOptions, total=False):
    """Options of sending, the keyword arguments of `Producer` and `AsyncProducer`: see `ProducerConfig`."""

    acks: Literal["all", "1", 1, -1]
    enable_idempotence: bool
    compression_type: Literal["none", "gzip", "snappy", "lz4", "zstd"]
    linger_ms: int
    batch_size: int
    max_request_size: int
    buffer_memory: int
    max_block_ms: int
    delivery_timeout_ms: int
    transactional_id: str | None
    transaction_timeout_ms: int

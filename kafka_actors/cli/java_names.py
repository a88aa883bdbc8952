"""What our options are called in Java's clients, and what they are there.

By rule, a name is ours with dots, and a default is ours; here is what differs. tests/integration/test_options_java.py
compares all of it with Kafka's own `ConfigDef`s.
"""

from __future__ import annotations

__all__ = ["JAVA_DEFAULTS", "JAVA_NAMES", "NOT_IN_JAVA", "java_name"]

NOT_IN_JAVA = frozenset(
    {
        # connections
        "api_version",
        "api_version_auto_timeout_ms",
        "metric_group_prefix",
        "metrics",
        "sasl_kerberos_domain_name",
        "sasl_oauth_token_provider",
        "socket_options",
        "ssl_context",
        "ssl_crlfile",
        # reading
        "batch_rows",
        "max_decompressed_batch_bytes",
        "on_bad_batch",
        "on_data_loss",
        "worker_buffer_bytes",
        # jobs
        "batch_linger_ms",
        "drain_timeout_ms",
        "on_error",
        "ping_interval_ms",
        "ping_timeout_ms",
        "rebalance_timeout_ms",
        "retries",  # Java's are those of a request
        "start_timeout_s",
        "worker_assignor",
        "worker_capacity",
        # a run
        "dead_letter_topic",
        "job",
        "name",
        "pattern",
        "resources_per_worker",
        "status",
        "otlp",
        "prometheus",
        "topics",
        "until",
        "workers",
    }
)

JAVA_NAMES = {
    "ssl_cafile": "ssl.truststore.location",
    "ssl_certfile": "ssl.keystore.location",
    "ssl_check_hostname": "ssl.endpoint.identification.algorithm",
    "ssl_ciphers": "ssl.cipher.suites",
    "ssl_keyfile": "ssl.keystore.location",
    "ssl_password": "ssl.key.password",
    "sasl_plain_username": "sasl.jaas.config",
    "sasl_plain_password": "sasl.jaas.config",
}
"""Where it isn't our name with dots."""

_OF_CONSUMER = "org.apache.kafka.clients.consumer."
JAVA_DEFAULTS: dict[str, str] = {
    "bootstrap_servers": "",
    "client_id": "",
    "batch_size": "16384",
    "max_partition_fetch_bytes": "1048576",
    "partition_assignment_strategy": f"{_OF_CONSUMER}RangeAssignor,{_OF_CONSUMER}CooperativeStickyAssignor",
    "receive_buffer_bytes": "65536",
    "sasl_kerberos_service_name": "",
    "sasl_mechanism": "GSSAPI",
    "send_buffer_bytes": "131072",
    "ssl_check_hostname": "https",
}
"""Where it isn't ours. Those of a consumer, but for what only a producer has."""


def java_name(option: str) -> str | None:
    """What Java's clients call it; None where they have no such thing."""
    return None if option in NOT_IN_JAVA else JAVA_NAMES.get(option, option.replace("_", "."))

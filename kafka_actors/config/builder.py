"""Builds one of the Structs of `kafka_actors.options` from a user's options.

`build` takes keyword arguments and a `config={...}` dict (underscored or dotted keys), and refuses names and values that it
does not know before anything connects.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Mapping
from typing import Any, Literal, TypeVar, get_args, get_origin

import msgspec

from kafka_actors.base import decoders
from kafka_actors.base.addresses import parse_bootstrap_servers, without_user_info
from kafka_actors.errors import ConfigError, kind_of
from kafka_actors.options import WORKER_RESOURCES, ClientConfig, ConsumerConfig, JobConfig, ProducerConfig

from .references import refers, resolve
from .security import MECHANISMS, RENAMED, SECRETS, Secret, check_security, identity_of

__all__ = [
    "ClientConfig",
    "ConsumerConfig",
    "JobConfig",
    "ProducerConfig",
    "build",
    "convert",
    "known_name",
    "looked_up",
    "producer_over",
    "references_of",
    "refusal",
    "resolved",
]

MAX_TEXT_BYTES = 0x7FFF
"""Bytes that a string of the wire protocol may have."""

PARQUET_COMPRESSIONS = ("zstd", "snappy", "gzip", "lz4", "brotli", "none")

C = TypeVar("C", bound=ClientConfig)

_ONE_OF = {
    "security_protocol": ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    "sasl_mechanism": MECHANISMS,
}

_LIBRDKAFKAS = {
    "auto_commit_enable": "enable_auto_commit",
    "batch_num_messages": "batch_size",
    "compression_codec": "compression_type",
    "fetch_message_max_bytes": "max_partition_fetch_bytes",
    "fetch_wait_max_ms": "fetch_max_wait_ms",
    "max_in_flight": "max_in_flight_requests_per_connection",
    "message_max_bytes": "max_request_size",
    "message_timeout_ms": "delivery_timeout_ms",
    "metadata_broker_list": "bootstrap_servers",
    "queue_buffering_max_kbytes": "buffer_memory",
    "queue_buffering_max_messages": "buffer_memory",
    "queue_buffering_max_ms": "linger_ms",
    "queued_max_messages_kbytes": "worker_buffer_bytes",
    "queued_min_messages": "worker_buffer_bytes",
    "request_required_acks": "acks",
    "socket_timeout_ms": "request_timeout_ms",
    "topic_metadata_refresh_interval_ms": "metadata_max_age_ms",
}
"""librdkafka's names of options, with the names here; some have other units."""

# Options of other clients or of later versions of Kafka: refused by name, with what to do.
_REFUSED = {
    "group_remote_assignor": "is for group_protocol 'consumer' (KIP-848), which comes later",
    "group_protocol": "only 'classic' is supported; the consumer protocol (KIP-848) comes later",
    **dict.fromkeys(
        ("enable_idempotence", "transactional_id", "transaction_timeout_ms"), "is a producer's option"
    ),
    "retries": "is not used: a producer tries again until delivery_timeout_ms is over",
    "key_serializer": "is not used: keys are sent as the bytes that they are",
    "value_serializer": "is not used: values are sent as the bytes that they are",
    "partitioner": "is not used: keys go where Java's default partitioner sends them; or name the partition",
    "selector": "is the event loop's: run in an asyncio.SelectorEventLoop(selector) to have another one",
    "key_deserializer": "is not used: keys arrive as bytes in an Arrow column",
    "value_deserializer": "is not used: values arrive as bytes in an Arrow column",
    "max_poll_records": "is not used: records come as batches; batch_rows says of how many",
    "consumer_timeout_ms": "is not used: poll_batch(timeout_ms=…) waits for so long",
    "default_api_timeout_ms": "is not used: what waits for an answer takes timeout_ms itself",
    "allow_auto_create_topics": "is not used: neither reading nor writing makes a topic",
    "enable_auto_offset_store": "is not used: with enable_auto_commit=False, commit(offsets) says what is done",
    "enable_partition_eof": "is not used: the end of a partition is no event; end_offsets() says where it is",
    "broker_address_family": "is not used: all addresses of a broker's name are tried",
    "error_cb": "is not used: errors are raised, and logged by 'kafka_actors' of Python's logging",
    "oauth_cb": "is not used: give sasl_oauth_token_provider",
    "on_commit": "is not used: commit() waits, and raises what is wrong",
    "on_delivery": "is not used: send() returns a future, which has add_done_callback()",
    "default_topic_config": "is not used: give what is in it as options",
    "enable_ssl_certificate_verification": "is not used: ssl_check_hostname=False, or an ssl_context, turns checks off",
    **dict.fromkeys(("debug", "log_level"), "is not used: logging.getLogger('kafka_actors') has a level"),
    **dict.fromkeys(("statistics_interval_ms", "stats_cb"), "is not used: give metrics, or OpenTelemetry"),
    **{
        name: f"is one of a worker's resources: give resources_per_worker={{{name!r}: …}}"
        for name in sorted(WORKER_RESOURCES)
    },
    **{theirs: f"is librdkafka's name of {ours}" for theirs, ours in _LIBRDKAFKAS.items()},
    **RENAMED,
}


def build(kind: type[C], options: Mapping[str, Any] | None = None, /, **explicit: Any) -> C:
    """Makes a config of `kind` from a dict (dotted or underscored keys) and explicit keyword arguments.

    Raises `ConfigError` with the option's name and what it accepts: for an unknown name, a wrong type, a value
    out of bounds, an option given twice with different values, or options that contradict each other.
    """
    config = kind(**convert(kind, options, **explicit))
    _check_together(config)
    return config


def convert(
    kind: type[ClientConfig], options: Mapping[str, Any] | None = None, /, **explicit: Any
) -> dict[str, Any]:
    """The options by their names, each checked by itself: for a config that others complete.

    Raises `ConfigError` as `build`, but for options that contradict each other.
    """
    if options is not None and not isinstance(options, Mapping):
        raise ConfigError("config", f"is {kind_of(options)}: accepts a dict of options")
    merged: dict[str, Any] = {}
    for key, value in (options or {}).items():
        merged[known_name(kind, key)] = value
    for key, value in explicit.items():
        name = known_name(kind, key)
        if name in merged and merged[name] != value:
            raise ConfigError(
                name, "is given twice, as an argument and in config={...}, with different values"
            )
        merged[name] = value
    return {name: _converted(kind, name, value) for name, value in merged.items()}


def producer_over(connection: Mapping[str, Any], options: Mapping[str, Any]) -> ProducerConfig:
    """A producer's options over those of a connection, which are left out where the options name other servers.

    Raises `ConfigError` for options that contradict each other, and for transactions: only who made a producer ends them.
    """
    if options.get("transactional_id") is not None:
        raise ConfigError(
            "transactional_id", "is for a Producer of your own, whose transactions you begin and end"
        )
    return build(ProducerConfig, {**({} if "bootstrap_servers" in options else connection), **options})


def resolved(config: C) -> C:
    """The config with every `${env:…}`, `${file:…}` and `${directory:…}` in its texts replaced (see `references`).

    It is called in the process that makes a client, so that the values travel nowhere; clients that users make call it
    themselves. References of a login (`sasl_…`, `ssl_password`) stay: `looked_up` replaces them at each authentication.

    Raises `ConfigError` where there is no such variable, file or key in this process, and as `build`.
    """
    found = looked_up(config)
    kept = {name: getattr(config, name) for name in references_of(config) if _of_login(name)}
    return msgspec.structs.replace(found, **kept) if kept else found


def looked_up(config: C) -> C:
    """The config with every reference replaced by its present value. Raises as `resolved`."""
    found = {name: resolve(name, text) for name, text in references_of(config).items()}
    if not found:
        return config
    return build(type(config), {name: getattr(config, name) for name in config.__struct_fields__} | found)


def references_of(config: ClientConfig) -> dict[str, str]:
    """The texts of a config that have references in them, by the names of their options."""
    texts = {name: _reference(getattr(config, name)) for name in config.__struct_fields__}
    return {name: text for name, text in texts.items() if text is not None}


def _of_login(name: str) -> bool:
    return name in SECRETS or name.startswith("sasl_")


def _reference(value: Any) -> str | None:
    """The text of a value that has references in it; None for other values."""
    text = value.reveal() if isinstance(value, Secret) else value
    if isinstance(text, list) and all(isinstance(part, str) for part in text):
        text = ",".join(text)
    return text if isinstance(text, str) and refers(text) else None


def known_name(kind: type[ClientConfig], key: str) -> str:
    """The option of `kind` that a dotted or underscored name means. Raises `ConfigError`, with what to do."""
    name = str(key).replace(".", "_")
    if name in kind.__struct_fields__:
        return name
    if (why := refusal(name)) is not None:
        raise ConfigError(name, why)
    close = difflib.get_close_matches(name, kind.__struct_fields__, n=1)
    raise ConfigError(name, "is not an option" + (f"; did you mean {close[0]!r}?" if close else ""))


def refusal(name: str) -> str | None:
    """The reason why an option of another client, or of another place, is refused, and what to do; None for other names."""
    return _REFUSED.get(name)


def _converted(kind: type[ClientConfig], name: str, value: Any) -> Any:
    if isinstance(value, str):
        _check_text(name, value)
    if name == "bootstrap_servers":
        referring = _reference(value)
        return parse_bootstrap_servers(value) if referring is None else [referring]
    if name == "partition_assignment_strategy":
        return _strategy(value)
    if name == "auto_offset_reset":
        return _auto_offset_reset(value)
    if name == "acks":
        return _acks(value)
    if name == "api_version" and isinstance(value, str):
        return _api_version(value)
    if name in SECRETS:
        return Secret.of(name, value)
    if name == "sasl_identity":
        return identity_of(value)
    if name in _ONE_OF:
        return _one_of(name, value)
    if name == "group_protocol" and value != "classic":
        raise ConfigError(name, f"is {value!r}: {_REFUSED[name]}")
    wanted = _types_of(kind)[name]
    # A dict from a properties file or Spark's options holds strings; Kafka's own clients convert those too.
    # So do the keys of a table in TOML.
    lax = isinstance(value, (str, dict))
    if isinstance(value, str):
        value = _composed(name, wanted, value)
    try:
        return decoders.convert(value, wanted, strict=not lax)
    except msgspec.ValidationError as error:
        accepted = [repr(choice) for choice in _choices(wanted)]
        why = f"accepts {' or '.join(accepted)}" if accepted else f"{str(error)[0].lower()}{str(error)[1:]}"
        # A table may have a secret in it.
        shown = kind_of(value) if isinstance(value, dict | list) else without_user_info(repr(value))
        raise ConfigError(name, f"is {shown}: {why}") from None


@functools.cache
def _types_of(kind: type[ClientConfig]) -> dict[str, Any]:
    """The types of a config's options. msgspec evaluates all annotations anew at each question for them."""
    return {field.name: field.type for field in msgspec.structs.fields(kind)}


def _composed(name: str, wanted: Any, text: str) -> Any:
    """The list or table in a text, as the environment and flags have it: `a,b`, and a table as JSON."""
    kinds = {get_origin(part) for part in (wanted, *get_args(wanted))}
    if list in kinds:
        return [part.strip() for part in text.split(",")]
    if dict not in kinds:
        return text
    try:
        return msgspec.json.decode(text)
    except decoders.UNREADABLE:
        raise ConfigError(name, 'can\'t be read: as text a table is JSON, such as {"name": 1}') from None


def _choices(wanted: Any) -> tuple[Any, ...]:
    """The accepted values, where they are a list."""
    if get_origin(wanted) is Literal:
        return get_args(wanted)
    return next((get_args(part) for part in get_args(wanted) if get_origin(part) is Literal), ())


def _check_text(name: str, value: str) -> None:
    """Refuses a text that the wire protocol can't carry, by the option's name alone: the text itself may be a secret."""
    try:
        size = len(value.encode())
    except UnicodeEncodeError:  # bytes of a file or variable that were not UTF-8
        raise ConfigError(name, "holds a lone surrogate, which UTF-8 can't express") from None
    if size > MAX_TEXT_BYTES and name not in ("bootstrap_servers", *SECRETS):
        raise ConfigError(name, f"has {size:,} bytes: a text in Kafka has at most {MAX_TEXT_BYTES:,}")


def _strategy(value: Any) -> list[Any]:
    names = (
        value.split(",") if isinstance(value, str) else value if isinstance(value, (list, tuple)) else [value]
    )
    names = [n.strip() if isinstance(n, str) else n for n in names]
    if not names or "" in names:
        raise ConfigError("partition_assignment_strategy", "is empty: name at least one assignor")
    return names


def _auto_offset_reset(value: Any) -> str:
    accepted = "'earliest', 'latest', 'none' or 'by_duration:<ISO-8601 duration>'"
    text = value.strip().lower() if isinstance(value, str) else value
    if text in ("earliest", "latest", "none"):
        return str(text)
    if isinstance(text, str) and text.startswith("by_duration:"):
        from kafka_actors.base.timeouts import parse_iso8601

        try:
            parse_iso8601(value.strip()[len("by_duration:") :])
        except ValueError as error:
            raise ConfigError("auto_offset_reset", f"is {value!r}: {error}") from None
        return f"by_duration:{value.strip()[len('by_duration:') :]}"
    raise ConfigError("auto_offset_reset", f"is {value!r}: accepts {accepted}")


def _api_version(text: str) -> tuple[int, ...]:
    """The release in a text, as a properties file has it: `3.9`."""
    parts = text.strip().split(".")
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise ConfigError("api_version", f"is {text!r}: accepts a release such as '3.9' or (3, 9)")
    return tuple(int(part) for part in parts)


def _acks(value: Any) -> str:
    text = str(value).strip().lower() if isinstance(value, (str, int)) else value
    if text == "0":
        raise ConfigError("acks", "is 0: nobody would know what was lost; accepts 'all' or 1")
    if text in ("all", "-1"):
        return "all"
    if text != "1" or isinstance(value, bool):
        raise ConfigError("acks", f"is {value!r}: accepts 'all' or 1")
    return "1"


def _one_of(name: str, value: Any) -> str | None:
    """Returns one of several constants in capitals; small letters are accepted, as in Java."""
    if name == "sasl_mechanism" and value is None:
        return None
    text = value.strip().upper() if isinstance(value, str) else value
    if text not in _ONE_OF[name]:
        raise ConfigError(name, f"is {value!r}: accepts {', '.join(_ONE_OF[name])}")
    return str(text)


def _check_metrics(config: ClientConfig) -> None:
    if config.metrics is None:
        if config.metric_group_prefix:
            raise ConfigError("metric_group_prefix", "is given without metrics")
        return
    if not hasattr(config.metrics, "metric_name"):  # machines read options, and may import no clock
        raise ConfigError("metrics", f"is {kind_of(config.metrics)}: accepts a kafka_actors.metrics.Metrics")
    if isinstance(config, JobConfig):
        raise ConfigError("metrics", "can't be sent to the processes of a job")


def _check_producer(config: ProducerConfig) -> None:
    if config.transactional_id is not None and not config.transactional_id.strip():
        raise ConfigError("transactional_id", "is empty: None is for a producer without transactions")
    if config.transactional_id is not None and config.acks != "all":
        raise ConfigError("acks", f"is {config.acks}: must be 'all' with a transactional_id")
    if config.transactional_id is not None and not config.enable_idempotence:
        raise ConfigError("enable_idempotence", "is False: must be True with a transactional_id")
    if config.enable_idempotence and config.acks != "all":
        raise ConfigError("acks", f"is {config.acks}: must be 'all' unless enable_idempotence is False")
    if config.enable_idempotence and config.max_in_flight_requests_per_connection > 5:
        raise ConfigError(
            "max_in_flight_requests_per_connection",
            f"is {config.max_in_flight_requests_per_connection}: must be 5 at most unless enable_idempotence is "
            "False, because a broker remembers the last 5 batches of a producer",
        )
    least = config.linger_ms + config.request_timeout_ms
    if config.delivery_timeout_ms < least:
        raise ConfigError(
            "delivery_timeout_ms",
            f"is {config.delivery_timeout_ms}: must be at least linger_ms + request_timeout_ms ({least})",
        )


def _check_together(config: ClientConfig) -> None:
    if isinstance(config, JobConfig) and not config.enable_auto_commit:
        raise ConfigError(
            "enable_auto_commit",
            "is False: a job always commits what its function returned for, or it could not move partitions "
            "between workers; to commit by hand use a Consumer",
        )
    check_security(config, travels=isinstance(config, JobConfig))
    _check_metrics(config)
    if isinstance(config, ProducerConfig):
        _check_producer(config)
    if not isinstance(config, ConsumerConfig):
        return
    if config.group_id is not None and not config.group_id.strip():
        raise ConfigError("group_id", "is empty")
    if config.group_instance_id is not None and not config.group_instance_id.strip():
        raise ConfigError("group_instance_id", "is empty: None is for a member without one")
    if config.heartbeat_interval_ms >= config.session_timeout_ms:
        raise ConfigError(
            "heartbeat_interval_ms",
            f"is {config.heartbeat_interval_ms}: must be lower than session_timeout_ms ({config.session_timeout_ms})",
        )
    if isinstance(config, JobConfig) and config.drain_timeout_ms >= config.rebalance_timeout_ms:
        raise ConfigError(
            "drain_timeout_ms",
            f"is {config.drain_timeout_ms}: must be lower than rebalance_timeout_ms ({config.rebalance_timeout_ms})",
        )

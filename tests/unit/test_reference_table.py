"""Every name of the five reference pages is in the code, and in the documentation's table of them.

The names, arguments and defaults below are those of the pages; the rest of the table is ours.
"""

from __future__ import annotations

import importlib
import inspect
import re
import socket
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

import kafka_actors
from kafka_actors.config import ClientConfig

PAGE = Path(__file__).parents[2] / "docs/reference/reference-systems.md"

Classes = dict[str, list[str]]

# A call has the page's arguments; a bare name is an attribute or a property. The class's own name is its constructor.
METHODS: dict[str, Classes] = {
    "000": {
        "ClusterMetadata": [
            "ClusterMetadata(**configs)",
            "add_group_coordinator(group, response)",
            "add_listener(listener)",
            "available_partitions_for_topic(topic)",
            "broker_metadata(broker_id)",
            "brokers()",
            "coordinator_for_group(group)",
            "failed_update(exception)",
            "leader_for_partition(partition)",
            "partitions_for_broker(broker_id)",
            "partitions_for_topic(topic)",
            "refresh_backoff()",
            "remove_listener(listener)",
            "request_update()",
            "topics(exclude_internal_topics=True)",
            "ttl()",
            "update_metadata(metadata)",
            "with_partitions(partitions_to_add)",
        ]
    },
    "001": {
        "Cluster": [
            "Cluster(bootstrap_hosts)",
            "__contains__",
            "__getitem__",
            "__iter__",
            "conns",
            "get_leader(topic, partition_id)",
            "get_metadata(topics=None)",
            "heal(response=None)",
            "leaders",
            "process_brokers(brokers)",
            "process_topics(topics)",
            "start()",
            "stop()",
            "topics",
        ]
    },
    "002": {
        "BaseCoordinator": [
            "BaseCoordinator(client, metrics, **configs)",
            "DEFAULT_CONFIG",
            "close()",
            "coordinator_dead(error)",
            "coordinator_unknown()",
            "ensure_active_group()",
            "ensure_coordinator_known()",
            "group_protocols()",
            "need_rejoin()",
            "protocol_type()",
            "_perform_assignment",
            "_on_join_complete",
        ],
        "GroupCoordinatorMetrics": ["GroupCoordinatorMetrics(heartbeat, metrics, prefix, tags=None)"],
        "HeartbeatTask": ["HeartbeatTask(coordinator)", "disable()", "reset()"],
        "AutoCommitTask": ["AutoCommitTask(coordinator, interval)", "reschedule(at=None)"],
        "ConsumerCoordinator": [
            "ConsumerCoordinator(client, subscription, metrics, **configs)",
            "DEFAULT_CONFIG",
            "close(autocommit=True)",
            "commit_offsets_async(offsets, callback=None)",
            "commit_offsets_sync(offsets)",
            "fetch_committed_offsets(partitions)",
            "group_protocols()",
            "need_rejoin()",
            "protocol_type()",
            "refresh_committed_offsets_if_needed()",
        ],
        "ConsumerCoordinatorMetrics": [
            "ConsumerCoordinatorMetrics(metrics, metric_group_prefix, subscription)"
        ],
        "Heartbeat": [
            "Heartbeat(**configs)",
            "DEFAULT_CONFIG",
            "received_heartbeat()",
            "reset_session_timeout()",
            "sent_heartbeat()",
            "session_expired()",
            "should_heartbeat()",
            "ttl()",
        ],
    },
    "003": {
        "KafkaClient": [
            "KafkaClient(**configs)",
            "add_topic(topic)",
            "bootstrap_connected()",
            "check_version(node_id=None, timeout=2, strict=False)",
            "close(node_id=None)",
            "cluster",
            "connected(node_id)",
            "connection_delay(node_id)",
            "get_api_versions()",
            "in_flight_request_count(node_id=None)",
            "is_disconnected(node_id)",
            "is_ready(node_id, metadata_priority=True)",
            "least_loaded_node()",
            "maybe_connect(node_id, wakeup=True)",
            "poll(timeout_ms=None, future=None)",
            "ready(node_id, metadata_priority=True)",
            "send(node_id, request, wakeup=True)",
            "set_topics(topics)",
        ]
    },
    "004": {
        "Broker": [
            "Broker(id_, host, port, handler, socket_timeout_ms, offsets_channel_socket_timeout_ms, "
            "buffer_size=1048576, source_host='', source_port=0)",
            "_get_unique_req_handler(connection_id)",
            "commit_consumer_group_offsets(consumer_group, consumer_group_generation_id, consumer_id, preqs)",
            "connect()",
            "connect_offsets_channel()",
            "connected",
            "fetch_consumer_group_offsets(consumer_group, preqs)",
            "fetch_messages(partition_requests, timeout=30000, min_bytes=1)",
            "from_metadata(metadata, handler, socket_timeout_ms, offsets_channel_socket_timeout_ms, "
            "buffer_size=65536, source_host='', source_port=0)",
            "handler",
            "heartbeat(connection_id, consumer_group, generation_id, member_id)",
            "host",
            "id",
            "join_group(connection_id, consumer_group, member_id)",
            "leave_group(connection_id, consumer_group, member_id)",
            "offsets_channel_connected",
            "offsets_channel_handler",
            "port",
            "produce_messages(produce_request)",
            "request_metadata(topics=None)",
            "request_offset_limits(partition_requests)",
            "sync_group(connection_id, consumer_group, generation_id, member_id, group_assignment)",
        ]
    },
}

UNSAID = object()
"""The page says no default, or one that is no value."""

_HEARTBEAT = {"session_timeout_ms": 30000, "heartbeat_interval_ms": 3000}
_GROUP = _HEARTBEAT | {
    "retry_backoff_ms": 100,
    "group_id": "kafka-python-default-group",
    "api_version": UNSAID,  # (0, 9): older than any broker that is spoken to
}

OPTIONS: dict[str, dict[str, dict[str, Any]]] = {
    "000": {
        "ClusterMetadata": {
            "retry_backoff_ms": 100,
            "metadata_max_age_ms": 300000,
            "bootstrap_servers": "localhost:9092",
        }
    },
    "001": {},
    "002": {
        "BaseCoordinator": _GROUP | {"metric_group_prefix": ""},
        "ConsumerCoordinator": _GROUP
        | {
            "assignors": ["range", "roundrobin"],
            "metric_group_prefix": "consumer",
            "exclude_internal_topics": True,
            "auto_commit_interval_ms": 5000,
            "default_offset_commit_callback": UNSAID,
            "enable_auto_commit": True,
        },
        "Heartbeat": _HEARTBEAT,
    },
    "003": {
        "KafkaClient": {
            "bootstrap_servers": "localhost:9092",
            "client_id": "kafka-python-{version}",
            "reconnect_backoff_ms": 50,
            "reconnect_backoff_max_ms": 1000,
            "request_timeout_ms": 30000,
            "connections_max_idle_ms": 540000,
            "retry_backoff_ms": 100,
            "max_in_flight_requests_per_connection": 5,
            "receive_buffer_bytes": None,
            "send_buffer_bytes": None,
            "socket_options": [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)],
            "metadata_max_age_ms": 300000,
            "security_protocol": "PLAINTEXT",
            "ssl_context": None,
            "ssl_check_hostname": True,
            "ssl_cafile": None,
            "ssl_certfile": None,
            "ssl_keyfile": None,
            "ssl_password": None,
            "ssl_crlfile": None,
            "ssl_ciphers": None,
            "api_version": None,
            "api_version_auto_timeout_ms": UNSAID,
            "selector": UNSAID,
            "metrics": None,
            "metric_group_prefix": "",
            "sasl_mechanism": UNSAID,
            "sasl_plain_username": UNSAID,
            "sasl_plain_password": UNSAID,
            "sasl_kerberos_service_name": "kafka",
            "sasl_kerberos_domain_name": UNSAID,
            "sasl_oauth_token_provider": None,
        }
    },
    "004": {},
}


class Row(NamedTuple):
    page: str
    cls: str
    names: list[str]
    module: str
    holder: str
    remark: str


class DefaultRow(NamedTuple):
    page: str
    cls: str
    option: str
    there: str
    here: str


def ticked(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def cells(columns: int) -> list[list[str]]:
    """The rows of the page's tables that begin with a page's number and have that many columns."""
    lines = [line for line in PAGE.read_text().splitlines() if re.match(r"\| 00\d \|", line)]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in rows if len(row) == columns]


def table() -> list[Row]:
    rows = []
    for page, cls, names, lives, remark in cells(5):
        path, holder = ticked(lives)
        rows.append(Row(page, ticked(cls)[0], ticked(names), path, holder, remark))
    return rows


def defaults_that_differ() -> list[DefaultRow]:
    return [
        DefaultRow(page, *(ticked(cell)[0] for cell in (cls, option, there, here)))
        for page, cls, option, there, here, _ in cells(6)
    ]


def name_of(entry: str) -> str:
    return entry.partition("(")[0]


def names_of_the_pages() -> set[tuple[str, str, str]]:
    methods = {(p, c, name_of(e)) for p, found in METHODS.items() for c, es in found.items() for e in es}
    return methods | {(p, c, o) for p, found in OPTIONS.items() for c, os in found.items() for o in os}


def lives(page: str, cls: str, name: str) -> Any:
    """What the table says holds a name."""
    row = next(row for row in table() if (row.page, row.cls) == (page, cls) and name in row.names)
    module = importlib.import_module(row.module.removesuffix(".py").replace("/", "."))
    return getattr(module, row.holder)


def signature(function: Any) -> list[inspect.Parameter]:
    found = inspect.signature(function)
    return [parameter for parameter in found.parameters.values() if parameter.name != "self"]


def test_the_table_has_each_name_of_the_pages_once_and_no_other() -> None:
    listed = Counter((row.page, row.cls, name) for row in table() for name in row.names)
    assert names_of_the_pages() - listed.keys() == set()
    assert listed.keys() - names_of_the_pages() == set()
    assert [name for name, count in listed.items() if count > 1] == []


@pytest.mark.parametrize("entry", sorted(names_of_the_pages()), ids="-".join)
def test_each_name_of_the_pages_is_in_the_code(entry: tuple[str, str, str]) -> None:
    holder, name = lives(*entry), entry[2]
    assert name == getattr(holder, "__name__", "") or has(holder, name), f"{holder} has no {name}"


def has(holder: Any, name: str) -> bool:
    if isinstance(holder, dict):  # of options that are refused
        return name in holder
    if inspect.isfunction(holder):  # which reads options
        return name in holder.__code__.co_consts
    return (
        hasattr(holder, name)
        or name in getattr(holder, "DEFAULT_CONFIG", ())
        or name in inspect.signature(holder).parameters
        or any(name in c.__init__.__code__.co_names for c in holder.__mro__ if "__init__" in vars(c))
    )


def calls() -> list[tuple[str, str, str]]:
    found = [(p, c, e) for p, classes in METHODS.items() for c, es in classes.items() for e in es]
    return [(p, c, e) for p, c, e in found if "(" in e]


@pytest.mark.parametrize("entry", calls(), ids=lambda e: f"{e[0]}-{name_of(e[2])}")
def test_arguments_have_the_pages_names_order_and_defaults(entry: tuple[str, str, str]) -> None:
    page, cls, call = entry
    name, _, arguments = call.partition("(")
    holder = lives(page, cls, name)
    wanted = signature(eval(f"lambda {arguments[:-1]}: None"))
    wanted = [p for p in wanted if p.kind is not inspect.Parameter.VAR_KEYWORD]
    there = signature(holder if name == cls else getattr(holder, name))
    for parameter, ours in zip(wanted, there, strict=False):
        assert ours.name == parameter.name
        if parameter.default is not inspect.Parameter.empty:
            assert ours.default == parameter.default
    assert len(there) >= len(wanted)
    # Whoever calls it with the page's arguments alone needs no others. How to connect is what `Cluster` must be told.
    needed = [p.name for p in there[len(wanted) :] if p.default is p.empty and p.kind not in (2, 4)]
    assert needed == (["connect"] if (cls, name) == ("Cluster", "Cluster") else [])


def default_of(holder: Any, option: str) -> Any:
    if isinstance(holder, type) and issubclass(holder, msgspec.Struct):
        return getattr(holder(), option)
    if option in getattr(holder, "DEFAULT_CONFIG", ()):
        return holder.DEFAULT_CONFIG[option]
    return inspect.signature(holder).parameters[option].default


def plain(value: Any) -> str:
    """A default as the table writes it: lists of one and more as their items."""
    if isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value):
        return ", ".join(value) if len(value) > 1 or "sticky" in value[0] else repr(value[0])
    if isinstance(value, (list, tuple)):
        return repr([tuple(item) for item in value])
    return repr(value).replace(kafka_actors.__version__, "{version}")


def test_defaults_are_the_pages_or_listed_with_both_values() -> None:
    differing = set()
    for page, classes in OPTIONS.items():
        for cls, options in classes.items():
            for option, there in options.items():
                if there is UNSAID:
                    continue
                here = default_of(lives(page, cls, option), option)
                if plain(here) != plain(there):
                    differing.add(DefaultRow(page, cls, option, plain(there), plain(here)))
    assert set(defaults_that_differ()) == differing


def test_the_pages_options_are_taken_by_the_client_or_refused_by_name() -> None:
    from kafka_actors.config.builder import _REFUSED

    options = set(OPTIONS["003"]["KafkaClient"])
    assert options - set(ClientConfig.__struct_fields__) == {"selector"}
    assert "selector" in _REFUSED

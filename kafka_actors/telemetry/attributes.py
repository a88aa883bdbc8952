"""Attributes of metric values and spans: the keys of the semantic conventions, with the values of a Kafka client.

Attributes are tuples of pairs, so they can be keys of dicts and be sent to other processes. Each tuple is made once and
cached.
"""

from __future__ import annotations

import re
from functools import lru_cache

from kafka_actors.errors import KafkaError

from .instruments import (
    CLUSTER_ID,
    DESTINATION,
    ERROR_TYPE,
    GROUP,
    LABEL,
    OPERATION,
    OPERATION_TYPE,
    PARTITION,
    SERVER,
    SYSTEM,
)

__all__ = [
    "Attributes",
    "error_type",
    "kind_of_reason",
    "of_cluster",
    "of_group",
    "of_operation",
    "of_partition",
    "of_server",
    "with_error",
]

Attributes = tuple[tuple[str, str | int], ...]

TYPES = {"poll": "receive", "fetch": "receive", "commit": "settle", "process": "process", "send": "send"}
"""The operations of this library → their types in the conventions."""

_KIND = re.compile(r"[a-z ]+[a-z]")


@lru_cache(maxsize=4096)
def of_operation(
    operation: str, group: str | None = None, topic: str | None = None, *, typed: bool = True
) -> Attributes:
    """`messaging.system` and the operation; with `typed` the operation's type; the group and the topic where given."""
    pairs: list[tuple[str, str | int]] = [(SYSTEM, "kafka"), (OPERATION, operation)]
    if typed:
        pairs.append((OPERATION_TYPE, TYPES[operation]))
    return (*pairs, *_group_and_topic(group, topic))


@lru_cache(maxsize=16_384)
def of_partition(group: str | None, topic: str, partition: int, operation: str | None = None) -> Attributes:
    """Attributes of one partition, with the operation on it if one is given. The conventions have a partition's id as text."""
    head: Attributes = () if operation is None else of_operation(operation, typed=False)
    return (*head, *_group_and_topic(group, topic), (PARTITION, str(partition)))


def _group_and_topic(group: str | None, topic: str | None) -> Attributes:
    pairs: list[tuple[str, str | int]] = []
    if group is not None:
        pairs.append((GROUP, group))
    if topic is not None:
        pairs.append((DESTINATION, topic))
    return tuple(pairs)


def of_group(group: str | None, **more: str | int) -> Attributes:
    """The label `group` of the collector's `kafkametrics` receiver, and further labels by name."""
    return ((LABEL, group or ""), *more.items())


@lru_cache(maxsize=1024)
def of_server(host: str, port: int) -> Attributes:
    """Address of a broker, as clients connect to it."""
    return ((SERVER[0], host), (SERVER[1], port))


def of_cluster(cluster_id: str | None) -> Attributes:
    """Id of the Kafka cluster; no attributes while it isn't known."""
    return () if cluster_id is None else ((CLUSTER_ID, cluster_id),)


def with_error(attributes: Attributes, error: BaseException | None) -> Attributes:
    """The attributes, with `error.type` added if there was an error."""
    return attributes if error is None else (*attributes, (ERROR_TYPE, error_type(error)))


def error_type(error: BaseException) -> str:
    """Value of `error.type`: Kafka's name for a broker's error code, else the name of the class. Few values, and no user's text."""
    if isinstance(error, KafkaError):
        return error.name
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return re.sub(r"\.?<locals>\.?", ".", name)


def kind_of_reason(reason: str) -> str:
    """The kind of a reason for which nothing is read from a partition: few values, for metrics, of a text for people.

    `backing off: no answer in 30 s` → `backing_off`; `broker 3: throttled` → `broker`; empty for an empty text.

    Kinds: paused, buffer_full (backpressure), no_leader, open_transaction, retrying (the function fails on a record and
    is called again), failed, backing_off, broker (it can't be reached, or throttles), draining, awaiting_offset,
    validating, at_end, no_lease, waits_for_its_turn (its worker reads other partitions), its_window_is_full and
    calls_from_before_a_reset_are_not_over (where calls overlap), waits_for_the_registry (of schemas), not_due (of a
    retry topic), reading_ahead (which keys wait in those); and no_worker, of a job's partition that no worker holds.
    """
    found = _KIND.match(reason)
    return found[0].replace(" ", "_") if found is not None else ""

"""Attributes of values and spans: the keys of the semantic conventions, with what a Kafka client fills in.

They are tuples of pairs, which can be keys and travel; each is made once and kept.
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


@lru_cache(maxsize=4096)
def of_operation(
    operation: str, group: str | None = None, topic: str | None = None, *, typed: bool = True
) -> Attributes:
    """`messaging.system` and the operation, and where they apply its type, the group and the topic."""
    pairs: list[tuple[str, str | int]] = [(SYSTEM, "kafka"), (OPERATION, operation)]
    if typed:
        pairs.append((OPERATION_TYPE, TYPES[operation]))
    return (*pairs, *_of(group, topic))


@lru_cache(maxsize=16_384)
def of_partition(group: str | None, topic: str, partition: int, operation: str | None = None) -> Attributes:
    """One partition, and what is done with it, if anything. A partition's id is text in the conventions."""
    head: Attributes = () if operation is None else of_operation(operation, typed=False)
    return (*head, *_of(group, topic), (PARTITION, str(partition)))


def _of(group: str | None, topic: str | None) -> Attributes:
    pairs: list[tuple[str, str | int]] = []
    if group is not None:
        pairs.append((GROUP, group))
    if topic is not None:
        pairs.append((DESTINATION, topic))
    return tuple(pairs)


def of_group(group: str | None, **more: str | int) -> Attributes:
    """The collector's `group`, and others of its kind."""
    return ((LABEL, group or ""), *more.items())


@lru_cache(maxsize=1024)
def of_server(host: str, port: int) -> Attributes:
    """A broker, as clients connect to it."""
    return ((SERVER[0], host), (SERVER[1], port))


def of_cluster(cluster_id: str | None) -> Attributes:
    """The Kafka cluster, where it has said what it is called."""
    return () if cluster_id is None else ((CLUSTER_ID, cluster_id),)


def with_error(attributes: Attributes, error: BaseException | None) -> Attributes:
    """The attributes, with `error.type` where there was an error."""
    return attributes if error is None else (*attributes, (ERROR_TYPE, error_type(error)))


def error_type(error: BaseException) -> str:
    """Kafka's own name of an error of a broker, else the name of its class: few values, and no text of a user."""
    if isinstance(error, KafkaError):
        return error.name
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return re.sub(r"\.?<locals>\.?", ".", name)

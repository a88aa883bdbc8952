"""Topics that are written to: looked at before the start, and not waited for where they are missing."""

from __future__ import annotations

import logging

from kafka_actors.config import ProducerConfig
from kafka_actors.errors import (
    KafkaActorsError,
    SinkError,
    StageError,
    TopicAuthorizationFailedError,
    UndeliveredError,
    UnknownTopicOrPartitionError,
)
from kafka_actors.producer import Producer

logger = logging.getLogger(__name__)

MISSING_S = 3.0
"""A topic that was made just now may be unknown to a broker for a moment."""


SINK_TOPIC = "the sink's topic"
DEAD_LETTER_TOPIC = "the dead-letter topic"


class TargetProducer(Producer):
    """A producer for which a topic that isn't there is an error soon, not after `max_block_ms`: it may be named in the
    records, and where one is misspelt the others are to go on."""

    _missing_s = MISSING_S


def producer_of(config: ProducerConfig) -> Producer:
    """A producer that is connected. It resolves references to secrets, so here, in the worker. Raises `ConfigError`."""
    made = TargetProducer(config={name: getattr(config, name) for name in config.__struct_fields__})
    return made.__enter__()


def producer_to(config: ProducerConfig, topic: str | None, what: str) -> Producer:
    """The same, and the topic is there, where it is known by now. Raises `UnknownTopicOrPartitionError`, which names
    `what` it is. Without the right to see it that is a warning: writing will tell."""
    producer = producer_of(config)
    try:
        if topic is not None:
            producer.partitions_for(topic)
    except TopicAuthorizationFailedError as error:
        logger.warning("%s can't be looked at before the start: %s", what, error)
    except UnknownTopicOrPartitionError:
        _drop(producer)
        servers = ", ".join(config.bootstrap_servers)
        raise UnknownTopicOrPartitionError(
            f"{what} is not there on {servers}: create it, or check its name", topic=topic, request="Metadata"
        ) from None
    except BaseException:
        _drop(producer)
        raise
    return producer


def check_target(config: ProducerConfig, topic: str | None, what: str) -> None:
    """Raises as `producer_to`, where nothing is written yet."""
    if topic is not None:
        _drop(producer_to(config, topic, what))


def _drop(producer: Producer) -> None:
    """Nothing was sent."""
    producer.close(timeout_ms=0)


def is_final(error: BaseException | None) -> bool:
    """Whether an error of a sink comes again however often the same records are written."""
    if isinstance(error, UndeliveredError):
        return all(map(is_final, error.errors.values()))
    if isinstance(error, UnknownTopicOrPartitionError):  # brokers were asked for long enough
        return True
    if isinstance(error, (SinkError, StageError)):
        return is_final(error.__cause__)
    return isinstance(error, KafkaActorsError) and not error.retriable

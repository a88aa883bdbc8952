"""The in-process consumer: `Consumer` and `AsyncConsumer`, over one client, coordinator and fetcher in a thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_actors.lazy import lazily

if TYPE_CHECKING:
    from kafka_actors.base.message import Message, messages_of

    from .async_consumer import AsyncConsumer
    from .consumer import Consumer
    from .rebalance import ConsumerRebalanceListener

# Loaded when first used: the workers of a job need messages, and no consumer.
_HOMES = {
    "AsyncConsumer": "async_consumer",
    "Consumer": "consumer",
    "ConsumerRebalanceListener": "rebalance",
    "Message": "kafka_actors.base.message",
    "messages_of": "kafka_actors.base.message",
}

__all__ = [
    "AsyncConsumer",
    "Consumer",
    "ConsumerRebalanceListener",
    "Message",
    "messages_of",
]

__getattr__ = lazily(__name__, _HOMES)


def __dir__() -> list[str]:
    return __all__

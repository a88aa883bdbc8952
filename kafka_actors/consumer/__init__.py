"""The in-process consumer: `Consumer` and its asyncio twin, over one client, coordinator and fetcher in a thread."""

from .async_consumer import AsyncConsumer
from .consumer import Consumer
from .message import Message, messages_of
from .rebalance import ConsumerRebalanceListener

__all__ = ["AsyncConsumer", "Consumer", "ConsumerRebalanceListener", "Message", "messages_of"]

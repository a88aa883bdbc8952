"""Methods of other clients, by their names there: an object that lacks one says what it has instead.

The tables name methods of confluent-kafka, aiokafka and kafka-python. Such a method is an `AttributeError`, so `hasattr` stays right.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Never

__all__ = ["ADMIN", "CONSUMER", "FUTURE", "PRODUCER", "not_an_iterator", "says_ours"]

_READING = "poll_batch() returns an Arrow batch, and a loop over the consumer gives single messages"
_ADMIN = "Admin has it"

CONSUMER: Mapping[str, str] = {
    **dict.fromkeys(("poll", "consume", "getmany", "getone"), _READING),
    "store_offsets": "with enable_auto_commit=False, commit({partition: offset}) commits what is done",
    "get_watermark_offsets": "beginning_offsets([partition]) and end_offsets([partition])",
    "unassign": "unsubscribe()",
    "start": "`with` or `async with` connects, or the first call that needs a broker",
    "stop": "close()",
    **dict.fromkeys(("list_topics", "describe_topics"), f"topics() lists their names; {_ADMIN} with details"),
}
PRODUCER: Mapping[str, str] = {
    "produce": "send(topic, value, key=…) returns a future; its add_done_callback(…) is a delivery callback",
    "send_and_wait": "send(…) returns a future: await it, or result() waits for the broker's answer",
    "poll": "a thread sends and calls callbacks: nothing has to be polled; flush() waits for what is under way",
    "start": "`with` or `async with` connects, or the first record",
    "stop": "close()",
    "list_topics": f"{_ADMIN}: list_topics()",
}
_ALL_OF_THEM = "concurrent.futures waits for its own futures only: call result() of each, or flush(), or await asyncio.gather(*futures)"
FUTURE: Mapping[str, str] = {
    "_condition": _ALL_OF_THEM,
    "get": "result(timeout=…)",
    **dict.fromkeys(
        ("add_callback", "add_errback"), "add_done_callback(…), whose future has result() and exception()"
    ),
    **dict.fromkeys(("succeeded", "failed"), "exception() is None where it was delivered"),
}
ADMIN: Mapping[str, str] = {
    "list_consumer_groups": "list_groups()",
    "describe_groups": "describe_consumer_groups(group_ids)",
    "delete_groups": "delete_consumer_groups(group_ids)",
    "alter_configs": "incremental_alter_configs(changes); settings that aren't named stay",
    "poll": "each call returns its result",
    "start": "`with` or `async with` connects, or the first call",
    "stop": "close()",
}


def says_ours(names: Mapping[str, str]) -> Callable[[Any, str], Never]:
    """Returns the `__getattr__` of a class: for these names its error says what there is instead."""

    def missing(self: Any, name: str) -> Never:
        kind = type(self).__name__
        ours = names.get(name)
        if ours is not None:
            called = name if name.startswith("_") else f"{name}()"
            raise AttributeError(f"{kind} has no {called}: {ours}")
        raise AttributeError(f"{kind!r} object has no attribute {name!r}", name=name, obj=self)

    return missing


def not_an_iterator(instead: str) -> Callable[[Any], Never]:
    """Returns the `__next__` of a class that is iterable and no iterator: a `TypeError` that says what to write."""

    def refuse(self: Any) -> Never:
        raise TypeError(f"{type(self).__name__} is no iterator: {instead}")

    return refuse

"""The consumer protocol: subscriptions and assignments of a classic group's members, which brokers pass on unread.

Each blob starts with its version. A newer version than ours is read as ours, because new versions may only add
fields at the end (`ConsumerProtocol.java`).
"""

from __future__ import annotations

import struct
from typing import TypeVar

from kafka_actors.errors import DecodeError

from .codec import Buffer, decode_prefix, encode_into
from .messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from .messages.consumer_protocol_subscription import ConsumerProtocolSubscription

P = TypeVar("P", ConsumerProtocolSubscription, ConsumerProtocolAssignment)
_VERSION = struct.Struct(">h")


def encode_consumer_protocol(
    message: ConsumerProtocolSubscription | ConsumerProtocolAssignment, version: int | None = None
) -> bytes:
    """Encodes a subscription or assignment with its version in front; the newest version by default.

    Raises as `encode`.
    """
    if version is None:
        version = message.latest
    out = bytearray(_VERSION.pack(version))
    encode_into(out, message, version)
    return bytes(out)


def decode_consumer_protocol(cls: type[P], data: Buffer) -> P:
    """Decodes a subscription or assignment from a blob with its version in front. Bytes behind it are ignored.

    Raises DecodeError for bytes that don't fit the schema.
    """
    view = memoryview(data)
    if len(view) < _VERSION.size:
        raise DecodeError(f"{cls.__name__}: no version in {len(view)} bytes")
    (version,) = _VERSION.unpack_from(view)
    if version < 0:
        raise DecodeError(f"{cls.__name__}: version {version}")
    message, _ = decode_prefix(cls, min(version, cls.max_version), view[_VERSION.size :])
    return message

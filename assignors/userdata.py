"""Encoding of the user data that Java's sticky assignors put into a subscription, so that mixed groups stay sticky.

`sticky` (KIP-54) sends its previous assignment there, since version 1 with the generation it is from.
`cooperative-sticky` (KIP-429) sends the generation alone; its partitions are the subscription's owned_partitions,
and from ConsumerProtocolSubscription version 2 on the generation is a field there too (KIP-792).
All numbers are big-endian. Decoding never raises: user data comes from other clients.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from assignors.types import TopicPartition

UNKNOWN_GENERATION = -1


def encode_sticky(owned: Iterable[TopicPartition], generation: int | None = UNKNOWN_GENERATION) -> bytes:
    """Encodes the user data of `sticky`: version 1, or version 0 if the generation is None."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(set(owned)):
        topics.setdefault(topic, []).append(partition)
    parts = [struct.pack(">i", len(topics))]
    for topic, ids in topics.items():
        name = topic.encode()
        parts.append(struct.pack(f">h{len(name)}si{len(ids)}i", len(name), name, len(ids), *ids))
    if generation is not None:
        parts.append(struct.pack(">i", generation))
    return b"".join(parts)


def decode_sticky(data: bytes | None) -> tuple[list[TopicPartition], int]:
    """Decodes the user data of `sticky`: the partitions that a member held, and the generation (-1 if unknown).

    As in Java, bytes too short for version 1 are decoded as version 0, and malformed bytes count as no claim.
    """
    try:
        owned, at = _read_owned(bytes(data or b""))
    except (struct.error, ValueError):
        return [], UNKNOWN_GENERATION
    return owned, decode_cooperative_sticky(bytes(data or b"")[at:])


def encode_cooperative_sticky(generation: int = UNKNOWN_GENERATION) -> bytes:
    """Encodes the user data of `cooperative-sticky`."""
    return struct.pack(">i", generation)


def decode_cooperative_sticky(data: bytes | None) -> int:
    """Decodes the generation in user data of `cooperative-sticky`; -1 if there is none."""
    try:
        (generation,) = struct.unpack_from(">i", bytes(data or b""))
    except struct.error:
        return UNKNOWN_GENERATION
    return int(generation)


def _read_owned(data: bytes) -> tuple[list[TopicPartition], int]:
    owned: list[TopicPartition] = []
    count, at = _read_count(data, 0)
    for _ in range(count):
        (length,) = struct.unpack_from(">h", data, at)
        if length < 0:
            raise ValueError("a topic name may not be null")
        (name,) = struct.unpack_from(f"{length}s", data, at + 2)
        size, at = _read_count(data, at + 2 + length)
        ids = struct.unpack_from(f">{size}i", data, at)
        at += 4 * size
        topic = name.decode(errors="replace")
        owned.extend((topic, partition) for partition in ids)
    return owned, at


def _read_count(data: bytes, at: int) -> tuple[int, int]:
    """Reads an array's length. Each element has at least four bytes, so an impossible length is refused before reading on."""
    (count,) = struct.unpack_from(">i", data, at)
    if not 0 <= count <= (len(data) - at - 4) // 4:
        raise ValueError(f"an array of {count} does not fit")
    return int(count), at + 4

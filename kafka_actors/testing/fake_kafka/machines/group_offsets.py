"""Offsets of groups: committed ones, and those of open transactions.

Theory of operation. The partition of the offsets topic that a group belongs to takes part in a transaction like any other. Until its
marker comes, the transaction's offsets are pending: they are no committed offsets, and who asks for stable ones is told to wait. A
commit makes them the group's, unless the group has committed others after them outside of the transaction; an abort drops them. An
offset that is deleted is deleted among the pending ones, too.

Source: `OffsetMetadataManager`; KIP-98, KIP-447.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from kafka_actors import errors

from .error_answers import Refused

MOST_BATCH_BYTES = 1_048_588
"""`max.message.bytes` of the offsets topic, which bounds one commit: its default, and this topic has no other settings here."""

_FLEXIBLE_VALUES = (4, 1)

OffsetKey = tuple[str, int]
"""Topic and partition."""


class CommittedOffset(Struct, frozen=True):
    """An offset of a group; times in ms since the epoch, `expires_ms` only where OffsetCommit 2 to 4 named a retention. `number` is its
    place among all commits."""

    offset: int
    leader_epoch: int
    metadata: str
    committed_ms: int
    expires_ms: int | None = None
    number: int = 0


class _OpenTransaction:
    """A producer's pending offsets in a partition of the offsets topic, by group."""

    def __init__(self) -> None:
        self.by_group: dict[str, dict[OffsetKey, CommittedOffset]] = {}


class OffsetStore:
    """The offsets of all groups."""

    def __init__(self) -> None:
        self._committed: dict[str, dict[OffsetKey, CommittedOffset]] = {}
        self._open: dict[tuple[int, int], _OpenTransaction] = {}
        self._epochs: dict[tuple[int, int], int] = {}
        self._number = 0

    def of(self, group_id: str) -> dict[OffsetKey, CommittedOffset]:
        """The committed offsets of a group."""
        return dict(self._committed.get(group_id, {}))

    def put(self, group_id: str, key: OffsetKey, offset: CommittedOffset) -> None:
        """Commits an offset."""
        self._committed.setdefault(group_id, {})[key] = self._numbered(offset)

    def _numbered(self, offset: CommittedOffset) -> CommittedOffset:
        self._number += 1
        return replace(offset, number=self._number)

    def remove(self, group_id: str, key: OffsetKey) -> None:
        """Forgets an offset, also where it is pending."""
        self._committed.get(group_id, {}).pop(key, None)
        for txn in self._open.values():
            txn.by_group.get(group_id, {}).pop(key, None)

    def remove_group(self, group_id: str) -> None:
        """Forgets all offsets of a group."""
        self._committed.pop(group_id, None)
        for txn in self._open.values():
            txn.by_group.pop(group_id, None)

    def remove_topic(self, name: str) -> None:
        """Forgets the offsets of a topic that was deleted."""
        stores = [self._committed, *(txn.by_group for txn in self._open.values())]
        for offsets in [offsets for store in stores for offsets in store.values()]:
            for key in [key for key in offsets if key[0] == name]:
                del offsets[key]

    # ---------------------------------------------------------------- transactions

    def has_open(self, partition: int, producer_id: int, epoch: int | None) -> bool:
        """Whether a producer's epoch, None for any, has an open transaction in a partition of the offsets topic."""
        place = (partition, producer_id)
        return place in self._open and (epoch is None or self._epochs[place] == epoch)

    def check_epoch(self, partition: int, producer_id: int, epoch: int) -> None:
        """Raises `Refused` for an epoch older than the known one."""
        if epoch < self._epochs.get((partition, producer_id), -1):
            raise Refused(errors.InvalidProducerEpochError)

    def put_pending(
        self,
        partition: int,
        producer: tuple[int, int],
        group_id: str,
        key: OffsetKey,
        offset: CommittedOffset,
    ) -> None:
        """Keeps an offset until the transaction of a producer, with its id and epoch, ends."""
        place = (partition, producer[0])
        self._epochs[place] = producer[1]
        txn = self._open.setdefault(place, _OpenTransaction())
        txn.by_group.setdefault(group_id, {})[key] = self._numbered(offset)

    def is_pending(self, group_id: str, key: OffsetKey) -> bool:
        """Whether an open transaction has an offset for this partition."""
        return any(key in txn.by_group.get(group_id, ()) for txn in self._open.values())

    def has_pending(self, group_id: str) -> bool:
        """Whether an open transaction has offsets of a group."""
        return any(group_id in txn.by_group for txn in self._open.values())

    def end(self, partition: int, producer_id: int, epoch: int, committed: bool) -> None:
        """The transaction's marker: commits the pending offsets, or drops them."""
        place = (partition, producer_id)
        self._epochs[place] = epoch
        ended = self._open.pop(place, _OpenTransaction())
        if not committed:
            return
        for group_id, offsets in ended.by_group.items():
            group = self._committed.setdefault(group_id, {})
            for key, offset in offsets.items():
                if key not in group or group[key].number < offset.number:
                    group[key] = offset


def batch_bytes(
    group_id: str, texts: Iterable[tuple[str, str]], release: tuple[int, int], *, topic_ids: bool
) -> int:
    """Returns the bytes of the batch that a commit is in the offsets topic, of a topic and the metadata for each of its partitions, and of the
    topics' ids. (`OffsetCommitKey` 1, `OffsetCommitValue` 3, from Kafka 4.1 on 4. From 4.3 on some ten bytes are counted that are not here.)"""
    size, group = 61, len(group_id.encode())
    for number, (topic, metadata) in enumerate(texts):
        key, text = 10 + group + len(topic.encode()), len(metadata.encode())
        value = 24 + text
        if release >= _FLEXIBLE_VALUES:
            value = 23 + _varint_bytes(text + 1) + text + (18 if topic_ids else 0)
        body = 3 + sum(_varint_bytes(2 * n) for n in (number, key, value)) + key + value
        size += _varint_bytes(2 * body) + body
    return size


def _varint_bytes(number: int) -> int:
    """Returns the bytes of a varint. Numbers of a record are doubled in it (zigzag)."""
    return max(1, (number.bit_length() + 6) // 7)

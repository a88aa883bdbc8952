"""The metadata of committed offsets: an envelope around the user's own text that names the offset's topic and cluster.

Kafka keeps a string of up to `offset.metadata.max.bytes` (4,096) with each committed offset, for its committer. Here it
names the topic by its id (KIP-516), because OffsetCommit names it by its name only: after a topic was deleted and made
anew, whoever reads the offset next knows that it is of the topic before. The cluster's id stands beside it, because tools
copy commits to other clusters, whose topics have other ids (MirrorMaker 2's `sync.group.offsets.enabled`, with metadata).
The envelope is one JSON object, as in `{"kafka-actors":1,"topicId":"3t1Ka2mBQ8uY0Rl6Vn7wDg","clusterId":
"5L6g3nShT-eMCtK--X86sw","metadata":"my note"}`, with ids as Kafka's tools print them. Its
number is that of its form: members that are added leave it as it is, and readers pass over those that they don't know.
`transaction` names the transaction that committed the offset: its producer's id and epoch and the number of its transactions so
far, by which that producer knows its own commit again. `done` has the offsets beyond the committed one whose records are done as well
(`done_offsets`).
Any other text, such as other clients commit, is handed on as it is.

Metadata takes the most room of a commit, which a coordinator writes as one batch: `at_once` says how many offsets fit into one.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from kafka_actors.base import decoders
from kafka_actors.errors import TopicRecreatedError
from kafka_actors.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

__all__ = [
    "COMMIT_BYTES",
    "CommitMetadata",
    "ReaderMetadata",
    "at_once",
    "offsets_read",
    "pack",
    "record_bytes",
    "unpack",
    "with_less_done",
]

FORM = 1
MOST_BYTES = 4_096
"""The default of brokers' `offset.metadata.max.bytes`: a text that doesn't fit with an envelope goes without."""

MOST_DONE = 3_900
"""Longest text of what is done beyond an offset: with an envelope it fits into `MOST_BYTES`."""

COMMIT_BYTES = 512 * 1024
"""Bytes that the offsets of one commit may have in the coordinator's log. It writes them as one batch, which `max.message.bytes` of its
topic bounds: by default at 1 MiB."""

RECORD_BYTES = 128
"""Bytes of a committed offset's record in the coordinator's log, beside the names of its topic and its metadata: some 50, and its group's."""


class CommitMetadata(NamedTuple):
    """The parts of committed metadata: the user's text, the id of the topic (16 bytes) and that of its cluster, None
    where they aren't told; and the text of the offsets that are done beyond the committed one."""

    text: str = ""
    topic_id: bytes | None = None
    cluster_id: str | None = None
    done: str = ""


class _Envelope(msgspec.Struct, omit_defaults=True):
    form: int = msgspec.field(name="kafka-actors")
    topic_id: str = msgspec.field(name="topicId", default="")
    cluster_id: str = msgspec.field(name="clusterId", default="")
    transaction: str = ""
    done: str = ""
    text: str = msgspec.field(name="metadata", default="")


_BEGIN = '{"kafka-actors":'
_encoder = msgspec.json.Encoder()
_decoder = decoders.json(_Envelope)


def pack(
    text: str, topic_id: bytes | None, cluster_id: str | None = None, *, transaction: str = "", done: str = ""
) -> str:
    """Returns the metadata to commit for a user's `text` and an offset of this topic of that cluster, in this transaction, with what
    is `done` beyond it; with none of these the text alone."""
    if topic_id is None and not transaction and not done and not text.startswith(_BEGIN):
        return text
    envelope = _Envelope(FORM, transaction=transaction, done=done, text=text)
    if topic_id is not None:
        envelope.topic_id = base64.urlsafe_b64encode(topic_id).decode().rstrip("=")
        envelope.cluster_id = cluster_id or ""
    packed = _encoder.encode(envelope)
    if len(packed) <= MOST_BYTES:
        return packed.decode()
    return pack(text, topic_id, cluster_id) if transaction or done else text


def unpack(metadata: str | None) -> CommitMetadata:
    """Takes committed metadata apart. Text that is no envelope, or one of a later form, is the user's."""
    foreign = CommitMetadata(metadata or "")
    if metadata is None or not metadata.startswith(_BEGIN):
        return foreign
    try:
        envelope = _decoder.decode(metadata)
        topic_id = (
            base64.b64decode(envelope.topic_id + "==", b"-_", validate=True) if envelope.topic_id else b""
        )
    except (*decoders.UNREADABLE, ValueError, RecursionError):  # the last where it is nested deeply
        return foreign
    if envelope.form != FORM or len(topic_id) not in (0, 16):
        return foreign
    return CommitMetadata(envelope.text, topic_id or None, envelope.cluster_id or None, envelope.done)


def with_less_done(metadata: str, most: int) -> str:
    """Returns metadata without the newest of what is done beyond its offset, so that this has at most so many characters."""
    if len(metadata) <= most or len((own := unpack(metadata)).done) <= most:
        return metadata  # most have nothing to shorten, and needn't be taken apart
    from .done_offsets import shortened  # imports numpy, and most commits have nothing to shorten

    return pack(own.text, own.topic_id, own.cluster_id, done=shortened(own.done, most))


class ReadOffset(NamedTuple):
    """The position of a consumer in a partition: `topic_id` is that of the records it has handed out, `present_id` that of the topic
    which has the name now; None where they aren't known."""

    offset: int
    leader_epoch: int
    topic_id: bytes | None
    present_id: bytes | None
    cluster_id: str | None


class ReaderMetadata(ConsumerGroupMetadata):
    """A consumer's membership, with its positions: a transaction commits offsets of them as the consumer itself would."""

    read: Mapping[TopicPartition, ReadOffset] = {}

    @classmethod
    def of(
        cls, membership: ConsumerGroupMetadata, read: Mapping[TopicPartition, ReadOffset]
    ) -> ReaderMetadata:
        found = cls(*membership)
        found.read = read
        return found


def offsets_read(
    offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Returns offsets to commit for a consumer with the ids of the topics that it read, and the leader's epoch where they are its
    position. Raises `TopicRecreatedError` for one of a topic that was deleted and made anew since."""
    known = group.read if isinstance(group, ReaderMetadata) else {}
    return {tp: _as_read(tp, offset, known.get(tp)) for tp, offset in offsets.items()}


def _as_read(tp: TopicPartition, wanted: OffsetAndMetadata, read: ReadOffset | None) -> OffsetAndMetadata:
    if read is None:
        return wanted
    if read.topic_id is not None and read.present_id not in (None, read.topic_id):
        assert read.present_id is not None
        raise TopicRecreatedError(*tp, wanted.offset, read.topic_id.hex(), read.present_id.hex())
    offset, text, epoch = wanted
    if epoch < 0 and offset == read.offset:
        epoch = read.leader_epoch
    return OffsetAndMetadata(offset, pack(text, read.topic_id, read.cluster_id), epoch)


def record_bytes(tp: TopicPartition, offset: OffsetAndMetadata) -> int:
    """Returns about how many bytes the coordinator's record of an offset has."""
    return RECORD_BYTES + len(tp.topic) + len(offset.metadata.encode())


def at_once(offsets: Mapping[TopicPartition, OffsetAndMetadata], most_bytes: float) -> list[TopicPartition]:
    """Returns the partitions of the first offsets that the coordinator keeps in `most_bytes`, one at least."""
    first: list[TopicPartition] = []
    for tp, offset in offsets.items():
        most_bytes -= record_bytes(tp, offset)
        if first and most_bytes < 0:
            break
        first.append(tp)
    return first

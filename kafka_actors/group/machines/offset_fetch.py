"""Requests and responses of OffsetFetch in the versions since one group, and since several groups at once (KIP-709).

Requests are made in the newest shape; `coordinator_channels` makes an older one where the broker needs it. Responses are read in
either shape, because a broker answers in that of the request. An error is about the group, and then no partition has a value, or
about one partition, which is asked for again or refused.

`require_stable` has a coordinator refuse, as an error to be retried, an offset that an open transaction is
about to move (KIP-447): who begins to read there must wait. Who only asks whether a commit of his own has
landed doesn't set it. A missing offset is -1 in a response and None here, so that it can't be taken for a
position.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kafka_actors.errors import KafkaError, error_for_code
from kafka_actors.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from kafka_actors.types import OffsetAndMetadata, TopicPartition

REQUEST = "OffsetFetch"


@dataclass(slots=True)
class CommittedOffsets:
    """The committed offsets in one answer. `offsets`: None where the group has none. `errors`: partitions that have to be asked again,
    or refused. `error`: about the group as a whole; the rest is empty then."""

    offsets: dict[TopicPartition, OffsetAndMetadata | None] = field(default_factory=dict)
    errors: dict[TopicPartition, KafkaError] = field(default_factory=dict)
    error: KafkaError | None = None


def offset_fetch_request(
    group_id: str, partitions: Iterable[TopicPartition], *, require_stable: bool
) -> OffsetFetchRequest:
    """Returns the request for one group. See `offsets_of_groups_request`."""
    return offsets_of_groups_request({group_id: partitions}, require_stable=require_stable)


def offsets_of_groups_request(
    groups: Mapping[str, Iterable[TopicPartition] | None], *, require_stable: bool
) -> OffsetFetchRequest:
    """Returns the request in its newest shape, for any number of groups of one coordinator (KIP-709).

    groups: the partitions to ask for of each, None for all that the group has committed. require_stable: an offset
    that a transaction is about to move is an error to be retried (KIP-447).
    """
    wanted = [
        OffsetFetchRequestGroup(group_id=group_id, topics=None if partitions is None else _topics(partitions))
        for group_id, partitions in groups.items()
    ]
    return OffsetFetchRequest(groups=wanted, require_stable=require_stable)


def _topics(partitions: Iterable[TopicPartition]) -> list[OffsetFetchRequestTopics]:
    topics: dict[str, list[int]] = {}
    for tp in sorted(partitions):
        topics.setdefault(tp.topic, []).append(tp.partition)
    return [OffsetFetchRequestTopics(name=name, partition_indexes=ids) for name, ids in topics.items()]


def read_offset_fetch(response: OffsetFetchResponse, group_id: str) -> CommittedOffsets:
    """Reads a response of any version to a request for one group."""
    return _read(response.groups[0] if response.groups else response, group_id)


def read_offsets_of_groups(response: OffsetFetchResponse) -> dict[str, CommittedOffsets]:
    """Reads a response of version 8 or later, by group."""
    return {group.group_id: _read(group, group.group_id) for group in response.groups}


def _read(answer: OffsetFetchResponse | OffsetFetchResponseGroup, group_id: str) -> CommittedOffsets:
    """Reads one group's part, or a response of the older shape, which has the same fields. A broker says -1 for no offset."""
    result = CommittedOffsets(error=error_for_code(answer.error_code, request=REQUEST, group=group_id))
    if result.error is not None:
        return result
    for topic in answer.topics:
        for p in topic.partitions:
            tp = TopicPartition(topic.name, p.partition_index)
            error = error_for_code(p.error_code, request=REQUEST, topic=tp.topic, partition=tp.partition)
            if error is not None:
                result.errors[tp] = error
            elif p.committed_offset < 0:
                result.offsets[tp] = None
            else:
                result.offsets[tp] = OffsetAndMetadata(
                    p.committed_offset, p.metadata or "", p.committed_leader_epoch
                )
    return result

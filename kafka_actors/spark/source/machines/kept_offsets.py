"""What Spark's own form of a stream's offsets leaves out, out of the offsets that were kept beside the checkpoint."""

from __future__ import annotations

from collections.abc import Iterable

from .stream_offsets import StreamOffsets


def restored(given: StreamOffsets, newest_first: Iterable[StreamOffsets]) -> StreamOffsets:
    """Offsets that Spark gave, with the ids of their topics. `newest_first`: the kept ones.

    Offsets that were kept are what they were. All others are of Spark's own source, which had the query in between: their
    topics may have been made anew since the newest kept ones, so they have the ids of these. Whoever finds another id
    now can't tell which of the two topics the offsets belong to, and says that the topic was recreated.
    """
    newest: StreamOffsets | None = None
    for kept in newest_first:
        if kept.by_partition == given.by_partition:
            return kept
        newest = newest or kept
    if newest is None:
        return given
    topics = {tp.topic for tp in given.by_partition}
    ids = {topic: topic_id for topic, topic_id in newest.topic_ids.items() if topic in topics}
    return StreamOffsets(given.by_partition, ids)

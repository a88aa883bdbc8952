"""How far a query is, as its checkpoint says: the offsets of the last batch that is finished."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from kafka_actors.errors import HandoverError
from kafka_actors.spark.source.machines.stream_offsets import StreamOffsets
from kafka_actors.types import TopicPartition

from .checkpoint_files import CheckpointFiles

_FORMAT = "v1"


def finished_offsets(
    files: CheckpointFiles, topics: Collection[str]
) -> list[dict[TopicPartition, int]] | None:
    """Where the last finished batch ended, of each source that reads these topics (a union with itself has two).

    None where no batch is finished. Raises `HandoverError` for a checkpoint of another form.
    """
    batches = [int(name) for name in files.names("commits") if name.isdecimal()]
    if not batches:
        return None
    batch = max(batches)
    text = files.read(f"offsets/{batch}")
    if text is None:
        raise HandoverError(f"the checkpoint {files!r} is not whole: commits/{batch} has no offsets/{batch}")
    form, _, *sources = text.splitlines()
    if form != _FORMAT:
        raise HandoverError(f"the offsets in the checkpoint {files!r} have format {form}: known is {_FORMAT}")
    found = [json.loads(source) for source in sources if source.startswith("{")]
    return [StreamOffsets.from_json(one).by_partition for one in found if _reads(one, topics)]


def _reads(offsets: dict[str, Any], topics: Collection[str]) -> bool:
    return not offsets.keys().isdisjoint(topics)

"""Two batches of one that a broker found too large (KIP-126)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from kafka_actors.records import decode
from kafka_actors.records.batch import ATTRIBUTES_AT, CODEC_MASK, HEADER_SIZE, MAX_BINARY
from kafka_actors.records.columns import row_columns
from kafka_actors.records.compression import CODECS
from kafka_actors.records.encode import Codec, compress
from kafka_actors.records.kernel import ACTIVE

from .machines.batch import ProducerBatch

_NO_TIMESTAMP = -1
_NAMES: dict[int, Codec] = {CODECS[name]: name for name in get_args(Codec)}


def split(batch: ProducerBatch) -> Sequence[ProducerBatch]:
    """The records of a batch in two halves, compressed as they were; the halves' ticket is the batch's."""
    sealed = batch.content.seal(-1, -1, -1)
    codec = _NAMES[sealed[ATTRIBUTES_AT + 1] & CODEC_MASK]
    rows = decode(sealed, topic=batch.partition.topic, partition=batch.partition.partition)
    middle = rows.num_rows // 2
    parts = []
    for lo, hi in ((0, middle), (middle, rows.num_rows)):
        writer = ACTIVE.writer(HEADER_SIZE + batch.size // 2)
        columns = row_columns(rows.slice(lo, hi - lo), _NO_TIMESTAMP)
        writer.append(ACTIVE.rows(columns, _NO_TIMESTAMP), None, 0, hi - lo, MAX_BINARY)
        if codec != "none":
            writer.pack(compress(codec, writer.body()), CODECS[codec])
        part = ProducerBatch(batch.partition, writer, batch.created, batch.ticket, batch.first + lo)
        part.split_off = batch.total
        part.charge = batch.charge // 2 if lo else batch.charge - batch.charge // 2
        part.ready = True
        part.attempts = batch.attempts
        part.last_error = batch.last_error
        parts.append(part)
    return parts

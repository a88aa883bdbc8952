"""Record batches: bytes of fetch responses to Arrow and back.

`Decoder` reads one partition of one fetch response in bounded chunks, `decode` a whole buffer, `encode` writes a
batch, `next_offset` tells where a response ends by its headers alone. `SCHEMA` is what all batches look like.
"""

from kafka_actors.batches import SCHEMA
from kafka_actors.records.decoder import Chunk, Decoder, Limits, decode
from kafka_actors.records.encode import encode
from kafka_actors.records.kernel import ACTIVE as _ACTIVE
from kafka_actors.records.kernel import KERNEL

next_offset = _ACTIVE.next_offset
"""`next_offset(data) -> int | None`: the offset behind the last complete batch of `data`, by headers alone, without
decoding; None where there is no complete batch."""

__all__ = ["KERNEL", "SCHEMA", "Chunk", "Decoder", "Limits", "decode", "encode", "next_offset"]

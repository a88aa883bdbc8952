"""Record batches: bytes of fetch responses to Arrow and back.

`Decoder` reads one partition of one fetch response in bounded chunks, `decode` a whole buffer, `encode` writes a
batch, `next_offset` finds the end of a response by its headers alone. `SCHEMA` has the columns of all batches.
"""

from kafka_actors.base.batches import SCHEMA

from .decoder import Chunk, Decoder, Limits, decode
from .encode import encode
from .kernel import ACTIVE as _ACTIVE
from .kernel import KERNEL

next_offset = _ACTIVE.next_offset
"""`next_offset(data) -> int | None`: the offset behind the last complete batch of `data`, by headers alone, without
decoding; None where there is no complete batch."""

__all__ = ["KERNEL", "SCHEMA", "Chunk", "Decoder", "Limits", "decode", "encode", "next_offset"]

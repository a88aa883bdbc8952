"""Schemas: from encoded values straight to Arrow's columns, and back.

    registry = ka.SchemaRegistry("https://registry:8081", basic_auth="${env:SR_KEY}:${env:SR_SECRET}")
    decoder = ka.schemas.AvroDecoder(registry.schema_of("orders-value").text, registry=registry)
    rows = decoder(batch.column("value"))       # a StructArray

Values are decoded by compiled code, batch by batch, without a Python object for each; a pipeline's `.decode(registry)` uses the same.
"""

from __future__ import annotations

from .avro_decoder import AvroDecoder
from .avro_encoder import AvroEncoder
from .errors import (
    DeserializationError,
    SchemaNotFoundError,
    SchemaRegistryError,
    SchemaRegistryUnavailableError,
    SerializationError,
)
from .framing import framed
from .protobuf_decoder import ProtobufDecoder
from .protobuf_encoder import ProtobufEncoder
from .registry import Reference, Schema

__all__ = [
    "AvroDecoder",
    "AvroEncoder",
    "DeserializationError",
    "ProtobufDecoder",
    "ProtobufEncoder",
    "Reference",
    "Schema",
    "SchemaNotFoundError",
    "SchemaRegistryError",
    "SchemaRegistryUnavailableError",
    "SerializationError",
    "framed",
]

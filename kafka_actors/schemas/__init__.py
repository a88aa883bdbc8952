"""Schemas: from encoded values straight to Arrow's columns, and back.

    registry = ka.SchemaRegistry("https://registry:8081", basic_auth="${env:SR_KEY}:${env:SR_SECRET}")
    decoder = ka.schemas.AvroDecoder(registry, subject="orders-value")
    rows = decoder(batch.column("value"))       # a StructArray

Values are decoded by compiled code, batch by batch, without a Python object for each; a pipeline's `.decode(registry)` uses the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_actors.lazy import lazily

if TYPE_CHECKING:
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

# Loaded when first used: actors exchange schemas, and decode nothing.
_HOMES = {
    "AvroDecoder": "avro_decoder",
    "AvroEncoder": "avro_encoder",
    "DeserializationError": "errors",
    "ProtobufDecoder": "protobuf_decoder",
    "ProtobufEncoder": "protobuf_encoder",
    "Reference": "registry",
    "Schema": "registry",
    "SchemaNotFoundError": "errors",
    "SchemaRegistryError": "errors",
    "SchemaRegistryUnavailableError": "errors",
    "SerializationError": "errors",
    "framed": "framing",
}

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

__getattr__ = lazily(__name__, _HOMES)


def __dir__() -> list[str]:
    return __all__

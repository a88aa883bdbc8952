"""Protobuf schemas that tests compile once, and values of a message with one field."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import pyarrow as pa

from kafka_actors.schemas import ProtobufEncoder, _reference_protobuf_encoder, kernels
from kafka_actors.schemas.protobuf_schema import compiled
from kafka_actors.schemas.results import EncodedValues

MACHINES = [kernels.protobuf_writer_kernel()[1], _reference_protobuf_encoder.ReferenceProtobufWriterMachine]


@cache
def _compiled(text: str, references: tuple[tuple[str, str], ...]) -> bytes:
    return compiled(text, dict(references))


def compiled_once(text: str, references: Mapping[str, str] | None = None) -> bytes:
    """The descriptors of a text, for which protoc runs once."""
    return _compiled(text, tuple((references or {}).items()))


def written_by(machine: Any, monkeypatch: Any) -> None:
    """Makes encoders use this machine."""
    monkeypatch.setattr("kafka_actors.schemas.protobuf_encoder.compiled", compiled_once)
    monkeypatch.setattr("kafka_actors.schemas.protobuf_encoder.protobuf_writer_kernel", lambda: ("", machine))


def written_field(
    kind: str, column: Any, presence: str = "", syntax: str = "proto3", more: str = ""
) -> EncodedValues:
    """Values of a message whose field 1, `a`, is of this type and has this column."""
    text = f'syntax = "{syntax}"; package t; {more} message A {{ {presence} {kind} a = 1; }}'
    return ProtobufEncoder(text, message="t.A").encode(pa.record_batch({"a": column}))

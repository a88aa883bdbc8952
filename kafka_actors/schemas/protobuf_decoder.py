"""Decoder of Protobuf values into the columns of one message."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from copy import copy
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from kafka_actors.errors import ConfigError

from .errors import SchemaNotFoundError
from .framing import NO_FRAME, Part, Rows, frame_bytes, frames, joined
from .kernels import protobuf_kernel
from .protobuf_plan import Plan, ProtobufMachine, plan
from .protobuf_schema import Files, compiled, proto_text
from .registry import Registry, Schema, SchemaKey, named_schema, schema_at
from .results import Array, DecodedRows, decoded_struct

FIRST = (0,)
"""Message indexes of a file's first message, which are written as one zero byte."""
MOST_INDEXES = 100


class ProtobufDecoder:
    """Decodes Protobuf values into the columns of a message.

    `schema` is a `.proto` file's path, or its text; `references` are the texts that it imports, by name. `message` is a full name, such as
    `shop.Order`, which may be left out where the file has one message. `enums`: "name" makes text columns, in which a number without a name is
    that number; "number" makes numbers.

    With a `registry` values are framed: an id, and the indexes of the message in that schema's file, which has to be one of the same name.
    Without one they have no frame. `schema_id` is this schema's own id there; `known` are schemas by id or GUID that needn't be asked for.
    `on_new_schema="fail"` makes values by any other one fail. `subject` is for errors.
    """

    of_records = True

    def __init__(
        self,
        schema: str | Path,
        *,
        message: str | None = None,
        references: Mapping[str, str] | None = None,
        registry: Registry | None = None,
        subject: str | None = None,
        enums: Literal["name", "number"] = "name",
        schema_id: int | None = None,
        known: Mapping[SchemaKey, Schema] | None = None,
        on_new_schema: Literal["keep", "fail"] = "keep",
    ) -> None:
        if enums not in ("name", "number"):
            raise ConfigError("enums", f"is {enums!r}: accepts 'name' or 'number'")
        if registry is None and on_new_schema == "fail":
            raise ConfigError("on_new_schema", "is for values whose schemas a registry has: give registry=")
        descriptors = compiled(proto_text(schema), references)
        self._enums = enums
        self._descriptors = descriptors
        self._name: str = Files(descriptors).message(message).full_name
        self._registry = registry
        self._subject = subject
        self._on_new_schema = on_new_schema
        self._names: dict[tuple[SchemaKey, tuple[int, ...]], str] = {}
        self._known = dict(known or {})
        self._writers: dict[SchemaKey, bytes | str] = {} if schema_id is None else {schema_id: descriptors}
        self._prepare()

    def _prepare(self) -> None:
        self._lock = threading.Lock()
        self._files: dict[SchemaKey, Files] = {}
        self._plan: Plan = plan(Files(self._descriptors).message(self._name), self._descriptors, self._enums)
        self._machine: ProtobufMachine = protobuf_kernel()[1](self._plan)
        self.schema: pa.Schema = self._plan.schema

    def __getstate__(self) -> dict[str, Any]:
        made = ("_lock", "_files", "_plan", "_machine", "schema")
        return {name: value for name, value in vars(self).items() if name not in made}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._prepare()

    def __repr__(self) -> str:
        return f"<ProtobufDecoder {self._name}>"

    @property
    def framed(self) -> bool:
        """Whether values have the frame of a registry's serializer."""
        return self._registry is not None

    @property
    def fails_again(self) -> bool:
        """Whether a value that fails does so each time it is decoded; not where its schema may be in the registry by then."""
        return self._registry is None or self._on_new_schema == "fail"

    def __call__(self, values: Array) -> Array:
        """The values as a StructArray, null where the value is. Raises `DeserializationError` for the first one that can't be decoded."""
        return decoded_struct(self, values)

    def decode(self, values: Array) -> DecodedRows:
        """Decodes a binary array. Raises `SchemaRegistryError` where the registry can't be asked for a schema."""
        found = frames(values, self.framed)
        return joined(self.schema, found, lambda key, rows: self._decoded(values, key, rows))

    def _decoded(self, values: Array, key: SchemaKey, rows: Rows) -> Part:
        if key == NO_FRAME:
            return self._run(values, rows, np.zeros(len(rows), np.int32), "")
        skipped, failures = self._after_indexes(values, key, rows)
        if failures:
            good = np.isin(rows, [row for row, _ in failures], invert=True)
            rows, skipped = rows[good], skipped[good]
        batch, more = self._run(values, rows, skipped, f"schema {key}: ")
        return batch, sorted([*failures, *more])

    def _run(self, values: Array, rows: Rows, skipped: Rows, what: str) -> Part:
        batch, failed = self._machine.run(values, rows, skipped)
        return batch, [(int(rows[at]), what + self._plan.reason(code, field)) for at, code, field in failed]

    # ------------------------------------------------------------ which message a value is

    def _after_indexes(self, values: Array, key: SchemaKey, rows: Rows) -> tuple[Rows, list[tuple[int, str]]]:
        """For each value the number of bytes before the message itself; and those that are another message."""
        _, offsets, data = values.buffers()
        starts = np.frombuffer(offsets, np.int32, len(values) + 1, 4 * values.offset)[:-1][rows]
        ends = np.frombuffer(offsets, np.int32, len(values) + 1, 4 * values.offset)[1:][rows]
        octets = np.frombuffer(data, np.uint8)
        frame = frame_bytes(key)
        plain = ends - starts > frame
        plain[plain] = octets[starts[plain] + frame] == 0
        skipped = np.full(len(rows), frame + 1, dtype=np.int32)
        failures: list[tuple[int, str]] = []
        if plain.any() and (reason := self._refusal(key, FIRST)):
            failures += [(int(row), reason) for row in rows[plain]]
        for at in np.flatnonzero(~plain):
            value = bytes(octets[starts[at] : ends[at]])
            indexes, size = _indexes(value, frame)
            reason = (
                "the value ends within its message indexes"
                if indexes is None
                else self._refusal(key, indexes)
            )
            skipped[at] = size
            if reason:
                failures.append((int(rows[at]), reason))
        return skipped, failures

    def _refusal(self, key: SchemaKey, indexes: tuple[int, ...]) -> str:
        """Why values of this message of this schema can't be decoded; empty where they can."""
        found = self._names.get((key, indexes))
        if found is None:
            found, keeps = self._name_of(key, indexes)
            if keeps:
                with self._lock:
                    self._names[key, indexes] = found
        if found == self._name:
            return ""
        return found if found.startswith("schema ") else f"the value is {found}, not {self._name}"

    def _name_of(self, key: SchemaKey, indexes: tuple[int, ...]) -> tuple[str, bool]:
        """The name of a message in a writer's schema, or a reason that begins with "schema"; and whether that is kept: broken values have any
        ids and indexes."""
        what = named_schema(key, self._known, self._subject)
        writer = self._writers.get(key)
        if writer is None:
            if key not in self._known and self._on_new_schema == "fail":
                reason = "wasn't known when the pipeline was made ready, and on_new_schema is 'fail'"
                return f"{what} {reason}", False
            try:
                writer = self._writers[key] = self._writer(key, what)
            except SchemaNotFoundError as error:  # perhaps it is only not there yet
                return f"{what}: {error}", False
        if isinstance(writer, str):
            return writer, False
        if key not in self._files:
            self._files[key] = Files(writer)
        message = self._files[key].message_at(indexes)
        if message is None:
            return f"{what} has no message {list(indexes)}", False
        return str(message.full_name), True

    def _writer(self, key: SchemaKey, what: str) -> bytes | str:
        """The descriptors of a writer's schema, or why no value by it can be read. Raises as the registry."""
        assert self._registry is not None
        schema = self._known.get(key) or schema_at(self._registry, key)
        if schema.type != "PROTOBUF":
            return f"{what} is of type {schema.type}, not PROTOBUF"
        try:
            return compiled(schema.text, self._registry.references_of(schema))
        except ConfigError as error:
            return f"{what} can't be read: {error.message}"

    def read_by(self, schema: Schema, references: Mapping[str, str]) -> ProtobufDecoder:
        """A decoder of the same message by another reader's schema. Raises `ConfigError` where that doesn't have it."""
        made = copy(self)
        made._descriptors = compiled(schema.text, references)
        made._writers = {schema.id: made._descriptors}
        made._names = {}
        made._prepare()
        return made

    def knowing(self, known: Mapping[SchemaKey, Schema]) -> ProtobufDecoder:
        """A decoder of the same values that knows more writers' schemas beforehand."""
        made = copy(self)
        made._known = {**self._known, **known}
        return made

    def refusal(self, schema: Schema) -> str:
        """Why no value by a writer's schema can be decoded; empty where there is no such reason."""
        if schema.type != "PROTOBUF":
            return f"it is of type {schema.type}, not PROTOBUF"
        references = {} if self._registry is None else self._registry.references_of(schema)
        try:
            Files(compiled(schema.text, references)).message(self._name)
        except ConfigError as error:
            return f"{error.option}: {error.message}"
        return ""


def _indexes(value: bytes, at: int) -> tuple[tuple[int, ...] | None, int]:
    """The message indexes behind a frame that ends at `at`, zigzag numbers with their count before them, and the bytes up to their end."""
    found: list[int] = []
    count = None
    while count is None or len(found) < count:
        number, at = _zigzag(value, at)
        if number is None or (count is None and not 0 <= number <= MOST_INDEXES):
            return None, len(value)
        if count is None:
            count = number
        else:
            found.append(number)
    return tuple(found) or FIRST, at


def _zigzag(value: bytes, at: int) -> tuple[int | None, int]:
    number = shift = 0
    while at < len(value) and shift < 35:
        number |= (value[at] & 0x7F) << shift
        at += 1
        if value[at - 1] < 0x80:
            return (number >> 1) ^ -(number & 1), at
        shift += 7
    return None, at

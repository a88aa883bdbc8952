"""Protobuf schemas: `.proto` texts compiled to descriptors, and messages as Arrow's columns.

Texts are compiled by protoc itself, which `grpcio-tools` brings in its wheels: no parser of our own has to follow the language. It is needed only
where a schema is a text; what travels to workers are descriptors, for which `protobuf` is enough.
"""

from __future__ import annotations

import base64
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from kafka_actors.base.paths import schema_text
from kafka_actors.errors import ConfigError, kind_of

from .framing import varint

MAIN = "kafka_actors_schema.proto"
"""Name of the file that a text without a name is compiled as."""
_HINT = "pip install 'kafka-actors[protobuf]'"


def proto_text(schema: Any) -> str:
    """The text of a schema that is a path, or a text already."""
    schema = schema_text(schema, ".proto")
    if not isinstance(schema, str):
        raise ConfigError("schema", f"is {kind_of(schema)}: accepts a .proto file's path, or its text")
    return schema


def imports_others(text: str) -> bool:
    """Whether a text imports files other than Protobuf's own."""
    return any(not name.startswith("google/protobuf/") for name in _IMPORT.findall(text))


_IMPORT = re.compile(r'(?:^|;)\s*import\s+(?:public\s+|weak\s+)?["\']([^"\']+)["\']', re.MULTILINE)


def compiled(text: str, references: Mapping[str, str] | None = None) -> bytes:
    """Compiles a `.proto` text to a serialized FileDescriptorSet with all that it imports: `references` are texts by the names by which they
    are imported. A text may also be a FileDescriptorProto in base64, as confluent-kafka's serializer registers its schemas. Raises
    `ConfigError` with protoc's words."""
    serialized = _serialized(text)
    if serialized is None:
        return _by_protoc(text, references or {})
    return _with_imports(serialized, references or {})


def _serialized(text: str) -> bytes | None:
    """The bytes of a FileDescriptorProto in base64; None for any other text."""
    try:
        found = base64.b64decode(text, validate=True)
    except ValueError:
        return None
    return found or None


def _with_imports(serialized: bytes, references: Mapping[str, str]) -> bytes:
    """A FileDescriptorSet of a file and of all that it imports."""
    from google.protobuf import descriptor_pb2
    from google.protobuf.message import DecodeError

    made = descriptor_pb2.FileDescriptorSet()
    try:
        file = descriptor_pb2.FileDescriptorProto.FromString(serialized)
    except DecodeError:
        raise ConfigError("schema", "is base64, and no FileDescriptorProto") from None
    for name in file.dependency:
        if name in references:
            found = compiled(references[name], references)
        else:  # one of protobuf's own
            found = _by_protoc(f'syntax = "proto3"; import "{name}";', {})
        others = descriptor_pb2.FileDescriptorSet.FromString(found).file
        known = {one.name for one in made.file}
        for other in others:
            other.name = name if name in references and other is others[-1] else other.name
            if other.name not in known and other.name != MAIN:
                made.file.append(other)
    made.file.append(file)
    return bytes(made.SerializeToString())


def _by_protoc(text: str, references: Mapping[str, str]) -> bytes:
    try:
        from grpc_tools import protoc
    except ModuleNotFoundError:
        raise ConfigError("schema", f"is a text, which protoc compiles: {_HINT}") from None
    well_known = Path(protoc.__file__).parent / "_proto"
    with tempfile.TemporaryDirectory() as folder:
        for name, other in {**references, MAIN: text}.items():
            file = Path(folder, name)
            if not file.resolve().is_relative_to(Path(folder).resolve()):
                raise ConfigError("references", f"{name!r} is no name of an imported file")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(other, encoding="utf-8")
        out = Path(folder, "descriptors")
        arguments = [
            "protoc",
            f"-I{folder}",
            f"-I{well_known}",
            "--include_imports",
            f"--descriptor_set_out={out}",
            MAIN,
        ]
        problem = _run(protoc, arguments)
        if problem is not None:
            raise ConfigError("schema", f"is no Protobuf schema: {problem}")
        return out.read_bytes()


def _run(protoc: Any, arguments: list[str]) -> str | None:
    """Protoc's complaint, None where there is none. It runs in a process of its own: it writes to the descriptor of stderr. Raises `OSError`
    where that is killed, which says nothing of the schema."""
    done = subprocess.run(
        [sys.executable, "-m", protoc.__name__, *arguments[1:]], capture_output=True, text=True, check=False
    )
    if done.returncode == 0:
        return None
    if done.returncode < 0:
        raise OSError(f"protoc was ended by signal {-done.returncode}")
    lines = [line for line in done.stderr.splitlines() if not _NOISE.search(line)]
    return (
        " ".join(_PLACE.sub("line ", line) for line in lines).strip()
        or f"protoc ended with {done.returncode}"
    )


_NOISE = re.compile(r"warning: |^WARNING: |^[WIE]\d{4} ")
_PLACE = re.compile(rf"^.*{re.escape(MAIN)}:")


class Files:
    """Descriptors of one file and of all that it imports."""

    def __init__(self, descriptors: bytes) -> None:
        try:
            from google.protobuf import descriptor_pb2, descriptor_pool
        except ModuleNotFoundError:
            raise ConfigError("schema", f"is Protobuf: {_HINT}") from None
        found = descriptor_pb2.FileDescriptorSet.FromString(descriptors)
        self.pool = descriptor_pool.DescriptorPool()
        for file in found.file:
            self.pool.Add(file)
        self._main = self.pool.FindFileByName(found.file[-1].name)

    def message(self, name: str | None) -> Any:
        """The descriptor of a message by its full name; without one, the file's only message. Raises `ConfigError`."""
        there = list(self._main.message_types_by_name.values())
        if name is None:
            if len(there) != 1:
                names = ", ".join(sorted(one.full_name for one in there)) or "none"
                raise ConfigError("message", f"is missing, and the schema has several: {names}")
            return there[0]
        try:
            return self.pool.FindMessageTypeByName(name)
        except KeyError:
            names = ", ".join(sorted(one.full_name for one in there)) or "none"
            raise ConfigError("message", f"is {name!r}: the schema has {names}") from None

    def message_at(self, indexes: tuple[int, ...]) -> Any | None:
        """The descriptor that a value's message indexes name: of the file, then each time of the message before."""
        inside, found = self._top(), None
        for index in indexes:
            if not 0 <= index < len(inside):
                return None
            found = inside[index]
            # Entries of maps are no messages in a text, which is what the serializers count in.
            inside = [one for one in found.nested_types if not one.GetOptions().map_entry]
        return found

    def indexes(self, message: Any) -> bytes:
        """The message indexes of a message of the file, as values have them behind their frame. Raises `ConfigError` for one of another file."""
        found: list[int] = []
        while message.containing_type is not None:
            above = message.containing_type
            inside = [one for one in above.nested_types if not one.GetOptions().map_entry]
            found.insert(0, next(at for at, one in enumerate(inside) if one.full_name == message.full_name))
            message = above
        names = [one.full_name for one in self._top()]
        if message.full_name not in names:
            raise ConfigError(
                "message",
                f"is of an imported file: values name messages of the schema itself, {', '.join(names)}",
            )
        found.insert(0, names.index(message.full_name))
        return b"\0" if found == [0] else b"".join(varint(2 * one) for one in (len(found), *found))

    def _top(self) -> list[Any]:
        from google.protobuf import descriptor_pb2

        proto = descriptor_pb2.FileDescriptorProto()
        self._main.CopyToProto(proto)
        return [self._main.message_types_by_name[one.name] for one in proto.message_type]


# ---------------------------------------------------------------- Arrow

WRAPPERS = {
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
}
TIMESTAMP, DURATION = "google.protobuf.Timestamp", "google.protobuf.Duration"
# In the order of the kernel's JSON_STRUCT, JSON_VALUE and JSON_LIST.
DYNAMIC = tuple(f"google.protobuf.{name}" for name in ("Struct", "Value", "ListValue"))

_ARROW: dict[str, Any] = {
    "int32": pa.int32(),
    "int64": pa.int64(),
    "uint32": pa.int64(),  # Spark has no unsigned numbers
    "uint64": pa.decimal128(20, 0),
    "float": pa.float32(),
    "double": pa.float64(),
    "bool": pa.bool_(),
    "string": pa.string(),
    "bytes": pa.binary(),
}
_KINDS = {
    1: "double", 2: "float", 3: "int64", 4: "uint64", 5: "int32", 6: "uint64", 7: "uint32", 8: "bool", 9: "string", 12: "bytes",
    13: "uint32", 14: "int32", 15: "int32", 16: "int64", 17: "int32", 18: "int64",
}  # fmt: skip
"""Kind of value by a field's type: numbers on the wire in several forms are of one kind."""
MESSAGES = (10, 11)
"""Types of fields that are messages: a group, and a message with its length."""


def kind_of_field(field: Any) -> str:
    return _KINDS[field.type]


def is_map(field: Any) -> bool:
    return bool(field.message_type is not None and field.message_type.GetOptions().map_entry)


def is_repeated(field: Any) -> bool:
    return bool(field.is_repeated)


def is_proto2(file: Any) -> bool:
    """Whether a file is in proto2, whose runtimes take texts that are not UTF-8."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    described = FileDescriptorProto()
    file.CopyToProto(described)
    return described.syntax in ("", "proto2")


def arrow_schema(message: Any, enums: str) -> pa.Schema:
    """The columns of a message. `enums`: "name" or "number". Raises `ConfigError`, naming the field, for what no column can hold."""
    return pa.schema(_fields(message, enums, ()))


def _fields(message: Any, enums: str, above: tuple[str, ...]) -> list[Any]:
    if message.full_name in above:
        raise ConfigError("message", f"{message.full_name} holds itself: no Arrow column can")
    inside = (*above, message.full_name)
    return [_field(field, enums, inside) for field in message.fields]


def _field(field: Any, enums: str, above: tuple[str, ...]) -> Any:
    if is_map(field):
        key, value = field.message_type.fields_by_name["key"], field.message_type.fields_by_name["value"]
        item = pa.field("value", _type(value, enums, above), nullable=False)
        return pa.field(field.name, pa.map_(_type(key, enums, above), item), nullable=False)
    made = _type(field, enums, above)
    if is_repeated(field):
        return pa.field(field.name, pa.list_(pa.field("element", made, nullable=False)), nullable=False)
    return pa.field(field.name, made, nullable=is_nullable(field))


def is_nullable(field: Any) -> bool:
    """Whether a singular field may be absent: where presence is tracked, and it isn't required."""
    return bool(field.has_presence) and not field.is_required


def _type(field: Any, enums: str, above: tuple[str, ...]) -> Any:
    if field.type in MESSAGES:
        message = field.message_type
        if message.full_name == TIMESTAMP:
            return pa.timestamp("us", tz="UTC")
        if message.full_name == DURATION:
            return pa.duration("us")
        if message.full_name in WRAPPERS:
            return _ARROW[kind_of_field(message.fields_by_number[1])]
        if message.full_name in DYNAMIC:
            return pa.string()  # JSON
        fields = _fields(message, enums, above)
        return pa.struct(fields)
    if field.enum_type is not None and enums == "name":
        return pa.string()
    return _ARROW[kind_of_field(field)]

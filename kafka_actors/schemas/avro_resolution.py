"""Schema resolution: how values of a writer's schema are read as those of a reader's.

Rules are those of the Avro 1.12 specification ("Schema Resolution"). What can never be read raises `ConfigError` with its path when the program
is made; what depends on the value, such as a branch of the writer's union that the reader lacks, fails for the values that have it. Two
logical types that give the same number another meaning, as timestamps in milliseconds and in microseconds do, are refused: the specification
would read one for the other.
"""

from __future__ import annotations

from msgspec import UNSET

from kafka_actors.errors import ConfigError

from .avro_default import encoded_default
from .avro_program import Op, Program, Step, Store, count_columns, flat
from .avro_schema import (
    Array,
    AvroRecord,
    AvroType,
    Enum,
    Field,
    Fixed,
    Map,
    Primitive,
    Union,
    arrow_schema,
    is_null,
    members_of,
    name_of,
)

ROOT = 0


def program(writer: AvroType, reader: AvroType) -> Program:
    """The program that reads a writer's values as the reader's. A value that isn't a record is the one column `value`. Raises
    `ConfigError`, naming the path."""
    schema = arrow_schema(reader)
    resolver = Resolver()
    try:
        if isinstance(reader, AvroRecord):
            root = resolver.step(writer, reader, ROOT, "")
        else:
            only = resolver.step(writer, reader, ROOT + 1, "")
            root = Step(Op.RECORD, ROOT, children=[only])
    except _Mismatch as mismatch:
        raise ConfigError(mismatch.option, mismatch.message) from None
    return flat(schema, root)


class _Mismatch(ConfigError):
    """A writer's type that can't be read as the reader's: another branch of a union may be. Outside of this module it is a `ConfigError`."""


def _mismatch(path: str, writer: AvroType, reader: AvroType) -> _Mismatch:
    where = f"{path}: " if path else ""
    return _Mismatch("schema", f"{where}writer {described(writer)}, reader {described(reader)}")


def described(kind: AvroType) -> str:
    """A type in a few words: `long (timestamp-millis)`, `union of null, string`."""
    if isinstance(kind, Union):
        return f"union of {', '.join(map(name_of, kind.branches))}"
    logical = getattr(kind, "logical", None)
    sizes = f"({logical.precision}, {logical.scale})" if logical is not None and logical.precision else ""
    more = f" ({logical.name}{sizes})" if logical is not None else ""
    return f"{name_of(kind)}{more}"


class Resolver:
    """Makes the steps. A skipped type has one step however often it occurs, so types that hold themselves can be skipped."""

    def __init__(self) -> None:
        self._skips: dict[int, Step] = {}

    def step(self, writer: AvroType, reader: AvroType, column: int, path: str) -> Step:
        """The step that reads one value of the writer's type into the reader's column."""
        if isinstance(writer, Union):
            return self._of_union(writer, reader, column, path)
        if isinstance(reader, Union):
            return self._into_union(writer, reader, column, path)
        if isinstance(writer, AvroRecord) and isinstance(reader, AvroRecord):
            return self._record(writer, reader, column, path)
        if isinstance(writer, Array) and isinstance(reader, Array):
            return Step(
                Op.ARRAY,
                column,
                children=[self.step(writer.items, reader.items, column + 1, f"{path}[]")],
                path=path,
            )
        if isinstance(writer, Map) and isinstance(reader, Map):
            key = Step(Op.BYTES, column + 1, Store.TEXT, path=path)
            value = self.step(writer.values, reader.values, column + 2, f"{path}{{}}")
            return Step(Op.MAP, column, children=[key, value], path=path)
        if isinstance(writer, Enum) and isinstance(reader, Enum):
            return _enum(writer, reader, column, path)
        if isinstance(writer, Fixed) and isinstance(reader, Fixed):
            return _fixed(writer, reader, column, path)
        if isinstance(writer, Primitive) and isinstance(reader, Primitive):
            return _primitive(writer, reader, column, path)
        raise _mismatch(path, writer, reader)

    # ------------------------------------------------------------ unions

    def _of_union(self, writer: Union, reader: AvroType, column: int, path: str) -> Step:
        children: list[Step] = []
        failed: list[_Mismatch] = []
        for branch in writer.branches:
            try:
                children.append(self.step(branch, reader, column, path))
            except _Mismatch as mismatch:
                failed.append(mismatch)
                children.append(
                    Step(
                        Op.FAIL,
                        path=path,
                        reason=f"the value is {described(branch)}, reader {described(reader)}",
                    )
                )
        if len(failed) == len(children):
            raise failed[0]
        return Step(Op.UNION, column, children=children, path=path)

    def _into_union(self, writer: AvroType, reader: Union, column: int, path: str) -> Step:
        for branch in _candidates(writer, reader):
            try:
                return self._into_branch(writer, reader, branch, column, path)
            except _Mismatch:
                continue
        raise _mismatch(path, writer, reader)

    def _into_branch(self, writer: AvroType, reader: Union, branch: AvroType, column: int, path: str) -> Step:
        members = members_of(reader)
        if is_null(branch) != is_null(writer):
            raise _mismatch(path, writer, reader)
        if is_null(branch):
            return Step(Op.NULL, column, path=path)
        if len(members) == 1:
            both = (
                members[0] if isinstance(members[0], Primitive) and isinstance(branch, Primitive) else branch
            )
            return self.step(writer, both, column, path)
        at, inner = next(n for n, one in enumerate(members) if one is branch), column + 1
        for member in members[:at]:
            inner += _columns_of(member)
        return Step(Op.MEMBER, column, size=at, children=[self.step(writer, branch, inner, path)], path=path)

    # ------------------------------------------------------------ records

    def _record(self, writer: AvroRecord, reader: AvroRecord, column: int, path: str) -> Step:
        if not _same_name(writer, reader):
            raise _mismatch(path, writer, reader)
        columns, at = {}, column + 1
        for own in reader.fields:
            columns[own.name] = at
            at += _columns_of(own.type)
        children = []
        found = _matches(writer, reader)
        for written in writer.fields:
            if (field := found.get(written.name)) is None:
                children.append(self._skip(written.type))
            else:
                where = _joined(path, field.name)
                children.append(self.step(written.type, field.type, columns[field.name], where))
        read = {one.name for one in found.values()}
        children += [
            self._default(own, columns[own.name], path) for own in reader.fields if own.name not in read
        ]
        return Step(Op.RECORD, column, children=children, path=path)

    def _default(self, field: Field, column: int, path: str) -> Step:
        where = _joined(path, field.name)
        if field.default is UNSET:
            raise _Mismatch(
                "schema", f"{where}: the writer doesn't have it, and the reader has no default for it"
            )
        kind, data = encoded_default(field.type, field.default, where)
        child = (
            self._into_branch(kind, field.type, kind, column, where)
            if isinstance(field.type, Union)
            else self.step(kind, kind, column, where)
        )
        return Step(Op.CONSTANT, children=[child], texts=[data], path=where)

    # ------------------------------------------------------------ what the reader doesn't have

    def _skip(self, kind: AvroType) -> Step:
        if id(kind) in self._skips:
            return self._skips[id(kind)]
        made = self._skips[id(kind)] = Step(Op.NULL)
        if isinstance(kind, Union):
            made.op, made.children = Op.UNION, [self._skip(branch) for branch in kind.branches]
        elif isinstance(kind, AvroRecord):
            made.op, made.children = Op.RECORD, [self._skip(field.type) for field in kind.fields]
        elif isinstance(kind, Array):
            made.op, made.children = Op.ARRAY, [self._skip(kind.items)]
        elif isinstance(kind, Map):
            made.op, made.children = Op.MAP, [Step(Op.BYTES), self._skip(kind.values)]
        elif isinstance(kind, Fixed):
            made.op, made.size = Op.FIXED, kind.size
        elif isinstance(kind, Enum):
            made.op, made.texts = Op.ENUM, [b""] * len(kind.symbols)
        else:
            made.op = _READS[kind.name]
        return made


_READS = {
    "null": Op.NULL,
    "boolean": Op.BOOLEAN,
    "int": Op.INT,
    "long": Op.LONG,
    "float": Op.FLOAT,
    "double": Op.DOUBLE,
    "bytes": Op.BYTES,
    "string": Op.BYTES,
}
_STORES = {
    "int": Store.INT32,
    "long": Store.INT64,
    "float": Store.FLOAT,
    "double": Store.DOUBLE,
    "string": Store.TEXT,
}
_PROMOTED = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}


def _primitive(writer: Primitive, reader: Primitive, column: int, path: str) -> Step:
    if reader.name != writer.name and reader.name not in _PROMOTED.get(writer.name, ()):
        raise _mismatch(path, writer, reader)
    if _other_meaning(writer, reader):
        raise _mismatch(path, writer, reader)
    if reader.logical is not None and reader.logical.name == "decimal":
        return Step(Op.DECIMAL, column, size=reader.logical.precision, path=path)
    return Step(_READS[writer.name], column, _STORES.get(reader.name, Store.AS_IT_IS), path=path)


def _other_meaning(writer: Primitive | Fixed, reader: Primitive | Fixed) -> bool:
    """Whether both have a logical type, and not the same."""
    if writer.logical is None or reader.logical is None:
        return False
    numbers = isinstance(reader, Primitive) and reader.name in ("float", "double")
    return not numbers and writer.logical != reader.logical


def _fixed(writer: Fixed, reader: Fixed, column: int, path: str) -> Step:
    if writer.size != reader.size or not _same_name(writer, reader) or _other_meaning(writer, reader):
        raise _mismatch(path, writer, reader)
    if reader.logical is None:
        return Step(Op.FIXED, column, size=reader.size, path=path)
    if reader.logical.name == "decimal":
        return Step(Op.FIXED_DECIMAL, column, size=reader.size | reader.logical.precision << 32, path=path)
    return Step(
        Op.DURATION if reader.logical.name == "duration" else Op.UUID, column, size=reader.size, path=path
    )


def _enum(writer: Enum, reader: Enum, column: int, path: str) -> Step:
    if not _same_name(writer, reader):
        raise _mismatch(path, writer, reader)
    otherwise = None if reader.default is None else reader.default.encode()
    texts = [symbol.encode() if symbol in reader.symbols else otherwise for symbol in writer.symbols]
    return Step(Op.ENUM, column, texts=texts, path=path)


def _same_name(writer: AvroRecord | Enum | Fixed, reader: AvroRecord | Enum | Fixed) -> bool:
    """Whether names match without their namespaces, or one of the reader's aliases is the writer's name."""
    return _bare(writer.name) in {_bare(reader.name), *map(_bare, reader.aliases)}


def _bare(name: str) -> str:
    return name.rpartition(".")[2]


def _matches(writer: AvroRecord, reader: AvroRecord) -> dict[str, Field]:
    """The reader's field for each of the writer's, by name, or else by an alias."""
    written = {field.name for field in writer.fields}
    found = {field.name: field for field in reader.fields if field.name in written}
    for field in reader.fields:
        for alias in field.aliases:
            if field.name not in written and alias in written and alias not in found:
                found[alias] = field
                break
    return found


def _candidates(writer: AvroType, reader: Union) -> list[AvroType]:
    """Branches of the reader's union that may hold the writer's type, the best first: the same one, one of the same name without its
    namespace, and then the first to which it can be promoted."""
    same = [one for one in reader.branches if type(one) is type(writer) and name_of(one) == name_of(writer)]
    others = [one for one in reader.branches if not any(one is other for other in same)]
    alike = [one for one in others if type(one) is type(writer) and not isinstance(one, Primitive)]
    return same + alike + [one for one in others if isinstance(one, Primitive)]


def _columns_of(kind: AvroType) -> int:
    return count_columns(arrow_schema(AvroRecord("", [Field("f", kind)])).field(0).type)


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name

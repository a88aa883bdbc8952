"""pyarrow expressions: their types, which are checked before anything runs, and their columns for a batch."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import acero

from kafka_actors.errors import ConfigError, kind_of

from .rows import KAFKA, Array, with_kafka

Expression = Any


def evaluate(expressions: Sequence[Expression], batch: pa.RecordBatch) -> list[Array]:
    """Evaluates expressions: returns one column for each, with the rows in order. Raises Arrow's errors (`pa.ArrowException`)."""
    names = [str(number) for number in range(len(expressions))]
    table = acero.Declaration.from_sequence(
        [
            acero.Declaration("table_source", acero.TableSourceNodeOptions(pa.Table.from_batches([batch]))),
            acero.Declaration("project", acero.ProjectNodeOptions(list(expressions), names)),
        ]
    ).to_table(use_threads=False)
    return [_joined(column) for column in table.columns]


def _joined(column: Any) -> Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, column.type)


def types_of(stage: str, expressions: Sequence[Expression], schema: pa.Schema) -> list[Any]:
    """The types of expressions over these columns and the hidden `_kafka`.

    Raises `ConfigError`, naming the stage, for a missing column and for types that don't fit.
    """
    empty = empty_batch(with_kafka(schema))
    found = []
    for expression in expressions:
        try:
            found.append(evaluate([expression], empty)[0].type)
        except (pa.ArrowException, KeyError, TypeError) as error:
            raise ConfigError(stage, _why(expression, error, schema)) from None
    return found


def uses_kafka(expressions: Sequence[Expression], schema: pa.Schema) -> bool:
    """Whether the expressions name the hidden column `_kafka`, which is copied only then."""
    empty = empty_batch(schema)
    try:
        evaluate(expressions, empty)
    except (pa.ArrowException, KeyError):
        return True
    return False


def empty_batch(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


def _why(expression: Expression, error: Exception, schema: pa.Schema) -> str:
    line = str(error).partition("\n")[0]
    shown = readable(str(expression))
    if "No match for FieldRef.FieldPath(" in line:
        return f"{shown}: there are {len(schema)} columns, numbered from 0: {', '.join(schema.names)}"
    if "No match for FieldRef" in line:
        path = _NAME.findall(line.partition(" in ")[0])
        return f"{shown}: {no_such(path, with_kafka(schema) if path[:1] == [KAFKA] else schema)}"
    return f"{shown}: {line}"


_NAME = re.compile(r"FieldRef\.Name\(([^()]*)\)")
_NESTED = re.compile(r"FieldRef\.Nested\((FieldRef\.Name\([^()]*\)(?: FieldRef\.Name\([^()]*\))*)\)")


def readable(expression: str) -> str:
    """The text of an expression with paths as in SQL: `st.x` for `pc.field("st", "x")`."""
    return _NESTED.sub(lambda found: ".".join(_NAME.findall(found[1])), expression)


def no_such(path: Sequence[str], schema: pa.Schema) -> str:
    """An error text that says which step of a column's path is missing, and suggests another name."""
    if path[0] not in schema.names:
        return f"there is no column {path[0]!r}{_hint(path[0], schema.names)}"
    kind = schema.field(path[0]).type
    for step in path[1:]:
        if not pa.types.is_struct(kind):
            return f"there is no {'.'.join(path)!r}: {kind} has no field {step!r}, as it is no struct"
        if kind.get_field_index(step) < 0:
            names = [kind.field(number).name for number in range(kind.num_fields)]
            return f"there is no {'.'.join(path)!r}: {kind} has no field {step!r}{_hint(step, names)}"
        kind = kind.field(step).type
    return f"there is no {'.'.join(path)!r}"


def _hint(name: str, names: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, names, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; there are {', '.join(names)}"


def checked_expression(stage: str, argument: Any) -> Expression:
    """The argument, if it is a pyarrow expression. Raises `ConfigError` otherwise."""
    if isinstance(argument, pc.Expression):
        return argument
    raise ConfigError(
        stage,
        f"is given {argument!r}, {kind_of(argument)}: accepts expressions such as pc.field('amount') > 0",
    )


def reference(stage: str, name: str, schema: pa.Schema | None) -> Expression:
    """An expression for the column of this name, or of this path: `address.city`, `_kafka.offset`. Raises `ConfigError`."""
    if schema is None or name in schema.names:
        return pc.field(name)
    path = name.split(".")
    if len(path) > 1 and (path[0] in schema.names or path[0] == KAFKA):
        columns = with_kafka(schema)
        kind = columns.field(path[0]).type
        for step in path[1:]:
            if not pa.types.is_struct(kind) or kind.get_field_index(step) < 0:
                raise ConfigError(stage, no_such(path, columns))
            kind = kind.field(step).type
        return pc.field(*path)
    raise ConfigError(stage, no_such([name], schema))

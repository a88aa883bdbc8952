"""Steps: stages instantiated in a process, which turn rows into rows, whatever engine calls them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_actors.base.batches import batches_of
from kafka_actors.base.callables import DroppedResults, constructed
from kafka_actors.base.message import messages_of
from kafka_actors.errors import kind_of
from kafka_actors.events import NewSchemaSeen
from kafka_actors.schemas.framing import with_header_frames
from kafka_actors.schemas.registry import SchemaKey
from kafka_actors.schemas.results import ValueDecoder, row_of_each

from .casts import CastError, Failure, batch_of, cast_to
from .decode import Decode, getters_of, json_decoder, row_getters, row_type
from .engines import CheckedStage
from .expressions import evaluate, uses_kafka
from .rows import KAFKA, NO_RECORD, Numbers, StageRows, with_kafka
from .schema_stages import Decode as DecodeBySchema
from .schema_stages import DecodeKey, SchemaStage
from .stages import DecodeJson, Filter, FlatMap, Function, MapBatches, MapMessages, Raw, Select, WithColumns

MOST_NEW_SCHEMAS = 100


class StageStep(Protocol):
    """Stage instantiated in a process. `retriable`: a second run on the same rows may succeed."""

    retriable: bool

    def run(self, rows: StageRows, source: pa.RecordBatch) -> list[StageRows]:
        """The rows that the stage makes of `rows`, whose records are in `source`. Raises any error."""
        ...

    def close(self) -> Any: ...


class Unclosed:
    """Base of steps that need no closing."""

    def close(self) -> None:
        pass


class RecordwiseStep(Unclosed, ABC):
    """Base of steps that return the records that fail, where other steps raise."""

    new_schemas: NewSchemas | None = None
    """Writers' schemas, of a step that decodes by a registry's."""

    @abstractmethod
    def run(self, rows: StageRows, source: pa.RecordBatch) -> tuple[StageRows, list[Failure]]:
        """The rows that the stage makes, and the failures by the numbers of their records in the batch that was read."""

    def _of_records(
        self, failures: Iterable[Failure], rows: StageRows, source: pa.RecordBatch
    ) -> list[Failure]:
        """The failures of rows as those of their records; a row that belongs to no single one is a failure of all of them, once."""
        found: list[Failure] = []
        whole = False
        for row, reason in failures:
            if (record := int(rows.origin[row])) != NO_RECORD:
                found.append((record, reason))
            elif not whole:
                whole = True
                found += ((each, reason) for each in range(source.num_rows))
        return found


class NewSchemas:
    """Schemas of values that weren't known when the pipeline was made ready; of many the first ones."""

    def __init__(self, stage: SchemaStage) -> None:
        self._stage = stage
        self._seen: set[SchemaKey] = set(stage.known or ())
        self.events: list[NewSchemaSeen] = []

    def note(self, schemas: Iterable[SchemaKey]) -> None:
        """Takes the schemas of values that were decoded."""
        for key in schemas:
            if key not in self._seen and len(self.events) < MOST_NEW_SCHEMAS:
                self._seen.add(key)
                self.events.append(NewSchemaSeen(self._stage.name, str(key), self._stage.chosen))


class DecodeStep(RecordwiseStep):
    """Decodes the column `value`; with `framed` a value may have its frame in a header of its record."""

    def __init__(self, decode: Decode, framed: bool = False, new_schemas: NewSchemas | None = None) -> None:
        self._decode = decode
        self._framed = framed
        self.new_schemas = new_schemas

    def run(self, rows: StageRows, source: pa.RecordBatch) -> tuple[StageRows, list[Failure]]:
        values = rows.batch.column("value")
        if self._framed:
            values = with_header_frames(values, rows.column_of("headers", source))
        batch, numbers, failures, schemas = self._decode(values)
        if self.new_schemas is not None:
            self.new_schemas.note(schemas)
        return StageRows(batch, rows.origin[numbers]), self._of_records(failures, rows, source)


class DecodeKeyStep(RecordwiseStep):
    """Decodes the keys of the rows' records into one more column, which takes the place of one of its name. Null keys are null."""

    def __init__(
        self, decoder: ValueDecoder, behind: pa.Schema, column: str, new_schemas: NewSchemas | None = None
    ) -> None:
        self._decoder = decoder
        self.new_schemas = new_schemas
        self._behind = behind
        self._at = behind.get_field_index(column)

    def run(self, rows: StageRows, source: pa.RecordBatch) -> tuple[StageRows, list[Failure]]:
        keys = rows.column_of("key", source)
        framed = (
            with_header_frames(keys, rows.column_of("headers", source), "key")
            if self._decoder.framed
            else keys
        )
        made = self._decoder.decode(framed)
        if self.new_schemas is not None:
            self.new_schemas.note(made.schemas)
        null = keys.is_null().to_numpy(zero_copy_only=False)
        failures = [(row, f"key: {reason}") for row, reason in made.failures if not null[row]]
        column = made.batch.to_struct_array() if self._decoder.of_records else made.batch.column(0)
        good = np.ones(len(keys), dtype=bool)
        good[[row for row, _ in failures]] = False
        kept = rows if good.all() else rows.take(good)
        columns = list(kept.batch.columns)
        columns[self._at : self._at + 1] = [
            column.take(row_of_each(made.records, len(keys)).filter(pa.array(good)))
        ]
        batch = pa.RecordBatch.from_arrays(columns, schema=self._behind)
        return StageRows(batch, kept.origin), self._of_records(failures, rows, source)


class RawTextStep(RecordwiseStep):
    """Decodes keys and values as UTF-8."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    def run(self, rows: StageRows, source: pa.RecordBatch) -> tuple[StageRows, list[Failure]]:
        pairs = [rows.batch.column(name).to_pylist() for name in self._schema.names]
        failures: dict[int, str] = {}
        for name, values in zip(self._schema.names, pairs, strict=True):
            for row, value in enumerate(values):
                try:
                    values[row] = None if value is None else value.decode()
                except UnicodeDecodeError as error:
                    failures.setdefault(row, f"the {name} is not UTF-8: {error}")
        good = np.ones(len(rows.origin), dtype=bool)
        good[list(failures)] = False
        columns = [
            pa.array([v for v, take in zip(values, good, strict=True) if take], pa.string())
            for values in pairs
        ]
        made = StageRows(pa.RecordBatch.from_arrays(columns, schema=self._schema), rows.origin[good])
        return made, self._of_records(sorted(failures.items()), rows, source)


class SimpleStep(Unclosed):
    """Base of steps that are not worth a retry."""

    retriable = False


class SelectColumnsStep(SimpleStep):
    """Selects columns by name."""

    def __init__(self, names: list[str], schema: pa.Schema) -> None:
        self._names = names
        self._schema = schema

    def run(self, rows: StageRows, source: pa.RecordBatch) -> list[StageRows]:
        columns = [rows.batch.column(name) for name in self._names]
        return [StageRows(pa.RecordBatch.from_arrays(columns, schema=self._schema), rows.origin)]


class FilterStep(SimpleStep):
    def __init__(self, stage: Filter, before: pa.Schema) -> None:
        self._expression = stage.expression
        self._kafka = uses_kafka([stage.expression], before)

    def run(self, rows: StageRows, source: pa.RecordBatch) -> list[StageRows]:
        (mask,) = evaluate([self._expression], rows.with_kafka(source) if self._kafka else rows.batch)
        true = pc.fill_null(mask, False).to_numpy(zero_copy_only=False)
        return [rows if true.all() else rows.take(true)]


class ComputeStep(SimpleStep):
    """Makes the columns of `schema`: those named in `expressions` by them, the others unchanged."""

    def __init__(self, expressions: dict[str, Any], before: pa.Schema, schema: pa.Schema) -> None:
        self._names = list(expressions)
        self._expressions = list(expressions.values())
        self._schema = schema
        self._kafka = uses_kafka(self._expressions, before)

    def run(self, rows: StageRows, source: pa.RecordBatch) -> list[StageRows]:
        batch = rows.with_kafka(source) if self._kafka else rows.batch
        made = dict(zip(self._names, evaluate(self._expressions, batch), strict=True))
        columns = [made[name] if name in made else rows.batch.column(name) for name in self._schema.names]
        return [StageRows(pa.RecordBatch.from_arrays(columns, schema=self._schema), rows.origin)]


class CallStep:
    """Calls the user's function, or an object made once, and casts its batches to the stage's schema. If it `is_async`,
    `run_async` awaits it."""

    retriable = True

    def __init__(self, stage: Function, schema: pa.Schema) -> None:
        self._schema = schema
        self._kafka = stage.kafka
        self._made = constructed(stage.target, stage.arguments) if stage.is_class else stage.target
        self._owned = stage.is_class
        self.is_async = stage.is_async
        self._nothing = DroppedResults(stage.name)

    def run(self, rows: StageRows, source: pa.RecordBatch) -> list[StageRows]:
        if not rows.batch.num_rows:
            return []
        return self._rows_of(self._made(self._argument(rows, source)), rows, source)

    async def run_async(self, rows: StageRows, source: pa.RecordBatch) -> list[StageRows]:
        """Awaits an async function, as `run` calls a plain one."""
        if not rows.batch.num_rows:
            return []
        return self._rows_of(await self._made(self._argument(rows, source)), rows, source)

    def _argument(self, rows: StageRows, source: pa.RecordBatch) -> pa.RecordBatch:
        return rows.with_kafka(source) if self._kafka else rows.batch

    def _rows_of(self, result: Any, rows: StageRows, source: pa.RecordBatch) -> list[StageRows]:
        self._nothing.returned(result is not None)
        batches = list(batches_of(result, "it"))
        if self._kafka:
            return [self._by_kafka(batch, rows, source) for batch in batches]
        cast = [cast_to(self._schema, batch) for batch in batches]
        return list(_in_order(cast, rows.origin))

    def _by_kafka(self, batch: pa.RecordBatch, rows: StageRows, source: pa.RecordBatch) -> StageRows:
        at = batch.schema.get_field_index(KAFKA)
        if at < 0:
            raise CastError(f"it got the column {KAFKA!r} (kafka=True) and did not return it")
        full = cast_to(with_kafka(self._schema), batch)
        return StageRows(full.select(self._schema.names), _numbers(full.column(len(self._schema)), source))

    def close(self) -> Any:
        """Closes the user's object; returns what its `close` returned, which is awaited if it is async."""
        self._nothing.at_end()
        close = getattr(self._made, "close", None) if self._owned else None
        return close() if callable(close) else None


class CallRowsStep(CallStep):
    """Calls the user's function with each row; it returns rows."""

    def run(self, rows: StageRows, source: pa.RecordBatch) -> list[StageRows]:
        found: list[Any] = []
        counts = []
        some = False
        for row in rows.batch.to_pylist(maps_as_pydicts="strict"):
            before = len(found)
            result = self._made(row)
            some = some or result is not None
            found += _rows_in(result)
            counts.append(len(found) - before)
        self._nothing.returned(some)
        return self._made_rows(found, np.repeat(rows.origin, counts))

    def _made_rows(self, found: list[Any], origin: Numbers) -> list[StageRows]:
        """The rows that a function gave as dicts. Raises `TypeError` for what is none, and `CastError`."""
        if not found:
            return []
        known = self._schema.names
        for row in found:
            if not isinstance(row, Mapping):
                raise TypeError(f"it gave {kind_of(row)} as a row: give a dict")
            for name in row:
                if name not in known:
                    raise CastError(
                        f"it gave a column {name!r} that its schema lacks; there are {', '.join(known)}"
                    )
        return [StageRows(batch_of(found, self._schema), origin)]


class CallMessagesStep(CallRowsStep):
    """Calls the user's function with each record as a `Message`; it returns a row, or None."""

    def run(self, rows: StageRows, source: pa.RecordBatch) -> list[StageRows]:
        return self._rows_for([self._made(message) for message in messages_of(rows.batch)], rows)

    async def run_async(self, rows: StageRows, source: pa.RecordBatch) -> list[StageRows]:
        return self._rows_for([await self._made(message) for message in messages_of(rows.batch)], rows)

    def _rows_for(self, results: list[Any], rows: StageRows) -> list[StageRows]:
        """The rows among the results for all records."""
        some = np.array([result is not None for result in results], dtype=bool)
        self._nothing.returned(bool(some.any()))
        return self._made_rows([result for result in results if result is not None], rows.origin[some])


def _rows_in(result: Any) -> Iterable[Any]:
    """The rows that a function returned for a row. Raises `TypeError` for a dict alone, whose iteration would give its keys."""
    if result is None:
        return ()
    if isinstance(result, Iterable) and not isinstance(result, (str, bytes, Mapping)):
        return result
    raise TypeError(f"it returned {kind_of(result)}: give several rows, [row], or None")


def _in_order(batches: list[pa.RecordBatch], origin: Numbers) -> Iterator[StageRows]:
    """Rows with the records of the input where there are as many of them; otherwise with no record."""
    complete = sum(batch.num_rows for batch in batches) == len(origin)
    at = 0
    for batch in batches:
        count = batch.num_rows
        if count:
            yield StageRows(
                batch, origin[at : at + count] if complete else np.full(count, NO_RECORD, dtype=np.int32)
            )
        at += count


def _numbers(kafka: Any, source: pa.RecordBatch) -> Numbers:
    """The numbers of the records with the offsets in `_kafka`; a batch is of one partition."""
    offsets = pc.struct_field(kafka, "offset")
    at = pc.index_in(offsets, value_set=source.column("offset"))
    missing = pc.and_(at.is_null(), offsets.is_valid())
    if pc.any(missing).as_py():
        raise CastError(f"it returned a {KAFKA!r} with an offset that it did not get")
    return pc.fill_null(at, NO_RECORD).to_numpy(zero_copy_only=False).astype(np.int32)  # type: ignore[no-any-return]  # Arrow is untyped


_CALLS: dict[type[Function], type[CallStep]] = {
    MapBatches: CallStep,
    MapMessages: CallMessagesStep,
    FlatMap: CallRowsStep,
}


def _new_schemas(stage: SchemaStage) -> NewSchemas | None:
    return None if stage.known is None else NewSchemas(stage)


def make(step: CheckedStage) -> StageStep | RecordwiseStep:
    """Instantiates a stage. Raises what a user's constructor raises."""
    stage, before, behind = step.stage, step.before, step.behind
    assert before is not None
    assert behind is not None
    if isinstance(stage, DecodeJson):
        if stage.row is None:
            return DecodeStep(json_decoder(behind, row_type(stage.name, behind), row_getters(behind)))
        return DecodeStep(json_decoder(behind, stage.row, getters_of(stage.row)))
    if isinstance(stage, DecodeKey):
        assert stage.decoder is not None
        return DecodeKeyStep(stage.decoder, behind, stage.column, _new_schemas(stage))
    if isinstance(stage, DecodeBySchema):
        assert stage.decoder is not None  # the engine has made the pipeline ready
        return DecodeStep(stage.decoder.decode, stage.decoder.framed, _new_schemas(stage))
    if isinstance(stage, Raw):
        return RawTextStep(behind) if stage.text else SelectColumnsStep(behind.names, behind)
    if isinstance(stage, Filter):
        return FilterStep(stage, before)
    if isinstance(stage, Select):
        if all(isinstance(column, str) and column in before.names for _, column in stage.items):
            return SelectColumnsStep([column for _, column in stage.items], behind)
        return ComputeStep(stage.expressions(before), before, behind)
    if isinstance(stage, WithColumns):
        return ComputeStep(dict(stage.items), before, behind)
    assert isinstance(stage, Function)
    return _CALLS[type(stage)](stage, behind)

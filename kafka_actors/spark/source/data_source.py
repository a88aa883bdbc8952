"""The Python data source, which Spark looks up by its name. Everything else is imported when it is used, because Spark
imports this module at its first look-up of any data source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from kafka_actors.errors import ConfigError, UsageError
from kafka_actors.spark.python_worker import OneLineErrors, PickledSource

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from .decoded_columns import ValueDecoding
    from .options import ReadOptions
    from .readers import KafkaBatchReader, KafkaStreamReader, OutputColumns
    from .sink_options import SinkOptions
    from .writers import KafkaBatchWriter, KafkaStreamWriter

NAME = "kafka_actors"


class KafkaDataSource(PickledSource, DataSource):
    """Kafka topics as a `DataFrame`, at once or as a stream, with the columns, types and options of Spark's own
    `kafka` source.

        spark.read.format("kafka_actors").option("kafka.bootstrap.servers", "…").option("subscribe", "orders").load()
        spark.readStream.format("kafka_actors")…
        df.write.format("kafka_actors").mode("append").option("topic", "scored").save()
        df.writeStream.format("kafka_actors")…

    Options that are wrong for a batch and for a stream raise `ConfigError` from `.load()`, before anything connects, where
    Spark doesn't say yet which it will be. Others raise it at the first action or the start of the query, and so do all
    with a `.schema(…)` of the user's, which may name fewer columns.

    Spark plans a Python data source once per `DataFrame`: the offsets of a batch are fixed at its first action, and
    records that come later need another `.load()`. (Spark's own source looks for the end anew at each action.)

    With the option `decode` the columns are those of a schema, by which values are decoded in the tasks; see `decoded_columns`.
    """

    _decoding: ValueDecoding | None = None

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        from kafka_actors.spark.python_worker import freeze_imports

        from .options import is_for_a_stream, parse_batch, parse_stream
        from .readers import LIMITS
        from .schema import schema, with_options

        with OneLineErrors():
            options: ReadOptions
            try:
                options = parse_batch(self.options)
            except ConfigError as error:
                try:
                    options = parse_stream(self.options, limits=LIMITS)
                except ConfigError as of_stream:
                    raise (of_stream if is_for_a_stream(self.options) else error) from None
            freeze_imports()
            columns = (
                schema(options.include_headers)
                if options.decode is None
                else self._decoded_by(options).available
            )
            return with_options(columns, self.options)

    def reader(self, schema: StructType) -> KafkaBatchReader:
        from .options import parse_batch
        from .readers import FilteringKafkaBatchReader, KafkaBatchReader
        from .schema import options_of

        with OneLineErrors():
            options = parse_batch(options_of(self.options, schema))
            reader = FilteringKafkaBatchReader if options.push_filters else KafkaBatchReader
            return reader(options, self._columns(options, schema))

    def streamReader(self, schema: StructType) -> KafkaStreamReader:
        from .options import parse_stream
        from .readers import LIMITS, reader_class
        from .schema import options_of

        with OneLineErrors():
            options = parse_stream(options_of(self.options, schema), limits=LIMITS)
            return reader_class()(options, self._columns(options, schema))

    def _columns(self, options: ReadOptions, schema: StructType) -> OutputColumns:
        from .schema import columns_of

        if options.decode is None:
            return columns_of(schema, options.include_headers)
        return self._decoded_by(options, schema).columns_of(schema, options.poll_timeout_ms)

    def _decoded_by(self, options: ReadOptions, schema: StructType | None = None) -> ValueDecoding:
        """The decoding of values. The schema is resolved once: Spark pickles this object after it has asked for the columns. With columns that
        it has from elsewhere, as those of a table, it doesn't ask for them."""
        from .decoded_columns import decoding_of, kept_in

        if self._decoding is None:
            assert options.decode is not None
            kept = None if schema is None else kept_in(schema)
            self._decoding = decoding_of(options.decode, options.selection, kept)
        return self._decoding

    def writer(self, schema: StructType, overwrite: bool) -> KafkaBatchWriter:
        from .writers import KafkaBatchWriter

        with OneLineErrors():
            if overwrite:
                raise UsageError("a topic can't be overwritten: use .mode('append')")
            return KafkaBatchWriter(self._sink(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> KafkaStreamWriter:
        from .writers import KafkaStreamWriter

        # outputMode complete appends all rows each time, as Spark's own sink does.
        with OneLineErrors():
            return KafkaStreamWriter(self._sink(schema), plans=not self.pickled)

    def _sink(self, schema: StructType) -> SinkOptions:
        from .sink_options import parse_sink

        if not self.options:
            raise UsageError(
                "Spark passed no options: it passes those of a table to no write, such as INSERT INTO; "
                "use df.write.format('kafka_actors').option(…)"
            )
        return parse_sink(self.options, schema)

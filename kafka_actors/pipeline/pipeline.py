"""`Pipeline`: processing of topics, defined once for Ray and for Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from kafka_actors.base.paths import wrong_path
from kafka_actors.base.topics import check_topic
from kafka_actors.config import PARQUET_COMPRESSIONS
from kafka_actors.errors import ConfigError

from . import stages as s
from .decoding import Decoding
from .definition import (
    bare,
    called,
    check_call_options,
    check_delivery,
    checked_function,
    checked_items,
    named,
)
from .encoders import writer_schema
from .engines import CheckedPipeline, check, engine, explain
from .expressions import checked_expression
from .schemas import as_schema
from .source import producer_options, read_kafka

if TYPE_CHECKING:
    from kafka_actors.backfill import Backfill
    from kafka_actors.job import Autoscale
    from kafka_actors.ray import OnRay
    from kafka_actors.schemas.registry import Registry
    from kafka_actors.schemas.writer_schema import SubjectNameStrategy
    from kafka_actors.spark import OnSpark

OnError = s.OnError


class Pipeline(Decoding, frozen=True, kw_only=True, eq=False):
    """Definition of the processing of topics; an engine runs it. Every method returns a new pipeline.

        orders = (ka.Pipeline.read_kafka("orders", group_id="revenue", bootstrap_servers="localhost:9092")
                    .decode_json("id BIGINT, country STRING, amount DOUBLE")
                    .filter(pc.field("amount") > 0)
                    .map_batches(enrich, schema="id BIGINT, country STRING, amount DOUBLE, tax DOUBLE")
                    .with_key("country")
                    .write_kafka("scored"))
        orders.on_ray(workers=8).run()

    Sinks come last; each `write_…` after another adds one, which gets the same rows.

    A pipeline without a source is a fragment, to be joined to others: `orders = read | clean | write`.

    Schemas are pyarrow Schemas, DDL strings or msgspec Structs. Every stage takes `name=` (what errors call it) and
    `on_error=`: "fail" ends the run; "skip" goes on without the records that failed, with a warning; "dead_letter"
    sends them to the topic of `.dead_letters(…)` before their offsets are committed. If a user's function fails on a
    batch, it is retried (`retries`), and then called with halves of it, so that only the records at fault are taken out.

    Wrong arguments raise `ConfigError` at once; whatever depends on the columns is checked by `check()`, which every
    engine calls before anything starts.
    """

    # ------------------------------------------------------------ where it begins

    @classmethod
    def read_kafka(
        cls,
        topics: str | Iterable[str] | None = None,
        *,
        pattern: str | None = None,
        bootstrap_servers: str | Iterable[str],
        group_id: str | None = None,
        config: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Pipeline:
        """Reads topics, by name or by a `pattern` that has to match whole names. The columns are those of the records:
        key, value, topic, partition, offset, timestamp, timestampType, headers.

        Options are Kafka's, with underscores, or in `config={…}` with dots or underscores: see `JobConfig`.
        """
        keywords = {"bootstrap_servers": bootstrap_servers, "group_id": group_id, **options}
        return cls(source=read_kafka(topics, pattern, config, keywords))

    # ------------------------------------------------------------ stages on columns

    def filter(
        self, expression: Any, *, name: str | None = None, on_error: OnError | None = None
    ) -> Pipeline:
        """Keeps rows for which a pyarrow expression is true: `.filter(pc.field("amount") > 0)`."""
        stage = named(name, f"filter({bare(expression)})")
        checked = checked_expression(stage, expression)
        return self._with(s.Filter, stage, on_error, expression=checked)

    def select(
        self, *columns: str, name: str | None = None, on_error: OnError | None = None, **named_columns: Any
    ) -> Pipeline:
        """Selects columns: by name, by path (`"address.city"`, `"_kafka.offset"`), or made by an expression:
        `.select("id", total=pc.field("price") * pc.field("items"))`."""
        stage = named(name, f"select({', '.join([*map(str, columns), *named_columns])})")
        for column in columns:
            if not isinstance(column, str):
                raise ConfigError(stage, f"{column} has no name: give it one, select(total=…)")
        if len({*columns, *named_columns}) < len(columns) + len(named_columns):
            raise ConfigError(stage, "names a column twice")
        checked = checked_items(
            stage, {**dict(zip(columns, columns, strict=True)), **named_columns}, names=True
        )
        # An item without a name gets one when the columns are known: a dot may be part of a column's name.
        items = tuple((None if name in columns else name, item) for name, item in checked)
        return self._with(s.Select, stage, on_error, items=items)

    def with_columns(
        self, *, name: str | None = None, on_error: OnError | None = None, **columns: Any
    ) -> Pipeline:
        """Adds columns, or replaces them, by expressions: `.with_columns(cents=pc.field("amount") * 100)`."""
        stage = named(name, f"with_columns({', '.join(columns)})")
        items = checked_items(stage, columns, names=False)
        return self._with(s.WithColumns, stage, on_error, items=items)

    # ------------------------------------------------------------ the user's code

    def map_batches(
        self,
        function: Any,
        *,
        schema: Any = None,
        fn_constructor_kwargs: Mapping[str, Any] | None = None,
        num_gpus: float = 0,
        kafka: bool = False,
        ordering: s.Ordering | None = None,
        concurrency: int | None = None,
        name: str | None = None,
        on_error: OnError | None = None,
    ) -> Pipeline:
        """Calls a function with a RecordBatch of one partition's rows; or an object of a class, which is made once per
        worker process. It returns a RecordBatch or Table, several of them (a generator will do), or None.

        `schema` is the schema of its result. Without it the function needs an attribute `output_schema`: a schema, or a
        function that makes one from the input's schema. Every batch is cast to it; a cast that would change a value
        is an error. A class's `close()` is called at the end, on Spark if there is time.

        An async function, or a class with an async `__call__`, is awaited: on Ray, calls of different partitions overlap
        in each worker, in one event loop; those of one partition come in order. On Spark there is one event loop
        in each Python process, and one call at a time.

        If it returns as many rows as it got, each belongs to the same record as before. Otherwise pass `kafka=True`:
        the batch then has the column `_kafka`, which the result has to keep.

        `ordering` and `concurrency` are those of the whole run on Ray, as `on_ray` and `Job` have them: `ordering="key",
        concurrency=64` has each worker take 64 batches through all stages at once, in the order of each record's key. Stages that say
        one have to say the same; those without a word run in it. On Spark an ordering other than "partition" is refused.
        """
        return self._function(
            s.MapBatches, "map_batches", function, schema, fn_constructor_kwargs, name, on_error,
            num_gpus=num_gpus, kafka=kafka, ordering=ordering, concurrency=concurrency,
        )  # fmt: skip

    def map_messages(
        self,
        function: Any,
        *,
        schema: Any = None,
        fn_constructor_kwargs: Mapping[str, Any] | None = None,
        ordering: s.Ordering | None = None,
        concurrency: int | None = None,
        name: str | None = None,
        on_error: OnError | None = None,
    ) -> Pipeline:
        """Calls a function, or an object as in `map_batches`, with each record as a `Message`. It returns a row as a dict, or None for
        no row. It gets records as they were read, so no decoder comes before it; a function over rows is for `flat_map`.

        `schema`, async functions, `ordering` and `concurrency` are as in `map_batches`; a missing column is null. Records that go
        through the stages together are called one after another, so calls overlap only with a `concurrency`.
        """
        return self._function(
            s.MapMessages, "map_messages", function, schema, fn_constructor_kwargs, name, on_error,
            ordering=ordering, concurrency=concurrency,
        )  # fmt: skip

    def flat_map(
        self,
        function: Any,
        *,
        schema: Any = None,
        fn_constructor_kwargs: Mapping[str, Any] | None = None,
        name: str | None = None,
        on_error: OnError | None = None,
    ) -> Pipeline:
        """Calls a function, or an object as in `map_batches`, with each row as a dict. It returns any number of rows,
        as dicts."""
        return self._function(s.FlatMap, "flat_map", function, schema, fn_constructor_kwargs, name, on_error)

    def _function(
        self,
        kind: type[s.Function],
        method: str,
        target: Any,
        schema: Any,
        arguments: Any,
        name: str | None,
        on_error: OnError | None,
        **options: Any,
    ) -> Pipeline:
        stage = named(name, f"{method}({called(target)})")
        check_call_options(stage, **options)
        return self._with(
            kind,
            stage,
            on_error,
            target=target,
            schema=None if schema is None else as_schema(stage, schema),
            arguments=checked_function(stage, target, arguments, awaited=kind is not s.FlatMap),
            **options,
        )

    def spark(
        self, transform: Callable[[Any], Any], *, kafka: bool = False, name: str | None = None
    ) -> Pipeline:
        """Adds a DataFrame stage: a function from a Spark DataFrame to another, to shuffle or to keep state. Spark only.

        With `kafka=True` the DataFrame has the column `_kafka`: a watermark needs its timestamp,
        `df.withColumn("at", df["_kafka.timestamp"]).withWatermark("at", "10 minutes")`.
        """
        stage = named(name, f"spark({called(transform)})")
        if not callable(transform):
            raise ConfigError(
                stage, f"is given {transform!r}: accepts a function from a DataFrame to a DataFrame"
            )
        return self._with(s.DataFrames, stage, None, transform=transform, kafka=kafka)

    def sql(self, query: str, *, name: str | None = None) -> Pipeline:
        """Adds a DataFrame stage: `.sql("select country, sum(amount) from {this} group by country")`. Spark only.

        A query that names `_kafka` (`window(_kafka.timestamp, '1 hour')`) gets that column. Braces other than {this}
        stand for themselves.
        """
        stage = named(name, "sql")
        if not isinstance(query, str):
            raise ConfigError(stage, f"is given {query!r}: accepts a query as text")
        return self._with(s.DataFrames, stage, None, sql=query)

    # ------------------------------------------------------------ where it ends

    def with_key(self, key: Any, *, name: str | None = None) -> Pipeline:
        """Sets the key of the records that `write_kafka` sends: a column's name, or an expression. Without it rows keep the
        key of their record."""
        stage = named(name, f"with_key({key})")
        if not isinstance(key, str):
            checked_expression(stage, key)
        return self._with(s.WithKey, stage, None, key=key)

    def write_kafka(
        self,
        topic: str | None = None,
        *,
        format: s.Format = "json",  # noqa: A002  Spark's word for it
        registry: Registry | None = None,
        subject: str | None = None,
        schema: Any = None,
        message: str | None = None,
        register: bool = False,
        subject_name_strategy: SubjectNameStrategy = "topic",
        config: Mapping[str, Any] | None = None,
        name: str | None = None,
        on_error: OnError | None = None,
        delivery: s.Delivery = "at_least_once",
        marker_topic: str | None = None,
        **options: Any,
    ) -> Pipeline:
        """Sends each row to a topic: as a JSON object of its columns, or with format="columns" the columns key, value,
        headers, partition, timestamp and topic as they are.

        With format="avro", "json_schema" or "protobuf" each row is a value of a `registry`'s schema, with its id in front: the latest one of `subject`,
        by default that of `subject_name_strategy`: `{topic}-value` ("topic"), the record's full name ("record") or `{topic}-{record}`
        ("topic_record"); or, with `schema`, the version that has this schema. It is looked up when the pipeline is bound to an engine,
        has to fit the columns, and is kept from then on. With `register=True` the `schema` is registered then, or, for Avro, one that is
        derived from the columns. `message` is the full name of Protobuf's, where the file has several. A row that can't be encoded is an error of its record.

        Options are a producer's (`compression_type`, `linger_ms` …); the cluster is the source's unless
        `bootstrap_servers` says otherwise. Rows are acknowledged before their records' offsets are committed.

        `delivery="exactly_once"` is for Spark: each task writes in a transaction, with a marker of what it wrote, so that readers with
        `read_committed` see each row once, whatever dies and is replayed. Without `topic` the markers need a `marker_topic`.
        """
        stage = named(name, f"write_kafka({topic})" if topic else "write_kafka")
        writer = writer_schema(
            stage, format, registry,
            subject=subject, schema=schema, message=message, register=register, strategy=subject_name_strategy,
        )  # fmt: skip
        checked = producer_options(stage, config, options)
        if topic is not None:
            check_topic(topic, stage)
        check_delivery(stage, topic, delivery, marker_topic, checked)
        return self._with(
            s.WriteKafka, stage, on_error,
            topic=topic, format=format, writer=writer, options=checked, delivery=delivery, marker_topic=marker_topic,
        )  # fmt: skip

    def write_parquet(
        self,
        path: str,
        *,
        compression: str = "zstd",
        kafka: bool = False,
        name: str | None = None,
        on_error: OnError | None = None,
    ) -> Pipeline:
        """Writes files under a directory or a URI that pyarrow knows (`s3://…`). A file appears whole or not at all,
        before the offsets are committed. On Ray its name is `{topic}-{partition}-{first offset}-{last offset}.parquet`, with a digest of
        its offsets at the end where batches overlap: see `ParquetSink`.
        Files of a stream on Spark are named after its micro-batches, each of which is there once.

        `kafka=True` adds the column `_kafka`, by which rows that were written twice after a crash can be found.
        """
        stage = named(name, "write_parquet")
        if wrong := wrong_path(path):
            raise ConfigError(stage, f"path {wrong}")
        if compression not in PARQUET_COMPRESSIONS:
            raise ConfigError(
                stage, f"compression is {compression!r}: accepts {', '.join(PARQUET_COMPRESSIONS)}"
            )
        return self._with(s.WriteParquet, stage, on_error, path=path, compression=compression, kafka=kafka)

    def write(
        self,
        function: Any,
        *,
        fn_constructor_kwargs: Mapping[str, Any] | None = None,
        kafka: bool = False,
        name: str | None = None,
        on_error: OnError | None = None,
    ) -> Pipeline:
        """Calls a function with each RecordBatch, which counts as written when the function returns. Or takes a class
        with `write(batch)` and optionally `flush()` and `close()`, which is made once per worker process; `flush` is
        called before offsets are committed.

        With `kafka=True` the batch has the column `_kafka`.
        """
        stage = named(name, f"write({called(function)})")
        method = "write" if isinstance(function, type) else "__call__"
        arguments = checked_function(stage, function, fn_constructor_kwargs, method=method, returns=False)
        return self._with(s.WriteFunction, stage, on_error, target=function, arguments=arguments, kafka=kafka)

    # ------------------------------------------------------------ engines

    def on_ray(self, workers: int | Autoscale = 1, **options: Any) -> OnRay:
        """Binds this pipeline to Ray, as a job, a member of its consumer group: see `kafka_actors.ray.OnRay`.

        Options are those of `Job`: `until`, `name`, `detached`, `resources_per_worker`, `batch_rows`,
        `batch_linger_ms`, `ordering`, `concurrency`, `worker_assignor`, `partition_assignment_strategy`, `config`. Raises `ConfigError`
        as `check`.
        """
        bound: OnRay = engine("ray")(self, workers=workers, **options)
        return bound

    def on_spark(self, spark: Any, **options: Any) -> OnSpark:
        """Binds this pipeline to a Spark session: see `kafka_actors.spark.OnSpark`. Raises `ConfigError` as `check`."""
        bound: OnSpark = engine("spark")(self, spark, **options)
        return bound

    def backfill(self, spark: Any, *, checkpoint: str, **options: Any) -> Backfill:
        """Binds this pipeline to a backfill: history on Spark, then `.then_live(workers=8)` on Ray, from exactly the next
        offset. See `kafka_actors.backfill.Backfill`. Raises `ConfigError` as `check`."""
        bound: Backfill = engine("backfill")(self, spark, checkpoint=checkpoint, **options)
        return bound

    # ------------------------------------------------------------ before it starts

    def check(self, engine: str | None = None) -> CheckedPipeline:
        """Checks the whole definition, for one engine or for any: returns the columns before and behind each stage.

        Raises `ConfigError`, naming the stage and what to do.
        """
        return check(self, engine)

    def explain(self, engine: Literal["ray", "spark"] = "ray") -> str:
        """Describes, as text, where each stage runs on an engine and with which columns. Raises as `check`."""
        return explain(self, engine)

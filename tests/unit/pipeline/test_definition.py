"""A pipeline is a value: composed, pickled, shown and checked before anything starts."""

import functools
import pickle
import threading

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kafka_actors as ka
from kafka_actors.base.batches import SCHEMA
from kafka_actors.errors import ConfigError
from kafka_actors.pipeline.engines import check_travels

READ = ka.Pipeline.read_kafka("orders", group_id="revenue", bootstrap_servers="localhost:9092")
JSON = READ.decode_json("id BIGINT NOT NULL, country STRING, amount DOUBLE")


def double(batch):
    return batch


class Enrich:
    def __init__(self, rate=1.0):
        self.rate = rate

    def __call__(self, batch):
        return batch


class Known:
    output_schema = "id BIGINT"

    def __call__(self, batch):
        return batch


class Widened:
    @staticmethod
    def output_schema(columns):
        return columns.append(pa.field("more", pa.int32()))

    def __call__(self, batch):
        return batch


def test_every_method_gives_a_new_value():
    filtered = JSON.filter(pc.field("amount") > 0)
    assert len(JSON.stages) == 1
    assert len(filtered.stages) == 2
    with pytest.raises(AttributeError):
        filtered.stages = ()


def test_repr_is_one_line_and_holds_no_secrets():
    pipeline = (
        ka.Pipeline.read_kafka(
            ["orders", "returns"],
            bootstrap_servers="b:9092",
            security_protocol="SASL_SSL",
            sasl_mechanism="PLAIN",
            sasl_plain_username="u",
            config={"sasl.plain.password": "sesame"},
        )
        .decode_json("id BIGINT, amount DOUBLE")
        .filter(pc.field("amount") > 0)
        .map_batches(Enrich, schema="id BIGINT")
        .with_key("id")
        .write_kafka("scored", config={"sasl.plain.password": "sesame", "sasl.plain.username": "u"})
    )
    assert repr(pipeline) == (
        "<Pipeline orders, returns → decode_json → filter(amount > 0) → map_batches(Enrich) → with_key(id) → "
        "write_kafka(scored)>"
    )
    assert "sesame" not in repr((pipeline, pipeline.source, pipeline.stages, pipeline.source.options))
    assert b"sesame" in pickle.dumps(pipeline), "it has to travel, though"
    assert repr(ka.Pipeline()) == "<Pipeline of nothing>"


def test_a_sink_has_the_sources_cluster_and_security_unless_it_names_another():
    secured = ka.Pipeline.read_kafka(
        "orders",
        bootstrap_servers="b:9092",
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_plain_username="u",
        sasl_plain_password="sesame",
    ).raw()
    secured.write_kafka("scored", sasl_plain_username="other").check()
    secured.write_kafka("scored", bootstrap_servers="elsewhere:9092").check()
    wrong = secured.write_kafka("scored", bootstrap_servers="elsewhere:9092", sasl_plain_username="other")
    with pytest.raises(ConfigError, match=r"^write_kafka\(scored\): sasl_"):
        wrong.check()
    with pytest.raises(ConfigError, match=r"^dead_letters: delivery_timeout_ms"):
        secured.dead_letters("dead", delivery_timeout_ms=5).check()


def test_it_is_picklable():
    pipeline = (
        JSON.filter((pc.field("amount") > 0) & pc.field("_kafka", "offset").is_valid())
        .select("id", total=pc.field("amount") * 2)
        .map_batches(Enrich, schema="id BIGINT", fn_constructor_kwargs={"rate": 2.0}, on_error="dead_letter")
        .dead_letters("dead", linger_ms=1)
        .write_parquet("/tmp/x")
    )
    again = pickle.loads(pickle.dumps(pipeline))
    assert repr(again) == repr(pipeline)
    assert again.check("ray").columns == pipeline.check("ray").columns
    assert again.stages[3].arguments == {"rate": 2.0}
    assert (again.dead_letter_topic, again.dead_letter_options) == ("dead", {"linger_ms": 1})


def test_fragments_are_put_behind_one_another():
    clean = ka.Pipeline().filter(pc.field("amount") > 0).filter(pc.field("amount") > 0)
    write = ka.Pipeline().write_kafka("scored").on_error("skip", retries=1).dead_letters("dead")
    joined = JSON | clean | write
    assert [s.name for s in joined.stages] == [
        "decode_json",
        "filter(amount > 0)",
        "filter(amount > 0) #2",
        "write_kafka(scored)",
    ]
    assert (joined.policy, joined.retries, joined.dead_letter_topic) == ("skip", 1, "dead")
    assert (JSON.on_error("dead_letter") | write).policy == "dead_letter"
    with pytest.raises(ConfigError, match="has a source of its own"):
        JSON | READ


def test_columns_are_known_before_the_start():
    pipeline = (
        JSON.with_columns(cents=pc.field("amount") * 100, country=pc.utf8_upper(pc.field("country")))
        .select("id", "cents", "country", "_kafka.offset", at=pc.field("_kafka", "timestamp"))
        .map_batches(Widened)
    )
    assert pipeline.check().columns == pa.schema(
        [
            pa.field("id", pa.int64(), False),
            pa.field("cents", pa.float64()),
            pa.field("country", pa.string()),
            pa.field("offset", pa.int64()),
            pa.field("at", pa.timestamp("us", tz="UTC")),
            pa.field("more", pa.int32()),
        ]
    )
    assert READ.check().columns == SCHEMA
    assert JSON.map_batches(Known).check().columns == pa.schema({"id": pa.int64()})
    assert READ.raw(text=True).check().columns == pa.schema({"key": pa.string(), "value": pa.string()})


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: ka.Pipeline().filter(pc.field("x") > 0), "pipeline: has no source"),
        (
            lambda: JSON.filter(pc.field("amout") > 0),
            "filter(amout > 0): .* no column 'amout'; did you mean 'amount'",
        ),
        (lambda: JSON.filter(pc.field("country") > 0), r"filter\(country > 0\): .*no kernel"),
        (lambda: JSON.filter(pc.field("amount") + 1), r"filter\(.*\): .* is double: must be true or false"),
        (lambda: JSON.select("id", "nope"), r"select\(id, nope\): there is no column 'nope'"),
        (lambda: JSON.select("_kafka.offsett"), "has no field 'offsett'"),
        (
            lambda: JSON.select("id", "_kafka.offset", offset=pc.field("id")),
            r"select\(.*\): names the column 'offset' twice",
        ),
        (
            lambda: READ.decode_json("a STRUCT<`_kafka`: INT>").select("a._kafka"),
            "'_kafka' can't be a column's name",
        ),
        (lambda: JSON.with_columns(x=pc.field("y")), r"with_columns\(x\): y: there is no column 'y'"),
        (lambda: JSON.decode_json("a INT"), "decode_json #2: needs the record's own column 'value'"),
        (lambda: JSON.map_batches(double), r"map_batches\(double\): has no output schema"),
        (lambda: JSON.write_kafka("x").filter(pc.field("id") > 0), "is a sink, and filter.* comes behind it"),
        (lambda: JSON.with_key("id"), r"with_key\(id\): is for write_kafka"),
        (lambda: JSON.with_key("id").filter(pc.field("id") > 0).write_kafka("x"), "put it just before it"),
        (lambda: JSON.with_key("nope").write_kafka("x"), r"with_key\(nope\): there is no column 'nope'"),
        (lambda: JSON.write_kafka("x", format="columns"), "there is a column 'id'"),
        (lambda: JSON.write_kafka(), "write_kafka: topic: is missing"),
        (lambda: READ.raw().with_key("key").write_kafka("x", format="columns"), "is not for write_kafka"),
        (lambda: JSON.write_parquet("x").on_error("dead_letter"), r"add \.dead_letters\('topic'\)"),
        (lambda: JSON.sql("select 1"), "sql: .*doesn't name {this}"),
        (lambda: JSON.sql("select 1 from {this}").decode_json("a INT"), "comes after a DataFrame stage"),
    ],
)
def test_the_whole_definition_is_checked_and_the_stage_named(make, said):
    pipeline = make()
    with pytest.raises(ConfigError, match=said.replace("filter(amout > 0)", r"filter\(amout > 0\)")):
        pipeline.check()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: JSON.filter("amount > 0"), "accepts expressions"),
        (lambda: JSON.select(pc.field("id")), "has no name: give it one"),
        (lambda: JSON.select("id", "country", "id"), "names a column twice"),
        (lambda: JSON.select("id", id=pc.field("id") + 1), "names a column twice"),
        (lambda: JSON.select("_kafka"), "'_kafka' can't be a column's name"),
        (lambda: JSON.select(), "names no column"),
        (lambda: JSON.with_columns(x="country"), r"pc\.scalar\('country'\)"),
        (lambda: JSON.map_batches(7, schema="id INT"), "is given 7: accepts a function"),
        (lambda: JSON.map_batches(object, schema="id INT"), r"has no __call__\(self, batch\)"),
        (lambda: JSON.map_batches(lambda: 1, schema="id INT"), "too many positional arguments"),
        (lambda: JSON.map_batches(double, fn_constructor_kwargs={"a": 1}), "are for a class"),
        (
            lambda: JSON.map_batches(Enrich, fn_constructor_kwargs={"rat": 1}),
            "unexpected keyword argument 'rat'",
        ),
        (lambda: JSON.map_batches(double, schema="id INT", num_gpus=-1), "num_gpus is -1"),
        (lambda: JSON.map_batches(double, on_error="ignore"), "on_error is 'ignore': accepts 'fail', 'skip'"),
        (
            lambda: JSON.map_batches(double, schema="idd"),
            r"map_batches\(double\): schema: 'idd': expected a type",
        ),
        (lambda: JSON.write_kafka("x", format="xml"), "accepts 'json' or 'columns'"),
        (
            lambda: JSON.write_kafka("x", compresion_type="zstd"),
            r"write_kafka\(x\): compresion_type: .*compression_type",
        ),
        (
            lambda: JSON.write_kafka("large orders"),
            r"write_kafka\(large orders\): has 'large orders': a topic's name",
        ),
        (
            lambda: ka.Pipeline.read_kafka(["a", "b c"], bootstrap_servers="b:1"),
            "topics: has 'b c': a topic's name",
        ),
        (lambda: JSON.write(7), "is given 7"),
        (lambda: JSON.write(Enrich), "which has no write"),
        (lambda: JSON.dead_letters(""), "dead_letters: has '': a topic's name has 1 to 249"),
        (lambda: JSON.dead_letters("dead letters"), "dead_letters: has 'dead letters'"),
        (lambda: JSON.on_error("skip", retries=-1), "retries: is -1"),
        (lambda: JSON.spark(3), "accepts a function from a DataFrame"),
        (lambda: ka.Pipeline.read_kafka(bootstrap_servers="b:1"), "exactly one of topics and pattern"),
        (lambda: ka.Pipeline.read_kafka("t", bootstrap_servers="b:x"), "bootstrap_servers: "),
        (
            lambda: ka.Pipeline.read_kafka("t", bootstrap_servers="b:1", grup_id="g"),
            "did you mean 'group_id'",
        ),
        (
            lambda: ka.Pipeline.read_kafka("t", bootstrap_servers="b:1", retries=1),
            r"\.on_error\(…, retries=…\)",
        ),
        (lambda: JSON.filter(pc.field("id") > 0, name=" "), "name: is ' '"),
    ],
)
def test_wrong_arguments_are_refused_at_once(make, said):
    with pytest.raises(ConfigError, match=said):
        make()


def test_dead_letters_go_to_no_topic_that_is_read() -> None:
    """Each would be read, fail and be sent again, for ever."""
    with pytest.raises(ConfigError, match=r"^dead_letters: is 'orders', which is read here"):
        JSON.write(double, on_error="dead_letter").dead_letters("orders").check()
    read = ka.Pipeline.read_kafka(pattern="orders.*", bootstrap_servers="b:1").write_parquet("x")
    with pytest.raises(ConfigError, match=r"matches the pattern 'orders\.\*' that is read here"):
        read.on_error("dead_letter").dead_letters("orders-dead").check()
    read.on_error("dead_letter").dead_letters("dead-orders").check()
    JSON.write_parquet("x").dead_letters("orders", bootstrap_servers="elsewhere:9092").check()


def test_results_go_to_no_topic_that_is_read() -> None:
    with pytest.raises(
        ConfigError, match=r"^write_kafka\(orders\): is 'orders', which is read here: each result"
    ):
        JSON.write_kafka("orders").check()
    read = ka.Pipeline.read_kafka(pattern="orders.*", bootstrap_servers="b:1").raw()
    with pytest.raises(ConfigError, match=r"matches the pattern 'orders\.\*' that is read here"):
        read.write_kafka("orders-eu").check()
    read.write_kafka("eu-orders").check()
    JSON.write_kafka("orders", bootstrap_servers="elsewhere:9092").check()


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        (
            pc.field("st", "y") > 0,
            r"^filter\(st\.y > 0\): \(st\.y > 0\): there is no 'st\.y': .* has no field 'y'; there are x, total$",
        ),
        (pc.field("st", "totl") > 0, r"has no field 'totl'; did you mean 'total'\?$"),
        (
            pc.field(("st", "x", "z")) > 0,
            r"there is no 'st\.x\.z': int32 has no field 'z', as it is no struct$",
        ),
        (pc.field("sst", "x") > 0, r"there is no column 'sst'; did you mean 'st'\?$"),
        (pc.field("_kafka", "ofset") > 0, r"there is no '_kafka\.ofset': .*; did you mean 'offset'\?$"),
        (pc.field(9) > 0, r"there are 2 columns, numbered from 0: id, st$"),
        (pc.field("st", "x"), r"^filter\(st\.x\): st\.x is int32: must be true or false$"),
    ],
    ids=str,
)
def test_a_path_that_leads_nowhere_is_told_by_its_step(expression, said):
    read = ka.Pipeline.read_kafka("t", bootstrap_servers="b:1").decode_json(
        "id BIGINT, st STRUCT<x: INT, total: INT>"
    )
    with pytest.raises(ConfigError, match=said):
        read.filter(expression).write_parquet("x").check()


cloudpickle = pytest.importorskip("ray.cloudpickle")


def test_code_that_cannot_be_sent_is_told_with_stage_and_variable():
    lock = threading.Lock()
    stuck = JSON.map_batches(lambda batch: lock and batch, schema="id BIGINT", name="locked").write(double)
    with pytest.raises(ConfigError, match=r"^locked: can't be sent to the workers: the variable 'lock': "):
        check_travels(stuck.check(), cloudpickle.dumps)
    rated = JSON.map_batches(Enrich, schema="id BIGINT", fn_constructor_kwargs={"rate": lock}).write(double)
    with pytest.raises(ConfigError, match=r"^map_batches\(Enrich\): fn_constructor_kwargs: .*: 'rate': "):
        check_travels(rated.check(), cloudpickle.dumps)
    written = JSON.write(lambda batch: lock)
    with pytest.raises(ConfigError, match=r"^write\(lambda\): can't be sent .*'lock'"):
        check_travels(written.check(), cloudpickle.dumps)
    check_travels(JSON.write(double).check(), cloudpickle.dumps)


async def later(batch):
    return batch


class Slow:
    def write(self, batch):
        """Takes it."""

    async def close(self):
        """Nobody would await it."""


def test_async_functions_are_refused():
    with pytest.raises(ConfigError, match="is async"):
        JSON.map_batches(later, schema="id INT")
    with pytest.raises(
        ConfigError, match="is given the class Slow, whose close is async: make it a plain method"
    ):
        JSON.write(Slow)


def test_dataframe_stages_are_refused_on_ray_before_the_start():
    pipeline = JSON.spark(lambda df: df.groupBy("country").count()).write_parquet("/tmp/x")
    with pytest.raises(ConfigError, match=r"^spark\(lambda\): is a DataFrame stage, .*\.on_spark\(spark\)"):
        pipeline.check("ray")
    assert pipeline.check("spark").columns is None


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: JSON, "pipeline: has no sink"),
        (
            lambda: ka.Pipeline.read_kafka("t", bootstrap_servers="b:1").write(double),
            "group_id: is required on Ray",
        ),
        (
            lambda: JSON.filter(pc.field("id") > 0, on_error="dead_letter").write(double),
            "no topic for them",
        ),
    ],
)
def test_what_ray_needs_besides(make, said):
    with pytest.raises(ConfigError, match=said):
        make().check("ray")


def test_functions_of_all_kinds_have_names():
    pipeline = (
        JSON.map_batches(double, schema="id INT")
        .map_batches(Enrich(), schema="id INT")
        .map_batches(functools.partial(double), schema="id INT")
        .map_batches(lambda b: b, schema="id INT", name="mine")
    )
    names = ["map_batches(double)", "map_batches(Enrich)", "map_batches(partial)", "mine"]
    assert [s.name for s in pipeline.stages[1:]] == names


def test_explain_says_what_runs_where():
    pipeline = (
        JSON.filter(pc.field("amount") > 0, on_error="skip")
        .map_batches(Enrich, schema="id BIGINT", num_gpus=0.5)
        .map_batches(double, schema="id INT")
        .with_key("id")
        .write_kafka("scored")
    )
    ray = pipeline.explain("ray").splitlines()
    assert ray[0] == "On Ray: orders, group revenue"
    assert "    2 filter(amount > 0)  on_error skip" in ray
    assert "    3 map_batches(Enrich), num_gpus 0.5 in each worker" in ray
    assert sum("in each worker, one batch" in line for line in ray) == 1
    assert "    5 with_key(id) write_kafka(scored)" in ray
    spark = pipeline.explain("spark")
    fused, _, behind = spark.partition("as mapInArrow")
    assert "filter" in fused
    assert "Enrich" not in fused, "a stage with a GPU is not fused"
    assert "map_batches(double)" in behind
    with_sql = JSON.sql("select id from {this}").map_batches(double, schema="id BIGINT").explain("spark")
    assert [line for line in with_sql.splitlines() if line.startswith("  ") and line.endswith(":")] == [
        "  fused into the data source's Python worker, before rows enter the JVM:",
        "  by Spark:",
        "  as mapInArrow, behind the JVM:",
    ]
    with pytest.raises(ConfigError, match="accepts 'ray' or 'spark'"):
        JSON.explain("flink")


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("s3a://bucket/orders", "by Hadoop's name of the file system: write s3://, on every engine"),
        ("S3N://bucket/orders", "write s3://"),
        ("dbfs:/orders", "the URIs that are known begin with file://, s3://"),
        ("file:/orders", "the URIs that are known begin with"),
        ("", "accepts a directory or URI"),
    ],
)
def test_files_have_one_name_on_every_engine(path, said):
    with pytest.raises(ConfigError, match=f"^write_parquet: path is .*{said}"):
        ka.Pipeline().write_parquet(path)
    with pytest.raises(ConfigError, match=f"^path: is .*{said}"):
        ka.ParquetSink(path)
    for fine in ("s3://bucket/x", "hdfs://name/x", "gs://b/x", "file:///x", "/x", "out/of:here", "C:/x"):
        ka.Pipeline().write_parquet(fine)


@pytest.mark.parametrize("kind", ["BIGINT", "TIMESTAMP", "ARRAY<STRING>", "DECIMAL(5,2)", "BOOLEAN"])
@pytest.mark.parametrize("name", ["key", "value"])
def test_columns_that_can_not_be_sent_as_they_are_are_refused_before_the_start(name, kind):
    columns = {"key": "STRING", "value": "BINARY"} | {name: kind}
    schema = ", ".join(f"{column} {of}" for column, of in columns.items())
    pipeline = READ.decode_json(schema).write_kafka("b", format="columns")
    with pytest.raises(
        ConfigError, match=rf"^write_kafka\(b\): .*column '{name}' is .*must be binary or string"
    ):
        pipeline.check()


@pytest.mark.parametrize(
    "kind", [pa.binary(3), pa.large_string(), pa.null(), pa.dictionary(pa.int8(), pa.string())]
)
def test_columns_that_can_be_sent_are_taken(kind):
    schema = pa.schema({"value": kind})
    READ.map_batches(lambda batch: batch, schema=schema).write_kafka("b", format="columns").check()


def test_stages_have_names_of_their_own_whatever_users_call_them():
    given = ["a", "a #3", "a", "a", "a"]
    pipeline = functools.reduce(lambda made, name: made.raw(name=name), given, READ)
    assert [stage.name for stage in pipeline.stages] == ["a", "a #3", "a #2", "a #4", "a #5"]

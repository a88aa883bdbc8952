"""A definition is checked for an engine before anything starts; what runs where is explained."""

import sys
import threading
import weakref

import msgspec
import pyarrow.compute as pc
import pytest
from fakes.definitions import JSON, READ, Enrich, double

import kafka_actors as ka
from kafka_actors.errors import ConfigError
from kafka_actors.pipeline.engines import check_travels


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
        (
            lambda: JSON.write_kafka("x").filter(pc.field("id") > 0),
            r"write_kafka\(x\): is a sink, and filter\(id > 0\) comes behind it: all sinks come last and get the same rows; "
            r"put filter\(id > 0\) before the first one, or in a pipeline of its own",
        ),
        (
            lambda: JSON.write_kafka("x").map_batches(double, schema="id INT").write_parquet("y"),
            r"write_kafka\(x\): is a sink, and map_batches\(double\) comes behind it",
        ),
        (lambda: JSON.write_kafka("x").with_key("id").write_parquet("y"), "put it just before it"),
        (lambda: JSON.write_kafka("x").with_key("id"), r"with_key\(id\): is for write_kafka"),
        (
            lambda: JSON.write_parquet("/tmp/x").write_kafka("x").write_parquet("file:///tmp/x/"),
            r"write_parquet #2: path is 'file:///tmp/x/', as write_parquet has it: each needs a directory of its own",
        ),
        (lambda: JSON.with_key("id"), r"with_key\(id\): is for write_kafka"),
        (lambda: JSON.with_key("id").filter(pc.field("id") > 0).write_kafka("x"), "put it just before it"),
        (lambda: JSON.with_key("nope").write_kafka("x"), r"with_key\(nope\): there is no column 'nope'"),
        (lambda: JSON.write_kafka("x", format="columns"), "there is a column 'id'"),
        (lambda: JSON.write_kafka(), "write_kafka: topic: is missing"),
        (lambda: READ.raw().with_key("key").write_kafka("x", format="columns"), "is not for write_kafka"),
        (lambda: JSON.write_parquet("x").on_error("dead_letter"), r"add \.dead_letters\('topic'\)"),
        (lambda: JSON.sql("select 1"), "sql: .*doesn't name {this}"),
        (
            lambda: JSON.sql("select 1 from {this}").decode_json("a INT"),
            "decode_json.*: comes after a stage whose columns are known only at the start",
        ),
    ],
)
def test_the_whole_definition_is_checked_and_the_stage_named(make, said):
    pipeline = make()
    with pytest.raises(ConfigError, match=said.replace("filter(amout > 0)", r"filter\(amout > 0\)")):
        pipeline.check()


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


def test_each_of_several_sinks_is_checked_and_has_its_own_key() -> None:
    pipeline = JSON.with_key("country").write_kafka("a").write_parquet("b").with_key("id").write_kafka("c")
    checked = pipeline.check("ray")
    keys = {sink.name: None if sink.key is None else sink.key.stage.name for sink in checked.sinks}
    assert keys == {
        "write_kafka(a)": "with_key(country)",
        "write_parquet": None,
        "write_kafka(c)": "with_key(id)",
    }
    assert all(sink.step.before == checked.columns for sink in checked.sinks)
    assert [step.stage.name for step in checked.with_sinks] == ["decode_json", *keys]
    with pytest.raises(ConfigError, match=r"^write_kafka\(orders\): is 'orders', which is read here"):
        JSON.write_parquet("b").write_kafka("orders").check()
    with pytest.raises(ConfigError, match=r"^write\(double\): has on_error='dead_letter', but no topic"):
        JSON.write_kafka("a").write(double, on_error="dead_letter").check()


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


class Order(msgspec.Struct):
    """Workers import it by the name of its module."""

    id: int


def test_a_struct_that_would_arrive_without_its_fields_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Local(msgspec.Struct):
        id: int

    sent = cloudpickle.dumps(Local)
    for known in (
        "_DYNAMIC_CLASS_TRACKER_BY_ID",
        "_DYNAMIC_CLASS_TRACKER_BY_CLASS",
    ):  # another process has none
        empty = weakref.WeakValueDictionary() if known.endswith("ID") else weakref.WeakKeyDictionary()
        monkeypatch.setattr(cloudpickle.cloudpickle, known, empty)
    assert cloudpickle.loads(sent).__struct_fields__ == (), (
        "it arrives whole: there is nothing to refuse any more"
    )
    monkeypatch.undo()
    with pytest.raises(
        ConfigError, match=r"^decode_json: Local is a msgspec Struct that workers can't import"
    ):
        check_travels(READ.decode_json(Local).write(double).check(), cloudpickle.dumps)
    check_travels(READ.decode_json(Order).write(double).check(), cloudpickle.dumps)
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # as for the file of `kafka-actors run`
    try:
        with pytest.raises(ConfigError, match=r"^decode_json: Order is a msgspec Struct"):
            check_travels(READ.decode_json(Order).write(double).check(), cloudpickle.dumps)
    finally:
        cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


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


async def looked_up(batch):
    return batch


def test_explain_names_async_stages_and_what_overlaps():
    pipeline = JSON.map_batches(looked_up, schema="id BIGINT", on_error="skip").write(print)
    ray, spark = pipeline.explain("ray"), pipeline.explain("spark")
    assert "one batch of one partition after another; batches of different partitions overlap:" in ray
    assert "    2 map_batches(looked_up)  on_error skip, async\n" in ray
    assert ", async\n" in spark
    assert "overlap" not in spark
    assert "overlap" not in JSON.write(print).explain("ray")


def keyed(ordering="key", concurrency=64):
    return READ.map_messages(
        double, schema="key BINARY", ordering=ordering, concurrency=concurrency, name="score"
    )


def test_stages_that_say_what_a_run_has_say_the_same():
    assert keyed().map_batches(double, schema="key BINARY").check().run_options == {
        "ordering": ("key", "score"),
        "concurrency": (64, "score"),
    }
    agreeing = keyed(concurrency=None).map_batches(
        double, schema="key BINARY", ordering="key", concurrency=8, name="embed"
    )
    assert agreeing.check().run_options == {"ordering": ("key", "score"), "concurrency": (8, "embed")}
    for other, said in (
        ({"ordering": "unordered"}, "embed: ordering is 'unordered', and score says 'key': a run has one"),
        ({"concurrency": 8}, "embed: concurrency is 8, and score says 64: a run has one; say it once"),
    ):
        with pytest.raises(ConfigError, match=f"^{said}"):
            keyed().map_batches(double, schema="key BINARY", name="embed", **other).check()


def test_an_order_that_spark_does_not_have_is_refused_there_by_the_name_of_its_stage():
    for ordering in ("key", "unordered"):
        with pytest.raises(
            ConfigError, match=f"^score: ordering is '{ordering}', which is for Ray: on Spark"
        ):
            keyed(ordering).write(print).check("spark")
    keyed("partition").write(print).check("spark")
    keyed(None).write(print).check("spark")


def test_explain_says_in_which_order_batches_go_through_the_stages():
    ray = keyed().write(print).explain("ray")
    assert "  in each worker, batches in the order of each key, 64 at once:\n" in ray
    assert "    1 score, ordering key, concurrency 64\n" in ray
    assert "batches in any order, 64 at once" in keyed("unordered").write(print).explain("ray")
    source = ka.Pipeline.read_kafka("t", group_id="g", bootstrap_servers="b:1", ordering="key", concurrency=3)
    assert "batches in the order of each key, 3 at once" in source.raw().write(print).explain("ray")
    assert "concurrency" not in keyed("partition").write(print).explain("spark")


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
    both = JSON.with_key("id").write_kafka("scored").write_parquet("x", on_error="skip")
    assert both.explain("ray").splitlines()[-3:] == [
        "  in each worker, all flushed before offsets are committed:",
        "    2 with_key(id) write_kafka(scored)",
        "    3 write_parquet  on_error skip",
    ]
    assert both.explain("spark").splitlines()[-3] == "  in the tasks of the sinks, each row to all of them:"
    with_sql = JSON.sql("select id from {this}").map_batches(double, schema="id BIGINT").explain("spark")
    assert [line for line in with_sql.splitlines() if line.startswith("  ") and line.endswith(":")] == [
        "  fused into the data source's Python worker, before rows enter the JVM:",
        "  by Spark:",
        "  as mapInArrow, behind the JVM:",
    ]
    with pytest.raises(ConfigError, match="accepts 'ray' or 'spark'"):
        JSON.explain("flink")

"""Which frames have the hidden column, and how failed records go round DataFrame stages."""

from types import SimpleNamespace

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from fakes.registries import RegistryInMemory

import kafka_actors as ka
from kafka_actors.errors import ConfigError, DataLossError

pytest.importorskip("pyspark")
from kafka_actors.spark.engine.stage_groups import (
    ColumnNeeds,
    begin_of_both,
    check_format,
    check_repeatable,
    groups_of,
    needs_of,
    options_of_failed,
    sink_needs,
    steps_to_repeat,
    steps_with_dead_letters,
)
from kafka_actors.spark.source.machines.stream_offsets import StreamOffsets
from kafka_actors.types import TopicPartition

READ = ka.Pipeline.read_kafka("orders", group_id="g", bootstrap_servers="a:1")


DECODED = READ.decode_json("id BIGINT, country STRING")


WRITTEN = DECODED.write_kafka("scored")


# ---------------------------------------------------------------- what is needed


def needs(pipeline):
    checked = pipeline.check("spark")
    groups = groups_of(checked)
    end, asked = sink_needs(checked.sinks)
    return list(zip([group.place for group in groups], needs_of(groups, end, explicit=asked), strict=True))


def test_the_hidden_column_crosses_the_jvm_only_where_it_is_needed():
    grouped = DECODED.sql("select country, count(*) as n from {this} group by country")
    assert needs(DECODED) == [("source", ColumnNeeds())]
    assert needs(DECODED.write_parquet("p")) == [("source", ColumnNeeds())]
    assert needs(DECODED.write_parquet("p", kafka=True)) == [("source", ColumnNeeds(kafka=True))]
    assert needs(WRITTEN) == [("source", ColumnNeeds(kafka=True))]
    assert needs(grouped.write_kafka("x")) == [
        ("source", ColumnNeeds()),
        ("DataFrame", ColumnNeeds(kafka=True)),
    ]
    assert needs(DECODED.sql("select *, _kafka.offset from {this}"))[0] == ("source", ColumnNeeds(kafka=True))
    both = DECODED.write_parquet("p").write_kafka("scored", on_error="dead_letter").dead_letters("dead")
    assert needs(both) == [("source", ColumnNeeds(kafka=True, value=True))]
    assert needs(DECODED.write_parquet("p").write_parquet("q")) == [("source", ColumnNeeds())]
    assert needs(DECODED.spark(lambda df: df, kafka=True))[0] == ("source", ColumnNeeds(kafka=True))
    assert needs(DECODED.spark(lambda df: df).filter(pc.field("_kafka", "offset") > 5))[0][1].kafka
    assert needs(DECODED.spark(lambda df: df).select("_kafka.offset"))[0][1].kafka


def test_a_column_whose_name_holds_that_of_the_hidden_one_asks_for_nothing():
    """A DataFrame stage that got it without asking would group, compare and count by it."""
    read = READ.decode_json("from_kafka BOOLEAN, _kafka_id BIGINT").spark(lambda df: df.distinct())
    for behind in (
        read.filter(pc.field("from_kafka")),
        read.select("_kafka_id"),
        read.with_columns(twice=pc.field("_kafka_id") * 2),
        read.with_key("_kafka_id").write_kafka("x"),
        read.sql("select from_kafka, _kafka_id from {this}"),
    ):
        assert needs(behind)[0] == ("source", ColumnNeeds())


def test_a_later_stage_with_dead_letters_needs_the_values():
    gpu = DECODED.map_batches(len, schema="id BIGINT", num_gpus=1, on_error="dead_letter")
    assert needs(gpu) == [("source", ColumnNeeds(True, True)), ("mapInArrow", ColumnNeeds())]
    assert needs(gpu.write_parquet("p", on_error="fail").dead_letters("d"))[0][1] == ColumnNeeds(True, True)


NO_SESSION = SimpleNamespace(_jvm=None)
ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
OPTIONS = {"subscribe": "orders", "kafka.bootstrap.servers": "a:1"}


DEAD = ka.Pipeline.read_kafka("orders", group_id="g", bootstrap_servers="a:1").dead_letters("dead")


WITH_DEAD_LETTERS = DEAD.decode_json("id BIGINT", on_error="dead_letter")


def test_what_may_fail_differently_cannot_be_worked_on_twice():
    called = WITH_DEAD_LETTERS.map_batches(len, schema="id BIGINT", on_error="dead_letter", name="score")
    check_repeatable(WITH_DEAD_LETTERS.sql("select * from {this}").check("spark"))
    check_repeatable(
        WITH_DEAD_LETTERS.map_batches(len, schema="id BIGINT").sql("select * from {this}").check("spark")
    )
    with pytest.raises(
        ConfigError, match=r"^score: has on_error='dead_letter' before a DataFrame stage of a stream"
    ):
        check_repeatable(called.sql("select * from {this}").check("spark"))


@pytest.mark.parametrize(
    ("decoded", "refused"),
    [
        (lambda r: DEAD.decode(r, on_error="dead_letter"), True),
        (lambda r: DEAD.decode_avro(ORDER, registry=r, on_error="dead_letter"), True),
        (lambda r: DEAD.decode(r, subject="proto", on_error="dead_letter"), True),
        (lambda r: DEAD.raw().decode_key(r, column="shop", subject="orders-value", version=1, on_error="dead_letter"), True),
        (lambda r: DEAD.decode(r, on_error="skip").filter(pc.field("id") > 1, on_error="dead_letter"), True),
        (lambda r: DEAD.decode(r).filter(pc.field("id") > 1, on_error="dead_letter"), False),
        (lambda r: DEAD.decode(r, on_error="skip"), False),
        (lambda r: DEAD.decode(r, on_new_schema="fail", on_error="dead_letter"), False),
        (lambda r: DEAD.decode(r, subject="proto", on_new_schema="fail", on_error="dead_letter"), False),
        (lambda r: DEAD.decode(r, subject="json", on_error="dead_letter"), False),
        (lambda r: DEAD.decode_avro(ORDER, on_error="dead_letter"), False),
    ],
    ids=["chosen", "given", "protobuf", "key", "behind a skip", "fail", "skip", "no new ones", "no new ones of protobuf", "json", "no registry"],
)  # fmt: skip
def test_a_schema_that_the_registry_may_have_the_second_time_is_no_dead_letter_of_a_stream(decoded, refused):
    """A record whose schema was there for one of the two sources only would be neither a row nor a dead letter."""
    registry = RegistryInMemory()
    registry.add("orders-value", ORDER)
    registry.add("proto", 'syntax = "proto3"; message Order { int64 id = 1; }', "PROTOBUF")
    registry.add("json", '{"type": "object", "properties": {"id": {"type": "integer"}}}', "JSON")
    checked = decoded(registry).sql("select 1 as id from {this}").ready().check("spark")
    if not refused:
        check_repeatable(checked)
        return
    with pytest.raises(
        ConfigError,
        match=r"has on_error='dead_letter' before a DataFrame stage of a stream.* the registry .* on_new_schema='fail'",
    ):
        check_repeatable(checked)


def test_failed_records_need_the_stages_up_to_the_last_that_has_dead_letters():
    pipeline = WITH_DEAD_LETTERS.with_columns(a=pc.scalar(1), on_error="dead_letter").filter(
        pc.field("a") == 1
    )
    steps = pipeline.check("spark").steps
    assert [step.stage.name for step in steps_with_dead_letters(steps)] == ["decode_json", "with_columns(a)"]
    assert steps_with_dead_letters(DEAD.raw().check("spark").steps) == ()


def test_values_that_sparks_types_do_not_hold_are_found_by_all_stages_unless_a_function_comes_behind():
    since = DEAD.decode_json(pa.schema({"at": pa.timestamp("ms")}), on_error="dead_letter")
    steps, columns = steps_to_repeat(since.select(then="at").check("spark").steps)
    assert ([step.stage.name for step in steps], columns.names) == (["decode_json", "select(then)"], ["then"])
    behind = since.map_batches(len, schema="id BIGINT").check("spark").steps
    steps, columns = steps_to_repeat(behind)
    assert ([step.stage.name for step in steps], columns.names) == (["decode_json"], [])


def test_two_sources_of_a_stream_begin_where_one_of_them_asked(monkeypatch):
    asked = StreamOffsets({TopicPartition("orders", 0): 3}, initial=True)
    monkeypatch.setattr(
        "kafka_actors.spark.engine.stage_groups.checkpoint_of", lambda spark, checkpoint: Checkpoint(None)
    )
    monkeypatch.setattr("kafka_actors.spark.engine.stage_groups.initial_offsets", lambda *_: asked)
    for start in ("earliest", "latest", '{"orders": {"0": -2}}', '{"orders": {"0": 5, "1": -1}}'):
        assert begin_of_both({**OPTIONS, "startingOffsets": start}, None, NO_SESSION, "c") is asked
    assert (
        begin_of_both({**OPTIONS, "startingOffsets": '{"orders": {"0": 5}}'}, None, NO_SESSION, "c") is None
    )
    given = {**OPTIONS, "startingOffsets": "committed", "kafka.group.id": "g", "commitOffsets": "true"}
    begin = StreamOffsets({TopicPartition("orders", 0): 5}, initial=True)
    assert options_of_failed(given, begin) == OPTIONS
    assert (
        options_of_failed({**OPTIONS, "startingOffsets": "earliest"}, None)["startingOffsets"] == "earliest"
    )


class Checkpoint:
    """A checkpoint of which only the newest file of the offset log exists, or none."""

    def __init__(self, text):
        self.text = text

    def newest_offsets(self, jvm):
        return self.text


GONE = DataLossError("orders", 0, 5, "the start of the range is gone: the log holds offsets 7 to 9")
NOT_NAMED = ConfigError("startingOffsets", "names not all partitions that are read")


@pytest.mark.parametrize("error", [GONE, NOT_NAMED], ids=["gone", "other partitions"])
def test_a_query_that_is_started_again_has_its_start_in_the_checkpoint(monkeypatch, caplog, error):
    """Retention may have taken the records at the old start, or the group's offsets, long after the query passed them."""

    def initial(*_):
        raise error

    found = [Checkpoint("v1"), Checkpoint(None), None]
    monkeypatch.setattr("kafka_actors.spark.engine.stage_groups.initial_offsets", initial)
    monkeypatch.setattr(
        "kafka_actors.spark.engine.stage_groups.checkpoint_of", lambda spark, checkpoint: found.pop(0)
    )
    given = {**OPTIONS, "startingOffsets": "committed", "kafka.group.id": "g"}
    assert begin_of_both(given, None, NO_SESSION, "c") is None
    assert caplog.messages == []
    with pytest.raises(type(error)):
        begin_of_both(given, None, NO_SESSION, "c")
    assert begin_of_both(given, None, NO_SESSION, "c") is None
    assert "can't be seen over Spark Connect" in caplog.text, "a new query's rows have the error themselves"
    assert str(error) in caplog.text
    # Where the query is new after all, no dead letter may be missing.
    assert options_of_failed(given, None) == {**OPTIONS, "startingOffsets": "earliest"}


def test_a_stream_of_two_sources_has_no_place_for_what_sparks_form_leaves_out():
    check_format(OPTIONS)
    with pytest.raises(ConfigError, match=r"^offsetFormat: is for one source, .* the stream has two"):
        check_format({**OPTIONS, "offsetFormat": "spark", "stateLocation": "/c"})

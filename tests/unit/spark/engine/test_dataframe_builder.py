"""How a pipeline becomes DataFrames: with a session that only a test has, which keeps what it is told."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kafka_actors as ka
from kafka_actors.errors import ConfigError

pytest.importorskip("pyspark")

from pyspark.sql.types import LongType, StringType, StructType

from kafka_actors.pipeline.engines import CheckedStage
from kafka_actors.pipeline.stages import DataFrames
from kafka_actors.spark.engine.dataframe_builder import DataFrameBuilder, _frame_of, template
from kafka_actors.spark.engine.frames import PipelineFrame
from kafka_actors.spark.engine.pipeline_source import SourceNames
from kafka_actors.spark.engine.stage_groups import (
    begin_of_both,
    check_format,
    check_repeatable,
    options_of_failed,
    steps_with_dead_letters,
)
from kafka_actors.spark.source.machines.stream_offsets import StreamOffsets
from kafka_actors.types import TopicPartition

OPTIONS = {"subscribe": "orders", "kafka.bootstrap.servers": "a:1"}
READ = ka.Pipeline.read_kafka("orders", group_id="g", bootstrap_servers="a:1").dead_letters("dead")
DECODED = READ.decode_json("id BIGINT", on_error="dead_letter")


class Made:
    """A DataFrame: its columns."""

    def __init__(self, *columns):
        self.schema = StructType()
        for name, kind in columns:
            self.schema.add(name, kind)


def test_a_dataframe_stage_that_leaves_a_name_twice_is_named():
    step = CheckedStage(DataFrames(name="join"), None, None, "fail")
    made = _frame_of(step, Made(("id", LongType()), ("v", StringType())))
    assert (made.columns.names, made.stage) == (["id", "v"], "join")
    with pytest.raises(ConfigError, match=r"^join: has more than one column 'id'"):
        _frame_of(step, Made(("id", LongType()), ("id", LongType())))


def test_stages_behind_other_columns_are_other_objects_in_a_worker():
    """Behind a DataFrame stage the same pipeline's stage may have other columns at the next start."""
    building = DataFrameBuilder(DECODED, None, OPTIONS, SourceNames(None), streaming=False)
    (step,) = building._checked.steps
    one, other = (pa.schema([("id", kind)]) for kind in (pa.int64(), pa.string()))
    keys = [
        building._fusion((step._replace(before=before),), PipelineFrame(one)).key
        for before in (one, other, one)
    ]
    assert keys[0] == keys[2] != keys[1]


def test_what_may_fail_differently_cannot_be_worked_on_twice():
    called = DECODED.map_batches(len, schema="id BIGINT", on_error="dead_letter", name="score")
    check_repeatable(DECODED.sql("select * from {this}").check("spark"))
    check_repeatable(DECODED.map_batches(len, schema="id BIGINT").sql("select * from {this}").check("spark"))
    with pytest.raises(
        ConfigError, match=r"^score: has on_error='dead_letter' before a DataFrame stage of a stream"
    ):
        check_repeatable(called.sql("select * from {this}").check("spark"))


def test_failed_records_need_the_stages_up_to_the_last_that_has_dead_letters():
    pipeline = DECODED.with_columns(a=pc.scalar(1), on_error="dead_letter").filter(pc.field("a") == 1)
    steps = pipeline.check("spark").steps
    assert [step.stage.name for step in steps_with_dead_letters(steps)] == ["decode_json", "with_columns(a)"]
    assert steps_with_dead_letters(READ.raw().check("spark").steps) == ()


def test_two_sources_of_a_stream_begin_where_one_of_them_asked(monkeypatch):
    asked = StreamOffsets({TopicPartition("orders", 0): 3}, initial=True)
    monkeypatch.setattr("kafka_actors.spark.engine.stage_groups.initial_offsets", lambda *_: asked)
    for start in ("earliest", "latest", '{"orders": {"0": -2}}', '{"orders": {"0": 5, "1": -1}}'):
        assert begin_of_both({**OPTIONS, "startingOffsets": start}, None) is asked
    assert begin_of_both({**OPTIONS, "startingOffsets": '{"orders": {"0": 5}}'}, None) is None
    given = {**OPTIONS, "startingOffsets": "committed", "kafka.group.id": "g", "commitOffsets": "true"}
    begin = StreamOffsets({TopicPartition("orders", 0): 5}, initial=True)
    assert options_of_failed(given, begin) == OPTIONS
    assert (
        options_of_failed({**OPTIONS, "startingOffsets": "earliest"}, None)["startingOffsets"] == "earliest"
    )


def test_a_stream_of_two_sources_has_no_place_for_what_sparks_form_leaves_out():
    check_format(OPTIONS)
    with pytest.raises(ConfigError, match=r"^offsetFormat: is for one source, .* the stream has two"):
        check_format({**OPTIONS, "offsetFormat": "spark", "stateLocation": "/c"})


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("select 1 from {this}", "select 1 from {this}"),
        ("select {this[id]} from {this}", "select {this[id]} from {this}"),
        ("select x rlike '[0-9]{3}' from {this}", "select x rlike '[0-9]{{3}}' from {this}"),
        ("select x rlike '[0-9]{{3}}' from {this}", "select x rlike '[0-9]{{3}}' from {this}"),
        ("select x rlike '\\p{Lu}{2,}' from {this}", "select x rlike '\\p{{Lu}}{{2,}}' from {this}"),
        ("select '{' as a, '}' as b from {this}", "select '{{' as a, '}}' as b from {this}"),
        ('select from_json(x, "{}") from {this}', 'select from_json(x, "{{}}") from {this}'),
    ],
)
def test_braces_of_a_query_stand_for_themselves(query, text):
    assert template(query) == text

"""How a pipeline becomes DataFrames: with a session that only a test has, which keeps what it is told."""

import os

import pyarrow as pa
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


class Session:
    """A Spark session of which only the registry of data sources exists."""

    def __init__(self):
        self.registered = []
        self.dataSource = self

    def register(self, made):
        self.registered.append(made.bound)


def test_all_sinks_of_a_pipeline_are_one_data_source_whose_caches_know_the_columns():
    pipeline = DECODED.write_parquet("out").with_key("id").write_kafka("scored").write(print)
    session = Session()
    building = DataFrameBuilder(pipeline, session, OPTIONS, SourceNames(session), streaming=True)
    sinks = building._checked.sinks
    frames = [PipelineFrame(pa.schema([("id", kind)])) for kind in (pa.int64(), pa.string(), pa.int64())]
    made = [building._to_sinks(frame, sinks) for frame in frames]
    plan, other, again = session.registered
    assert (plan.name, len(set(made))) == (made[0], 3)
    assert [stage.path for stage in plan.files] == [os.path.abspath("out")]
    assert [(sink.name, sink.key and sink.key.stage.name) for sink in plan.sinks] == [
        ("write_kafka(scored)", "with_key(id)"),
        ("write(print)", None),
    ]
    assert all(sink.step.before == plan.before.user_schema for sink in plan.sinks)
    assert plan.key == again.key != other.key
    assert len({plan.run, other.run, again.run}) == 3
    assert plan.dead_letters.topic == "dead"


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

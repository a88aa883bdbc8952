"""Rows that one Python worker of Spark packs for the JVM and the next unpacks; Arrow's types as Spark has them."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from fakes.records import records
from fakes.spans import kept_spans
from opentelemetry import trace

import kafka_actors as ka
from kafka_actors.errors import ConfigError, StageError

pytest.importorskip("pyspark")


from kafka_actors.pipeline.rows import KAFKA_FIELD, StageRows, rows_of
from kafka_actors.spark.engine.arguments import source_options
from kafka_actors.spark.engine.frames import PipelineFrame
from kafka_actors.spark.engine.pipeline_source import FusedStages, MapInArrowStages, SourcePlan
from kafka_actors.spark.python_worker import WorkerCache

READ = ka.Pipeline.read_kafka("orders", group_id="g", bootstrap_servers="a:1").on_error("fail", retries=0)


def fusion(pipeline, key, **frame):
    checked = pipeline.check("spark")
    return FusedStages(key, checked.steps, pipeline.retries, PipelineFrame(checked.columns, **frame))


def test_failed_records_are_rows_with_nothing_but_what_is_hidden():
    pipeline = READ.decode_json("id BIGINT NOT NULL, tags ARRAY<STRING>", on_error="dead_letter")
    made = fusion(pipeline, "failed", kafka=True, errors=True)
    schema = made.behind.schema
    assert schema.names == ["id", "tags", "_kafka", "_error"]
    assert schema.field("id").nullable, "there is none in the row of an error"
    source = records([b'{"id": 1, "tags": ["a"]}', b"x"], keys=[b"k", b"l"], headers=[None, [("h", b"1")]])
    good, bad = made.run(source)
    assert good.schema == bad.schema == schema
    (row,) = good.to_pylist()
    assert (row["id"], row["tags"], row["_kafka"]["offset"], row["_error"]) == (1, ["a"], 100, None)
    (row,) = bad.to_pylist()
    assert (row["id"], row["tags"], row["_kafka"]["offset"]) == (None, None, 101)
    assert row["_error"] == {
        "stage": "decode_json",
        "reason": "JSON is malformed: invalid character (byte 0)",
        "key": b"l",
        "value": b"x",
        "headers": [{"key": "h", "value": b"1"}],
        "topic": "orders",
        "partition": 3,
        "offset": 101,
        "timestamp": source.column("timestamp")[1].as_py(),
    }


@pytest.mark.parametrize("value", [False, True], ids=["plain", "with values"])
def test_users_see_the_hidden_column_if_they_ask_and_never_the_value_in_it(value):
    source = records([b"1", b"2"])
    rows = rows_of(source)._replace(batch=source.select(["key"]))
    frame = PipelineFrame(pa.schema({"key": pa.binary()}), kafka=True, value=value)
    good, _ = frame.split(frame.pack(rows, source))
    good = good.slice(1)
    assert frame.for_user(good, kafka=False).schema.names == ["key"]
    shown = frame.for_user(good, kafka=True)
    assert shown.schema.field("_kafka") == KAFKA_FIELD
    assert [row["offset"] for row in shown["_kafka"].to_pylist()] == [101]
    bare = PipelineFrame(frame.columns)
    assert bare.for_user(good.select(["key"]), kafka=True).schema.names == ["key"]


EVER = 2**63 - 1
"""Milliseconds beyond what microseconds in 64 bits hold, which are Spark's."""


def since(batch):
    at = [int(value) for value in batch["value"].to_pylist()]
    return pa.record_batch({"id": range(len(at)), "at": pa.array(at, pa.timestamp("ms"))})


def pipeline_since(policy):
    columns = pa.schema({"id": pa.int64(), "at": pa.timestamp("ms")})
    return READ.map_batches(since, schema=columns, name="since", on_error=policy)


BEYOND = str(EVER).encode()
VALUES = records([b"1", b"2", *[BEYOND] * 81, b"3"])


def test_a_value_that_sparks_type_does_not_hold_fails_by_its_record():
    with pytest.raises(
        StageError, match=r"^stage since failed on orders-3 offset 102 after .*on Spark, column 'at' is times"
    ):
        list(fusion(pipeline_since("fail"), "beyond, fail").run(VALUES))


def test_a_record_whose_value_sparks_type_does_not_hold_is_a_dead_letter_alone():
    made = fusion(pipeline_since("dead_letter"), "beyond, dead", kafka=True, errors=True)
    good, bad = made.run(VALUES)
    assert [row["_kafka"]["offset"] for row in good.to_pylist()] == [100, 101, 183]
    errors = [row["_error"] for row in bad.to_pylist()]
    assert [error["offset"] for error in errors] == [*range(102, 183)]
    assert (errors[0]["stage"], errors[0]["value"]) == ("since", BEYOND)


def test_a_record_whose_value_sparks_type_does_not_hold_is_skipped_alone(caplog):
    caplog.set_level("INFO", "kafka_actors")
    made = fusion(pipeline_since("skip"), "beyond, skip", kafka=True)
    (good,) = made.run(VALUES)
    assert [row["_kafka"]["offset"] for row in good.to_pylist()] == [100, 101, 183]
    assert "stage since: 81 records, the first: on Spark, column 'at' is" in caplog.text
    assert list(made.run(VALUES.slice(2, 5))) == [], "no batch without rows"


@pytest.mark.parametrize(
    "more",
    [
        lambda p: p.filter(pc.field("id") >= 0),
        lambda p: p.select("id", "at"),
        lambda p: p.with_columns(other=pc.field("id")).select(then=pc.field("at")),
        lambda p: p.with_columns(st=pc.make_struct(pc.field("id"), field_names=["id"])).select("st.id", "at"),
    ],
    ids=["filter", "select", "other name", "path"],
)
def test_a_value_that_only_passes_through_a_stage_fails_by_the_policy_of_the_one_that_made_it(more):
    made = fusion(more(pipeline_since("skip")), f"passes {id(more)}", kafka=True)
    assert [batch.num_rows for batch in made.run(VALUES)] == [3]


@pytest.mark.parametrize(
    ("more", "stage"),
    [
        (lambda p: p.with_columns(at=pc.field("at").cast("timestamp[s]", safe=False)), "with_columns"),
        (lambda p: p.select(st=pc.make_struct(pc.field("at"), field_names=["at"])), "select"),
    ],
    ids=["column", "struct"],
)
def test_a_value_that_a_later_stage_made_fails_by_its_own_policy(more, stage):
    made = fusion(more(pipeline_since("skip")), f"made {id(more)}", kafka=True)
    with pytest.raises(StageError) as caught:
        list(made.run(VALUES))
    assert caught.value.stage.startswith(stage)


def test_a_column_that_is_left_out_before_spark_gets_it_may_hold_any_value():
    made = fusion(pipeline_since("fail").select("id"), "left out before")
    assert [batch.num_rows for batch in made.run(VALUES)] == [84]


def test_failed_records_can_be_had_alone_and_left_out():
    pipeline = READ.decode_json("id BIGINT NOT NULL", on_error="dead_letter")
    source = records([b'{"id": 1}', b"x"])
    steps = pipeline.check("spark").steps
    alone = FusedStages("alone", steps, 0, PipelineFrame(pa.schema([]), errors=True), failed_only=True)
    (bad,) = alone.run(source)
    assert [(list(row), row["_error"]["value"]) for row in bad.to_pylist()] == [(["_error"], b"x")]
    (good,) = fusion(pipeline, "left out").run(source)
    assert good.to_pydict() == {"id": [1]}


def test_a_record_whose_value_sparks_type_does_not_hold_is_found_where_failed_records_are_had_alone():
    steps = pipeline_since("dead_letter").select("at").check("spark").steps
    behind = PipelineFrame(steps[-1].behind, errors=True)
    (bad,) = FusedStages("beyond, alone", steps, 0, behind, failed_only=True).run(VALUES)
    assert [row["_error"]["offset"] for row in bad.to_pylist()] == [*range(102, 183)]


def test_what_spark_has_not_is_named_by_the_stage_that_made_it():
    odd = PipelineFrame(pa.schema([("t", pa.duration("s"))]), stage="map_batches(f)")
    with pytest.raises(ConfigError, match=r"^map_batches\(f\): column 't' is duration"):
        _ = odd.user_schema


def test_without_dead_letters_the_columns_are_the_pipelines(capsys):
    made = fusion(READ.decode_json("id BIGINT NOT NULL", on_error="skip"), "without")
    assert made.behind.schema == pa.schema([pa.field("id", pa.int64(), False)])
    (batch,) = made.run(records([b'{"id": 1}', b"x"]))
    assert batch.to_pydict() == {"id": [1]}


def test_a_column_with_the_name_of_the_hidden_one_is_refused():
    pipeline = READ.decode_json("_error STRING", on_error="dead_letter")
    with pytest.raises(ConfigError, match="makes a column '_error'"):
        _ = fusion(pipeline, "name", errors=True).behind.schema


def packed(frame, *parts):
    """The batches of several partitions in one, as Spark hands rows over, in the session's own time zone."""
    batches = [frame.pack(rows, source) for rows, source in parts]
    whole = pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
    if not frame.kafka:
        return whole
    at = whole.schema.get_field_index("_kafka")
    fields = [
        pa.field(f.name, pa.timestamp("us", tz="Europe/Berlin")) if f.name == "timestamp" else f
        for f in whole.schema.field(at).type
    ]
    return whole.set_column(at, "_kafka", whole.column(at).cast(pa.struct(fields)))


def test_rows_come_back_by_partition_each_with_its_record():
    frame = PipelineFrame(pa.schema({"id": pa.int64()}), kafka=True, value=True)
    first = records([b"a", b"b", b"c"], keys=[b"1", None, b"3"], partition=0, first=10)
    second = records([b"d", b"e"], partition=1, first=12, headers=[[("h", b"1")], None])
    ids = pa.RecordBatch.from_pydict({"id": [0, 1, 2, 3]})
    rows = StageRows(ids, np.array([0, 0, 2, -1], dtype=np.int32))  # two of one record; one of none
    more = StageRows(pa.RecordBatch.from_pydict({"id": [4, 5]}), np.array([0, 1], dtype=np.int32))
    good, failed = frame.split(packed(frame, (rows, first), (more, second)))
    assert failed is None
    one, two = frame.parts(good)
    assert one.rows.batch.to_pydict() == {"id": [0, 1, 2, 3]}
    assert one.rows.origin.tolist() == [0, 0, 1, -1]
    assert one.source.drop_columns(["timestampType"]).equals(
        first.take(pa.array([0, 2])).drop_columns(["timestampType"])
    )
    assert two.rows.origin.tolist() == [0, 1]
    assert two.source.drop_columns(["timestampType"]).equals(second.drop_columns(["timestampType"]))


def test_where_no_record_is_known_all_rows_are_one_part():
    frame = PipelineFrame(pa.schema({"id": pa.int64()}))
    good, _ = frame.split(pa.RecordBatch.from_pydict({"id": [1, 2]}))
    (part,) = frame.parts(good)
    assert part.rows.origin.tolist() == [-1, -1]
    assert part.source.num_rows == 1
    assert list(frame.parts(good.slice(0, 0))) == []


def wrong(batch):
    if pc.any(pc.equal(batch["id"], 2)).as_py():
        raise ValueError("no 2")
    return batch


def test_a_stage_behind_the_source_has_the_records_for_its_errors_and_hands_earlier_ones_on():
    decode = READ.decode_json("id BIGINT", on_error="dead_letter")
    before = fusion(decode, "before", kafka=True, value=True, errors=True)
    source = records([b'{"id": 1}', b"x", b'{"id": 2}', b'{"id": 3}'], partition=5)
    batches = list(before.run(source))
    step = decode.map_batches(wrong, schema="id BIGINT", name="score", on_error="dead_letter")
    after = FusedStages(
        "after", step.check("spark").steps[1:], 0, PipelineFrame(pa.schema({"id": pa.int64()}), errors=True)
    )
    rows = pa.Table.from_batches(MapInArrowStages(before.behind, after)(batches)).to_pylist()
    assert [row["id"] for row in rows if row["_error"] is None] == [1, 3]
    dead = {row["_error"]["offset"]: row["_error"] for row in rows if row["_error"] is not None}
    assert {offset: (e["stage"], e["value"], e["partition"]) for offset, e in dead.items()} == {
        101: ("decode_json", b"x", 5),
        102: ("score", b'{"id": 2}', 5),
    }


def test_a_stage_behind_the_source_names_the_place_and_one_behind_a_dataframe_stage_itself():
    decode = READ.decode_json("id BIGINT")
    step = decode.map_batches(wrong, schema="id BIGINT", name="score")
    frame = PipelineFrame(pa.schema({"id": pa.int64()}), kafka=True)
    stages = MapInArrowStages(frame, FusedStages("named", step.check("spark").steps[1:], 0, frame))
    batch = frame.pack(*_decoded(records([b"1", b"2"], partition=4)))
    with pytest.raises(StageError, match=r"stage score failed on orders-4 offsets 100-101 after 1 attempt"):
        list(stages([batch]))
    plain = PipelineFrame(pa.schema({"id": pa.int64()}))
    stages = MapInArrowStages(plain, FusedStages("unnamed", step.check("spark").steps[1:], 0, plain))
    with pytest.raises(
        StageError, match=r"stage score failed on rows of no one record after 1 attempt: .*no 2"
    ):
        list(stages([pa.RecordBatch.from_pydict({"id": [1, 2]})]))


def _decoded(source):
    ids = pa.RecordBatch.from_pydict({"id": [int(v) for v in source.column("value").to_pylist()]})
    return rows_of(source)._replace(batch=ids), source


def test_a_process_keeps_what_it_used_last():
    closed = []
    kept = WorkerCache(closed.append, most=2)
    assert kept.get("a", lambda: "A") == kept.get("a", lambda: "again") == "A"
    kept.get("b", lambda: "B")
    kept.get("a", lambda: "again")
    kept.get("c", lambda: "C")
    assert closed == ["B"]
    kept.drop("a")
    kept.clear()
    assert closed == ["B", "A", "C"]


def test_what_close_raises_is_only_told(caplog):
    kept = WorkerCache(lambda thing: 1 / 0)
    kept.get("a", lambda: "A")
    kept.drop("a")
    assert "ZeroDivisionError" in caplog.text


def test_the_stages_on_a_batch_are_a_span_that_is_current_in_them_and_a_failed_one_says_so():
    seen = []

    def look(batch):
        seen.append(trace.get_current_span().get_span_context().span_id)
        if len(seen) > 1:
            raise ValueError("a record's text")
        return batch

    made = fusion(READ.decode_json("id BIGINT").map_batches(look, schema="id BIGINT"), "spans")
    context = b"00-" + b"1" * 32 + b"-" + b"2" * 16 + b"-01"
    source = records([b'{"id": 1}', b'{"id": 2}'], headers=[None, [("traceparent", context)]])
    with kept_spans() as ended:
        list(made.run(source))
        with pytest.raises(StageError):
            list(made.run(source))
        good, bad = ended()
    assert (good.name, good.kind) == ("process orders", trace.SpanKind.CONSUMER)
    assert seen == [good.context.span_id, bad.context.span_id]
    assert [link.context.span_id for link in good.links] == [int("2" * 16, 16)]
    assert good.attributes["messaging.batch.message_count"] == 2
    assert (good.status.is_ok, bad.status.is_ok) == (True, False)
    assert "a record's text" not in bad.to_json()


def test_rows_that_know_no_record_are_no_messages_and_so_no_span():
    step = READ.decode_json("id BIGINT").map_batches(lambda batch: batch, schema="id BIGINT")
    frame = PipelineFrame(pa.schema({"id": pa.int64()}))
    stages = MapInArrowStages(frame, FusedStages("without records", step.check("spark").steps[1:], 0, frame))
    with kept_spans() as ended:
        (batch,) = stages([pa.RecordBatch.from_pydict({"id": [1, 2]})])
        assert ended() == ()
    assert batch.to_pydict() == {"id": [1, 2]}


ORDERS = ka.Pipeline.read_kafka(
    "orders",
    group_id="g",
    bootstrap_servers=["a:1", "b:2"],
    sasl_mechanism="PLAIN",
    sasl_plain_username="u",
    sasl_plain_password="sesame",
    security_protocol="SASL_PLAINTEXT",
    isolation_level="read_committed",
    start_timeout_s=5,
)


def test_the_options_of_the_source_are_the_pipelines_as_text():
    assert source_options(ORDERS.source) == {
        "subscribe": "orders",
        "kafka.bootstrap.servers": "a:1,b:2",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.plain.username": "u",
        "kafka.sasl.plain.password": "sesame",
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.isolation.level": "read_committed",
        "includeHeaders": "true",
    }


def test_a_plan_for_spark_shows_no_password():
    plan = SourcePlan("orders", None, source_options(ORDERS.source))
    assert "sesame" in plan.options["kafka.sasl.plain.password"]
    assert "sesame" not in repr(plan)

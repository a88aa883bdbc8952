"""Stages on batches: the columns that were promised, and each row's record known."""

import asyncio
import datetime
import decimal
import gc
import weakref

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from fakes.records import records

from kafka_actors.base.tasks import carried_out_async
from kafka_actors.errors import StageError
from kafka_actors.pipeline import Pipeline
from kafka_actors.pipeline.fused import FusedSteps

READ = Pipeline.read_kafka("orders", bootstrap_servers="localhost:9092")
JSON = READ.decode_json("id BIGINT, amount DOUBLE")
SOURCE = records(
    [b'{"id": %d, "amount": %d}' % (n, n - 3) for n in range(8)], keys=[b"k%d" % n for n in range(8)]
)


def run(pipeline, source=SOURCE, **more):
    return FusedSteps(pipeline.check().steps, **more).run(source)


def ids(outcome):
    return [i for rows in outcome.rows for i in rows.batch["id"].to_pylist()]


def origins(outcome):
    return [o for rows in outcome.rows for o in rows.origin.tolist()]


def test_filter_keeps_what_is_true_and_drops_null():
    source = records([b'{"id": 1, "amount": 1}', b'{"id": 2}', b'{"id": 3, "amount": -1}'])
    assert ids(run(JSON.filter(pc.field("amount") > 0), source)) == [1]


def test_columns_are_chosen_computed_and_taken_from_the_record():
    outcome = run(
        JSON.filter(pc.field("amount") > 0)
        .with_columns(twice=pc.field("amount") * 2)
        .select("id", "twice", "_kafka.offset", key=pc.field("_kafka", "key"))
        .filter(pc.field("_kafka", "offset") != 105)
    )
    (rows,) = outcome.rows
    assert rows.batch.to_pydict() == {
        "id": [4, 6, 7],
        "twice": [2.0, 6.0, 8.0],
        "offset": [104, 106, 107],
        "key": [b"k4", b"k6", b"k7"],
    }
    kafka = rows.with_kafka(SOURCE)["_kafka"].to_pylist()
    assert [k["offset"] for k in kafka] == [104, 106, 107]
    assert kafka[0] == {
        "topic": "orders",
        "partition": 3,
        "offset": 104,
        "timestamp": SOURCE["timestamp"][4].as_py(),
        "key": b"k4",
        "headers": None,
    }


def test_a_column_with_a_dot_in_its_name_keeps_it_and_a_path_ends_with_its_last_part():
    schema = "`host.name` STRING, `service.name` STRING, host STRUCT<name: STRING, ip: STRING>"
    source = records([b'{"host.name": "a", "service.name": "b", "host": {"name": "c", "ip": "d"}}'])
    dotted = READ.decode_json(schema).select("host.name", "service.name", "host.ip", name="choose")
    (rows,) = run(dotted, source).rows
    assert rows.batch.to_pylist() == [{"host.name": "a", "service.name": "b", "ip": "d"}]
    (rows,) = run(READ.decode_json(schema).select("service.name"), source).rows
    assert rows.batch.to_pylist() == [{"service.name": "b"}]


def test_expressions_that_fail_on_a_row_take_out_that_row():
    source = records([b"1", b"two", b"3"])
    pipeline = READ.raw(text=True).select(n=pc.field("value").cast(pa.int64()), on_error="skip")
    outcome = run(pipeline, source)
    assert [n for rows in outcome.rows for n in rows.batch["n"].to_pylist()] == [1, 3]
    assert [(f.record, f.stage) for f in outcome.failures] == [(1, "select(n)")]


def test_a_function_gets_batches_without_the_hidden_column_and_its_rows_keep_their_records():
    seen = []

    def double(batch):
        seen.append(batch.schema.names)
        return pa.record_batch({"id": pc.multiply(batch["id"], 2)})

    outcome = run(JSON.filter(pc.field("id") >= 5).map_batches(double, schema="id BIGINT"))
    assert seen == [["id", "amount"]]
    assert ids(outcome) == [10, 12, 14]
    assert origins(outcome) == [5, 6, 7]


def halves(batch):
    yield batch.slice(0, 3)
    yield batch.slice(3, 0)
    yield pa.Table.from_batches([batch.slice(3)])


@pytest.mark.parametrize(
    ("function", "wanted", "of"),
    [
        (halves, list(range(8)), list(range(8))),
        (lambda b: [b.slice(0, 4), b.slice(4)], list(range(8)), list(range(8))),
        (lambda b: None, [], []),
        (lambda b: [], [], []),
        (lambda b: b.slice(0, 2), [0, 1], [-1, -1]),
        (lambda b: [b, b.slice(0, 1)], [*range(8), 0], [-1] * 9),
    ],
)
def test_what_a_function_may_return(function, wanted, of):
    outcome = run(JSON.map_batches(function, schema="id BIGINT, amount DOUBLE"))
    assert ids(outcome) == wanted
    assert origins(outcome) == of, "rows of which nobody knows the record belong to none"


class DataFrame(list):
    """Stands for pandas' DataFrame, which yields the names of its columns."""


def test_what_is_no_batch_is_named_with_what_it_came_in():
    for result, said in (
        (7, "it returned an int: give"),
        ({"id": [1]}, "it returned a dict: give"),
        ([SOURCE, [5]], "it returned an int in a list: give"),
        (DataFrame(["id"]), "it returned a str in a DataFrame: give"),
    ):
        with pytest.raises(StageError, match=said):
            run(JSON.map_batches(lambda _, result=result: result, schema="id BIGINT"))


def test_a_function_that_asks_for_the_hidden_column_may_drop_and_reorder_rows():
    def some(batch):
        assert batch.schema.names[-1] == "_kafka"
        return batch.take(pa.array([6, 1, 1]))

    outcome = run(JSON.map_batches(some, schema="id BIGINT, amount DOUBLE", kafka=True))
    assert ids(outcome) == [6, 1, 1]
    assert origins(outcome) == [6, 1, 1]
    with pytest.raises(StageError, match="did not return it"):
        run(JSON.map_batches(lambda b: b.select(["id"]), schema="id BIGINT", kafka=True))


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ({"id": [1.5]}, "column 'id' is double and its schema says int64"),
        ({"id": [2**40], "small": [2**40]}, "column 'small'.*int32"),
        ({"small": [1]}, "gave no column 'id'"),
        ({"id": [1], "small": [1], "more": [1]}, "gave a column 'more' that its schema lacks"),
        ({"id": [None], "small": [1]}, "column 'id' has nulls"),
    ],
)
def test_every_batch_is_cast_to_the_promised_schema_or_refused(result, said):
    calls = []

    def wrong(batch):
        calls.append(1)
        return [pa.record_batch({"id": [1], "small": [1]}), pa.record_batch(result)]

    schema = pa.schema([pa.field("id", pa.int64(), False), pa.field("small", pa.int32())])
    with pytest.raises(
        StageError, match=f"stage map_batches.wrong. failed on orders-3 offsets 100-107 .*{said}"
    ):
        run(JSON.map_batches(wrong, schema=schema), retries=3)
    assert len(calls) == 1, "no other try mends it"


def test_a_cast_that_changes_no_value_is_made_and_columns_go_by_name():
    def other(batch):
        return pa.record_batch(
            {"text": batch["id"].cast(pa.string()).dictionary_encode(), "id": batch["id"].cast(pa.int8())}
        )

    (rows,) = run(JSON.map_batches(other, schema="id BIGINT, text STRING")).rows
    assert rows.batch.schema == pa.schema({"id": pa.int64(), "text": pa.string()})


def test_flat_map_makes_any_number_of_rows_of_a_row():
    def repeat(row):
        return [{"id": row["id"], "n": n} for n in range(row["id"])]

    outcome = run(JSON.filter(pc.field("id") < 4).flat_map(repeat, schema="id BIGINT, n INT"))
    assert ids(outcome) == [1, 2, 2, 3, 3, 3] == origins(outcome)
    with pytest.raises(StageError, match="column 'm' that its schema lacks"):
        run(JSON.flat_map(lambda row: [{"m": 1}], schema="id BIGINT"))


def by_message(message):
    return None if message.offset % 3 else {"key": message.key, "n": message.offset}


async def by_message_async(message):
    return by_message(message)


@pytest.mark.parametrize("function", [by_message, by_message_async])
def test_a_function_over_messages_makes_a_row_or_none_of_each_record(function):
    fused = FusedSteps(READ.map_messages(function, schema="key BINARY, n INT, more STRING").check().steps)
    (rows,) = asyncio.run(carried_out_async(fused.calls(SOURCE))).rows
    assert rows.batch.to_pydict() == {"key": [b"k2", b"k5"], "n": [102, 105], "more": [None, None]}
    assert rows.origin.tolist() == [2, 5]
    assert rows.batch.schema.field("n").type == pa.int32()


def test_what_a_function_over_messages_can_not_give_as_a_row_is_named():
    for returned, said in (
        ([{"n": 1}], "it gave a list as a row: give a dict"),
        ({"m": 1}, "it gave a column 'm' that its schema lacks; there are n"),
        ({"n": 2**40}, "column 'n'"),
    ):
        with pytest.raises(StageError, match=said):
            run(READ.map_messages(lambda message, row=returned: row, schema="n INT"), sleep=lambda s: None)


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        ({"id": 1}, "it returned a dict: give several rows"),
        ("id", "it returned a str: give several rows"),
        (7, "it returned an int: give several rows"),
        (["id"], "it gave a str as a row: give a dict"),
    ],
)
def test_what_flat_map_can_not_take_for_rows_is_named(returned, said):
    with pytest.raises(StageError, match=said):
        run(JSON.flat_map(lambda row: returned, schema="id BIGINT"))


@pytest.mark.parametrize(
    ("schema", "value", "said"),
    [
        ("x BIGINT", 5.5, "5.5 is no whole number"),
        ("x INT", decimal.Decimal("5.5"), "is no whole number"),
        ("x BIGINT", float("nan"), "NaN"),
        ("x ARRAY<STRUCT<n: INT>>", [{"n": 1}, {"n": 5.5}], "5.5 is no whole number"),
        ("x MAP<STRING, INT>", {"a": 5.5}, "5.5 is no whole number"),
        ("x MAP<STRING, INT>", [("a", 5.5)], "5.5 is no whole number"),
        (pa.schema({"x": pa.timestamp("ms")}), datetime.datetime(2026, 1, 2, microsecond=5), "lose data"),  # noqa: DTZ001
        (pa.schema({"x": pa.duration("s")}), datetime.timedelta(milliseconds=5), "lose data"),
        ("x STRING", 5, "got a 'int'"),
        ("x DATE", datetime.datetime(2026, 1, 2, 12), "2026-01-02 12:00:00 has a time of day"),  # noqa: DTZ001
        ("x FLOAT", 1e300, r"1e\+300 is too large"),
        ("x TIMESTAMP", pd.Timestamp("2026-01-02T03:04:05.000000006Z"), "has nanoseconds"),
        ("x TIMESTAMP_NTZ", datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC), r"\+00:00 has a time zone"),
        ("x ARRAY<TIMESTAMP_NTZ>", [pd.Timestamp("2026-01-02T03:04:05+05:00")], r"\+05:00 has a time zone"),
        ("x ARRAY<TIMESTAMP>", [np.datetime64("2026-01-02T03:04:05.000000006")], ""),
    ],
)
def test_a_value_of_a_row_that_its_column_would_change_is_refused_and_the_column_named(schema, value, said):
    pipeline = JSON.flat_map(lambda row: [{"x": value}], schema=schema, name="split")
    with pytest.raises(StageError, match=f"stage split failed .*CastError: column 'x': .*{said}"):
        run(pipeline)


@pytest.mark.parametrize(
    ("schema", "value", "made"),
    [
        ("x BIGINT", 5.0, 5),
        ("x BIGINT", np.int32(5), 5),
        ("x BIGINT", 2**63 - 1, 2**63 - 1),
        ("x ARRAY<BIGINT>", np.array([1.0, 2.0]), [1, 2]),
        ("x STRUCT<n: INT, s: STRING>", {"n": 5.0, "more": 1}, {"n": 5, "s": None}),
        ("x MAP<STRING, INT>", {"a": 1, "b": None}, [("a", 1), ("b", None)]),
        ("x DOUBLE", 5, 5.0),
        ("x DATE", datetime.datetime(2026, 1, 2), datetime.date(2026, 1, 2)),  # noqa: DTZ001
        ("x FLOAT", float("-inf"), float("-inf")),
        (pa.schema({"x": pa.timestamp("ms")}), 1_767_312_000_000, datetime.datetime(2026, 1, 2)),  # noqa: DTZ001
        (pa.schema({"x": pa.timestamp("s")}), np.int64(1_767_312_000), datetime.datetime(2026, 1, 2)),  # noqa: DTZ001
        (pa.schema({"x": pa.timestamp("us")}), 1_767_312_000_000_000, datetime.datetime(2026, 1, 2)),  # noqa: DTZ001
        (pa.schema({"x": pa.duration("s")}), 5, datetime.timedelta(seconds=5)),
        (pa.schema({"x": pa.time32("ms")}), 5_000, datetime.time(0, 0, 5)),
        (
            pa.schema(
                {
                    "x": pa.struct(
                        [("n", pa.int64()), ("of", pa.list_(pa.map_(pa.string(), pa.duration("ms"))))]
                    )
                }
            ),
            {"n": 7, "of": [{"a": 5_000, "b": datetime.timedelta(seconds=1)}], "more": 1},
            {"n": 7, "of": [[("a", datetime.timedelta(seconds=5)), ("b", datetime.timedelta(seconds=1))]]},
        ),
    ],
)
def test_a_value_of_a_row_that_its_column_can_hold_is_taken(schema, value, made):
    (rows,) = run(JSON.flat_map(lambda row: [{"x": value}, {"x": None}], schema=schema)).rows
    assert rows.batch["x"].to_pylist()[:2] == [made, None]


class Model:
    made = 0
    closed = 0

    def __init__(self, by):
        type(self).made += 1
        self.by = by

    def __call__(self, batch):
        return batch.set_column(0, "id", pc.add(batch["id"], self.by))

    def close(self):
        type(self).closed += 1


def test_a_class_is_made_once_and_closed_at_the_end():
    Model.made = Model.closed = 0
    pipeline = JSON.map_batches(Model, schema="id BIGINT, amount DOUBLE", fn_constructor_kwargs={"by": 100})
    fused = FusedSteps(pipeline.check().steps)
    for _ in range(3):
        assert ids(fused.run(SOURCE)) == list(range(100, 108))
    assert (Model.made, Model.closed) == (1, 0)
    fused.close()
    assert (Model.made, Model.closed) == (1, 1)


def test_what_a_constructor_raises_comes_through_and_those_before_are_closed():
    class Broken:
        def __init__(self):
            raise FileNotFoundError("no such model")

        def __call__(self, batch):
            return batch

    Model.made = Model.closed = 0
    pipeline = JSON.map_batches(
        Model, schema="id BIGINT, amount DOUBLE", fn_constructor_kwargs={"by": 1}
    ).map_batches(Broken, schema="id BIGINT, amount DOUBLE")
    with pytest.raises(FileNotFoundError, match="no such model") as raised:
        FusedSteps(pipeline.check().steps)
    line = Broken.__init__.__code__.co_firstlineno + 1
    assert raised.value.__notes__ == [
        f"raised by the constructor of Broken (test_stage_steps.py, line {line})",
        "raised when stage map_batches(Broken) was made",
    ]
    assert (Model.made, Model.closed) == (1, 1)


def nothing(caplog):
    return [r.getMessage() for r in caplog.records if "has returned None" in r.getMessage()]


@pytest.mark.parametrize("stage", ["map_batches", "map_messages", "flat_map"])
def test_a_function_that_returns_none_each_time_is_told_of_once(stage, caplog):
    before = READ if stage == "map_messages" else JSON
    fused = FusedSteps(
        getattr(before, stage)(lambda row: None, schema="id BIGINT", name="enrich").check().steps
    )
    for _ in range(12):
        assert ids(fused.run(SOURCE)) == []
    fused.close()
    (said,) = nothing(caplog)
    assert said.startswith("enrich has returned None for each of its 5 batches so far")


def test_few_batches_of_nothing_are_told_of_at_the_end_and_some_are_nothing_special(caplog):
    few = FusedSteps(JSON.map_batches(lambda batch: None, schema="id BIGINT", name="few").check().steps)
    few.run(SOURCE)
    assert nothing(caplog) == []
    few.close()
    assert len(nothing(caplog)) == 1
    given = [None, None, pa.RecordBatch.from_pydict({"id": [1]}), *[None] * 20]
    some = FusedSteps(JSON.map_batches(lambda batch: given.pop(0), schema="id BIGINT").check().steps)
    unused = FusedSteps(JSON.map_batches(lambda batch: None, schema="id BIGINT").check().steps)
    while given:
        some.run(SOURCE)
    some.close()
    unused.close()
    assert len(nothing(caplog)) == 1


@pytest.mark.parametrize(
    ("schema", "value", "said"),
    [
        ("id BIGINT", 2**70, "column 'id': a number is too large for int64"),
        ("id ARRAY<BIGINT>", [2**70], "column 'id': a number is too large for list<item: int64>"),
        ("id DATE", 2**70, "column 'id': a number is too large for date32[day]"),
    ],
)
def test_a_number_that_is_too_large_is_told_by_the_type(schema, value, said):
    with pytest.raises(StageError) as failed:
        run(
            JSON.flat_map(lambda row: [{"id": value}], schema=schema),
            SOURCE.slice(0, 1),
            sleep=lambda s: None,
        )
    assert said in str(failed.value)
    if schema == "id BIGINT":
        with pytest.raises(StageError, match=said):
            run(READ.decode_json(schema), records([b'{"id": %d}' % value]))


def test_a_batch_is_let_go_of_when_it_is_done():
    fused = FusedSteps(JSON.filter(pc.field("id") > 2).check().steps)
    outcome = fused.run(SOURCE)
    watched = weakref.ref(outcome.rows[0].origin)
    del outcome
    gc.collect()
    assert watched() is None

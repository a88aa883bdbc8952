"""Dead letters of a pipeline with DataFrame stages, which may drop and repeat rows: each failed record once, whatever they do."""

import sys
import uuid

import msgspec
import pyarrow.compute as pc
import pytest
from fakes.spark import spark_session
from fakes.spark_runs import BAD, GOOD, SCHEMA, Place
from pyspark import cloudpickle
from waiting import slow_s

import kafka_actors as ka
from kafka_actors.errors import ConfigError
from kafka_actors.types import TopicPartition

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


@pytest.fixture(scope="module")
def spark(tmp_path_factory):
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # the functions of this file
    with spark_session(tmp_path_factory.mktemp("warehouse")) as session:
        yield session


@pytest.fixture
def place(spark, kafka_cluster, kafka_topic, produce, group_id):
    made = Place(spark, kafka_cluster, kafka_topic, produce, group_id)
    made.fill(range(30), BAD)
    yield made
    for query in spark.streams.active:
        query.stop()


def written(place):
    return sorted(msgspec.json.decode(m.value)["id"] for m in place.records(place.output))


def dead_letter_runs(place):
    return sorted(bytes(m.value or b"") for m in place.records(place.dead))


@pytest.mark.spark_versions
@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("select * from {this} order by id", GOOD),
        ("select * from {this} union all select * from {this}", sorted(GOOD * 2)),
        ("select * from {this} where id < 3 order by id limit 2", [0, 1]),
        ("select * from {this} where false", []),
    ],
    ids=["order", "union", "limit", "none"],
)
def test_in_a_batch_each_failed_record_is_one_dead_letter(place, query, rows):
    pipeline = place.read().decode_json(SCHEMA, on_error="dead_letter").sql(query)
    pipeline.write_kafka(place.output).dead_letters(place.dead).on_spark(place.spark).run()
    assert written(place) == rows
    assert dead_letter_runs(place) == sorted(BAD.values())


class Moody:
    """Refuses a third of the records, other ones each time."""

    def __call__(self, batch):
        call = uuid.uuid4().int
        for n in batch["id"].to_pylist():
            if (n + call) % 3 == 0 and batch.num_rows == 1:
                raise ValueError(f"no {n}")
        if batch.num_rows > 1:
            raise ValueError("one at a time")
        return batch


def test_in_a_batch_a_record_is_a_row_or_a_dead_letter_though_a_stage_fails_by_chance(place):
    pipeline = (
        place.read()
        .on_error("dead_letter", retries=0)
        .decode_json(SCHEMA)
        .map_batches(Moody, schema=SCHEMA)
        .spark(lambda df: df.orderBy("id"))
        .write_kafka(place.output, on_error="fail")
        .dead_letters(place.dead)
    )
    pipeline.on_spark(place.spark).run()
    dead = sorted(int(m.key[1:]) for m in place.records(place.dead))
    assert sorted([*written(place), *dead]) == list(range(30))
    assert len(dead) > len(BAD)
    assert place.spark._jsparkSession.sharedState().cacheManager().isEmpty(), "nothing is kept behind the run"


@pytest.mark.spark_versions
def test_in_a_stream_they_go_past_the_dataframe_stage(place, tmp_path):
    """A limit of two rows over all micro-batches, on both branches of a union."""
    pipeline = (
        place.read()
        .decode_json(SCHEMA, on_error="dead_letter")
        .sql("select * from {this} limit 2")
        .write_kafka(place.output)
        .dead_letters(place.dead)
    )
    checkpoint = str(tmp_path / "c")
    run = pipeline.on_spark(place.spark, checkpoint=checkpoint, trigger="availableNow", commitOffsets=True)
    run.run()
    assert run.status().records == 30
    assert place.committed() == {0: 10, 1: 10, 2: 10}
    assert len(written(place)) == 2
    assert dead_letter_runs(place) == sorted(BAD.values())
    place.fill([30, 31], {30: b"late"})
    pipeline.on_spark(place.spark, checkpoint=checkpoint, trigger="availableNow").run()
    assert len(written(place)) == 2
    assert dead_letter_runs(place) == sorted([*BAD.values(), b"late"])


def test_a_stream_goes_on_from_its_checkpoint_though_its_old_start_is_gone(place, tmp_path):
    """The group's offset, at which it began, is below what retention has left."""
    with ka.Admin(bootstrap_servers=place.cluster.bootstrap_servers) as admin:
        admin.alter_consumer_group_offsets(place.group, {TopicPartition(place.input, 0): 2})
    pipeline = (
        place.read()
        .decode_json(SCHEMA, on_error="dead_letter")
        .sql("select * from {this}")
        .write_kafka(place.output)
        .dead_letters(place.dead)
    )
    options = {"checkpoint": str(tmp_path / "c"), "trigger": "availableNow", "start": "committed"}
    pipeline.on_spark(place.spark, **options).run()
    assert written(place) == [n for n in GOOD if n not in (0, 3)]
    place.cluster.delete_records(place.input, 0, 5)
    place.fill([30, 31], {30: b"late"})
    pipeline.on_spark(place.spark, **options).run()
    assert written(place) == [*(n for n in GOOD if n not in (0, 3)), 31]
    assert dead_letter_runs(place) == sorted([*BAD.values(), b"late"])


def test_a_stream_with_totals_has_them_and_the_dead_letters_of_each_micro_batch(place, tmp_path):
    """The stream starts at the latest offsets, which are looked up once for rows and dead letters."""
    pipeline = (
        place.read(auto_offset_reset="latest")
        .decode_json(SCHEMA, on_error="dead_letter")
        .sql("select country, count(*) as id from {this} group by country")
        .with_key("country")
        .write_kafka(place.output)
        .dead_letters(place.dead)
    )
    with pipeline.on_spark(
        place.spark, checkpoint=str(tmp_path / "c"), output_mode="complete", trigger="100 milliseconds"
    ).start() as run:
        while run.status().batch is None:
            assert run.status().state == "running", run.wait()
        place.fill(range(30, 36), {33: b"no"})
        while (run.status().records or 0) < 6:
            assert run.status().state == "running", run.wait()
    totals = {m.key: msgspec.json.decode(m.value)["id"] for m in place.records(place.output)}
    assert totals == {b"DE": 1, b"FR": 2, b"IT": 2}
    assert dead_letter_runs(place) == [b"no"]


def test_in_a_stream_what_fails_by_chance_is_refused_before_it_starts(place, tmp_path):
    pipeline = (
        place.read()
        .decode_json(SCHEMA)
        .map_batches(Moody, schema=SCHEMA, name="moody", on_error="dead_letter")
        .sql("select * from {this}")
        .write_kafka(place.output)
        .dead_letters(place.dead)
    )
    run = pipeline.on_spark(place.spark, checkpoint=str(tmp_path / "c"), trigger="availableNow")
    with pytest.raises(ConfigError, match=r"^moody: has on_error='dead_letter' before a DataFrame stage"):
        run.start()


@pytest.mark.parametrize("stream", [False, True], ids=["batch", "stream"])
def test_files_have_the_rows_and_the_topic_the_dead_letters(place, tmp_path, monkeypatch, stream):
    monkeypatch.chdir(tmp_path)
    pipeline = (
        place.read()
        .decode_json(SCHEMA, on_error="dead_letter")
        .with_columns(at=pc.field("_kafka", "offset"))
        .write_parquet("out")
        .dead_letters(place.dead)
    )
    how = {"checkpoint": str(tmp_path / "c"), "trigger": "availableNow"} if stream else {}
    pipeline.on_spark(place.spark, **how).run()
    rows = place.spark.read.parquet(str(tmp_path / "out")).collect()
    assert {row.id: row.at for row in rows} == {n: n // 3 for n in GOOD}
    assert dead_letter_runs(place) == sorted(BAD.values())
    assert {path.suffix for path in (tmp_path / "out").glob("[!.]*")} == {".parquet"}


def test_names_of_data_sources_are_used_again_and_what_had_them_keeps_its_rows(place, monkeypatch):
    names = []
    registration = type(place.spark.dataSource)
    register = registration.register
    monkeypatch.setattr(
        registration, "register", lambda self, made: (names.append(made.name()), register(self, made))[1]
    )
    decoded = place.read().decode_json(SCHEMA, on_error="skip")
    first = decoded.on_spark(place.spark).dataframe()
    second = place.read().raw(text=True, on_error="skip").on_spark(place.spark).dataframe()
    for _ in range(2):
        decoded.write_kafka(place.output).on_spark(place.spark).run()
    assert len(names) == 6
    assert len(set(names)) == 2
    assert sorted(row.id for row in first.collect()) == GOOD
    assert sorted(row.key for row in second.collect()) == sorted(f"k{n}" for n in range(30) if n != 29)


def test_references_are_looked_up_in_the_tasks_and_stand_in_no_plan(place, tmp_path):
    path = tmp_path / "kafka.properties"
    path.write_text(f"servers={place.cluster.bootstrap_servers}\n")
    pipeline = (
        place.read(bootstrap_servers=f"${{file:{path}:servers}}")
        .decode_json(SCHEMA, on_error="dead_letter")
        .write_kafka(place.output)
        .dead_letters(place.dead)
    )
    df = pipeline.on_spark(place.spark).dataframe()
    assert place.cluster.bootstrap_servers not in df._jdf.queryExecution().toString()
    assert place.cluster.bootstrap_servers.encode() not in cloudpickle.dumps(pipeline)
    pipeline.on_spark(place.spark).run()
    assert written(place) == GOOD
    assert dead_letter_runs(place) == sorted(BAD.values())


def test_two_actions_on_a_micro_batch_send_nothing_and_both_see_the_failed_records(place, tmp_path):
    pipeline = place.read().decode_json(SCHEMA, on_error="dead_letter").dead_letters(place.dead)
    counts = []

    def take(df, _):
        counts.append(sorted(row.id for row in df.where("_error is null").collect()))
        counts.append(sorted(bytes(row._error.value) for row in df.where("_error is not null").collect()))

    writer = pipeline.on_spark(place.spark).dataframe(streaming=True).writeStream.foreachBatch(take)
    writer = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True)
    assert writer.start().awaitTermination(slow_s(90))
    assert counts == [GOOD, sorted(BAD.values())]
    assert dead_letter_runs(place) == []

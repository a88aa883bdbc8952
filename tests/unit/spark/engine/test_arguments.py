"""What `on_spark` takes and refuses, what later stages need of earlier ones, and what Spark's errors were."""

import threading
from collections import deque
from datetime import UTC, datetime

import numpy as np
import pyarrow.compute as pc
import pytest

import kafka_actors as ka
from kafka_actors.config import JobConfig, build
from kafka_actors.errors import ConfigError, JobFailed, SinkError, StageError, UsageError

pytest.importorskip("pyspark")

from kafka_actors.pipeline.source import ReadKafka
from kafka_actors.spark import OnSpark
from kafka_actors.spark.engine.arguments import (
    NOT_ON_SPARK,
    joined_options,
    more_options,
    position_options,
    source_options,
    start_options,
    state_option,
    trigger_of,
)
from kafka_actors.spark.engine.pipeline_source import SourceNames
from kafka_actors.spark.engine.runs import QueryProgress, StreamRun, failed
from kafka_actors.spark.engine.stage_groups import ColumnNeeds, groups_of, needs_of, sink_needs
from kafka_actors.spark.source.checkpoint import CheckpointPath
from kafka_actors.spark.source.options import parse_batch
from kafka_actors.types import TopicPartition

READ = ka.Pipeline.read_kafka("orders", group_id="g", bootstrap_servers="a:1")
DECODED = READ.decode_json("id BIGINT, country STRING")


def test_the_state_of_sparks_form_of_offsets_is_in_the_checkpoint(monkeypatch):
    where = {"uri": "file:/data/a%20b/c"}
    monkeypatch.setattr(
        "kafka_actors.spark.engine.arguments.checkpoint_of",
        lambda spark, path: spark and CheckpointPath(None, None, None, where["uri"]),
    )
    stages, form = DECODED.stages, {"offsetformat": "spark"}
    assert state_option(True, "c", form, stages) == {"stateLocation": "/data/a b/c/sources/0"}
    where["uri"] = "s3a://bucket/c"
    assert state_option(True, "c", form, stages) == {"stateLocation": "s3://bucket/c/sources/0"}
    assert state_option(True, "c", {}, stages) == {}
    assert state_option(None, "c", {**form, "STATELOCATION": "/x"}, stages) == {}
    with pytest.raises(ConfigError, match=r"^offsetFormat: .*Spark Connect: set stateLocation="):
        state_option(None, "c", form, stages)
    with pytest.raises(ConfigError, match=r"^offsetFormat: .*behind a DataFrame stage: set stateLocation="):
        state_option(True, "c", form, DECODED.sql("select * from {this}").stages)


@pytest.mark.parametrize(
    ("start", "end", "options"),
    [
        (None, None, {}),
        ("latest", None, {"startingOffsets": "latest"}),
        (
            {"orders": {0: 5, "1": 6}},
            {("orders", 0): 9, ("orders", 1): 10},
            {
                "startingOffsets": '{"orders": {"0": 5, "1": 6}}',
                "endingOffsets": '{"orders": {"0": 9, "1": 10}}',
            },
        ),
        (
            {"orders": {np.int64(0): np.int64(5)}},
            {("orders", np.int32(0)): np.int64(9)},
            {"startingOffsets": '{"orders": {"0": 5}}', "endingOffsets": '{"orders": {"0": 9}}'},
        ),
        (datetime(2026, 1, 1, tzinfo=UTC), None, {"startingTimestamp": "1767225600000"}),
        (datetime(1960, 1, 1, tzinfo=UTC), None, {"startingTimestamp": "0"}),
    ],
)
def test_a_range_is_said_in_words_offsets_or_times(start, end, options):
    assert position_options(start, end) == options


@pytest.mark.parametrize(
    ("start", "said"),
    [
        (5, "start: is 5: accepts a word"),
        ("now", r"start: is 'now': accepts a word \(earliest, latest, committed\), offsets {topic: "),
        (datetime(2026, 1, 1), "start: .* needs a time zone"),  # noqa: DTZ001
        ({"orders": 5}, "start: has 'orders': 5"),
        ({"orders": {0: "latest"}}, "start: has 'orders': {0: 'latest'}: accepts"),
    ],
)
def test_other_positions_are_refused(start, said):
    with pytest.raises(ConfigError, match=said):
        position_options(start, None)


def test_a_batch_ends_at_the_latest_offsets_or_at_given_ones():
    with pytest.raises(ConfigError, match=r"^end: is 'earliest': accepts a word \(latest\), offsets"):
        position_options(None, "earliest")
    assert position_options('{"t": {"0": 1}}', "LATEST") == {
        "startingOffsets": '{"t": {"0": 1}}',
        "endingOffsets": "LATEST",
    }


def test_triggers_are_sparks():
    assert trigger_of("availableNow") == {"availableNow": True}
    assert trigger_of("once") == {"once": True}
    assert trigger_of("10 seconds") == {"processingTime": "10 seconds"}
    assert trigger_of(None) == {"processingTime": "0 seconds"}
    for interval in ("1 minute", "interval 5 minutes", " 0.5 seconds", "INTERVAL 1 DAY"):
        assert trigger_of(interval) == {"processingTime": interval}
    for other in (5, "", "available", "AvailableNow", "continuous"):
        with pytest.raises(ConfigError, match=f"trigger: is {other!r}: accepts 'availableNow', 'once'"):
            trigger_of(other)


def test_the_group_is_the_pipelines_where_it_is_used():
    assert more_options(READ.source, {"maxOffsetsPerTrigger": 10}) == {"maxOffsetsPerTrigger": "10"}
    assert more_options(READ.source, {"commitOffsets": True}) == {
        "commitOffsets": "true",
        "kafka.group.id": "g",
    }
    assert more_options(READ.source, {"startingOffsets": "committed"})["kafka.group.id"] == "g"
    with pytest.raises(ConfigError, match=r"^subscribe: is the pipeline's"):
        more_options(READ.source, {"subscribe": "others"})


def test_names_of_options_are_case_insensitive_and_said_once():
    for name in ("Subscribe", "KAFKA.group.id", "includeheaders"):
        with pytest.raises(ConfigError, match=rf"^{name}: is the pipeline's"):
            more_options(READ.source, {name: "x"})
    with pytest.raises(ConfigError, match=r"^asyncProgressTrackingEnabled: is for Spark's own sinks"):
        more_options(READ.source, {"asyncProgressTrackingEnabled": True})
    positions = position_options("earliest", None)
    assert joined_options(positions, {"minPartitions": 2}) == {
        "startingOffsets": "earliest",
        "minPartitions": 2,
    }
    with pytest.raises(ConfigError, match=r"^startingoffsets: is set by start= or end=, too"):
        joined_options(positions, {"startingoffsets": "latest"})
    with pytest.raises(ConfigError, match=r"^startingOffsets: is set by start= or end=, too"):
        joined_options(positions, {"startingOffsets": "latest"})
    with pytest.raises(ConfigError, match=r"^MINPARTITIONS: is set by minPartitions, too"):
        joined_options({}, {"minPartitions": 2, "MINPARTITIONS": 3})


def options_of(**given):
    return source_options(ka.Pipeline.read_kafka("orders", bootstrap_servers="a:1", **given).source)


def test_what_says_how_records_are_read_goes_to_the_data_source():
    found = options_of(
        api_version="3.9",
        retry_backoff_ms=5,
        metadata_max_age_ms=7,
        socket_connection_setup_timeout_ms=8,
        connections_max_idle_ms=9,
        batch_rows=100,
        on_bad_batch="skip",
        on_data_loss="reset",
        check_crcs=False,
        session_timeout_ms=9_000,
        start_timeout_s=5,
    )
    assert found == {
        "subscribe": "orders",
        "includeHeaders": "true",
        "failOnDataLoss": "false",
        "kafka.bootstrap.servers": "a:1",
        "kafka.api.version": "3.9",
        "kafka.retry.backoff.ms": "5",
        "kafka.metadata.max.age.ms": "7",
        "kafka.socket.connection.setup.timeout.ms": "8",
        "kafka.connections.max.idle.ms": "9",
        "kafka.batch.rows": "100",
        "kafka.on.bad.batch": "skip",
        "kafka.check.crcs": "false",
    }
    read = parse_batch(found).consumer
    assert (read.api_version, read.retry_backoff_ms, read.on_bad_batch, read.batch_rows) == (
        (3, 9),
        5,
        "skip",
        100,
    )


def test_each_option_of_a_job_reaches_the_source_or_is_known_to_have_no_meaning_there():
    """So a new one can't be dropped silently."""
    defaults = build(JobConfig, {"bootstrap_servers": "a:1"})
    for name in JobConfig.__struct_fields__:
        if name in NOT_ON_SPARK or name in ("auto_offset_reset", "on_data_loss", "exclude_internal_topics"):
            continue
        value = getattr(defaults, name)
        texts = value is None or isinstance(value, (str, bool, int)) or name == "bootstrap_servers"
        source = ReadKafka(topics=("t",), pattern=None, options={name: value})
        if texts:
            assert value is None or f"kafka.{name.replace('_', '.')}" in source_options(source)
        else:
            with pytest.raises(ConfigError, match=f"^{name}: can't be sent to Spark's executors"):
                source_options(source)
    assert not NOT_ON_SPARK - set(JobConfig.__struct_fields__)


def test_what_cannot_be_done_on_spark_is_refused_by_name():
    with pytest.raises(ConfigError, match=r"^socket_options: can't be sent to Spark's executors"):
        options_of(socket_options=((1, 2, 3),))
    pattern = ka.Pipeline.read_kafka(pattern=".*", bootstrap_servers="a:1", exclude_internal_topics=False)
    with pytest.raises(ConfigError, match=r"^exclude_internal_topics: is False: .* name them"):
        source_options(pattern.source)
    assert "kafka.exclude.internal.topics" not in options_of(exclude_internal_topics=False)


def test_where_nobody_says_the_pipeline_says_where_to_start():
    def start(reset, given=(), streaming=True):
        options = {} if reset is None else {"auto_offset_reset": reset}
        source = ka.Pipeline.read_kafka("orders", bootstrap_servers="a:1", **options).source
        return start_options(source, dict.fromkeys(given, "x"), streaming=streaming)

    assert start(None) == start("earliest", streaming=False) == {"startingOffsets": "earliest"}
    assert start("latest") == {"startingOffsets": "latest"}
    assert start("none", ["startingTimestamp"]) == {}
    with pytest.raises(ConfigError, match=r"^auto_offset_reset: is 'latest', where a batch"):
        start("latest", streaming=False)
    for reset in ("none", "by_duration:PT1H"):
        with pytest.raises(ConfigError, match=rf"^auto_offset_reset: is '{reset}', which is for members"):
            start(reset)


def test_references_to_secrets_stay_references():
    found = options_of(
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_plain_username="${env:KA_NOBODY}",
        sasl_plain_password="${file:/none:password}",
    )
    assert found["kafka.sasl.plain.password"] == "${file:/none:password}"
    with pytest.raises(ConfigError, match=r"kafka.sasl.plain.username: refers to \$\{env:KA_NOBODY\}"):
        parse_batch(found)


WRITTEN = DECODED.write_kafka("scored")


@pytest.mark.parametrize(
    ("pipeline", "given", "said"),
    [
        (WRITTEN, {"trigger": "availableNow"}, "trigger: is a stream's, which needs checkpoint="),
        (WRITTEN, {"checkpoint": "c", "end": "latest"}, "end: is a batch's"),
        (WRITTEN, {"output_mode": "update"}, "output_mode: is 'update'"),
        (WRITTEN, {"minPartitions": 8}, r"minPartitions: splits partitions over tasks.*ordered=False"),
        (
            DECODED.sql("select * from {this}").write_kafka("x", on_error="dead_letter").dead_letters("d"),
            {},
            r"write_kafka\(x\): has on_error='dead_letter' behind the DataFrame stage sql",
        ),
    ],
)
def test_what_cannot_be_is_refused_before_there_is_a_session(pipeline, given, said):
    with pytest.raises(ConfigError, match=said):
        pipeline.on_spark(None, **given)


def test_before_it_is_started_it_says_what_runs_where():
    run = WRITTEN.on_spark(None, minPartitions=8, ordered=False)
    assert isinstance(run, OnSpark)
    assert "before rows enter the JVM" in run._repr_html_()
    assert repr(run).endswith("not started>")
    run.stop()
    with pytest.raises(UsageError, match="not started"):
        run.wait()


@pytest.mark.parametrize("session", [None, "spark://host:7077"])
def test_what_is_no_session_is_refused_by_name(session):
    for call in (WRITTEN.on_spark(session).start, WRITTEN.on_spark(session).dataframe):
        with pytest.raises(ConfigError, match=r"^spark: is .*: accepts a SparkSession"):
            call()


# ---------------------------------------------------------------- what is needed


def needs(pipeline):
    checked = pipeline.check("spark")
    groups = groups_of(checked)
    end, asked = sink_needs(checked.sink, checked.key)
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


# ---------------------------------------------------------------- what it was


def test_what_a_task_raised_is_the_cause_and_sparks_report_behind_it():
    for error in (
        StageError("map_batches(f)", "or-ders", 3, 5, 9, 2, "ValueError: no"),
        StageError("score", "orders", 3, 5, 5, 1, "odd"),
        StageError("score", "", -1, -1, -1, 1, "odd"),
        SinkError("write_kafka(x)", "KafkaTimeoutError: too late"),
    ):
        report = RuntimeError(
            f"[STREAM_FAILED] Traceback …\nkafka_actors.errors.{type(error).__name__}: {error}\n\n  at x"
        )
        found = failed(report)
        assert isinstance(found, JobFailed)
        assert str(found) == f"the run failed: {error}"
        assert type(found.cause) is type(error)
        assert vars(found.cause) == vars(error)
        assert found.cause.__cause__ is report


def test_other_errors_are_told_in_a_line():
    report = RuntimeError("x\nkafka_actors.errors.DataLossError: orders-0: offset 5 is gone\n")
    assert str(failed(report)) == "the run failed: DataLossError: orders-0: offset 5 is gone"
    assert failed(report).cause is report
    assert str(failed(ValueError("one\ntwo"))) == "the run failed: one"


RAISED = """Traceback (most recent call last):
  File "/app/source.py", line 104, in _read
    yield from fusion.run(batch)
               ^^^^^^^^^^^^^^^^^
"""


@pytest.mark.parametrize(
    ("report", "said"),
    [
        (f"from the Python worker:\n{RAISED}ZeroDivisionError: by zero\n", "ZeroDivisionError: by zero"),
        (f"Job aborted: {RAISED}KeyError: 'a'\n\n\tat org.apache.spark.x\n", "KeyError: 'a'"),
        (f"{RAISED}a.B\n\nDuring handling of it:\n\n{RAISED}c.D: e\n\tat x", "c.D: e"),
        (
            f"{RAISED}OSError: no model\nraised when stage score was made\n\n\tat x",
            "OSError: no model (raised when stage score was made)",
        ),
        (
            f"{RAISED}OSError: no model\nraised by the constructor of M (m.py, line 3)\nraised when stage s was made\n\tat x",
            "OSError: no model (raised by the constructor of M (m.py, line 3), raised when stage s was made)",
        ),
    ],
)
def test_of_what_a_python_worker_raised_its_last_line_is_told(report, said):
    assert str(failed(RuntimeError(report))) == f"the run failed: {said}"


def progress(batch, start, end, latest=None):
    source = {"startOffset": start, "endOffset": end, "latestOffset": latest}
    return {
        "batchId": batch,
        "sources": [{"startOffset": None, "endOffset": "5", "latestOffset": None}, source],
    }


def test_records_and_lag_are_counted_in_offsets():
    reckoning = QueryProgress(lambda topic: topic == "t")
    reckoning.observe(
        progress(3, None, '{"t": {"0": 10}, "@start": {"t": {"0": 4}}}', '{"t": {"0": 25}, "@metrics": {}}')
    )
    assert reckoning.counts == (6, 15, 3)
    again = progress(4, '{"t": {"0": 10}}', '{"t": {"0": 20, "1": 3}}')
    for _ in range(2):
        reckoning.observe(again)
    assert reckoning.counts == (19, None, 4), "of a partition that is new all"
    assert reckoning.end == {"t": {"0": 20, "1": 3}}
    reckoning.observe(progress(5, '{"other": {"0": 1}}', '{"other": {"0": 2}}'))
    reckoning.observe(progress(2, None, '{"t": {"0": 10}}'))
    assert reckoning.counts == (19, None, 4)


def test_the_first_batch_is_counted_from_the_kept_start_where_the_progress_does_not_say_it():
    reckoning = QueryProgress(lambda topic: topic == "t", lambda: {TopicPartition("t", 0): 4})
    reckoning.observe(progress(0, "null", '{"t": {"0": 10}}', '{"t": {"0": 25}}'))
    assert reckoning.counts == (6, 15, 0)


def test_progress_of_pyspark_4_1_has_offsets_in_pythons_text():
    reckoning = QueryProgress(lambda topic: topic == "t")
    end = {"t": {"0": 10}, "@start": {"t": {"0": 4}}, "@initial": True}
    reckoning.observe(progress(3, "None", str(end), "None"))
    assert reckoning.counts == (6, None, 3)
    assert reckoning.end == end
    reckoning.observe(progress(4, "KafkaV2[Subscribe[t]]", "neither {"))
    assert reckoning.counts == (6, None, 3)


def test_records_are_counted_from_the_first_batch_though_spark_keeps_the_last_hundred():
    """Asked for a status only after 150 batches. A partition came in one that nobody saw."""
    query = Query()
    query.add(progress(0, '{"t": {"0": 0}}', '{"t": {"0": 10}}'))
    run = StreamRun(query, QueryProgress(lambda topic: topic == "t"), lambda end: None, SourceNames(query))
    query.seen.wait(10)
    for batch in range(1, 150):
        ends = f'{{"t": {{"0": {batch * 10 + 10}, "1": {batch}}}}}'
        query.add(progress(batch, f'{{"t": {{"0": {batch * 10}, "1": {batch - 1}}}}}', ends))
    assert run.status().records == 1500 + 149
    run.stop()


class Query:
    """A streaming query of Spark's, as far as its progress goes."""

    def __init__(self):
        self.isActive = True
        self.seen = threading.Event()
        self._last = deque(maxlen=100)

    def add(self, progress):
        self._last.append(progress)

    @property
    def recentProgress(self):
        self.seen.set()
        return list(self._last)

    def stop(self):
        self.isActive = False

    def exception(self):
        return None

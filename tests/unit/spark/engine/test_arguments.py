"""What `on_spark` takes and refuses, what later stages need of earlier ones, and what Spark's errors were."""

from datetime import UTC, datetime

import numpy as np
import pytest

import kafka_actors as ka
from kafka_actors.config import JobConfig, build
from kafka_actors.errors import ConfigError

pytest.importorskip("pyspark")
from kafka_actors.pipeline.source import ReadKafka
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
from kafka_actors.spark.source.checkpoint import CheckpointPath
from kafka_actors.spark.source.options import parse_batch

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
        (None, datetime(2004, 8, 2, 20, 15, 47, 205_000, UTC), {"endingTimestamp": "1091477747205"}),
        (None, datetime(2004, 8, 2, 20, 15, 47, 205_999, UTC), {"endingTimestamp": "1091477747205"}),
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


def options_of(**options):
    return source_options(ka.Pipeline.read_kafka("orders", bootstrap_servers="a:1", **options).source)


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


def test_an_order_that_only_a_job_can_have_is_refused_by_name():
    source = ReadKafka(topics=("t",), pattern=None, options={"bootstrap_servers": "a:1", "ordering": "key"})
    with pytest.raises(ConfigError, match="ordering: is 'key': on Spark one task reads a partition"):
        source_options(source)


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


def test_default_values_of_a_jobs_options_are_ones_of_the_source_without_a_note():
    defaults = build(JobConfig, {"bootstrap_servers": "a:1"})
    options = {name: getattr(defaults, name) for name in JobConfig.__struct_fields__}
    options.pop("socket_options")  # which is none of text, and refused by name
    source = ReadKafka(topics=("t",), pattern=None, options=options)
    assert parse_batch(source_options(source)).notes == ()


def test_delivery_of_a_job_is_not_that_of_sparks_sinks():
    assert options_of(delivery="at_least_once") == options_of()
    with pytest.raises(
        ConfigError,
        match=r"^delivery: is 'exactly_once', .*on_ray\(…, delivery='exactly_once'\), .*on Spark say write_kafka\(…, delivery='exac",
    ):
        options_of(delivery="exactly_once")


def test_what_cannot_be_done_on_spark_is_refused_by_name():
    with pytest.raises(ConfigError, match=r"^socket_options: can't be sent to Spark's executors"):
        options_of(socket_options=((1, 2, 3),))
    pattern = ka.Pipeline.read_kafka(pattern=".*", bootstrap_servers="a:1", exclude_internal_topics=False)
    with pytest.raises(ConfigError, match=r"^exclude_internal_topics: is False: .* name them"):
        source_options(pattern.source)
    assert "kafka.exclude.internal.topics" not in options_of(exclude_internal_topics=False)


def test_where_nobody_says_the_pipeline_says_where_to_start():
    def start(reset, names=(), streaming=True):
        options = {} if reset is None else {"auto_offset_reset": reset}
        source = ka.Pipeline.read_kafka("orders", bootstrap_servers="a:1", **options).source
        return start_options(source, dict.fromkeys(names, "x"), streaming=streaming)

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

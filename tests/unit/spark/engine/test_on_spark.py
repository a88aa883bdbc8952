"""`on_spark` refuses what cannot run before there is a session, and explains what runs where."""

import pytest

import kafka_actors as ka
from kafka_actors.errors import ConfigError, UsageError

pytest.importorskip("pyspark")
from kafka_actors.spark import OnSpark

READ = ka.Pipeline.read_kafka("orders", group_id="g", bootstrap_servers="a:1")


DECODED = READ.decode_json("id BIGINT, country STRING")


WRITTEN = DECODED.write_kafka("scored")


@pytest.mark.parametrize(
    ("pipeline", "arguments", "said"),
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
def test_what_cannot_be_is_refused_before_there_is_a_session(pipeline, arguments, said):
    with pytest.raises(ConfigError, match=said):
        pipeline.on_spark(None, **arguments)


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

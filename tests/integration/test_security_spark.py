"""The Spark source over SASL_SSL, from planning to its tasks; and what it says where it is refused."""

import json
import os

import pytest
from fakes.secure import PASSWORD, USER
from fakes.signed_tokens import kafka_with_validated_tokens
from fakes.spark import spark_session
from pyspark.sql.utils import AnalysisException
from waiting import slow_s

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


@pytest.fixture(scope="module")
def spark(tmp_path_factory):
    with spark_session(tmp_path_factory.mktemp("warehouse")) as session:
        yield session


@pytest.fixture
def load(spark, secure):
    """`load(topic, **{"kafka.x": …})` over the listener with SASL_SSL."""
    kafka, files = secure

    def make(topic, **more):
        options = {
            "kafka.bootstrap.servers": kafka.bootstrap("SECURE"),
            "kafka.security.protocol": "SASL_SSL",
            "kafka.ssl.cafile": files.ca,
            "kafka.sasl.mechanism": "SCRAM-SHA-512",
            "kafka.sasl.plain.username": USER,
            "kafka.sasl.plain.password": PASSWORD,
            "subscribe": topic,
        }
        return spark.read.format("kafka_actors").options(**{**options, **more}).load()

    return make


def test_a_batch_is_read_and_its_plan_shows_no_password(secure, load, produce, group_id, capsys):
    kafka, _ = secure
    topic = kafka.create_topic(f"s-{group_id}", partitions=3)
    produce(topic, [b"%d" % n for n in range(900)], bootstrap_servers=kafka.bootstrap_servers)
    frame = load(topic)
    frame.explain(extended=True)
    assert sorted(int(row.value) for row in frame.select("value").collect()) == list(range(900))
    assert PASSWORD not in capsys.readouterr().out


def test_a_wrong_password_is_one_clear_error(load):
    with pytest.raises(Exception, match="SASL_AUTHENTICATION_FAILED") as caught:
        load("t", **{"kafka.sasl.plain.password": "wrong-hush"}).collect()
    assert "hush" not in str(caught.value)


def test_options_that_do_not_go_together_fail_before_anything_connects(load):
    with pytest.raises(AnalysisException, match=r"kafka\.sasl\.mechanism: is given") as caught:
        load("t", **{"kafka.security.protocol": "SSL"})
    assert PASSWORD not in str(caught.value)


@pytest.fixture
def javas(secure, secret_file):
    """The options as a job for Spark's own source has them; the password is in a file."""
    kafka, files = secure
    login = "org.apache.kafka.common.security.scram.ScramLoginModule required"
    return {
        "kafka.bootstrap.servers": kafka.bootstrap("SECURE"),
        "kafka.security.protocol": "SASL_SSL",
        "kafka.ssl.truststore.location": files.ca,
        "kafka.ssl.truststore.type": "PEM",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": f'{login} username="{USER}" password="${{file:{secret_file}:password}}";',
    }


@pytest.fixture
def secret_file(tmp_path):
    """A file that has the password: unlike a variable it can change while Spark runs."""
    made = tmp_path / "secret.properties"
    made.write_text("password=" + PASSWORD.encode("unicode_escape").decode().replace("\\xe4", "\\u00e4"))
    return made


def test_javas_options_read_stream_and_write_as_they_stand(
    secure, spark, javas, produce, group_id, tmp_path, capsys
):
    kafka, _ = secure
    source, target = (kafka.create_topic(f"{name}-{group_id}", partitions=2) for name in ("source", "target"))
    produce(source, [b"%d" % n for n in range(100)], bootstrap_servers=kafka.bootstrap_servers)
    stream = spark.readStream.format("kafka_actors").options(**javas, subscribe=source)
    writer = stream.option("startingOffsets", "earliest").load().select("value").writeStream
    writer = writer.format("kafka_actors").options(**javas, topic=target)
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(slow_s(90))
    query.explain(extended=True)
    frame = spark.read.format("kafka_actors").options(**javas, subscribe=target).load()
    frame.explain(extended=True)
    assert sorted(int(row.value) for row in frame.collect()) == list(range(100))
    said = capsys.readouterr().out + str([progress.json for progress in query.recentProgress])
    assert "secret.properties" not in said
    assert PASSWORD not in said
    for written in (tmp_path / "checkpoint").rglob("*"):
        assert written.is_dir() or PASSWORD.encode() not in written.read_bytes()


def test_a_password_that_is_written_out_is_in_no_plan(spark, javas, secure, produce, group_id, capsys):
    kafka, _ = secure
    topic = kafka.create_topic(f"plain-{group_id}")
    produce(topic, [b"x"], bootstrap_servers=kafka.bootstrap_servers)
    login = javas["kafka.sasl.jaas.config"].partition("password=")[0]
    options = {**javas, "kafka.sasl.jaas.config": f'{login}password="{PASSWORD}";'}
    frame = spark.read.format("kafka_actors").options(**options, subscribe=topic).load()
    for mode in ("extended", "formatted", "codegen", "cost"):
        frame.explain(mode=mode)
    assert frame.count() == 1
    assert PASSWORD not in capsys.readouterr().out


def test_a_reference_to_nothing_is_one_clear_error(spark, javas):
    options = {**javas, "kafka.sasl.jaas.config": "${env:NOT_THERE_AT_ALL}", "subscribe": "t"}
    with pytest.raises(
        AnalysisException, match=r"kafka\.sasl\.jaas\.config: refers to \$\{env:NOT_THERE_AT_ALL\}"
    ):
        spark.read.format("kafka_actors").options(**options).load()


# ---------------------------------------------------------------- a token provider that is named


def test_tasks_make_the_named_provider_and_the_broker_takes_their_signed_tokens(spark, group_id, tmp_path):
    """Nothing but its name travels: a task that writes and one that reads each sign in by themselves."""
    made_in = tmp_path / "made_in"
    made_in.mkdir()
    with kafka_with_validated_tokens(tmp_path) as (kafka, ca, _):
        topic = kafka.create_topic(group_id, partitions=2)
        identity = {
            "key_file": str(tmp_path / "issuer.pem"),
            "subject": "by-spark",
            "made_in": str(made_in),
        }
        options = {
            "kafka.bootstrap.servers": kafka.bootstrap("TOKENS"),
            "kafka.security.protocol": "SASL_SSL",
            "kafka.ssl.cafile": ca,
            "kafka.sasl.mechanism": "OAUTHBEARER",
            "kafka.sasl.oauth.token.provider": "tests.fakes.signing_provider:SignedTokens",
            "kafka.sasl.identity": json.dumps(identity),
        }
        rows = spark.range(20).selectExpr("cast(id as string) as value").repartition(2)
        rows.write.format("kafka_actors").options(**options, topic=topic).mode("append").save()
        written_by = {path.name for path in made_in.iterdir()}
        for path in made_in.iterdir():
            path.unlink()
        frame = spark.read.format("kafka_actors").options(**options, subscribe=topic).load()
        assert sorted(int(row.value) for row in frame.collect()) == list(range(20))
        read_by = {path.name for path in made_in.iterdir()}
    for makers in (written_by, read_by):
        assert makers
        assert str(os.getpid()) not in makers

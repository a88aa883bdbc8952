"""The Spark source over SASL_SSL, from planning to its tasks; and what it says where it is refused."""

import pytest
from fakes.secure import PASSWORD, USER
from fakes.spark import spark_session
from pyspark.sql.utils import AnalysisException

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(400)]


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

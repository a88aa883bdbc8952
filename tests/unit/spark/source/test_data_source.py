"""What `.load()` says of wrong options, where Spark doesn't tell yet whether it will be a batch or a stream."""

import pickle

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from kafka_actors.errors import ConfigError, UsageError
from kafka_actors.spark.source import writers
from kafka_actors.spark.source.data_source import KafkaDataSource

BASE = {"kafka.bootstrap.servers": "a:1", "subscribe": "orders"}


def refusal(**options: str) -> str:
    with pytest.raises(ConfigError) as caught:
        KafkaDataSource({**BASE, **options}).schema()
    return str(caught.value)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"commitOffsets": "true"}, "commitOffsets: is true: kafka.group.id has to say for which group"),
        ({"startingOffsets": "Committed"}, "startingOffsets: is 'committed': kafka.group.id has to say"),
        ({"startingOffsets": "latest", "minPartitions": "0"}, "minPartitions: is '0'"),
        ({"startingOffsets": "latest", "endingOffsets": "latest"}, "endingOffsets: is not for a stream"),
    ],
)
def test_options_that_only_a_stream_has_get_a_streams_error(options: dict[str, str], says: str) -> None:
    assert refusal(**options).startswith(says)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"endingOffsets": "earliest"}, "endingOffsets: can't be 'earliest' in a batch read"),
        ({"pushFilters": "true", "minPartitions": "0"}, "minPartitions: is '0'"),
        ({"startingOffsets": "last"}, "startingOffsets: is 'last': accepts JSON"),
    ],
)
def test_others_get_that_of_a_batch(options: dict[str, str], says: str) -> None:
    assert refusal(**options).startswith(says)


@pytest.mark.parametrize(
    "options", [{}, {"startingOffsets": "latest"}, {"endingOffsets": "latest"}, {"pushFilters": "true"}]
)
def test_what_one_of_them_can_have_is_no_error_yet(options: dict[str, str]) -> None:
    assert len(KafkaDataSource({**BASE, **options}).schema().fields) == 7


def test_a_write_without_options_is_one_into_a_table() -> None:
    with pytest.raises(UsageError, match="passes those of a table to no write, such as INSERT INTO"):
        KafkaDataSource({}).writer(StructType([StructField("value", StringType())]), overwrite=False)


def test_a_writer_that_only_ends_a_micro_batch_asks_no_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark makes it when all rows are acknowledged. With brokers away just then, they were written again."""
    looked_up = []
    monkeypatch.setattr(writers, "check_target", lambda config, topic, what: looked_up.append(topic))
    schema = StructType([StructField("value", StringType())])
    source = KafkaDataSource({"kafka.bootstrap.servers": "a:1", "topic": "scored"})
    source.streamWriter(schema, overwrite=False)
    assert looked_up == ["scored"]
    pickle.loads(pickle.dumps(source)).streamWriter(schema, overwrite=False).commit([], 0)
    assert looked_up == ["scored"]

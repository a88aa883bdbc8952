"""What a table keeps of its options, and that it keeps no secret."""

import pytest

from kafka_actors.errors import ConfigError, UsageError
from kafka_actors.spark.source.schema import COLUMNS, columns_of
from kafka_actors.spark.source.tables import options_of, with_options

TABLE = {"provider": "kafka_actors", "subscribe": "t", "kafka.bootstrap.servers": "a:1"}
LOGIN = 'a.PlainLoginModule required username="u" password="{}";'


def test_options_come_back_with_the_schema_and_those_of_a_query_go_before() -> None:
    schema = with_options(COLUMNS, TABLE)
    assert options_of({}, schema) == TABLE
    assert options_of({"subscribe": "other"}, schema) == {**TABLE, "subscribe": "other"}
    assert columns_of(schema, False) == columns_of(COLUMNS, False)


def test_what_is_no_table_is_left_alone() -> None:
    assert with_options(COLUMNS, {"subscribe": "t"}) is COLUMNS
    assert options_of({"subscribe": "t"}, COLUMNS) == {"subscribe": "t"}
    with pytest.raises(UsageError, match="without columns of its own"):
        options_of({}, COLUMNS)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kafka.sasl.plain.password", "hush"),
        ("kafka.ssl.truststore.password", "hush"),
        ("kafka.sasl.jaas.config", LOGIN.format("hush")),
    ],
)
def test_a_secret_that_is_written_out_is_refused(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match="is in plain text") as caught:
        with_options(COLUMNS, {**TABLE, name: value})
    assert caught.value.option == name
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kafka.ssl.key.password", "${env:P}"),
        ("kafka.sasl.jaas.config", LOGIN.format("${file:/run/secret:p}")),
    ],
)
def test_a_reference_may_be_kept(name: str, value: str) -> None:
    assert options_of({}, with_options(COLUMNS, {**TABLE, name: value}))[name] == value

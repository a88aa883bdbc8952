"""Options and columns of a write: names, types and refusals are those of Spark's own Kafka sink."""

import pickle

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from kafka_actors.errors import ConfigError
from kafka_actors.spark.source.sink_options import (
    SinkOptions,
    TransactionalOptions,
    parse_sink,
    transactional_options,
)


def _headers(value: DataType, nullable: bool = True) -> ArrayType:
    fields = [StructField("key", StringType(), nullable), StructField("value", value)]
    return ArrayType(StructType(fields), containsNull=nullable)


TYPES: dict[str, DataType] = {
    "string": StringType(),
    "binary": BinaryType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "headers": _headers(BinaryType()),
    "strict-headers": _headers(BinaryType(), nullable=False),
    "text-headers": _headers(StringType()),
    "map": MapType(StringType(), BinaryType()),
}
BASE = {"kafka.bootstrap.servers": "localhost:9092"}


def table(columns: str) -> StructType:
    """Of names and types, separated by commas."""
    pairs = [column.split(":") for column in columns.split(", ")]
    return StructType([StructField(name, TYPES[kind], nullable="strict" not in kind) for name, kind in pairs])


def parse(columns: str = "value:string", **options: str) -> SinkOptions:
    given = {**BASE, **{key.replace("__", "."): value for key, value in options.items()}}
    return parse_sink(given, table(columns))


def refusal(columns: str = "value:string", **options: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        parse(columns, **options)
    assert "\n" not in str(caught.value)
    return caught.value


def test_the_columns_of_sparks_sink_are_taken_and_others_passed_over() -> None:
    columns = (
        "id:bigint, key:binary, value:binary, topic:string, partition:int, headers:headers, offset:bigint"
    )
    assert parse(columns).columns == ("key", "value", "topic", "partition", "headers")


def test_the_option_topic_wins_over_the_column() -> None:
    parsed = parse("topic:string, value:string", topic="scored")
    assert (parsed.topic, parsed.columns) == ("scored", ("value",))


@pytest.mark.parametrize(
    ("columns", "option", "says"),
    [
        ("key:string, topic:string", "schema", "has no column 'value'"),
        ("value:string", "topic", "is missing: name the topic in this option"),
        ("value:int, topic:string", "schema", "column 'value' is int: it must be string or binary"),
        ("value:string, topic:binary", "schema", "column 'topic' is binary: it must be string"),
        (
            "value:string, topic:string, partition:bigint",
            "schema",
            "column 'partition' is bigint: it must be int",
        ),
        (
            "value:string, topic:string, headers:map",
            "schema",
            "column 'headers' is map<string,binary>: it must be array<struct<key:string,value:binary>>",
        ),
        (
            "value:string, topic:string, headers:text-headers",
            "schema",
            "column 'headers' is array<struct<key:string,value:string>>",
        ),
    ],
)
def test_columns_that_cannot_be_written_are_named(columns: str, option: str, says: str) -> None:
    error = refusal(columns)
    assert error.option == option
    assert says in error.message


def test_nullability_of_columns_makes_no_difference() -> None:
    columns = "value:string, topic:string, headers:strict-headers"
    assert "headers" in parse(columns).columns


@pytest.mark.parametrize(
    "key",
    ["key.serializer", "value.serializer", "transactional.id", "partitioner.class", "interceptor.classes"],
)
def test_what_a_producer_here_cannot_do_is_refused_by_name(key: str) -> None:
    error = refusal(topic="t", **{f"kafka.{key}": "x"})
    assert error.option == f"kafka.{key}"
    assert "is not supported" in error.message


def test_options_of_the_client_reach_the_producer() -> None:
    producer = parse(
        topic="t",
        kafka__compression__type="zstd",
        kafka__linger__ms="50",
        kafka__delivery__timeout__ms="60000",
    ).producer
    assert (producer.compression_type, producer.linger_ms, producer.delivery_timeout_ms) == (
        "zstd",
        50,
        60_000,
    )
    assert producer.enable_idempotence


def test_fewer_acks_switch_idempotence_off_as_in_java() -> None:
    producer = parse(topic="t", kafka__acks="1").producer
    assert (producer.acks, producer.enable_idempotence) == ("1", False)
    assert refusal(topic="t", kafka__acks="1", kafka__enable__idempotence="true").option == "kafka.acks"


def test_a_consumers_options_are_passed_over_with_a_note() -> None:
    parsed = parse(topic="t", kafka__fetch__max__bytes="1", kafka__group__id="g", kafka__retries="3")
    assert parsed.notes == (
        "kafka.fetch.max.bytes has no effect here",
        "kafka.group.id has no effect here",
        "kafka.retries has no effect here",
    )


@pytest.mark.parametrize(
    ("name", "value"), [("topics", "t"), ("topic", "a b"), ("topic", ""), ("subscribe", "t")]
)
def test_a_wrong_option_is_named(name: str, value: str) -> None:
    assert refusal(**{"topic": "t", name: value}).option == name


@pytest.mark.parametrize("name", ["path", "subscribe"])
def test_what_names_topics_elsewhere_is_refused_with_what_does_here(name: str) -> None:
    """`path` is what `.save(…)` is given."""
    assert str(refusal(**{name: "t"})) == f"{name}: is not an option; topics are named by topic"


def test_what_a_streaming_write_adds_is_passed_over() -> None:
    given = {"checkpointLocation": "/tmp/x", "queryName": "q", "asyncProgressTrackingEnabled": "true"}
    assert parse(topic="t", **given).topic == "t"


def test_options_travel_to_the_executors_and_show_no_password() -> None:
    parsed = parse(
        topic="t",
        kafka__security__protocol="SASL_PLAINTEXT",
        kafka__sasl__mechanism="PLAIN",
        kafka__sasl__plain__username="alice",
        kafka__sasl__plain__password="hush",
    )
    assert pickle.loads(pickle.dumps(parsed)) == parsed
    assert "hush" not in repr(parsed)


# ---------------------------------------------------------------- in transactions


def plan(columns: str = "value:string") -> dict[str, str]:
    return transactional_options("ab12", table(columns))


def test_a_transactional_write_has_the_check_of_its_plan_and_a_topic_for_its_markers() -> None:
    parsed = parse(topic="t", checkpointLocation="/data/c", **plan())
    assert parsed.transactional == TransactionalOptions("t", "ab12", "/data/c")
    config = parsed.transactional_producer
    assert (config.transactional_id, config.transaction_timeout_ms, config.acks) == (
        "kafka_actors-",
        900_000,
        "all",
    )
    assert (
        parse(
            topic="t", kafka__transaction__timeout__ms="5000", **plan()
        ).transactional_producer.transaction_timeout_ms
        == 5_000
    )
    named = parse(
        "value:string, topic:string", transactional__marker__topic="m", **plan("value:string, topic:string")
    )
    assert named.transactional == TransactionalOptions("m", "ab12", None)
    assert parse(topic="t", transactional="false").transactional is None


def test_it_is_refused_without_what_transactional_returns() -> None:
    error = refusal(topic="t", transactional="true")
    assert error.option == "transactional"
    assert ".options(**kafka_actors.spark.transactional(df))" in str(error)
    for text in ("true", "2:ab:cd", "1:"):
        assert (
            refusal(topic="t", transactional="true", transactional__plan=text).option == "transactional.plan"
        )
    assert "other columns" in str(refusal(topic="t", **plan("value:binary")))


@pytest.mark.parametrize(
    ("option", "more"),
    [
        ("transactional.marker.topic", {}),
        ("transactional.marker.topic", {"transactional__marker__topic": "a b"}),
        ("kafka.acks", {"topic": "t", "kafka__acks": "1"}),
        ("kafka.enable.idempotence", {"topic": "t", "kafka__enable__idempotence": "false"}),
        ("kafka.transactional.id", {"topic": "t", "kafka__transactional__id": "mine"}),
        ("asyncProgressTrackingEnabled", {"topic": "t", "asyncProgressTrackingEnabled": "true"}),
    ],
)
def test_what_does_not_go_with_transactions_is_refused_by_name(option: str, more: dict[str, str]) -> None:
    columns = "value:string" if "topic" in more else "value:string, topic:string"
    assert refusal(columns, **plan(columns), **more).option == option


def test_options_of_transactions_have_no_effect_without_them() -> None:
    notes = parse(topic="t", transactional__marker__topic="m").notes
    assert notes == ("transactional.marker.topic has no effect here",)

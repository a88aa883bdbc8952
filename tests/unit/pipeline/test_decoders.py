"""Arguments of decoders by schema that are refused at once, naming the stage."""

import pytest
from fakes.registries import RegistryInMemory

from kafka_actors.errors import ConfigError
from kafka_actors.pipeline import Pipeline

READ = Pipeline.read_kafka("orders", bootstrap_servers="localhost:9092", group_id="g")
REGISTRY = RegistryInMemory()
PROTO = 'syntax = "proto3"; message M { }'


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: READ.decode("http://registry"), "decode: registry is a str: accepts a SchemaRegistry"),
        (lambda: READ.decode_avro(), r"decode_avro: needs a schema, or registry="),
        (lambda: READ.decode_protobuf(), r"decode_protobuf: needs a schema, or registry="),
        (
            lambda: READ.decode(REGISTRY, version=0),
            "decode: version is 0: accepts a number from 1, or 'latest'",
        ),
        (lambda: READ.decode(REGISTRY, version="newest"), "decode: version is 'newest'"),
        (lambda: READ.decode(REGISTRY, subject=""), "decode: subject is ''"),
        (
            lambda: READ.decode(REGISTRY, subject=":.prod:orders-value"),
            r"decode: subject: is ':\.prod:orders-value', of the context \.prod, .* with /contexts/\.prod, .* as 'orders-value'",
        ),
        (lambda: READ.decode(REGISTRY, enums="both"), "decode: enums is 'both': accepts 'name' or 'number'"),
        (
            lambda: READ.decode(REGISTRY, on_new_schema="skip"),
            "on_new_schema is 'skip': accepts 'keep' or 'fail'",
        ),
        (
            lambda: READ.decode_avro(registry=REGISTRY, schema_id=1, subject="x"),
            "has a schema_id and a subject: one of them names the schema",
        ),
        (
            lambda: READ.decode_avro(
                {"type": "record", "name": "R", "fields": []}, registry=REGISTRY, schema_id=1
            ),
            "has a schema, which it is read by, and a schema_id",
        ),
        (lambda: READ.decode_avro("{", registry=7), "decode_avro: registry is an int"),
        (lambda: READ.decode_protobuf(PROTO, enums="x"), "decode_protobuf: enums: is 'x'"),
        (
            lambda: READ.decode_protobuf(PROTO, on_new_schema="fail"),
            "decode_protobuf: on_new_schema: is for values whose schemas a registry has",
        ),
        (
            lambda: READ.decode_protobuf(PROTO, registry=REGISTRY, on_new_schema="skip"),
            "decode_protobuf: on_new_schema is 'skip': accepts 'keep' or 'fail'",
        ),
        (
            lambda: READ.decode_avro('"long"', registry=REGISTRY, on_new_schema="skip"),
            "decode_avro: on_new_schema is 'skip': accepts 'keep' or 'fail'",
        ),
        (
            lambda: READ.decode_protobuf(PROTO, message="N"),
            "decode_protobuf: message: is 'N': the schema has M",
        ),
        (lambda: READ.decode_protobuf("no proto"), "decode_protobuf: schema: is no Protobuf schema"),
        (lambda: READ.decode_protobuf(PROTO, registry="r"), "decode_protobuf: registry is a str"),
    ],
)
def test_wrong_arguments_are_refused_and_the_stage_named(make, said):
    with pytest.raises(ConfigError, match=said):
        make()

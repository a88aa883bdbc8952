"""`kafka-actors schemas` against a registry: what there is, and what a new version would break."""

import json

import pytest
from fakes.schema_registry import FakeSchemaRegistry

from kafka_actors.cli.main import run_command_line

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "int"}, {"name": "note", "type": ["null", "string"], "default": None}],
}
PIPELINE = """
import os
import pyarrow.compute as pc
import kafka_actors as ka

registry = ka.SchemaRegistry(os.environ["TEST_REGISTRY"])
orders = (
    ka.Pipeline.read_kafka("orders", bootstrap_servers="localhost:1", group_id="g")
    .decode(registry)
    .filter(pc.field("note") != "no")
    .write(print)
)
"""


@pytest.fixture
def fake(monkeypatch):
    with FakeSchemaRegistry() as registry:
        monkeypatch.setenv("KAFKA_ACTORS_REGISTRY", registry.url)
        monkeypatch.setenv("TEST_REGISTRY", registry.url)
        yield registry


@pytest.fixture
def ask(capsys):
    def call(*arguments):
        code = run_command_line(["schemas", *map(str, arguments)])
        return code, *capsys.readouterr()

    return call


def test_subjects_and_texts(fake, ask):
    first = fake.add("orders-value", ORDER)
    fake.add("shop-value", 'syntax = "proto3";', "PROTOBUF")
    code, out, _ = ask("list")
    assert code == 0
    assert out.splitlines() == [
        "SUBJECT       VERSION  ID  TYPE",
        "orders-value  1        1   AVRO",
        "shop-value    1        2   PROTOBUF",
    ]
    assert json.loads(ask("list", "-o", "json")[1])[0] == {
        "subject": "orders-value",
        "version": 1,
        "id": 1,
        "type": "AVRO",
    }
    for name in ("orders-value", first):
        assert json.loads(ask("show", name)[1]) == ORDER
    assert ask("show", "orders-value", "--version", "1", "-o", "json")[0] == 0


def test_what_is_not_there_or_wrong_is_said_in_one_line(fake, ask, tmp_path):
    for arguments, code, said in (
        (("show", "nothing"), 1, "subject nothing, version latest: "),
        (("show", "x", "--version", "newest"), 2, "--version is 'newest': accepts a number, or 'latest'"),
        (("list", "--registry-option", "ssl_cafile"), 2, "--registry-option 'ssl_cafile' has no '='"),
        (("list", "--registry", "here"), 2, "url: is 'here'"),
        (("check", "x", __file__), 2, "is no schema: accepts .avsc, .proto, .json"),
    ):
        found, out, err = ask(*arguments)
        assert (found, out) == (code, "")
        assert said in err
        assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("fields", "problems"),
    [
        ([*ORDER["fields"], {"name": "x", "type": "int", "default": 0}], []),
        (
            ORDER["fields"][:1],
            ['the pipeline, started anew: filter(note != "no")'],
        ),
        (
            [{"name": "id", "type": "long"}, ORDER["fields"][1]],
            ["decode, which reads by the present schema: id: writer long, reader int"],
        ),
        (
            [{"name": "id", "type": "int"}, {"name": "more", "type": "Order"}],
            [
                "the pipeline, started anew: decode: the new schema: field 'more' is Order, which holds itself: no Arrow column can",
            ],
        ),
    ],
    ids=["added", "dropped", "widened", "loop"],
)
def test_a_new_version_is_checked_against_a_pipeline(fake, ask, tmp_path, fields, problems):
    fake.add("orders-value", ORDER)
    pipe, new = tmp_path / "pipe.py", tmp_path / "order.avsc"
    pipe.write_text(PIPELINE)
    new.write_text(json.dumps({**ORDER, "fields": fields}))
    code, out, err = ask("check", "orders-value", new, "--pipeline", f"{pipe}:orders")
    assert err == ""
    found = out.splitlines()
    if not problems:
        assert (code, found) == (0, ["orders-value: nothing would break"])
    else:
        assert code == 1
        assert len(found) == len(problems)
        assert all(line.startswith(problem) for line, problem in zip(found, problems, strict=True)), found


def test_the_registrys_own_rule_comes_first(fake, ask, tmp_path):
    fake.add("orders-value", ORDER)
    fake.incompatible.add("orders-value")
    new = tmp_path / "order.avsc"
    new.write_text(json.dumps({**ORDER, "fields": ORDER["fields"][:1]}))
    code, out, _ = ask("check", "orders-value", new, "-o", "json")
    assert code == 1
    assert json.loads(out) == {
        "subject": "orders-value",
        "compatible": False,
        "problems": ["the registry: {type: READER_FIELD_MISSING_DEFAULT_VALUE}"],
    }


def test_a_new_version_is_checked_against_what_a_pipeline_writes_and_none_is_registered(fake, ask, tmp_path):
    fake.add("orders-value", ORDER)
    fake.add("scored-value", ORDER)
    sinks = '.write_kafka("scored", format="avro", registry=registry).write_kafka("new", format="avro", registry=registry, register=True)'
    pipe, new = tmp_path / "pipe.py", tmp_path / "scored.avsc"
    pipe.write_text(PIPELINE.replace(".write(print)", sinks))
    new.write_text(json.dumps({**ORDER, "fields": ORDER["fields"][:1]}))
    code, out, err = ask("check", "scored-value", new, "--pipeline", f"{pipe}:orders")
    assert (code, err) == (1, "")
    assert out.startswith(
        "the pipeline, started anew: write_kafka(scored): the new schema: note: the schema has no such field"
    )
    assert fake.answer("GET", ["subjects"], None) == (200, ["orders-value", "scored-value"])

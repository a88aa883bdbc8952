"""Avro's values read by Java's own Avro, which comes with PySpark: what it resolves and what it refuses is the same here."""

import base64
import json
import subprocess
from pathlib import Path

import fastavro
import numpy as np
import pyarrow as pa
import pyspark
import pytest
from fakes.avro import Namer, changed, encoded, records, written
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafka_actors.errors import ConfigError
from kafka_actors.schemas import kernels
from kafka_actors.schemas.avro_resolution import program
from kafka_actors.schemas.avro_schema import parse
from kafka_actors.testing.distribution import find_java

pytestmark = pytest.mark.spark

SOURCE = Path(__file__).parents[1] / "java" / "avro" / "AvroOracle.java"
JARS = Path(pyspark.__file__).parent / "jars"
EXAMPLES = settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


class JavasAvro:
    """Avro's classes in a JVM."""

    def __init__(self) -> None:
        names = ("avro-1*", "jackson-*", "slf4j-api-*", "commons-compress-*")
        jars = ":".join(str(jar) for name in names for jar in JARS.glob(f"{name}.jar"))
        command = [find_java(), "-Xshare:auto", "-XX:+UseSerialGC", "-cp", jars, str(SOURCE)]
        self._jvm = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def read(self, writer, reader, values):
        """Whether the schemas are compatible, and each value written by the reader's schema, or None where it could not be read."""
        texts = [base64.b64encode(value).decode() for value in values]
        request = {"writer": json.dumps(writer), "reader": json.dumps(reader), "values": texts}
        self._jvm.stdin.write(json.dumps(request) + "\n")
        self._jvm.stdin.flush()
        answer = json.loads(self._jvm.stdout.readline())
        found = [base64.b64decode(one["data"]) if "data" in one else None for one in answer["values"]]
        return answer["compatible"], found

    def close(self):
        self._jvm.communicate()


@pytest.fixture(scope="module")
def java():
    made = JavasAvro()
    yield made
    made.close()


def rows_of(made, values):
    """The row of each value, None for one that can't be read."""
    batch, failures = kernels.avro_kernel()[1](made).run(
        pa.array(values, pa.binary()), np.arange(len(values), dtype=np.int32), 0
    )
    failed, rows = {at for at, *_ in failures}, iter(batch.to_pylist())
    return [None if at in failed else without_order(next(rows)) for at in range(len(values))]


def without_order(value):
    """Rows in which the entries of maps are in the order of their keys: Java keeps none."""
    if isinstance(value, dict):
        return {name: without_order(one) for name, one in value.items()}
    if isinstance(value, list):
        made = [without_order(one) for one in value]
        return sorted(made, key=repr) if made and isinstance(made[0], tuple) else made
    return (value[0], without_order(value[1])) if isinstance(value, tuple) else value


def drawn(data, schema):
    rows = data.draw(st.lists(written(schema), min_size=1, max_size=4))
    return [encoded(fastavro.parse_schema(schema), row) for row in rows]


@EXAMPLES
@given(st.data())
def test_what_a_readers_schema_gives_is_what_java_reads(java, data):
    writer = data.draw(records(Namer()))
    reader = data.draw(changed(writer, Namer()))
    values = drawn(data, writer)
    compatible, theirs = java.read(writer, reader, values)
    assert compatible
    ours = rows_of(program(parse(writer), parse(reader)), values)
    assert repr(ours) == repr(rows_of(program(parse(reader), parse(reader)), theirs))
    assert None not in ours


@EXAMPLES
@given(st.data())
def test_what_java_refuses_is_refused(java, data):
    """Java still reads values of an incompatible pair in which nothing differs, such as an empty array. Here only a union's other
    branches are read so: what can't be read at any other place is refused for all values of a schema. It reads any bytes as a string, too;
    here a string is UTF-8."""
    writer, reader = ({**data.draw(records(Namer())), "name": "Root"} for _ in range(2))
    values = drawn(data, writer)
    compatible, theirs = java.read(writer, reader, values)
    try:
        made = program(parse(writer), parse(reader))
    except ConfigError:
        assert not compatible
        return
    same = program(parse(reader), parse(reader))
    read = [None if one is None else rows_of(same, [one])[0] for one in theirs]
    assert repr(rows_of(made, values)) == repr(read)


def test_bytes_that_are_no_text_are_no_string(java):
    writer, reader = (
        {"type": "record", "name": "Root", "fields": [{"name": "f0", "type": kind}]}
        for kind in ("bytes", "string")
    )
    values = [encoded(fastavro.parse_schema(writer), {"f0": data}) for data in (b"\x80", b"text")]
    compatible, theirs = java.read(writer, reader, values)
    assert compatible
    assert theirs == values
    assert rows_of(program(parse(writer), parse(reader)), values) == [None, {"f0": "text"}]

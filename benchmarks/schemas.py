"""Values with a registry's frame to columns, and back: our decoders and encoders beside confluent-kafka's (de)serializers, in one thread, without a broker's part.

Orders have eight fields. `resolved`: the writer's schema lacks two of the reader's fields, has one that it drops, and an int that it promotes.
Every value is decoded, and all rows are compared with what was written.

`ray`: the same values in a topic, decoded and summed by a pipeline of two workers, beside two processes of confluent-kafka in a group.

`spark`: the same values in a topic, decoded and summed in a session of Spark's, beside its own source and decoder in the JVM.
"""

from __future__ import annotations

import io
import json
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks import spark
from benchmarks.common import Client, Section, Stage
from benchmarks.consumer import reads
from benchmarks.data import AVRO_ROWS, Data, runs_of
from benchmarks.job import TWO_PROCESSES
from benchmarks.our_jobs import Reports, own_ray
from benchmarks.peers import CONFLUENT, CONFLUENT_NOTE
from benchmarks.reading import Run, Task
from kafka_actors.testing.spark import CONNECTOR

AVRO, PROTOBUF, PROTOBUF_WRITTEN = "AvroDecoder", "ProtobufDecoder", "ProtobufEncoder"
OPTION, PIPELINE, FROM_AVRO = (
    "kafka_actors, decode=avro",
    "pipeline, decode_avro",
    f"{spark.THEIRS} + from_avro",
)
SPARK_AVRO = "org.apache.spark:spark-avro_2.13:4.2.0"
RAY_PIPELINE = "pipeline, 2 workers, decode_avro"
ROWS = 200_000
ON_RAY = 3_000_000
PASSES = 5
"""Passes of our decoders; the deserializers take as long for one of a tenth."""
SCHEMA_ID = 7

FIELDS: list[dict[str, Any]] = [
    {"name": "id", "type": "long"},
    {"name": "customer", "type": "string"},
    {"name": "country", "type": ["null", "string"], "default": None},
    {"name": "amount", "type": "double"},
    {"name": "items", "type": "int"},
    {"name": "paid", "type": "boolean"},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["NEW", "OPEN", "DONE"]}},
]
ORDER = {"type": "record", "name": "Order", "fields": FIELDS}
READER = {
    "type": "record",
    "name": "Order",
    "fields": [
        *(field for field in FIELDS if field["name"] not in ("items", "paid")),
        {"name": "items", "type": "long"},
        {"name": "channel", "type": "string", "default": "web"},
        {"name": "weight", "type": "double", "default": 1.5},
    ],
}
PROTO = """syntax = "proto3"; package shop; enum Kind { NEW = 0; OPEN = 1; DONE = 2; }
message Order { int64 id = 1; string customer = 2; optional string country = 3; double amount = 4; int32 items = 5; bool paid = 6;
  int64 at = 7; Kind kind = 8; }"""


def sections() -> list[Section]:
    notes = f"{ROWS:,} values of eight fields in memory, one thread"
    return [
        _section("avro", "Avro, the writer's schema is the reader's", AVRO, notes),
        _section("resolved", "Avro, resolved: two fields added, one dropped, one promoted", AVRO, notes),
        _section("protobuf", "Protobuf", PROTOBUF, notes),
        _on_spark(),
        _on_ray(),
        _section("protobuf_written", "Protobuf, written", PROTOBUF_WRITTEN, notes),
    ]


def _on_spark() -> Section:
    session, data = spark.Session((*CONNECTOR, SPARK_AVRO)), Data(size=45, records=spark.RECORDS, avro=True)
    clients = {
        name: session.asks(query, data, schema=json.dumps(ORDER))
        for name, query in (
            (OPTION, "avro_decoded"),
            (PIPELINE, "avro_pipeline"),
            (FROM_AVRO, "avro_from_avro"),
        )
    }
    title = "Avro of orders decoded on Spark, and the amounts summed"
    return Section(
        "schemas/spark",
        title,
        clients,
        (data,),
        notes=spark.NOTES,
        beside=session.open,
        warm_ups=spark.WARM_UPS,
    )


def _on_ray() -> Section:
    data = Data(size=45, records=ON_RAY, avro=True)
    clients = {
        RAY_PIPELINE: reads("schemas:ray_pipeline", data, workers=2, amount=amount_of(data)),
        TWO_PROCESSES: reads("peers:confluent_group", data, members=2, schema=json.dumps(ORDER)),
    }
    title = "Avro of orders decoded on Ray by a pipeline of 2 workers, and the amounts summed"
    return Section("schemas/ray", title, clients, (data,), notes=CONFLUENT_NOTE)


class SchemaServer(ThreadingHTTPServer):
    """A registry over HTTP with one subject, `orders`, which has one version; on a port of the system's choice, until the process ends."""

    def __init__(self, text: str) -> None:
        super().__init__(("127.0.0.1", 0), _SchemaHandler)
        self.daemon_threads = True
        self.text = text
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        Thread(target=self.serve_forever, daemon=True).start()


class _SchemaHandler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        text = getattr(self.server, "text", "")
        found = {"subject": "orders", "version": 1, "id": SCHEMA_ID, "schema": text}
        data = json.dumps([1] if self.path.endswith("/versions") else found).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


def _section(name: str, title: str, ours: str, notes: str) -> Section:
    clients = {ours: _client(f"ours_{name}"), CONFLUENT: _client(f"confluent_{name}")}
    return Section(f"schemas/{name}", title, clients, notes=notes)


def _client(function: str) -> Client:
    def run(stage: Stage) -> Run:
        return stage.run(f"schemas:{function}", stage.task(rows=ROWS // 50 if stage.options.quick else ROWS))

    return run


# ---------------------------------------------------------------- values


def order(n: int) -> dict[str, Any]:
    return {
        "id": n * 7_919,
        "customer": f"customer-{n % 5_000}",
        "country": None if n % 3 == 0 else "DE",
        "amount": n / 8,
        "items": n % 20,
        "paid": n % 2 == 0,
        "at": 1_700_000_000_000_000 + n,
        "kind": ("NEW", "OPEN", "DONE")[n % 3],
    }


def avro_values(rows: int) -> list[bytes]:
    import fastavro

    schema, found = fastavro.parse_schema(ORDER), []
    for n in range(rows):
        stream = io.BytesIO(b"\0" + SCHEMA_ID.to_bytes(4, "big"))
        stream.seek(5)
        fastavro.schemaless_writer(stream, schema, order(n))
        found.append(stream.getvalue())
    return found


def proto_class() -> Any:
    from google.protobuf import message_factory

    from kafka_actors.schemas.protobuf_schema import Files, compiled

    return message_factory.GetMessageClass(Files(compiled(PROTO)).message("shop.Order"))


def proto_values(rows: int) -> list[bytes]:
    made, found = proto_class(), []
    for n in range(rows):
        fields = {name: value for name, value in order(n).items() if value is not None}
        found.append(b"\0" + SCHEMA_ID.to_bytes(4, "big") + b"\0" + made(**fields).SerializeToString())
    return found


class OneSchema:
    """A registry with one schema, which costs nothing to ask."""

    def __init__(self, text: str, kind: Any) -> None:
        from kafka_actors.schemas import Schema

        self._schema = Schema(SCHEMA_ID, kind, text)

    def schema_by_id(self, schema_id: int) -> Any:
        return self._schema

    def references_of(self, schema: Any) -> dict[str, str]:
        return {}


# ---------------------------------------------------------------- ours


def ours_avro(told: dict[str, Any]) -> Run:
    return _ours(avro_values(told["options"]["rows"]), "AVRO", ORDER)


def ours_resolved(told: dict[str, Any]) -> Run:
    return _ours(avro_values(told["options"]["rows"]), "AVRO", READER)


def ours_protobuf(told: dict[str, Any]) -> Run:
    return _ours(proto_values(told["options"]["rows"]), "PROTOBUF", PROTO)


def _ours(values: list[bytes], kind: str, reader: Any) -> Run:
    from kafka_actors.schemas import AvroDecoder, ProtobufDecoder

    registry: Any = OneSchema(json.dumps(ORDER) if kind == "AVRO" else PROTO, kind)
    decoder: Any = (
        AvroDecoder(reader, registry=registry)
        if kind == "AVRO"
        else ProtobufDecoder(reader, registry=registry)
    )
    array = pa.array(values, pa.binary())
    decoder.decode(array.slice(0, 1_000))  # compiles the program, as the first batch of a job does
    return _measured(len(values), lambda: decoder.decode(array).batch.column("customer").to_pylist, PASSES)


def ours_protobuf_written(told: dict[str, Any]) -> Run:
    """Columns to values, which are those of the runtime, with their frame."""
    from kafka_actors.schemas import ProtobufEncoder

    rows = told["options"]["rows"]
    batch = pa.RecordBatch.from_pylist([order(n) for n in range(rows)])
    batch = batch.set_column(4, "items", batch.column("items").cast(pa.int32()))
    encoder = ProtobufEncoder(PROTO, schema_id=SCHEMA_ID)
    if encoder(batch.slice(0, 1_000)).to_pylist() != proto_values(1_000):
        raise AssertionError("the values aren't those of Protobuf's runtime")
    return _measured(rows, lambda: encoder.encode(batch), PASSES)


def amount_of(data: Data) -> float:
    """The sum of all amounts in a topic of orders."""
    rows = np.tile(np.arange(AVRO_ROWS) / 8, 2)
    return float(sum(rows[chosen].sum() for _, chosen in runs_of(data)))


def ray_pipeline(told: dict[str, Any]) -> Run:
    """Bounded jobs of a pipeline, one after the other, until the time of a run is over. The clock of each runs from the first write of
    decoded rows to the end of the last."""
    import kafka_actors as ka

    task, records, seconds, starts = Task.of(told), 0, 0.0, list[float]()
    registry = ka.SchemaRegistry(SchemaServer(json.dumps(ORDER)).url)
    with own_ray(), tempfile.TemporaryDirectory() as directory:
        while seconds < task.seconds:
            made = Path(directory, str(records))
            made.mkdir()
            pipeline = (
                ka.Pipeline.read_kafka(task.topic, group_id=f"bench-{uuid.uuid4()}", bootstrap_servers=task.bootstrap)
                .decode_avro(registry=registry, subject="orders")
                .write(Amounts, fn_constructor_kwargs={"directory": str(made)})
            )  # fmt: skip
            began = time.monotonic()
            pipeline.on_ray(workers=task.options["workers"], until="latest").run()
            reports = [report for report in Reports(str(made)).all() if report["rows"]]
            found = sum(r["rows"] for r in reports), sum(r["amount"] for r in reports)
            if found != (task.total, task.options["amount"]):
                raise SystemExit(f"decoded rows and their amounts are {found}")
            first = min(report["first"] for report in reports)
            records += task.total
            seconds += max(report["last"] for report in reports) - first
            starts.append(first - began)
    return {"records": records, "seconds": seconds, "rate": records / seconds, "start_up": min(starts)}


class Amounts:
    """A sink that counts rows and sums their amounts."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._rows, self._amount, self._first, self._last = 0, 0.0, 0.0, 0.0

    def write(self, batch: pa.RecordBatch) -> None:
        self._first = self._first or time.monotonic()
        self._rows += batch.num_rows
        self._amount += pc.sum(batch.column("amount")).as_py() or 0.0
        self._last = time.monotonic()

    def close(self) -> None:
        report = {"rows": self._rows, "amount": self._amount, "first": self._first, "last": self._last}
        Reports(self._directory).leave(report)


# ---------------------------------------------------------------- confluent-kafka


def confluent_avro(told: dict[str, Any]) -> Run:
    return _confluent_avro(told, ORDER)


def confluent_resolved(told: dict[str, Any]) -> Run:
    return _confluent_avro(told, READER)


def _confluent_avro(told: dict[str, Any], reader: Any) -> Run:
    values = avro_values(max(1, told["options"]["rows"] // 10))
    return _each(values, confluent_deserializer(json.dumps(reader)))


def confluent_deserializer(reader: str) -> Callable[..., Any]:
    """An `AvroDeserializer` by a reader's schema, whose registry costs nothing to ask."""
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient, topic_subject_name_strategy
    from confluent_kafka.schema_registry.avro import AvroDeserializer

    client: Any = SchemaRegistryClient({"url": "http://127.0.0.1:1"})
    # Nothing is asked over the network.
    client.get_schema = lambda *_, **__: Schema(json.dumps(ORDER), "AVRO")
    client.get_latest_version = client.get_schema
    settings = {"subject.name.strategy": topic_subject_name_strategy}
    return AvroDeserializer(client, reader, conf=settings)


def confluent_protobuf(told: dict[str, Any]) -> Run:
    from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer

    values = proto_values(max(1, told["options"]["rows"] // 10))
    return _each(values, ProtobufDeserializer(proto_class(), {"use.deprecated.format": False}))


def confluent_protobuf_written(told: dict[str, Any]) -> Run:
    """Messages, made of rows, to values: the rows are dicts beforehand, as a program has them."""
    from confluent_kafka.schema_registry import SchemaRegistryClient, topic_subject_name_strategy
    from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    client: Any = SchemaRegistryClient({"url": "http://127.0.0.1:1"})
    client.register_schema_full_response = lambda *_, **__: _Registered()
    settings = {
        "use.deprecated.format": False, "auto.register.schemas": True, "subject.name.strategy": topic_subject_name_strategy,
    }  # fmt: skip
    made = proto_class()
    serialize = ProtobufSerializer(made, client, settings)
    context = SerializationContext("orders", MessageField.VALUE)
    rows = [
        {name: value for name, value in order(n).items() if value is not None}
        for n in range(max(1, told["options"]["rows"] // 10))
    ]
    serialize(made(**rows[0]), context)
    return _measured(len(rows), lambda: [serialize(made(**row), context) for row in rows][-1], 1)


class _Registered:
    """Answer of a registry that has the schema."""

    schema_id = SCHEMA_ID
    guid = None
    version = 1


def _each(values: Sequence[bytes], deserialize: Callable[..., Any]) -> Run:
    from confluent_kafka.serialization import MessageField, SerializationContext

    context = SerializationContext("orders", MessageField.VALUE)
    deserialize(values[0], context)
    return _measured(len(values), lambda: [deserialize(value, context) for value in values][-1], 1)


def _measured(rows: int, work: Callable[[], Any], passes: int) -> Run:
    began, cpu = time.perf_counter(), time.process_time()
    for _ in range(passes):
        work()
    seconds = time.perf_counter() - began
    return {
        "records": rows * passes,
        "seconds": seconds,
        "rate": rows * passes / seconds,
        "cpu": time.process_time() - cpu,
    }

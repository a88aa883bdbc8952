"""A pipeline on Ray, from real topics to real topics and files: nothing missing, whatever fails."""

import asyncio
import contextlib
import io
import itertools
import json
import os
import signal
import sys
import threading
import uuid
from collections import Counter

import fastavro
import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource
from fakes.schema_registry import FakeSchemaRegistry
from ray import cloudpickle
from waiting import slow_s, until

import kafka_actors as ka
from kafka_actors.base.message import messages_of
from kafka_actors.errors import ConfigError, SinkError, StageError, UnknownTopicOrPartitionError

pytestmark = [pytest.mark.ray, pytest.mark.kafka]

SCHEMA = "id BIGINT NOT NULL, country STRING, amount DOUBLE"
COUNTRIES = ["DE", "FR", "IT"]
PARTITIONS = 3


def order(n):
    return json.dumps({"id": n, "country": COUNTRIES[n % 3], "amount": n / 2}).encode()


class Place:
    """An input topic of three partitions, an output, a dead-letter topic; and what is in them."""

    def __init__(self, cluster, topic, produce, group):
        self.servers = cluster.bootstrap_servers
        self.cluster = cluster
        self.group = group
        self.input, self.output, self.dead = (topic(PARTITIONS, cluster=cluster) for _ in range(3))
        self._produce = produce

    def fill(self, count, bad=None):
        """Orders with the ids 0, 1, …; `bad` maps ids to values that are no orders."""
        values = [(bad or {}).get(n, order(n)) for n in range(count)]
        self._produce(
            self.input,
            values,
            partition=[n % PARTITIONS for n in range(count)],
            keys=[b"k%d" % n for n in range(count)],
            headers=[[("trace", b"%d" % n)] for n in range(count)],
            bootstrap_servers=self.servers,
        )

    def put(self, records, partition=0):
        """These (key, value, headers), in this order in one partition."""
        keys, values, headers = zip(*records, strict=True)
        self._produce(
            self.input,
            values,
            partition=partition,
            keys=keys,
            headers=[list(h) for h in headers],
            bootstrap_servers=self.servers,
        )

    def read(self, **options):
        given = {"bootstrap_servers": self.servers, "start_timeout_s": 600, **options}
        return ka.Pipeline.read_kafka(self.input, group_id=self.group, **given)

    def records_at(self, isolation_level, topic):
        """All records of a topic at present: committed ones, or also those that were aborted."""
        with ka.Consumer(
            bootstrap_servers=self.servers, auto_offset_reset="earliest", isolation_level=isolation_level
        ) as consumer:
            partitions = [ka.TopicPartition(topic, n) for n in range(PARTITIONS)]
            consumer.assign(partitions)
            ends, found = consumer.end_offsets(partitions), []
            while any((consumer.position(tp) or 0) < end for tp, end in ends.items()):
                batch = consumer.poll_batch(timeout_ms=100)
                found += [] if batch is None else messages_of(batch)
        return found

    def records(self, topic):
        """All records of a topic, those of transactions that were aborted included."""
        return self.records_at("read_uncommitted", topic)

    def set_config(self, topic, name, value):
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        change = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
        for done in self.cluster.admin.incremental_alter_configs([change]).values():
            done.result(slow_s(30))

    def settled(self):
        committed = {tuple(tp): o for tp, o in self.cluster.committed(self.group).items()}
        return committed == {tuple(tp): o for tp, o in self.cluster.end_offsets(self.input).items()}


@pytest.fixture
def place(ray_local, kafka_cluster, kafka_topic, produce, group_id):
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # the functions of this file
    return Place(kafka_cluster, kafka_topic, produce, group_id)


def taxed(batch):
    return batch.append_column("tax", pc.multiply(batch["amount"], 0.25))


def failing(*ids):
    """A function that raises for batches that hold one of these."""

    def call(batch):
        if found := [i for i in batch["id"].to_pylist() if i in ids]:
            raise ValueError(f"no good: {found}")
        return batch

    return call


def test_orders_are_enriched_keyed_and_all_there_before_their_offsets_are_committed(place):
    place.fill(3000)
    pipeline = (
        place.read()
        .decode_json(SCHEMA)
        .filter(pc.field("amount") >= 10)
        .map_batches(taxed, schema=f"{SCHEMA}, tax DOUBLE")
        .with_key("country")
        .write_kafka(place.output)
    )
    with pipeline.on_ray(workers=2, until="latest", config={"drain_timeout_ms": 50_000}).start() as run:
        assert run.status().group_id == place.group
        run.wait(timeout=slow_s(60))
    sent = place.records(place.output)
    found = {row["id"]: row for row in (msgspec.json.decode(m.value) for m in sent)}
    assert found == {
        n: {"id": n, "country": COUNTRIES[n % 3], "amount": n / 2, "tax": n / 8} for n in range(20, 3000)
    }
    assert len(sent) == len(found)
    assert {(m.key.decode(), msgspec.json.decode(m.value)["country"]) for m in sent} == {
        (c, c) for c in COUNTRIES
    }
    assert place.settled()


def blocked_on(run, reason):
    """The partitions that are blocked for a reason that begins so."""
    return [one for one in run.status().partitions if one.reason and one.reason.startswith(reason)]


def test_values_by_several_schemas_of_a_registry_are_read_by_one(place):
    """A new writer's schema appears while the job runs; a registry that fails holds a partition up, and skips nothing."""
    with FakeSchemaRegistry() as registry:
        subject = f"{place.input}-value"
        first = registry.add(subject, order_schema())
        place.put([(b"k", avro_order(order_schema(), first, n), []) for n in range(50)])
        pipeline = (
            place.read()
            .dead_letters(place.dead)
            .decode(ka.SchemaRegistry(registry.url), on_error="dead_letter")
            .write_kafka(place.output)
        )
        bound = pipeline.on_ray(workers=1)
        assert f"by schema {first} ({subject} version 1)" in bound.explain()
        with bound.start() as run:
            until(lambda: len(place.records(place.output)) == 50, slow_s(60), "the first orders")
            wider = order_schema({"name": "city", "type": "string", "default": "-"})
            second = registry.add(subject, wider)
            registry.faults.extend([503] * 10_000)
            place.put([(b"k", avro_order(wider, second, n, city="x"), []) for n in range(50, 100)])
            said = f"waits for the registry: stage decode: schema {second}: no answer of the registry: {registry.url}"
            until(lambda: blocked_on(run, said), slow_s(60), "the reason why nothing is read")
            registry.faults.clear()
            place.put([(b"k", b"no frame", []), (b"k", avro_order(wider, 99, 1, city="x"), [])])
            until(lambda: len(place.records(place.output)) == 100, slow_s(60), "the others")
            until(lambda: len(place.records(place.dead)) == 2, slow_s(60), "the dead letters")
            until(lambda: not blocked_on(run, ""), slow_s(20), "that it goes on")
            chosen = f"schema {first} ({subject} version 1)"
            assert run.status().schemas == {"decode": chosen}
            texts = [entry.text for entry in run.status().timeline if entry.kind == "schema"]
            assert texts == [
                f"decode: first values by schema {second}, which is new; they are read by {chosen}"
            ]
            run.stop()
    rows = [msgspec.json.decode(m.value) for m in place.records(place.output)]
    assert rows == [{"id": n, "amount": n / 2} for n in range(100)]
    reasons = [dict(m.headers)["kafka_actors.error.reason"].decode() for m in place.records(place.dead)]
    assert "begins with byte 110, not with the frame of a registry's serializer" in reasons[0]
    assert "Schema 99 not found" in reasons[1]


def test_a_new_schema_of_keys_and_values_is_asked_for_once_by_all_workers_of_a_job(place):
    """Keys and values have the GUIDs of their schemas in headers."""
    with FakeSchemaRegistry() as registry:
        wider = order_schema({"name": "city", "type": "string", "default": "-"})
        guids = []

        def add(key, value):
            numbers = registry.add(f"{place.input}-key", key), registry.add(f"{place.input}-value", value)
            guids.append([registry.guid(number) for number in numbers])

        def put(first, value, **more):
            key_guid, value_guid = (b"\1" + uuid.UUID(guid).bytes for guid in guids[-1])
            headers = [("__key_schema_id", key_guid), ("__value_schema_id", value_guid)]
            for partition in range(PARTITIONS):
                numbers = range(first + partition, first + 30, PARTITIONS)
                rows = [(b"\x06k%02d" % n, avro_order(value, 0, n, **more)[5:], headers) for n in numbers]
                place.put(rows, partition)

        add('"string"', order_schema())
        put(0, order_schema())
        ours = ka.SchemaRegistry(registry.url)
        pipeline = place.read().decode(ours).decode_key(ours, column="name").write_kafka(place.output)
        with pipeline.on_ray(workers=PARTITIONS).start() as run:
            until(lambda: len(place.records(place.output)) == 30, slow_s(60), "the first orders")
            add({"type": "string", "doc": "another"}, wider)
            put(30, wider, city="x")
            until(lambda: len(place.records(place.output)) == 60, slow_s(60), "the others")
            run.stop()
        asked = [one.rpartition("/")[2] for one in registry.requests if one.startswith("GET /schemas/")]
        assert sorted(asked) == sorted(guids[1]), registry.requests
    rows = [msgspec.json.decode(m.value) for m in place.records(place.output)]
    assert sorted((row["id"], row["name"]) for row in rows) == [(n, f"k{n:02}") for n in range(60)]


PROTO_ORDER = 'syntax = "proto3"; package shop; message Refund { int64 id = 1; } message Order { int32 id = 1; optional double amount = 2; }'


@pytest.mark.parametrize("form", ["avro", "protobuf"])
def test_rows_are_written_by_a_schema_that_is_registered_once_and_those_that_do_not_fit_are_dead_letters(
    place, form
):
    narrow = order_schema()
    narrow["fields"][0]["type"] = "int"
    protobuf = form == "protobuf"
    schema, message = (PROTO_ORDER, "shop.Order") if protobuf else (narrow, None)
    with FakeSchemaRegistry() as registry:
        place.fill(50, {7: order(2**31)})
        pipeline = (
            place.read()
            .dead_letters(place.dead)
            .decode_json(SCHEMA)
            .select("id", "amount")
            .write_kafka(
                place.output,
                format=form,
                registry=ka.SchemaRegistry(registry.url),
                schema=schema,
                message=message,
                register=True,
                on_error="dead_letter",
            )
        )
        bound = pipeline.on_ray(workers=2, until="latest")
        assert f"  on_error dead_letter, by schema 1 ({place.output}-value version 1)" in bound.explain()
        bound.run()
        asked = [one for one in registry.requests if one.startswith("POST")]
        look_up, register = (
            f"POST /subjects/{place.output}-value",
            f"POST /subjects/{place.output}-value/versions",
        )
        assert asked == [look_up, register, look_up], "it isn't there, is registered, and has a version then"
        sent = place.records(place.output)
        ours = ka.SchemaRegistry(registry.url)
        decoder = (
            ka.schemas.ProtobufDecoder(schema, message=message, registry=ours)
            if protobuf
            else ka.schemas.AvroDecoder(schema, registry=ours)
        )
        rows = decoder(pa.array([one.value for one in sent], pa.binary())).to_pylist()
    assert {row["id"]: row["amount"] for row in rows} == {n: n / 2 for n in range(50) if n != 7}
    assert {(message.key, row["id"]) for message, row in zip(sent, rows, strict=True)} == {
        (b"k%d" % n, n) for n in range(50) if n != 7
    }
    (dead,) = place.records(place.dead)
    kind = b"int32" if protobuf else b"int of 32 bits"
    assert dict(dead.headers)["kafka_actors.error.reason"] == b"id: 2147483648 is no " + kind


def order_schema(*more):
    fields = [{"name": "id", "type": "long"}, {"name": "amount", "type": "double"}, *more]
    return {"type": "record", "name": "Order", "fields": fields}


def avro_order(schema, number, n, **more):
    """An order as Confluent's serializer writes it."""
    stream = io.BytesIO(b"\0" + number.to_bytes(4, "big"))
    stream.seek(5)
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), {"id": n, "amount": n / 2, **more})
    return stream.getvalue()


def test_skip_and_dead_letter_take_out_the_records_at_fault_and_no_other(place):
    bad = {7: b"", 100: b'{"id": 100} {"id": 100}', 299: b"\xff"}
    place.fill(300, bad)
    pipeline = (
        place.read()
        .dead_letters(place.dead)
        .on_error("dead_letter", retries=1)
        .decode_json(SCHEMA)
        .map_batches(failing(50, 51), schema=SCHEMA, name="score")
        .map_batches(failing(60), schema=SCHEMA, on_error="skip")
        .write_kafka(place.output)
    )
    pipeline.on_ray(workers=2, until="latest").run()
    sent = {msgspec.json.decode(m.value)["id"]: m.key for m in place.records(place.output)}
    assert sent == {n: b"k%d" % n for n in range(300) if n not in (*bad, 50, 51, 60)}
    dead = {int(m.key[1:]): m for m in place.records(place.dead)}
    assert dead.keys() == {*bad, 50, 51}
    for n, message in dead.items():
        headers = dict(message.headers)
        assert message.value == bad.get(n, order(n))
        assert headers["trace"] == b"%d" % n
        assert headers["kafka_actors.error.topic"] == place.input.encode()
        assert headers["kafka_actors.error.partition"] == b"%d" % (n % PARTITIONS)
        assert headers["kafka_actors.error.offset"] == b"%d" % (n // PARTITIONS)
        assert headers["kafka_actors.error.stage"] == (b"decode_json" if n in bad else b"score")
    assert dict(dead[50].headers)["kafka_actors.error.reason"] == b"ValueError: no good: [50]"
    assert dict(dead[7].headers)["kafka_actors.error.reason"] == b"the value is empty"
    assert place.settled()


def test_calls_of_an_async_stage_overlap_over_partitions_and_those_of_one_come_in_order(place, tmp_path):
    """No call ends before two partitions have one under way."""
    place.fill(300)
    began, written = tmp_path / "began", tmp_path / "written"

    class Lookup:
        def __init__(self):
            self.under_way = set()
            self.two = asyncio.Event()

        async def __call__(self, batch):
            partition = batch["id"][0].as_py() % PARTITIONS
            assert partition not in self.under_way
            self.under_way.add(partition)
            with began.open("a") as file:
                file.write(f"{len(self.under_way)}\n")
            if len(self.under_way) > 1:
                self.two.set()
            await self.two.wait()
            self.under_way.remove(partition)
            return failing(51)(batch)

        async def close(self):
            with began.open("a") as file:
                file.write(f"closed with {len(self.under_way)}\n")

    def write(batch):
        with written.open("a") as file:
            file.writelines(f"{n}\n" for n in batch["id"].to_pylist())

    pipeline = (
        place.read()
        .decode_json(SCHEMA)
        .map_batches(Lookup, schema=SCHEMA, on_error="dead_letter")
        .filter(pc.field("id") != 52)
        .write(write)
        .on_error("fail", retries=0)
        .dead_letters(place.dead)
    )
    pipeline.on_ray(workers=1, until="latest", batch_rows=20).run()
    *calls, last = began.read_text().splitlines()
    assert {"2", "3"} & set(calls)
    assert last == "closed with 0"
    ids = [int(line) for line in written.read_text().splitlines()]
    for partition in range(PARTITIONS):
        expected = [n for n in range(partition, 300, PARTITIONS) if n not in (51, 52)]
        assert [n for n in ids if n % PARTITIONS == partition] == expected
    assert [m.value for m in place.records(place.dead)] == [order(51)]
    assert place.settled()


def test_under_fail_the_job_ends_with_the_stage_and_the_offsets(place):
    place.fill(300)
    pipeline = (
        place.read()
        .on_error("fail", retries=1)
        .decode_json(SCHEMA)
        .filter(pc.field("id") >= 90)
        .map_batches(failing(91), schema=SCHEMA, name="score")
        .write(lambda batch: None)
    )
    run = pipeline.on_ray(workers=1).start()
    with pytest.raises(ka.JobFailed) as failed:
        run.wait(timeout=slow_s(60))
    run.stop()
    cause = failed.value.cause
    assert isinstance(cause, StageError)
    assert (cause.stage, cause.topic, cause.partition) == ("score", place.input, 1)
    assert (cause.first_offset, cause.last_offset, cause.attempts) == (30, 99, 2)
    assert "ValueError: no good: [91]" in str(cause)
    assert isinstance(cause.__cause__, ValueError)


def test_code_that_cannot_be_sent_is_refused_at_the_start_with_stage_and_variable(place):
    lock = threading.Lock()
    pipeline = place.read().decode_json(SCHEMA).map_batches(lambda batch: lock, schema=SCHEMA, name="score")
    with pytest.raises(ConfigError, match=r"^score: can't be sent to the workers: the variable 'lock': "):
        pipeline.write(lambda batch: None).on_ray().start()


def test_a_killed_worker_with_a_kafka_sink_leaves_nothing_out(place, tmp_path):
    place.fill(9000)
    killed = tmp_path / "killed"

    def deadly(batch):
        if max(batch["id"].to_pylist()) >= 3000 and not killed.exists():
            killed.write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGKILL)
        return batch

    pipeline = (
        place.read()
        .decode_json(SCHEMA)
        .map_batches(deadly, schema=SCHEMA)
        .write_kafka(place.output, linger_ms=50)
    )
    run = pipeline.on_ray(workers=2, until="latest", batch_rows=200, config={"auto_commit_interval_ms": 100})
    run.run()
    ids = [msgspec.json.decode(m.value)["id"] for m in place.records(place.output)]
    assert killed.exists()
    assert set(ids) == set(range(9000))
    print(f"{len(ids) - 9000} came twice")
    assert place.settled()


def test_results_and_dead_letters_are_there_once_where_delivery_is_exactly_once(place, kafka_topic, tmp_path):
    """An async function, two sinks, and a worker that is killed in the midst of a transaction, when some of its records are written. While
    one call is held, later ones of both workers wait: the job can't end before its records have come again."""
    place.fill(3000)
    other = kafka_topic(PARTITIONS, cluster=place.cluster)
    held, over = tmp_path / "held", tmp_path / "over"
    sent_on = []

    async def deadly(batch):
        await asyncio.sleep(0.01)
        ids = batch["id"].to_pylist()
        if sent_on and max(ids) >= 1500 and not over.exists():
            mine = tmp_path / uuid.uuid4().hex  # by worker, a later call would empty what is held
            mine.write_text(json.dumps([os.getpid(), *sent_on]))
            with contextlib.suppress(FileExistsError):
                os.link(mine, held)
            while held.exists():  # noqa: ASYNC110  another process removes it
                await asyncio.sleep(0.05)
        sent_on.extend(ids)
        return failing(7, 1700)(batch)

    def ids_at(isolation_level, topic):
        found = place.records_at(isolation_level, topic)
        return [(m.partition, msgspec.json.decode(m.value)["id"]) for m in found]

    def written():
        """The ids of all records that are written, also of transactions that are open or were aborted."""
        return [n for _, n in ids_at("read_uncommitted", other)]

    def waited(condition):
        """Whether this comes to be so within seconds."""
        with contextlib.suppress(AssertionError):
            until(condition, 10, pause=0.2)
            return True
        return False

    def kill():
        """Kills who holds a call when records of it are written, until some come again. A transaction may be committed in that moment: partitions
        that another worker is to get are committed though the call of one is held."""
        while not over.exists():
            until(held.exists, 300)
            pid, *its_own = json.loads(held.read_text())
            if waited(lambda sent=its_own: set(written()) & set(sent)):
                os.kill(pid, signal.SIGKILL)
                if waited(lambda: len(ids := written()) > len(set(ids))):
                    over.touch()
            held.unlink()

    pipeline = (
        place.read()
        .decode_json(SCHEMA)
        .map_batches(deadly, schema=SCHEMA, on_error="dead_letter")
        .on_error("fail", retries=0)
        .dead_letters(place.dead, transaction_timeout_ms=600_000)
        .write_kafka(place.output, transaction_timeout_ms=600_000)
        .write_kafka(other, transaction_timeout_ms=600_000)
    )
    killing = threading.Thread(target=kill, daemon=True)
    killing.start()
    run = pipeline.on_ray(
        workers=2,
        until="latest",
        batch_rows=100,
        delivery="exactly_once",
        config={"auto_commit_interval_ms": 300_000},
    )
    run.run()
    killing.join(slow_s(10))
    assert not killing.is_alive()
    for topic in (place.output, other):
        sent = ids_at("read_committed", topic)
        assert sorted(n for _, n in sent) == [n for n in range(3000) if n not in (7, 1700)]
        for pair in itertools.product(range(PARTITIONS), repeat=2):
            own = [n for partition, n in sent if (partition, n % PARTITIONS) == pair]
            assert own == sorted(own)
    dead = place.records_at("read_committed", place.dead)
    assert sorted(m.value for m in dead) == sorted(map(order, (7, 1700)))
    assert len(written()) > 2998  # with those of the worker that was killed
    assert place.settled()


def test_a_sink_that_fails_ends_the_job_and_none_of_its_records_are_committed(place):
    """Another one may have them: it is ahead of the offsets."""
    place.fill(30)

    class Sink:
        def write(self, batch):
            pass

        def flush(self):
            raise OSError("disk full")

    pipeline = place.read().decode_json(SCHEMA).write_kafka(place.output).write(Sink)
    # What it has drained has no commit to wait for: it would be waited for longer than the test does.
    run = pipeline.on_ray(workers=1, config={"drain_timeout_ms": 50_000}).start()
    with pytest.raises(ka.JobFailed) as failed:
        run.wait(timeout=slow_s(40))
    run.stop()
    assert isinstance(failed.value.cause, SinkError)
    assert failed.value.cause.sink == "write(Sink)"
    assert "write(Sink): OSError: disk full" in str(failed.value.cause)
    assert place.records(place.output)
    assert sum(place.cluster.committed(place.group).values()) == 0


def test_dead_letters_that_are_not_written_keep_their_records_from_being_committed(place):
    """Their topic takes no record at first."""
    place.fill(30, {5: b"no"})
    place.set_config(place.dead, "max.message.bytes", "10")
    pipeline = (
        place.read()
        .decode_json(SCHEMA, on_error="dead_letter")
        .write(lambda batch: None)
        .dead_letters(place.dead)
    )
    how = {"workers": 1, "until": "latest", "config": {"drain_timeout_ms": 50_000}}
    run = pipeline.on_ray(**how).start()
    with pytest.raises(ka.JobFailed) as failed:
        run.wait(timeout=slow_s(40))
    run.stop()
    assert "dead_letters: UndeliveredError" in str(failed.value.cause)
    assert place.cluster.committed(place.group).get((place.input, 5 % PARTITIONS), -1) <= 5 // PARTITIONS
    place.set_config(place.dead, "max.message.bytes", "100000")
    pipeline.on_ray(**how).run()
    assert [m.value for m in place.records(place.dead)] == [b"no"]
    assert place.settled()


def test_what_a_sink_refuses_goes_to_the_dead_letters(place):
    place.fill(30)
    pipeline = (
        place.read()
        .raw()
        .filter(pc.field("key") != b"k29")
        .select("key", "value", topic=pc.if_else(pc.field("key") == b"k3", "no such name!", place.output))
        .write_kafka(format="columns", on_error="dead_letter")
        .dead_letters(place.dead)
        .on_error("fail", retries=0)
    )
    pipeline.on_ray(workers=1, until="latest").run()
    assert {m.key for m in place.records(place.output)} == {b"k%d" % n for n in range(29) if n != 3}
    assert [m.key for m in place.records(place.dead)] == [b"k3"]


def test_two_sinks_hold_every_row_of_a_topic_that_is_read_once(place, tmp_path):
    """Files are named by their offsets."""
    place.fill(3000)
    out, read = tmp_path / "out", tmp_path / "read"
    read.mkdir()

    def noted(batch):
        with open(read / str(os.getpid()), "a") as file:
            file.writelines(f"{n}\n" for n in batch["id"].to_pylist())
        return batch

    pipeline = (
        place.read()
        .decode_json(SCHEMA)
        .map_batches(noted, schema=SCHEMA)
        .write_parquet(str(out), kafka=True)
        .with_key("country")
        .write_kafka(place.output)
    )
    with pipeline.on_ray(workers=2, until="latest", config={"drain_timeout_ms": 50_000}).start() as run:
        run.wait(timeout=slow_s(60))
        assert run.status().records == 3000
    assert sorted(int(n) for file in read.iterdir() for n in file.read_text().split()) == list(range(3000))
    sent = [(m.key.decode(), msgspec.json.decode(m.value)) for m in place.records(place.output)]
    assert sorted(row["id"] for _, row in sent) == list(range(3000))
    assert all(key == row["country"] for key, row in sent)
    table = pq.read_table(out)
    assert sorted(table["id"].to_pylist()) == list(range(3000))
    assert table.schema.names == ["id", "country", "amount", "_kafka"]
    for path in out.iterdir():
        topic, partition, first, last = path.stem.rsplit("-", 3)
        offsets = pc.struct_field(pq.read_table(path)["_kafka"].combine_chunks(), "offset").to_pylist()
        assert (topic, offsets) == (place.input, list(range(int(first), int(last) + 1)))
        assert int(partition) in range(PARTITIONS)
    assert place.settled()


def test_a_job_sends_what_process_returns_to_all_its_sinks_and_its_dead_letters_too(place, tmp_path):
    place.fill(300)

    def copy(batch):
        if b"k151" in batch["key"].to_pylist():
            raise ValueError("no good")
        return pa.record_batch({"key": batch["key"], "value": batch["value"]})

    job = ka.Job(
        topics=place.input,
        group_id=place.group,
        bootstrap_servers=place.servers,
        process=copy,
        sink=[ka.KafkaSink(place.output), ka.ParquetSink(str(tmp_path))],
        on_error="dead_letter",
        dead_letter_topic=place.dead,
        retries=0,
        batch_rows=10,
        until="latest",
        config={"start_timeout_s": 600},
    )
    with job.start() as running:
        running.wait(timeout=slow_s(60))
    written = [int(m.key[1:]) for m in place.records(place.output)]
    assert sorted(written) == [n for n in range(300) if n != 151]
    in_files = [int(key[1:]) for key in pq.read_table(tmp_path)["key"].to_pylist()]
    assert sorted(in_files) == sorted(written)
    dead = place.records(place.dead)
    assert [m.key for m in dead] == [b"k151"], "the record at fault, without the others of its batch"
    assert dict(dead[0].headers)["kafka_actors.error.reason"] == b"ValueError: no good"
    assert until(place.settled, 10, "everything committed") is None


@pytest.mark.parametrize("misspelt", ["the sink's topic", "the dead-letter topic"])
def test_a_topic_that_is_written_to_and_is_not_there_is_named_before_the_start(place, misspelt):
    place.fill(3)
    topics = {"the sink's topic": place.output, "the dead-letter topic": place.dead} | {misspelt: "misspelt"}
    job = ka.Job(
        topics=place.input,
        group_id=place.group,
        bootstrap_servers=place.servers,
        process=lambda batch: batch,
        sink=ka.KafkaSink(topics["the sink's topic"]),
        on_error="dead_letter",
        dead_letter_topic=topics["the dead-letter topic"],
        config={"start_timeout_s": 600},
    )
    with pytest.raises(UnknownTopicOrPartitionError, match=f"for misspelt: {misspelt} is not there on"):
        job.start()
    assert place.cluster.committed(place.group) == {}


def test_null_and_empty_stay_apart_in_what_a_job_writes_and_in_its_dead_letters(place):
    """Every case comes twice: at an even offset it is copied, at the odd one that follows it fails."""
    kinds = [None, b"", b"bytes"]
    cases = list(itertools.product(kinds, kinds, [(), (("a", None), ("a", b""), ("b", b"v"), ("a", b"w"))]))
    place.put([case for case in cases for _ in range(2)])

    def copy_even(batch):
        if batch["offset"][0].as_py() % 2:
            raise ValueError("odd")
        return batch.select(["key", "value", "headers"])

    job = ka.Job(
        topics=place.input,
        group_id=place.group,
        bootstrap_servers=place.servers,
        process=copy_even,
        sink=ka.KafkaSink(place.output),
        on_error="dead_letter",
        dead_letter_topic=place.dead,
        retries=0,
        batch_rows=1,
        until="latest",
        config={"start_timeout_s": 600},
    )
    with job.start() as running:
        running.wait(timeout=slow_s(60))
    ours = "kafka_actors."
    for topic in (place.output, place.dead):
        found = [
            (m.key, m.value, tuple((k, v) for k, v in m.headers if not k.startswith(ours)))
            for m in place.records(topic)
        ]
        assert Counter(found) == Counter(cases), topic


def test_references_are_looked_up_in_the_actors_and_travel_as_such(place, tmp_path):
    path = tmp_path / "kafka.properties"
    path.write_text(f"servers={place.servers}\n")
    place.fill(30, {5: b"no"})
    pipeline = (
        place.read(bootstrap_servers=f"${{file:{path}:servers}}")
        .decode_json(SCHEMA, on_error="dead_letter")
        .write_kafka(place.output)
        .dead_letters(place.dead)
    )
    bound = pipeline.on_ray(until="latest")
    assert place.servers.encode() not in cloudpickle.dumps((bound.job.config, bound.pipeline))
    bound.run()
    assert sorted(msgspec.json.decode(m.value)["id"] for m in place.records(place.output)) == [
        n for n in range(30) if n != 5
    ]
    assert [m.value for m in place.records(place.dead)] == [b"no"]


def test_a_run_that_another_thread_started_shows_how_it_gets_on(place):
    place.fill(30)
    run = place.read().decode_json(SCHEMA).write(lambda batch: None).on_ray(workers=1)
    thread = threading.Thread(target=run.start)
    thread.start()
    thread.join()
    until(lambda: run.status().records == 30, 30, "all records")
    shown = run._repr_html_()
    run.stop()
    assert "<td>running</td>" in shown
    assert "<td>30</td>" in shown
    assert place.settled()

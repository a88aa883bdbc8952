"""Forms that outlive a process: files, bytes and names that an older version wrote, or that other programs read.

Each is written out here as the outside has it; nothing here is made by the code that is tested. A test that fails says that
a file, a checkpoint, a group or a dashboard of a user's would break: the code is to be changed, not the text in this file.
Held elsewhere: the notes beside committed offsets (`test_commit_metadata.py`), names of Parquet files on Ray
(`sinks/test_parquet.py`), user data of the sticky assignors (`assignors/test_userdata.py`), a JSON line of progress
(`cli/test_render.py`), attributes of a collector's log records (`telemetry/test_logs.py`).
"""

from __future__ import annotations

import json
import logging
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import click
import msgspec
import pyarrow as pa
import pytest
from fakes.records import records
from fakes.spans import kept_spans
from fakes.status_sample import sample_history, sample_status

import assignors
import kafka_actors as ka
from kafka_actors import admin, events
from kafka_actors import options as declared
from kafka_actors.backfill.backfill import PLAN
from kafka_actors.backfill.machines.handover_plan import (
    HandoverPlan,
    LogBounds,
    ObservedTopics,
    PlannedRead,
    plan_of,
)
from kafka_actors.cli.job_options import RunConfig
from kafka_actors.cli.main import commands
from kafka_actors.cli.option_sources import from_environment
from kafka_actors.cli.results import plain
from kafka_actors.group.commit_metadata import CommitMetadata, pack, unpack
from kafka_actors.group.done_offsets import DoneOffsets
from kafka_actors.group.machines.assignment import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from kafka_actors.job.status import (
    ActorStatus,
    GroupState,
    JobStatus,
    PartitionStatus,
    ScalingStatus,
    WorkersChange,
    WorkerStatus,
)
from kafka_actors.job.worker.outputs import Outputs, OutputsSpec
from kafka_actors.pipeline.fused import FailedRecord
from kafka_actors.ray.engine.pipeline_function import PipelinePlan, function_of
from kafka_actors.sinks import DeadLetters
from kafka_actors.sinks import dead_letters as dead_letters_module
from kafka_actors.sinks.dead_letters import retry_records
from kafka_actors.spark.engine.dead_letters import TaskDeadLetters
from kafka_actors.spark.engine.parquet_sink import batch_unit, run_unit
from kafka_actors.spark.source.arrow_types import errors_of
from kafka_actors.spark.source.data_source import KafkaDataSource
from kafka_actors.spark.source.machines.stream_offsets import KeptSchema, StreamOffsets
from kafka_actors.spark.source.offset_format import OffsetFormat, StateFiles
from kafka_actors.spark.source.options import parse_stream
from kafka_actors.telemetry.instruments import INSTRUMENTS
from kafka_actors.telemetry.logs import JsonFormatter, LogOrigin, TextFormatter, set_log_origin
from kafka_actors.telemetry.spans import ProcessSpans, committing, received
from kafka_actors.types import OffsetAndMetadata, TopicPartition
from pyspark_kafka_actors import DefaultSource

ROOT = Path(__file__).parents[2]

# ---------------------------------------------------------------- handover.json

HANDOVER_2 = """\
{
  "format": 2,
  "id": "5b0f6a0e",
  "created": "2026-11-21T20:00:00+00:00",
  "cluster_id": "5L6g3nShT-eMCtK--X86sw",
  "group_id": "revenue",
  "isolation_level": "read_committed",
  "pattern": null,
  "start": "earliest",
  "topics": {
    "old": {
      "topic_id": null,
      "partitions": {
        "0": {
          "end_offset": 0,
          "leader_epoch": -1,
          "start_offset": 0
        }
      }
    },
    "orders": {
      "topic_id": "000102030405060708090a0b0c0d0e0f",
      "partitions": {
        "2": {
          "end_offset": 9,
          "leader_epoch": 4,
          "start_offset": 5
        },
        "10": {
          "end_offset": 7,
          "leader_epoch": 3,
          "start_offset": 1
        }
      }
    }
  }
}
"""
HANDOVER_1 = """\
{
  "format": 1,
  "id": "5b0f6a0e",
  "created": "2026-11-21T20:00:00+00:00",
  "cluster_id": null,
  "group_id": "revenue",
  "isolation_level": "read_uncommitted",
  "pattern": "ord.*",
  "topics": {
    "orders": {
      "topic_id": "000102030405060708090a0b0c0d0e0f",
      "partitions": {
        "0": {
          "end_offset": 7,
          "leader_epoch": 3
        }
      }
    }
  }
}
"""
ID = bytes(range(16))
ORDERS_2, ORDERS_10, OLD_0 = (
    TopicPartition("orders", 2),
    TopicPartition("orders", 10),
    TopicPartition("old", 0),
)


def test_handover_json_is_written_byte_for_byte() -> None:
    wanted = PlannedRead("revenue", "read_committed", ("orders", "old"), None)
    logs = {ORDERS_10: LogBounds(0, 7, 3), ORDERS_2: LogBounds(5, 9, 4), OLD_0: LogBounds(0, 0)}
    cluster = ObservedTopics("5L6g3nShT-eMCtK--X86sw", {"orders": ID}, logs)
    planned = plan_of(wanted, cluster, "5b0f6a0e", "2026-11-21T20:00:00+00:00")
    assert planned.with_starts({ORDERS_10: 1, ORDERS_2: 5, OLD_0: 0}, "earliest").to_json() == HANDOVER_2
    assert PLAN == "handover.json"


def test_handover_json_of_format_2_is_read_and_stays_as_it_is() -> None:
    plan = HandoverPlan.from_json(HANDOVER_2, "handover.json")
    assert (plan.id, plan.created, plan.start) == ("5b0f6a0e", "2026-11-21T20:00:00+00:00", "earliest")
    assert (plan.cluster_id, plan.group_id) == ("5L6g3nShT-eMCtK--X86sw", "revenue")
    assert (plan.isolation_level, plan.pattern, plan.topic_ids) == ("read_committed", None, {"orders": ID})
    assert plan.starts == {ORDERS_2: 5, ORDERS_10: 1, OLD_0: 0}
    assert plan.ends == {ORDERS_2: 9, ORDERS_10: 7, OLD_0: 0}
    assert plan.commit_of(ORDERS_10) == OffsetAndMetadata(7, "kafka-actors handover 5b0f6a0e", 3)
    assert plan.to_json() == HANDOVER_2


def test_handover_json_of_format_1_is_read() -> None:
    plan = HandoverPlan.from_json(HANDOVER_1, "handover.json")
    assert (plan.id, plan.group_id, plan.isolation_level) == ("5b0f6a0e", "revenue", "read_uncommitted")
    assert (plan.cluster_id, plan.pattern, plan.start) == (None, "ord.*", None)
    assert (plan.starts, plan.ends) == ({}, {TopicPartition("orders", 0): 7})
    assert plan.topic_ids == {"orders": ID}
    assert plan.commit_of(TopicPartition("orders", 0)).leader_epoch == 3


# ---------------------------------------------------------------- Spark's checkpoint, `stateLocation`

T0, T2, T10, U0 = (
    TopicPartition("t", 0),
    TopicPartition("t", 2),
    TopicPartition("t", 10),
    TopicPartition("u", 0),
)
BY_PARTITION = {U0: 0, T10: 7, T2: 9}
IDS = {"u": bytes(16), "t": ID}
SPARKS = '{"t":{"2":9,"10":7},"u":{"0":0}}'
TOPIC_IDS = '"@topic_ids":{"t":"000102030405060708090a0b0c0d0e0f","u":"00000000000000000000000000000000"}'
CHECKPOINTS = {
    SPARKS: StreamOffsets(BY_PARTITION),
    f"{SPARKS[:-1]},{TOPIC_IDS}}}": StreamOffsets(BY_PARTITION, IDS),
    f'{SPARKS[:-1]},{TOPIC_IDS},"@initial":true}}': StreamOffsets(BY_PARTITION, IDS, initial=True),
    f'{SPARKS[:-1]},{TOPIC_IDS},"@start":{{"t":{{"2":3,"10":4}}}}}}': StreamOffsets(
        BY_PARTITION, IDS, start={T10: 4, T2: 3}
    ),
    f'{SPARKS[:-1]},{TOPIC_IDS},"@schema":{{"id":7,"subject":"t-value","version":3}}}}': StreamOffsets(
        BY_PARTITION, IDS, schema=KeptSchema(7, "t-value", 3)
    ),
    f'{SPARKS[:-1]},"@schema":{{"id":7}}}}': StreamOffsets(BY_PARTITION, schema=KeptSchema(7)),
}


def compact(document: object) -> str:
    return json.dumps(document, separators=(",", ":"))


@pytest.mark.parametrize("text", CHECKPOINTS)
def test_a_streams_offsets_are_written_to_sparks_checkpoint_byte_for_byte_and_read_from_it(text: str) -> None:
    assert compact(CHECKPOINTS[text].to_json()) == text
    assert StreamOffsets.from_json(json.loads(text)) == CHECKPOINTS[text]


def test_offset_format_spark_is_what_sparks_own_source_writes() -> None:
    base = {"kafka.bootstrap.servers": "a:1", "subscribe": "t"}
    offsets = StreamOffsets(BY_PARTITION, IDS, initial=True)
    spark = parse_stream({**base, "offsetFormat": "spark", "stateLocation": "/s"}, limits=True)
    assert compact(OffsetFormat(spark).shown(offsets)) == SPARKS
    for more in ({}, {"offsetFormat": "kafka-actors"}):
        ours = OffsetFormat(parse_stream({**base, **more}, limits=True))
        assert compact(ours.shown(offsets)) == f'{SPARKS[:-1]},{TOPIC_IDS},"@initial":true}}'


FIRST = b'\0v1\n{"t":{"2":9,"10":7},"u":{"0":0}}'
KEPT_0 = b'{"format":1,"offsets":{"t":{"0":5},"@topic_ids":{"t":"000102030405060708090a0b0c0d0e0f"}}}\n'
KEPT_1 = b'{"format":1,"offsets":{"t":{"0":7},"@topic_ids":{"t":"000102030405060708090a0b0c0d0e0f"},"@initial":true}}\n'
KEPT = [StreamOffsets({T0: 5}, {"t": ID}), StreamOffsets({T0: 7}, {"t": ID}, initial=True)]


def test_the_files_of_a_state_location_are_written_byte_for_byte(tmp_path: Path) -> None:
    state = StateFiles(str(tmp_path))
    state.keep_first(BY_PARTITION)
    for offsets in KEPT:
        state.keep(offsets)
    found = {
        str(path.relative_to(tmp_path)): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()
    }
    assert found == {"0": FIRST, "kafka_actors/0": KEPT_0, "kafka_actors/1": KEPT_1}


def test_the_files_of_a_state_location_are_read(tmp_path: Path) -> None:
    (tmp_path / "kafka_actors").mkdir()
    for name, data in {"0": FIRST, "kafka_actors/0": KEPT_0, "kafka_actors/1": KEPT_1}.items():
        (tmp_path / name).write_bytes(data)
    state = StateFiles(str(tmp_path))
    assert state.first() == BY_PARTITION
    assert list(state.kept()) == KEPT[::-1]


def test_sparks_names_of_the_data_source_and_of_parquet_files() -> None:
    """A query that is started again looks for its source, and for the files of the micro-batch that it repeats, by name."""
    assert DefaultSource is KafkaDataSource
    assert DefaultSource.name() == "kafka_actors"
    query = "5b0f6a0e-1c7d-4b7a-9f0e-3d2c1b0a9f8e"
    unit = batch_unit(query, 30)
    assert (unit.name, unit.done) == (f"spark-{query}-0000000030-", f"spark-{query}-0000000029-")
    assert run_unit("id").name == "spark-id-"


# ---------------------------------------------------------------- committed metadata, the group's protocol


def test_an_envelope_with_all_of_its_members() -> None:
    text = (
        '{"kafka-actors":1,"topicId":"AAECAwQFBgcICQoLDA0ODw","clusterId":"5L6g3nShT-eMCtK--X86sw",'
        '"metadata":"my \\"note\\""}'
    )
    assert pack('my "note"', ID, "5L6g3nShT-eMCtK--X86sw") == text
    assert unpack(text) == CommitMetadata('my "note"', ID, "5L6g3nShT-eMCtK--X86sw")


def test_what_is_done_beyond_a_committed_offset() -> None:
    """Whoever reads on skips it: also a job of another version, on the day of an upgrade."""
    text = '{"kafka-actors":1,"topicId":"AAECAwQFBgcICQoLDA0ODw","clusterId":"c","done":"3.rAQIHmAI"}'
    runs = DoneOffsets([(11, 13), (20, 300)], 3)
    assert pack("", ID, "c", done=runs.text(10)) == text
    assert DoneOffsets.of_text(unpack(text).done, 10) == runs
    bits = DoneOffsets([(n, n + 1) for n in range(1, 40, 2)], -1)
    assert bits.text(0) == "-1.bqqqqqqo"
    assert DoneOffsets.of_text("-1.bqqqqqqo", 0) == bits


HEAD = "0003 00000002 000161 000162"
OWNED = "00000001 000161 00000001 00000000"
STICKY = "00000001 000161 00000002 00000000 00000002 00000007"
SUBSCRIPTIONS = {
    "range": f"{HEAD} ffffffff {OWNED} 00000007 0002 7231",
    "roundrobin": f"{HEAD} ffffffff {OWNED} 00000007 0002 7231",
    "sticky": f"{HEAD} 00000017 {STICKY} {OWNED} 00000007 0002 7231",
    "cooperative-sticky": f"{HEAD} 00000004 00000007 {OWNED} 00000007 0002 7231",
}
"""`ConsumerProtocolSubscription` version 3: topics, user data, owned partitions, generation, rack."""


@pytest.mark.parametrize("name", SUBSCRIPTIONS)
def test_what_a_member_tells_the_leader_is_written_byte_for_byte(name: str) -> None:
    """Other members of the group may be Java's, or of another version."""
    owned, last = frozenset({("a", 0)}), frozenset({("a", 0), ("a", 2)})
    data = encode_subscription(
        assignors.get(name),
        ["a", "b"],
        frozenset(TopicPartition(*tp) for tp in owned),
        7,
        frozenset(TopicPartition(*tp) for tp in last),
        "r1",
    )
    assert data == bytes.fromhex(SUBSCRIPTIONS[name])
    read = decode_subscription(data)
    assert (list(read.topics), read.generation_id, read.rack_id) == (["a", "b"], 7, "r1")


def test_an_assignment_is_written_byte_for_byte_in_the_version_that_every_client_reads() -> None:
    data = bytes.fromhex("0000 00000001 000161 00000002 00000000 00000002 ffffffff")
    assert encode_assignment([("a", 2), ("a", 0)]) == data
    assert decode_assignment(data) == {TopicPartition("a", 0), TopicPartition("a", 2)}


# ---------------------------------------------------------------- dead letters


class Sends:
    """In place of a producer."""

    sent: list[tuple[str, dict[str, Any]]]

    def __init__(self) -> None:
        self.sent = []

    def send_batch(self, batch: pa.RecordBatch, topic: str) -> None:
        self.sent.extend((topic, row) for row in batch.to_pylist())

    def flush(self) -> None:
        pass


@pytest.fixture
def producer(monkeypatch: pytest.MonkeyPatch) -> Sends:
    made = Sends()
    monkeypatch.setattr(dead_letters_module, "producer_to", lambda *_: made)
    return made


RECORD = records([b"no JSON"], keys=[b"k"], headers=[[("trace", b"1")]])


def letter(group: bytes, stage: bytes, reason: bytes) -> tuple[str, dict[str, Any]]:
    headers = [
        ("trace", b"1"),
        ("kafka_actors.error.topic", b"orders"),
        ("kafka_actors.error.partition", b"3"),
        ("kafka_actors.error.offset", b"100"),
        ("kafka_actors.error.timestamp", b"1700000000000"),
        ("kafka_actors.error.group", group),
        ("kafka_actors.error.stage", stage),
        ("kafka_actors.error.reason", reason),
    ]
    made = {
        "key": b"k",
        "value": b"no JSON",
        "headers": [{"key": key, "value": value} for key, value in headers],
    }
    return "dead", made


def test_a_dead_letter_of_a_job(producer: Sends) -> None:
    outputs = Outputs(OutputsSpec((), "dead"), ka.options.ConsumerConfig(group_id="scorer"))
    outputs.open()
    outputs.dead_letter(RECORD, ValueError("no such country"))
    assert producer.sent == [letter(b"scorer", b"process", b"ValueError: no such country")]


def test_a_record_in_a_retry_topic() -> None:
    made = retry_records(RECORD, ["ValueError: no such country"], "scorer", 2, [3], [1_700_000_060_000])
    own, (_, letter_of) = made.to_pylist()[0], letter(b"scorer", b"process", b"ValueError: no such country")
    more = {"timestamp_type": b"0", "tier": b"2", "attempt": b"3", "not_before": b"1700000060000"}
    letter_of["headers"] += [
        {"key": f"kafka_actors.error.{key}", "value": value} for key, value in more.items()
    ]
    assert own == {**letter_of, "partition": 3}


def test_a_dead_letter_of_a_pipeline_on_ray(producer: Sends) -> None:
    def refuse(batch: pa.RecordBatch) -> pa.RecordBatch:
        raise ValueError("no such country")

    read = ka.Pipeline.read_kafka("orders", group_id="revenue", bootstrap_servers="localhost:9092")
    pipeline = (
        read.map_batches(refuse, schema="id BIGINT", name="enrich", on_error="dead_letter")
        .write(lambda batch: None)
        .on_error("fail", retries=0)
        .dead_letters("dead")
    )
    function_of(PipelinePlan(pipeline, "revenue"))([].append)(RECORD)
    assert producer.sent == [letter(b"revenue", b"enrich", b"ValueError: no such country")]


def test_a_dead_letter_of_a_pipeline_on_spark(producer: Sends) -> None:
    """The same as on Ray, whether its record comes from the stages or, through the JVM, from an earlier one."""
    dead = TaskDeadLetters(DeadLetters(ka.options.ProducerConfig(), "dead", "revenue"))
    failed = [FailedRecord(0, "enrich", "ValueError: no such country")]
    dead.write(failed, RECORD)
    dead.write_failed(pa.RecordBatch.from_arrays([errors_of(failed, RECORD)], names=["_error"]))
    assert producer.sent == [letter(b"revenue", b"enrich", b"ValueError: no such country")] * 2


# ---------------------------------------------------------------- the status page's JSON, `status()`, `--output json`

STATUS_JSON = """
/ state group_id group workers partitions records value_bytes connections restarts actors scaling others latency timeline started_s state_since_s page page_node waits_for unconfirmed at_s name topics version health answered_s session_timeout_s totals transactions schemas
/group state generation member_id group_instance_id partitions rebalances heartbeat_age_s members
/workers[] name pid node ready partitions records value_bytes restarts work_s retiring records_per_s value_bytes_per_s busy
/partitions[] topic partition worker position committed end lag state reason lag_seconds leader start window
/connections 3f1c0a5b7d2e4c698a1b0c2d3e4f5061728394a5b6c7d8e9f0a1b2c3 b07e44d1905f4c6e8b3a2d1c0f9e8d7c6b5a49382716054433221100
/restarts coordinator worker-1
/actors coordinator.2 metadata.1 spare-0.1
/scaling workers autoscale holding backlog_seconds arriving_per_s processed_per_s pace_per_s busy changes
/scaling/autoscale min max target_lag_seconds target_utilization initial upscale_delay_seconds downscale_delay_seconds request_resources
/others[] name role pid node ready restarts broker host port
/latency 4
/timeline[] number at_s kind text
/health live ready reason
/totals records_per_s value_bytes_per_s lag lag_s latency_p50_ms latency_p99_ms blocked workers_ready restarts window
/totals/window records calls parked keys held_s held_by
/transactions committed aborted repeated cause open_s committed_ago_s
/schemas
"""
HISTORY_JSON = """
/ run last every_s keeps_s points
/points[] number at_s records_per_s value_bytes_per_s lag lag_s latency_p50_ms latency_p99_ms
"""


def shape(document: Any, path: str = "") -> list[str]:
    """A line for each kind of object in a document: where it is, and the names of its members."""
    if isinstance(document, list):
        lines = [tuple(shape(each, f"{path}[]")) for each in document if isinstance(each, dict)]
        assert len(set(lines)) <= 1, f"objects of {path} are not alike"
        return list(lines[0]) if lines else []
    if not isinstance(document, dict):
        return []
    found = [" ".join([path or "/", *document])]
    for name, value in document.items():
        found += shape(value, f"{path}/{name}")
    return found


@pytest.mark.parametrize(
    ("document", "wanted"),
    [(sample_status(), STATUS_JSON), (sample_history(2), HISTORY_JSON)],
    ids=["status.json", "history.json"],
)
def test_members_of_the_status_pages_json(document: Any, wanted: str) -> None:
    assert shape(json.loads(msgspec.json.encode(document))) == wanted.strip().splitlines()


FIELDS: list[tuple[Any, str]] = [
    (
        JobStatus,
        "state group_id group workers partitions records value_bytes connections restarts actors scaling others latency "
        "timeline started_s state_since_s page page_node waits_for unconfirmed at_s name topics version health answered_s "
        "session_timeout_s totals transactions schemas",
    ),
    (
        WorkerStatus,
        "name pid node ready partitions records value_bytes restarts work_s retiring records_per_s value_bytes_per_s busy",
    ),
    (ActorStatus, "name role pid node ready restarts broker host port"),
    (
        ScalingStatus,
        "workers autoscale holding backlog_seconds arriving_per_s processed_per_s pace_per_s busy changes",
    ),
    (WorkersChange, "number before after reason seconds_ago"),
    (
        PartitionStatus,
        "topic partition worker position committed end lag state reason lag_seconds leader start window",
    ),
    (
        GroupState,
        "state generation member_id group_instance_id partitions rebalances heartbeat_age_s members",
    ),
    (admin.TopicListing, "name topic_id is_internal"),
    (admin.TopicDescription, "name topic_id is_internal partitions"),
    (admin.PartitionDescription, "partition leader leader_epoch replicas isr offline_replicas"),
    (admin.GroupListing, "group_id protocol_type state type"),
    (
        admin.GroupDescription,
        "group_id type state protocol_type assignor coordinator members group_epoch target_assignment_epoch",
    ),
    (
        admin.MemberDescription,
        "member_id group_instance_id client_id host assignment target_assignment member_epoch rack_id",
    ),
    (
        admin.PartitionLag,
        "group_id topic partition leader_epoch current_offset log_end_offset lag member_id host client_id",
    ),
    (admin.OffsetReset, "group_id topic partition current_offset new_offset note"),
    (admin.ClusterDescription, "cluster_id controller nodes authorized_operations"),
]
"""Read by programs: `status()`, the results of an admin, and with them what `--output json` prints."""


@pytest.mark.parametrize(("kind", "wanted"), FIELDS, ids=lambda value: getattr(value, "__name__", ""))
def test_fields_of_what_programs_read(kind: Any, wanted: str) -> None:
    assert set(kind.__struct_fields__) == set(wanted.split())


def test_a_document_of_the_command_line_has_the_fields_as_members() -> None:
    rows = [
        admin.PartitionLag("g", "t", 0, 4, 7, 9, 2, "m", "/h", "c"),
        admin.OffsetReset("g", "t", 0, 7, 0, None),
    ]
    assert plain(rows) == [
        {
            "group_id": "g",
            "topic": "t",
            "partition": 0,
            "leader_epoch": 4,
            "current_offset": 7,
            "log_end_offset": 9,
            "lag": 2,
            "member_id": "m",
            "host": "/h",
            "client_id": "c",
        },
        {
            "group_id": "g",
            "topic": "t",
            "partition": 0,
            "current_offset": 7,
            "new_offset": 0,
            "note": None,
        },
    ]


# ---------------------------------------------------------------- metrics, spans, log records

METRICS = """
messaging.client.operation.duration histogram s messaging.system messaging.operation.name messaging.operation.type group messaging.consumer.group.name messaging.destination.name error.type server.address server.port
messaging.client.sent.messages counter {message} messaging.system messaging.operation.name messaging.destination.name messaging.destination.partition.id error.type server.address server.port
messaging.client.consumed.messages counter {message} messaging.system messaging.operation.name group messaging.consumer.group.name messaging.destination.name messaging.destination.partition.id
messaging.process.duration histogram s messaging.system messaging.operation.name group messaging.consumer.group.name messaging.destination.name error.type
kafka.consumer_group.lag gauge 1 group topic partition
kafka.consumer_group.lag_sum gauge 1 group topic
kafka.consumer_group.offset gauge 1 group topic partition
kafka.consumer_group.offset_sum gauge 1 group topic
kafka.consumer_group.members up_down_counter {members} group
kafka.partition.current_offset gauge 1 group topic partition
kafka.partition.oldest_offset gauge 1 group topic partition
kafka_actors.consumer_group.lag.time gauge s group topic partition
kafka_actors.partition.position gauge 1 group topic partition
kafka_actors.partition.blocked up_down_counter {partition} group topic partition reason
kafka_actors.partition.window up_down_counter {message} group topic partition
kafka_actors.partition.calls up_down_counter {call} group topic partition state
kafka_actors.partition.watermark.age gauge s group topic partition
kafka_actors.consumer_group.assigned_partitions up_down_counter {partition} group
kafka_actors.consumer_group.rebalance.duration histogram s group
kafka_actors.consumer_group.rebalance.failures counter {rebalance} group
kafka_actors.consumer_group.request.duration histogram s group request
kafka_actors.partition.drains counter {drain} group outcome
kafka_actors.partition.moves counter {move} group cause
kafka_actors.actor.restarts counter {restart} group role
kafka_actors.transactions counter {transaction} group outcome
kafka_actors.workers up_down_counter {worker} group ready
kafka_actors.latency distribution s group
kafka_actors.process.retries counter {retry} group messaging.consumer.group.name messaging.destination.name error.type
kafka_actors.failed.messages counter {message} group messaging.consumer.group.name messaging.destination.name messaging.destination.partition.id outcome
kafka_actors.processed.size counter By group messaging.consumer.group.name messaging.destination.name messaging.destination.partition.id
kafka_actors.fetch.size counter By group messaging.consumer.group.name server.address server.port
kafka_actors.fetch.failures counter {request} group messaging.consumer.group.name error.type server.address server.port
kafka_actors.buffer.usage up_down_counter By group worker
kafka_actors.buffer.limit up_down_counter By group worker
kafka_actors.bad_batches counter {batch} group messaging.consumer.group.name messaging.destination.name messaging.destination.partition.id error.type
kafka_actors.offset_resets counter {reset} group messaging.consumer.group.name messaging.destination.name messaging.destination.partition.id reason
kafka_actors.partition.stalls counter {stall} group messaging.consumer.group.name messaging.destination.name messaging.destination.partition.id
kafka_actors.client.connections counter {connection} group state
kafka_actors.client.io counter By group network.io.direction
kafka_actors.client.request.duration histogram s group
"""


def test_names_kinds_units_and_attributes_of_metrics() -> None:
    found = [" ".join([i.name, i.kind.value, i.unit, *i.attributes]) for i in INSTRUMENTS]
    assert sorted(found) == sorted(METRICS.strip().splitlines())


PROCESSED = {
    "messaging.system": "kafka",
    "messaging.operation.name": "process",
    "messaging.operation.type": "process",
    "messaging.destination.name": "orders",
    "messaging.destination.partition.id": "3",
    "messaging.consumer.group.name": "scorer",
    "messaging.client.id": "worker-0",
    "messaging.batch.message_count": 1,
}


def test_names_and_attributes_of_spans() -> None:
    with kept_spans() as ended:
        calls = ProcessSpans("scorer", "worker-0")
        with calls.call(RECORD, "batch"):
            pass
        received("scorer", "worker-0", RECORD, seconds=0.25)
        with committing("scorer", calls.take()):
            pass
        process, poll, commit = ended()
    assert [each.name for each in (process, poll, commit)] == ["process orders", "poll orders", "commit"]
    assert dict(process.attributes) == PROCESSED
    polled = {"messaging.operation.name": "poll", "messaging.operation.type": "receive"}
    assert dict(poll.attributes) == {**PROCESSED, **polled}
    assert dict(commit.attributes) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "commit",
        "messaging.operation.type": "settle",
        "messaging.consumer.group.name": "scorer",
    }
    assert {each.instrumentation_scope.name for each in (process, poll, commit)} == {"kafka_actors"}


EVENTS = """
info CoordinatorChanged group node_id
info NewSchemaSeen stage schema reader
info NoCommittedOffset topic partition chosen policy
info NodeAnswers node workers
info PartitionMoved topic partition worker cause
info PartitionsAssigned generation partitions
info PartitionsRevoked generation partitions
info Rebalanced group generation seconds
info Rejoining group reason
info WorkersChanged before after reason
warning BadBatchSkipped topic partition offset next_offset kind
warning DoneOffsetsDropped topic partition offset reason
warning DrainForced topic partition worker
warning NoRoomForWorkers workers placed reason
warning NodeSilent node seconds workers
warning OffsetReset topic partition old new reason skipped
warning PartitionStalled topic partition seconds reason
warning PartitionsLost partitions reason
warning PatternMatchesNothing pattern
warning RecordsDeadLettered topic partition first_offset last_offset records dead_letter_topic error
warning RecordsRetriedLater topic partition first_offset last_offset records retry_topic error
warning RecordsSkipped topic partition first_offset last_offset error
warning TransactionAborted worker cause records
error PartitionNotRead topic partition seconds reason
"""


def test_names_levels_and_fields_of_events() -> None:
    """They are the names and members of log records."""
    kinds = {value for value in vars(events).values() if isinstance(value, type)}
    found = []
    for kind in kinds - {events.Event}:
        if issubclass(kind, events.Event):
            made = kind(*(None for _ in kind.__struct_fields__))
            level = logging.getLevelName(made.level).lower()
            found.append(" ".join([level, kind.__name__, *kind.__struct_fields__]))
    assert sorted(found) == sorted(EVENTS.strip().splitlines())


def test_a_log_record_as_text_and_as_json(caplog: pytest.LogCaptureFixture) -> None:
    set_log_origin(LogOrigin("scorer", "nightly", "worker-0", 2))
    try:
        with caplog.at_level(logging.DEBUG, "kafka_actors"):
            events.log_event(events.RecordsSkipped("orders", 7, 100, 199, "ValueError: no"))
        (record,) = caplog.records
        record.created, record.msecs = 1_700_000_000.25, 250.0
        text, said = TextFormatter().format(record), json.loads(JsonFormatter().format(record))
    finally:
        set_log_origin(LogOrigin())
    message = (
        'RecordsSkipped topic=orders partition=7 first_offset=100 last_offset=199 error="ValueError: no"'
    )
    assert text.endswith(
        f",250 WARNING kafka_actors.events: {message} [group=scorer job=nightly actor=worker-0 incarnation=2]"
    )
    assert said == {
        "time": "2023-11-14T22:13:20.250+00:00",
        "level": "WARNING",
        "logger": "kafka_actors.events",
        "message": message,
        "event": "RecordsSkipped",
        "group": "scorer",
        "job": "nightly",
        "actor": "worker-0",
        "incarnation": 2,
        "topic": "orders",
        "partition": 7,
        "first_offset": 100,
        "last_offset": 199,
        "error": "ValueError: no",
    }


# ---------------------------------------------------------------- options, variables, commands, entry points

OPTIONS = [
    "acks",
    "api_version",
    "api_version_auto_timeout_ms",
    "auto_commit_interval_ms",
    "auto_offset_reset",
    "batch_linger_ms",
    "batch_rows",
    "batch_size",
    "bootstrap_servers",
    "buffer_memory",
    "check_crcs",
    "checkpoint",
    "client_id",
    "client_rack",
    "compression_type",
    "concurrency",
    "connections_max_idle_ms",
    "dead_letter_topic",
    "delivery",
    "delivery_timeout_ms",
    "drain_timeout_ms",
    "enable_auto_commit",
    "enable_idempotence",
    "engine",
    "exclude_internal_topics",
    "fetch_max_bytes",
    "fetch_max_wait_ms",
    "fetch_min_bytes",
    "group_id",
    "group_instance_id",
    "group_protocol",
    "heartbeat_interval_ms",
    "isolation_level",
    "job",
    "lanes_per_partition",
    "linger_ms",
    "max_block_ms",
    "max_decompressed_batch_bytes",
    "max_in_flight_records",
    "max_in_flight_requests_per_connection",
    "max_partition_fetch_bytes",
    "max_poll_interval_ms",
    "max_request_size",
    "metadata_max_age_ms",
    "metric_group_prefix",
    "metrics",
    "name",
    "on_bad_batch",
    "on_data_loss",
    "on_error",
    "ordering",
    "otlp",
    "partition_assignment_strategy",
    "pattern",
    "ping_interval_ms",
    "ping_timeout_ms",
    "prometheus",
    "rebalance_timeout_ms",
    "receive_buffer_bytes",
    "reconnect_backoff_max_ms",
    "reconnect_backoff_ms",
    "redact_keys",
    "request_timeout_ms",
    "resources_per_worker",
    "retries",
    "retry_backoff_max_ms",
    "retry_backoff_ms",
    "sasl_identity",
    "sasl_kerberos_domain_name",
    "sasl_kerberos_service_name",
    "sasl_mechanism",
    "sasl_oauth_token_provider",
    "sasl_oauthbearer_assertion_algorithm",
    "sasl_oauthbearer_assertion_claim_aud",
    "sasl_oauthbearer_assertion_claim_exp_seconds",
    "sasl_oauthbearer_assertion_claim_iss",
    "sasl_oauthbearer_assertion_claim_jti_include",
    "sasl_oauthbearer_assertion_claim_nbf_seconds",
    "sasl_oauthbearer_assertion_claim_sub",
    "sasl_oauthbearer_assertion_file",
    "sasl_oauthbearer_assertion_private_key_file",
    "sasl_oauthbearer_assertion_private_key_passphrase",
    "sasl_oauthbearer_assertion_template_file",
    "sasl_oauthbearer_client_credentials_client_id",
    "sasl_oauthbearer_client_credentials_client_secret",
    "sasl_oauthbearer_scope",
    "sasl_oauthbearer_token_endpoint_url",
    "sasl_plain_password",
    "sasl_plain_username",
    "security_protocol",
    "send_buffer_bytes",
    "session_timeout_ms",
    "socket_connection_setup_timeout_max_ms",
    "socket_connection_setup_timeout_ms",
    "socket_options",
    "spark_options",
    "ssl_cafile",
    "ssl_certfile",
    "ssl_check_hostname",
    "ssl_ciphers",
    "ssl_context",
    "ssl_crlfile",
    "ssl_keyfile",
    "ssl_password",
    "start_timeout_s",
    "status",
    "topics",
    "transaction_timeout_ms",
    "transactional_id",
    "trigger",
    "until",
    "worker_assignor",
    "worker_buffer_bytes",
    "worker_capacity",
    "workers",
]
"""Names in users' files, in charts, in programs, and in the environment as `KAFKA_ACTORS_<OPTION>`."""
OF_PRODUCERS = [
    "acks",
    "batch_size",
    "buffer_memory",
    "compression_type",
    "delivery_timeout_ms",
    "enable_idempotence",
    "linger_ms",
    "max_block_ms",
    "max_request_size",
    "transaction_timeout_ms",
    "transactional_id",
]


def test_names_of_options() -> None:
    kinds = (RunConfig, *(getattr(declared, name) for name in declared.__all__))
    assert sorted({name for kind in kinds for name in kind.__struct_fields__}) == OPTIONS


def test_each_option_of_a_run_has_a_variable() -> None:
    of_run = [option for option in OPTIONS if option not in OF_PRODUCERS]
    layer = from_environment(RunConfig, {f"KAFKA_ACTORS_{option.upper()}": "1" for option in of_run}, ())
    assert list(layer) == of_run


COMMANDS = """
kafka-actors
kafka-actors acls
kafka-actors acls add
kafka-actors acls list
kafka-actors acls remove
kafka-actors config
kafka-actors config options
kafka-actors config show
kafka-actors configs
kafka-actors configs alter
kafka-actors configs describe
kafka-actors consume
kafka-actors dead-letters
kafka-actors dead-letters list
kafka-actors dead-letters replay
kafka-actors demo
kafka-actors groups
kafka-actors groups delete
kafka-actors groups describe
kafka-actors groups list
kafka-actors groups reset-offsets
kafka-actors job
kafka-actors job list
kafka-actors job pause
kafka-actors job resume
kafka-actors job scale
kafka-actors job stop
kafka-actors lag
kafka-actors offsets
kafka-actors produce
kafka-actors run
kafka-actors schemas
kafka-actors schemas check
kafka-actors schemas list
kafka-actors schemas show
kafka-actors spark-checkpoint
kafka-actors spark-checkpoint convert
kafka-actors spark-checkpoint show
kafka-actors top
kafka-actors topics
kafka-actors topics alter
kafka-actors topics create
kafka-actors topics delete
kafka-actors topics describe
kafka-actors topics list
"""
VARIABLES = {
    "KAFKA_ACTORS_BASIC_AUTH",
    "KAFKA_ACTORS_COMMAND_CONFIG",
    "KAFKA_ACTORS_CONFIG_FILE",
    "KAFKA_ACTORS_LOG_FORMAT",
    "KAFKA_ACTORS_LOG_LEVEL",
    "KAFKA_ACTORS_OUTPUT",
    "KAFKA_ACTORS_REGISTRY",
}


def walk(command: click.Command, path: str) -> list[tuple[str, click.Command]]:
    found = [(path, command)]
    for name, each in sorted(getattr(command, "commands", {}).items()):
        found += walk(each, f"{path} {name}")
    return found


def test_commands_and_the_variables_of_their_flags() -> None:
    """What has no flag, `KAFKA_ACTORS_CACHE`, is held in `testing/test_distribution.py`."""
    found = walk(commands, "kafka-actors")
    assert [path for path, _ in found] == COMMANDS.strip().splitlines()
    assert {each.envvar for _, command in found for each in command.params if each.envvar} == VARIABLES


ENTRY_POINTS = {
    "kafka_actors.assignors": {"cooperative-sticky", "range", "roundrobin", "sticky"},
    "kafka_actors.engines": {"backfill", "ray", "spark"},
    "pytest11": {"kafka_actors"},
}


def test_entry_points_and_extras_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["name"] == "kafka-actors"
    assert project["scripts"].keys() == {"kafka-actors"}
    assert {group: set(found) for group, found in project["entry-points"].items()} == ENTRY_POINTS
    assert project["optional-dependencies"].keys() == {
        *(
            "avro",
            "aws",
            "azure",
            "dev",
            "dist",
            "docs",
            "fuzz",
            "gcp",
            "gssapi",
            "jsonschema",
            "oauth",
            "protobuf",
            "ray",
            "spark",
            "telemetry",
            "testing",
        )
    }
    groups = {**project["entry-points"], "console_scripts": project["scripts"]}
    for group, found in groups.items():
        for name, value in found.items():
            assert EntryPoint(name, value, group).load() is not None

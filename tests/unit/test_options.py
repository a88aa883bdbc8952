"""Declarations of options: what each kind of client has, within which bounds, and a text about each for the pages."""

import ast
import inspect
from pathlib import Path

import pytest

import kafka_actors
from kafka_actors import options
from kafka_actors.config import build
from kafka_actors.errors import ConfigError
from kafka_actors.options import ClientConfig, ConsumerConfig, JobConfig, ProducerConfig

KINDS = (ClientConfig, ConsumerConfig, JobConfig, ProducerConfig)


def test_each_kind_of_client_has_the_options_of_a_connection():
    connection = set(ClientConfig.__struct_fields__)
    assert all(connection <= set(kind.__struct_fields__) for kind in KINDS)
    assert set(ConsumerConfig.__struct_fields__) <= set(JobConfig.__struct_fields__)
    assert "acks" not in JobConfig.__struct_fields__


def test_each_option_is_described_where_it_is_declared():
    """The reference page and `config options` print these texts. An option that is declared again, for another default, is described once."""
    tree = ast.parse(Path(inspect.getfile(options)).read_text(encoding="utf-8"))
    described = set()
    for kind in (node for node in tree.body if isinstance(node, ast.ClassDef)):
        for field, behind in zip(kind.body, [*kind.body[1:], None], strict=True):
            if isinstance(field, ast.AnnAssign) and isinstance(behind, ast.Expr):
                described.add(field.target.id)
    assert {name for kind in KINDS for name in kind.__struct_fields__} == described


def test_defaults_that_a_job_has_of_its_own():
    job, consumer = build(JobConfig), build(ConsumerConfig)
    assert (consumer.auto_offset_reset, job.auto_offset_reset) == ("latest", "earliest")
    assert (consumer.auto_commit_interval_ms, job.auto_commit_interval_ms) == (5_000, 1_000)
    assert job.group_instance_id == "auto"
    assert (job.ordering, job.concurrency, job.delivery) == ("partition", 1, "at_least_once")


def test_the_client_names_itself_with_its_version():
    assert build(ClientConfig).client_id == f"kafka-actors-{kafka_actors.__version__}"


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        (ClientConfig, "request_timeout_ms", 0),
        (ClientConfig, "request_timeout_ms", 2**31),
        (ClientConfig, "retry_backoff_ms", -1),
        (ConsumerConfig, "isolation_level", "committed"),
        (JobConfig, "concurrency", 0),
        (JobConfig, "concurrency", 100_001),
        (JobConfig, "ordering", "topic"),
        (JobConfig, "worker_capacity", {0: 0.0}),
        (ProducerConfig, "batch_size", 0),
    ],
)
def test_a_value_outside_of_its_bounds_is_refused_by_name(kind, name, value):
    with pytest.raises(ConfigError, match=name):
        build(kind, {name: value})


def test_what_can_be_as_large_as_in_the_protocol_can():
    assert build(ClientConfig, {"request_timeout_ms": 2**31 - 1}).request_timeout_ms == 2**31 - 1


def test_options_are_values_that_nobody_changes():
    with pytest.raises(AttributeError):
        build(ClientConfig).client_id = "another"


def test_chunks_are_of_as_many_rows_as_batches_unless_calls_take_their_own():
    one, many = (
        build(JobConfig, group_id="g", bootstrap_servers="b:9092", batch_rows=100, ordering=ordering)
        for ordering in ("partition", "key")
    )
    assert (one.chunk_rows, many.chunk_rows) == (100, None)
    assert (one.lanes, many.lanes) == (1, 64)

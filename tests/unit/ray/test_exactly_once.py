"""Options of a job that delivers exactly once: what is refused before it starts, by which name, and what follows from them."""

from types import SimpleNamespace

import pytest

import kafka_actors as ka
from kafka_actors.config import JobConfig, build
from kafka_actors.errors import ConfigError
from kafka_actors.job.status import TransactionStatus
from kafka_actors.job.transactions import prefix_of
from kafka_actors.ray.job_options import with_read_committed


def copy(batch):
    return batch


def job(**options):
    return ka.Job(
        **{
            "topics": "orders",
            "group_id": "g",
            "bootstrap_servers": "localhost:9092",
            "process": copy,
            "sink": ka.KafkaSink("scored"),
            "delivery": "exactly_once",
            **options,
        }
    )


class Rows:
    def write(self, batch): ...


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"config": {"isolation_level": "read_uncommitted"}},
            "isolation_level: is 'read_uncommitted' with delivery",
        ),
        (
            {"config": {"isolation.level": "read_uncommitted"}},
            "isolation_level: is 'read_uncommitted' with delivery",
        ),
        ({"sink": ka.ParquetSink("/tmp/rows")}, "sink: is <ParquetSink /tmp/rows> with delivery"),
        ({"sink": copy}, "sink: is <UserSink 'copy'> with delivery"),
        ({"sink": Rows}, "sink: is <UserSink 'Rows'> with delivery"),
        (
            {"sink": [ka.KafkaSink("a"), ka.ParquetSink("/tmp/b")]},
            "sink: is <ParquetSink /tmp/b> with delivery",
        ),
        ({"sink": None}, "sink: is missing with delivery"),
        (
            {"sink": ka.KafkaSink("a", bootstrap_servers="other:9092")},
            "sink: is <KafkaSink to a> with bootstrap_servers of its own",
        ),
        (
            {"sink": ka.KafkaSink("a", transactional_id="x")},
            "sink: is <KafkaSink to a> with transactional_id",
        ),
        ({"sink": ka.KafkaSink("a", acks="all")}, "sink: is <KafkaSink to a> with acks"),
        (
            {"sink": ka.KafkaSink("a", enable_idempotence=True)},
            "sink: is <KafkaSink to a> with enable_idempotence",
        ),
        (
            {"sink": [ka.KafkaSink("a"), ka.KafkaSink("b", compression_type="zstd")]},
            "sink: is <KafkaSink to b> with another compression_type than <KafkaSink to a>",
        ),
        (
            {"sink": ka.KafkaSink("a", transaction_timeout_ms=1_000)},
            r"auto_commit_interval_ms: is 1000, .*transaction_timeout_ms \(1000\)",
        ),
        ({"delivery": "at_most_once"}, "delivery: "),
    ],
)
def test_what_can_not_be_delivered_exactly_once_is_refused_by_name(options, text):
    with pytest.raises(ConfigError, match=text):
        job(**options)


def test_the_job_reads_what_is_committed():
    made = job()
    assert made.config.isolation_level == "read_committed"
    assert made.changed({"isolation_level": "read_committed"}).config.isolation_level == "read_committed"
    with pytest.raises(ConfigError, match="isolation_level"):
        made.changed({"isolation_level": "read_uncommitted"})
    assert job(delivery="at_least_once").config.isolation_level == "read_uncommitted"
    assert with_read_committed(build(JobConfig), None).isolation_level == "read_committed"


def test_dead_letters_alone_are_enough():
    made = job(sink=None, on_error="dead_letter", dead_letter_topic="dead")
    assert made.plan().spec.outputs.producer_options == {}


def test_transactional_ids_begin_with_the_group_and_stay_over_restarts():
    named = job(name="nightly").plan().transactions
    assert named.prefix == prefix_of("g", "nightly")
    assert named.named
    assert named == job(name="nightly").plan().transactions
    static = job(config={"group_instance_id": "one"}).plan().transactions
    assert (static.prefix, static.named) == (prefix_of("g", "one"), True)
    first, second = (job().plan().transactions for _ in range(2))
    assert first.prefix.startswith("g-")
    assert first.prefix != second.prefix
    assert not first.named
    assert job(delivery="at_least_once").plan().transactions is None


def test_options_of_the_sinks_are_those_of_the_producer():
    sink = ka.KafkaSink("a", compression_type="zstd", transaction_timeout_ms=30_000)
    plan = job(sink=sink).plan()
    assert plan.spec.outputs.producer_options == {
        "compression_type": "zstd",
        "transaction_timeout_ms": 30_000,
    }
    assert plan.transactions.timeout_ms == 30_000


@pytest.mark.parametrize(
    ("write", "more", "text"),
    [
        (lambda read: read.write_parquet("/tmp/rows"), None, "sink: is write_parquet"),
        (lambda read: read.write(copy), None, "sink: is write"),
        (
            lambda read: read.write_kafka("out", bootstrap_servers="other:1"),
            None,
            "sink: is write_kafka.*bootstrap_servers",
        ),
        (lambda read: read.write_kafka("out"), {"acks": "all"}, "sink: is dead_letters with acks"),
    ],
)
def test_a_pipelines_sinks_are_refused_by_the_names_of_their_steps(write, more, text):
    read = ka.Pipeline.read_kafka("orders", group_id="g", bootstrap_servers="localhost:9092").decode_json(
        "id BIGINT", on_error="dead_letter" if more else "fail"
    )
    pipeline = write(read)
    if more is not None:
        pipeline = pipeline.dead_letters("dead", **more)
    with pytest.raises(ConfigError, match=text):
        pipeline.on_ray(delivery="exactly_once")


def test_a_pipeline_delivers_exactly_once():
    read = ka.Pipeline.read_kafka("orders", group_id="g", bootstrap_servers="localhost:9092")
    run = (
        read.decode_json("id BIGINT")
        .write_kafka("out", compression_type="lz4")
        .on_ray(delivery="exactly_once")
    )
    assert run.job.config.isolation_level == "read_committed"
    assert run.job.plan().spec.outputs.producer_options == {"compression_type": "lz4"}
    assert run.changed({"max_poll_interval_ms": 1_000}).job.config.delivery == "exactly_once"


def test_a_pipeline_says_how_it_delivers_and_what_became_of_its_transactions():
    read = ka.Pipeline.read_kafka("orders", group_id="g", bootstrap_servers="localhost:9092")
    pipeline = read.decode_json("id BIGINT").write_kafka("out")
    assert "exactly once" not in pipeline.on_ray().explain()
    run = pipeline.on_ray(delivery="exactly_once")
    assert run.explain().endswith("in transactions, one each commit")
    found = TransactionStatus(committed=1_200, aborted=2, cause="fenced", open_s=0.25, committed_ago_s=0.5)
    run._running = SimpleNamespace(status=lambda: SimpleNamespace(transactions=found))
    assert run.explain().splitlines()[-1] == (
        "  1,200 committed, the last 0.5 s ago, open for 0.2 s; 2 aborted: fenced"
    )

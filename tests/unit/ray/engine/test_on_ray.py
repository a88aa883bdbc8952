"""A pipeline bound to Ray: which arguments of a job are its own, what the job behind it gets, and copies with other values."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

import kafka_actors as ka
from kafka_actors.errors import ConfigError, UsageError
from kafka_actors.job import Autoscale
from kafka_actors.pipeline.stages import WriteFunction
from kafka_actors.ray.engine.on_ray import PARQUET_COMMIT_MS, OnRay


def same(batch: Any) -> Any:
    return batch


def read(**options: Any) -> ka.Pipeline:
    given = {"bootstrap_servers": "h:1", "group_id": "g", **options}
    return ka.Pipeline.read_kafka("orders", **given)


def orders(**options: Any) -> ka.Pipeline:
    return read(**options).decode_json("id BIGINT").write_kafka("scored")


@pytest.mark.parametrize(
    "name", ["on_error", "retries", "process", "sink", "topics", "bootstrap_servers", "group_id"]
)
def test_what_the_pipeline_says_is_not_said_again(name: str) -> None:
    with pytest.raises(ConfigError, match=f"^{name}: is the pipeline's: say it there$"):
        orders().on_ray(**{name: "x"})


def test_the_job_reads_as_the_source_says_unless_the_call_says_otherwise() -> None:
    bound = orders(fetch_max_wait_ms=7, auto_commit_interval_ms=100).on_ray(
        workers=3, config={"auto.commit.interval.ms": 200}
    )
    job = bound.job
    assert (job.topics, job.config.group_id, job.config.bootstrap_servers) == (["orders"], "g", ["h:1"])
    assert (job.config.fetch_max_wait_ms, job.config.auto_commit_interval_ms) == (7, 200)
    assert (job.workers, job.config.retries, job.config.on_error) == (3, 0, "fail"), "stages have their own"


def test_files_are_written_each_ten_seconds_unless_the_interval_is_said(tmp_path: Any) -> None:
    files = read().decode_json("id BIGINT").write_parquet(str(tmp_path))
    assert files.on_ray().job.config.auto_commit_interval_ms == PARQUET_COMMIT_MS
    assert files.on_ray(config={"auto_commit_interval_ms": 50}).job.config.auto_commit_interval_ms == 50


def keyed(**said: Any) -> ka.Pipeline:
    return read().map_messages(same, schema="id BIGINT", name="score", **said).write_kafka("scored")


def test_what_a_stage_says_of_the_run_is_the_runs() -> None:
    bound = keyed(ordering="key", concurrency=64).on_ray()
    assert (bound.job.config.ordering, bound.job.config.concurrency) == ("key", 64)
    assert "batches in the order of each key, 64 at once" in bound.explain()
    assert keyed(concurrency=8).on_ray(ordering="key").job.config.concurrency == 8
    assert keyed(ordering="key").on_ray(ordering="key", concurrency=8).job.config.concurrency == 8
    assert "batches in any order, 8 at once" in keyed().on_ray(ordering="unordered", concurrency=8).explain()
    changed = keyed(ordering="key").on_ray().changed({"concurrency": 4, "ordering": "key"})
    assert (changed.job.config.ordering, changed.job.config.concurrency) == ("key", 4)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"ordering": "unordered"},
            "ordering is 'key', and the run's options say 'unordered': a run has one",
        ),
        ({"concurrency": 8}, "concurrency is 64, and the run's options say 8: a run has one; say it once"),
        ({"config": {"concurrency": 8}}, "concurrency is 64, and the run's options say 8"),
        ({"delivery": "exactly_once"}, "ordering is 'key' with delivery='exactly_once', whose transactions"),
        (
            {"batch_rows": 5, "batch_linger_ms": 9},
            "batch_linger_ms is 9 with ordering='key', where calls get",
        ),
    ],
)
def test_what_does_not_go_with_what_a_stage_says_is_refused_by_its_name(
    options: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=f"^score: {said}"):
        keyed(ordering="key", concurrency=64).on_ray(**options)


def test_a_worker_knows_of_functions_over_single_records() -> None:
    def by_record(pipeline: ka.Pipeline) -> bool:
        return pipeline.write_kafka("scored").on_ray().job.plan().spec.by_record

    assert by_record(read().map_messages(same, schema="id BIGINT"))
    assert by_record(read().raw().flat_map(same, schema="id BIGINT"))
    assert not by_record(read().raw().map_batches(same, schema="id BIGINT"))


def test_where_calls_overlap_the_worker_makes_them_again() -> None:
    pauses = ka.Backoff(initial_ms=7)
    by_key = keyed(ordering="key").on_error("skip", retries=5).on_ray(retry_backoff=pauses).job
    assert (by_key.config.retries, by_key.retry_backoff, by_key.config.on_error) == (5, pauses, "fail")
    assert not by_key.plan().spec.target.bound.by_partition
    assert keyed().on_ray().job.plan().spec.target.bound.by_partition
    assert keyed().on_ray(ordering="unordered").job.config.retries == 3
    assert keyed().on_ray().job.config.retries == 0, "stages make theirs again"


def test_calls_at_once_need_an_order_of_more_than_one() -> None:
    with pytest.raises(ConfigError, match=r"^score: concurrency is 8 with ordering='partition', one call at"):
        keyed(concurrency=8).on_ray()
    with pytest.raises(ConfigError, match=r"^concurrency: is 8 with ordering='partition'"):
        keyed().on_ray(concurrency=8)


def test_gpus_of_a_stage_are_the_workers_unless_the_call_says_otherwise() -> None:
    scored = (
        read().decode_json("id BIGINT").map_batches(same, schema="id BIGINT", num_gpus=0.5).write_kafka("out")
    )
    assert scored.on_ray().job.resources == {"num_gpus": 0.5}
    assert scored.on_ray(resources_per_worker={"num_cpus": 2}).job.resources == {
        "num_gpus": 0.5,
        "num_cpus": 2,
    }
    assert scored.on_ray(resources_per_worker={"num_gpus": 1}).job.resources == {"num_gpus": 1}


def test_a_copy_has_other_values_and_the_rest_stays() -> None:
    bound = orders().on_ray(
        workers=2, resources_per_worker={"num_cpus": 1}, batch_rows=50, config={"fetch_max_wait_ms": 9}
    )
    other = bound.changed(
        {"bootstrap_servers": ["other:2"], "batch_rows": 70},
        topics=["archive"],
        resources_per_worker={"memory": 1 << 20},
        workers=Autoscale(min=1, max=4),
    )
    assert isinstance(other, OnRay)
    job = other.job
    assert (job.topics, job.config.bootstrap_servers, job.workers) == (
        ["archive"],
        ["other:2"],
        Autoscale(min=1, max=4),
    )
    assert (job.config.batch_rows, job.config.fetch_max_wait_ms) == (70, 9)
    assert job.resources == {"num_cpus": 1, "memory": 1 << 20}
    assert (bound.job.topics, bound.job.config.batch_rows) == (["orders"], 50)


def test_before_it_starts_it_has_no_status_and_nothing_to_stop() -> None:
    bound = orders().on_ray(workers=2)
    with pytest.raises(UsageError, match="start"):
        bound.status()
    bound.stop()
    assert repr(bound).endswith("2 workers, not started>")


def test_a_function_that_can_not_be_sent_is_refused_with_its_stage() -> None:
    lock = threading.Lock()
    scored = (
        read()
        .decode_json("id BIGINT")
        .map_batches(lambda batch: lock and batch, schema="id BIGINT", name="score")
    )
    with pytest.raises(ConfigError, match=r"^score: .*lock"):
        scored.write_kafka("out").on_ray().check_travels()


def test_it_tells_of_transactions_where_it_delivers_exactly_once() -> None:
    assert "exactly once" not in orders().on_ray().explain()
    bound = orders().on_ray(delivery="exactly_once")
    assert bound.explain().endswith("transactions, one each commit")
    found = SimpleNamespace(committed=1_200, aborted=1, cause="it died", open_s=0.25, committed_ago_s=1.5)
    bound._running = SimpleNamespace(status=lambda: SimpleNamespace(transactions=found))  # type: ignore[assignment]
    said = "1,200 committed, the last 1.5 s ago, open for 0.2 s; 1 aborted: it died"
    assert bound.explain().splitlines()[-1].strip() == said


def test_sinks_of_users_are_part_of_the_function_that_workers_get() -> None:
    bound = read().decode_json("id BIGINT").write(print).on_ray()
    (sink,) = [s for s in bound.pipeline.stages if isinstance(s, WriteFunction)]
    assert bound.job.plan().spec.target.bound.pipeline.stages[-1] is sink
    assert bound.job.plan().spec.registries == []

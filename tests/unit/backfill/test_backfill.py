"""Options of a pipeline in the two halves of its backfill, without brokers and without Spark."""

import pytest

import kafka_actors as ka

pytest.importorskip("pyspark")
from kafka_actors.backfill import backfill
from kafka_actors.backfill.machines.handover_plan import HandoverPlan
from kafka_actors.spark.source.options import parse_stream


def test_the_jobs_delivery_is_lives_alone(monkeypatch):
    monkeypatch.setattr(backfill, "files_of", lambda spark, checkpoint: None)
    read = ka.Pipeline.read_kafka("orders", bootstrap_servers="a:1", group_id="g", delivery="exactly_once")
    made = (
        read.raw()
        .write_kafka("copy", format="columns", delivery="exactly_once")
        .backfill(None, checkpoint="/c")
    )
    assert made.pipeline.source.options["delivery"] == "exactly_once"
    plan = HandoverPlan(
        id="a",
        created="now",
        cluster_id=None,
        group_id="g",
        isolation_level="read_uncommitted",
        pattern=None,
        topics={},
    )
    history = made._history(plan)
    parse_stream(history._options(streaming=True), limits=True)
    assert history.pipeline.stages[-1].delivery == "exactly_once"

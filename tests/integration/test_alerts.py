"""The alerts of the documentation: a real Prometheus knows their metrics, and they fire when they should and not otherwise."""

import json
import re
import signal

import pytest
import yaml
from fakes.prometheus import metrics_of, prometheuses
from helm.dashboard import expressions
from pages.blocks import ROOT, blocks_of
from waiting import output_of, until

from kafka_actors.testing.node import free_ports

PAGE = ROOT / "docs" / "how-to" / "telemetry.md"
IN_PROMETHEUS = re.compile(r"^\| `[^|]*\| `([a-z_]+)`", re.MULTILINE)
"""The second column of the table of metrics, where it has a whole name."""


def rules():
    """The file of rules that the page shows."""
    (shown,) = [b.code for b in blocks_of(PAGE) if b.language == "yaml" and b.code.startswith("groups:")]
    return shown


def test_the_charts_alerts_are_those_of_the_page():
    assert yaml.safe_load((ROOT / "helm/kafka-actors/files/alerts.yaml").read_text()) == yaml.safe_load(
        rules()
    )


def alerts():
    return {rule["alert"]: rule for group in yaml.safe_load(rules())["groups"] for rule in group["rules"]}


# ---------------------------------------------------------------- when they fire


def lag(seconds):
    return f'kafka_actors_consumer_group_lag_time_seconds{{group="g",topic="t",partition="0"}} {seconds}'


def slow(*counts):
    """Series of a latency histogram to which each minute adds `counts` records, for the bounds in order."""
    bounds = ("1.024", "65.536", "131.072", "+Inf")
    return [
        f'kafka_actors_latency_seconds_bucket{{group="g",le="{bound}"}} 0+{count}x40'
        for bound, count in zip(bounds, counts, strict=True)
    ]


def blocked(reason, values="1x40"):
    return f'kafka_actors_partition_blocked{{group="g",topic="t",partition="0",reason="{reason}"}} {values}'


def failed(values):
    return f'kafka_actors_failed_messages_total{{messaging_destination_name="t",outcome="skipped"}} {values}'


def moved(reason, values):
    return f'kafka_actors_offset_resets_total{{messaging_destination_name="t",reason="{reason}"}} {values}'


def restarts(role, values):
    return f'kafka_actors_actor_restarts_total{{group="g",role="{role}"}} {values}'


def rebalances(values):
    return f'kafka_actors_consumer_group_rebalance_duration_seconds_count{{group="g"}} {values}'


def workers(ready, values):
    return f'kafka_actors_workers{{group="g",ready="{ready}"}} {values}'


OF_T = {"messaging_destination_name": "t"}
CASES = [
    ("Behind", [lag("700x40")], 10, {"group": "g", "topic": "t"}),
    ("Behind", [lag("599x40")], 10, None),
    ("Behind", [lag("0x9 700x40")], 12, None),
    ("Slow", slow(0, 10, 1_000, 1_000), 20, {"group": "g"}),
    ("Slow", slow(0, 1_000, 1_000, 1_000), 20, {"group": "g"}),
    ("Slow", slow(1_000, 1_000, 1_000, 1_000), 20, None),
    ("Slow", slow(0, 0, 0, 0), 20, None),
    (
        "StandsStill",
        [blocked("failed")],
        10,
        {"group": "g", "topic": "t", "partition": "0", "reason": "failed"},
    ),
    (
        "StandsStill",
        [blocked("no_worker")],
        10,
        {"group": "g", "topic": "t", "partition": "0", "reason": "no_worker"},
    ),
    ("StandsStill", [blocked("buffer_full")], 10, None),
    ("StandsStill", [blocked("failed", "1x2")], 10, None),
    ("NoWorkers", [workers("true", "0x40"), workers("false", "3x40")], 10, {"group": "g"}),
    ("NoWorkers", [lag("0x40")], 10, {}),
    ("NoWorkers", [workers("true", "1x40")], 10, None),
    ("WorkersDie", [restarts("worker", "0x5 1 2 3 4 5x40")], 12, {"group": "g", "role": "worker"}),
    ("WorkersDie", [restarts("worker", "0x5 1x40")], 12, None),
    ("WorkersDie", [restarts("coordinator", "0x5 1 2 3 4 5x40")], 12, None),
    ("Rebalances", [rebalances("1x2 2 3 4 5 6 7 8x40")], 12, {"group": "g"}),
    ("Rebalances", [rebalances("1x40")], 12, None),
    # A series that comes into being with its first event counts, too; and it is no alarm for ever.
    ("RecordsFailed", [failed("_x5 7x40")], 8, {**OF_T, "outcome": "skipped"}),
    ("RecordsFailed", [failed("7x20 8x40")], 22, {**OF_T, "outcome": "skipped"}),
    ("RecordsFailed", [failed("_x5 7x40")], 30, None),
    ("PositionsMoved", [moved("out_of_range", "_x5 1x40")], 8, {**OF_T, "reason": "out_of_range"}),
    ("PositionsMoved", [moved("truncated", "1x20 2x40")], 22, {**OF_T, "reason": "truncated"}),
    ("PositionsMoved", [moved("no_commit", "_x5 1x40")], 8, None),
    ("PositionsMoved", [moved("out_of_range", "1x40")], 30, None),
]


@pytest.fixture
def rule_file(tmp_path):
    path = tmp_path / "rules.yml"
    path.write_text(rules())
    return path


def test_each_alert_is_shown_to_fire_and_not_to_fire():
    assert {name for name, *_, labels in CASES if labels is not None} == alerts().keys()
    assert {name for name, *_, labels in CASES if labels is None} == alerts().keys()


def test_the_rules_are_such_as_prometheus_loads(promtool, rule_file):
    checked = promtool("check", "rules", str(rule_file))
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize(
    "case", CASES, ids=lambda case: f"{case[0]}-{'fires' if case[3] is not None else 'rests'}"
)
def test_an_alert_fires_when_it_should(promtool, rule_file, case):
    name, series, minutes, labels = case
    expected = [] if labels is None else [{"exp_labels": labels}]
    made = [dict(zip(("series", "values"), each.split(" ", 1), strict=True)) for each in series]
    test = {
        "rule_files": [rule_file.name],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": made,
                "alert_rule_test": [{"eval_time": f"{minutes}m", "alertname": name, "exp_alerts": expected}],
            }
        ],
    }
    path = rule_file.with_name("tests.yml")
    path.write_text(json.dumps(test))  # JSON is YAML
    tested = promtool("test", "rules", str(path))
    assert tested.returncode == 0, tested.stdout + tested.stderr


# ---------------------------------------------------------------- that their metrics are there

JOB = """
import kafka_actors as ka


def work(batch):
    if batch["partition"][0].as_py() == 1 and 50 in batch["offset"].to_pylist():
        raise ValueError("always")


job = ka.Job(
    topics=["{topic}"],
    group_id="{group}",
    bootstrap_servers="{servers}",
    process=work,
    workers=2,
    batch_rows=20,
    retries=8,
    on_error="skip",
    auto_offset_reset="earliest",
)
"""


def test_names_are_found_in_expressions():
    found = metrics_of(
        'sum by (messaging_destination_name) (increase(kafka_x_total{kafka_y="z"}[5m])) > 0 or messaging_w'
    )
    assert found == {"kafka_x_total", "messaging_w"}


RARE = (
    "kafka_actors_bad_batches",
    "kafka_actors_partition_blocked",  # in the end nothing is
    "kafka_actors_partition_stalls",
    "kafka_actors_fetch_failures",
    'messaging_operation_name="commit", error_type!=""',
)
"""Parts of the dashboard's expressions for which this job has no cause."""


def empty(prometheus):
    """The dashboard's queries that show nothing though they should."""
    asked = [(title, query) for title, query in expressions() if not any(rare in query for rare in RARE)]
    assert len(asked) > 20
    return [f"{title}: {query}" for title, query in asked if not prometheus.query(query)]


@pytest.mark.ray
@pytest.mark.kafka
def test_a_real_prometheus_finds_the_metrics_of_all_alerts_and_of_the_dashboard_in_a_running_job(
    run_job, kafka_cluster, kafka_topic, produce, group_id, tmp_path, rule_file
):
    topic = kafka_topic(4)
    produce(topic, [b"%d" % n for n in range(400)], partition=[n % 4 for n in range(400)])
    port = free_ports(1)[0]
    job = JOB.format(topic=topic, group=group_id, servers=kafka_cluster.bootstrap_servers)
    process = run_job(job, "--prometheus", f":{port}")
    wanted = set().union(*(metrics_of(rule["expr"]) for rule in alerts().values()))
    assert len(wanted) >= len(alerts()) - 1
    with prometheuses(tmp_path) as start:
        prometheus = start(f"localhost:{port}", rule_file)

        def names():
            return set(prometheus.ask("label/__name__/values") or ())

        def missing():
            return process.poll(), wanted - names()

        def loaded():
            return [r for g in (prometheus.ask("rules") or {"groups": ()})["groups"] for r in g["rules"]]

        try:
            until(lambda: wanted <= names(), 60, "all metrics", 0.2, shown=missing)
            shown = IN_PROMETHEUS.findall(PAGE.read_text())
            assert len(shown) > 5
            assert [name for name in shown if not any(n.startswith(name) for n in names())] == []
            until(lambda: len(loaded()) == len(alerts()), 60, "all alerts", 0.2, shown=loaded)
            until(lambda: all(rule["health"] == "ok" for rule in loaded()), 60, pause=0.2, shown=loaded)
            until(
                lambda: prometheus.query('ALERTS{alertname="RecordsFailed",alertstate="firing"}') != [],
                60,
                "an alert",
                0.2,
                shown=loaded,
            )
            until(lambda: empty(prometheus) == [], 60, pause=0.2, shown=lambda: empty(prometheus))
            assert (
                prometheus.query(
                    'ALERTS{alertname=~"NoWorkers|WorkersDie|PositionsMoved",alertstate="firing"}'
                )
                == []
            )
        finally:
            process.send_signal(signal.SIGTERM)
            out, err = output_of(process, 60)
    assert process.returncode == 0, (out, err)

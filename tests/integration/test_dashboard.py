"""The dashboard for Grafana: it asks for what there is, and understands what exporters say of groups without a job."""

import json

import pytest
from fakes.prometheus import metrics_of
from helm.dashboard import FILE, PANELS, WIDTH, dashboard, expressions, text

from kafka_actors.telemetry.instruments import INSTRUMENTS, InstrumentKind

EXPORTERS = {
    "kafka_consumergroup_lag",
    "kafka_consumergroup_current_offset",
    "kafka_consumergroup_members",
    "kafka_consumergroup_group_lag_seconds",
}
"""Metrics of kafka_exporter; the last one is kafka-lag-exporter's. Ours have the names of the collector's kafkametrics receiver."""
UNITS = {"s": "_seconds", "By": "_bytes"}


def in_prometheus(instrument):
    """Its names there."""
    name = instrument.name.replace(".", "_") + UNITS.get(instrument.unit, "")
    if instrument.kind is InstrumentKind.COUNTER:
        return {f"{name}_total"}
    if instrument.kind in (InstrumentKind.HISTOGRAM, InstrumentKind.DISTRIBUTION):
        return {f"{name}_{part}" for part in ("bucket", "sum", "count")}
    return {name}


def test_the_file_is_what_its_panels_say():
    assert FILE.read_text() == text(), "panels changed: make docs-dashboard"


def test_it_asks_for_metrics_that_there_are_and_for_those_of_exporters():
    known = set().union(*map(in_prometheus, INSTRUMENTS))
    asked = set().union(*(metrics_of(expression) for _, expression in expressions()))
    assert asked - known == EXPORTERS
    labels = {a.replace(".", "_") for i in INSTRUMENTS for a in i.attributes} | {"le"}
    legends = {name for panel in PANELS for legend in panel.queries for name in names_in(legend)}
    assert legends <= labels


def names_in(legend):
    return [part.split("}}")[0] for part in legend.split("{{")[1:]]


def test_panels_lie_beside_each_other_and_each_has_a_meaning():
    panels = dashboard()["panels"]
    taken = set()
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= WIDTH
        cells = {
            (place["x"] + right, place["y"] + down)
            for right in range(place["w"])
            for down in range(place["h"])
        }
        assert not cells & taken
        taken |= cells
        assert panel["title"]
        assert panel["description"]
    assert len({panel["title"] for panel in panels}) == len({panel["id"] for panel in panels}) == len(panels)


def test_prometheus_understands_every_query(promtool, tmp_path):
    rules = [{"record": f"query:{n}", "expr": expr} for n, (_, expr) in enumerate(expressions())]
    file = tmp_path / "rules.yml"
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))  # JSON is YAML
    checked = promtool("check", "rules", str(file))
    assert checked.returncode == 0, checked.stdout + checked.stderr


def ours(partition, value):
    return f'kafka_consumer_group_lag{{group="g",topic="t",partition="{partition}",job="scorer"}} {value}'


def theirs(partition, value):
    return f'kafka_consumergroup_lag{{consumergroup="g",topic="t",partition="{partition}",job="exporter"}} {value}'


@pytest.mark.parametrize(
    ("series", "lag"),
    [
        ([ours(0, 5), ours(1, 6)], 11),
        ([theirs(0, 7), theirs(1, 9)], 16),
        ([ours(0, 5), theirs(0, 7)], 5),
        ([ours(0, 5), theirs(0, 7), theirs(1, 9)], 14),
    ],
    ids=["of the job", "of an exporter", "each partition once", "what the job has, and what others have"],
)
def test_lag_is_the_jobs_or_an_exporters(promtool, tmp_path, series, lag):
    (expression,) = [expr for title, expr in expressions() if title == "Lag, by topic"]
    expected = [{"labels": '{group="g", topic="t"}', "value": lag}]
    test = {
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [
                    dict(zip(("series", "values"), each.rsplit(" ", 1), strict=True)) for each in series
                ],
                "promql_expr_test": [{"expr": expression, "eval_time": "0m", "exp_samples": expected}],
            }
        ],
    }
    file = tmp_path / "tests.yml"
    file.write_text(json.dumps(test))
    tested = promtool("test", "rules", str(file))
    assert tested.returncode == 0, tested.stdout + tested.stderr

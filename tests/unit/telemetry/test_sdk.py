"""`OTEL_*` variables, the options of the command line that are other names for them, and what setting up an SDK refuses; that
it works is shown with real jobs.
"""

import importlib
import os

import prometheus_client
import pytest
from prometheus_client.parser import text_string_to_metric_families

from kafka_actors.cli.run import set_telemetry
from kafka_actors.errors import ConfigError, UsageError
from kafka_actors.telemetry import Settings, configure, sdk
from kafka_actors.telemetry.instruments import LATENCY
from kafka_actors.telemetry.recorder import Distributions

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


def exporters(**variables):
    settings = Settings.of_process(variables)
    return settings and {s: settings.exporters(s) for s in ("traces", "metrics", "logs")}


def test_nothing_is_measured_where_nothing_is_asked_for():
    assert Settings.of_process({}) is None
    assert Settings.of_process({"OTEL_SERVICE_NAME": "orders", "OTEL_TRACES_SAMPLER": "always_on"}) is None
    assert Settings.of_process({ENDPOINT: "http://c:4318", "OTEL_SDK_DISABLED": "true"}) is None
    assert Settings.of_process({ENDPOINT: "http://c:4318", "OTEL_SDK_DISABLED": "false"}) is not None


def test_an_endpoint_is_for_all_signals_unless_they_say_otherwise():
    assert exporters(**{ENDPOINT: "http://c:4318"}) == {
        "traces": ("otlp",),
        "metrics": ("otlp",),
        "logs": ("otlp",),
    }
    assert exporters(
        **{ENDPOINT: "http://c:4318", "OTEL_TRACES_EXPORTER": "none", "OTEL_METRICS_EXPORTER": "prometheus"}
    ) == {"traces": (), "metrics": ("prometheus",), "logs": ("otlp",)}
    assert exporters(OTEL_EXPORTER_OTLP_METRICS_ENDPOINT="http://c/m") == {
        "traces": (),
        "metrics": ("otlp",),
        "logs": (),
    }


def test_wrong_values_are_errors_that_name_the_variable():
    with pytest.raises(ConfigError, match=r"OTEL_METRICS_EXPORTER: has 'promethus': accepts .*prometheus"):
        exporters(OTEL_METRICS_EXPORTER="otlp,promethus")
    with pytest.raises(ConfigError, match="OTEL_EXPORTER_OTLP_PROTOCOL: is 'http/json'"):
        Settings({"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}).protocol("traces")
    with pytest.raises(ConfigError, match="OTEL_EXPORTER_PROMETHEUS_PORT: is '70000': accepts a port"):
        Settings({"OTEL_EXPORTER_PROMETHEUS_PORT": "70000"}).prometheus  # noqa: B018


def test_a_protocol_of_a_signal_goes_before_that_of_all():
    settings = Settings(
        {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf"}
    )
    assert (settings.protocol("traces"), settings.protocol("metrics")) == ("http/protobuf", "grpc")
    assert Settings().protocol("logs") == "http/protobuf"
    assert Settings().prometheus == ("localhost", 9464)


def test_credentials_of_a_collector_are_not_shown():
    settings = Settings({ENDPOINT: "http://c", "OTEL_EXPORTER_OTLP_HEADERS": "api-key=s3cr3t"})
    assert "s3cr3t" not in repr(settings)
    assert "metrics=otlp" in repr(settings)


@pytest.mark.parametrize(
    ("options", "variables", "expected"),
    [
        ({}, {}, None),
        (
            {"otlp": "http://c:4318"},
            {},
            {"traces": ("otlp",), "metrics": ("otlp",), "logs": ("otlp",)},
        ),
        ({"prometheus": ":9999"}, {}, {"traces": (), "metrics": ("prometheus",), "logs": ()}),
        (
            {"prometheus": ":9999", "otlp": "http://c"},
            {},
            {"traces": ("otlp",), "metrics": ("otlp", "prometheus"), "logs": ("otlp",)},
        ),
        (
            {"prometheus": "9999"},
            {ENDPOINT: "http://c", "OTEL_TRACES_EXPORTER": "none"},
            {"traces": (), "metrics": ("otlp", "prometheus"), "logs": ("otlp",)},
        ),
        (
            {"prometheus": ":9999"},
            {"OTEL_METRICS_EXPORTER": "console,prometheus"},
            {"traces": (), "metrics": ("console", "prometheus"), "logs": ()},
        ),
    ],
)
def test_options_ask_for_what_the_variables_would(options, variables, expected, monkeypatch):
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    before = dict(os.environ)
    try:
        set_telemetry(**{"otlp": None, "prometheus": None, **options})
        seen = dict(os.environ)
    finally:
        os.environ.clear()
        os.environ.update(before)
    assert exporters(**{n: v for n, v in seen.items() if n.startswith("OTEL_")}) == expected
    if "prometheus" in options:
        assert Settings.of_process(seen).prometheus == ("localhost", 9999)


@pytest.mark.parametrize("text", ["", "x", "host", "host:x", ":70000"])
def test_a_wrong_address_for_prometheus_is_an_error(text):
    with pytest.raises(ConfigError, match=f"^prometheus: is '{text}'"):
        set_telemetry(otlp=None, prometheus=text)


def test_a_status_page_asks_for_metrics_unless_telemetry_is_off():
    assert Settings.of_process({}, page=True).page
    assert Settings.of_process({}, page=True).exporters("metrics") == ()
    assert not Settings.of_process({ENDPOINT: "http://c:4318"}).page
    assert Settings.of_process({"OTEL_SDK_DISABLED": "true"}, page=True) is None


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """What `configure` puts into the environment goes again."""
    monkeypatch.setattr(sdk.os, "environ", {})


def test_what_is_not_installed_is_named_with_how_to_get_it(monkeypatch):
    real = importlib.import_module

    def without(name):
        if name.startswith("opentelemetry.exporter"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name)

    monkeypatch.setattr(sdk.importlib, "import_module", without)
    with pytest.raises(
        UsageError,
        match=r"opentelemetry.exporter.* is not installed: pip install 'kafka-actors\[telemetry\]'",
    ):
        configure(Settings({"OTEL_METRICS_EXPORTER": "otlp"}))


def test_an_address_that_cannot_be_used_is_an_error_that_names_it(monkeypatch):
    def refuse(**_):
        raise OSError(98, "Address already in use")

    monkeypatch.setattr(prometheus_client, "start_http_server", refuse)
    variables = {"OTEL_EXPORTER_PROMETHEUS_HOST": "127.0.0.1", "OTEL_EXPORTER_PROMETHEUS_PORT": "9999"}
    with pytest.raises(ConfigError, match=r"127.0.0.1:9999 can't be listened on: .*Address already in use"):
        configure(Settings({"OTEL_METRICS_EXPORTER": "prometheus", **variables}))


def test_nothing_is_set_up_where_nothing_is_asked_for(monkeypatch):
    monkeypatch.setattr(sdk, "_module", lambda name: pytest.fail(f"{name} was imported"))
    configure()
    configure(Settings({"OTEL_METRICS_EXPORTER": "none"}))
    configure(Settings({"OTEL_METRICS_EXPORTER": "otlp"}), signals=("traces", "logs"))


def test_a_status_page_without_the_sdk_is_told_how_to_get_it(monkeypatch):
    real = importlib.import_module

    def without(name):
        if name == "opentelemetry.exporter.prometheus":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name)

    monkeypatch.setattr(sdk.importlib, "import_module", without)
    monkeypatch.setattr(sdk, "_registries", [])
    monkeypatch.setattr(sdk, "has_meter_provider", lambda: False)
    monkeypatch.setattr(sdk, "_metrics", lambda *_: pytest.fail("an SDK was set up"))
    configure(Settings(page=True))
    assert "opentelemetry.exporter.prometheus is not installed: pip install" in sdk.exposition("")


def test_a_status_page_has_a_registry_of_its_own_where_nobody_asks_for_an_exporter(monkeypatch):
    expected = []
    monkeypatch.setattr(sdk, "_registries", [])
    monkeypatch.setattr(sdk, "has_meter_provider", lambda: False)
    monkeypatch.setattr(sdk, "_metrics", lambda settings, exporters, resource: expected.append(exporters))
    configure(Settings(page=True), signals=("traces", "logs"))
    assert expected == []
    configure(Settings(page=True))
    assert expected == [()]
    assert sdk.exposition("") == sdk.NOT_OURS


def test_metrics_are_given_in_the_form_that_is_asked_for(monkeypatch):
    registry = prometheus_client.CollectorRegistry()
    prometheus_client.Counter("seen", "How many.", registry=registry).inc()
    monkeypatch.setattr(sdk, "_registries", [registry])
    body, content_type = sdk.exposition("")
    assert b"seen_total 1.0" in body
    assert content_type.startswith("text/plain")
    body, content_type = sdk.exposition("application/openmetrics-text; version=1.0.0")
    assert body.endswith(b"# EOF\n")
    assert content_type.startswith("application/openmetrics-text")


def test_latency_is_a_histogram_as_prometheus_has_them(monkeypatch):
    here = Distributions()
    counts = [0] * (len(LATENCY.boundaries) + 1)
    here.add(LATENCY, [3, 0, 2, *counts[3:]], 0.25, (("group", "scorer"),))
    here.add(LATENCY, [*counts[:-1], 1], 9_000.0, (("group", "other"),))
    monkeypatch.setattr(sdk, "distributions", lambda: here)
    registry = prometheus_client.CollectorRegistry()
    registry.register(sdk._Distributions())
    text = prometheus_client.generate_latest(registry).decode()
    assert text.count("# TYPE kafka_actors_latency_seconds histogram") == 1

    (family,) = text_string_to_metric_families(text)
    found = {(s.name, s.labels["group"], s.labels.get("le")): s.value for s in family.samples}
    name = "kafka_actors_latency_seconds"
    assert [found[f"{name}_bucket", "scorer", le] for le in ("0.001", "0.002", "0.004", "+Inf")] == [
        3,
        3,
        5,
        5,
    ]
    assert [found[f"{name}_{part}", "scorer", None] for part in ("count", "sum")] == [5, 0.25]
    assert [found[f"{name}_bucket", "other", le] for le in ("4194.304", "+Inf")] == [0, 1]
    assert len(found) == 2 * (len(counts) + 2)

"""`OTEL_*` variables, and the options of the command line that are other names for them."""

import os

import pytest

from kafka_actors.cli.run import set_telemetry
from kafka_actors.errors import ConfigError
from kafka_actors.telemetry import Settings

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
    ("options", "given", "asked"),
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
def test_options_ask_for_what_the_variables_would(options, given, asked, monkeypatch):
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    before = dict(os.environ)
    try:
        set_telemetry(**{"otlp": None, "prometheus": None, **options})
        seen = dict(os.environ)
    finally:
        os.environ.clear()
        os.environ.update(before)
    assert exporters(**{n: v for n, v in seen.items() if n.startswith("OTEL_")}) == asked
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

"""What a run says of telemetry: other names for `OTEL_*` variables, which is where everything else reads it."""

from __future__ import annotations

import os

from kafka_actors.base.addresses import parse_listening

__all__ = ["ask_for"]


def ask_for(*, otlp: str | None, prometheus: str | None) -> None:
    """Sets the variables for this process: a collector's URL, and the `[HOST]:PORT` at which Prometheus may scrape."""
    if otlp is not None:
        os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = otlp
    if prometheus is not None:
        host, port = parse_listening("prometheus", prometheus)
        os.environ["OTEL_EXPORTER_PROMETHEUS_HOST"] = host
        os.environ["OTEL_EXPORTER_PROMETHEUS_PORT"] = str(port)
        _also_prometheus()


def _also_prometheus() -> None:
    """Beside the exporters that are named, or OTLP where an endpoint is."""
    endpoints = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT")
    default = "otlp" if any(os.environ.get(name) for name in endpoints) else ""
    named = [part.strip() for part in os.environ.get("OTEL_METRICS_EXPORTER", default).split(",")]
    wanted = [*(part for part in named if part not in ("", "none", "prometheus")), "prometheus"]
    os.environ["OTEL_METRICS_EXPORTER"] = ",".join(wanted)

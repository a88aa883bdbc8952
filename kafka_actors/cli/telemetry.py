"""The options of telemetry: other names for `OTEL_*` variables, which is where everything else reads them."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import click

from kafka_actors.addresses import parse_listening

__all__ = ["telemetry_options"]


def telemetry_options(function: Callable[..., int]) -> Callable[..., int]:
    """Adds them to a command, and carries them out before its body."""

    @click.option(
        "--otlp",
        metavar="URL",
        envvar="KAFKA_ACTORS_OTLP",
        help="Send metrics, traces and logs to this OpenTelemetry collector, such as http://localhost:4318. "
        "All else is said by OTEL_* variables.",
    )
    @click.option(
        "--prometheus",
        metavar="[HOST]:PORT",
        envvar="KAFKA_ACTORS_PROMETHEUS",
        help="Let Prometheus scrape the job's metrics here; on this machine only, unless a host is given.",
    )
    @functools.wraps(function)
    def body(*args: Any, otlp: str | None, prometheus: str | None, **options: Any) -> int:
        if otlp is not None:
            os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = otlp
        if prometheus is not None:
            host, port = parse_listening("--prometheus", prometheus)
            os.environ["OTEL_EXPORTER_PROMETHEUS_HOST"] = host
            os.environ["OTEL_EXPORTER_PROMETHEUS_PORT"] = str(port)
            _also_prometheus()
        return function(*args, **options)

    return body


def _also_prometheus() -> None:
    """Beside the exporters that are named, or OTLP where an endpoint is."""
    endpoints = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT")
    default = "otlp" if any(os.environ.get(name) for name in endpoints) else ""
    named = [part.strip() for part in os.environ.get("OTEL_METRICS_EXPORTER", default).split(",")]
    wanted = [*(part for part in named if part not in ("", "none", "prometheus")), "prometheus"]
    os.environ["OTEL_METRICS_EXPORTER"] = ",".join(wanted)

"""What the `OTEL_*` variables ask for, as a value that travels to wherever a job's parts run.

An SDK is set up only where something is asked for: an exporter is named, or an OTLP endpoint given. By the
specification the exporter of every signal is then OTLP, unless `OTEL_…_EXPORTER` says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from opentelemetry import metrics as metrics_api
from opentelemetry import trace as trace_api

from kafka_actors.errors import ConfigError

__all__ = ["EXPORTERS", "SIGNALS", "Settings", "has_meter_provider", "has_tracer_provider"]

SIGNALS = ("traces", "metrics", "logs")
EXPORTERS = {
    "traces": frozenset({"otlp", "console"}),
    "metrics": frozenset({"otlp", "console", "prometheus"}),
    "logs": frozenset({"otlp", "console"}),
}
PROTOCOLS = ("http/protobuf", "grpc")


class Settings(msgspec.Struct, frozen=True):
    """`variables`: the `OTEL_*` variables, as they are. They may hold the credentials of a collector, so they are not
    shown. `page`: metrics are for a status page, too (`sdk.exposition`)."""

    variables: dict[str, str] = {}
    page: bool = False

    @classmethod
    def of_process(cls, environment: Mapping[str, str], *, page: bool = False) -> Settings | None:
        """What is asked for, or that the process has an SDK already; None where nothing is to be measured."""
        variables = {name: value for name, value in environment.items() if name.startswith("OTEL_") and value}
        if variables.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
            return None
        settings = cls(variables, page)
        asked = page or any(settings.exporters(signal) for signal in SIGNALS)
        return settings if asked or has_meter_provider() or has_tracer_provider() else None

    def exporters(self, signal: str) -> tuple[str, ...]:
        """The exporters of `traces`, `metrics` or `logs`. Raises `ConfigError` for one that there is not."""
        name = f"OTEL_{signal.upper()}_EXPORTER"
        given = self.variables.get(name)
        if given is None:
            return ("otlp",) if self._endpoint(signal) else ()
        found = tuple(part.strip() for part in given.split(",") if part.strip() not in ("", "none"))
        for exporter in found:
            if exporter not in EXPORTERS[signal]:
                known = ", ".join(sorted(EXPORTERS[signal]))
                raise ConfigError(name, f"has {exporter!r}: accepts {known}, none")
        return found

    def _endpoint(self, signal: str) -> str | None:
        whole = self.variables.get("OTEL_EXPORTER_OTLP_ENDPOINT")
        return self.variables.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT", whole)

    def protocol(self, signal: str) -> str:
        """`http/protobuf` or `grpc`. Raises `ConfigError` for another."""
        whole = "OTEL_EXPORTER_OTLP_PROTOCOL"
        own = f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL"
        name = own if own in self.variables else whole
        protocol = self.variables.get(name, PROTOCOLS[0])
        if protocol not in PROTOCOLS:
            raise ConfigError(name, f"is {protocol!r}: accepts {', '.join(PROTOCOLS)}")
        return protocol

    @property
    def prometheus(self) -> tuple[str, int]:
        """Where Prometheus may scrape: host and port, by default those of the specification. Raises `ConfigError`."""
        name = "OTEL_EXPORTER_PROMETHEUS_PORT"
        port = self.variables.get(name, "9464")
        if not port.isdecimal() or int(port) > 65535:
            raise ConfigError(name, f"is {port!r}: accepts a port")
        return self.variables.get("OTEL_EXPORTER_PROMETHEUS_HOST", "localhost"), int(port)

    def __repr__(self) -> str:
        asked = [f"{signal}={','.join(self.exporters(signal))}" for signal in SIGNALS]
        return f"<Settings {' '.join(asked)}>"


def has_meter_provider() -> bool:
    """Whether the process has an SDK for metrics."""
    return _is_real(metrics_api.get_meter_provider())


def has_tracer_provider() -> bool:
    """Whether the process has an SDK for traces."""
    return _is_real(trace_api.get_tracer_provider())


def _is_real(provider: object) -> bool:
    """The API's own stand-ins live in its own packages."""
    return not type(provider).__module__.startswith(("opentelemetry.metrics", "opentelemetry.trace"))

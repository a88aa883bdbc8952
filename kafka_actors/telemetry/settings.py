"""Settings of telemetry from the `OTEL_*` variables, as a value that is sent to the processes of a job.

An SDK is set up only if an exporter is named or an OTLP endpoint is given. By OpenTelemetry's specification every
signal is then exported by OTLP, unless `OTEL_…_EXPORTER` says otherwise.
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
    """The settings of one process.

    variables: the `OTEL_*` variables. They may hold the credentials of a collector, so `repr` omits them. page: metrics
    are also served by a status page (`sdk.exposition`).
    """

    variables: dict[str, str] = {}
    page: bool = False

    @classmethod
    def of_process(cls, environment: Mapping[str, str], *, page: bool = False) -> Settings | None:
        """Settings of a process with this environment; None if nothing is exported and the process has no SDK of its own."""
        variables = {name: value for name, value in environment.items() if name.startswith("OTEL_") and value}
        if variables.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
            return None
        settings = cls(variables, page)
        exports = page or any(settings.exporters(signal) for signal in SIGNALS)
        return settings if exports or has_meter_provider() or has_tracer_provider() else None

    def exporters(self, signal: str) -> tuple[str, ...]:
        """The exporters of `traces`, `metrics` or `logs`. Raises `ConfigError` for an unknown exporter."""
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
        """The OTLP protocol of a signal, `http/protobuf` or `grpc`. Raises `ConfigError` for any other."""
        whole = "OTEL_EXPORTER_OTLP_PROTOCOL"
        own = f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL"
        name = own if own in self.variables else whole
        protocol = self.variables.get(name, PROTOCOLS[0])
        if protocol not in PROTOCOLS:
            raise ConfigError(name, f"is {protocol!r}: accepts {', '.join(PROTOCOLS)}")
        return protocol

    @property
    def prometheus(self) -> tuple[str, int]:
        """Host and port for Prometheus' scrapes, by default those of the specification. Raises `ConfigError`."""
        name = "OTEL_EXPORTER_PROMETHEUS_PORT"
        port = self.variables.get(name, "9464")
        if not port.isdecimal() or int(port) > 65535:
            raise ConfigError(name, f"is {port!r}: accepts a port")
        return self.variables.get("OTEL_EXPORTER_PROMETHEUS_HOST", "localhost"), int(port)

    def __repr__(self) -> str:
        exporters = [f"{signal}={','.join(self.exporters(signal))}" for signal in SIGNALS]
        return f"<Settings {' '.join(exporters)}>"


def has_meter_provider() -> bool:
    """Whether this process has an SDK for metrics."""
    return _is_real(metrics_api.get_meter_provider())


def has_tracer_provider() -> bool:
    """Whether this process has an SDK for traces."""
    return _is_real(trace_api.get_tracer_provider())


def _is_real(provider: object) -> bool:
    """Whether a provider is an SDK's. The API's proxies and no-op providers are classes of the API's packages."""
    return not type(provider).__module__.startswith(("opentelemetry.metrics", "opentelemetry.trace"))

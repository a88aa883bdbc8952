"""Settings of telemetry from the `OTEL_*` variables, and the set-up of OpenTelemetry's SDK in this process as they say.

`Settings` is a value that is sent to the processes of a job. An SDK is set up only if an exporter is named or an OTLP
endpoint is given. By OpenTelemetry's specification every signal is then exported by OTLP, unless `OTEL_…_EXPORTER` says
otherwise. An SDK that the application has set up itself stays as it is. The rest of the library uses only the API, except
`export`, which is imported here.
"""

from __future__ import annotations

import importlib
import itertools
import logging
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
from opentelemetry import metrics as metrics_api
from opentelemetry import trace as trace_api

from kafka_actors.errors import ConfigError, UsageError

from .recorder import distributions

__all__ = [
    "EXPORTERS",
    "SIGNALS",
    "Settings",
    "begin_task",
    "configure",
    "exports_logs",
    "exposition",
    "flush",
    "has_meter_provider",
    "has_tracer_provider",
]

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
        value = self.variables.get(name)
        if value is None:
            return ("otlp",) if self._endpoint(signal) else ()
        found = tuple(part.strip() for part in value.split(",") if part.strip() not in ("", "none"))
        for exporter in found:
            if exporter not in EXPORTERS[signal]:
                known = ", ".join(sorted(EXPORTERS[signal]))
                raise ConfigError(name, f"has {exporter!r}: accepts {known}, none")
        return found

    def _endpoint(self, signal: str) -> str | None:
        general = self.variables.get("OTEL_EXPORTER_OTLP_ENDPOINT")
        return self.variables.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT", general)

    def protocol(self, signal: str) -> str:
        """The OTLP protocol of a signal, `http/protobuf` or `grpc`. Raises `ConfigError` for any other."""
        general = "OTEL_EXPORTER_OTLP_PROTOCOL"
        own = f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL"
        name = own if own in self.variables else general
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


logger = logging.getLogger(__name__)

MISSING = "telemetry is configured, but {} is not installed: pip install 'kafka-actors[telemetry]'"
NOT_OURS = "no metrics: OTEL_SDK_DISABLED is true, or this process had an OpenTelemetry SDK before, which exports them"
SERIES = 200_000
"""Most sets of attributes of one instrument: the SDK's default of 2,000 would cut off a job with more partitions."""

OURS = "kafka_actors"


class TaskTraces(trace_api.TracerProvider):
    """Gives each span the resource of the task in which it begins, whenever its tracer was created.

    For a process that runs one task after the other, each with a resource of its own (a Python worker of Spark). The
    SDK's provider has one resource for its life, so each task gets a provider of its own over the same exporters.
    `provider_of` makes the provider of a task from the attributes that its resource has beside those of the process.
    """

    def __init__(self, provider_of: Callable[[Mapping[str, str | int]], trace_api.TracerProvider]) -> None:
        self._provider_of = provider_of
        self._now = provider_of({})

    def begin(self, attributes: Mapping[str, str | int]) -> None:
        """Starts the next task; `attributes` are added to its resource."""
        self._now = self._provider_of(attributes)

    def get_tracer(self, *args: Any, **kwargs: Any) -> trace_api.Tracer:
        """Returns a tracer that follows the current task."""
        return _TaskTracer(lambda: self._now.get_tracer(*args, **kwargs))


class _TaskTracer(trace_api.Tracer):
    def __init__(self, now: Callable[[], trace_api.Tracer]) -> None:
        self._now = now

    def start_span(self, *args: Any, **kwargs: Any) -> trace_api.Span:
        return self._now().start_span(*args, **kwargs)

    def start_as_current_span(self, *args: Any, **kwargs: Any) -> Any:
        return self._now().start_as_current_span(*args, **kwargs)


_running: list[Callable[[int], object]] = []
_log_providers: list[Any] = []
_task_traces: list[TaskTraces] = []
_registries: list[Any] = []
"""The Prometheus registry that is scraped; empty while nothing is."""


def configure(
    settings: Settings | None = None,
    *,
    attributes: Mapping[str, str | int] | None = None,
    signals: tuple[str, ...] = SIGNALS,
) -> None:
    """Sets up exporters as the settings say (by default those of this process' `OTEL_*` variables), for these `signals`.

    attributes: added to the resource; `OTEL_RESOURCE_ATTRIBUTES` wins over them. Raises `ConfigError` for wrong
    settings and for an address that can't be listened on, `UsageError` if the SDK is not installed.
    """
    settings = settings or Settings.of_process(os.environ)
    if settings is not None:
        _set_up(settings, attributes, signals)


def begin_task(process: Mapping[str, str | int], task: Mapping[str, str | int]) -> bool:
    """Begins a task in a process that runs one task after the other.

    Traces and logs are set up as the process' `OTEL_*` variables say, with the attributes of `process` in their
    resource; spans that begin from now on have those of `task` there too. Returns whether spans are recorded. Raises the
    errors of `configure`.
    """
    settings = Settings.of_process(os.environ)
    if settings is None:
        return False
    _set_up(settings, process, ("traces", "logs"), by_task=True)
    for traces in _task_traces:
        traces.begin(task)
    return has_tracer_provider()


def exports_logs() -> bool:
    """Whether `configure` or `begin_task` has set up an export of log records."""
    return bool(_log_providers)


def _set_up(
    settings: Settings,
    attributes: Mapping[str, str | int] | None,
    signals: tuple[str, ...],
    *,
    by_task: bool = False,
) -> None:
    for (
        name,
        value,
    ) in settings.variables.items():  # the driver's variables, in a process of the job that lacks them
        os.environ.setdefault(name, value)
    wanted = {s: settings.exporters(s) for s in signals if settings.exporters(s)}
    if "metrics" in wanted and not has_meter_provider():
        _metrics(settings, wanted["metrics"], _resource(attributes))
    elif settings.page and "metrics" in signals and not has_meter_provider() and not _why_not_scraped():
        _metrics(settings, (), _resource(attributes))
    if "traces" in wanted and not has_tracer_provider():
        _traces(settings, wanted["traces"], _resource(attributes), by_task=by_task)
    if "logs" in wanted and not _log_providers:
        _logs(settings, wanted["logs"], _resource(attributes))


def flush(timeout_s: float = 2.0) -> None:
    """Exports what is pending in the exporters that `configure` has set up; errors are logged at debug level."""
    for each in _running:
        try:
            each(int(timeout_s * 1000))
        except Exception as error:
            logger.debug("telemetry could not be flushed: %s", error)


def exposition(accept: str) -> tuple[bytes, str] | str:
    """Returns this process' metrics in Prometheus' text format that the Accept header asks for, with their content type; or,
    as a text, why there are none. May block shortly."""
    if not _registries:
        return _why_not_scraped() or NOT_OURS
    encode, content_type = _module("prometheus_client.exposition").choose_encoder(accept)
    return encode(_registries[0]), content_type


def _resource(attributes: Mapping[str, str | int] | None) -> Any:
    from kafka_actors import __version__

    sdk = _module("opentelemetry.sdk.resources")
    named = {
        "service.name": "kafka-actors",
        "service.version": __version__,
        "host.name": socket.gethostname(),
        "process.pid": os.getpid(),
        **(attributes or {}),
    }
    # The last one wins: the variables over ours, ours over the SDK's defaults.
    return sdk.Resource.create().merge(sdk.Resource(named)).merge(sdk.OTELResourceDetector().detect())


def _metrics(settings: Settings, exporters: tuple[str, ...], resource: Any) -> None:
    sdk, view = _module("opentelemetry.sdk.metrics"), _module("opentelemetry.sdk.metrics.view").View
    readers = [_reader(settings, exporter) for exporter in exporters]
    if settings.page and not _registries:
        reader, registry = _scraped()
        readers.append(reader)
        _registries.append(registry)
    provider = sdk.MeterProvider(
        readers, resource, views=[view(instrument_name="*", aggregation_cardinality_limit=SERIES)]
    )
    metrics_api.set_meter_provider(provider)
    _running.append(provider.force_flush)


def _reader(settings: Settings, exporter: str) -> Any:
    if exporter == "prometheus":
        return _prometheus(*settings.prometheus)
    export = _module("opentelemetry.sdk.metrics.export")
    made = export.ConsoleMetricExporter() if exporter == "console" else _otlp(settings, "metrics")
    from .export import ExportingReader  # here, because it needs the SDK

    return ExportingReader(made, distributions())


def _prometheus(host: str, port: int) -> Any:
    reader, registry = _scraped()
    try:
        _module("prometheus_client").start_http_server(port=port, addr=host, registry=registry)
    except OSError as error:
        raise ConfigError(
            "OTEL_EXPORTER_PROMETHEUS_PORT", f"is {port}: {host}:{port} can't be listened on: {error}"
        ) from None
    _registries.append(registry)
    return reader


def _scraped() -> tuple[Any, Any]:
    """Returns a metrics reader for Prometheus and the registry that it fills at each scrape."""
    registry = _module("prometheus_client").CollectorRegistry()
    registry.register(_Distributions())
    reader = _module("opentelemetry.exporter.prometheus").PrometheusMetricReader(registry=registry)
    return reader, registry


class _Distributions:
    """Collector of `prometheus_client` for the distributions, named as its exporter names other histograms."""

    def collect(self) -> Iterator[Any]:
        """Yields one metric family for each distribution, with cumulative buckets."""
        families = _module("prometheus_client.core")
        for instrument, by_attributes in distributions().read().items():
            name = f"{instrument.name.replace('.', '_')}_seconds"
            keys = [key for key, _ in next(iter(by_attributes))]
            family = families.HistogramMetricFamily(name, instrument.description, labels=keys)
            for attributes, sums in by_attributes.items():
                bounds = [*map(str, instrument.boundaries), "+Inf"]
                buckets = list(zip(bounds, itertools.accumulate(sums.counts), strict=True))
                family.add_metric([str(value) for _, value in attributes], buckets, sums.total)
            yield family


def _why_not_scraped() -> str:
    """The reason why metrics can't be scraped, empty if they can: a status page also works without metrics."""
    try:
        _module("opentelemetry.exporter.prometheus")
    except UsageError as error:
        return str(error)
    return ""


def _traces(settings: Settings, exporters: tuple[str, ...], resource: Any, *, by_task: bool) -> None:
    sdk, export = _module("opentelemetry.sdk.trace"), _module("opentelemetry.sdk.trace.export")
    processors = sdk.SynchronousMultiSpanProcessor()
    for exporter in exporters:
        made = export.ConsoleSpanExporter() if exporter == "console" else _otlp(settings, "traces")
        processors.add_span_processor(export.BatchSpanProcessor(made))

    def provider_of(task: Mapping[str, str | int]) -> trace_api.TracerProvider:
        merged = resource.merge(_module("opentelemetry.sdk.resources").Resource(task))
        provider: trace_api.TracerProvider = sdk.TracerProvider(
            resource=merged, active_span_processor=processors, shutdown_on_exit=not by_task
        )
        return provider

    if by_task:
        _task_traces.append(TaskTraces(provider_of))
        trace_api.set_tracer_provider(_task_traces[-1])
    else:
        trace_api.set_tracer_provider(provider_of({}))
    _running.append(processors.force_flush)


def _logs(settings: Settings, exporters: tuple[str, ...], resource: Any) -> None:
    """Exports log records of this library only; an application exports its own."""
    from .export import CollectorHandler  # imported only where logs are exported

    sdk, export = _module("opentelemetry.sdk._logs"), _module("opentelemetry.sdk._logs.export")
    provider = sdk.LoggerProvider(resource=resource)
    _log_providers.append(provider)
    for exporter in exporters:
        made = export.ConsoleLogRecordExporter() if exporter == "console" else _otlp(settings, "logs")
        provider.add_log_record_processor(export.BatchLogRecordProcessor(made))
    logging.getLogger(OURS).addHandler(CollectorHandler(provider))
    _running.append(provider.force_flush)


def _otlp(settings: Settings, signal: str) -> Any:
    where = {"http/protobuf": "http", "grpc": "grpc"}[settings.protocol(signal)]
    modules = {"traces": "trace_exporter", "metrics": "metric_exporter", "logs": "_log_exporter"}
    names = {"traces": "OTLPSpanExporter", "metrics": "OTLPMetricExporter", "logs": "OTLPLogExporter"}
    return getattr(_module(f"opentelemetry.exporter.otlp.proto.{where}.{modules[signal]}"), names[signal])()


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise UsageError(MISSING.format(error.name)) from None

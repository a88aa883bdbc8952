"""An OpenTelemetry collector in this process: takes OTLP over HTTP, as protobuf, and keeps all of it."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

KINDS = {
    "/v1/metrics": ExportMetricsServiceRequest,
    "/v1/traces": ExportTraceServiceRequest,
    "/v1/logs": ExportLogsServiceRequest,
}


class Scope(NamedTuple):
    """Data that one process sent of one library."""

    resource: dict[str, Any]
    schema_url: str
    name: str
    items: list[Any]
    """Metrics, spans or log records, as protobuf has them."""


class Collector:
    """`url` is what `OTEL_EXPORTER_OTLP_ENDPOINT` wants."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, Any]] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                collector.requests.append((self.path, KINDS[self.path].FromString(body)))
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def __enter__(self) -> Collector:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def scopes(self, signal: str) -> Iterator[Scope]:
        """All that came of `metrics`, `traces` or `logs`, in order."""
        parts = {"metrics": "metrics", "traces": "spans", "logs": "log_records"}
        whole = {"metrics": "metrics", "traces": "spans", "logs": "logs"}[signal]
        for path, request in list(self.requests):
            if path != f"/v1/{signal}":
                continue
            for resource in getattr(request, f"resource_{whole}"):
                for scope in getattr(resource, f"scope_{whole}"):
                    yield Scope(
                        plain(resource.resource.attributes),
                        scope.schema_url,
                        scope.scope.name,
                        list(getattr(scope, parts[signal])),
                    )


def plain(attributes: Any) -> dict[str, Any]:
    """Protobuf's attributes as a dict."""
    return {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in attributes}

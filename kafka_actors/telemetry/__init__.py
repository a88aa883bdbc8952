"""Metrics, traces and logs of clients and jobs, in the terms of OpenTelemetry.

The library uses OpenTelemetry's API only: in a process without an SDK nothing is recorded. `configure` sets up an SDK as
the `OTEL_*` variables say; a program that has set up its own SDK doesn't need it.
"""

from .sdk import Settings, configure, flush

__all__ = ["Settings", "configure", "flush"]

"""What a client or a job tells of itself: metrics, traces and logs, in the terms of OpenTelemetry.

The library uses only OpenTelemetry's API: without an SDK in the process all of this does nothing. `configure` sets
one up from the `OTEL_*` variables; a program that has an SDK already doesn't need it.
"""

from .sdk import configure, flush
from .settings import Settings

__all__ = ["Settings", "configure", "flush"]

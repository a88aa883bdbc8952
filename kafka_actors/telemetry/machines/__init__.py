"""Pure calculations of telemetry: lag in seconds, and latency in buckets."""

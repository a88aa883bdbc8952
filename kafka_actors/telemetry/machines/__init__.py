"""What telemetry works out: pure."""

"""Helpers that every other package may use: backoff, timeouts, checks of arguments, tasks and threads. They don't depend on
Kafka's protocol."""

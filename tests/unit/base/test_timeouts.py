"""One rule for time limits: seconds as `timeout=` where futures have it, milliseconds as `timeout_ms=` elsewhere, by name only."""

from __future__ import annotations

import asyncio
import importlib
import inspect
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from unit.test_api_pages import PUBLIC, names_of

import kafka_actors as ka
from kafka_actors.errors import UsageError
from kafka_actors.producer.futures import BatchFuture, BatchResult, RecordFuture
from kafka_actors.types import TopicPartition

AS_FUTURES = {"result", "exception", "wait", "stop", "run"}
"""Their limit is `timeout`, in seconds; that of all others `timeout_ms`, in milliseconds."""

OF_THE_PAGES = {
    ("KafkaClient", "check_version", "timeout"),
    ("KafkaClient", "poll", "timeout_ms"),
    ("Broker", "fetch_messages", "timeout"),
}
"""These are as the reference pages have them (`test_reference_table.py`)."""

OF_PROCESSES = "kafka_actors.testing"
"""The test kit's limits are `timeout` in seconds, as those of `subprocess`."""


def public_classes() -> list[type]:
    values = [getattr(m, n) for m in map(importlib.import_module, PUBLIC) for n in names_of(m)]
    ours = {v for v in values if inspect.isclass(v) and v.__module__.startswith("kafka_actors")}
    return sorted(ours, key=lambda cls: f"{cls.__module__}.{cls.__qualname__}")


def limits() -> Iterator[tuple[type, str, inspect.Parameter]]:
    for cls in public_classes():
        for name, call in inspect.getmembers(cls, inspect.isfunction):
            for parameter in inspect.signature(call).parameters.values():
                said = (cls.__name__, name, parameter.name)
                if (
                    parameter.name.startswith("timeout")
                    and not name.startswith("_")
                    and said not in OF_THE_PAGES
                ):
                    yield cls, name, parameter


@pytest.mark.parametrize(("cls", "name", "limit"), [*limits()], ids=lambda v: getattr(v, "__name__", v))
def test_a_limit_has_the_name_of_its_unit_and_is_given_by_name(
    cls: type, name: str, limit: inspect.Parameter
) -> None:
    in_seconds = name in AS_FUTURES or cls.__module__.startswith(OF_PROCESSES)
    assert limit.name == ("timeout" if in_seconds else "timeout_ms")
    assert limit.kind is inspect.Parameter.KEYWORD_ONLY


USERS = [
    ka.Admin,
    ka.AsyncAdmin,
    ka.AsyncConsumer,
    ka.AsyncProducer,
    ka.Consumer,
    ka.Producer,
    ka.RunningJob,
    BatchFuture,
    RecordFuture,
    importlib.import_module("kafka_actors.ray").OnRay,
    importlib.import_module("kafka_actors.spark").OnSpark,
]


def calls_of_users() -> Iterator[tuple[type, str, str]]:
    return ((cls, name, limit.name) for cls, name, limit in limits() if cls in USERS)


@pytest.mark.parametrize(
    ("cls", "name", "limit"), [*calls_of_users()], ids=lambda v: getattr(v, "__name__", v)
)
def test_a_limit_that_is_given_by_position_is_refused_with_what_to_write(
    cls: type, name: str, limit: str
) -> None:
    call = getattr(cls, name)
    others = [p for p in inspect.signature(call).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    shown = f"{'…, ' if len(others) > 1 else ''}{limit}=10"
    with pytest.raises(TypeError) as raised:
        run(call, *others, 10)
    unit = "seconds" if limit == "timeout" else "milliseconds"
    assert str(raised.value) == f"{name}() takes {limit}= by name, in {unit}: {name}({shown})"


def run(call: Any, *args: object, **named: object) -> Any:
    return asyncio.run(call(*args, **named)) if inspect.iscoroutinefunction(call) else call(*args, **named)


def test_the_name_of_the_other_unit_is_refused_with_what_to_write() -> None:
    future = RecordFuture(BatchResult(TopicPartition("t", 0)), 0, 0)
    with pytest.raises(
        TypeError, match=r"^result\(\) takes timeout=, in seconds, not timeout_ms=: result\(timeout=20\.0\)$"
    ):
        future.result(timeout_ms=20_000)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"not timeout=: poll_batch\(timeout_ms=1500\.0\)$"):
        ka.Consumer().poll_batch(timeout=1.5)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r": commit\(…, timeout_ms=1000\.0\)$"):
        ka.Consumer().commit({}, timeout=1)  # type: ignore[call-arg]


@pytest.mark.parametrize("wrong", ["10", -1, float("nan"), True])
def test_what_is_no_amount_of_seconds_is_refused(wrong: Any) -> None:
    running = ka.RunningJob(SimpleNamespace(stop=None))  # type: ignore[arg-type]  # nothing gets that far
    for call in (running.wait, running.stop, RecordFuture(BatchResult(TopicPartition("t", 0)), 0, 0).result):
        with pytest.raises(UsageError, match=r"timeout is .*: accepts seconds, at least 0"):
            call(timeout=wrong)

"""Log lines: one an event, for people and for machines, with who says it."""

import json
import logging
import re

import pytest

from kafka_actors import events
from kafka_actors.events import Event, PartitionsAssigned, Rebalanced, RecordsSkipped, log_event
from kafka_actors.telemetry.export import attributes_of
from kafka_actors.telemetry.logs import (
    JsonFormatter,
    LastResort,
    LogOrigin,
    TextFormatter,
    in_task,
    read_line,
    set_log_origin,
    task_now,
)

ASSIGNED = PartitionsAssigned(3, (("orders", 0), ("orders", 7)))
SKIPPED = RecordsSkipped("orders", 7, 100, 199, 'ValueError: no such country: "XX"')


@pytest.fixture
def worker():
    set_log_origin(LogOrigin("scorer", "nightly", "worker-0", 2))
    yield
    set_log_origin(LogOrigin())


@pytest.fixture
def said(caplog):
    """What an event becomes: its record, a line, an object."""

    def said(event):
        caplog.clear()
        with caplog.at_level(logging.DEBUG, "kafka_actors"):
            log_event(event)
        (record,) = caplog.records
        return record, TextFormatter().format(record), json.loads(JsonFormatter().format(record))

    return said


def test_an_event_is_one_line_with_its_fields_and_who_says_it(worker, said):
    _, line, _ = said(ASSIGNED)
    assert line.partition("kafka_actors.events: ")[2] == (
        "PartitionsAssigned generation=3 partitions=orders-0,orders-7"
        " [group=scorer job=nightly actor=worker-0 incarnation=2]"
    )


def test_a_json_log_has_the_same_as_members(worker, said):
    _, _, found = said(SKIPPED)
    assert (
        found.items()
        >= {
            "level": "WARNING",
            "event": "RecordsSkipped",
            "topic": "orders",
            "partition": 7,
            "first_offset": 100,
            "error": 'ValueError: no such country: "XX"',
            "group": "scorer",
            "actor": "worker-0",
            "incarnation": 2,
        }.items()
    )


@pytest.mark.parametrize(
    "event", [ASSIGNED, SKIPPED, Rebalanced("g", 3, 0.25)], ids=lambda e: type(e).__name__
)
def test_a_line_is_read_back_as_what_it_says(worker, said, event):
    record, line, _ = said(event)
    read = read_line(line)
    fields = {n: v for n, v in record.fields.items() if not isinstance(v, float)}
    assert read.items() >= {"event": type(event).__name__, "actor": "worker-0", **fields}.items()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT.*\+00:00", read["time"])


def test_a_line_of_another_format_is_none_of_ours():
    assert read_line("something else") is None
    assert read_line("2026-01-31 12:00:00,250 INFO a: m [not fields]")["message"] == "m [not fields]"


def test_fields_of_a_call_come_behind_its_message(worker):
    record = logging.makeLogRecord(
        {
            "name": "kafka_actors.x",
            "levelname": "INFO",
            "msg": "it died",
            "fields": {"topic": "a b", "partition": 3},
        }
    )
    line = TextFormatter().format(record)
    assert line.endswith(
        'it died [group=scorer job=nightly actor=worker-0 incarnation=2 topic="a b" partition=3]'
    )
    read = read_line(line)
    assert (read["message"], read["topic"], read["partition"]) == ("it died", "a b", 3)


def test_a_collector_gets_them_under_the_names_of_the_conventions(worker, said):
    record, _, _ = said(SKIPPED)
    record.exc_info = (ValueError, ValueError("the text of a user"), None)
    assert attributes_of(record) == {
        "messaging.consumer.group.name": "scorer",
        "kafka_actors.job": "nightly",
        "kafka_actors.actor": "worker-0",
        "kafka_actors.incarnation": 2,
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "7",
        "kafka_actors.first_offset": 100,
        "kafka_actors.last_offset": 199,
        "kafka_actors.error": 'ValueError: no such country: "XX"',
        "exception.type": "ValueError",
    }


TASK = {"spark.stage.id": 4, "spark.partition.id": 0, "spark.task.attempt.id": 17}


def test_lines_of_a_task_name_it(said):
    with in_task(TASK):
        record, line, found = said(SKIPPED)
        attributes = attributes_of(record)
    assert line.endswith(" [spark_stage_id=4 spark_partition_id=0 spark_task_attempt_id=17]")
    assert read_line(line).items() >= {"spark_stage_id": 4, "partition": 7}.items()
    assert (found["spark_task_attempt_id"], found["partition"]) == (17, 7)
    assert attributes.items() >= {**TASK, "messaging.destination.partition.id": "7"}.items()
    _, line, found = said(SKIPPED)
    assert not line.endswith("]")
    assert not [name for name in [*found, *attributes_of(record)] if name.startswith("spark")]


def test_a_task_that_ends_late_does_not_take_the_next_ones_name():
    first, second = in_task(TASK), in_task({"spark.stage.id": 5})
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert task_now() == {"spark.stage.id": 5}
    second.__exit__(None, None, None)
    with in_task(TASK):
        assert task_now() == TASK


def test_a_process_without_a_handler_has_whole_lines_on_stderr(capsys, monkeypatch):
    record = logging.makeLogRecord({"name": "kafka_actors.x", "levelname": "WARNING", "msg": "it died"})
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    with in_task(TASK):
        LastResort().handle(record)
    assert re.fullmatch(
        r".* WARNING kafka_actors\.x: it died \[spark_stage_id=4 .*\]\n", capsys.readouterr().err
    )
    monkeypatch.setattr(logging.getLogger(), "handlers", [logging.NullHandler()])
    LastResort().handle(record)
    assert capsys.readouterr().err == "", "an application that has one gets them there"


def test_every_event_is_exported():
    kinds = {kind.__name__ for kind in Event.__subclasses__() if kind.__module__ == events.__name__}
    assert kinds <= set(events.__all__)

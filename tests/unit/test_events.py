"""Events and their log lines: fields that can be read back, levels, and the sink that logs them."""

from __future__ import annotations

import inspect
import json
import logging
import shlex
from typing import Any

import msgspec
import pytest

from kafka_actors import events
from kafka_actors.events import (
    Event,
    NoRoomForWorkers,
    OffsetReset,
    PartitionNotRead,
    PartitionsAssigned,
    PartitionsLost,
    PatternMatchesNothing,
    Rebalanced,
    RecordsSkipped,
    Rejoining,
    fields_of,
    in_words,
    log_event,
)

KINDS: list[type[Event]] = [
    kind
    for _, kind in inspect.getmembers(events, inspect.isclass)
    if issubclass(kind, Event) and kind is not Event
]
WARNINGS = {
    "BadBatchSkipped",
    "DoneOffsetsDropped",
    "DrainForced",
    "NoRoomForWorkers",
    "NodeSilent",
    "OffsetReset",
    "PartitionStalled",
    "PartitionsLost",
    "PatternMatchesNothing",
    "RecordsDeadLettered",
    "RecordsRetriedLater",
    "RecordsSkipped",
    "TransactionAborted",
}
"""Events of records that somebody may miss, and of a job that does not run as it should."""


def made(kind: type[Event]) -> Event:
    """An event of this kind, with a value of its type in each field."""
    values: dict[str, Any] = {"int": 3, "str": "a b", "float": 1.5, "int | None": None}
    values |= {"TopicPartitions": (("t", 0),), "list[str]": ["w"]}
    fields = {name: values[hint] for name, hint in inspect.get_annotations(kind).items()}
    return kind(**fields)


# ------------------------------------------------------------ lines


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (Rebalanced("g", 4, 0.5), "group=g generation=4 seconds=0.5"),
        (
            PartitionsAssigned(4, (("t", 0), ("t", 1), ("a-b", 2))),
            "generation=4 partitions=t-0,t-1,a-b-2",
        ),
        (PartitionsLost((), "session expired"), 'partitions="" reason="session expired"'),
        (
            OffsetReset("t", 0, 5, 9, "truncated"),
            "topic=t partition=0 old=5 new=9 reason=truncated",
        ),
        (Rejoining("größe", 'because of "x"\nand y'), r'group=größe reason="because of \"x\"\nand y"'),
    ],
    ids=["plain", "partitions", "empty", "unknown", "quoted"],
)
def test_an_event_is_one_line_of_fields_without_those_that_are_unknown(event: Event, line: str) -> None:
    assert in_words(fields_of(event)) == line
    assert "\n" not in line


@pytest.mark.parametrize(
    "text", ["", "a b", "a=b", 'a"b', "a[b]", "tab\there", "line\nbreak", "größe", "\\d+", "'"]
)
def test_a_value_is_read_back_from_its_line_whatever_is_in_it(text: str) -> None:
    name, _, value = in_words({"error": text}).partition("=")
    assert name == "error"
    assert (json.loads(value) if value.startswith('"') else value) == text
    if not value.startswith('"'):
        assert len(value.split()) == 1


def test_truth_values_are_written_as_in_a_file_of_options() -> None:
    assert in_words({"a": True, "b": False, "c": 0, "d": None}) == "a=true b=false c=0"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_event_has_a_line_with_each_of_its_fields(kind: type[Event]) -> None:
    event = made(kind)
    line = in_words(fields_of(event))
    names = [word.partition("=")[0] for word in shlex.split(line)]
    assert names == [name for name in kind.__struct_fields__ if getattr(event, name) is not None]


# ------------------------------------------------------------ levels


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_what_concerns_records_or_the_run_of_a_job_is_a_warning(kind: type[Event]) -> None:
    """Alerts of users are made of these levels."""
    expected = logging.WARNING if kind.__name__ in WARNINGS else logging.INFO
    if kind is PartitionNotRead:
        expected = logging.ERROR
    assert made(kind).level == expected


# ------------------------------------------------------------ the sink


def test_the_sink_logs_the_name_and_the_fields_as_attributes(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger=events.__name__):
        log_event(Rebalanced("g", 4, 0.5))
        log_event(PatternMatchesNothing("ord.*"))
    first, second = caplog.records
    assert first.getMessage() == "Rebalanced group=g generation=4 seconds=0.5"
    assert vars(first)["event"] == "Rebalanced"
    assert vars(first)["fields"] == {"group": "g", "generation": 4, "seconds": 0.5}
    assert (first.levelno, second.levelno) == (logging.INFO, logging.WARNING)


def test_a_percent_sign_in_a_field_is_no_format(caplog: pytest.LogCaptureFixture) -> None:
    log_event(RecordsSkipped("t", 0, 1, 2, "100%s of %d"))
    assert caplog.records[0].getMessage().endswith('error="100%s of %d"')


def test_an_event_below_the_level_of_the_log_is_not_written_out(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group of thousands of partitions has long lines."""
    written: list[Event] = []
    monkeypatch.setattr(events, "fields_of", lambda event: written.append(event) or {})
    with caplog.at_level(logging.WARNING, logger=events.__name__):
        log_event(PartitionsAssigned(1, (("t", 0),)))
    assert (caplog.records, written) == ([], [])


# ------------------------------------------------------------ on the way to others


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_event_can_be_sent_and_names_its_kind(kind: type[Event]) -> None:
    event = made(kind)
    data = msgspec.json.encode(event)
    assert json.loads(data)["type"] == kind.__name__
    assert msgspec.json.decode(data, type=kind) == event


def test_an_event_is_not_changed_once_it_happened() -> None:
    event = NoRoomForWorkers(4, 2, "no CPU")
    with pytest.raises(AttributeError, match="immutable"):
        event.placed = 3  # type: ignore[misc]

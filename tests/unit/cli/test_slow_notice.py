"""Notices about an operation that takes long: once for each cause."""

import threading

import pytest

from kafka_actors.cli import output as module
from kafka_actors.cli.output import slow_notice


class Said:
    """What was said, waited for."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._more = threading.Condition()

    def __call__(self, text: str) -> None:
        with self._more:
            self.lines.append(text)
            self._more.notify_all()

    def until(self, count: int) -> None:
        with self._more:
            assert self._more.wait_for(lambda: len(self.lines) >= count, 10)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLANK_S", 0.02)
    monkeypatch.setattr(module, "LOOK_S", 0.005)


def test_each_cause_is_said_once() -> None:
    said, cause = Said(), ["refused"]
    with slow_notice(said, lambda: cause[0]):
        said.until(1)
        cause[0] = "no topic"
        said.until(2)
        threading.Event().wait(0.05)
    assert said.lines == ["refused", "no topic"]


def test_nothing_is_said_of_what_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLANK_S", 60.0)
    said = Said()
    with slow_notice(said, "x"):
        pass
    assert said.lines == []


def test_it_may_end_before_its_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLANK_S", 60.0)
    said = Said()
    with slow_notice(said, "x") as end:
        end()
        end()
        assert not [t for t in threading.enumerate() if t.name == "kafka-actors-slow-notice"]
    assert said.lines == []


def test_what_is_raised_comes_through_and_ends_it() -> None:
    with pytest.raises(KeyboardInterrupt), slow_notice(Said(), "x"):
        raise KeyboardInterrupt
    assert not [t for t in threading.enumerate() if t.name == "kafka-actors-slow-notice"]

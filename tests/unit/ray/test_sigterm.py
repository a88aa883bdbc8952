"""SIGTERM while a job starts and while somebody waits for it, by handlers alone: no signal is sent."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafka_actors.ray import sigterm
from kafka_actors.ray.sigterm import StopOnSigterm, sigterm_exits


@pytest.fixture(autouse=True)
def _handler_of_somebody_else() -> Iterator[None]:
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGTERM, before)


def handler() -> Any:
    return signal.getsignal(signal.SIGTERM)


def in_thread(call: Callable[[], object]) -> None:
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()


def test_a_start_under_way_ends_by_system_exit_and_the_old_handler_comes_back() -> None:
    with pytest.raises(SystemExit) as ended, sigterm_exits():
        handler()(signal.SIGTERM, None)
    assert ended.value.code == 143
    assert handler() == signal.SIG_IGN


def test_only_the_main_thread_has_handlers() -> None:
    found: list[object] = []

    def elsewhere() -> None:
        with sigterm_exits():
            found.append(handler())
        with StopOnSigterm() as signals:
            found.extend([handler(), signals.possible])

    in_thread(elsewhere)
    assert found == [signal.SIG_IGN, signal.SIG_IGN, False]


def test_the_first_signal_is_noted_and_the_second_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    raised: list[tuple[int, object]] = []
    monkeypatch.setattr(sigterm.signal, "raise_signal", lambda number: raised.append((number, handler())))
    with StopOnSigterm() as signals:
        assert (signals.possible, signals.received) == (True, False)
        handler()(signal.SIGTERM, None)
        assert (signals.received, raised) == (True, [])
        handler()(signal.SIGTERM, None)
    assert raised == [(signal.SIGTERM, signal.SIG_DFL)], "by the system's own handler"
    assert handler() == signal.SIG_IGN

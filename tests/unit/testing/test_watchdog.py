"""The process that cleans up behind a cluster: it kills and removes what is left when its lines end, and nothing else."""

import io
import signal
from pathlib import Path

import pytest

from kafka_actors.testing import watchdog
from kafka_actors.testing.watchdog import Watchdog


@pytest.fixture
def signals(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Signals that are sent: processes end at the first SIGKILL."""
    sent: list[tuple[int, int]] = []

    def kill(pid: int, number: int) -> None:
        if (pid, signal.SIGKILL) in sent or pid >= 900:
            raise ProcessLookupError
        sent.append((pid, number))

    monkeypatch.setattr(watchdog.os, "kill", kill)
    return sent


def run(monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    monkeypatch.setattr(watchdog.sys, "stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
    watchdog.main()


def test_processes_that_are_left_are_killed(
    monkeypatch: pytest.MonkeyPatch, signals: list[tuple[int, int]]
) -> None:
    run(monkeypatch, "+11", "+12", "-11")
    assert signals == [(12, signal.SIGKILL)]


def test_a_process_that_has_ended_already_is_no_error(
    monkeypatch: pytest.MonkeyPatch, signals: list[tuple[int, int]]
) -> None:
    run(monkeypatch, "+901", "-7")
    assert signals == []


def test_directories_are_removed_once_the_processes_are_gone(
    monkeypatch: pytest.MonkeyPatch, signals: list[tuple[int, int]], tmp_path: Path
) -> None:
    data = tmp_path / "data of a node"
    data.mkdir()
    (data / "0.log").write_text("x")
    kept = tmp_path / "kept"
    kept.mkdir()
    run(monkeypatch, "+11", f"rm {data}", f"rm {tmp_path / 'never-there'}", "an unknown line")
    assert not data.exists()
    assert kept.exists()


class Pipe(io.StringIO):
    def close(self) -> None:
        self.text = self.getvalue()
        super().close()


def test_the_owner_writes_one_line_for_each_of_its_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    class Process:
        stdin = Pipe()
        waited = False

        def wait(self) -> None:
            self.waited = True

    process = Process()
    started: list[list[str]] = []

    def start(command: list[str], **_: object) -> Process:
        started.append(command)
        return process

    monkeypatch.setattr(watchdog.subprocess, "Popen", start)
    dog = Watchdog()
    dog.watch(11)
    dog.forget(11)
    dog.remove_at_end("/tmp/x y")
    dog.close()
    assert process.stdin.text == "+11\n-11\nrm /tmp/x y\n"
    assert process.waited
    assert Path(started[0][-1]) == Path(watchdog.__file__)


def test_a_node_that_has_ended_is_forgotten_also_where_nobody_watches_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The cluster has further nodes to end."""

    class Broken(io.StringIO):
        def flush(self) -> None:
            raise BrokenPipeError

    class Process:
        stdin = Broken()

    monkeypatch.setattr(watchdog.subprocess, "Popen", lambda *_, **__: Process())
    dog = Watchdog()
    dog.forget(11)
    with pytest.raises(BrokenPipeError):
        dog.watch(12)
    monkeypatch.setattr(Broken, "flush", lambda _: None)

"""`python -m kafka_actors`: the command line, under the name that it has where no script is installed."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import kafka_actors

MODULE = str(Path(kafka_actors.__file__).parent / "__main__.py")


@pytest.mark.parametrize(("arguments", "code"), [(["rnu"], 2), (["--version"], 0)])
def test_the_module_is_the_command_and_ends_with_its_exit_code(arguments: list[str], code: int) -> None:
    assert (
        subprocess.run([sys.executable, "-m", "kafka_actors", *arguments], capture_output=True).returncode
        == code
    )


@pytest.mark.parametrize("code", [0, 1, 2])
def test_the_result_of_the_command_line_is_the_exit_code_of_the_process(
    monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    monkeypatch.setattr("kafka_actors.cli.main", lambda: code)
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(MODULE, run_name="__main__")
    assert ended.value.code == code


def test_an_import_under_another_name_runs_no_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes of `multiprocessing` that are spawned import the main module of their parent, under the name `__mp_main__`."""
    calls: list[str] = []
    monkeypatch.setattr("kafka_actors.cli.main", lambda: calls.append("main"))
    runpy.run_path(MODULE, run_name="__mp_main__")
    assert calls == []

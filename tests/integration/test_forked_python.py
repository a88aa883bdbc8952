"""Forked Python processes have the standard streams, environment and directory of those in whose place they are, and end with them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from forked_python import spark_python
from waiting import slow_s, until

MODULE = """
import json, os, sys, time

told = json.load(sys.stdin)
print(json.dumps([told, os.environ["TOLD"], os.getcwd(), sys.argv[1:], __name__, "pyspark" in sys.modules, os.getpid()]), flush=True)
time.sleep(told)
"""


@pytest.mark.spark
def test_a_fork_has_what_the_process_in_its_place_was_started_with_and_ends_with_it(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(MODULE)

    def start(seconds: int, told: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [spark_python(tmp_path), "-m", "module", "an argument"],
            cwd=tmp_path,
            env={**os.environ, "TOLD": told},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdin is not None
        process.stdin.write(str(seconds))
        process.stdin.close()
        return process

    def answer(process: subprocess.Popen[str]) -> list[object]:
        assert process.stdout is not None
        return json.loads(process.stdout.readline())

    short, long = start(0, "one"), start(600, "two")
    *found, _ = answer(short)
    assert found == [0, "one", str(tmp_path), ["an argument"], "__main__", True]
    assert short.wait(slow_s(10)) == 0
    *found, fork = answer(long)
    assert found[:2] == [600, "two"]
    assert fork != long.pid
    assert long.poll() is None
    long.send_signal(signal.SIGTERM)
    assert long.wait(slow_s(10)) == 0
    until(lambda: not Path(f"/proc/{fork}").exists(), 10, "the end of the fork")


FORKS = """
import os
from forked_python import IMPORTED
from importlib import import_module

for name in IMPORTED["ray"]:
    import_module(name)
from ray import ObjectRef

for _ in range(2):
    if not os.fork():
        print(ObjectRef.from_random().hex(), flush=True)
        os._exit(0)
    os.wait()
"""


@pytest.mark.ray
def test_forks_have_random_ids_of_their_own() -> None:
    """Ray ends a process that gets two calls of one id."""
    tests = str(Path(__file__).parents[1])
    path = os.pathsep.join(filter(None, [tests, os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-c", FORKS],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert len(set(done.stdout.split())) == 2


def test_what_is_no_module_is_run_by_python_itself(tmp_path: Path) -> None:
    done = subprocess.run(
        [spark_python(tmp_path), "-c", "print(1)"], capture_output=True, text=True, check=True
    )
    assert done.stdout == "1\n"

"""Processes that a test starts wait for a Ray of their own as long as those of the tests themselves."""

import os
import subprocess
import sys
from pathlib import Path

import patient_ray
import pytest
from waiting import slow_s

pytestmark = pytest.mark.ray

WHERE = """
from ray._private import services

print(services.get_node.__module__, services.start_raylet.__module__)
"""


def where(tmp_path: Path, **variables: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", WHERE],
        cwd=tmp_path,
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=slow_s(60),
    ).stdout


def test_each_process_that_imports_ray_is_patient(tmp_path: Path) -> None:
    assert where(tmp_path) == "patient_ray patient_ray\n", "the conftest has set the variables"
    assert where(tmp_path, PYTHONPATH="") == "ray._private.services ray._private.services\n"


def test_what_else_is_in_the_path_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/one:/two")
    site = str(Path(patient_ray.__file__).with_name("site"))
    assert patient_ray.environment()["PYTHONPATH"] == f"{site}:/one:/two"

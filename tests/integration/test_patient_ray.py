"""Processes that a test starts wait for a Ray of their own as long as those of the tests themselves."""

import json
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

WRITTEN = """
import json, time
import ray, patient_ray

told = {}

def write_and_note(file, text):
    write(file, text)
    told[file] = text, file.stat().st_mtime_ns

write, patient_ray.write_atomically = patient_ray.write_atomically, write_and_note
ray.init(num_cpus=1)
while any(file.stat().st_mtime_ns == at for file, (_, at) in told.items()):
    time.sleep(0.1)
names = {file: file.name[:file.name.rindex("_")] for file in told}
print(json.dumps([{names[file]: text for file, (text, _) in told.items()}, {name: file.read_text() for file, name in names.items()}]))
"""


def printed(script: str, tmp_path: Path, **variables: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=slow_s(60),
    ).stdout


def test_each_process_that_imports_ray_is_patient(tmp_path: Path) -> None:
    assert printed(WHERE, tmp_path) == "patient_ray patient_ray\n", "the conftest has set the variables"
    assert printed(WHERE, tmp_path, PYTHONPATH="") == "ray._private.services ray._private.services\n"


def test_a_raylet_is_told_of_its_agents_what_they_write_themselves(tmp_path: Path) -> None:
    told, written = json.loads(printed(WRITTEN, tmp_path, RAY_ADDRESS="local"))
    assert told.keys() == {
        "dashboard_agent_listen_port",
        "metrics_agent_port",
        "metrics_export_port",
        "runtime_env_agent_port",
    }
    assert told == written


def test_what_else_is_in_the_path_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/one:/two")
    site = str(Path(patient_ray.__file__).with_name("site"))
    assert patient_ray.environment()["PYTHONPATH"] == f"{site}:/one:/two"

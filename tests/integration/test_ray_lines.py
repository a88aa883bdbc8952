"""Ray prints what actors print, and not what it says about every job."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.ray

PRINTED = r"""
from kafka_actors.ray.log_settings import quiet_lines
quiet_lines()
import ray
from ray._private.ray_logging import stdout_deduplicator

lines = [
    (1, "got 1"),
    (2, "got 2"),
    (3, "got 3"),
    ("raylet", "A worker died or was killed while executing a task by an unexpected system error. To …"),
    ("raylet", "WARNING: 8 PYTHON worker processes have been started on node: 6ae0 with address: …"),
    ("raylet", "the disk is full"),
    (1, "A worker died? said a user"),
]
for pid, line in lines:
    for batch in stdout_deduplicator.deduplicate({"pid": pid, "ip": "h", "is_err": False, "lines": [line]}):
        print(*batch["lines"], sep="\n", end="\n" if batch["lines"] else "")
"""


def printed(**variables: str) -> list[str]:
    found = subprocess.run(
        [sys.executable, "-c", PRINTED],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    return found.stdout.splitlines()


def test_each_line_of_actors_is_printed_and_no_paragraph_about_a_killed_worker() -> None:
    assert printed() == ["got 1", "got 2", "got 3", "the disk is full", "A worker died? said a user"]


def test_who_sets_rays_variables_gets_what_they_say() -> None:
    assert "A worker died" in "".join(printed(RAY_DEDUP_LOGS="0")[3])
    assert printed(RAY_DEDUP_LOGS_SKIP_REGEX="got", RAY_DEDUP_LOGS_ALLOW_REGEX="died")[-1] == (
        "A worker died? said a user"
    )

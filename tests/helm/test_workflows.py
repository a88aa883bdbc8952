"""The workflows for GitHub: right by actionlint, and what they run is there."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from helm.chart import CHART
from waiting import slow_s

ROOT = CHART.parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def test_actionlint_finds_nothing_in_the_workflows(actionlint: Path, tmp_path: Path) -> None:
    def said(*files: Path) -> str:
        command = [actionlint, "-shellcheck=", "-pyflakes=", *files]
        done = subprocess.run(command, capture_output=True, text=True, timeout=slow_s(60), check=False)
        return done.stdout + done.stderr

    assert said(*WORKFLOWS) == ""
    wrong = tmp_path / "wrong.yml"
    wrong.write_text(WORKFLOWS[0].read_text().replace("runs-on:", "runs-at:", 1))
    assert "runs-at" in said(wrong)


def test_workflows_call_targets_of_make() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    called = {name for file in WORKFLOWS for name in re.findall(r"run: make ([a-z-]+)", file.read_text())}
    assert {"test", "test-unit", "test-slow", "docs", "dist"} <= called <= targets

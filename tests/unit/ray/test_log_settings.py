"""Ray's settings of printing: which lines are left out, and whose settings stay."""

from __future__ import annotations

import logging
import os
import re
import sys

import pytest

from kafka_actors.ray.log_settings import quiet_lines, quiet_start

ALLOW, SKIP = "RAY_DEDUP_LOGS_ALLOW_REGEX", "RAY_DEDUP_LOGS_SKIP_REGEX"
DIED = "A worker died or was killed while executing a task by an unexpected system error. To troubleshoot"
MANY = "WARNING: 12 PYTHON worker processes have been started on node: ab"


@pytest.fixture(autouse=True)
def _before_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "ray", raising=False)
    for name in ("RAY_DEDUP_LOGS", ALLOW, SKIP):
        monkeypatch.setenv(name, "")  # so that it is put back afterwards
        monkeypatch.delenv(name)


def test_lines_about_every_job_are_skipped_and_all_others_printed_one_by_one() -> None:
    quiet_lines()
    for line in (DIED, MANY):
        assert re.match(os.environ[SKIP], line)
        assert not re.match(os.environ[ALLOW], line)
    for line in ("worker-0.1 kafka_actors: read 5 records", "a line with: " + DIED, ""):
        assert not re.match(os.environ[SKIP], line)
        assert re.match(os.environ[ALLOW], line)


def test_settings_of_the_environment_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SKIP, "mine")
    quiet_lines()
    assert os.environ[SKIP] == "mine"


def test_nothing_is_set_where_it_would_have_no_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "ray", logging)  # any module: that it was imported counts
        quiet_lines()
    monkeypatch.setenv("RAY_DEDUP_LOGS", "0")
    quiet_lines()
    assert ALLOW not in os.environ
    assert SKIP not in os.environ


def test_rays_warning_about_tokens_is_hidden_while_it_starts_and_no_longer() -> None:
    log = logging.getLogger("ray._private.authentication")
    before = log.level
    with quiet_start():
        assert not log.isEnabledFor(logging.WARNING)
        assert log.isEnabledFor(logging.ERROR)
    assert log.level == before


def test_a_start_that_fails_hides_nothing_afterwards() -> None:
    log = logging.getLogger("ray._private.authentication")
    before = log.level
    with pytest.raises(ConnectionError):
        _fail_to_start()
    assert log.level == before


def _fail_to_start() -> None:
    with quiet_start():
        raise ConnectionError

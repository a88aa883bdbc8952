"""Commands without notices of what takes long: how long a command takes on a busy machine is no part of what it prints."""

import pytest


@pytest.fixture(autouse=True)
def _no_notices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafka_actors.cli.output.BLANK_S", 60.0)

"""`groups reset-offsets` on an admin that only writes down what it is asked: which groups, which target, and when it executes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_actors.admin import GroupListing, OffsetReset, OffsetTarget
from kafka_actors.cli.main import run_command_line
from kafka_actors.errors import NonEmptyGroupError
from kafka_actors.types import TopicPartition

Command = Callable[..., tuple[int, str, str]]


class WrittenDown:
    """An `AsyncAdmin` of the groups `a` and `b`; each reset is partition 3 of `t` to the offset 7. `refuses`: a group with members."""

    refuses = ""
    note: str | None = None

    def __init__(self) -> None:
        self.config = SimpleNamespace(bootstrap_servers=("localhost:9092",))
        self.asked: list[tuple[str, OffsetTarget, Any, bool]] = []
        self.refuses_to_commit: str | None = None
        self.closed = False

    async def reset_offsets(
        self, group_id: str, to: OffsetTarget, scope: Any, *, execute: bool
    ) -> list[OffsetReset]:
        self.asked.append((group_id, to, scope, execute))
        if group_id == (self.refuses_to_commit if execute else self.refuses):
            raise NonEmptyGroupError(f"group {group_id!r} has members: stop them first")
        return [OffsetReset(group_id, "t", 3, 5, 7, self.note)]

    async def list_groups(self, **which: Any) -> list[GroupListing]:
        return [
            GroupListing(name, kind, "Empty", "Classic")
            for name, kind in (("a", "consumer"), ("x", "connect"), ("b", ""))
        ]

    async def describe_cluster(self, **which: Any) -> Any:
        return SimpleNamespace(authorized_operations=frozenset({"DESCRIBE"}))

    async def close(self) -> None:
        self.closed = True


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> WrittenDown:
    made = WrittenDown()
    monkeypatch.setattr("kafka_actors.admin.AsyncAdmin", lambda **config: made)
    return made


@pytest.fixture
def reset(admin: WrittenDown, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs the command with these arguments; returns its exit code, its output and what it said beside."""

    def run(*arguments: str) -> tuple[int, str, str]:
        code = run_command_line(["groups", "reset-offsets", *arguments])
        assert admin.closed
        return code, *capsys.readouterr()

    return run


def test_without_execute_nothing_is_committed_and_that_is_said(admin: WrittenDown, reset: Command) -> None:
    code, out, err = reset("-g", "a", "--topic", "t", "--to-latest")
    assert code == 0
    assert out.splitlines() == ["GROUP  TOPIC  PARTITION  NEW-OFFSET", "a      t      3          7"]
    assert err == "Nothing was changed: --execute commits these offsets.\n"
    assert admin.asked == [("a", OffsetTarget.latest(), {"t": None}, False)]


def test_all_groups_are_planned_before_the_first_is_changed(admin: WrittenDown, reset: Command) -> None:
    code, out, err = reset("-g", "a", "-g", "b", "--topic", "t", "--to-latest", "--execute")
    assert (code, err) == (0, "")
    assert [(group, execute) for group, _, _, execute in admin.asked] == [
        ("a", False),
        ("b", False),
        ("a", True),
        ("b", True),
    ]
    assert out.count("a      t") == out.count("b      t") == 1, "the plan is shown once"


def test_a_group_that_is_refused_keeps_all_others_as_they_are(admin: WrittenDown, reset: Command) -> None:
    admin.refuses = "b"
    code, out, err = reset("-g", "a", "-g", "b", "--topic", "t", "--to-latest", "--execute")
    assert (code, out) == (1, "")
    assert "group 'b' has members" in err
    assert not any(execute for _, _, _, execute in admin.asked)


def test_groups_that_were_changed_before_one_was_refused_are_told(admin: WrittenDown, reset: Command) -> None:
    admin.refuses_to_commit = "b"
    code, out, err = reset("-g", "a", "-g", "b", "--topic", "t", "--to-latest", "--execute")
    assert (code, out) == (1, "")
    assert err.splitlines()[0] == "Offsets of group a were committed."
    assert "group 'b' has members" in err.splitlines()[1]


def test_all_groups_are_those_of_consumers(admin: WrittenDown, reset: Command) -> None:
    assert reset("--all-groups", "--all-topics", "--to-earliest")[0] == 0
    assert admin.asked == [(group, OffsetTarget.earliest(), None, False) for group in ("a", "b")]


@pytest.mark.parametrize(
    ("option", "target"),
    [
        (["--to-earliest"], OffsetTarget.earliest()),
        (["--to-latest"], OffsetTarget.latest()),
        (["--to-current"], OffsetTarget.current()),
        (["--to-offset", "0"], OffsetTarget.offset(0)),
        (["--to-offset", "12"], OffsetTarget.offset(12)),
        (["--shift-by", "-5"], OffsetTarget.shift_by(-5)),
        (["--shift-by", "0"], OffsetTarget.shift_by(0)),
        (["--to-datetime", "1970-01-01T00:01:00.250"], OffsetTarget.timestamp(60_250)),
        (["--to-datetime", "1970-01-01T01:01:00+01:00"], OffsetTarget.timestamp(60_000)),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_each_option_is_its_own_target(
    admin: WrittenDown, reset: Command, option: list[str], target: OffsetTarget
) -> None:
    assert reset("-g", "a", "--topic", "t:3", *option)[0] == 0
    assert admin.asked == [("a", target, {"t": [3]}, False)]


def test_a_duration_goes_back_from_now(
    admin: WrittenDown, reset: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = SimpleNamespace(now=lambda zone: datetime(1970, 1, 2, tzinfo=zone))
    monkeypatch.setattr("kafka_actors.cli.reset_offsets.datetime", now)
    assert reset("-g", "a", "--topic", "t", "--by-duration", "PT1H")[0] == 0
    assert admin.asked[0][1] == OffsetTarget.timestamp(23 * 3_600_000)
    assert now.now(UTC).tzinfo is UTC


def test_what_is_exported_is_read_back(admin: WrittenDown, reset: Command, tmp_path: Path) -> None:
    """Of one group as Kafka's tool has it, of several with their names."""
    file = tmp_path / "plan.csv"
    for groups in (["-g", "a"], ["-g", "a", "-g", "b"]):
        admin.asked.clear()
        code, out, _ = reset(*groups, "--topic", "t", "--to-latest", "--export")
        assert (code, out) == (0, "t,3,7\n" if len(groups) == 2 else "a,t,3,7\nb,t,3,7\n")
        file.write_text(out)
        admin.asked.clear()
        assert reset(*groups, "--from-file", str(file), "--execute")[0] == 0
        target = OffsetTarget.explicit({TopicPartition("t", 3): 7})
        assert admin.asked == [(g, target, None, x) for x in (False, True) for g in groups[1::2]]


def test_groups_that_a_file_lacks_stay_as_they_are(
    admin: WrittenDown, reset: Command, tmp_path: Path
) -> None:
    file = tmp_path / "plan.csv"
    file.write_text("b,t,3,7\n")
    assert reset("-g", "a", "-g", "b", "--from-file", str(file), "--execute")[0] == 0
    assert {group for group, *_ in admin.asked} == {"b"}


def test_an_offset_that_is_not_the_one_asked_for_is_told_of(admin: WrittenDown, reset: Command) -> None:
    admin.note = "9 is behind the end of the log"
    code, _, err = reset("-g", "a", "--topic", "t", "--to-offset", "9", "--execute")
    assert (code, err) == (0, "a: t-3: 9 is behind the end of the log: 7 is taken\n")


def test_a_document_says_whether_it_was_executed(reset: Command) -> None:
    for more, executed in (([], "false"), (["--execute"], "true")):
        code, out, err = reset("-g", "a", "--topic", "t", "--to-latest", "-o", "yaml", *more)
        assert (code, err) == (0, "")
        assert out.startswith(
            f"executed: {executed}\noffsets:\n  - group_id: a\n    topic: t\n    partition: 3\n"
        )

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from fakes.loop import in_loop

from kafka_actors.cli.scopes import (
    ago,
    all_lags,
    existing_partitions,
    ids,
    milliseconds,
    moment,
    names,
    offsets_of_file,
    time_of,
    topic_scope,
)
from kafka_actors.errors import UnknownTopicOrPartitionError, UsageError
from kafka_actors.types import TopicPartition


def test_topics_with_and_without_partitions() -> None:
    assert topic_scope(["a", "b:0,2-4", "b:2,9"]) == {"a": None, "b": [0, 2, 3, 4, 9]}
    assert topic_scope(["a:1", "a"]) == {"a": None}
    assert topic_scope(["a", "a:1"]) == {"a": None}


@pytest.mark.parametrize(
    "text", ["a:", "a:x", "a:-1", "a:1-", "a:3-1", ":0", "", "a:0,,1", "a:99999999999", "a:0-2000000000"]
)
def test_what_names_no_partition_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=f"^--topic {text}|^--topic '{text}"):
        topic_scope([text])


def test_ids_are_a_set_in_order() -> None:
    assert ids("3,1,1-2", "--partitions") == [1, 2, 3]


def test_partitions_that_exist_and_those_that_do_not() -> None:
    assert existing_partitions("a", None, {2, 0, 1}) == [0, 1, 2]
    assert existing_partitions("a", [1, 0], {2, 0, 1}) == [0, 1]
    with pytest.raises(UnknownTopicOrPartitionError, match=r"for a-3$"):
        existing_partitions("a", [0, 3], {0})
    with pytest.raises(UnknownTopicOrPartitionError, match=r"for a$"):
        existing_partitions("a", None, None)


def test_a_number_that_is_rather_a_year_or_seconds_is_told_as_the_time_that_it_means(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert milliseconds("2026", "--from-time") == 2026
    assert time_of("1700000000") == 1_700_000_000
    assert capsys.readouterr().err.splitlines() == [
        "--from-time 2026 is taken for milliseconds since 1970: 1970-01-01T00:00:02.026+00:00",
        "--time 1700000000 is taken for milliseconds since 1970: 1970-01-20T16:13:20.000+00:00",
    ]
    for text in ("0", "999", "1700000000000", "999999999999999999"):
        milliseconds(text, "--until")
    assert time_of("-1") == -1
    assert capsys.readouterr().err == ""


@in_loop
async def test_lags_of_thousands_of_groups_are_not_asked_for_at_once() -> None:
    class Admin:
        now = most = 0

        async def lag(self, group_id: str) -> list[str]:
            self.now += 1
            self.most = max(self.most, self.now)
            await asyncio.sleep(0)
            self.now -= 1
            return [group_id]

    admin: Any = Admin()
    ids = [f"g{number}" for number in range(1_000)]
    assert await all_lags(admin, ids) == {group_id: [group_id] for group_id in ids}
    assert 1 < admin.most <= 32


def test_milliseconds_are_a_number_or_a_date() -> None:
    assert milliseconds("1700000000123", "--until") == 1_700_000_000_123
    assert milliseconds("2023-11-14T22:13:20.123", "--until") == 1_700_000_000_123
    with pytest.raises(UsageError, match=r"^--until '-1': give milliseconds since 1970, or YYYY"):
        milliseconds("-1", "--until")


@pytest.mark.parametrize(
    ("text", "since_1970"),
    [
        ("latest", -1),
        ("EARLIEST", -2),
        ("max-timestamp", -3),
        ("-2", -2),
        ("1700000000000", 1_700_000_000_000),
        ("2023-11-14T22:13:20.123", 1_700_000_000_123),
        ("2023-11-14T23:13:20.123+01:00", 1_700_000_000_123),
        ("2023-11-14T22:13:20Z", 1_700_000_000_000),
        ("1969-12-31T23:59:59.999", 0),
        ("1900-01-01T00:00:00", 0),
    ],
)
def test_times(text: str, since_1970: int) -> None:
    assert time_of(text) == since_1970


@pytest.mark.parametrize("text", ["-4", "soon", "2023-11-14", "2023-13-14T00:00:00", "99999999999999999999"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=f"--time '?{text}"):
        time_of(text)


def test_moments_are_exact() -> None:
    assert moment("2038-01-19T03:14:07.999", "--to-datetime") == 2_147_483_647_999


def test_durations_go_back_from_now() -> None:
    now = datetime(2023, 11, 14, 22, 13, 20, 500_000, tzinfo=UTC)
    assert ago("P1DT1H", now) == 1_700_000_000_500 - 25 * 3_600_000
    assert ago("P36500D", now) == ago("P9999999999999999D", now) == 0
    with pytest.raises(UsageError, match="--by-duration: '1 day' is not a duration such as"):
        ago("1 day", now)


def test_names_are_split_at_commas() -> None:
    assert names(["a, b", "a"], "--state") == ["a", "b"]
    with pytest.raises(UsageError, match="--state: has an empty name"):
        names(["a,"], "--state")


def test_a_file_for_one_group_and_for_several(tmp_path: Path) -> None:
    file = tmp_path / "offsets.csv"
    file.write_text("t,0,5\n\nt, 1 ,6\n")
    assert offsets_of_file(str(file), ["g"]) == {"g": {TopicPartition("t", 0): 5, TopicPartition("t", 1): 6}}
    file.write_text("t,0,5\n", encoding="utf-8-sig")
    assert offsets_of_file(str(file), ["g"]) == {"g": {TopicPartition("t", 0): 5}}, "as Excel writes it"
    file.write_text("g,t,0,5\nh,t,0,7\n")
    assert offsets_of_file(str(file), ["h", "g"]) == {
        "g": {TopicPartition("t", 0): 5},
        "h": {TopicPartition("t", 0): 7},
    }


@pytest.mark.parametrize(
    ("text", "groups", "says"),
    [
        ("t,0\n", ["g"], "line 1: is not topic,partition,offset"),
        ("t,0,-1\n", ["g"], "line 1: is not topic,partition,offset"),
        ("t,0,1\n", ["g", "h"], "line 1: is not group,topic,partition,offset"),
        ("g,t,0,1\nx,t,0,1", ["g", "h"], "line 2: group 'x' is not given with --group"),
        ("\n", ["g"], "has no offsets"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, text: str, groups: list[str], says: str) -> None:
    file = tmp_path / "offsets.csv"
    file.write_text(text)
    with pytest.raises(UsageError, match=says):
        offsets_of_file(str(file), groups)

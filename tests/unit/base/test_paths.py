"""Paths of users are refused with what to write instead."""

import os

import pytest

from kafka_actors.base.paths import absolute_path, directory_of, schema_text, sync, wrong_path
from kafka_actors.errors import ConfigError


@pytest.mark.parametrize(
    "path", ["/data", "data/orders", "file:///data", "s3://bucket/x", "HDFS://host/x", "c:data"]
)
def test_directories_and_known_uris_are_right(path: str) -> None:
    assert wrong_path(path) is None


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (None, "is None: accepts a directory or URI"),
        ("", "is '': accepts a directory or URI"),
        (
            "s3a://bucket",
            "is 's3a://bucket', by Hadoop's name of the file system: write s3://, on every engine",
        ),
        ("ftp://host/x", "is 'ftp://host/x': the URIs that are known begin with file://, s3://"),
        ("s3:/bucket", "is 's3:/bucket': the URIs that are known begin with file://, s3://"),
    ],
)
def test_others_are_wrong_for_a_reason(path: object, said: str) -> None:
    assert (wrong_path(path) or "").startswith(said)


def test_a_relative_path_is_one_of_this_process() -> None:
    assert absolute_path("data") == os.path.join(os.getcwd(), "data")
    assert absolute_path("s3://bucket/x") == "s3://bucket/x"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("/data/x", "/data//x/"),
        ("/data/x y", "file:///data/x%20y"),
        ("x", os.path.abspath("x")),
        ("s3://b/x", "s3://b/x/"),
    ],
)
def test_a_directory_is_known_by_any_of_its_names(one: str, other: str) -> None:
    assert directory_of(one) == directory_of(other)
    assert directory_of(one) != directory_of(f"{other}/y")


def test_a_file_and_a_directory_are_flushed_and_a_missing_one_is_an_error(tmp_path: os.PathLike[str]) -> None:
    file = os.path.join(tmp_path, "x")
    with open(file, "w") as opened:
        opened.write("x")
    sync(file)
    sync(tmp_path)
    with pytest.raises(FileNotFoundError):
        sync(os.path.join(tmp_path, "y"))


def test_the_text_of_a_schema_may_be_in_a_file(tmp_path) -> None:
    file = tmp_path / "order.avsc"
    file.write_text('"int"')
    assert schema_text(file, ".avsc") == schema_text(str(file), ".avsc") == '"int"'
    assert schema_text('"long"', ".avsc") == '"long"'
    assert schema_text({"type": "int"}, ".avsc") == {"type": "int"}
    with pytest.raises(
        ConfigError, match=r"^schema: \S+other.avsc can't be read: No such file or directory$"
    ):
        schema_text(str(tmp_path / "other.avsc"), ".avsc")

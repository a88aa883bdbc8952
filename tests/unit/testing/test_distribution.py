import stat
from pathlib import Path

import pytest

from kafka_actors.testing import Distribution, KafkaCluster, KafkaUnavailable
from kafka_actors.testing import distribution as module


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty PATH and an empty cache."""
    directory = tmp_path / "bin"
    directory.mkdir()
    monkeypatch.setenv("PATH", str(directory))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("KAFKA_ACTORS_CACHE", str(tmp_path / "cache"))
    return directory


def _program(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def _java(directory: Path, version: str) -> None:
    _program(directory / "java", f"echo 'openjdk version \"{version}\" 2025-04-15' >&2")


def test_without_java_the_error_says_how_to_get_it_and_maven(tools: Path) -> None:
    with pytest.raises(KafkaUnavailable, match=r"No `java`.*Java 17.*apt-get install .*maven"):
        KafkaCluster().start()
    assert "No `java`" in (module.why_unavailable() or "")


def test_an_old_java_is_named_with_its_version(tools: Path) -> None:
    _java(tools, "1.8.0_402")
    with pytest.raises(KafkaUnavailable, match=r"too old.*1\.8\.0_402.*Java 17"):
        Distribution.get()


def test_without_maven_the_error_says_how_to_get_it_and_leaves_nothing_behind(tools: Path) -> None:
    _java(tools, "17.0.15")
    with pytest.raises(KafkaUnavailable, match=r"No `mvn`.*apt-get install"):
        Distribution.get("4.1.1")
    assert [path.name for path in module.cache_root().iterdir()] == ["kafka-4.1.1.lock"]


def test_what_maven_said_when_it_failed_is_in_the_error(tools: Path) -> None:
    _java(tools, "21")
    _program(tools / "mvn", "echo 'Could not resolve kafka_2.13:jar:9.9.9'; exit 1")
    with pytest.raises(KafkaUnavailable, match=r"(?s)Kafka 9\.9\.9 \(exit code 1\).*Could not resolve"):
        Distribution.get("9.9.9")


def test_java_home_goes_before_the_path(tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _java(tools, "11.0.2")
    (tmp_path / "jdk" / "bin").mkdir(parents=True)
    _java(tmp_path / "jdk" / "bin", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    assert module.find_java() == str(tmp_path / "jdk" / "bin" / "java")


def test_a_complete_cache_needs_no_maven(tools: Path) -> None:
    _java(tools, "17.0.15")
    home = module.cache_root() / "kafka-4.1.1"
    (home / "libs").mkdir(parents=True)
    (home / "libs" / "kafka-clients-4.1.1.jar").touch()
    (home / "bootstrap.checkpoint").touch()
    kafka = Distribution.get("4.1.1")
    assert module.why_unavailable() is None
    assert kafka.jar("kafka-clients").name == "kafka-clients-4.1.1.jar"
    with pytest.raises(FileNotFoundError, match="no jar called nonesuch"):
        kafka.jar("nonesuch")

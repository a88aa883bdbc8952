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
    assert kafka.jar("kafka-clients").name == "kafka-clients-4.1.1.jar"
    with pytest.raises(FileNotFoundError, match="no jar called nonesuch"):
        kafka.jar("nonesuch")


def test_jars_fetched_without_their_tools_are_enough_for_a_broker(tools: Path) -> None:
    """As with Kafka 4.4.0, whose kafka-tools Maven Central lacks; kafka.Kafka's own classes are still there."""
    _java(tools, "17.0.15")
    _program(
        tools / "mvn",
        'for a in "$@"; do case "$a" in\n'
        "  -Plog4j2,tools) echo 'Could not find artifact org.apache.kafka:kafka-tools:jar:4.4.0'; exit 1;;\n"
        '  -DoutputDirectory=*) mkdir -p "${a#*=}";;\nesac; done',
    )
    _program(tools / "mkdir", 'exec /bin/mkdir "$@"')
    home = module.cache_root() / "kafka-4.4.0"
    _program(
        tools / "java",
        'case "$*" in -version) echo \'openjdk version "17.0.15"\' >&2;; *)\n'
        f'd=$(/bin/ls -d "{home}".*/template.properties); d="${{d%.properties}}/__cluster_metadata-0"\n'
        '/bin/mkdir -p "$d"; : > "$d/00000000000000000000-0000000000.checkpoint";; esac',
    )
    kafka = Distribution.get("4.4.0")
    assert (kafka.home / "bootstrap.checkpoint").is_file()
    assert not kafka.has_tools
    with pytest.raises(KafkaUnavailable, match=r"no kafka-tools 4\.4\.0, which org\.apache\.kafka\.tools\.X"):
        KafkaCluster(version="4.4.0").tool("org.apache.kafka.tools.X")


@pytest.mark.parametrize(
    ("version", "option"),
    [("3.3.2", "-Dlog4j.configuration=file:/"), ("4.0.0", "-Dlog4j2.configurationFile=/")],
)
def test_a_node_logs_through_the_log4j_of_its_version(version: str, option: str, tmp_path: Path) -> None:
    command = Distribution(version, tmp_path, "java").command("kafka.Kafka")
    [said] = [part for part in command if part.startswith("-Dlog4j")]
    assert said.startswith(option)
    assert Path(said.split("=", 1)[1].removeprefix("file:")).is_file()


@pytest.mark.parametrize(
    ("version", "says"), [("3.2.3", "Kafka 3.2.3 has no quorum mode"), ("4", "'4' is not a version of Kafka")]
)
def test_a_version_that_cannot_run_is_refused_before_anything_is_fetched(version: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Distribution.get(version)


@pytest.mark.parametrize(("content", "options"), [(None, 0), (b"", 0), (b"classes", 2)])
def test_java_gets_the_archive_of_classes_where_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None, options: int
) -> None:
    """It is empty where Java could not write one."""
    monkeypatch.setattr(module, "_java_version", lambda java: java)
    kafka = Distribution("4.1.1", tmp_path, "java")
    plain = kafka.command("kafka.Kafka", "server.properties", options=["-Xmx1g"])
    if content is not None:
        kafka.class_archive.write_bytes(content)
    command = kafka.command("kafka.Kafka", "server.properties", options=["-Xmx1g"])
    assert command[1 + options :] == plain[1:]
    assert (
        command[1 : 1 + options]
        == [f"-XX:SharedArchiveFile={kafka.class_archive}", "-Xlog:cds*=off"][:options]
    )
    assert Distribution("4.1.1", tmp_path, "another java").class_archive != kafka.class_archive

"""Apache Kafka's jars, fetched once with Maven and cached; parallel runs share the cache safely.

`Distribution.get("4.1.1")` returns a directory with the jars and a bootstrap checkpoint written by Kafka's storage tool.
"""

from __future__ import annotations

import fcntl
import functools
import os
import re
import shutil
import subprocess
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

DEFAULT_VERSION = "4.1.1"
OLDEST_VERSION = (3, 3)
"""First release whose KRaft mode is meant for production; older ones need ZooKeeper."""
MINIMUM_JAVA = 17
_HERE = Path(__file__).parent
_HOW_TO_INSTALL = (
    "Real Kafka needs a Java 17 runtime and Maven: "
    "`apt-get install openjdk-17-jre-headless maven` on Debian and Ubuntu, "
    "`brew install openjdk@17 maven` on macOS. KafkaCluster looks for `java` in JAVA_HOME and on PATH, "
    "for `mvn` on PATH."
)


class KafkaUnavailable(RuntimeError):
    """Raised where real Kafka can't run: Java or Maven is missing, or the jars could not be fetched."""


def cache_root() -> Path:
    """Directory of the cache: `KAFKA_ACTORS_CACHE`, or `~/.cache/kafka-actors`."""
    configured = os.environ.get("KAFKA_ACTORS_CACHE")
    return Path(configured) if configured else Path.home() / ".cache" / "kafka-actors"


def find_java() -> str:
    """Returns the path of a `java` of version 17 or later. Raises `KafkaUnavailable` if there is none."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin") if home else None
    java = java or shutil.which("java")
    if java is None:
        raise KafkaUnavailable(f"No `java` was found. {_HOW_TO_INSTALL}")
    version = _java_version(java)
    match = re.search(r'version "(\d+)', version)
    if match is None or int(match[1]) < MINIMUM_JAVA:
        first_line = version.strip().splitlines()[0] if version.strip() else "nothing"
        raise KafkaUnavailable(
            f"{java} is too old or does not run (it says: {first_line}). {_HOW_TO_INSTALL}"
        )
    return java


@functools.cache
def _java_version(java: str) -> str:
    return subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr


@dataclass(frozen=True)
class Distribution:
    """One version of Kafka on disk.

    `home/libs` holds the jars of the broker and its tools, `home/bootstrap.checkpoint` the feature levels that
    `kafka.tools.StorageTool format` writes for this version: with it a node is formatted without starting a JVM.
    """

    version: str
    home: Path
    java: str

    @property
    def release(self) -> tuple[int, int]:
        """Major and minor number: `(4, 1)`."""
        return _release(self.version)

    @property
    def has_tools(self) -> bool:
        """Whether Kafka's command-line tools are among the jars: Maven Central lacks those of some releases."""
        return any((self.home / "libs").glob(f"kafka-tools-{self.version}.jar"))

    @classmethod
    def get(cls, version: str = DEFAULT_VERSION) -> Distribution:
        """Returns a version of Kafka, fetched if the cache lacks it. Raises `KafkaUnavailable` if that fails.

        Raises `ValueError` for a version before 3.3, or for text that is no version.
        """
        if _release(version) < OLDEST_VERSION:
            oldest = ".".join(map(str, OLDEST_VERSION))
            raise ValueError(
                f"Kafka {version} has no quorum mode to rely on: KafkaCluster runs {oldest} and later"
            )
        java = find_java()
        home = cache_root() / f"kafka-{version}"
        if not _is_complete(home):
            with locked(home.with_name(f"{home.name}.lock")):
                if not _is_complete(home):  # another process may have fetched it meanwhile
                    _provision(version, home, java)
        return cls(version, home, java)

    @property
    def checkpoint(self) -> Path:
        """Path of the bootstrap checkpoint in a formatted directory: from 4.4 on it is the log's first snapshot."""
        if self.release >= (4, 4):
            return Path("__cluster_metadata-0", "00000000000000000000-0000000000.checkpoint")
        return Path("bootstrap.checkpoint")

    @property
    def classpath(self) -> str:
        """Class path for `java -cp`: every jar of the broker, its clients and its tools."""
        return f"{self.home / 'libs'}/*"

    @property
    def class_archive(self) -> Path:
        """The file with a broker's classes as the JVM has them in memory (JEP 350), which this Java writes and no other reads: with it a
        broker starts with half of the CPU. Empty where Java could not write it."""
        return self.home / f"classes-{zlib.crc32(_java_version(self.java).encode()):08x}.jsa"

    def jar(self, name: str) -> Path:
        """The path of one jar by its artifact's name: `jar("kafka-clients")`."""
        found = sorted((self.home / "libs").glob(f"{name}-[0-9]*.jar"))
        if not found:
            raise FileNotFoundError(f"Kafka {self.version} has no jar called {name}")
        return found[0]

    def command(self, main: str, *args: str, options: Sequence[str] = ()) -> list[str]:
        """The command line that runs the Java class `main` on this classpath, with JVM `options`."""
        if _logs_through_log4j2(self.release):
            logging = f"-Dlog4j2.configurationFile={_HERE / 'log4j2.properties'}"
        else:
            logging = f"-Dlog4j.configuration={(_HERE / 'log4j.properties').as_uri()}"
        return [self.java, *self._archive_options(), *options, logging, "-cp", self.classpath, main, *args]

    def _archive_options(self) -> tuple[str, ...]:
        archive = self.class_archive
        if not archive.exists() or not archive.stat().st_size:
            return ()
        return f"-XX:SharedArchiveFile={archive}", "-Xlog:cds*=off"


def _release(version: str) -> tuple[int, int]:
    found = re.match(r"(\d+)\.(\d+)\.\d+", version)
    if found is None:
        raise ValueError(f"{version!r} is not a version of Kafka such as {DEFAULT_VERSION}")
    return int(found[1]), int(found[2])


def _logs_through_log4j2(release: tuple[int, int]) -> bool:
    return release >= (4, 0)


def _is_complete(home: Path) -> bool:
    return (home / "bootstrap.checkpoint").is_file()


def find_maven() -> str:
    """Returns the path of `mvn`. Raises `KafkaUnavailable` if there is none."""
    maven = shutil.which("mvn")
    if maven is None:
        raise KafkaUnavailable(f"No `mvn` was found. {_HOW_TO_INSTALL}")
    return maven


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds an exclusive lock on a file, across processes, within the block."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _provision(version: str, home: Path, java: str) -> None:
    """Builds the directory under a temporary name and renames it, so that an interrupted run leaves nothing incomplete."""
    draft = Path(tempfile.mkdtemp(prefix=f"{home.name}.", dir=home.parent))
    try:
        _fetch_jars(version, draft)
        _make_bootstrap_checkpoint(Distribution(version, draft, java))
        draft.chmod(0o755)
        shutil.rmtree(home, ignore_errors=True)
        draft.rename(home)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _fetch_jars(version: str, draft: Path) -> None:
    # Some goals of Maven write into the directory of the pom, so it gets a copy of the installed package's file.
    shutil.copy(_HERE / "pom.xml", draft / "pom.xml")
    logger = "log4j2" if _logs_through_log4j2(_release(version)) else "reload4j"
    try:
        _copy_dependencies(version, draft, [logger, "tools"])
    except KafkaUnavailable as error:
        if f"kafka-tools:jar:{version}" not in str(error):
            raise
        # Maven Central lacks the tools of some releases (4.4.0); a broker runs without them.
        _copy_dependencies(version, draft, [logger])


def _copy_dependencies(version: str, draft: Path, profiles: Sequence[str]) -> None:
    command = [find_maven(), "-B", "-q", "-ntp", "-f", str(draft / "pom.xml"), f"-P{','.join(profiles)}"]
    command += ["dependency:copy-dependencies", f"-Dkafka.version={version}", "-DincludeScope=runtime"]
    command += [f"-DoutputDirectory={draft / 'libs'}"]
    run_tool(command, f"Maven could not fetch Kafka {version}")


def _make_bootstrap_checkpoint(kafka: Distribution) -> None:
    """Formats a temporary combined node once; apart from ids its files are the same for every node of a version."""
    node = kafka.home / "template"
    properties = kafka.home / "template.properties"
    properties.write_text(
        "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@127.0.0.1:9\n"
        "controller.listener.names=CONTROLLER\nlisteners=PLAINTEXT://127.0.0.1:8,CONTROLLER://127.0.0.1:9\n"
        f"listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\nlog.dirs={node}\n"
    )
    arguments = ["format", "--cluster-id", "AAAAAAAAAAAAAAAAAAAAAQ", "--config", str(properties)]
    run_tool(
        kafka.command("kafka.tools.StorageTool", *arguments),
        f"Kafka {kafka.version} could not format a directory",
    )
    shutil.move(node / kafka.checkpoint, kafka.home / "bootstrap.checkpoint")
    shutil.rmtree(node)
    properties.unlink()


def run_tool(command: Sequence[str], failure: str) -> None:
    """Runs a command. Raises `KafkaUnavailable` with `failure` and the command's output if it fails."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        output = (done.stdout + done.stderr).strip()
        raise KafkaUnavailable(f"{failure} (exit code {done.returncode}):\n{output[-4000:]}")

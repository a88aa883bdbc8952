"""Kafka's command-line tools in one JVM: each start of one costs two seconds of a core."""

from __future__ import annotations

import subprocess
from pathlib import Path

from fakes.java_answers import JAVA

from kafka_actors.testing.distribution import Distribution


class Tools:
    """Runs tools by the names of their Java classes: `tools(main, *arguments)` returns what one prints. Started by the first call."""

    def __init__(self, directory: Path) -> None:
        self._printed = directory / "printed"
        self._log = directory / "log"
        self._jvm: subprocess.Popen[str] | None = None

    def __call__(self, main: str, *arguments: str) -> str:
        if self._jvm is None:
            self._jvm = self._started()
        assert self._jvm.stdin is not None
        assert self._jvm.stdout is not None
        self._jvm.stdin.write("\t".join((str(self._printed), main, *arguments)) + "\n")
        self._jvm.stdin.flush()
        ended = next((line for line in self._jvm.stdout if line.startswith("ended ")), "ended with its JVM")
        assert ended == "ended 0\n", f"{main} {ended}{self._printed.read_text()}{self._log.read_text()}"
        return self._printed.read_text()

    def _started(self) -> subprocess.Popen[str]:
        kafka = Distribution.get()
        command = kafka.command(
            str(JAVA / "tools" / "Tools.java"), options=("-Xshare:auto", "-XX:+UseSerialGC")
        )
        with self._log.open("w") as log:
            return subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )

    def close(self) -> None:
        """Ends the JVM."""
        if self._jvm is not None:
            self._jvm.communicate()

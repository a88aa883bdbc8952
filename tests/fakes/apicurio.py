"""Apicurio's registry, with its storage in memory, and its serializer and deserializer for Kafka in Java. Both come from Maven Central."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import tarfile
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import psutil
from fakes.java_answers import JAVA
from waiting import slow_s, until

from kafka_actors.testing.distribution import cache_root, find_java, find_maven, locked, run_tool

SERVER = "3.0.9"
SERDE = "3.1.7"
"""Versions that Central has whole: the server as an archive, the serde with its parent."""
OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx512m")


def _home(name: str, fetch: Any) -> Path:
    """A directory of the cache, which `fetch` fills once."""
    home = cache_root() / name
    if not home.is_dir():
        with locked(home.with_name(f"{name}.lock")):
            if not home.is_dir():
                draft = Path(tempfile.mkdtemp(prefix=f"{name}.", dir=home.parent))
                try:
                    fetch(draft)
                    draft.rename(home)
                finally:
                    shutil.rmtree(draft, ignore_errors=True)
    return home


def _fetch_server(draft: Path) -> None:
    coordinates = f"io.apicurio:apicurio-registry-app:{SERVER}:tar.gz:all"
    command = [find_maven(), "-B", "-q", "-ntp", "dependency:copy", f"-Dartifact={coordinates}"]
    run_tool([*command, f"-DoutputDirectory={draft}"], f"Maven could not fetch Apicurio {SERVER}")
    archive = draft / f"apicurio-registry-app-{SERVER}-all.tar.gz"
    with tarfile.open(archive) as packed:
        packed.extractall(draft, filter="data")
    archive.unlink()


def _fetch_serde(draft: Path) -> None:
    shutil.copy(JAVA / "apicurio" / "pom.xml", draft / "pom.xml")
    command = [find_maven(), "-B", "-q", "-ntp", "-f", str(draft / "pom.xml"), "dependency:copy-dependencies"]
    command += [f"-Dserde.version={SERDE}", "-DincludeScope=runtime", f"-DoutputDirectory={draft / 'libs'}"]
    run_tool(command, f"Maven could not fetch Apicurio's serde {SERDE}")


class Apicurio:
    """A server. `url`: of Confluent's API; `own_url`: of its own."""

    def __init__(self, directory: Path) -> None:
        home = _home(f"apicurio-{SERVER}", _fetch_server)
        jar = home / f"apicurio-registry-app-{SERVER}-runner.jar"
        network = ("-Dquarkus.http.host=127.0.0.1", "-Dquarkus.http.port=0")
        self._log = directory / "apicurio.log"
        with self._log.open("wb") as log:
            self._jvm = subprocess.Popen(
                [find_java(), *OPTIONS, *network, "-jar", str(jar)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=directory,
            )
        try:
            until(self._answers, slow_s(60), "Apicurio's registry")
        except BaseException:
            self.close()
            raise

    def _port(self) -> int | None:
        assert self._jvm.poll() is None, self._log.read_text()
        found = [c for c in psutil.Process(self._jvm.pid).net_connections("tcp") if c.status == "LISTEN"]
        return found[0].laddr.port if found else None

    def _answers(self) -> bool:
        port = self._port()
        if port is None:
            return False
        self.url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
        self.own_url = f"http://127.0.0.1:{port}/apis/registry/v3"
        try:
            self.clear()
        except OSError:
            return False
        return True

    def clear(self) -> None:
        """Deletes all subjects; those to which others refer behind these."""
        left = self._request("GET", "subjects")
        while left:
            kept = [subject for subject in left if not self._deletes(subject)]
            assert len(kept) < len(left), kept
            left = kept

    def _deletes(self, subject: str) -> bool:
        path = f"subjects/{urllib.parse.quote(subject, safe='')}"
        try:
            self._request("DELETE", path)
            self._request("DELETE", f"{path}?permanent=true")
        except urllib.error.HTTPError as error:
            if error.code != 422:  # it is referred to
                raise
            return False
        return True

    def add(self, subject: str, schema: Any, kind: str = "AVRO", references: Any = ()) -> int:
        """Adds a version; returns the schema's id."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        body = {"schema": text, "schemaType": kind, "references": list(references)}
        made: int = self._request("POST", f"subjects/{subject}/versions", body)["id"]
        return made

    def _request(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        sent = urllib.request.Request(f"{self.url}/{path}", data, headers, method=method)
        with urllib.request.urlopen(sent, timeout=slow_s(20)) as response:
            return json.loads(response.read())

    def close(self) -> None:
        """Ends the server."""
        self._jvm.kill()
        self._jvm.wait()


class ApicuriosSerde:
    """Apicurio's serializer and deserializer of Avro in a JVM, by the default settings of theirs."""

    def __init__(self, server: Apicurio) -> None:
        libs = _home(f"apicurio-serde-{SERDE}", _fetch_serde) / "libs"
        source = JAVA / "apicurio" / "AvroSerde.java"
        command = [find_java(), *OPTIONS, "-cp", f"{libs}/*", str(source), server.own_url]
        self._jvm = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def written(self, topic: str, schema: Any, *rows: Any) -> list[bytes]:
        """Values of rows, which are as Avro's JSON has them; the schema is registered."""
        found = self._ask(topic=topic, schema=json.dumps(schema), rows=[json.dumps(row) for row in rows])
        return [base64.b64decode(one) for one in found]

    def read(self, topic: str, values: list[bytes]) -> list[Any]:
        """Rows of values, as Avro's JSON has them, by the schema that each was written by."""
        return [
            json.loads(one)
            for one in self._ask(topic=topic, values=[base64.b64encode(one).decode() for one in values])
        ]

    def _ask(self, **request: Any) -> list[str]:
        assert self._jvm.stdin is not None
        assert self._jvm.stdout is not None
        self._jvm.stdin.write(json.dumps(request) + "\n")
        self._jvm.stdin.flush()
        found: list[str] = json.loads(self._jvm.stdout.readline())["found"]
        return found

    def close(self) -> None:
        """Ends the JVM."""
        self._jvm.kill()
        self._jvm.communicate()

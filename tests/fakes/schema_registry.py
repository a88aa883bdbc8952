"""A schema registry in this process: the part of Confluent's API that the client uses, on a port of the system's choice.

confluent-kafka's own registry client is held against it in `tests/integration/test_schema_registry.py`. Compatibility isn't computed: a subject
in `incompatible` refuses what it doesn't have.
"""

from __future__ import annotations

import base64
import contextlib
import json
import ssl
import threading
import time
import urllib.parse
import uuid
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class FakeSchemaRegistry:
    """A context manager. `requests` are the methods and paths that arrived; `faults` are answered to the next requests, one each: a
    status, or "cut" for a connection that is closed, or a number of seconds to wait, or a status and the bytes and the seconds between
    them of an answer that is never whole. `user`, `token`: what has to be shown. `tls`: of its
    side, None for plain HTTP. It answers as an HTTP proxy too, in place of any registry."""

    def __init__(
        self, *, user: str | None = None, token: str | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        self.user, self.token = user, token
        self.requests: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.faults: deque[Any] = deque()
        self.incompatible: set[str] = set()
        self._schemas: list[
            tuple[str, str, Any]
        ] = []  # type, text, references; the id is the number from 1 on
        self._subjects: dict[str, list[int]] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._scheme = "http" if tls is None else "https"
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> FakeSchemaRegistry:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def add(self, subject: str, schema: Any, kind: str = "AVRO", references: Any = ()) -> int:
        """Adds a version; returns the schema's id, which an equal one has already."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        made = (kind, text, list(references))
        if made not in self._schemas:
            self._schemas.append(made)
        number = self._schemas.index(made) + 1
        versions = self._subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number

    # ------------------------------------------------------------ the API

    def answer(self, method: str, path: list[str], body: Any) -> tuple[int, Any]:
        """Status and answer of a request."""
        match method, path:
            case "GET", ["subjects"]:
                return 200, sorted(self._subjects)
            case "GET", ["schemas", "ids", number]:
                return self._by_id(int(number))
            case "GET", ["schemas", "guids", guid]:
                return self._by_guid(guid)
            case "GET", ["subjects", subject, "versions"]:
                found = self._subjects.get(subject)
                return _no_subject(subject) if found is None else (200, list(range(1, len(found) + 1)))
            case "GET", ["subjects", subject, "versions", version]:
                return self._version(subject, version)
            case "POST", ["subjects", subject]:
                return self._look_up(subject, body)
            case "POST", ["subjects", subject, "versions"]:
                return self._register(subject, body)
            case "POST", ["compatibility", "subjects", subject, "versions", _]:
                fits = subject not in self.incompatible or self._look_up(subject, body)[0] == 200
                return 200, {
                    "is_compatible": fits,
                    **({} if fits else {"messages": ["{type: READER_FIELD_MISSING_DEFAULT_VALUE}"]}),
                }
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _by_id(self, number: int) -> tuple[int, Any]:
        if number >= 2**31:  # Java's int can't hold it: no path of the API
            return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}
        if not 0 < number <= len(self._schemas):
            return 404, {"error_code": 40403, "message": f"Schema {number} not found"}
        return 200, self._shown(number)

    def _by_guid(self, guid: str) -> tuple[int, Any]:
        for number in range(1, len(self._schemas) + 1):
            if self.guid(number) == guid:
                return 200, self._shown(number)
        return 404, {"error_code": 40403, "message": f"Schema {guid} not found"}

    def guid(self, number: int) -> str:
        """GUID of the schema with this id; it follows from the schema, so another registry has the same."""
        return str(uuid.uuid5(uuid.NAMESPACE_OID, json.dumps(self._schemas[number - 1])))

    def _shown(self, number: int) -> dict[str, Any]:
        kind, text, references = self._schemas[number - 1]
        shown = {"schema": text, "guid": self.guid(number)}
        if kind != "AVRO":
            shown["schemaType"] = kind
        return {**shown, "references": references} if references else shown

    def _version(self, subject: str, version: str) -> tuple[int, Any]:
        found = self._subjects.get(subject)
        if found is None:
            return _no_subject(subject)
        at = len(found) if version in ("latest", "-1") else int(version)
        if not 0 < at <= len(found):
            return 404, {"error_code": 40402, "message": f"Version {version} not found."}
        return 200, {"subject": subject, "version": at, "id": found[at - 1], **self._shown(found[at - 1])}

    def _look_up(self, subject: str, body: Any) -> tuple[int, Any]:
        found = self._subjects.get(subject)
        if found is None:
            return _no_subject(subject)
        made = (body.get("schemaType", "AVRO"), body["schema"], body.get("references", []))
        number = self._schemas.index(made) + 1 if made in self._schemas else 0
        if number not in found:
            return 404, {"error_code": 40403, "message": "Schema not found"}
        return self._version(subject, str(found.index(number) + 1))

    def _register(self, subject: str, body: Any) -> tuple[int, Any]:
        if subject in self.incompatible and self._look_up(subject, body)[0] != 200:
            return 409, {
                "error_code": 409,
                "message": "Schema being registered is incompatible with an earlier schema",
            }
        number = self.add(subject, body["schema"], body.get("schemaType", "AVRO"), body.get("references", ()))
        return 200, {"id": number, **self._shown(number)}

    def allows(self, authorization: str | None) -> bool:
        if self.user is not None:
            return authorization == "Basic " + base64.b64encode(self.user.encode()).decode()
        return self.token is None or authorization == f"Bearer {self.token}"


def _no_subject(subject: str) -> tuple[int, Any]:
    return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}


def _handler(registry: FakeSchemaRegistry) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._serve("GET")

        def do_POST(self) -> None:
            self._serve("POST")

        def _serve(self, method: str) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            path = urllib.parse.urlsplit(self.path).path.strip("/")
            registry.requests.append(f"{method} /{path}")
            registry.headers.append(dict(self.headers.items()))
            fault = registry.faults.popleft() if registry.faults else None
            if fault == "cut":
                self.close_connection = True
                return
            if isinstance(fault, tuple):
                return self._in_part(*fault)
            if isinstance(fault, float):
                time.sleep(fault)
            elif isinstance(fault, int):
                headers = {"Location": "http://127.0.0.1:1/elsewhere"} if 300 <= fault < 400 else {}
                return self._answer(fault, {"error_code": fault, "message": "as the test wants it"}, headers)
            if not registry.allows(self.headers.get("Authorization")):
                return self._answer(401, {"error_code": 401, "message": "Unauthorized"})
            parts = [urllib.parse.unquote(part) for part in path.split("/")]
            return self._answer(*registry.answer(method, parts, json.loads(body) if body else None))

        def _answer(self, status: int, answer: Any, headers: Any = ()) -> None:
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(data)))
            for name, value in dict(headers).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def _in_part(self, status: int, size: int, pause_s: float) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(size + 1))
            self.end_headers()
            self.close_connection = True
            with contextlib.suppress(OSError):
                for _ in range(size):
                    self.wfile.write(b" ")
                    time.sleep(pause_s)

        def log_message(self, *_: object) -> None:
            pass

    return Handler

"""An OAuth token endpoint over HTTPS in this process, which answers as it is told."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import parse_qs

import trustme

Answer = tuple[int, dict[str, str], str]


class TokenEndpoint:
    """Answers with what stands in `answers`, one each and the last for ever: (status, headers, body), or what a function makes
    of the form; with the status 0, the body is all that is sent. `pause`: seconds between the characters of a body."""

    def __init__(self, directory: Path) -> None:
        ca = trustme.CA()
        self.ca = str(directory / "ca.pem")
        ca.cert_pem.write_to_path(self.ca)
        self.answers: list[Answer | Callable[[dict[str, list[str]]], Answer]] = [
            (200, {}, json.dumps({"access_token": "tok", "expires_in": 100}))
        ]
        self.pause = 0.0
        self.asked: list[tuple[str, str | None, dict[str, list[str]]]] = []
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                form = self.rfile.read(int(self.headers["Content-Length"])).decode()
                endpoint.asked.append((self.path, self.headers["Authorization"], parse_qs(form)))
                answers = endpoint.answers
                answer = answers.pop(0) if len(answers) > 1 else answers[0]
                status, headers, body = answer(parse_qs(form)) if callable(answer) else answer
                if not status:
                    self.wfile.write(body.encode())
                    return
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                for piece in [body] if endpoint.pause == 0 else body:
                    self.wfile.write(piece.encode())
                    time.sleep(endpoint.pause)

            def log_message(self, *_: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        ca.issue_cert("127.0.0.1").configure_cert(context)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.url = f"https://127.0.0.1:{self.server.server_port}/token"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()

    def __enter__(self) -> TokenEndpoint:
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

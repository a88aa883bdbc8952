"""The endpoints that the clouds' SDKs ask for credentials, in this process: metadata servers, STS, and Google's token endpoint."""

from __future__ import annotations

import datetime
import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

Request = tuple[str, str, dict[str, str], dict[str, list[str]]]
"""Method, path, headers with small letters, and parameters of the query and the form."""
Answer = tuple[int, str]

SOON = datetime.timedelta(hours=1)


class CloudEndpoint:
    """Answers over HTTP what `answer` makes of a request, and keeps the requests in `asked`."""

    def __init__(self, answer: Callable[[Request], Answer]) -> None:
        self.asked: list[Request] = []
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                url = urlsplit(self.path)
                size = int(self.headers["Content-Length"] or 0)
                form = parse_qs(self.rfile.read(size).decode())
                headers = {name.lower(): value for name, value in self.headers.items()}
                request = self.command, url.path, headers, parse_qs(url.query) | form
                endpoint.asked.append(request)
                status, body = answer(request)
                self.send_response(status)
                self.send_header("Metadata-Flavor", "Google")
                self.send_header("Content-Type", "application/json" if body.startswith("{") else "text/xml")
                self.send_header("Content-Length", str(len(body.encode())))
                self.end_headers()
                self.wfile.write(body.encode())

            do_POST = do_PUT = do_GET

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.host = f"127.0.0.1:{self._server.server_port}"
        self.url = f"http://{self.host}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def __enter__(self) -> CloudEndpoint:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def paths(self) -> list[str]:
        return [path for _, path, _, _ in self.asked]


def _in_an_hour() -> str:
    return (datetime.datetime.now(datetime.UTC) + SOON).strftime("%Y-%m-%dT%H:%M:%SZ")


def ec2_metadata(request: Request) -> Answer:
    """The instance's metadata (IMDSv2): a session token, the role's name, and its credentials."""
    method, path, headers, _ = request
    if method == "PUT" and path == "/latest/api/token":
        return 200, "session"
    if headers.get("x-aws-ec2-metadata-token") != "session":
        return 401, ""
    if path == "/latest/meta-data/iam/security-credentials/":
        return 200, "instance-role"
    if path == "/latest/meta-data/iam/security-credentials/instance-role":
        return 200, aws_credentials("ASIAINSTANCE", Code="Success")
    return 404, ""


def aws_credentials(access_key: str, **more: str) -> str:
    """The credentials of a container's or an instance's role."""
    return json.dumps(
        {
            "AccessKeyId": access_key,
            "SecretAccessKey": "hush",
            "Token": "hush-session",
            "Expiration": _in_an_hour(),
            **more,
        }
    )


def sts(request: Request) -> Answer:
    """STS: gives credentials for every role but those with `forbidden` in their names."""
    _, _, _, form = request
    action, role = form["Action"][0], form["RoleArn"][0]
    if "forbidden" in role:
        return 403, (
            '<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><Error><Type>Sender</Type>'
            f"<Code>AccessDenied</Code><Message>not authorized to perform: sts:AssumeRole on {role}</Message></Error>"
            "<RequestId>1</RequestId></ErrorResponse>"
        )
    return 200, (
        f'<{action}Response xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><{action}Result><Credentials>'
        "<AccessKeyId>ASIAROLE</AccessKeyId><SecretAccessKey>hush</SecretAccessKey>"
        f"<SessionToken>hush-session</SessionToken><Expiration>{_in_an_hour()}</Expiration></Credentials>"
        f"<AssumedRoleUser><AssumedRoleId>A:b</AssumedRoleId><Arn>{role}</Arn></AssumedRoleUser>"
        f"</{action}Result><ResponseMetadata><RequestId>1</RequestId></ResponseMetadata></{action}Response>"
    )


def azure_metadata(token: str) -> Callable[[Request], Answer]:
    """The metadata service of a machine in Azure: a token of its managed identity."""

    def answer(request: Request) -> Answer:
        _, path, headers, query = request
        if path != "/metadata/identity/oauth2/token" or headers.get("metadata") != "true":
            return 404, ""
        if query.get("client_id") == ["nobody"]:
            return 400, json.dumps({"error": "invalid_request", "error_description": "Identity not found"})
        expires = str(int((datetime.datetime.now(datetime.UTC) + SOON).timestamp()))
        found = {"access_token": token, "expires_in": "3600", "expires_on": expires, "token_type": "Bearer"}
        return 200, json.dumps({**found, "resource": query["resource"][0]})

    return answer


def google_metadata(request: Request) -> Answer:
    """The metadata server of Google Cloud: the machine's service account and its token."""
    _, path, headers, _ = request
    if path == "/":
        return 200, ""
    if headers.get("metadata-flavor") != "Google":
        return 403, ""
    if path.endswith("/project/project-id"):
        return 200, "project"
    if path.endswith("/universe/universe-domain"):
        return 200, "googleapis.com"
    if path.endswith("/token"):
        return 200, json.dumps({"access_token": "ya29.machine", "expires_in": 3600, "token_type": "Bearer"})
    if "/service-accounts/" in path:
        return 200, json.dumps(
            {"email": "machine@project.iam.gserviceaccount.com", "scopes": [], "aliases": ["default"]}
        )
    return 404, ""


def google_tokens(request: Request) -> Answer:
    """Google's token endpoint for the key of a service account."""
    _, _, _, form = request
    if form["grant_type"] != ["urn:ietf:params:oauth:grant-type:jwt-bearer"]:
        return 400, json.dumps({"error": "unsupported_grant_type"})
    return 200, json.dumps({"access_token": "ya29.key", "expires_in": 3600, "token_type": "Bearer"})

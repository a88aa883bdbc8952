"""Programs in the pods beside Ray: the stop of the job before them, and the probes of the head."""

import http.server
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fakes.refusing import refusing_port
from helm.chart import CHART
from helm.matrix import JOB
from waiting import at_pace_s, slow_s, within

STOP = CHART / "files" / "stop_jobs.py"


class Server:
    """An HTTP server whose answers a test says."""

    def __init__(self, answer: Callable[[str, str], tuple[int, str]]) -> None:
        self.asked: list[tuple[str, str]] = []
        self.authorizations: set[str | None] = set()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def _answer(self) -> None:
                outer.asked.append((self.command, self.path))
                outer.authorizations.add(self.headers["Authorization"])
                status, body = answer(self.command, self.path)
                self.send_response(status)
                self.end_headers()
                self.wfile.write(body.encode())

            do_GET = do_POST = _answer

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


# ---------------------------------------------------------------- the stop


def test_a_heads_pod_stops_what_runs_and_waits_until_it_has_ended() -> None:
    left = 3  # looks until the job has drained

    def answer(method: str, path: str) -> tuple[int, str]:
        nonlocal left
        if method == "GET":
            left -= 1
        ours = "RUNNING" if left > 0 else "STOPPED"
        jobs = [
            {"submission_id": "ours", "status": ours},
            {"submission_id": "older", "status": "FAILED"},
            {"submission_id": None, "status": "RUNNING"},  # a driver that nobody submitted
        ]
        return 200, json.dumps(jobs if method == "GET" else {"stopped": True})

    dashboard = Server(answer)
    try:
        subprocess.run(
            [sys.executable, STOP, "30", f"http://127.0.0.1:{dashboard.port}"], check=True, timeout=slow_s(30)
        )
    finally:
        dashboard.close()
    look = ("GET", "/api/jobs/")
    assert dashboard.asked == [look, ("POST", "/api/jobs/ours/stop"), look, look]


def test_a_dashboard_that_fails_to_answer_ends_no_drain() -> None:
    """It is busy at first, at the stop, and while the job drains."""
    busy = (503, "{}")
    lists = iter([busy, "RUNNING", busy, "RUNNING", (200, "no JSON"), "STOPPED"])
    stops = iter([busy, (200, '{"stopped": true}')])

    def answer(method: str, path: str) -> tuple[int, str]:
        if method == "POST":
            return next(stops)
        said = next(lists)
        return (
            said
            if isinstance(said, tuple)
            else (200, json.dumps([{"submission_id": "ours", "status": said}]))
        )

    dashboard = Server(answer)
    try:
        command = [sys.executable, STOP, "600", f"http://127.0.0.1:{dashboard.port}"]
        subprocess.run(command, check=True, timeout=slow_s(30))
    finally:
        dashboard.close()
    assert next(lists, None) is None, "the end was heard of"
    assert next(stops, None) is None, "the stop was sent again"


@pytest.mark.parametrize("place", ["variable", "file", "home", "nowhere"])
def test_a_cluster_with_a_token_is_sent_it_from_where_ray_has_it(tmp_path: Path, place: str) -> None:
    """The token is looked for where Ray's own clients do: RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH, ~/.ray/auth_token."""
    known = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}
    environment = {**known, "HOME": str(tmp_path)}
    if place == "variable":
        environment["RAY_AUTH_TOKEN"] = "hush"
    elif place != "nowhere":
        file = tmp_path / (".ray/auth_token" if place == "home" else "token")
        file.parent.mkdir(exist_ok=True)
        file.write_text("hush\n")
        if place == "file":
            environment["RAY_AUTH_TOKEN_PATH"] = str(file)
    dashboard = Server(lambda method, path: (200, json.dumps([])))
    try:
        command = [sys.executable, STOP, "5", f"http://127.0.0.1:{dashboard.port}"]
        subprocess.run(command, check=True, timeout=slow_s(30), env=environment)
    finally:
        dashboard.close()
    assert dashboard.authorizations == ({None} if place == "nowhere" else {"Bearer hush"})


def test_it_waits_no_longer_than_it_may() -> None:
    dashboard = Server(
        lambda method, path: (200, json.dumps([{"submission_id": "ours", "status": "RUNNING"}]))
    )
    try:
        subprocess.run(
            [sys.executable, STOP, f"{at_pace_s(2):.1f}", f"http://127.0.0.1:{dashboard.port}"],
            check=True,
            timeout=slow_s(20),
        )
    finally:
        dashboard.close()
    assert len(dashboard.asked) >= 3


# ---------------------------------------------------------------- the probes


@pytest.fixture
def ray_is_well(tmp_path: Path) -> dict[str, str]:
    """An environment whose wget says "success" of Ray's own ports, and asks the status page as it is."""
    real = next((Path(d, "wget") for d in os.environ["PATH"].split(":") if Path(d, "wget").exists()), None)
    if real is None:
        pytest.skip("wget isn't installed")
    fake = tmp_path / "wget"
    fake.write_text(
        f'#!/bin/sh\ncase "$*" in *:52365/*|*:8265/*) [ -e {tmp_path}/broken ] || echo success;; *) exec {real} "$@";; esac\n'
    )
    fake.chmod(0o755)
    return {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "no_proxy": "127.0.0.1"}


@pytest.fixture
def status() -> Iterator[Server]:
    server = Server(lambda method, path: (200 if path == "/healthz" else 503, "x"))
    yield server
    server.close()


def _probe(render, port: int, which: str, environment: dict[str, str]) -> bool:
    container = render({"job": JOB, "status": {"enabled": True, "port": port}}).head["spec"]["containers"][0]
    command = container[f"{which}Probe"]["exec"]["command"]
    return (
        subprocess.run(
            command, env=environment, timeout=slow_s(20), check=False, capture_output=True
        ).returncode
        == 0
    )


def test_a_head_without_a_job_is_as_well_as_ray_is(render, ray_is_well, tmp_path):
    """KubeRay submits a job only to a head that is ready: the status page can't be asked for before."""
    with refusing_port() as port:
        assert _probe(render, port, "readiness", ray_is_well)
        assert _probe(render, port, "liveness", ray_is_well)
        (tmp_path / "broken").touch()
        assert not _probe(render, port, "readiness", ray_is_well)


def test_a_job_that_says_it_is_not_ready_makes_its_head_unready_and_not_dead(render, ray_is_well, status):
    assert _probe(render, status.port, "liveness", ray_is_well)
    assert not _probe(render, status.port, "readiness", ray_is_well)
    assert {path for _, path in status.asked} == {"/healthz", "/readyz"}


def test_a_job_that_is_frozen_is_dead(render, ray_is_well):
    with socket.create_server(("127.0.0.1", 0)) as frozen:  # connects, and never answers
        assert not _probe(render, frozen.getsockname()[1], "liveness", ray_is_well)


def test_a_workers_pod_ends_when_its_head_is_gone_or_after_the_drain(render):
    pod = render({"job": {**JOB, "drainTimeoutMs": 0}}).groups[0]["template"]
    command = pod["spec"]["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
    gone = {**os.environ, "FQ_RAY_IP": "127.0.0.1"}
    script = command[2].replace("/6379)", "/1)")  # nobody listens on port 1
    with within(5):
        subprocess.run([*command[:2], script], env=gone, check=True, timeout=slow_s(5))
    with socket.create_server(("127.0.0.1", 0)) as head:
        script = command[2].replace("/6379)", f"/{head.getsockname()[1]})").replace("sleep 1", "sleep 0.01")
        with within(10):
            subprocess.run([*command[:2], script], env=gone, check=True, timeout=slow_s(10))

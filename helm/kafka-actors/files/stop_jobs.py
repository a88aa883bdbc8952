"""Stops the Ray jobs of this cluster and waits until they have ended: before its pods are.

    stop_jobs.py SECONDS [DASHBOARD]

A job of kafka-actors drains, commits and leaves its group when it is stopped. Ray gives it RAY_JOB_STOP_WAIT_TIME_S.
A cluster with RAY_AUTH_MODE=token wants its token with every request; it stands where Ray itself looks for it.
"""

import json
import os
import sys
import time
import urllib.request
from pathlib import Path

ENDED = {"STOPPED", "SUCCEEDED", "FAILED"}


def token() -> str:
    """The cluster's token, or nothing where there is none."""
    if given := os.environ.get("RAY_AUTH_TOKEN"):
        return given
    file = os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token"
    try:
        return Path(file).read_text().strip()
    except OSError:
        return ""


def ask(method: str, url: str) -> object:
    request = urllib.request.Request(url, method=method, data=b"" if method == "POST" else None)
    if given := token():
        request.add_header("Authorization", f"Bearer {given}")
    with urllib.request.urlopen(request, timeout=5) as answer:
        return json.load(answer)


def running(dashboard: str) -> list[str]:
    jobs = ask("GET", f"{dashboard}/api/jobs/")
    return [job["submission_id"] for job in jobs if job.get("submission_id") and job["status"] not in ENDED]


def main(seconds: float, dashboard: str = "http://127.0.0.1:8265") -> None:
    deadline = time.monotonic() + seconds
    for job in running(dashboard):
        ask("POST", f"{dashboard}/api/jobs/{job}/stop")
    while running(dashboard) and time.monotonic() < deadline:
        time.sleep(0.5)


if __name__ == "__main__":
    main(float(sys.argv[1]), *sys.argv[2:])

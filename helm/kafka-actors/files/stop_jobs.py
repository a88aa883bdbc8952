"""Stops the Ray jobs of this cluster and waits until they have ended: before its pods are.

    stop_jobs.py SECONDS [DASHBOARD]

A job of kafka-actors drains, commits and leaves its group when it is stopped. Ray gives it RAY_JOB_STOP_WAIT_TIME_S.
A dashboard that fails to answer is asked again: it is busy while the actors beside it drain, and the pod must not go before they have.
A cluster with RAY_AUTH_MODE=token wants its token with every request; it stands where Ray itself looks for it.
"""

import http.client
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
    """The dashboard's answer; None where it gave none that can be read."""
    request = urllib.request.Request(url, method=method, data=b"" if method == "POST" else None)
    if given := token():
        request.add_header("Authorization", f"Bearer {given}")
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return json.load(answer)
    except (OSError, ValueError, http.client.HTTPException) as error:
        sys.stderr.write(f"{method} {url}: {error}\n")
        return None


def running(dashboard: str) -> list[str] | None:
    """The ids of the jobs that have not ended; None where the dashboard doesn't say."""
    jobs = ask("GET", f"{dashboard}/api/jobs/")
    return jobs and [
        job["submission_id"] for job in jobs if job.get("submission_id") and job["status"] not in ENDED
    ]


def main(seconds: float, dashboard: str = "http://127.0.0.1:8265") -> None:
    deadline = time.monotonic() + seconds
    stopped = set()
    while (jobs := running(dashboard)) != [] and time.monotonic() < deadline:
        for job in set(jobs or ()) - stopped:
            if ask("POST", f"{dashboard}/api/jobs/{job}/stop") is not None:
                stopped.add(job)
        time.sleep(0.5)


if __name__ == "__main__":
    main(float(sys.argv[1]), *sys.argv[2:])

"""Stops the Ray jobs of this cluster and waits until they have ended: before its pods are.

    stop_jobs.py SECONDS [DASHBOARD]

A job of kafka-actors drains, commits and leaves its group when it is stopped. Ray gives it RAY_JOB_STOP_WAIT_TIME_S.
"""

import json
import sys
import time
import urllib.request

ENDED = {"STOPPED", "SUCCEEDED", "FAILED"}


def ask(method: str, url: str) -> object:
    request = urllib.request.Request(url, method=method, data=b"" if method == "POST" else None)
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

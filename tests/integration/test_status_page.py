"""The status page of a job that runs: what it shows, whether it is well, and for how long it is there."""

import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest
import ray
from jobs.removal import remove_member
from waiting import output_of, slow_s, until

import kafka_actors as ka
from kafka_actors.errors import ConfigError, FencedInstanceIdError, UsageError

pytestmark = [pytest.mark.ray, pytest.mark.kafka]

COMMAND = Path(sys.executable).with_name("kafka-actors")
HERE = "127.0.0.1:0"


def get(page, path="", method="GET"):
    """Status and text of an answer; 0 where nobody answers."""
    request = urllib.request.Request(page + path, method=method)
    try:
        with urllib.request.urlopen(request, timeout=slow_s(10)) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""


def page_status(page):
    return json.loads(get(page, "status.json")[1])


def ray_address():
    """Variables with which another process joins the Ray of the tests."""
    return {"RAY_ADDRESS": ray.get_runtime_context().gcs_address}


@contextmanager
def watched(target, environment=None):
    """Lines that `kafka-actors top` prints in a process of its own; Ctrl-C ends it without a complaint."""
    top = subprocess.Popen(
        [COMMAND, "top", target],
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield top.stdout
        top.send_signal(signal.SIGINT)
        out, err = output_of(top, 30)
        assert (top.returncode, err) == (0, ""), out
    finally:
        top.kill()


@pytest.mark.usefixtures("interruptible")
def test_a_running_jobs_page_has_what_the_job_has(scene_3):
    scene = scene_3
    running = scene.start(workers=2, status_address=HERE)
    page = running.status().page
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", page)
    scene.under_load()
    scene.spread(2)
    scene.flowing()
    until(lambda: get(page, "readyz") == (200, "ready\n"), 30, "the job to be ready")
    assert get(page, "healthz") == (200, "live\n")
    until(lambda: page_status(page)["totals"]["latency_p50_ms"] is not None, 30, "a latency")
    until(lambda: all(p["lag_seconds"] is not None for p in page_status(page)["partitions"]), 30, "every lag")

    looked = []

    def at_work():
        """Looks, until nothing stands still at that moment: neither coordinator nor load nor workers."""
        looked[:] = page_status(page), running.status()
        shown, status = looked
        rates = shown["totals"]["records_per_s"], status.totals.records_per_s
        busy = sum(worker.records_per_s or 0 for worker in status.workers)
        return shown["health"]["ready"] and status.health.ready and all(rates) and busy

    until(at_work, 30, "a job that is ready and works", shown=lambda: looked)
    shown, status = looked
    assert (shown["group_id"], shown["topics"], shown["state"]) == (
        scene.group,
        [scene.topic],
        "running",
    )
    assert (shown["group"]["state"], shown["group"]["generation"]) == ("stable", status.group.generation)
    assert 0 <= shown["group"]["heartbeat_age_s"] < slow_s(10)
    assert {p["partition"] for p in shown["partitions"]} == set(range(12))
    assert {p["worker"] for p in shown["partitions"]} == {w["name"] for w in shown["workers"]}
    connections = [actor for actor in shown["others"] if actor["broker"] is not None]
    assert {p["leader"] for p in shown["partitions"]} == {actor["broker"] for actor in connections}
    assert {actor["role"] for actor in shown["others"]} >= {"coordinator", "metadata", "connection"}
    assert shown["health"] == {"live": True, "ready": True, "reason": ""}
    for partition in shown["partitions"]:
        assert partition["state"] == "granted"
    # A worker's last report may be older than its last commit, and so may the end be that is known.
    until(
        lambda: all(
            p["committed"] is not None and 0 <= p["committed"] <= p["end"]
            for p in page_status(page)["partitions"]
        ),
        10,
        "a commit of each partition, and no end before it",
    )
    totals = shown["totals"]
    assert shown["records"] > 0
    assert totals["records_per_s"] > 0
    assert 0 <= totals["latency_p50_ms"] <= totals["latency_p99_ms"] < 60_000
    assert status.totals.records_per_s > 0
    assert status.health.ready
    assert sum(worker.records_per_s for worker in status.workers) > 0
    kinds = [entry["kind"] for entry in shown["timeline"]]
    assert kinds[0] == "state"
    assert "rebalance" in kinds

    history = json.loads(get(page, "history.json")[1])

    def newer():
        return json.loads(get(page, f"history.json?after={history['last']}")[1])

    until(lambda: any(p["records_per_s"] for p in newer()["points"]), 30, "a further point with records")
    assert newer()["run"] == history["run"]
    assert newer()["points"][0]["number"] == history["last"] + 1

    metrics = get(page, "metrics")[1]
    consumed = [
        float(n) for n in re.findall(r"^messaging_client_consumed_messages_total\{.*\} (\S+)$", metrics, re.M)
    ]
    assert sum(consumed) > 0
    assert f'kafka_consumer_group_lag{{group="{scene.group}"' in metrics
    latencies = re.findall(
        rf'^kafka_actors_latency_seconds_count{{group="{scene.group}"}} (\S+)$', metrics, re.M
    )
    assert [float(count) > 0 for count in latencies] == [True]
    assert get(page)[0] == 200
    assert [get(page, path, "POST")[0] for path in ("", "status.json", "healthz")] == [405] * 3
    assert get(page, method="HEAD") == (200, "")
    assert get(page, "other")[0] == 404
    with watched(page) as lines:
        told = next(line for line in lines if not line.startswith("waiting for "))
        assert re.search(r" running  2 workers  12 partitions  [\d,]+ records  [\d,]+/s  lag ", told)
        figures = re.compile(r"/s  lag [\d,]+ \(.*\)  latency ")  # of a moment in which all of them are known
        assert any(map(figures.search, itertools.chain([told], lines)))

    scene.settle()
    assert get(page, "healthz")[0] == 0, "the job's end is its page's"


def test_a_frozen_coordinator_is_not_ready_and_its_job_is_again_when_it_goes_on(scene):
    # It is not to be replaced meanwhile: that takes what is here ten minutes.
    running = scene.start(workers=1, status_address=HERE, config={"ping_timeout_ms": 600_000})
    page = running.status().page
    until(lambda: get(page, "readyz")[0] == 200, 30, "the job to be ready")
    pid, _ = scene.freeze("coordinator.1")
    until(lambda: get(page, "readyz")[0] == 503, 20, "the job to be not ready")
    status, reason = get(page, "readyz")
    assert (status, get(page, "healthz")[0]) == (503, 200)
    assert re.fullmatch(r"the coordinator has not answered for \d+ s \(limit 3 s\)\n", reason)
    assert page_status(page)["health"]["ready"] is False
    until(
        lambda: json.loads(get(page, "history.json")[1])["points"][-1]["records_per_s"] is None,
        10,
        "a point without values",
    )
    scene.thaw(pid)
    until(lambda: get(page, "readyz")[0] == 200, 20, "the job to be ready again")
    assert running.status().actors["coordinator.1"] == pid


@pytest.mark.usefixtures("interruptible")
def test_a_detached_jobs_page_is_there_without_its_driver_and_tells_of_its_end(scene, tmp_path):
    def broken(batch):
        raise ValueError("no such country")

    options = scene.options(workers=1, name=scene.group, detached=True, status_address=HERE)
    scene.running = ka.Job(**options, process=broken, retries=0).start()
    page = scene.running.status().page
    # What its driver has isn't asked for: another process is, in the name of the job.
    with watched(scene.group, ray_address()) as lines:
        assert any(" 1 worker " in line for line in lines)  # behind one that says what is waited for
        until(lambda: get(page, "readyz")[0] == 200, 30, "the job to be ready")
    assert get(page, "readyz")[0] == 200, "who watches doesn't stop it"
    scene.under_load()
    until(lambda: get(page, "readyz")[0] == 503, 60, "the job to fail")
    until(lambda: page_status(page)["state"] == "failed", 30, "its end")
    assert re.fullmatch(
        r"the job failed: process failed on .* ValueError: no such country\n", get(page, "readyz")[1]
    )
    entry = [e for e in page_status(page)["timeline"] if e["kind"] == "state"][-1]
    assert entry["text"].startswith("failed: process failed on ")
    scene.running.stop()
    until(lambda: get(page, "healthz")[0] == 0, 20, "the page to go with the job's actor")


@pytest.mark.usefixtures("interruptible")
def test_a_named_job_is_watched_by_its_page_while_another_driver_has_it(scene):
    scene.start(workers=1, name=scene.group, status_address=HERE)
    with watched(scene.group, ray_address()) as lines:
        assert any(" 1 worker " in line for line in lines)  # behind one that says what is waited for
    other = subprocess.run(
        [COMMAND, "top", "nobody"],
        env={**os.environ, **ray_address()},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=slow_s(60),
    )
    assert other.returncode == 2
    assert other.stdout in ("", "waiting for nobody\n"), "that is said where it takes its time"
    assert "no job named 'nobody' runs in this Ray cluster: those with a name are " in other.stderr
    assert scene.group in other.stderr
    with pytest.raises(UsageError, match="runs in its driver: only a detached one can be attached to"):
        ka.Job.attach(scene.group)


def test_an_address_that_is_taken_keeps_the_job_from_starting(scene):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        began = time.monotonic()
        for more in ({}, {"name": scene.group, "detached": True}):
            with pytest.raises(
                ConfigError, match=rf"status_address: {address} can't be listened on: .*in use"
            ):
                scene.start(status_address=address, **more)
        print(f"refused after {time.monotonic() - began:.1f} s")
        scene.running = None


# ---------------------------------------------------------------- out of its group


def test_a_fenced_job_is_not_ready_and_ends_with_the_error(scene):
    running = scene.start(workers=1, status_address=HERE, config={"group_instance_id": "scorer-1"})
    page = running.status().page
    until(lambda: get(page, "readyz")[0] == 200, 30, "the job to be ready")
    other = scene.foreign("cooperative-sticky", group_instance_id="scorer-1")
    until(lambda: get(page, "readyz")[0] == 503, 30, "the job to be not ready")
    until(lambda: page_status(page)["state"] == "failed", 30, "its end")
    status, reason = get(page, "readyz")
    because = f"for group '{scene.group}': group_instance_id 'scorer-1' is in use elsewhere"
    assert status == 503
    assert re.fullmatch(rf"the job failed: .*FENCED_INSTANCE_ID.*{re.escape(because)}.*\n", reason)
    assert get(page, "healthz")[0] == 200, "to be told why, it has to be left alone"
    with pytest.raises(ka.JobFailed, match="FENCED_INSTANCE_ID") as failed:
        running.wait(timeout=slow_s(10))
    assert isinstance(failed.value.cause, FencedInstanceIdError)
    until(lambda: len(other.assigned) == 12, 30, "the other one to have everything")


def test_a_job_that_an_administrator_removes_from_its_group_joins_again(scene):
    running = scene.start(workers=1, status_address=HERE, config={"group_instance_id": "scorer-1"})
    page = running.status().page
    scene.under_load()
    scene.flowing()
    until(lambda: get(page, "readyz")[0] == 200, 30, "the job to be ready")
    before = running.status().group
    # What its worker has in hand can't be committed any more, and comes again.
    scene.forgive(*scene.worker_pids())
    remove_member(scene.cluster.bootstrap_servers, scene.group, "scorer-1")
    answers = []

    def back():
        answers.append(get(page, "readyz"))
        group = running.status().group
        return group.member_id != before.member_id and group.state == "stable" and answers[-1][0] == 200

    until(back, 30, "the job to be a member again")
    told = {reason for status, reason in answers if status != 200}
    print(f"not ready meanwhile: {told or 'never seen'}")
    for reason in told:
        assert re.fullmatch(
            r"the job is not in its group: its member is \w+\n"
            r"|the group's coordinator has acknowledged no heartbeat yet\n"
            # A coordinator that stands still for a moment, as any process may, goes before that.
            r"|the coordinator has not answered for \d+ s \(limit 3 s\)\n",
            reason,
        )
    assert running.status().group.generation > before.generation
    scene.flowing()
    scene.settle()

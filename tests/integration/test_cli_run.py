"""`kafka-actors run` as a user has it: a process of its own, its two streams and its exit code."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

import pytest
from fakes.refusing import refusing_address
from jobs.journal import complete_lines
from waiting import at_pace_s, output_of, slow_s

pytestmark = [pytest.mark.ray, pytest.mark.kafka]

COMMAND = Path(sys.executable).with_name("kafka-actors")
JOB = """
import os
import time

import kafka_actors as ka


class Work:
    def __init__(self):
        self.file = os.open(os.environ["SEEN"] + f"/{os.getpid()}", os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    def __call__(self, batch):
        for partition, offset in zip(batch["partition"].to_pylist(), batch["offset"].to_pylist()):
            os.write(self.file, f"{partition} {offset}\\n".encode())
        time.sleep(float(os.environ.get("WORK_S", 0)))
        if os.environ.get("BAD"):
            raise ValueError("no such country: 'XX'")


def job():
    return ka.Job(
        topics=[os.environ["TOPIC"]],
        group_id="of-the-file",
        bootstrap_servers=os.environ["BOOTSTRAP"],
        process=Work,
        workers=2,
        batch_rows=100,
        retries=0,
        config={"start_timeout_s": 600},
    )
"""


class Shell:
    """Runs the command in a directory of its own, with the job above in `work.py`, on the tests' Ray."""

    def __init__(self, directory: Path, bootstrap: str, topic: str, group: str) -> None:
        import ray

        self.seen = directory / "seen"
        self.seen.mkdir()
        (directory / "work.py").write_text(JOB)
        self._directory = directory
        self._group = group
        # The job file reads its settings where it is loaded; its workers get theirs from the file by value.
        self.job = JOB.replace('os.environ["SEEN"]', repr(str(self.seen)))
        self.environment = {
            **os.environ,
            "RAY_ADDRESS": ray.get_runtime_context().gcs_address,
            "BOOTSTRAP": bootstrap,
            "TOPIC": topic,
            "PYTHONFAULTHANDLER": "1",
        }

    def start(
        self, *arguments: str, work_s: float | str = 0.0, bad: bool = False, named: bool = True, **streams
    ) -> subprocess.Popen:
        """Starts the command. `work_s`: seconds of a call, or an expression of its `batch`."""
        text = self.job.replace('float(os.environ.get("WORK_S", 0))', str(work_s))
        text = text.replace('os.environ.get("BAD")', str(bad))
        if text != (self._directory / "work.py").read_text():  # another run may be reading it
            (self._directory / "work.py").write_text(text)
        return subprocess.Popen(
            [COMMAND, "run", *(("work.py:job", "-g", self._group) if named else ()), *arguments],
            cwd=self._directory,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **streams},
        )

    def run(self, *arguments: str, **more) -> tuple[int, str, str]:
        process = self.start(*arguments, **more)
        out, err = output_of(process, 150)
        return process.returncode, out, err

    def processed(self) -> dict[int, list[int]]:
        """Partition → offsets in the order in which their processing began."""
        found: dict[int, list[int]] = {}
        for file in self.seen.iterdir():
            for row in complete_lines(file):
                partition, offset = map(int, row.split())
                found.setdefault(partition, []).append(offset)
        return found

    def until_processed(self, count: int, process: subprocess.Popen) -> None:
        deadline = time.monotonic() + slow_s(120)
        while sum(map(len, self.processed().values())) < count:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.05)


@pytest.fixture
def shell(ray_local, kafka_cluster, topic, group_id, tmp_path):
    return Shell(tmp_path, kafka_cluster.bootstrap_servers, topic, group_id)


def test_a_bounded_run_ends_by_itself_with_everything_committed(shell, kafka_cluster, topic, group_id):
    code, out, err = shell.run("--until", "latest", "--workers", "3")
    assert (code, err) == (0, "")
    last = out.splitlines()[-1]
    progress = [each for each in out.splitlines() if " records  " in each]
    assert re.fullmatch(r"done: 12,000 records in [\d.]+ s \([\d,]+/s\), 0 restarts", last)
    assert progress
    assert all(re.search(r"  3 workers  .* records  .*/s  lag .*  restarts 0$", each) for each in progress)
    assert "\x1b" not in out
    assert {p: len(o) for p, o in shell.processed().items()} == dict.fromkeys(range(4), 3_000)
    assert kafka_cluster.committed(group_id) == {(topic, p): 3_000 for p in range(4)}


def test_a_file_says_what_to_run_and_how_the_environment_wins_and_a_json_log_has_an_object_a_line(
    shell, kafka_cluster, topic, group_id, tmp_path
):
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "group").write_text(group_id + "\n")
    (tmp_path / "etc" / "job.toml").write_text(
        f"""
        job = "../work.py:job"
        group.id = "${{file:{tmp_path}/etc/group}}"
        until = "latest"
        workers = 1
        """
    )
    shell.environment["KAFKA_ACTORS_WORKERS"] = "3"
    code, out, err = shell.run(
        "-c", "etc/job.toml", "--log-format", "json", "--log-level", "info", named=False
    )
    assert code == 0
    assert out.startswith("done: 12,000 records")
    assert kafka_cluster.committed(group_id) == {(topic, p): 3_000 for p in range(4)}
    records = [json.loads(each) for each in err.splitlines()]
    assert all({"time", "level", "logger", "message"} <= record.keys() for record in records)
    progress = [r for r in records if r["message"] == "progress"]
    assert progress[-1]["workers"] == 3
    assert all(r["waits_for"] for r in progress if r["state"] == "starting")
    assert {"records", "records_per_s", "lag", "restarts"} <= progress[-1].keys()
    events = [r for r in records if r["logger"] == "kafka_actors.events"]
    assert any(r["message"].startswith("PartitionsAssigned") and "pid" in r for r in events)


PIPELINE = """
import os

import kafka_actors as ka


def double(batch):
    return batch


orders = (
    ka.Pipeline.read_kafka("not-there", group_id="of-the-file", bootstrap_servers="nobody:9092", start_timeout_s=600)
    .raw()
    .map_batches(double, schema="key BINARY, value BINARY")
    .write_kafka(OUT, format="columns")
)


def bound():
    return orders.on_ray(workers=1, name=f"of-{GROUP}")
"""


def test_a_pipeline_runs_as_a_job_does_and_its_sink_follows_the_options(
    shell, kafka_cluster, kafka_topic, topic, group_id, tmp_path
):
    """The definition names another cluster, topic and group."""
    out = kafka_topic(1, cluster=kafka_cluster)
    (tmp_path / "pipe.py").write_text(PIPELINE.replace("OUT", repr(out)).replace("GROUP", repr(group_id)))
    (tmp_path / "job.toml").write_text(f'job = "pipe.py:orders"\ntopics = ["{topic}"]\nuntil = "latest"')
    shell.environment["KAFKA_ACTORS_GROUP_ID"] = group_id
    servers = ("-b", kafka_cluster.bootstrap_servers)
    code, shown, err = shell.run("-c", "job.toml", *servers, "--workers", "2", named=False)
    # A producer that is slow to connect says so.
    assert (code, [line for line in err.splitlines() if "trying on:" not in line]) == (0, [])
    assert "  2 workers  " in shown
    assert shown.splitlines()[-1].startswith("done: 12,000 records in ")
    assert kafka_cluster.committed(group_id) == {(topic, p): 3_000 for p in range(4)}
    assert kafka_cluster.end_offsets(out) == {(out, 0): 12_000}
    process = shell.start("-c", "job.toml", "pipe.py:bound", *servers, named=False)
    found, err = output_of(process, 150)
    assert (process.returncode, err) == (0, "")
    assert "  1 worker  " in found
    assert found.splitlines()[-1].startswith("done: 0 records in ")


def test_on_a_terminal_there_is_a_live_view(shell):
    ours, theirs = pty.openpty()
    drawn: list[bytes] = []

    def read() -> None:
        try:
            while piece := os.read(ours, 65_536):
                drawn.append(piece)
        except OSError:  # the other side is closed
            pass

    shell.environment |= {"TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"}
    process = shell.start("--until", "latest", work_s=0.1, stdout=theirs)
    os.close(theirs)
    reader = threading.Thread(target=read)
    reader.start()
    assert process.wait(timeout=slow_s(150)) == 0
    reader.join(slow_s(10))
    os.close(ours)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", b"".join(drawn).decode())
    for shown in (
        "WORKER",
        "RECORDS/S",
        "CURRENT-OFFSET",
        "LOG-END-OFFSET",
        "worker-0",
        "done: 12,000 records",
    ):
        assert shown in text
    assert text.count("RECORDS/S") > 3  # redrawn


def test_a_function_that_raises_is_one_line_with_topic_partition_offsets_and_its_error(shell, topic):
    """Behind the traceback that `--debug` shows."""
    code, _, err = shell.run("--debug", bad=True)
    assert code == 1
    errors = [each for each in err.splitlines() if each.startswith("kafka-actors: error: ")]
    assert errors == [err.splitlines()[-1]]
    assert re.fullmatch(
        rf"kafka-actors: error: process failed on {topic}-\d offsets 0-99 after 1 attempt: "
        r"ValueError: no such country: 'XX'",
        errors[0],
    )
    assert "Traceback (most recent call last)" in err
    assert 'raise ValueError("no such country' in err


def test_a_topic_that_is_written_to_and_is_not_there_ends_a_run_and_is_not_waited_for(shell):
    shell.job = shell.job.replace(
        "workers=2,", 'workers=2, on_error="dead_letter", dead_letter_topic="misspelt",'
    )
    code, _, err = shell.run("-X", "start_timeout_s=600")
    assert code == 1
    said = r"kafka-actors: error: .*misspelt: the dead-letter topic is not there on .*"
    assert re.fullmatch(said, err.splitlines()[-1])


def test_a_topic_that_does_not_exist_and_an_address_where_nobody_answers_are_waited_for_and_named(shell):
    """Two runs at once: most of their time they wait."""
    limit = f"start_timeout_s={max(20.0, at_pace_s(8)):.0f}"
    with refusing_address() as address:
        no_broker = shell.start("-b", address, "-X", limit)
        shell.environment["TOPIC"] = "ordres"
        code, out, err = shell.run("-X", limit)
        assert code == 1
        assert re.search(r"starting  0 of 2 workers ready  waits for topics: UNKNOWN_TOPIC.*\bordres\b", out)
        assert re.fullmatch(r"kafka-actors: error: .*UNKNOWN_TOPIC_OR_PARTITION.*\bordres\b.*\n", err)
        out, err = output_of(no_broker, 150)
    assert no_broker.returncode == 1
    assert re.search(rf"waits for a broker: {address}: can't connect: {address} connection refused", out)
    assert err.startswith("kafka-actors: error: ")
    assert address in err
    assert "connection refused" in err.lower()
    assert err.count("\n") == 1


def test_ctrl_c_ends_a_run_that_waits_for_a_broker(shell):
    """In a session of its own, with Python's own handler, as a foreground process of a terminal has them."""
    with refusing_address() as address:
        process = shell.start(
            *("-b", address, "-X", "start_timeout_s=600"),
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        watchdog = threading.Timer(slow_s(120), process.kill)
        watchdog.start()
        waits = next((line for line in process.stdout if f"waits for a broker: {address}: can't" in line), "")
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        out, err = output_of(process, 120)
        print(f"prompt {time.monotonic() - began:.1f} s after ^C")
        watchdog.cancel()
    assert f"{address}: can't connect" in waits
    assert (process.returncode, out.splitlines()[-1:], err) == (0, ["stopped before it had started"], "")


@pytest.mark.parametrize(
    ("definition", "waits_for"),
    [
        (
            'resources_per_worker={"num_gpus": 1},',
            "a place for worker-0, worker-1: worker-0 needs num_gpus=1",
        ),
        ("", "the constructor of Work in worker-0, worker-1"),
    ],
    ids=["a resource", "a constructor"],
)
def test_what_keeps_a_job_from_starting_is_said_while_it_is_waited_for(shell, definition, waits_for):
    shell.job = shell.job.replace("workers=2,", f"workers=2, {definition}")
    shell.job = shell.job.replace("def __init__(self):", "def __init__(self):\n        time.sleep(600)")
    process = shell.start()
    watchdog = threading.Timer(slow_s(60), process.kill)
    watchdog.start()
    said = next((line for line in process.stdout if waits_for in line), "")
    process.terminate()
    out, err = output_of(process, 30)
    watchdog.cancel()
    assert re.match(r" +[\d.]+ s  starting  0 of 2 workers ready  waits for ", said)
    assert (process.returncode, out.splitlines()[-1]) == (0, "stopped before it had started")
    assert "kafka-actors: error" not in err


def test_a_run_says_where_its_status_page_is_and_a_port_that_is_taken_is_one_line(shell, group_id):
    process = shell.start("--status", ":0", "-X", "drain_timeout_ms=50000", work_s=0.5)
    page = re.compile(r"status page: (http://127\.0\.0\.1:(\d+)/)\n")
    said = next(found for line in process.stdout if (found := page.fullmatch(line)))
    with urllib.request.urlopen(said[1] + "status.json", timeout=slow_s(10)) as answer:
        assert json.load(answer)["group_id"] == group_id
    shell.environment["KAFKA_ACTORS_STATUS"] = f":{said[2]}"
    taken = f"status: localhost:{said[2]} can't be listened on: Address already in use"
    code, _, err = shell.run()
    assert (code, err) == (2, f"kafka-actors: error: {taken} (in KAFKA_ACTORS_STATUS)\n")
    process.terminate()
    out, err = output_of(process, 60)
    assert (process.returncode, err) == (0, "")
    assert out.splitlines()[-1].startswith("stopped: ")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_finishes_and_commits_what_is_in_hand_and_leaves_the_group(
    shell, kafka_cluster, topic, group_id, number
):
    # Calls are quick until the signal is sent. The others would take two minutes: it comes before their end, whoever stands still.
    work = "0.02 if batch['offset'][0].as_py() < 300 else 2.5"
    process = shell.start("-X", "drain_timeout_ms=50000", work_s=work)
    shell.until_processed(1_000, process)
    process.send_signal(number)
    out, err = output_of(process, 30)
    assert (process.returncode, err) == (0, "")
    assert re.match(r"stopped: [\d,]+ records in ", out.splitlines()[-1])
    processed = {(topic, p): len(offsets) for p, offsets in shell.processed().items()}
    assert 1_000 <= sum(processed.values()) < 12_000
    committed = kafka_cluster.committed(group_id)
    assert {partition: offset for partition, offset in committed.items() if offset} == processed
    assert kafka_cluster.describe_group(group_id).state == "Empty"


def test_a_second_signal_ends_at_once(shell):
    limits = ("-X", "rebalance_timeout_ms=600000", "-X", "drain_timeout_ms=500000")
    process = shell.start(*limits, work_s=600)
    watchdog = threading.Timer(slow_s(60), process.kill)
    watchdog.start()
    shell.until_processed(1, process)
    process.terminate()
    said = next((line for line in process.stdout if "SIGTERM: stopping" in line), "")
    time.sleep(1)
    assert process.poll() is None  # it waits for the call in hand
    process.terminate()
    assert process.wait(timeout=slow_s(10)) == -signal.SIGTERM
    watchdog.cancel()
    process.communicate()
    assert said  # two signals before the first is seen would be one

"""Days on which something else than Kafka is short: memory, disk, Ray's object store, and functions and clocks that do as they like. Each job
runs in a process of its own, on a Ray of its own."""

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from waiting import until_ended

LIBFAKETIME = Path(os.environ.get("LIBFAKETIME", "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1"))
"""Library that sets a process's clocks, where Debian's package libfaketime puts it."""
EACH = 40

HEAD = """
import ctypes, os, signal, sys, time
import pyarrow as pa
import ray
import kafka_actors as ka
from kafka_actors.errors import JobFailed

servers, topic, directory = sys.argv[1:4]

def on_ray(**options):
    for tries in (1, 2, 3):
        try:
            ray.init(address="local", num_cpus=4, include_dashboard=False, logging_level="ERROR", **options)
            return
        except Exception:  # Ray gives itself 30 s, on a busy machine too
            ray.shutdown()
            if tries == 3:
                raise

def job(process, **options):
    return ka.Job(topics=[topic], group_id="g", bootstrap_servers=servers, process=process, workers=1,
                  **{"config": {"start_timeout_s": 600}, **options})

class Journal:
    def __init__(self, path=directory + "/journal"):
        self.file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)

    def __call__(self, batch):
        os.write(self.file, b"".join(b"%d:%d\\n" % at for at in zip(batch["partition"].to_pylist(), batch["offset"].to_pylist())))
"""


@pytest.fixture
def day(fake_kafka, tmp_path):
    """Runs a program on a topic of two partitions; it has `HEAD` before it. `day.seen`: the records that its journal has."""
    fake_kafka.create_topic("t", 2)

    class Day:
        kafka = fake_kafka
        started: subprocess.Popen | None = None
        log = tmp_path / "log"

        def produce(self):
            for partition in (0, 1):
                fake_kafka.produce("t", [b"%d" % number for number in range(EACH)], partition=partition)

        def start(self, program, **variables):
            path = tmp_path / "program.py"
            path.write_text(HEAD + textwrap.dedent(program))
            command = [sys.executable, str(path), fake_kafka.bootstrap_servers, "t", str(tmp_path)]
            with self.log.open("wb") as log:
                self.started = subprocess.Popen(
                    command, stdout=log, stderr=subprocess.STDOUT, env={**os.environ, **variables}
                )

        def ends(self, seconds):
            until_ended(self.started, seconds, self.log.read_text)
            return self.log.read_text()

        @property
        def seen(self):
            path = tmp_path / "journal"
            return path.read_text().split() if path.exists() else []

        def all_seen(self, times=1):
            return set(self.seen) == {f"{p}:{offset}" for p in (0, 1) for offset in range(times * EACH)}

    made = Day()
    yield made
    if made.started is not None and made.started.poll() is None:
        made.started.kill()
        made.started.wait()


@pytest.mark.slow
@pytest.mark.ray
def test_a_job_goes_on_while_rays_object_store_is_full(day):
    """Its messages are small, and go from process to process without it."""
    day.produce()
    day.start(
        """
        import numpy
        on_ray(object_store_memory=80 * 2**20, _system_config={"automatic_object_spilling_enabled": False})
        kept = []
        try:
            for _ in range(40):
                kept.append(ray.put(numpy.ones(8 * 2**20, numpy.uint8)))
        except ray.exceptions.ObjectStoreFullError:
            pass
        print("PUT", len(kept), flush=True)
        job(Journal, until="latest").start().wait(timeout=300)
        print("DONE", flush=True)
        """
    )
    log = day.ends(180)
    # Ray puts on in files behind a full store of 80 MiB.
    assert int(log.partition("PUT ")[2].split()[0]) >= 9, log
    assert "DONE" in log
    assert day.all_seen()
    assert day.kafka.committed("g") == day.kafka.end_offsets("t")


@pytest.fixture
def full_disk(tmp_path):
    """A file system of 1 MiB that is nearly full."""
    path = tmp_path / "full"
    path.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", path], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting is not allowed here")
    (path / "other").write_bytes(bytes(1_000_000))
    yield path
    subprocess.run(["umount", "-l", path], check=True)


@pytest.mark.slow
@pytest.mark.ray
def test_a_pipeline_whose_disk_is_full_fails_with_that_and_commits_nothing_that_is_not_written(
    day, full_disk
):
    for partition in (0, 1):
        day.kafka.produce("t", [os.urandom(20_000) for _ in range(EACH)], partition=partition)
    day.start(
        f"""
        on_ray()
        pipeline = ka.Pipeline.read_kafka(topic, group_id="g", bootstrap_servers=servers).write_parquet({str(full_disk)!r})
        try:
            pipeline.on_ray(workers=1, until="latest", config={{"start_timeout_s": 600}}).run()
        except JobFailed as failed:
            print("FAILED", failed, repr(failed.cause), flush=True)
        """
    )
    log = day.ends(180)
    assert "FAILED" in log, log
    assert "No space left on device" in log.partition("FAILED")[2], log
    assert sum(day.kafka.committed("g").values()) == 0, "nothing was written"
    assert list(full_disk.glob("*.parquet")) == []


@pytest.mark.slow
@pytest.mark.ray
def test_a_function_that_leaks_until_there_is_no_memory_ends_the_job_with_that_and_its_place(day):
    """Its process may have 512 MiB more than at the first call. What is not processed is not committed: the next start has it all."""
    day.produce()
    day.start(
        """
        import resource
        on_ray()

        class Leaking(Journal):
            def __init__(self):
                super().__init__()
                self.kept = []

            def __call__(self, batch):
                if batch["partition"][0].as_py() == 0:
                    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
                    resource.setrlimit(resource.RLIMIT_AS, (used + 512 * 2**20, resource.RLIM_INFINITY))
                    try:
                        while True:
                            self.kept.append(bytearray(2**24))
                    finally:
                        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
                super().__call__(batch)

        try:
            job(Leaking, retries=1, until="latest").start().wait(timeout=300)
        except JobFailed as failed:
            print("FAILED", failed, repr(failed.cause.__cause__), flush=True)
        job(Journal, until="latest").start().wait(timeout=300)
        print("DONE", flush=True)
        """
    )
    log = day.ends(240)
    assert "FAILED" in log, log
    failed = log.partition("FAILED ")[2].partition("\n")[0]
    assert "MemoryError" in failed, log
    assert "t-0" in failed, log
    assert "DONE" in log, log
    assert day.all_seen()
    assert day.kafka.committed("g") == day.kafka.end_offsets("t")


@pytest.mark.slow
@pytest.mark.ray
def test_actors_that_ray_ends_for_want_of_memory_are_named_and_replaced_and_the_job_goes_on(day):
    """Ray's memory monitor may take 2 GiB more than is used at the start. It ends whoever came last, and the leaking worker among the last."""
    day.produce()
    day.start(
        """
        def kilobytes(name):
            return next(int(line.split()[1]) for line in open("/proc/meminfo") if line.startswith(name))

        total = kilobytes("MemTotal")
        used = total - kilobytes("MemAvailable")
        os.environ["RAY_memory_usage_threshold"] = str((used + 2**21) / total)
        os.environ["RAY_memory_monitor_refresh_ms"] = "100"
        on_ray()

        class Leaking(Journal):
            def __call__(self, batch):
                mark = directory + "/leaked"
                if batch["partition"][0].as_py() == 0 and not os.path.exists(mark):
                    open(mark, "w").close()
                    kept = []
                    while sum(map(len, kept)) < 2**33:
                        kept.append(bytearray(os.urandom(2**12)) * 2**11)
                        time.sleep(0.02)
                    raise AssertionError("it was not ended")
                super().__call__(batch)

        job(Leaking, retries=5, until="latest").start().wait(timeout=300)
        print("DONE", flush=True)
        """
    )
    log = day.ends(300)
    assert "DONE" in log, log
    said = "worker-0.1 died (its process is gone: ended by Ray, whose memory monitor saw that its node ran low on memory)"
    assert said in log, log
    assert day.all_seen()
    assert day.kafka.committed("g") == day.kafka.end_offsets("t")


@pytest.mark.slow
@pytest.mark.ray
def test_a_function_that_ignores_all_signals_does_not_keep_its_worker_from_ending(day):
    """SIGTERM, SIGINT, SIGHUP and SIGCHLD are ignored in C, where Python hears nothing of it."""
    day.produce()
    day.start(
        """
        on_ray()

        class Spoils(Journal):
            def __call__(self, batch):
                libc = ctypes.CDLL(None)
                for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGUSR1):
                    libc.signal(number, ctypes.c_void_p(1))
                super().__call__(batch)

        running = job(Spoils).start()
        while running.status().totals.lag != 0 or not running.status().records:
            time.sleep(0.1)
        pids = [worker.pid for worker in running.status().workers]
        began = time.monotonic()
        print("STOPPED", running.stop(timeout=20), time.monotonic() - began, flush=True)
        end = time.monotonic() + 60
        while (left := [pid for pid in pids if os.path.exists(f"/proc/{pid}")]) and time.monotonic() < end:
            time.sleep(0.1)
        print("LEFT", left, flush=True)
        """
    )
    log = day.ends(180)
    assert "STOPPED True" in log, log
    assert "LEFT []" in log, log
    assert day.all_seen()
    assert day.kafka.committed("g") == day.kafka.end_offsets("t")


@pytest.mark.slow
@pytest.mark.skipif(not LIBFAKETIME.exists(), reason="Debian's package libfaketime is not installed")
def test_a_clock_that_jumps_by_an_hour_and_back_costs_no_session_and_what_is_refused_names_the_clock(
    day, tmp_path
):
    """The time of day of their process jumps by more than an hour; brokers keep theirs. No rebalance, no lost session, and all that was
    acknowledged is read in order. Brokers refuse timestamps that are an hour ahead (KIP-937): the error says that clocks differ, and the
    producer goes on when they don't."""
    clock = tmp_path / "clock"
    clock.write_text("+0")
    day.start(
        """
        import threading
        from kafka_actors import Consumer, Producer
        from kafka_actors.errors import InvalidTimestampError

        events, refused, wrote, stop = [], [], [], threading.Event()

        def write():
            with Producer(bootstrap_servers=servers) as producer:
                number = 0
                while not stop.is_set():
                    try:
                        producer.send(topic, b"%d" % number, partition=0).result(timeout=60)
                        number += 1
                    except InvalidTimestampError as error:
                        refused.append(str(error))
                    stop.wait(0.02)  # time.sleep is beyond libfaketime
                wrote.append(number)
                print("WROTE", number, flush=True)

        writing = threading.Thread(target=write)
        found = []
        with Consumer(topics=topic, bootstrap_servers=servers, group_id="g", auto_offset_reset="earliest", session_timeout_ms=60_000,
                      heartbeat_interval_ms=500, auto_commit_interval_ms=200, events=lambda event: events.append(type(event).__name__)) as consumer:
            writing.start()
            jumps = ["+0", "+4000", "+0", "-4000", "+0"]
            for jump in jumps:
                with open(directory + "/clock", "w") as clock:
                    clock.write(jump)
                end = time.monotonic() + 4
                while time.monotonic() < end:
                    batch = consumer.poll_batch(timeout_ms=200)
                    if batch is not None:
                        found += [int(value.as_py()) for value in batch["value"]]
                print("JUMPED", jump, round((time.time() - float(os.environ["REAL_NOW"])) / 3600), flush=True)
            stop.set()
            writing.join()
            end = time.monotonic() + 60
            while batch is not None or (len(found) < wrote[0] and time.monotonic() < end):
                batch = consumer.poll_batch(timeout_ms=500)
                if batch is not None:
                    found += [int(value.as_py()) for value in batch["value"]]
        print("REFUSED", len(refused), set(refused), flush=True)
        print("READ", len(found), found == list(range(len(found))), flush=True)
        print("EVENTS", sorted({name: events.count(name) for name in events}.items()), flush=True)
        """,
        LD_PRELOAD=str(LIBFAKETIME),
        FAKETIME_TIMESTAMP_FILE=str(clock),
        FAKETIME_NO_CACHE="1",
        FAKETIME_DONT_FAKE_MONOTONIC="1",
        REAL_NOW=str(time.time()),
    )
    log = day.ends(120)
    assert [line.split()[1:] for line in log.splitlines() if line.startswith("JUMPED")] == [
        ["+0", "0"],
        ["+4000", "1"],
        ["+0", "0"],
        ["-4000", "-1"],
        ["+0", "0"],
    ], log
    assert "WROTE" in log, log
    refused = log.partition("REFUSED ")[2].partition("\n")[0]
    assert int(refused.split()[0]) > 0, log
    assert refused.count("INVALID_TIMESTAMP") == 1, "it is the only error"
    assert "check its clock and the broker's" in refused, log
    wrote = int(log.partition("WROTE ")[2].split()[0])
    assert f"READ {wrote} True" in log, log
    assert "Lost" not in log.partition("EVENTS")[2], log
    assert log.partition("EVENTS")[2].count("'Rebalanced', 1)") == 1, log
    assert day.kafka.committed("g")["t", 0] == wrote

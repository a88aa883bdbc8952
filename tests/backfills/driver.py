"""A driver to be killed: `python -m backfills.driver '{"pattern": …, "kill": "planned", …}'`.

It hands history over to a live job, and kills itself at the moment it is told, if any. A live job runs until there is
a file called `stop`.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from waiting import slow_s, until_ended

ARROWS = ("asked", "planned", "batch", "read", "decided", "handed over", "starting")
"""Places where it may die: before and after the plan is in its file; some time after a micro-batch was planned; behind the
query; before and after the commit; while the job starts."""


def main() -> None:
    from pyspark.sql import SparkSession

    told = json.loads(sys.argv[1])
    directory = Path(told["directory"])
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "768m")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    if told["kill"]:
        arm(told["kill"], directory / "checkpoint", told["seed"])
    backfill = pipeline_of(told).backfill(
        spark, checkpoint=str(directory / "checkpoint"), maxOffsetsPerTrigger=told["limit"], progress=False
    )
    with backfill.then_live(workers=1, progress=False, name=told["group"]) as live:
        print("live", flush=True)
        while not (directory / "stop").exists():
            live.status()
            time.sleep(0.1)


def pipeline_of(told: dict[str, Any]) -> Any:
    import kafka_actors as ka

    read = ka.Pipeline.read_kafka(
        pattern=told["pattern"],
        group_id=told["group"],
        bootstrap_servers=told["servers"],
        isolation_level="read_committed",
        metadata_max_age_ms=1000,
        start_timeout_s=600,
    )
    if told["output"] is None:
        return read.raw().write_kafka(told["topic"], format="columns")
    files = read.raw(text=True).write_parquet(told["output"], kafka=True)
    return files if told["topic"] is None else files.write_kafka(told["topic"], format="columns")


# ---------------------------------------------------------------- dying


def die(*_: Any, **__: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def arm(arrow: str, checkpoint: Path, seed: int) -> None:
    """Puts the end of the process at one place."""
    from kafka_actors.backfill.checkpoint_files import LocalFiles
    from kafka_actors.backfill.handover_brokers import HandoverBrokers
    from kafka_actors.ray import Job
    from kafka_actors.spark import OnSpark

    wait = random.Random(seed).uniform(0.0, 0.6)
    if arrow == "asked":
        LocalFiles.create = die  # type: ignore[assignment]
    elif arrow == "planned":
        LocalFiles.create = and_then(LocalFiles.create, die)  # type: ignore[method-assign]
    elif arrow == "batch":
        # The thread may be late: behind the query nothing is done in which another driver is to be killed.
        OnSpark.run = and_then(OnSpark.run, threading.Event().wait)  # type: ignore[method-assign]
        offsets = checkpoint / "offsets"
        before = set(offsets.glob("[0-9]*"))
        threading.Thread(target=_at_a_batch, args=(offsets, before, wait), daemon=True).start()
    elif arrow == "read":
        OnSpark.run = and_then(OnSpark.run, die)  # type: ignore[method-assign]
    elif arrow == "decided":
        HandoverBrokers.commit = die  # type: ignore[assignment]
    elif arrow == "handed over":
        commit = HandoverBrokers.commit

        async def committed(self: Any, *args: Any, **more: Any) -> None:
            await commit(self, *args, **more)
            die()

        HandoverBrokers.commit = committed  # type: ignore[method-assign]
    elif arrow == "starting":
        start = Job.start

        def starting(self: Any, **more: Any) -> Any:
            threading.Timer(wait, die).start()
            return start(self, **more)

        Job.start = starting  # type: ignore[method-assign]
    else:
        raise ValueError(arrow)


def and_then(call: Callable[..., Any], after: Callable[..., Any]) -> Callable[..., Any]:
    def called(*args: Any, **more: Any) -> None:
        call(*args, **more)
        after()

    return called


def _at_a_batch(offsets: Path, before: set[Path], wait: float) -> None:
    """Between planning, reading, writing and committing."""
    while not set(offsets.glob("[0-9]*")) - before:
        time.sleep(0.01)
    time.sleep(wait)
    die()


# ---------------------------------------------------------------- from the test's side


class Driver:
    """One start of the program."""

    def __init__(self, directory: Path, **told: Any) -> None:
        self.directory = directory
        path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
        self._log = (directory / "driver.log").open("ab")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "backfills.driver", json.dumps({"directory": str(directory), **told})],
            env={
                **os.environ,
                "PYTHONPATH": path,
                "SPARK_LOCAL_IP": "127.0.0.1",
                "RAY_worker_niceness": "0",
            },
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )

    def wait(self, seconds: float) -> int:
        """Waits for its end; returns the exit code. Fails after `seconds` of a quiet machine with its log."""
        try:
            return until_ended(self.process, seconds, self.log)
        finally:
            self._log.close()

    def stop(self) -> int:
        """A live job finishes what it has in hand."""
        (self.directory / "stop").touch()
        return self.wait(60)

    def kill(self) -> None:
        """With all that is in its session, as a test that failed leaves it."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(slow_s(30))

    def log(self) -> str:
        """The end of what all of them said."""
        return (self.directory / "driver.log").read_text(errors="replace")[-6000:]


if __name__ == "__main__":
    main()

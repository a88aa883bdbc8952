"""Runs many schedules of a scenario: `make simulate SEEDS=10000 FIRST=0`, or `python -m simulation.run --scenario group --seeds 100`.

A failing seed is run again with fewer and fewer faults, and printed as a schedule that can be kept in `schedules/`. One seed alone:
`--seeds 1 --first SEED`, with `--log` what clients log; kept schedules: `--schedules FILE …`. The exit status is 1 where one failed. Hashes of
strings are the same in all runs (PYTHONHASHSEED=0), because sets of names decide the order of some requests.
"""

from __future__ import annotations

import argparse
import logging
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType
from typing import Any

import msgspec
import mutants

from .schedule import SCENARIOS, Outcome, Schedule, of_seed, run, shrunk

KEPT = Path(__file__).parent / "schedules"
REAL_LIMIT_S = 120
"""Seconds of real time after which a run counts as one that turns without end, on a slow machine too."""
SHRUNK = 3
"""Failing seeds that are shrunk; a defect that shows in many is one."""


class TurnsWithoutEnd(BaseException):
    """Raised where a run takes too much real time."""


def bounded_run(schedule: Schedule) -> Outcome:
    """Runs a schedule; exceptions are failures, and so is a run that does not end."""

    def too_long(*_: Any) -> None:
        raise TurnsWithoutEnd(f"it did not end in {REAL_LIMIT_S} s of real time")

    before = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(REAL_LIMIT_S)
    try:
        return run(schedule)
    except (Exception, TurnsWithoutEnd) as error:
        text = "".join(traceback.format_exception(error)[-3:])
        return Outcome(schedule.seed, f"{type(error).__name__}: {error}\n{text}", {})
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def kept_schedule(path: Path) -> Schedule:
    """Reads a schedule that was kept."""
    return msgspec.json.decode(path.read_bytes(), type=Schedule)


# ---------------------------------------------------------------- many, in several processes


def outcomes(
    scenario: str, first: int, seeds: int, processes: int, mutant: str | None = None
) -> Iterator[Outcome]:
    """Runs seeds in several processes, and yields their outcomes as they come."""
    command = [sys.executable, "-m", "simulation.run", "--scenario", scenario, "--worker"]
    if mutant is not None:
        command += ["--mutant", mutant]
    workers = [
        subprocess.Popen(
            [*command, "--first", str(first + at), "--seeds", str(seeds), "--step", str(processes)],
            stdout=subprocess.PIPE,
            env=_environment(),
        )
        for at in range(processes)
    ]
    lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    for worker in workers:  # all at once: one whose pipe is full would wait for the others' ends
        threading.Thread(target=_pass_on, args=(worker, lines), daemon=True).start()
    try:
        for _ in workers:
            while (line := lines.get()) is not None:
                yield msgspec.json.decode(line, type=Outcome)
        for worker in workers:
            if worker.wait():
                raise RuntimeError(f"a process of the simulation ended with {worker.returncode}")
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()


def _pass_on(worker: subprocess.Popen[bytes], lines: queue.SimpleQueue[bytes | None]) -> None:
    assert worker.stdout is not None
    for line in worker.stdout:
        lines.put(line)
    lines.put(None)


def _environment() -> dict[str, str]:
    paths = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def work(scenario: str, first: int, seeds: int, step: int) -> None:
    """Runs each `step`-th of so many seeds, and prints each outcome as a line of JSON."""
    for seed in range(first, first + seeds, step):
        outcome = bounded_run(of_seed(scenario, seed))
        sys.stdout.write(msgspec.json.encode(outcome).decode() + "\n")
        sys.stdout.flush()


def take_out(name: str) -> None:
    """Takes a guard out that `tests/mutants.toml` lists, as the product is imported: has a simulation that finds nothing been able to?"""
    mutant = next(mutant for mutant in mutants.listed() if mutant.name == name)
    path = mutants.ROOT / mutant.file

    class Loader(SourceFileLoader):
        def get_code(self, fullname: str) -> CodeType:
            return compile(mutant.changed(path.read_text()), str(path), "exec")

    class Finder(MetaPathFinder):
        def find_spec(self, fullname: str, *_: Any) -> ModuleSpec | None:
            if fullname != mutant.file.removesuffix(".py").replace("/", "."):
                return None
            return spec_from_file_location(fullname, path, loader=Loader(fullname, str(path)))

    sys.meta_path.insert(0, Finder())


# ---------------------------------------------------------------- the report


def table(scenario: str, done: list[Outcome], seconds: float) -> str:
    """The table at the end of a run."""
    sums: Counter[str] = Counter()
    for outcome in done:
        sums.update(outcome.counts)
    count = max(1, len(done))
    lines = [
        f"{scenario}: {len(done)} schedules in {seconds:.0f} s, {1000 * seconds / count:.0f} ms each",
        f"{'':24}{'in all':>12}{'per schedule':>14}",
    ]
    for name, value in sorted(sums.items()):
        lines.append(f"{name:24}{value:12.0f}{value / count:14.1f}")
    failed = [outcome for outcome in done if outcome.failure]
    lines.append(f"{'failed':24}{len(failed):12}")
    lines += [f"  seed {outcome.seed}: {outcome.failure.splitlines()[0]}" for outcome in failed[:20]]
    return "\n".join(lines)


def report(schedule: Schedule, failure: str) -> str:
    """A failing seed, how it is run again, and its shrunk schedule."""
    smaller = shrunk(schedule, lambda fewer: bool(bounded_run(fewer).failure))
    why = bounded_run(smaller).failure or failure
    kept = msgspec.structs.replace(smaller, found=why.splitlines()[0])
    rerun = f"make simulate SCENARIO={schedule.scenario} SEEDS=1 FIRST={schedule.seed}"
    faults = "\n".join(map(str, smaller.faults)) or "  (none is needed)"
    return (
        f"\nseed {schedule.seed} of {schedule.scenario}: {failure}\nagain: {rerun}\n"
        f"{len(smaller.faults)} of its {len(schedule.faults)} faults are needed:\n{faults}\n"
        f"then: {why}\nto keep it, tests/simulation/schedules/NAME.json:\n{msgspec.json.encode(kept).decode()}"
    )


def main() -> int:
    """Runs what the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scenario", choices=[*SCENARIOS, "all"], default="all")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--processes", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--step", type=int, default=1)
    parser.add_argument("--worker", action="store_true")
    parser.add_argument("--log", action="store_true")
    parser.add_argument("--schedules", type=Path, nargs="*", help="files of kept schedules")
    parser.add_argument(
        "--mutant", help="takes a guard of mutants.toml out, and stops at the first seed that notices"
    )
    parser.add_argument("--no-shrink", action="store_true")
    options = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        return subprocess.run(
            [sys.executable, "-m", "simulation.run", *sys.argv[1:]], env=_environment()
        ).returncode
    logging.getLogger("kafka_actors").addHandler(logging.NullHandler())
    if options.log:
        logging.basicConfig(level=logging.DEBUG, format="%(name)s: %(message)s")
    if options.mutant is not None:
        take_out(options.mutant)
    if options.worker:
        work(options.scenario, options.first, options.seeds, options.step)
        return 0
    if options.schedules is not None:
        kept = [bounded_run(kept_schedule(path)) for path in options.schedules]
        lines = [
            f"{path.name}: {outcome.failure or 'holds'}\n"
            for path, outcome in zip(options.schedules, kept, strict=True)
        ]
        sys.stdout.writelines(lines)
        return int(any(outcome.failure for outcome in kept))
    failed = False
    for scenario in list(SCENARIOS) if options.scenario == "all" else [options.scenario]:
        failed |= _simulate(scenario, options)
    return int(failed)


def _simulate(scenario: str, options: argparse.Namespace) -> bool:
    began = time.monotonic()
    alone = options.seeds == 1
    found = (
        iter([bounded_run(of_seed(scenario, options.first))])
        if alone
        else outcomes(scenario, options.first, options.seeds, options.processes, options.mutant)
    )
    done = []
    for outcome in found:
        done.append(outcome)
        if outcome.failure and options.mutant is not None:
            why = outcome.failure.splitlines()[0]
            sys.stdout.write(f"{options.mutant}: seed {outcome.seed}, after {len(done)} schedules: {why}\n")
            return False
        if outcome.failure:
            sys.stderr.write(f"{scenario}: seed {outcome.seed} failed: {outcome.failure.splitlines()[0]}\n")
        if len(done) % 500 == 0:
            failures = sum(bool(outcome.failure) for outcome in done)
            sys.stderr.write(f"{scenario}: {len(done)} done, {failures} failed\n")
    seconds = time.monotonic() - began
    if options.mutant is not None:
        sys.stdout.write(f"{options.mutant}: not found by {len(done)} schedules\n")
        return True
    failed = [outcome for outcome in done if outcome.failure]
    for outcome in failed[: 0 if options.no_shrink else SHRUNK]:
        sys.stdout.write(report(of_seed(scenario, outcome.seed), outcome.failure) + "\n")
    sys.stdout.write(f"\n{table(scenario, done, seconds)}\n")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())

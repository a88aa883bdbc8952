"""Benchmarks: what they measure, and against what, is in benchmarks/targets.py.

    python -m benchmarks                      all of them, with what counts: several hours
    python -m benchmarks consumer job/zstd    some, or single sections
    python -m benchmarks --quick              a smoke run: little data, one round; its figures mean nothing
    python -m benchmarks consumer --profile   where our time goes, by py-spy; measures nothing
    python -m benchmarks check                what fell behind the baseline; exit code 1 if anything did
    python -m benchmarks accept               the latest results become the baseline
    python -m benchmarks tune                 confluent-kafka at several settings
    python -m benchmarks assignors|metadata   seconds that these take for big clusters; options of their own

Results are in benchmarks/results: latest.json, latest.md and latest.svg. Each section keeps its latest results, so the
benchmarks may be run one by one.
"""

from __future__ import annotations

import argparse
import importlib
import sys

from benchmarks import (
    batches,
    consumer,
    exactly_once,
    idle,
    job,
    latency,
    memory,
    messages,
    ordering,
    producer,
    ray_data,
    scale,
    schemas,
    spark,
    start,
    store,
    telemetry,
    transactions,
    tune,
)
from benchmarks.common import RESULTS, Options, Section, run_sections
from benchmarks.profiles import summary
from benchmarks.report import markdown

BENCHMARKS = (
    consumer,
    messages,
    job,
    memory,
    batches,
    scale,
    schemas,
    latency,
    idle,
    start,
    producer,
    transactions,
    exactly_once,
    ordering,
    telemetry,
    spark,
    ray_data,
)
"""In this order, so that topics which several of them read are made once."""
SCRIPTS = ("assignors", "metadata")


def main() -> None:
    if sys.argv[1:2] and sys.argv[1] in SCRIPTS:
        name = sys.argv.pop(1)
        importlib.import_module(f"benchmarks.bench_{name}").main()
        return
    arguments = parsed()
    options = Options.of(arguments)
    if arguments.names == ["check"]:
        sys.exit(store.check())
    if arguments.names == ["accept"]:
        store.accept()
    elif arguments.names == ["tune"]:
        tune.main(options)
    elif options.profile:
        profile(chosen(arguments.names), options)
    else:
        measure(chosen(arguments.names), options)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--rounds", type=int, help=f"default {Options.rounds}")
    parser.add_argument("--seconds", type=float, help=f"at least, of a run; default {Options.seconds:g}")
    parser.add_argument("--clients", nargs="+", help="only these, by the names that they have in the tables")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--profile", action="store_true")
    return parser.parse_args()


def chosen(names: list[str]) -> list[Section]:
    """The sections that are named, or belong to what is named; without a name all of them."""
    known = [section for benchmark in BENCHMARKS for section in benchmark.sections()]
    if not names:
        return known
    for name in names:
        if not any(belongs(section, name) for section in known):
            there_are = ", ".join(dict.fromkeys(section.name for section in known))
            sys.exit(f"no benchmark is called {name!r}: there are {there_are}, {', '.join(SCRIPTS)}, tune")
    return [section for section in known if any(belongs(section, name) for name in names)]


def belongs(section: Section, name: str) -> bool:
    return section.name == name or section.name.startswith(f"{name}/")


def measure(sections: list[Section], options: Options) -> None:
    """Prints each section's report when it is done, and saves its results unless clients are missing from it."""
    for name, result in run_sections(sections, options):
        if not options.clients:
            store.save({name: result}, options)
        print(markdown({name: result}))


def profile(sections: list[Section], options: Options) -> None:
    """Runs under py-spy, and says for each where the time went; the stacks stay in benchmarks/results."""
    RESULTS.mkdir(exist_ok=True)
    before = {path: path.stat().st_mtime_ns for path in RESULTS.glob("profile-*.txt")}
    for _ in run_sections(sections, options):
        pass
    for path in sorted(RESULTS.glob("profile-*.txt")):
        if before.get(path) != path.stat().st_mtime_ns:
            print(f"{path.name}\n\n{summary(path.read_text())}")


if __name__ == "__main__":
    main()

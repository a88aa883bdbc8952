"""Where results lie, all runs of each section: the latest, those of a smoke run, and the baseline that is committed."""

from __future__ import annotations

import json
import sys
from typing import Any

from benchmarks import chart, history, readme
from benchmarks.common import RESULTS, Options, Results
from benchmarks.figures import fallen, figures_of
from benchmarks.report import markdown
from benchmarks.targets import TARGETS

LATEST, QUICK, BASELINE = "latest", "quick", "baseline"
README = RESULTS.parents[1] / "README.md"
PAGES = RESULTS.parents[1] / "docs" / "benchmarks"


def save(results: Results, options: Options) -> None:
    """Puts sections in place of their older results, and writes it all as JSON, Markdown and a chart. A smoke run has
    files of its own."""
    RESULTS.mkdir(exist_ok=True)
    name = QUICK if options.quick else LATEST
    sections = {**load(name), **results}
    write(name, sections)


def load(name: str) -> Results:
    file = RESULTS / f"{name}.json"
    found: Results = json.loads(file.read_text()) if file.exists() else {}
    return found


def write(name: str, sections: Results) -> None:
    (RESULTS / f"{name}.json").write_text(json.dumps(sections, indent=1) + "\n")
    (RESULTS / f"{name}.md").write_text(markdown(sections))
    (RESULTS / f"{name}.svg").write_text(chart.svg(chart.bars_of(sections)))


def figures(name: str) -> dict[str, float]:
    """The figures of what lies under a name, by `Target.key`."""
    found = figures_of(TARGETS, load(name))
    return {target.key: figure.value for target, figure in found.items() if figure is not None}


def accept() -> None:
    """The latest results take the place of the same sections in the baseline, which is committed with its report, its chart,
    the history and its page, and the README's table. Refuses what was measured less than the defaults say."""
    sections = load(LATEST)
    if not sections:
        sys.exit("there are no results to accept: make bench")
    short = [name for name, section in sections.items() if not counts(section)]
    if short:
        sys.exit(f"measured with fewer rounds or seconds than the defaults: {', '.join(short)}")
    accepted = {**load(BASELINE), **sections}
    write(BASELINE, accepted)
    made = readme.table(TARGETS, figures_of(TARGETS, accepted))
    README.write_text(readme.with_table(README.read_text(), made))
    file = RESULTS / "history.jsonl"
    grown = history.with_new(history.read(file), history.entries_of(accepted))
    history.write(file, grown)
    show(grown)


def show(entries: list[history.Entry]) -> None:
    """Writes the page of the history and its plots."""
    (PAGES / "history.md").write_text(history.page(entries))
    (PAGES / "history.svg").write_text(history.svg(entries))


def counts(section: dict[str, Any]) -> bool:
    """Whether a section was measured as long and as often as it has to be."""
    options = section["options"]
    return bool(options["rounds"] >= Options.rounds and options["seconds"] >= Options.seconds)


def check() -> int:
    """Compares the latest figures with the baseline and says what fell. 0: nothing; 1: something; 2: nothing to
    compare."""
    baseline, now = figures(BASELINE), figures(LATEST)
    if not baseline:
        print("there is no baseline: python -m benchmarks accept, after make bench", file=sys.stderr)
        return 2
    missing = [target.what for target in TARGETS if target.key in baseline and target.key not in now]
    if len(missing) == len(baseline):
        print("nothing was measured yet: make bench", file=sys.stderr)
        return 2
    falls = fallen(TARGETS, baseline, now)
    for fall in falls:
        print(f"fell: {fall}")
    for what in missing:
        print(f"not measured: {what}")
    print(f"{len(falls)} of {len(baseline) - len(missing)} figures fell")
    return 1 if falls else 0

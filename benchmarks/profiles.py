"""Where the time went, from py-spy's raw stacks: a pure function over their text."""

from __future__ import annotations

import re
from collections import Counter

TOP = 15
PROCESS = 40


def summary(raw: str, top: int = TOP) -> str:
    """The share of each thread, and of the functions that were running themselves; `raw` has a stack a line, frames
    with semicolons between and the number of samples behind."""
    threads: Counter[str] = Counter()
    leaves: Counter[str] = Counter()
    for line in raw.splitlines():
        stack, _, count = line.rpartition(" ")
        if not stack or not count.isdigit():
            continue
        frames = stack.split(";")
        threads[place_of(frames)] += int(count)
        leaves[frames[-1]] += int(count)
    total = sum(leaves.values())
    if not total:
        return "no samples\n"
    lines = []
    for counts in (threads, leaves):
        lines += [f"{count / total:6.1%}  {name}" for name, count in counts.most_common(top)] + [""]
    return "\n".join(lines)


def place_of(frames: list[str]) -> str:
    """The process and the thread that a stack begins with, without their numbers and arguments: the same thread of one
    run after the other is one. A process of another stands behind that one."""
    process = thread = ""
    for frame in frames:
        found = re.match(r"(process|thread) \(?\w+\)?:?(.*)", frame)
        if not found:
            break
        if found[1] == "process":
            process = found[2].strip(' "')
        else:
            thread = found[2].strip()
    program = re.search(r"benchmarks\.client (\S+)|(\w+\.py)", process)
    return f"{(program[1] or program[2]) if program else process[:PROCESS]} {thread}".strip() or "main"

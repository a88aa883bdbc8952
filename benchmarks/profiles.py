"""Where the time went, from py-spy's raw stacks: a pure function over their text."""

from __future__ import annotations

from collections import Counter

TOP = 15


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
        place = [frame for frame in frames if frame.startswith(("process ", "thread "))]
        threads[" ".join(place) or "all"] += int(count)
        leaves[frames[-1]] += int(count)
    total = sum(leaves.values())
    if not total:
        return "no samples\n"
    lines = []
    for counts in (threads, leaves):
        lines += [f"{count / total:6.1%}  {name}" for name, count in counts.most_common(top)] + [""]
    return "\n".join(lines)

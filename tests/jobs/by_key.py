"""A job whose calls overlap, and a ledger of them: when each call on a record began and ended, in which process."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from kafka_actors.types import TopicPartition

from .journal import complete_lines


class Delivery(NamedTuple):
    """One call on one record. `ended` is None where it `failed`, or the process died in it. Times are CLOCK_MONOTONIC, which processes share."""

    pid: int
    partition: int
    offset: int
    key: str | None
    began: float
    ended: float | None
    failed: float | None = None


class Noting:
    """A `process_message` class that notes the begin and the end of each call in a file of its process: a line is one `write` to a file
    opened for appending, so it survives SIGKILL. Calls last up to `most_s`, by the offset."""

    def __init__(self, directory: str, most_s: float) -> None:
        self._most_s = most_s
        flags = os.O_CREAT | os.O_APPEND | os.O_WRONLY
        self._file = os.open(os.path.join(directory, f"{os.getpid()}-{threading.get_ident()}.calls"), flags)

    def note(self, message, what: str) -> None:
        key = None if message.key is None else message.key.decode()
        line = [what, message.partition, message.offset, key, time.monotonic()]
        os.write(self._file, json.dumps(line).encode() + b"\n")

    def lasts_s(self, message) -> float:
        return random.Random(message.offset).random() * self._most_s


class InTasks(Noting):
    async def __call__(self, message) -> None:
        self.note(message, "began")
        await asyncio.sleep(self.lasts_s(message))
        self.note(message, "ended")


class Waiting(InTasks):
    """Calls on the first record of a partition last until `gate` is there."""

    def __init__(self, directory: str, most_s: float, gate: str) -> None:
        super().__init__(directory, most_s)
        self._gate = Path(gate)

    async def __call__(self, message) -> None:
        self.note(message, "began")
        while message.offset == 0 and not await asyncio.to_thread(self._gate.exists):  # noqa: ASYNC110  another process says so
            await asyncio.sleep(0.05)
        self.note(message, "ended")


class Failing(InTasks):
    """Calls on one record of `every` fail once or twice, by its offset, whichever process makes them."""

    def __init__(self, directory: str, most_s: float, every: str) -> None:
        super().__init__(directory, most_s)
        self._every = int(every)
        self._tries = os.path.join(directory, "{}-{}.tries")

    async def __call__(self, message) -> None:
        self.note(message, "began")
        await asyncio.sleep(self.lasts_s(message))
        chance = random.Random(message.offset)
        if chance.randrange(self._every) == 0:
            path = self._tries.format(message.partition, message.offset)
            with open(path, "ab", buffering=0) as file:  # noqa: ASYNC230  a byte
                file.write(b"x")
            if os.path.getsize(path) <= chance.randint(1, 2):  # noqa: ASYNC240  as quick
                self.note(message, "failed")
                raise ValueError("no good")
        self.note(message, "ended")


class InThreads(Noting):
    def __call__(self, message) -> None:
        self.note(message, "began")
        time.sleep(self.lasts_s(message))
        self.note(message, "ended")


def noting(kind: type[Noting], directory: Path, most_s: float = 0.02, *more: str) -> Callable[[], Noting]:
    """Returns the class bound to a directory: one made in a function travels by value."""
    directory.mkdir(parents=True, exist_ok=True)
    where = str(directory)

    class Bound(kind):
        def __init__(self) -> None:
            super().__init__(where, most_s, *more)

    return Bound


def deliveries(directory: Path) -> list[Delivery]:
    """Returns all calls, by their begin. Of two calls on one record at once in one process the first ends first."""
    found = []
    for path in directory.glob("*.calls"):
        pid, open_ = int(path.name.partition("-")[0]), defaultdict(list)
        for line in complete_lines(path):
            what, partition, offset, key, at = json.loads(line)
            if what == "began":
                open_[partition, offset].append(Delivery(pid, partition, offset, key, at, None))
            else:
                found.append(open_[partition, offset].pop(0)._replace(**{what: at}))
        found += itertools.chain(*open_.values())
    return sorted(found, key=lambda call: call.began)


def missing(calls: list[Delivery], ends: dict[TopicPartition, int]) -> dict[int, list[int]]:
    """Returns the offsets that no call has ended on, by partition."""
    done = defaultdict(set)
    for call in calls:
        if call.ended is not None:
            done[call.partition].add(call.offset)
    left = {tp.partition: sorted(set(range(end)) - done[tp.partition]) for tp, end in ends.items()}
    return {partition: offsets for partition, offsets in left.items() if offsets}


def out_of_order(calls: list[Delivery]) -> list[tuple[Delivery, Delivery]]:
    """Returns pairs of first deliveries of one key in one partition of which the later record began before the earlier one had ended."""
    first: dict[tuple[int, int], Delivery] = {}
    ended: dict[tuple[int, int], float] = {}
    for call in calls:
        first.setdefault((call.partition, call.offset), call)
        if call.ended is not None:
            at = call.partition, call.offset
            ended[at] = min(ended.get(at, call.ended), call.ended)
    chains = defaultdict(list)
    for call in first.values():
        if call.key is not None:
            chains[call.partition, call.key].append(call)
    found = []
    for chain in chains.values():
        chain.sort(key=lambda call: call.offset)
        for before, after in itertools.pairwise(chain):
            if after.began < ended[before.partition, before.offset]:
                found.append((before, after))
    return found


def repeated(calls: list[Delivery]) -> list[tuple[Delivery, Delivery]]:
    """Returns each delivery that came again, with the one before it."""
    last: dict[tuple[int, int], Delivery] = {}
    found = []
    for call in calls:
        at = call.partition, call.offset
        if at in last:
            found.append((last[at], call))
        last[at] = call
    return found


def without_reason(
    calls: list[Delivery],
    faults: dict[int, list[float]],
    committed: Mapping[int, Sequence[float]],
    slack_s: float,
) -> list[Delivery]:
    """Returns the deliveries that came again though nothing allows that: in a process that was never hit before, or on a record that was committed
    more than `slack_s`, the time of an answer, before that. `faults`: when each process was hit; `committed`: when each record was committed, by
    partition and offset."""

    def lost(before: Delivery, hit: float) -> bool:
        at = committed.get(before.partition, ())
        return before.offset >= len(at) or at[before.offset] >= hit - slack_s

    return [
        before
        for before, after in repeated(calls)
        if not any(hit < after.began and lost(before, hit) for hit in faults.get(before.pid, ()))
    ]

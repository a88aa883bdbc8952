"""A job with a policy, simulated second by second: records come in, workers start late and work at a pace."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable

from kafka_actors.job import Autoscale
from kafka_actors.job.supervisor.machines.load import Observation, PartitionLoad
from kafka_actors.job.supervisor.machines.scaling import ScalingDecision, WorkerCount
from kafka_actors.types import TopicPartition

Shape = Callable[[float], float]
"""Seconds since the start → records a second that come in, over all partitions."""


class Worker:
    """`up_at`: when it is ready. `owed`: work of a call that has not ended yet."""

    def __init__(self, name: str, up_at: float) -> None:
        self.name = name
        self.up_at = up_at
        self.busy_s = 0.0
        self.owed = 0.0


class SimulatedJob:
    """One job. `pace`: records that a worker does in a second; `limit`: what all together can do at most.

    `start_s`: how long a new worker takes to be ready. `call_s`: how long a call lasts: only its end shows what was
    done. `overhead_s`: what a call costs that has little to do. `share`: the part of what comes in that goes to
    the first partition, instead of the same to all.
    """

    def __init__(
        self,
        autoscale: Autoscale,
        shape: Shape,
        *,
        partitions: int = 12,
        pace: float = 1_000.0,
        limit: float = float("inf"),
        start_s: float = 3.0,
        call_s: float = 0.0,
        overhead_s: float = 0.0,
        share: float | None = None,
        noise: float = 0.0,
        seed: int = 0,
    ) -> None:
        self.autoscale = autoscale
        self.scaling = WorkerCount(autoscale)
        self.shape = shape
        self.partitions = [TopicPartition("orders", p) for p in range(partitions)]
        self.pace, self.limit = pace, limit
        self.start_s, self.call_s, self.overhead_s = start_s, call_s, overhead_s
        self.share = share
        self.noise = noise
        self.random = random.Random(seed)
        self.now = 0.0
        self.reading = True
        self.ends = dict.fromkeys(self.partitions, 0.0)
        self.done = dict.fromkeys(self.partitions, 0.0)
        self.decisions: list[ScalingDecision] = []
        self.most = self.scaling.workers
        self.worst_age = 0.0
        self._names = 0
        self._history: deque[tuple[float, dict[TopicPartition, float]]] = deque()
        self.workers = [self._new(0.0) for _ in range(self.scaling.workers)]

    def _new(self, start_s: float) -> Worker:
        self._names += 1
        return Worker(f"worker-{self._names}", self.now + start_s)

    @property
    def lag(self) -> float:
        return sum(self.ends.values()) - sum(self.done.values())

    def run(self, seconds: float) -> list[ScalingDecision]:
        """Returns the decisions of this time."""
        before = len(self.decisions)
        for _ in range(round(seconds)):
            self.second()
        return self.decisions[before:]

    def second(self) -> None:
        self._arrive()
        self._work()
        self.now += 1.0
        decision = self.scaling.observe(self.observation(), self.now)
        if decision is not None:
            self.decisions.append(decision)
            self._scale(decision.after)
        self.most = max(self.most, self.scaling.workers)
        self.worst_age = max(self.worst_age, self.age())

    def observation(self) -> Observation:
        return Observation(
            {
                p: PartitionLoad(int(self.ends[p]), int(self.done[p]), not self.reading)
                for p in self.partitions
            },
            {w.name: w.busy_s for w in self.ready},
            len(self.workers),
            len(self.ready),
        )

    @property
    def ready(self) -> list[Worker]:
        return [w for w in self.workers if w.up_at <= self.now]

    def _scale(self, workers: int) -> None:
        self.workers = self.workers[:workers]
        self.workers += [self._new(self.start_s) for _ in range(workers - len(self.workers))]

    def _arrive(self) -> None:
        rate = self.shape(self.now)
        others = len(self.partitions) - 1
        for number, partition in enumerate(self.partitions):
            part = 1 / len(self.partitions)
            if self.share is not None:
                part = self.share if number == 0 else (1 - self.share) / others
            self.ends[partition] += rate * part
        self._history.append((self.now, dict(self.ends)))

    def _work(self) -> None:
        if not self.reading:
            return
        ready = self.ready
        pace = min(self.pace, self.limit / max(1, len(ready)))
        if self.noise:
            pace *= 1 + self.random.uniform(-self.noise, self.noise)
        for number, worker in enumerate(ready):
            own = self.partitions[number :: len(ready)]
            self._one_second(worker, own, pace)

    def _one_second(self, worker: Worker, own: list[TopicPartition], pace: float) -> None:
        waiting = sum(self.ends[p] - self.done[p] for p in own)
        if waiting < 1:
            return
        worker.busy_s += min(1.0, waiting / pace + self.overhead_s)
        worker.owed += pace
        if worker.owed < min(waiting, pace * self.call_s):
            return
        left, worker.owed = worker.owed, 0.0
        for partition in sorted(own, key=lambda p: self.done[p] - self.ends[p]):
            took = min(left, self.ends[partition] - self.done[partition])
            self.done[partition] += took
            left -= took

    def age(self) -> float:
        """Seconds since the oldest record came in that is not processed."""
        while self._history and all(self.done[p] >= end - 1 for p, end in self._history[0][1].items()):
            self._history.popleft()
        return self.now - self._history[0][0] if self._history else 0.0

    def flaps(self) -> list[tuple[ScalingDecision, ScalingDecision]]:
        """Two decisions in opposite directions within the time that lies between them at least."""
        return [
            (a, b)
            for a, b in zip(self.decisions, self.decisions[1:], strict=False)
            if a.after > a.before
            and b.after < b.before
            and b.at - a.at < self.autoscale.downscale_delay_seconds
        ]

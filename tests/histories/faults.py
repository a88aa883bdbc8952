"""Faults at random, several at once: of brokers, of connections to them, of clients, and of a job's actors."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

from fakes.proxy import Proxy

from kafka_actors.protocol import ApiKey
from kafka_actors.testing import KafkaCluster

from .clients import Client
from .history import Fault, now

if TYPE_CHECKING:
    from .soak import Soak

MOST_FAULTS = 3
"""So many at once."""
Steps = Iterator[float]
"""A fault: yields after its beginning the seconds for which it lasts, and ends it when it is resumed."""


KEPT = (
    ApiKey.PRODUCE,
    ApiKey.FETCH,
    ApiKey.OFFSET_COMMIT,
    ApiKey.HEARTBEAT,
    ApiKey.JOIN_GROUP,
    ApiKey.SYNC_GROUP,
)
"""Requests whose answers get lost."""


class ProxiedCluster(KafkaCluster):
    """Three brokers with a proxy each, which clients of a second listener see in its place."""

    def __init__(self) -> None:
        super().__init__(3, listeners={"PROXIED": "PLAINTEXT"})
        self.proxies = {broker: Proxy() for broker in self.broker_ids}

    @property
    def proxied(self) -> str:
        """Addresses for clients."""
        return ",".join(proxy.address for proxy in self.proxies.values())

    def start(self) -> KafkaCluster:
        super().start()
        for broker, proxy in self.proxies.items():
            proxy.forward_to(*self.address(broker, "PROXIED"))
        return self

    def _listening(self, broker: int) -> dict[str, str]:
        own = super()._listening(broker)
        *others, _ = own["advertised.listeners"].split(",")
        own["advertised.listeners"] = ",".join([*others, f"PROXIED://{self.proxies[broker].address}"])
        return own


class Faults:
    """Begins and ends the faults of a run."""

    def __init__(self, run: Soak, rng: random.Random) -> None:
        self._run = run
        self._rng = rng
        self._held: set[str] = set()
        """Victims of a fault that lasts."""

    def go_on(self, seconds: float) -> None:
        """Lets faults begin and end until the time is over, and ends those that last."""
        kinds = self._kinds()
        names, weights = list(kinds), [weight for weight, _ in kinds.values()]
        lasting: list[tuple[float, Steps]] = []
        end, following = time.monotonic() + seconds, time.monotonic() + 5
        while time.monotonic() < end:
            if time.monotonic() >= following and len(lasting) < MOST_FAULTS:
                name = self._rng.choices(names, weights)[0]
                steps = kinds[name][1](name)
                with suppress(StopIteration):
                    lasting.append((time.monotonic() + next(steps), steps))
                following = time.monotonic() + self._rng.uniform(0.5, 5)
            for due, steps in list(lasting):
                if time.monotonic() >= due:
                    lasting.remove((due, steps))
                    next(steps, None)
            self._run.look_after_clients()
            time.sleep(0.1)
        for _, steps in lasting:
            next(steps, None)
        self._run.cluster.heal()

    def _kinds(self) -> dict[str, tuple[int, Callable[[str], Steps]]]:
        """Each kind of fault, with how often it is to come compared with the others."""
        kinds: dict[str, tuple[int, Callable[[str], Steps]]] = {
            "broker killed": (3, self._kill_broker),
            "broker stopped": (3, self._stop_broker),
            "leaders elected": (2, self._elect),
            "partitions reassigned": (1, self._reassign),
            "connections cut": (2, self._spoil),
            "connections lost": (2, self._spoil),
            "answers delayed": (2, self._spoil),
            "answers kept": (2, self._spoil),
            "answers trickle": (2, self._spoil),
        }
        for kind in ("ours", "confluent", "consumer", "async"):
            kinds[f"{kind} killed"] = (1, self._kill_client)
            kinds[f"{kind} stopped"] = (2, self._stop_client)
            kinds[f"{kind} left"] = (1, self._end_client)
        for kind in ("worker", "coordinator", "connection", "metadata"):
            kinds[f"{kind} killed"] = (1, self._kill_actor)
            kinds[f"{kind} stopped"] = (1, self._stop_actor)
        return kinds

    def _note(self, kind: str, victim: object) -> None:
        print(f"{time.strftime('%H:%M:%S')} {kind}: {victim}", flush=True)
        self._run.own.write(Fault(now(), kind, str(victim)))

    def _kill_broker(self, kind: str) -> Steps:
        if (broker := self._broker()) is not None:
            self._note(kind, broker)
            self._run.cluster.kill(broker)
            yield self._rng.uniform(0.5, 12)
            self._run.cluster.restart(broker, wait=False)
            self._held.discard(f"broker {broker}")

    def _stop_broker(self, kind: str) -> Steps:
        if (broker := self._broker()) is not None:
            self._note(kind, broker)
            self._run.cluster.pause(broker)
            yield self._rng.uniform(0.5, 12)
            self._run.cluster.resume(broker)
            self._held.discard(f"broker {broker}")

    def _broker(self) -> int | None:
        """One that runs; None where two are held already: the last one goes on."""
        left = [b for b in self._run.cluster.broker_ids if f"broker {b}" not in self._held]
        if len(left) == 1:
            return None
        broker = self._rng.choice(left)
        self._held.add(f"broker {broker}")
        return broker

    def _spoil(self, kind: str) -> Steps:
        """Something is wrong with the network between clients and one broker."""
        broker = self._rng.choice(self._run.cluster.broker_ids)
        if f"proxy {broker}" in self._held:
            return
        proxy, seconds = self._run.cluster.proxies[broker], self._rng.uniform(0.5, 10)
        self._held.add(f"proxy {broker}")
        self._note(kind, f"broker {broker}")
        with ExitStack() as spoilt:
            if kind == "connections cut":
                proxy.cut_connections()
            elif kind == "connections lost":
                proxy.lose_connections()
            elif kind == "answers delayed":
                spoilt.enter_context(proxy.delaying(self._rng.uniform(0.05, 3), *ApiKey))
            elif kind == "answers kept":
                spoilt.enter_context(proxy.keeping(*self._rng.sample(KEPT, 2)))
            else:
                spoilt.enter_context(proxy.trickling(self._rng.randint(1, 200)))
            yield seconds
        self._held.discard(f"proxy {broker}")

    def _elect(self, kind: str) -> Steps:
        self._note(kind, "preferred")
        self._tool("LeaderElectionCommand", "--election-type", "preferred", "--all-topic-partitions")
        yield 0.0

    def _reassign(self, kind: str) -> Steps:
        """Gives each partition two or three replicas in another order, of which the first is preferred as leader."""
        brokers: tuple[int, ...] = self._run.cluster.broker_ids
        wanted = {p: self._rng.sample(brokers, self._rng.choice([2, 3])) for p in range(self._run.partitions)}
        self._note(kind, wanted)
        file = self._run.directory / "reassignment.json"
        partitions = [{"topic": self._run.topic, "partition": p, "replicas": r} for p, r in wanted.items()]
        file.write_text(json.dumps({"version": 1, "partitions": partitions}))
        self._tool("reassign.ReassignPartitionsCommand", "--execute", "--reassignment-json-file", str(file))
        yield self._rng.uniform(1, 3)
        yield from self._elect("leaders elected")

    def _tool(self, name: str, *arguments: str) -> None:
        """Kafka's own tool; where brokers are gone it may fail, and says so."""
        servers = ("--bootstrap-server", self._run.cluster.bootstrap_servers)
        try:
            self._run.cluster.tool(f"org.apache.kafka.tools.{name}", *servers, *arguments, timeout=20)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            said = [line for note in getattr(error, "__notes__", []) for line in note.splitlines()]
            print(f"{name}: {type(error).__name__}", *[line for line in said if line.startswith("Error")][:1])

    def _client(self, kind: str) -> Client | None:
        """One of this kind of fault's kind that runs and is not held."""
        prefix = f"{kind.split()[0]}-"
        running = [
            c
            for name, c in self._run.clients.items()
            if name.startswith(prefix) and name not in self._held | self._run.gone and c.alive
        ]
        return self._rng.choice(running) if running else None

    def _kill_client(self, kind: str) -> Steps:
        if (client := self._client(kind)) is not None:
            self._note(kind, client.name)
            self._run.forget(client)
            client.kill()
            yield self._rng.uniform(0, 5)
            self._run.add(client.kind)

    def _end_client(self, kind: str) -> Steps:
        if (client := self._client(kind)) is not None:
            self._note(kind, client.name)
            client.ask_to_end()
            self._run.gone.add(client.name)
            yield self._rng.uniform(0, 5)
            self._run.add(client.kind)

    def _stop_client(self, kind: str) -> Steps:
        if (client := self._client(kind)) is not None:
            self._note(kind, client.name)
            self._held.add(client.name)
            client.process.send_signal(signal.SIGSTOP)
            yield self._rng.uniform(0.5, 15)
            client.process.send_signal(signal.SIGCONT)
            self._held.discard(client.name)

    def _actor(self, kind: str) -> tuple[str, int] | None:
        assert self._run.scene is not None
        running = sorted(self._run.scene.pids(kind.split()[0]).items())
        return self._rng.choice(running) if running else None

    def _kill_actor(self, kind: str) -> Steps:
        if (actor := self._actor(kind)) is not None:
            self._note(kind, actor[0])
            with suppress(ProcessLookupError):
                os.kill(actor[1], signal.SIGKILL)
            yield 1.0

    def _stop_actor(self, kind: str) -> Steps:
        if (actor := self._actor(kind)) is not None:
            self._note(kind, actor[0])
            with suppress(ProcessLookupError):
                os.kill(actor[1], signal.SIGSTOP)
            yield self._rng.uniform(0.5, 15)
            with suppress(ProcessLookupError):
                os.kill(actor[1], signal.SIGCONT)

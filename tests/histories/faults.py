"""Faults at random, several at once: of brokers, topics, connections to brokers, clients, and a job's actors."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
from fakes.proxy import Proxy
from waiting import at_pace_s, slow_s

from kafka_actors.protocol import ApiKey
from kafka_actors.testing import KafkaCluster

from .clients import Client
from .history import Fault, now
from .losses import STEADY, TOPICS, Steps

if TYPE_CHECKING:
    from .soak import Soak

MOST_FAULTS = 3
"""So many at once."""
PROCESSES = ("producer", "async_producer", "confluent", "consumer", "async_consumer", "spark")
"""Kinds of clients that are killed, stopped, and asked to leave."""
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
        # The files of topics that are deleted are kept to the end: they say what was in them.
        kept = {"log.segment.delete.delay.ms": 86_400_000}
        super().__init__(3, listeners={"PROXIED": "PLAINTEXT"}, broker_config=kept, start_timeout=slow_s(60))
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

    def elect(self, partitions: Mapping[str, Sequence[int]], *, unclean: bool) -> None:
        """Sends ElectLeaders v1 to a broker that answers soon; what comes of it, metadata says. Kafka's own tool takes a JVM for it."""
        body = struct.pack(">bi", unclean, len(partitions))
        for topic, which in partitions.items():
            body += struct.pack(">h", len(topic)) + topic.encode()
            body += struct.pack(f">i{len(which)}i", len(which), *which)
        request = struct.pack(">hhih", 43, 1, 1, -1) + body + struct.pack(">i", 5_000)
        for broker in self.broker_ids:
            with suppress(OSError), socket.create_connection(self.address(broker), timeout=2) as connection:
                connection.sendall(struct.pack(">i", len(request)) + request)
                if connection.recv(4):
                    return

    def try_tool(self, name: str, *arguments: str) -> None:
        """Kafka's own tool; where brokers are gone it may fail, and says so."""
        servers = ("--bootstrap-server", self.bootstrap_servers)
        try:
            self.tool(f"org.apache.kafka.tools.{name}", *servers, *arguments, timeout=at_pace_s(20))
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            said = [line for note in getattr(error, "__notes__", []) for line in note.splitlines()]
            print(f"{name}: {type(error).__name__}", *[line for line in said if line.startswith("Error")][:1])

    def dumped(self, files: Sequence[Path]) -> dict[Path, dict[int, str]]:
        """The records of segments of logs, by their offsets, as Kafka's own tool reads them."""
        found: dict[Path, dict[int, str]] = {file: {} for file in files}
        if files:
            joined = ",".join(map(str, files))
            tool = self.tool(
                "kafka.tools.DumpLogSegments", "--print-data-log", "--files", joined, timeout=slow_s(60)
            )
            for line in tool.stdout.splitlines():
                if line.startswith("Dumping "):
                    own = found[Path(line.removeprefix("Dumping "))]
                elif said := re.match(r"\| offset: (\d+) .* payload: (.*)", line):
                    own[int(said[1])] = said[2]
        return found

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
        self._lasting: list[tuple[float, Steps]] = []
        """Faults that have begun, with the moments at which they go on."""
        self._held: set[str] = set()
        """Victims of a fault that lasts."""

    def go_on(self, seconds: float) -> None:
        """Lets faults begin and end until the time is over, and ends those that last."""
        kinds = self._kinds()
        names, weights = list(kinds), [weight for weight, _ in kinds.values()]
        end, following = time.monotonic() + seconds, time.monotonic() + 5
        while (more := time.monotonic() < end) or self._lasting:
            if more and time.monotonic() >= following and len(self._lasting) < MOST_FAULTS:
                name = self._rng.choices(names, weights)[0]
                self._go(kinds[name][1](name))
                following = time.monotonic() + self._rng.uniform(0.5, 5)
            for due, steps in list(self._lasting):
                if time.monotonic() >= due:
                    self._lasting.remove((due, steps))
                    self._go(steps)
            self._run.look_after_clients()
            time.sleep(0.1)
        self._run.cluster.heal()

    def _go(self, steps: Steps) -> None:
        with suppress(StopIteration):
            self._lasting.append((time.monotonic() + next(steps), steps))

    def _kinds(self) -> dict[str, tuple[int, Callable[[str], Steps]]]:
        """Each kind of fault, with how often it is to come compared with the others."""
        kinds: dict[str, tuple[int, Callable[[str], Steps]]] = {
            "broker killed": (3, self._kill_broker),
            "broker stopped": (3, self._stop_broker),
            "leaders elected": (2, self._elect),
            "partitions reassigned": (1, self._reassign),
            "connections cut": (2, self._spoil),
            "connections lost": (2, self._spoil),
            "connections holed": (2, self._spoil),
            "answers delayed": (2, self._spoil),
            "answers kept": (2, self._spoil),
            "answers trickle": (2, self._spoil),
            "leader elected uncleanly": (3, self._elect_uncleanly),
            "topic made anew": (3, self._make_anew),
            "records deleted": (3, self._delete_records),
            "spark python worker killed": (2, self._kill_python_worker),
        }
        for kind in PROCESSES:
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
            elif kind == "connections holed":
                spoilt.enter_context(proxy.holing())
            elif kind == "answers delayed":
                spoilt.enter_context(proxy.delaying(self._rng.uniform(0.05, 3), *ApiKey))
            elif kind == "answers kept":
                spoilt.enter_context(proxy.withholding(*self._rng.sample(KEPT, 2)))
            else:
                spoilt.enter_context(proxy.trickling(self._rng.randint(1, 200)))
            yield seconds
        self._held.discard(f"proxy {broker}")

    def _elect(self, kind: str) -> Steps:
        self._note(kind, "preferred")
        self._run.cluster.elect({topic: range(count) for topic, count in TOPICS.items()}, unclean=False)
        yield 0.0

    def _reassign(self, kind: str) -> Steps:
        """Gives each partition two or three replicas in another order, of which the first is preferred as leader."""
        brokers: tuple[int, ...] = self._run.cluster.broker_ids
        wanted = {p: self._rng.sample(brokers, self._rng.choice([2, 3])) for p in range(TOPICS[STEADY])}
        self._note(kind, wanted)
        file = self._run.directory / "reassignment.json"
        partitions = [{"topic": STEADY, "partition": p, "replicas": r} for p, r in wanted.items()]
        file.write_text(json.dumps({"version": 1, "partitions": partitions}))
        tool = threading.Thread(
            target=self._run.cluster.try_tool,
            args=(
                "reassign.ReassignPartitionsCommand",
                *("--execute", "--reassignment-json-file", str(file)),
            ),
        )
        tool.start()
        while tool.is_alive():  # other faults go on
            yield 0.3
        yield self._rng.uniform(1, 3)
        yield from self._elect("leaders elected")

    def _elect_uncleanly(self, kind: str) -> Steps:
        def hold(broker: int, held: bool) -> None:
            (self._held.add if held else self._held.discard)(f"broker {broker}")

        if self._all_brokers_free():
            yield from self._run.losses.elect_uncleanly(lambda victim: self._note(kind, victim), hold)

    def _make_anew(self, kind: str) -> Steps:
        if self._all_brokers_free() and "topic" not in self._held:
            self._held.add("topic")
            yield from self._run.losses.make_anew(lambda victim: self._note(kind, victim))
            self._held.discard("topic")

    def _delete_records(self, kind: str) -> Steps:
        if self._all_brokers_free():
            yield from self._run.losses.delete_records(lambda victim: self._note(kind, victim))

    def _all_brokers_free(self) -> bool:
        return not any(f"broker {broker}" in self._held for broker in self._run.cluster.broker_ids)

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
            left = psutil.Process(client.pid).children(recursive=True)
            client.kill()
            yield self._rng.uniform(0, 5)
            for process in left:  # Spark's JVM and its workers, if they have not seen it yet
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            self._run.add(client.kind)

    def _kill_python_worker(self, kind: str) -> Steps:
        """Kills a Python process in which Spark plans, reads or waits for work."""
        if (client := self._client(kind)) is not None:
            with suppress(psutil.NoSuchProcess):
                below = psutil.Process(client.pid).children(recursive=True)
                workers = [process for process in below if "python" in process.name()]
                if workers:
                    victim = self._rng.choice(workers)
                    self._note(kind, f"{victim.pid} of {client.name}")
                    victim.kill()
            yield 1.0

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

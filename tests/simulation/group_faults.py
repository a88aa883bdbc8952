"""Faults of the scenario `group`: what a seed makes of them, and how each is carried out."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from kafka_actors.testing.fake_kafka import (
    AnswerWithError,
    ChangeResponse,
    Delay,
    DropConnection,
    Hold,
    LoseResponse,
    Repeat,
    Throttle,
)
from kafka_actors.testing.fake_kafka.machines.error_answers import error_response
from kafka_actors.types import TopicPartition

from .schedule import Fault, Schedule

if TYPE_CHECKING:
    from .group_scenario import GroupRun

FAULTS_UNTIL_S = 15.0
"""The longest time for which there are faults."""
SECONDS = {4.0: 5, 6.0: 3, FAULTS_UNTIL_S: 1}
"""Times for which there are faults, and how often: short runs find most, and many of them are made."""
ERRORS = {
    "FindCoordinator": (15,),
    "JoinGroup": (14, 15, 16, 25, 27),
    "SyncGroup": (14, 15, 16, 22, 25, 27),
    "Heartbeat": (14, 15, 16, 22, 25, 27),
    "OffsetCommit": (7, 14, 15, 16, 25, 27),
    "OffsetFetch": (7, 14, 16),
    "Metadata": (7,),
    "Fetch": (3, 6, 74, 75, 78, 100, 103),
    "ListOffsets": (3, 5, 6, 7, 75),
    "Produce": (3, 6, 7, 19, 20),
    "InitProducerId": (14, 15, 7),
}
"""Errors that brokers may answer with at any time, by API."""
BEHIND_AN_APPEND = ("Produce", 7), ("Produce", 20)
"""Errors of a request that was carried out, by API: the leader has the records, and waits for replicas in vain (`DelayedProduce`)."""
TRANSACTION_ERRORS = {
    "AddPartitionsToTxn": (14, 15, 16, 51),
    "EndTxn": (14, 15, 16, 51),
    "InitProducerId": (14, 15, 16, 51),
}
"""Errors by API where producers write in transactions, beside and in place of those of `ERRORS`."""
APIS = (*ERRORS, "OffsetForLeaderEpoch", "LeaveGroup", "ApiVersions")
TREATED = (
    "answer with error",
    "lose response",
    "drop request",
    "delay response",
    "answer twice",
    "throttle",
    "hold request",
)
"""Kinds that happen to single requests of an API."""
WEIGHTS = {
    "hole": 3,
    "hold": 6,
    "slow": 2,
    "cut": 2,
    "cut response": 3,
    "kill member": 3,
    "freeze member": 3,
    "stall member": 2,
    "leave": 2,
    "join": 2,
    "kill broker": 3,
    "move leader": 3,
    "move coordinator": 3,
    "recreate topic": 2,
    "truncate": 2,
    "truncate unseen": 2,
    "seek back": 3,
    "add partitions": 1,
    "answer with error": 4,
    "lose response": 4,
    "drop request": 2,
    "delay response": 2,
    "answer twice": 2,
    "throttle": 2,
    "hold request": 2,
    "delete records": 2,
    "move transaction coordinator": 1,
}
NOT_IN_TRANSACTIONS = frozenset({"truncate", "truncate unseen"})
"""Kinds after which a transaction may stay open for good, on Kafka too: its end can be among what was lost."""


def schedule_of(seed: int) -> Schedule:
    """Returns the schedule of a seed; its faults are in the order of their times."""
    random = Random(f"faults {seed}")
    (seconds,) = random.choices(list(SECONDS), list(SECONDS.values()))
    count = random.randint(2, 12) if seconds == FAULTS_UNTIL_S else random.randint(1, int(seconds))
    kinds = random.choices(list(WEIGHTS), list(WEIGHTS.values()), k=count)
    transactions = random.random() < 0.25
    faults = sorted(
        (_fault(random, kind, seconds, transactions) for kind in kinds), key=lambda fault: fault.at
    )
    kept = tuple(f for f in faults if not (transactions and f.kind in NOT_IN_TRANSACTIONS))
    return Schedule("group", seed, kept, seconds, transactions)


def _fault(random: Random, kind: str, seconds: float, transactions: bool) -> Fault:
    at = round(random.uniform(0.5, seconds), 2)
    anybody = random.choice(["", *(f"m{number}" for number in range(1, 5)), "p1", "p2"])
    errors = {**ERRORS, **TRANSACTION_ERRORS} if transactions else ERRORS
    name = random.choice(list(errors) if kind == "answer with error" else [*APIS, *errors])
    number = random.choice(errors[name]) if kind == "answer with error" else random.randint(0, 60)
    return Fault(
        at,
        kind,
        who=anybody
        if kind in ("hole", "hold", "slow", "cut", "cut response")
        else f"m{random.randint(1, 4)}",
        node=random.randint(0, 3),
        seconds=round(random.choice([0.3, 1, 2, 4, 7, 11, 16]) * random.uniform(0.5, 1.2), 2),
        number=number,
        name=name if kind in TREATED else "",
    )


class FaultHands:
    """Carries out faults. Those that make no sense at the time, such as a kill of one that is dead, do nothing."""

    def __init__(self, run: GroupRun) -> None:
        self._run = run
        self._kafka = run.kafka
        self._network = run.world.network
        self._down: dict[int, float] = {}

    def carry_out(self, fault: Fault) -> None:
        """Carries out one fault, or begins with it."""
        run, kafka, network = self._run, self._kafka, self._network
        network.note("fault", str(fault))
        nodes = list(kafka.broker_ids)
        node = nodes[fault.node % len(nodes)]
        member = run.member(fault.who)
        client = (member.client if member is not None else fault.who) or None
        somewhere = None if fault.node == 0 else node
        match fault.kind:
            case "hole":
                network.hole(fault.seconds, client=client, node=somewhere)
            case "hold":
                network.hold(fault.seconds, client=client, node=somewhere)
            case "slow":
                network.slow(fault.seconds, 0.5, client=client, node=somewhere)
            case "cut":
                network.cut(client=client, node=somewhere)
            case "cut response":
                network.cut(client=client, node=somewhere, after_bytes=fault.number)
            case "kill member" if member is not None:
                run.kill(member, back_after_s=fault.seconds)
            case "freeze member" if member is not None:
                run.freeze(member, fault.seconds)
            case "stall member" if member is not None:
                member.stall_s = 2 * fault.seconds
            case "seek back" if member is not None:
                member.seek_back = 1 + fault.number % 10
            case "leave" if member is not None:
                run.leave(member, back_after_s=fault.seconds)
            case "join":
                run.join()
            case "kill broker" if len(nodes) > 1:
                kafka.kill(node)
                run.later(fault.seconds, lambda: self._restart(node, new_port=fault.number % 2 == 0))
            case kind if kind in TREATED:
                self._treat(fault)
            case _:
                self._change(fault, nodes, node)

    def _restart(self, node: int, *, new_port: bool) -> None:
        if node not in self._kafka.broker_ids:
            self._kafka.restart(node, new_port=new_port)

    def _treat(self, fault: Fault) -> None:
        actions = {
            "answer with error": _error(fault),
            "lose response": LoseResponse(fault.number % 20),
            "drop request": DropConnection(),
            "delay response": Delay(min(fault.seconds, 6.0)),
            "answer twice": Repeat(),
            "throttle": Throttle(int(fault.seconds * 200)),
            "hold request": Hold(),
        }
        self._run.rules.append(self._kafka.on(fault.name, actions[fault.kind], times=1 + fault.number % 3))

    def _change(self, fault: Fault, nodes: list[int], node: int) -> None:
        run, kafka = self._run, self._kafka
        topic = run.topics[fault.number % len(run.topics)]
        leaders = kafka.leaders(topic)
        tp = TopicPartition(topic, fault.number % len(leaders))
        match fault.kind:
            case "move leader":
                kafka.set_leader(*tp, node)
            case "move coordinator":
                kafka.set_coordinator(run.GROUP, node)
            case "move transaction coordinator":
                kafka.set_transaction_coordinator(f"p{1 + fault.number % 2}", node)
            case "delete records":
                run.checks.index(tp)
                kafka.delete_records(*tp, (kafka.end_offsets(topic)[tp] + 1) // 2)
            case "recreate topic":
                for partition in leaders:
                    run.checks.index(TopicPartition(topic, partition))
                run.checks.recreated.add(topic)
                kafka.recreate_topic(topic)
            case "truncate":
                self._truncate(tp, 1 + fault.number % 8)
            case "truncate unseen":
                # Members hear of it when other records are there already.
                self._network.hole(2.0, clients=[m.client for m in run.members])
                self._truncate(tp, 1 + fault.number % 2)
            case "add partitions":
                # With ZooKeeper a topic with replicas on all brokers gets no partitions while one is down.
                if len(leaders) < 6 and (len(nodes) == run.plan.brokers or run.plan.release != "2.8"):
                    kafka.add_partitions(topic, len(leaders) + 1)

    def _truncate(self, tp: TopicPartition, records: int) -> None:
        checks, kafka = self._run.checks, self._kafka
        checks.index(tp)
        end = kafka.end_offsets(tp.topic)[tp]
        if end:
            kafka.truncate(*tp, max(0, end - records))  # whole batches go
            checks.truncated(tp, kafka.end_offsets(tp.topic)[tp])


def _error(fault: Fault) -> AnswerWithError | ChangeResponse:
    if (fault.name, fault.number) not in BEHIND_AN_APPEND:
        return AnswerWithError(fault.number)
    return ChangeResponse(lambda call, _: error_response(call.request, call.version, fault.number))

"""Repeated questions to brokers: when they are asked, and what is known without an answer."""

import asyncio

from fakes.loop import turns, turns_until

from kafka_actors.base.tasks import OwnedTasks
from kafka_actors.errors import NoBrokersAvailable
from kafka_actors.job.coordinator import broker_queries
from kafka_actors.job.coordinator.broker_queries import RETRY_S, LogEnds, RepeatedQuery
from kafka_actors.types import TopicPartition

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_ends_are_asked_for_while_somebody_wants_them_and_a_fetch_may_know_more():
    asked = []

    async def ask(partitions):
        asked.append(set(partitions))
        if len(asked) == 2:
            raise NoBrokersAvailable("none")
        return {P0: 10 * len(asked)}

    async def scenario():
        wanted = {P0, P1}
        ends, tasks = LogEnds(ask, lambda: wanted), OwnedTasks(failed.append)
        ends.set_interval(None, tasks)
        assert ends.latest(P0, None) is None
        ends.set_interval(0.0, tasks)
        ends.set_interval(0.0, tasks)
        await turns(50)
        assert len(asked) >= 3
        assert ends.latest(P0, 7) >= 30
        assert ends.latest(P0, 10_000) == 10_000
        assert ends.latest(P1, None) is None
        assert ends.latest(P1, 0) == 0
        ends.set_interval(None, tasks)
        count = len(asked)
        await turns(50)
        assert len(asked) <= count + 1
        assert ends.latest(P0, 5) == 5
        ends.set_interval(0.0, tasks)
        await turns(10)
        assert len(asked) > count
        tasks.cancel()

    failed = []
    asyncio.run(scenario())
    assert failed == []
    assert all(of == {P0, P1} for of in asked)


def test_a_question_that_nobody_answered_is_put_again_soon_however_seldom_it_is_asked(monkeypatch):
    pauses = []

    async def pause(event, seconds):
        pauses.append(seconds)
        await asyncio.sleep(0)

    async def ask():
        if len(pauses) < 2:
            raise NoBrokersAvailable("none")
        return 7

    async def scenario():
        question, tasks = RepeatedQuery("the answer", ask, None), OwnedTasks(failed.append)
        question.set_interval(30.0, tasks)
        await turns_until(lambda: question.answer is not None)
        await turns(2)
        assert pauses[:3] == [RETRY_S, RETRY_S, 30.0]
        question.set_interval(None, tasks)
        await turns(5)
        assert question.answer is None, "what nobody follows is not known"

    failed = []
    monkeypatch.setattr(broker_queries, "woken", pause)
    asyncio.run(scenario())
    assert failed == []

"""The state that the parts of a supervisor share is made of the job's plan."""

from __future__ import annotations

from typing import Any

from fakes.loop import in_loop, turns
from fakes.runtime import FakeRuntime

from kafka_actors.job.messages import CallInHand
from kafka_actors.job.supervisor.context import SupervisorContext
from kafka_actors.ray import Job
from kafka_actors.types import TopicPartition


def context(failures: list[BaseException], **options: Any) -> SupervisorContext:
    plan = Job(topics=["t"], group_id="g", bootstrap_servers="h:1", process=print, **options).plan()
    return SupervisorContext(plan, FakeRuntime(), lambda: 100.0, failures.append)


@in_loop
async def test_its_parts_follow_the_plan() -> None:
    made = context([], workers=3, retries=1)
    assert made.scaling.workers == 3
    call = CallInHand(TopicPartition("t", 0), 5, 9)
    died = [one for _ in range(2) for one in made.deaths.count([call], "exit code 3")]
    assert made.deaths.describe(died[-1:]).endswith("try 2 of 2"), "as many as the plan has retries"
    assert (made.job_start, made.stopping, made.started.done()) == (None, False, False)
    status = made.report.shown()
    assert (status.state, status.group_id, status.workers) == ("starting", "g", [])


@in_loop
async def test_a_task_that_fails_ends_the_job_and_one_that_is_cancelled_does_not() -> None:
    failures: list[BaseException] = []
    made = context(failures)

    async def fails() -> None:
        raise ValueError("a defect")

    made.tasks.create_task(fails())
    made.tasks.create_task(turns(1_000))
    await turns(3)
    await made.tasks.ended()
    assert [str(error) for error in failures] == ["a defect"]

"""A checked job definition, as its supervisor and actors read it."""

from __future__ import annotations

import logging
import pickle
from typing import Any

from kafka_actors.job.plan import JobPlan
from kafka_actors.ray import Job


def process(batch: Any) -> None:
    """Function of a user."""


def plan(**options: Any) -> JobPlan:
    return Job(topics="t", group_id="g", bootstrap_servers="h:1", process=process, **options).plan()


def test_an_actor_logs_under_its_role_and_incarnation() -> None:
    setup = plan(name="orders").setup("worker-2", 3)
    assert (setup.origin.group, setup.origin.job, setup.origin.actor, setup.origin.incarnation) == (
        "g",
        "orders",
        "worker-2",
        3,
    )
    assert setup.log_level == logging.WARNING


def test_intervals_of_the_supervision_are_the_options_in_seconds() -> None:
    timings = plan(
        config={
            "ping_interval_ms": 500,
            "ping_timeout_ms": 2_000,
            "start_timeout_s": 90,
            "max_poll_interval_ms": 60_000,
        }
    ).timings
    assert (timings.ping_interval, timings.ping_timeout) == (0.5, 2.0)
    assert (timings.start_timeout, timings.max_poll_interval) == (90, 60.0)


def test_a_worker_without_a_capacity_of_its_own_counts_as_one() -> None:
    made = plan(workers=3, config={"worker_capacity": {1: 2}})
    assert [made.capacity_of(worker) for worker in range(3)] == [1.0, 2.0, 1.0]


def test_what_a_plan_is_printed_as_shows_no_option() -> None:
    """Ray prints an argument that it can't send, and variables of a worker's environment are where secrets are."""
    made = plan(name="orders", resources_per_worker={"runtime_env": {"env_vars": {"API_KEY": "hush-hush"}}})
    assert repr(made) == "<JobPlan g orders>"
    assert repr(plan()) == "<JobPlan g>"


def test_a_plan_travels_to_the_job_actor() -> None:
    made = plan(name="orders", status_address=":0")
    copy = pickle.loads(pickle.dumps(made))
    assert (copy.name, copy.status_address, copy.config) == (made.name, made.status_address, made.config)

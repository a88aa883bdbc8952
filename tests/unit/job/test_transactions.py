"""Transactional ids of a job: which job and which role one is of."""

from kafka_actors.job.transactions import TransactionalIds, prefix_of


def test_ids_begin_with_the_group_and_those_of_other_jobs_are_not_taken_for_own_ones():
    ids = TransactionalIds(prefix_of("orders", "nightly"), 60_000, named=True)
    assert ids.of("worker-3").startswith("orders-nightly-")
    assert ids.role(ids.of("worker-3")) == "worker-3"
    others = [
        TransactionalIds(prefix_of(*job), 60_000, named=True)
        for job in (("orders", "night"), ("orders", "nightly-2"))
    ]
    assert [ids.role(other.of("worker-3")) for other in others] == [None, None]
    assert [ids.role(f"{ids.prefix}-{rest}") for rest in ("worker-x", "worker", "coordinator-1")] == [
        None
    ] * 3


def test_a_name_that_goes_on_where_another_group_ends_is_no_name_of_that_group():
    assert prefix_of("orders-eu", "nightly") != prefix_of("orders", "eu-nightly")

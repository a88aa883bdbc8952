"""The lease: earlier than the session's end whatever the delays."""

from kafka_actors.job.machines.lease import Lease, granted


def test_nothing_is_granted_before_the_first_acknowledged_heartbeat():
    assert granted(100.0, None, 45.0) == 0.0


def test_the_lease_counts_from_when_the_heartbeat_was_sent_and_keeps_a_margin():
    assert granted(now=103.0, acknowledged_sent_at=100.0, session_timeout_s=10.0) == 6.0


def test_past_the_session_nothing_is_granted():
    assert granted(now=200.0, acknowledged_sent_at=100.0, session_timeout_s=10.0) == 0.0


def test_the_worker_counts_from_when_it_asked():
    lease = Lease()
    assert not lease.valid(0.0)
    lease.renew(polled_at=50.0, seconds=6.0)
    assert lease.valid(55.9)
    assert not lease.valid(56.0)
    assert lease.remaining(54.0) == 2.0


def test_a_late_answer_does_not_shorten_a_newer_lease():
    lease = Lease()
    lease.renew(polled_at=60.0, seconds=6.0)
    lease.renew(polled_at=50.0, seconds=6.0)
    assert lease.valid(65.0)


def test_a_coordinator_that_has_no_group_renews_nothing_and_ends_nothing():
    lease = Lease()
    lease.renew(polled_at=50.0, seconds=6.0)
    lease.renew(polled_at=52.0, seconds=0.0)
    assert lease.valid(55.0)
    assert not lease.valid(56.0)


def test_a_frozen_coordinator_stops_its_workers_before_the_session_ends():
    """The heartbeat was sent at 100, the session is 10 s: at 110 the broker gives the partitions away."""
    session, sent_at = 10.0, 100.0
    lease = Lease()
    for polled_at in (100.5, 102.0, 104.9):
        answered_at = polled_at + 0.05
        lease.renew(polled_at, granted(answered_at, sent_at, session))
    assert not lease.valid(sent_at + session)
    assert lease.until <= sent_at + session * 0.9

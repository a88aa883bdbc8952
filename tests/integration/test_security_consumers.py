"""The consumer and the job over SASL_SSL: the whole way, with sessions that are renewed meanwhile."""

import json
import logging
import os
import time
from pathlib import Path

import psutil
import pytest
from fakes.secure import PASSWORD, RENEW_MS, USER, add_scram_user, remove_scram_user, unsecured_token
from fakes.token_endpoint import TokenEndpoint
from jobs.journal import Journal, Recorder
from jobs.scene import Load
from pace import this_run
from waiting import slow_s, until

import kafka_actors as ka
from kafka_actors.errors import SaslAuthenticationFailedError, SslAuthenticationError
from kafka_actors.testing.produce import Produce

pytestmark = pytest.mark.kafka

LOADED_S = float(os.environ.get("KAFKA_ACTORS_TEST_SASL_S", "45"))
"""Seconds under load of connections that are renewed every second or so."""
WARM_S = 7.0
"""By then every connection has been needed: commits begin after five seconds."""


@pytest.fixture
def options(secure):
    kafka, files = secure
    return {
        "bootstrap_servers": kafka.bootstrap("RENEW"),
        "security_protocol": "SASL_SSL",
        "ssl_cafile": files.ca,
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": USER,
        "sasl_plain_password": PASSWORD,
    }


def test_a_consumer_reads_and_commits_over_renewed_sessions(secure, options, produce, group_id):
    kafka, _ = secure
    topic = kafka.create_topic(f"t-{group_id}", partitions=3)
    values = [b"%d" % n for n in range(3_000)]
    seen = []
    with ka.Consumer([topic], group_id=group_id, auto_offset_reset="earliest", **options) as consumer:
        for chunk in range(4):  # over several sessions
            part = values[chunk * 750 : (chunk + 1) * 750]
            produce(topic, part, bootstrap_servers=kafka.bootstrap_servers)
            end = time.monotonic() + RENEW_MS / 1000
            while len(seen) < (chunk + 1) * 750 or time.monotonic() < end:
                batch = consumer.poll_batch(timeout_ms=200)
                if batch is not None:
                    seen += batch.column("value").to_pylist()
        consumer.commit()
    assert sorted(seen) == sorted(values)
    assert kafka.committed(group_id) == kafka.end_offsets(topic)


@pytest.mark.slow
@pytest.mark.timeout(900 + LOADED_S)
def test_the_same_connections_serve_a_consumer_under_load_over_many_sessions(
    secure, options, group_id, caplog
):
    kafka, _ = secure
    topic = kafka.create_topic(f"s-{group_id}", partitions=3)
    port, seen, changes = int(options["bootstrap_servers"].rpartition(":")[2]), 0, []
    load = Load(kafka.bootstrap_servers, topic, 3)
    with ka.Consumer([topic], group_id=group_id, auto_offset_reset="earliest", **options) as consumer:

        def read(enough):
            nonlocal seen
            while not enough():
                batch = consumer.poll_batch(timeout_ms=100)
                seen += 0 if batch is None else batch.num_rows

        load.start()
        warm = time.monotonic() + WARM_S
        read(lambda: seen > 1000 and time.monotonic() > warm)
        first = ports(port)
        end = time.monotonic() + LOADED_S
        while time.monotonic() < end:
            second = time.monotonic() + 1
            read(lambda until=second: time.monotonic() > until)
            changes += [now] if (now := ports(port)) != first else []
        sent = load.stop()
        read(lambda: seen >= sent)
        consumer.commit()
    print(f"{sent} records over {len(first)} connections, {LOADED_S * 1000 / RENEW_MS:.0f} sessions of each")
    assert first
    assert changes == []
    assert seen == sent
    assert kafka.committed(group_id) == kafka.end_offsets(topic)
    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING] == []


def ports(port):
    """Our ends of this process' connections to a port."""
    connections = psutil.Process().net_connections("tcp")
    return {
        c.laddr.port for c in connections if c.raddr and c.raddr.port == port and c.status == "ESTABLISHED"
    }


def test_a_consumer_whose_user_is_removed_meanwhile_ends_with_that(secure, options, group_id):
    kafka, _ = secure
    topic = kafka.create_topic(f"r-{group_id}")
    add_scram_user(kafka, "guest", PASSWORD)
    options["sasl_plain_username"] = "guest"
    with ka.Consumer([topic], group_id=group_id, **options) as consumer:
        consumer.poll_batch(timeout_ms=2_000)
        remove_scram_user(kafka, "guest")
        with pytest.raises(SaslAuthenticationFailedError):
            _poll_for(consumer, slow_s(40))


def test_a_password_that_is_rotated_in_its_file_is_used_by_a_running_consumer(
    secure, options, group_id, tmp_path
):
    """The broker's comes first: until the file has it, sessions can't be renewed and new connections are refused."""
    kafka, _ = secure
    topic, user, file = kafka.create_topic(f"p-{group_id}"), f"u-{group_id}", tmp_path / "password"
    add_scram_user(kafka, user, "the old hush")
    file.write_text("the old hush\n")
    options |= {"sasl_plain_username": user, "sasl_plain_password": f"${{file:{file}}}"}
    with ka.Consumer([topic], group_id=group_id, auto_offset_reset="earliest", **options) as consumer:
        _produce_and_read(consumer, kafka, topic, b"before")
        add_scram_user(kafka, user, "the new hush")
        _poll_for(consumer, 2 * RENEW_MS / 1000)
        file.write_text("the new hush\n")
        _produce_and_read(consumer, kafka, topic, b"behind")


def test_a_running_consumer_outlives_a_token_endpoint_that_is_away(secure, options, group_id, tmp_path):
    kafka, files = secure
    topic = kafka.create_topic(f"o-{group_id}")

    def answers(seconds):
        def fresh(_):
            return 200, {}, json.dumps({"access_token": unsecured_token(seconds), "expires_in": seconds})

        return [fresh]

    with TokenEndpoint(tmp_path) as endpoint:
        authorities = tmp_path / "authorities.pem"
        authorities.write_text(Path(files.ca).read_text() + Path(endpoint.ca).read_text())
        options |= {
            "ssl_cafile": str(authorities),
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_plain_username": None,
            "sasl_plain_password": None,
            "sasl_oauthbearer_token_endpoint_url": endpoint.url,
            "sasl_oauthbearer_client_credentials_client_id": group_id,
            "sasl_oauthbearer_client_credentials_client_secret": "hush",
        }
        endpoint.answers = answers(12)
        with ka.Consumer([topic], group_id=group_id, auto_offset_reset="earliest", **options) as consumer:
            _produce_and_read(consumer, kafka, topic, b"before")
            endpoint.answers = [(503, {}, "")]
            _poll_for(consumer, 13)  # longer than the token holds
            endpoint.answers = answers(60)
            _produce_and_read(consumer, kafka, topic, b"behind")


def _produce_and_read(consumer, kafka, topic, value):
    Produce(kafka.bootstrap_servers)(topic, [value])
    end, seen = time.monotonic() + slow_s(30), []
    while value not in seen and time.monotonic() < end:
        batch = consumer.poll_batch(timeout_ms=200)
        seen += [] if batch is None else batch["value"].to_pylist()
    assert value in seen


def _poll_for(consumer, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        consumer.poll_batch(timeout_ms=200)


def test_a_consumer_with_a_wrong_password_fails_at_once(options, group_id):
    began = time.monotonic()
    wrong = {**options, "sasl_plain_password": "wrong-hush"}
    with (
        pytest.raises(SaslAuthenticationFailedError) as caught,
        ka.Consumer(["t"], group_id=group_id, **wrong) as consumer,
    ):
        consumer.poll_batch(timeout_ms=60_000)
    assert "hush" not in str(caught.value)
    assert this_run().quiet_s(began, time.monotonic()) < 30


@pytest.mark.slow
@pytest.mark.ray
def test_a_job_over_sasl_ssl(secure, options, ray_local, produce, group_id, tmp_path):
    kafka, _ = secure
    topic = kafka.create_topic(f"j-{group_id}", partitions=6)
    produce(topic, [b"%d" % n for n in range(12_000)], bootstrap_servers=kafka.bootstrap_servers)
    journal = Journal(tmp_path / "journal")
    directory = str(journal.directory)

    class Bound(Recorder):
        def __init__(self):
            super().__init__(directory)

    job = ka.Job(
        topics=[topic],
        group_id=group_id,
        bootstrap_servers=options.pop("bootstrap_servers"),
        process=Bound,
        workers=2,
        config=options,
    )
    assert PASSWORD not in repr(job.config)
    ends = kafka.end_offsets(topic)
    with job.start() as running:
        assert PASSWORD not in repr(running.status())
        until(lambda: kafka.committed(group_id) == ends, 60, "everything committed", 0.2)
        time.sleep(2 * RENEW_MS / 1000)
        produce(topic, [b"%d" % n for n in range(6_000)], bootstrap_servers=kafka.bootstrap_servers)
        ends = kafka.end_offsets(topic)
        until(lambda: kafka.committed(group_id) == ends, 60, "everything committed", 0.2)
    assert journal.missing(ends) == {}
    assert journal.duplicates() == {}


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.parametrize("what", ["password", "certificate"])
def test_a_job_that_is_refused_does_not_start(secure, options, ray_local, group_id, what):
    _, files = secure
    servers = options.pop("bootstrap_servers")
    if what == "password":
        options["sasl_plain_password"] = "wrong-hush"
    else:
        options["ssl_cafile"] = files.other_ca
    job = ka.Job(
        topics=["t"], group_id=group_id, bootstrap_servers=servers, process=lambda batch: None, config=options
    )
    kind = SaslAuthenticationFailedError if what == "password" else SslAuthenticationError
    with pytest.raises(kind) as caught:
        job.start()
    assert "hush" not in str(caught.value)

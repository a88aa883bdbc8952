"""Mistakes that no waiting mends are said before Ray is started."""

import logging
import socket

import pytest
from fakes.refusing import refusing_address
from waiting import at_pace_s, slow_s

from kafka_actors.errors import AuthenticationError, ConfigError, NoBrokersAvailable
from kafka_actors.ray import Job

pytestmark = pytest.mark.ray
start = pytest.importorskip("kafka_actors.ray.start")


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """A mistake is said at once; the check does not end before that, whoever stands still."""
    monkeypatch.setattr(start, "LOOK_S", slow_s(10))


@pytest.fixture
def waited_out(monkeypatch, patient):
    """The check ends as it does for users, after the time in which brokers have to answer."""
    monkeypatch.setattr(start, "LOOK_S", max(2.0, at_pace_s(2)))


def config(servers="h:1", **options):
    return Job(topics="t", group_id="g", bootstrap_servers=servers, process=print, config=options).config


def test_a_reference_that_leads_nowhere():
    login = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "sasl_plain_username": "u"}
    with pytest.raises(ConfigError, match=r"sasl_plain_password: refers to \$\{env:NO_SUCH\}"):
        start.check_cluster(config(**login, sasl_plain_password="${env:NO_SUCH}"))


def unresolved(monkeypatch, number):
    def fails(*args, **named):
        raise socket.gaierror(number, "said the resolver")

    monkeypatch.setattr(socket, "getaddrinfo", fails)


def test_a_host_that_nobody_knows(monkeypatch):
    unresolved(monkeypatch, socket.EAI_NONAME)
    with pytest.raises(NoBrokersAvailable, match=r"h:1: the name can't be resolved: said the resolver"):
        start.check_cluster(config())


def test_a_name_that_no_host_can_have():
    with pytest.raises(
        NoBrokersAvailable, match=r"a\.\.b:1: the name can't be resolved: it is not a valid host name"
    ):
        start.check_cluster(config("a..b:1"))


def test_a_resolver_that_is_down_is_waited_for(waited_out, monkeypatch, caplog):
    unresolved(monkeypatch, socket.EAI_AGAIN)
    with caplog.at_level(logging.WARNING):
        start.check_cluster(config())
    assert [r.getMessage() for r in caplog.records] == [
        "no broker answers yet: h:1: the name can't be resolved: said the resolver"
    ]


def test_a_port_where_nobody_listens_is_waited_for_and_said(waited_out, caplog):
    with refusing_address() as address, caplog.at_level(logging.WARNING):
        start.check_cluster(config(address))
    (record,) = caplog.records
    assert f"{address}: can't connect" in record.getMessage()
    assert "connection refused" in record.getMessage()


def test_one_unknown_host_among_several_is_waited_for(waited_out, caplog):
    with caplog.at_level(logging.WARNING):
        start.check_cluster(config("a..b:1,127.0.0.1:1"))
    assert "it is not a valid host name; 127.0.0.1:1" in caplog.text


def test_a_port_that_speaks_no_tls(fake_kafka):
    with pytest.raises(AuthenticationError, match="does not speak TLS"):
        start.check_cluster(config(fake_kafka.bootstrap_servers, security_protocol="SSL"))

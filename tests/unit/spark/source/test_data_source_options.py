"""`kafka.*` options as they stand in people's jobs: Java's security options and references to secrets."""

import pickle

import pytest

from kafka_actors.errors import ConfigError
from kafka_actors.spark.source.data_source_options import ClientOptions
from kafka_actors.spark.source.options import parse_batch, parse_stream

JAAS = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="{}";'
SECURE = {
    "kafka.bootstrap.servers": "localhost:9092",
    "kafka.security.protocol": "SASL_PLAINTEXT",
    "kafka.sasl.mechanism": "SCRAM-SHA-512",
    "kafka.sasl.jaas.config": JAAS.format("hush"),
}


def test_a_login_module_is_read_for_both_clients() -> None:
    for config in (ClientOptions(SECURE).consumer(), ClientOptions(SECURE, "producer").producer()):
        assert config.sasl_plain_username == "alice"
        assert config.sasl_plain_password is not None
        assert config.sasl_plain_password.reveal() == "hush"


def test_a_secret_that_is_referred_to_never_travels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", "hush")
    given = {**SECURE, "kafka.sasl.jaas.config": JAAS.format("${env:KAFKA_PASSWORD}"), "subscribe": "t"}
    for parsed in (parse_batch(given), parse_stream(given, limits=True)):
        travelled = pickle.dumps(parsed)
        assert b"hush" not in travelled
        monkeypatch.setenv("KAFKA_PASSWORD", "of-the-executor")
        password = pickle.loads(travelled).consumer.sasl_plain_password
        assert password.reveal() == "of-the-executor"
        monkeypatch.setenv("KAFKA_PASSWORD", "hush")


def test_errors_name_the_option_as_it_was_given_and_show_no_secret() -> None:
    for more, option in (
        ({"kafka.sasl.mechanism": "OAUTHBEARER"}, "kafka.sasl.jaas.config"),
        ({"kafka.sasl.jaas.config": "hush"}, "kafka.sasl.jaas.config"),
        ({"kafka.sasl.jaas.config": "${env:NOT_THERE_AT_ALL}"}, "kafka.sasl.jaas.config"),
        ({"kafka.ssl.truststore.location": "/not/there.jks"}, "kafka.ssl.truststore.location"),
        (
            {"kafka.ssl.truststore.type": "PEM", "kafka.ssl.truststore.location": "/x"},
            "kafka.ssl.truststore.location",
        ),
    ):
        with pytest.raises(ConfigError) as caught:
            ClientOptions({**SECURE, **more}).consumer()
        assert caught.value.option == option
        assert "hush" not in str(caught.value)


def test_what_only_java_needs_is_noted() -> None:
    ignored = {
        "kafka.config.providers": "env",
        "kafka.config.providers.env.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
        "kafka.sasl.login.refresh.buffer.seconds": "1",
    }
    options = ClientOptions({**SECURE, **ignored})
    assert options.consumer().sasl_mechanism == "SCRAM-SHA-512"
    assert options.without_effect() == list(ignored)

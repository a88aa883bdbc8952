"""Which source of an option counts, and what is said of it."""

import ssl
from pathlib import Path

import pytest

from kafka_actors.cli.job_options import RunConfig
from kafka_actors.cli.option_sources import (
    Layer,
    OptionSource,
    from_environment,
    from_file,
    from_flags,
    layered,
)
from kafka_actors.config import ClientConfig, build
from kafka_actors.errors import ConfigError

TOLD = {"KAFKA_ACTORS_LOG_LEVEL", "KAFKA_ACTORS_CACHE"}


@pytest.mark.parametrize(
    "pair", ["sasl_plain_password:hush", "sasl.plain.password hush", "=hush", "sasl_plain_password"]
)
def test_a_pair_without_its_equals_sign_is_not_shown_with_a_secret(pair: str) -> None:
    with pytest.raises(ConfigError, match=r"^-X: is .*: give NAME=VALUE$") as caught:
        from_flags(RunConfig, (pair,))
    assert "hush" not in str(caught.value)
    assert pair.startswith("=") or "password" in str(caught.value)


def test_the_first_layer_wins_and_each_value_knows_where_it_came_from() -> None:
    line = from_flags(RunConfig, ("session.timeout.ms=1000",), workers=3, group_id=None)
    around = from_environment(
        RunConfig, {"KAFKA_ACTORS_WORKERS": "2", "KAFKA_ACTORS_RETRIES": "9", "HOME": "/"}, ()
    )
    file = from_file(RunConfig, {"workers": "1", "retries": "1", "group_id": "g"}, "f.toml", strict=True)
    settings = layered(RunConfig, line, around, file)
    assert settings.options == {"session_timeout_ms": 1000, "workers": 3, "retries": 9, "group_id": "g"}
    assert {name: str(source) for name, source in settings.sources.items()} == {
        "session_timeout_ms": "flag -X",
        "workers": "flag --workers",
        "retries": "environment KAFKA_ACTORS_RETRIES",
        "group_id": "file f.toml",
    }


def test_lists_and_tables_may_be_text() -> None:
    variables = {"KAFKA_ACTORS_TOPICS": "a, b", "KAFKA_ACTORS_RESOURCES_PER_WORKER": '{"num_cpus": 0.5}'}
    line = from_flags(RunConfig, ('worker_capacity={"0": 2}', "name=scorer", "dead.letter.topic=dead"))
    assert layered(RunConfig, line, from_environment(RunConfig, variables, ())).options == {
        "topics": ["a", "b"],
        "resources_per_worker": {"num_cpus": 0.5},
        "worker_capacity": {0: 2.0},
        "name": "scorer",
        "dead_letter_topic": "dead",
    }


@pytest.mark.parametrize(
    ("pair", "says"),
    [
        ("num_cpus=1", "num_cpus: is one of a worker's resources: give resources_per_worker={'num_cpus': …}"),
        (
            "resources_per_worker=num_cpus=1",
            'resources_per_worker: can\'t be read: as text a table is JSON, such as {"name": 1}',
        ),
        ("topic=a", "topic: is not an option; did you mean 'topics'?"),
    ],
)
def test_what_says_it_instead_is_named(pair: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        layered(RunConfig, from_flags(RunConfig, (pair,)))
    assert str(caught.value) == says


@pytest.mark.parametrize(
    "pair", ["ssl_check_hostname=true", "ssl.crlfile=r.pem", "ssl_certfile=c.pem", "ssl_ciphers=AES"]
)
def test_what_a_pkcs12_store_in_the_file_takes_the_place_of_is_refused_on_the_command_line(pair: str) -> None:
    """The command line wins over the file: it can't here, and a name that is not checked lets anybody pose as the broker."""
    store = OptionSource("file", "c.properties", given="ssl_truststore_location")
    in_file: Layer = {"ssl_context": (ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), store)}
    with pytest.raises(ConfigError) as caught:
        layered(ClientConfig, from_flags(ClientConfig, (pair,)), in_file)
    assert caught.value.option == pair.partition("=")[0].replace(".", "_")
    assert "the PKCS12 store of ssl_truststore_location in c.properties" in caught.value.message
    variable = {"KAFKA_ACTORS_SSL_CHECK_HOSTNAME": "true"}
    with pytest.raises(ConfigError, match=r"\(in KAFKA_ACTORS_SSL_CHECK_HOSTNAME\)$"):
        layered(ClientConfig, from_environment(ClientConfig, variable, ()), in_file)


def test_a_value_that_does_not_count_is_not_complained_of() -> None:
    around = from_environment(RunConfig, {"KAFKA_ACTORS_WORKERS": "many"}, ())
    assert layered(RunConfig, from_flags(RunConfig, (), workers=3), around).options == {"workers": 3}


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        (
            {"KAFKA_ACTORS_RETRIES": "x"},
            "retries: is 'x': expected `int`, got `str` (in KAFKA_ACTORS_RETRIES)",
        ),
        ({"KAFKA_ACTORS_UNTIL": "now"}, "until: is 'now': accepts 'latest' (in KAFKA_ACTORS_UNTIL)"),
        (
            {"KAFKA_ACTORS_SESION_TIMEOUT_MS": "1"},
            "sesion_timeout_ms: is not an option; did you mean 'session_timeout_ms'? (in KAFKA_ACTORS_SESION_TIMEOUT_MS)",
        ),
        (
            {"KAFKA_ACTORS_CLIENT_ID": "${env:NOT_THERE}"},
            "client_id: refers to ${env:NOT_THERE}: there is no such variable here (in KAFKA_ACTORS_CLIENT_ID)",
        ),
    ],
)
def test_a_mistake_in_the_environment_names_the_variable(variables: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        layered(RunConfig, from_environment(RunConfig, variables, TOLD))
    assert str(caught.value) == says


def test_variables_that_are_no_options_of_this_command_are_left_alone() -> None:
    kubernetes = {
        "KAFKA_ACTORS_SERVICE_HOST": "10.0.0.1",
        "KAFKA_ACTORS_SERVICE_PORT": "8000",
        "KAFKA_ACTORS_SERVICE_PORT_STATUS": "8000",
        "KAFKA_ACTORS_PORT": "tcp://10.0.0.1:8000",
        "KAFKA_ACTORS_PORT_8000_TCP": "tcp://10.0.0.1:8000",
        "KAFKA_ACTORS_PORT_8000_TCP_ADDR": "10.0.0.1",
    }
    others = dict.fromkeys(("KAFKA_ACTORS_WORKERS", "KAFKA_ACTORS_ACKS", *TOLD, "KAFKA_ACTORS_CLIENT_ID"), "")
    others |= {"KAFKA_ACTORS_RETRIES": "3", "KAFKA_ACTORS_ACKS": "all", "KAFKA_ACTORS_LOG_LEVEL": "info"}
    assert from_environment(ClientConfig, {**kubernetes, **others}, TOLD) == {}


def test_secrets_are_looked_up_wherever_they_stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USER_OF_KAFKA", "alice")
    (tmp_path / "login").write_text("password=hush\n")
    there = f"${{file:{tmp_path}/login:password}}"
    file = from_file(
        RunConfig,
        {
            "sasl_jaas_config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
            f'username="${{env:USER_OF_KAFKA}}" password="{there}";',
            "partition_assignment_strategy": ["sticky", "${env:USER_OF_KAFKA}"],
        },
        "job.properties",
        strict=True,
    )
    settings = layered(RunConfig, from_flags(RunConfig, ("client_id=a-${env:USER_OF_KAFKA}",)), file)
    assert settings.options["client_id"] == "a-alice"
    assert settings.options["partition_assignment_strategy"] == ["sticky", "alice"]
    assert settings.options["sasl_plain_password"].reveal() == "hush"
    assert str(settings.sources["sasl_plain_password"]) == (
        f"file job.properties, sasl_jaas_config, ${{env:USER_OF_KAFKA}} {there}"
    )
    assert "hush" not in repr((settings, settings.options, settings.sources))


def test_a_password_travels_as_the_reference_that_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", "hush")
    option = {
        "sasl_plain_username": "${env:KAFKA_PASSWORD}",
        "sasl_plain_password": "${env:KAFKA_PASSWORD}",
        "ssl_password": "${file:/on/each/node}",
    }
    settings = layered(RunConfig, from_file(RunConfig, option, "job.toml", strict=True))
    assert settings.options["sasl_plain_username"] == "hush"
    assert settings.options["sasl_plain_password"].reveal() == "${env:KAFKA_PASSWORD}"
    assert settings.options["ssl_password"].reveal() == "${file:/on/each/node}"
    assert str(settings.sources["sasl_plain_password"]) == "file job.toml, ${env:KAFKA_PASSWORD}"


def test_what_options_say_together_names_the_file_too(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("-----BEGIN CERTIFICATE-----")
    file = from_file(ClientConfig, {"ssl_truststore_location": f"{tmp_path}/ca.pem"}, "job.toml", strict=True)
    settings = layered(ClientConfig, file)
    with (
        pytest.raises(ConfigError, match=r"^ssl_truststore_location: is given, but .* \(in job.toml\)$"),
        settings.named(),
    ):
        build(ClientConfig, settings.options)


def test_an_option_of_a_producer_is_a_mistake_in_a_jobs_file() -> None:
    with pytest.raises(ConfigError, match=r"^linger_ms: is not an option"):
        from_file(RunConfig, {"linger_ms": "5"}, "job.toml", strict=True)


@pytest.mark.parametrize("option", ['{"client_secret": "${env:HUSH}"}', {"client_secret": "${env:HUSH}"}])
def test_references_of_an_identity_travel_as_they_are(
    option: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HUSH", "hush")
    from_here = from_file(RunConfig, {"sasl_identity": option}, "job.toml", strict=True)
    expected = {"sasl_identity": {"client_secret": "${env:HUSH}"}}
    assert layered(RunConfig, from_here).options == expected
    if isinstance(option, str):
        assert layered(RunConfig, from_flags(RunConfig, (f"sasl.identity={option}",))).options == expected


@pytest.mark.parametrize("option", ["resources_per_worker", "spark_options"])
def test_a_variable_whose_bytes_are_not_utf8_is_refused_by_name(option: str) -> None:
    """Python has such bytes as lone surrogates, which msgspec can't take for JSON."""
    variables = {f"KAFKA_ACTORS_{option.upper()}": '{"num_cpus\udcff": 1}'}
    with pytest.raises(ConfigError, match=rf"^{option}: holds a lone surrogate"):
        build(RunConfig, layered(RunConfig, from_environment(RunConfig, variables, ())).options)

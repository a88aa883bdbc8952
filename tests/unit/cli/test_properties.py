import logging
from pathlib import Path

import pytest

from kafka_actors.cli.properties import read_client_properties
from kafka_actors.config import ClientConfig, build
from kafka_actors.errors import ConfigError, UsageError
from kafka_actors.properties import parse_properties


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a=b", {"a": "b"}),
        ("a = b c \n\n  x:y\r\nz w", {"a": "b c ", "x": "y", "z": "w"}),
        ("# no\n  ! no\na=1", {"a": "1"}),
        ("a=1,\\\n   2,\\\r\n\t3\nb=4", {"a": "1,2,3", "b": "4"}),
        ("a=x\\\\\nb=2", {"a": "x\\", "b": "2"}),
        ("a\\ b\\==\\u00e9\\t!", {"a b=": "é\t!"}),
        ("alone\nempty=", {"alone": "", "empty": ""}),
        ("a==b", {"a": "=b"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=1\\", {"a": "1"}),
        ("a=\\\n# not a comment", {"a": "# not a comment"}),
    ],
)
def test_properties_are_read_as_java_reads_them(text: str, found: dict[str, str]) -> None:
    assert parse_properties(text) == found


def _read(directory: Path, text: str) -> dict[str, str]:
    (directory / "client.properties").write_text(text)
    return read_client_properties(str(directory / "client.properties"))


def test_a_file_of_kafkas_tools_works_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").touch()
    options = _read(
        tmp_path,
        f"""
        bootstrap.servers=a:1,b:2
        security.protocol=SASL_SSL
        sasl.mechanism=SCRAM-SHA-512
        sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\
            username="alice" password='p"q; r';
        ssl.truststore.type=PEM
        ssl.truststore.location={tmp_path}/ca.pem
        ssl.endpoint.identification.algorithm=
        """,
    )
    config = build(ClientConfig, options)
    assert config.bootstrap_servers == ["a:1", "b:2"]
    assert (config.sasl_plain_username, config.sasl_plain_password.reveal()) == ("alice", 'p"q; r')  # type: ignore[union-attr]
    assert (config.ssl_cafile, config.ssl_check_hostname) == (f"{tmp_path}/ca.pem", False)


def test_a_pem_keystore_is_certificate_and_key(tmp_path: Path) -> None:
    options = _read(tmp_path, "ssl.keystore.type=pem\nssl.keystore.location=/k.pem\nssl.key.password=secret")
    assert options == {"ssl_certfile": "/k.pem", "ssl_password": "secret"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("ssl.truststore.location=/ca.jks", "ssl_truststore_location: is '/ca.jks': No such file"),
        (
            "sasl.jaas.config=com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true;",
            "sasl_jaas_config: names Krb5LoginModule: the login of a PlainLoginModule",
        ),
        ("ssl.endpoint.identification.algorithm=md5", "accepts https or nothing"),
    ],
)
def test_what_has_no_counterpart_is_named(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        build(ClientConfig, _read(tmp_path, text))
    assert "\n" not in str(caught.value)


def test_a_bad_login_does_not_show_the_password(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        _read(tmp_path, 'sasl.jaas.config=a.b.ScramLoginModule required user="u" password="hunter2";')
    assert "hunter2" not in str(caught.value)


def test_options_of_other_clients_are_left_out_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "kafka_actors"):
        assert _read(tmp_path, "group.id=g\nclient.id=c") == {"client_id": "c"}
    assert "group_id is not an option of a connection and not used" in caplog.text


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--command-config .*none: \[Errno 2\] No such file"):
        read_client_properties(str(tmp_path / "none"))

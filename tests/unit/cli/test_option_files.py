"""Files of options: as Kafka's tools have them, and TOML."""

import logging
import tomllib
from pathlib import Path
from typing import Any

import pytest

from kafka_actors.cli.option_sources import from_file, parse_toml, read_config_file
from kafka_actors.config import ClientConfig, JobConfig, build, looked_up
from kafka_actors.config.references import parse_properties
from kafka_actors.errors import ConfigError, UsageError


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


def _read(directory: Path, text: str) -> dict[str, Any]:
    """The options of a connection in a .properties file."""
    path = str(directory / "client.properties")
    Path(path).write_text(text)
    layer = from_file(ClientConfig, read_config_file("--command-config", path, ()), path, strict=False)
    return {name: value for name, (value, _) in layer.items()}


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


def test_blanks_at_the_end_of_a_line_are_no_part_of_a_value(tmp_path: Path) -> None:
    """Java's `ConfigDef` trims texts, too: with them it would be another group, and another password."""
    (tmp_path / "login.properties").write_text("password=p \t\n")
    options = _read(
        tmp_path,
        f"security.protocol=SASL_SSL \nsasl.mechanism=PLAIN\t\nsasl.plain.username=u \nrequest.timeout.ms=4000 \n"
        f"sasl.plain.password=${{file:{tmp_path}/login.properties:password}} \nclient.id=c \n",
    )
    config = looked_up(build(ClientConfig, options))
    assert (config.client_id, config.request_timeout_ms, config.sasl_plain_username) == ("c", 4000, "u")
    assert config.sasl_plain_password is not None
    assert config.sasl_plain_password.reveal() == "p"
    path = tmp_path / "job.toml"
    path.write_text('group_id = "g "')
    assert read_config_file("--config-file", str(path), ()) == {"group_id": "g "}, "TOML has quotes"


def test_the_mark_that_editors_put_first_is_no_part_of_a_name(tmp_path: Path) -> None:
    for name, text in (("f.toml", 'group_id = "g"'), ("f.properties", "group.id=g")):
        (tmp_path / name).write_text(text, encoding="utf-8-sig")
        assert read_config_file("--config-file", str(tmp_path / name), ()) == {"group_id": "g"}


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
        assert _read(tmp_path, "group.id=g\nclient.id=c\nkey.deserializer=a.b.C") == {"client_id": "c"}
    assert "group_id is not an option of a connection and not used" in caplog.text
    assert "key_deserializer is not an option of a connection and not used" in caplog.text


def test_a_job_refuses_what_a_program_of_javas_does_with_records() -> None:
    with pytest.raises(ConfigError, match=r"^key_deserializer: is not used: .* \(in f\)$"):
        from_file(JobConfig, {"key_deserializer": "a.b.C"}, "f", strict=True)


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--command-config .*none: \[Errno 2\] No such file"):
        read_config_file("--command-config", str(tmp_path / "none"), ())


def test_what_is_an_option_nowhere_is_misspelt(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"^sasl_mechanim: is not an option; did you mean 'sasl_mechanism'\? \(in "
    ):
        _read(tmp_path, "sasl.mechanim=PLAIN")


def test_what_java_has_and_nothing_here_needs_is_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = "max.poll.records=1\nsasl.login.refresh.window.factor=0.5\nreceive.buffer.bytes=-1\nsend.buffer.bytes=9"
    with caplog.at_level(logging.WARNING, "kafka_actors"):
        assert _read(tmp_path, text) == {"send_buffer_bytes": "9"}
    assert caplog.text.count("has no effect here") == 2


def test_javas_assignors_have_our_names(tmp_path: Path) -> None:
    java = "org.apache.kafka.clients.consumer."
    options = {
        "partition_assignment_strategy": f"{java}RangeAssignor, {java}CooperativeStickyAssignor,mine",
    }
    layer = from_file(JobConfig, options, "f", strict=True)
    assert layer["partition_assignment_strategy"][0] == "range,cooperative-sticky,mine"


def test_a_dotted_name_in_toml_is_an_option_whichever_way_it_is_written() -> None:
    text = """
    session_timeout_ms = 30_000
    "group.id" = "g"
    fetch.min.bytes = 1
    check_crcs = false
    partition_assignment_strategy = ["range", "sticky"]
    worker_capacity = {0 = 2.5}
    start_timeout_s = 1.5
    [sasl]
    mechanism = "PLAIN"
    plain.username = "u"
    """
    assert parse_toml(text, JobConfig.__struct_fields__) == {
        "session_timeout_ms": "30000",
        "group_id": "g",
        "fetch_min_bytes": "1",
        "check_crcs": "false",
        "partition_assignment_strategy": ["range", "sticky"],
        "worker_capacity": {"0": 2.5},
        "start_timeout_s": "1.5",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "u",
    }
    config = build(
        JobConfig,
        {
            **parse_toml(text, JobConfig.__struct_fields__),
            "security_protocol": "SASL_SSL",
            "sasl_plain_password": "p",
        },
    )
    assert (config.session_timeout_ms, config.check_crcs, config.worker_capacity) == (30_000, False, {0: 2.5})


def test_an_option_that_is_in_a_file_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match="group_id: is given twice"):
        parse_toml('group_id = "a"\ngroup.id = "b"', ())


def test_what_is_no_toml_says_where(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text("a = 1\nb = \n")
    with pytest.raises(UsageError, match=r"--config-file .*job.toml is not valid TOML: .*line 2"):
        read_config_file("--config-file", str(tmp_path / "job.toml"), ())
    with pytest.raises(tomllib.TOMLDecodeError):
        parse_toml("x", ())

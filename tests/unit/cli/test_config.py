"""`kafka-actors config`: every option with its value and its source, and the reference of all options."""

import json
from pathlib import Path

import pytest

from kafka_actors.cli.config import rows
from kafka_actors.cli.main import commands, run_command_line
from kafka_actors.cli.option_sources import OptionValues
from kafka_actors.options import JobConfig

JOB = """
import kafka_actors as ka

job = ka.Job(topics=["t"], group_id="g", bootstrap_servers="a:1", process=print, workers=4, batch_rows=500,
             config={"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "sasl_plain_username": "u",
                     "sasl_plain_password": "in-the-code"})
"""


@pytest.fixture(autouse=True)
def _directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shown_by_test.py").write_text(JOB)


def _show(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run_command_line(["config", "show", *arguments]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def test_each_value_names_its_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SECRET", "in-the-environment")
    monkeypatch.setenv("KAFKA_ACTORS_RETRIES", "7")
    (tmp_path / "job.toml").write_text(
        'job = "shown_by_test.py:job"\nsasl_plain_password = "${env:SECRET}"\nretries = 5\nsession_timeout_ms = 9_000'
    )
    lines = _show(capsys, "-c", "job.toml", "-X", "client.rack=here").splitlines()
    said = {line.split()[0]: line.split()[1:] for line in lines}
    assert said["OPTION"] == ["VALUE", "SOURCE"]
    assert said["job"] == ["shown_by_test.py:job", "file", "job.toml"]
    assert said["workers"] == ["4", "definition", "shown_by_test.py:job"]
    assert said["batch_rows"] == ["500", "definition", "shown_by_test.py:job"]
    assert said["retries"] == ["7", "environment", "KAFKA_ACTORS_RETRIES"]
    assert said["session_timeout_ms"] == ["9000", "file", "job.toml"]
    assert said["worker_capacity"] == ["-", "default"]
    assert said["client_rack"] == ["here", "flag", "-X"]
    assert said["heartbeat_interval_ms"] == ["3000", "default"]
    assert said["ssl_cafile"] == ["-", "default"]
    assert said["group_instance_id"] == ["auto", "default"]
    assert all(len(words) > 1 for words in said.values()), "what is empty is no gap in a column"
    assert said["sasl_plain_password"] == ["***", "file", "job.toml,", "${env:SECRET}"]
    assert not {"in-the-code", "in-the-environment"} & set(" ".join(lines).split())


def test_a_secret_of_the_definition_is_masked_in_every_form(capsys: pytest.CaptureFixture[str]) -> None:
    for form in ("text", "json", "yaml"):
        out = _show(capsys, "shown_by_test.py:job", "-o", form)
        assert "in-the-code" not in out
        assert "***" in out


def test_the_document_has_all_options_once(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(_show(capsys, "-o", "json", "-X", "ssl.ciphers=x", "-X", "security_protocol=SSL"))
    assert [row["option"] for row in found] == [
        "job",
        "engine",
        "topics",
        "pattern",
        "workers",
        "resources_per_worker",
        "name",
        "dead_letter_topic",
        "until",
        "checkpoint",
        "trigger",
        "spark_options",
        "status",
        "otlp",
        "prometheus",
        *JobConfig.__struct_fields__,
    ]
    by_name = {row.pop("option"): row for row in found}
    assert by_name["ssl_ciphers"] == {
        "value": "x",
        "source": "flag",
        "name": "-X",
        "reference": None,
        "given": None,
    }
    assert by_name["socket_options"]["value"] == [[6, 1, 1]]


def test_it_takes_the_arguments_of_run_and_a_file_says_where_telemetry_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KAFKA_ACTORS_PROMETHEUS", ":9464")
    (tmp_path / "job.toml").write_text('otlp = "http://c:4318"\nprometheus = ":1"\nstatus = ":8000"')
    flags = ("--status", ":9", "--until", "latest", "--log-level", "info", "-w", "1..4")
    for target in ((), ("shown_by_test.py:job",)):
        found = json.loads(_show(capsys, "-c", "job.toml", *flags, "-o", "json", *target))
        by_name = {row["option"]: (row["value"], row["source"]) for row in found}
        assert by_name["otlp"] == ("http://c:4318", "file")
        assert by_name["prometheus"] == (":9464", "environment")
        assert by_name["status"] == (":9", "flag")
    assert run_command_line(["config", "show", "-c", "job.toml", "--prometheus", "host"]) == 2
    assert capsys.readouterr().err.startswith("kafka-actors: error: prometheus: is 'host': ")


def test_a_jobs_arguments_come_from_its_definition_or_from_what_is_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "job.toml").write_text('name = "scorer"\n[resources_per_worker]\nnum_gpus = 0.5')
    out = _show(capsys, "shown_by_test.py:job", "-c", "job.toml", "-o", "json", "-X", "topics=a,b")
    by_name = {row["option"]: (row["value"], row["source"]) for row in json.loads(out)}
    assert by_name["topics"] == (["a", "b"], "flag")
    assert by_name["name"] == ("scorer", "file")
    assert by_name["resources_per_worker"] == ({"num_gpus": 0.5}, "file")
    plain = json.loads(_show(capsys, "shown_by_test.py:job", "-o", "json"))
    assert {row["option"]: row["source"] for row in plain}["topics"] == "definition"


def test_what_only_the_definition_says_is_shown_as_its(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = 'workers=4, until="latest", name="scorer", on_error="dead_letter", dead_letter_topic="dead"'
    (tmp_path / "defined_by_test.py").write_text(JOB.replace("workers=4", more))
    by_name = {
        row["option"]: row for row in json.loads(_show(capsys, "defined_by_test.py:job", "-o", "json"))
    }
    for name, value in (("until", "latest"), ("name", "scorer"), ("dead_letter_topic", "dead")):
        found = by_name[name]
        assert (found["value"], found["source"], found["name"]) == (
            value,
            "definition",
            "defined_by_test.py:job",
        )


def test_retry_topics_are_shown_as_they_are_defined(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = 'workers=4, ordering="key", on_error=ka.RetryTopics("r", ("10s",), "dead")'
    (tmp_path / "retried_by_test.py").write_text(JOB.replace("workers=4", more))
    rows = json.loads(_show(capsys, "retried_by_test.py:job", "-o", "json"))
    by_name = {row["option"]: (row["value"], row["source"]) for row in rows}
    shown = "RetryTopics(name='r', delays=('10s',), dead_letter_topic='dead', keep_order=True)"
    assert by_name["on_error"] == (shown, "definition")
    assert by_name["dead_letter_topic"] == ("dead", "definition")
    without = json.loads(_show(capsys, "retried_by_test.py:job", "-o", "json", "-X", "on_error=skip"))
    by_name = {row["option"]: (row["value"], row["source"]) for row in without}
    assert by_name["on_error"] == ("skip", "flag")
    assert by_name["dead_letter_topic"] == (None, "default")


def test_every_flag_of_run_is_one_of_config_show() -> None:
    run, show = commands.commands["run"], commands.commands["config"].commands["show"]
    assert {p.name for p in run.params} <= {p.name for p in show.params}


def test_what_run_would_refuse_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["config", "show", "-X", "session_timeout_ms=2000"]) == 2
    assert capsys.readouterr().err == (
        "kafka-actors: error: heartbeat_interval_ms: is 3000: must be lower than session_timeout_ms (2000)\n"
    )


PIPELINE = """
import kafka_actors as ka

read = ka.Pipeline.read_kafka("t", group_id="g", bootstrap_servers="a:1", fetch_max_wait_ms=50).raw()
orders = read.write_kafka("out")
"""


def test_of_a_pipeline_it_shows_what_its_engine_would_use(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "shown_pipeline_by_test.py").write_text(PIPELINE)
    target = "shown_pipeline_by_test.py:orders"
    flags = ("-b", "b:2", "-X", "topics=u", "-o", "json")
    found = {row["option"]: row for row in json.loads(_show(capsys, target, *flags, "-w", "3"))}
    assert (found["engine"]["value"], found["workers"]["value"]) == ("ray", 3)
    assert (found["topics"]["value"], found["bootstrap_servers"]["value"]) == (["u"], ["b:2"])
    assert (found["fetch_max_wait_ms"]["value"], found["fetch_max_wait_ms"]["source"]) == (50, "definition")
    pytest.importorskip("pyspark")
    on_spark = ("--engine", "spark", "--checkpoint", "/c", "-X", 'spark_options={"maxOffsetsPerTrigger": 5}')
    found = {row["option"]: row for row in json.loads(_show(capsys, target, *flags, *on_spark))}
    assert (found["engine"]["value"], found["engine"]["source"]) == ("spark", "flag")
    assert (found["checkpoint"]["value"], found["topics"]["value"]) == ("/c", ["u"])
    assert found["spark_options"]["value"] == {"maxOffsetsPerTrigger": 5}
    assert not {"workers", "status", "session_timeout_ms"} & found.keys(), "they have no meaning there"


class Token:
    """An object of the user's, whose text is a secret."""

    def __repr__(self) -> str:
        return "in-a-repr"


def test_objects_and_nested_secrets_show_nothing_of_their_contents(tmp_path: Path) -> None:
    values = {"value": {"a": Token()}, "sasl_oauth_token_provider": Token(), "ssl_password": ""}
    table = {row.option: row.value for row in rows(OptionValues({}, {}), None, values)}
    assert "in-a-repr" not in str(table)
    assert table["value"] == {"a": "<Token>"}
    assert table["ssl_password"] == "***"


def test_variables_of_workers_are_masked_whatever_their_names(capsys: pytest.CaptureFixture[str]) -> None:
    """A reference within the JSON is looked up before: what it refers to is written out then, too."""
    environment = {"API_KEY": "hush-hush", "MODE": "hush-hush"}
    table = {"num_cpus": 1, "runtime_env": {"env_vars": environment, "pip": ["https://u:hush-hush@h/p"]}}
    for form in ("json", "text"):
        given = ["-X", f"resources_per_worker={json.dumps(table)}", "-o", form]
        assert "hush-hush" not in _show(capsys, *given)
    found = {row["option"]: row["value"] for row in json.loads(_show(capsys, *given[:2], "-o", "json"))}
    assert found["resources_per_worker"] == {
        "num_cpus": 1,
        "runtime_env": {
            "env_vars": {"API_KEY": "***", "MODE": "***"},
            "pip": ["https://***@h/p"],
        },
    }


@pytest.mark.parametrize("name", ["api.key", "schema.registry.apikey", "API-KEY", "openai_api_key"])
def test_keys_of_apis_in_tables_are_masked(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "hush-hush" not in _show(capsys, "-X", f"spark_options={json.dumps({name: 'hush-hush'})}")


@pytest.mark.parametrize(
    ("option", "value", "shown"),
    [
        ("bootstrap_servers", "u:hush@h:9092", "***@h:9092"),
        ("bootstrap_servers", "SASL_SSL://u:hush@h:9092", "SASL_SSL://***@h:9092"),
        ("bootstrap_servers", "u:hu/sh@h:9092", "***@h:9092"),
        ("bootstrap_servers", "hush@h", "***@h"),
        ("status", "u:hush@h:80", "***@h:80"),
        ("prometheus", "http://u:hush@h:80", "http://***@h:80"),
        ("sasl_oauthbearer_token_endpoint_url", "http://u:hush@h", "http://***@h"),
        ("sasl_oauthbearer_token_endpoint_url", "https://u:hush@h/t", "https://***@h/t"),
        ("sasl_oauthbearer_token_endpoint_url", "u:hush@h", "***@h"),
        ("retries", "https://u:hush@h", "https://***@h"),
    ],
)
def test_a_refused_address_is_shown_without_user_and_password(
    option: str, value: str, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    login = ["security_protocol=SASL_SSL", "sasl_mechanism=OAUTHBEARER"] if "oauth" in option else []
    pairs = [part for pair in [*login, f"{option}={value}"] for part in ("-X", pair)]
    assert run_command_line(["config", "show", *pairs]) == 2
    said = capsys.readouterr().err
    assert "hu" not in said
    assert repr(shown) in said


def test_secrets_within_tables_and_urls_are_masked_and_no_error_shows_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    jaas = "PlainLoginModule required username='u' password='in-a-table';"
    table = {
        "kafka.sasl.plain.password": "in-a-table",
        "kafka.sasl.jaas.config": jaas,
        "schema.registry.basic.auth.user.info": "u:in-a-table",
        "schema.registry.url": "https://u:in-a-table@r:8081",
        "kafka.ssl.password": "${env:P}",
        "minPartitions": 4,
        "decode.message": "${env:MESSAGE}",
    }
    monkeypatch.setenv("P", "in-a-table")
    monkeypatch.setenv("MESSAGE", "shop.Order")
    given = ["-X", f"spark_options={json.dumps(table)}", "--otlp", "http://u:in-a-table@c:4318"]
    found = {row["option"]: row["value"] for row in json.loads(_show(capsys, *given, "-o", "json"))}
    assert "in-a-table" not in str(found)
    assert found["otlp"] == "http://***@c:4318"
    options = found["spark_options"]
    assert options["kafka.ssl.password"] == "${env:P}", "it is looked up where it is used"
    assert (options["decode.message"], options["minPartitions"]) == ("shop.Order", 4)
    assert run_command_line(["config", "show", "-X", f"spark_options={json.dumps(table)[:-1]}"]) == 2
    assert "in-a-table" not in capsys.readouterr().err


@pytest.mark.parametrize("option", ["resources_per_worker", "spark_options"])
def test_a_text_that_is_no_table_is_refused_without_what_is_in_it(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command_line(["config", "show", "-X", f'{option}=[{{"password": "hush-hush"}}]']) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"kafka-actors: error: {option}: is a list: expected ")
    assert "hush-hush" not in said


def test_the_reference_has_every_option_of_the_clients_with_javas_name(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_command_line(["config", "options", "-o", "json"]) == 0
    found = {option["name"]: option for option in json.loads(capsys.readouterr().out)}
    assert set(JobConfig.__struct_fields__) <= set(found)
    assert found["sasl_plain_password"]["default"] in ("", None)
    assert found["session_timeout_ms"]["java"] == "session.timeout.ms"
    assert run_command_line(["config", "options"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == ["OPTION", "TYPE", "DEFAULT", "JAVA", "JAVA-DEFAULT"]
    assert [line[0] for line in lines[1:]] == list(found)

"""The page of options against Java's clients themselves."""

import subprocess
from collections.abc import Iterator

import pytest
from fakes.java_answers import JAVA, Answers
from pyspark.sql.types import StringType, StructField, StructType
from waiting import slow_s

from kafka_actors.cli.reference import JAVA_DEFAULTS, JAVA_NAMES, NOT_IN_JAVA, SECTIONS, options
from kafka_actors.config.java import without_effect
from kafka_actors.errors import ConfigError
from kafka_actors.options import ProducerConfig
from kafka_actors.spark.source.options import parse_batch
from kafka_actors.spark.source.sink_options import parse_sink
from kafka_actors.testing.distribution import DEFAULT_VERSION, Distribution

SOURCE = JAVA / "options" / "Options.java"
OF_JOBS_OWN = {"retries"}  # Java's option of this name is another thing


def printed() -> str:
    """Asks Java's clients for their options."""
    kafka = Distribution.get()
    command = [kafka.java, "-Xshare:auto", "-XX:+UseSerialGC", "-cp", kafka.classpath, str(SOURCE)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=slow_s(120)).stdout


@pytest.fixture(scope="module")
def answers() -> Iterator[Answers]:
    made = Answers("options", SOURCE, DEFAULT_VERSION)
    yield made
    made.close()


@pytest.fixture(scope="module")
def java(answers: Answers) -> dict[str, dict[str, str]]:
    """Client → option → default."""
    found: dict[str, dict[str, str]] = {}
    for line in answers.get(b"options", printed).splitlines():
        client, name, default = line.split("\t")
        found.setdefault(client, {})[name] = default
    assert {client: len(found[client]) > 50 for client in found} == dict.fromkeys(
        ("consumer", "producer", "admin"), True
    )
    return found


def test_javas_answers_are_of_this_program_and_kafka(answers: Answers) -> None:
    assert not answers.is_stale, "make java-answers"


def test_each_name_and_default_is_javas(java: dict[str, dict[str, str]]) -> None:
    wrong = {}
    for section in SECTIONS:
        for option in options(section):
            if option.java is None:
                continue
            client = (
                "producer"
                if section.kind is ProducerConfig or option.java not in java["consumer"]
                else "consumer"
            )
            theirs = java[client].get(option.java)
            if theirs != (option.java_default or ""):
                wrong[option.name] = (theirs, option.java_default)
    assert wrong == {}


def test_what_is_said_not_to_be_in_java_is_not(java: dict[str, dict[str, str]]) -> None:
    everywhere = {name.replace(".", "_") for client in java.values() for name in client}
    assert {name for name in NOT_IN_JAVA if name in everywhere} == OF_JOBS_OWN


def test_defaults_that_are_said_to_differ_do(java: dict[str, dict[str, str]]) -> None:
    listed = {option.name: option for section in SECTIONS for option in options(section)}
    same = {name for name, theirs in JAVA_DEFAULTS.items() if (listed[name].default or "") == theirs}
    assert same == set()
    assert JAVA_NAMES.keys() <= listed.keys()


def test_what_is_passed_over_is_an_option_of_javas(java: dict[str, dict[str, str]]) -> None:
    """And what a program's file may have is passed over, known, or refused with a word of its own."""
    everywhere = {name.replace(".", "_") for client in java.values() for name in client}
    passed = {name for name in everywhere if without_effect(name)}
    assert {"max_poll_records", "client_dns_lookup", "sasl_login_retry_backoff_ms"} <= passed
    assert not passed & {option.name for section in SECTIONS for option in options(section)}


def test_sparks_source_and_sink_take_each_option_of_javas_or_refuse_it_by_name(
    java: dict[str, dict[str, str]],
) -> None:
    """With its default, so that what is refused is the option and not a value; where that is null only the name counts."""
    base = {"kafka.bootstrap.servers": "a:1"}
    schema = StructType([StructField("value", StringType())])
    unknown, refused, misnamed, contradicting = set(), set(), set(), set()
    for client, parse in (
        ("consumer", lambda read: parse_batch({**read, "subscribe": "t"})),
        ("producer", lambda read: parse_sink({**read, "topic": "t"}, schema)),
    ):
        for name in java[client].keys() - {"bootstrap.servers"}:
            default = java[client][name]
            try:
                parse({**base, f"kafka.{name}": default or "x"})
            except ConfigError as error:
                if error.option != f"kafka.{name}":
                    misnamed.add((name, error.option))
                if "is not an option" in error.message:
                    unknown.add(name)
                elif "is not supported" in error.message:
                    refused.add(name)
                elif default:
                    contradicting.add(name)
    assert (unknown, misnamed) == (set(), set())
    assert contradicting == {"sasl.mechanism"}  # GSSAPI, without SASL
    assert refused == {
        "auto.offset.reset",
        "enable.auto.commit",
        "interceptor.classes",
        "key.deserializer",
        "key.serializer",
        "partitioner.class",
        "transactional.id",
        "value.deserializer",
        "value.serializer",
    }

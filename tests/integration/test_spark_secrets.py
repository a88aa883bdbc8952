"""No secret in what Spark and our code say: the logs of JVM and Python workers, the event log, plans, errors, progress.

A program of its own runs what goes well and what fails, so that all it says can be caught: Spark logs at INFO, its SQL part
and our packages at DEBUG. (py4j's DEBUG log is left out: it has every argument that Python hands to the JVM.)
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes.schema_registry import FakeSchemaRegistry
from fakes.secure import PASSWORD, USER
from waiting import slow_s

from kafka_actors.testing.produce import Produce

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

REPOSITORY = str(Path(__file__).parents[2])
WRONG = "wrong-hush"
SHOWN = (PASSWORD.partition("ä")[0], WRONG)
"""Parts by which the passwords would be found where they leak; without the umlaut, which a log may encode."""

# Python imports this by itself, in the driver and in all of Spark's Python processes.
LOUD = """
import logging
import sys

handler = logging.StreamHandler(sys.stderr)
handler.setFormatter(logging.Formatter("%(name)s %(levelname)s %(message)s"))
logging.getLogger("kafka_actors").addHandler(handler)
logging.getLogger("kafka_actors").setLevel(logging.DEBUG)
"""

LOG4J = """
rootLogger.level = info
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %c: %m%n%ex
logger.sql.name = org.apache.spark.sql
logger.sql.level = debug
"""

PROGRAM = """
import sys
import traceback
from pathlib import Path

import kafka_actors as ka
from pyspark.sql import SparkSession

servers, ca, user, password, wrong, source, target, directory, registry = sys.argv[1:]
spark = SparkSession.builder.master("local[2]").getOrCreate()
login = "org.apache.kafka.common.security.scram.ScramLoginModule required"


def options(password, servers=servers, **more):
    return {
        "kafka.bootstrap.servers": servers,
        "kafka.security.protocol": "SASL_SSL",
        "kafka.ssl.truststore.location": ca,
        "kafka.ssl.truststore.type": "PEM",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": f'{login} username="{user}" password="{password}";',
        **more,
    }


def read(kafka):
    return spark.read.format("kafka_actors").options(**kafka).load()


def write(kafka):
    frame = spark.range(3).selectExpr("cast(id as string) as value")
    frame.write.format("kafka_actors").mode("append").options(**kafka, topic=target).save()


def stream(kafka, name):
    start = {"subscribe": source, "startingOffsets": "earliest"}
    df = spark.readStream.format("kafka_actors").options(**kafka, **start).load()
    writer = df.select("value").writeStream.format("kafka_actors").options(**kafka, topic=target)
    query = writer.option("checkpointLocation", f"{directory}/{name}").trigger(availableNow=True).start()
    try:
        query.awaitTermination(600)
    finally:
        query.explain(extended=True)
        print([progress.json for progress in query.recentProgress], query.lastProgress, query.status)
        print(query.exception())


def pipeline(password):
    read = ka.Pipeline.read_kafka(
        source,
        group_id="g",
        bootstrap_servers=servers,
        security_protocol="SASL_SSL",
        ssl_cafile=ca,
        sasl_mechanism="SCRAM-SHA-512",
        sasl_plain_username=user,
        sasl_plain_password=password,
    )
    made = read.raw().select("value").write_kafka(target, format="columns")
    print(repr(made), made.explain("spark"))
    made.on_spark(spark).dataframe().explain(mode="extended")
    made.on_spark(spark, progress=False).run()


def decoded(sr_password, reader=spark.read):
    given = {
        **options(password, subscribe=source),
        "decode": "avro",
        "schema.registry.url": registry,
        "schema.registry.basic.auth.user.info": f"{user}:{sr_password}",
        "decode.mode": "PERMISSIVE",
    }
    return reader.format("kafka_actors").options(**given).load()


def decoded_stream(sr_password):
    df = decoded(sr_password, spark.readStream.option("startingOffsets", "earliest"))
    writer = df.writeStream.format("noop").option("checkpointLocation", f"{directory}/decoded")
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination(600)
    query.explain(extended=True)
    print([progress.json for progress in query.recentProgress], query.exception())


def refused(what, call):
    try:
        call()
    except Exception:
        traceback.print_exc(file=sys.stdout)
        print(what, "was refused")
    else:
        print(what, "WENT WELL")


good = options(password, subscribe=source)
frame = read(good)
for mode in ("extended", "formatted", "codegen", "cost"):
    frame.explain(mode=mode)
print("read", frame.count())
write(options(password))
stream(options(password), "good")
pipeline(password)
for sr_password in (password, "${env:SR_PASSWORD}"):
    frame = decoded(sr_password)
    frame.explain(mode="extended")
    print("decoded", frame.where("_error is not null").count())
decoded_stream("${env:SR_PASSWORD}")
refused("a registry with a wrong password", lambda: decoded(wrong))
print("written", read(options(password, subscribe=target)).count())

bad = options(wrong, subscribe=source)
refused("a batch with a wrong password", lambda: read(bad).count())
refused("a write with a wrong password", lambda: write(options(wrong)))
refused("a stream with a wrong password", lambda: stream(options(wrong), "bad"))
refused("a pipeline with a wrong password", lambda: pipeline(wrong))

nowhere = {"servers": "127.0.0.1:1", "kafka.request.timeout.ms": "1000", "kafka.default.api.timeout.ms": "1000"}
refused("a batch from nowhere", lambda: read(options(password, subscribe=source, **nowhere)).count())
refused("a stream from nowhere", lambda: stream(options(password, **nowhere), "nowhere"))

half = {"kafka.sasl.jaas.config": f"{login} username={user} password='{password}"}
refused("a login without its end", lambda: read({**good, **half}))
refused("a misspelt option", lambda: read({**good, "kafka.sasl.plain.pasword": password}))
refused("a password beside another", lambda: read({**good, "kafka.sasl.plain.password": password}))
refused("a password for no store", lambda: read({**good, "kafka.ssl.keystore.password": password}))
spark.stop()
"""


@pytest.fixture
def registry() -> Iterator[FakeSchemaRegistry]:
    with FakeSchemaRegistry(user=f"{USER}:{PASSWORD}") as made:
        yield made


def test_no_secret_is_said_by_what_goes_well_and_what_fails(
    secure: Any, produce: Produce, registry: FakeSchemaRegistry, group_id: str, tmp_path: Path
) -> None:
    kafka, files = secure
    source, target = (kafka.create_topic(f"{name}-{group_id}", partitions=2) for name in ("source", "target"))
    produce(source, [b"1", b"2"], partition=[0, 1], bootstrap_servers=kafka.bootstrap_servers)
    (tmp_path / "sitecustomize.py").write_text(LOUD)
    (tmp_path / "log4j2.properties").write_text(LOG4J)
    events = tmp_path / "events"
    events.mkdir()
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": f"-Dlog4j.configurationFile={tmp_path / 'log4j2.properties'}",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": str(events),
        "spark.eventLog.compress": "false",
        "spark.sql.warehouse.dir": str(tmp_path / "warehouse"),
    }
    given = " ".join(f"--conf {name}={value}" for name, value in settings.items())
    arguments = [kafka.bootstrap("SECURE"), files.ca, USER, PASSWORD, WRONG, source, target, str(tmp_path)]
    registry.add(
        f"{source}-value", {"type": "record", "name": "A", "fields": [{"name": "id", "type": "long"}]}
    )
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments, registry.url],
        env={
            "SR_PASSWORD": PASSWORD,
            **os.environ,
            "PYSPARK_SUBMIT_ARGS": f"{given} pyspark-shell",
            "PYTHONPATH": f"{tmp_path}{os.pathsep}{REPOSITORY}",
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=slow_s(300),
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    said = done.stdout.splitlines()
    assert "read 2" in said
    assert "written 7" in said
    assert said.count("decoded 2") == 2
    assert f"refused user {USER} (401" in done.stdout
    assert "WENT WELL" not in done.stdout
    assert sum(line.endswith("was refused") for line in said) == 11
    assert "SASL_AUTHENTICATION_FAILED" in done.stdout
    # All that is to be looked through was caught: JVM, our driver, our Python workers, the event log.
    assert "DEBUG org.apache.spark.sql" in done.stderr
    assert "kafka_actors.spark.python_worker DEBUG where it was raised" in done.stderr
    kept = [path for path in (*events.rglob("*"), *tmp_path.glob("*/**/*")) if path.is_file()]
    assert any(
        "SparkListenerSQLExecutionStart" in path.read_text() for path in events.rglob("*") if path.is_file()
    )
    texts = {"stdout": done.stdout, "stderr": done.stderr}
    texts |= {str(path.relative_to(tmp_path)): path.read_text(errors="replace") for path in kept}
    found = [
        f"{name}: {line[:500]}"
        for name, text in texts.items()
        for line in text.splitlines()
        for secret in SHOWN
        if secret in line
    ]
    assert found == []

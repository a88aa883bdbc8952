"""`kafka-actors groups | topics | offsets | lag` beside Kafka's own tools, on the same broker."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import confluent_kafka
import pytest
import yaml
from fakes.java_tools import Tools
from fakes.secure import PASSWORD, USER, Files
from waiting import slow_s, until

from kafka_actors.cli.main import run_command_line
from kafka_actors.testing import FakeKafka, KafkaCluster
from kafka_actors.testing.produce import Produce

GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
CONFIGS = "kafka.admin.ConfigCommand"
TOPICS = "org.apache.kafka.tools.TopicCommand"
OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
NOW = int(time.time() * 1000)
HOUR_MS = 3_600_000

Rows = list[list[str]]

pytestmark = pytest.mark.usefixtures("no_notices")


class Shell:
    """Runs our command, and Kafka's tools, on a cluster."""

    def __init__(
        self, kafka: KafkaCluster | FakeKafka, tools: Tools, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.kafka = kafka
        self._tools = tools
        self._capsys = capsys

    def run(self, *arguments: str) -> tuple[int, str, str]:
        """Exit code and what went to the two streams."""
        self._capsys.readouterr()
        code = run_command_line([*arguments, "-b", self.kafka.bootstrap_servers])
        return code, *self._capsys.readouterr()

    def out(self, *arguments: str) -> str:
        code, out, err = self.run(*arguments)
        assert code == 0, err
        return out

    def tool(self, main: str, *arguments: str) -> str:
        """Runs the tool; returns its output."""
        return self._tools(main, "--bootstrap-server", self.kafka.bootstrap_servers, *arguments)


def _date(hours: float) -> str:
    """The time so many hours ago, in UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(NOW / 1000 - hours * 3600))


def rows(text: str) -> Rows:
    """The cells of a table, in an order of their own: the title first, then sorted."""
    title, *others = [line.split() for line in text.splitlines() if line.strip()]
    return [title, *sorted(others)]


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tools]:
    with closing(Tools(tmp_path_factory.mktemp("tools"))) as made:
        yield made


@pytest.fixture
def shell(cluster: KafkaCluster | FakeKafka, tools: Tools, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(cluster, tools, capsys)


@pytest.fixture
def topic(kafka_topic: Callable[..., str], produce: Produce) -> str:
    """Two partitions with 6 and 4 records, an hour apart, the last one an hour ago."""
    name = kafka_topic(partitions=2)
    times = [NOW - HOUR_MS * (10 - n) for n in range(10)]
    produce(name, [b"x"] * 10, partition=[0] * 6 + [1] * 4, timestamps=times)
    return name


@pytest.fixture(params=["classic", pytest.param("consumer", marks=pytest.mark.kafka)])
def member(
    request: pytest.FixtureRequest, cluster: KafkaCluster | FakeKafka, topic: str, group_id: str
) -> Iterator[confluent_kafka.Consumer]:
    """A confluent-kafka member of either protocol, which has read and committed all."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": group_id,
            "group.protocol": request.param,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    assert len(consumer.consume(10, timeout=slow_s(30))) == 10
    consumer.commit(asynchronous=False)
    yield consumer
    consumer.close()


@pytest.fixture
def committed(cluster: KafkaCluster | FakeKafka, topic: str, group_id: str) -> str:
    """A group without members at offset 2 of both partitions; returns its id."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": group_id}
    )
    at = [confluent_kafka.TopicPartition(topic, p, 2) for p in (0, 1)]
    consumer.commit(offsets=at, asynchronous=False)
    consumer.close()
    return group_id


# ---------------------------------------------------------------- groups


@pytest.mark.kafka
def test_a_group_is_described_in_the_columns_of_kafkas_tool(
    shell: Shell, member: confluent_kafka.Consumer, group_id: str
) -> None:
    for view in ([], ["--verbose"], ["--members", "--verbose"], ["--members"], ["--state", "--verbose"]):
        ours = rows(shell.out("groups", "describe", "--group", group_id, *view))
        assert ours == rows(shell.tool(GROUPS, "--describe", "--group", group_id, *view))
        assert {row[0] for row in ours[1:]} == {group_id}


@pytest.mark.kafka
def test_groups_are_listed_as_kafkas_tool_does(
    shell: Shell, member: confluent_kafka.Consumer, group_id: str
) -> None:
    def lines_of(text: str) -> set[tuple[str, ...]]:
        return {tuple(line.split()) for line in text.splitlines() if line.strip()}

    # With markers: Kafka's tool leaves none out, and other tests have left some here.
    everything = ("groups", "list", "--markers")
    for more in ([], ["--state", "--type"]):
        before = lines_of(shell.out(*everything, *more))
        theirs = lines_of(shell.tool(GROUPS, "--list", *more))
        after = lines_of(shell.out(*everything, *more))
        # What others left here may change its state at any time, and go.
        assert group_id in {name for name, *_ in before & after}
        assert before & after <= theirs
        assert {name for name, *_ in theirs} <= {name for name, *_ in before | after}
    assert group_id in shell.out("groups", "list", "--state", "stable,empty").split()
    assert group_id not in shell.out("groups", "list", "--state=Empty").split()


def test_documents_hold_all_there_is_to_say(
    shell: Shell, member: confluent_kafka.Consumer, topic: str, group_id: str
) -> None:
    [group] = json.loads(shell.out("groups", "describe", "-g", group_id, "--output", "json"))
    assert group["group_id"] == group_id
    assert group["state"] == "Stable"
    assert group["coordinator"]["node_id"] == 1
    assert [(p["topic"], p["partition"], p["current_offset"], p["lag"]) for p in group["partitions"]] == [
        (topic, 0, 6, 0),
        (topic, 1, 4, 0),
    ]
    [only] = group["members"]
    assert only["assignment"] == [{"topic": topic, "partition": 0}, {"topic": topic, "partition": 1}]
    assert yaml.safe_load(shell.out("groups", "describe", "-g", group_id, "-o", "yaml")) == [group]
    listed = json.loads(shell.out("groups", "list", "-o", "json"))
    assert [g["type"] for g in listed if g["group_id"] == group_id] == [group["type"]]


def test_an_active_group_is_refused_with_exit_code_1_and_one_line(
    shell: Shell, member: confluent_kafka.Consumer, cluster: KafkaCluster | FakeKafka, group_id: str
) -> None:
    before = cluster.committed(group_id)
    for more in ([], ["--execute"]):
        code, out, err = shell.run(
            "groups", "reset-offsets", "-g", group_id, "--all-topics", "--to-earliest", *more
        )
        assert (code, out) == (1, "")
        assert err == (
            f"kafka-actors: error: NON_EMPTY_GROUP (68): group '{group_id}' is Stable with 1 member: "
            "offsets can be reset while it has none\n"
        )
    assert shell.run("groups", "delete", "-g", group_id)[0] == 1
    assert cluster.committed(group_id) == before


@pytest.mark.kafka
@pytest.mark.parametrize(
    "target",
    [
        ["--to-earliest"],
        ["--to-latest"],
        ["--to-current"],
        ["--to-offset", "5"],
        ["--shift-by", "-1"],
        ["--shift-by", "3"],
        ["--to-datetime", _date(5.5) + ".000"],
        ["--by-duration", "PT6H30M"],
    ],
    ids=lambda target: target[0],
)
def test_a_reset_goes_where_kafkas_tool_puts_it(
    shell: Shell, cluster: KafkaCluster | FakeKafka, committed: str, topic: str, target: list[str]
) -> None:
    scope = ["--group", committed, "--topic", f"{topic}:0,1", *target]
    before = cluster.committed(committed)
    theirs = shell.tool(GROUPS, "--reset-offsets", *scope, "--dry-run")
    code, plan, err = shell.run("groups", "reset-offsets", *scope)
    assert code == 0
    assert rows(plan) == rows(theirs)
    assert err.splitlines()[-1] == "Nothing was changed: --execute commits these offsets."
    assert cluster.committed(committed) == before
    assert rows(shell.out("groups", "reset-offsets", *scope, "--execute")) == rows(theirs)
    new = {(row[1], int(row[2])): int(row[3]) for row in rows(theirs)[1:]}
    assert cluster.committed(committed) == new


@pytest.mark.kafka
def test_what_is_exported_is_taken_back_by_us_and_by_kafkas_tool(
    shell: Shell, cluster: KafkaCluster | FakeKafka, committed: str, topic: str, tmp_path: Path
) -> None:
    reset = ["groups", "reset-offsets", "-g", committed]
    file = tmp_path / "plan.csv"
    file.write_text(shell.out(*reset, "--all-topics", "--to-current", "--export"))
    assert file.read_text() == f"{topic},0,2\n{topic},1,2\n"
    shell.out(*reset, "--all-topics", "--to-latest", "--execute")
    shell.out(*reset, "--from-file", str(file), "--execute")
    assert set(cluster.committed(committed).values()) == {2}
    shell.out(*reset, "--all-topics", "--to-latest", "--execute")
    theirs = ["--reset-offsets", "--group", committed, "--from-file", str(file), "--execute"]
    shell.tool(GROUPS, *theirs)
    assert set(cluster.committed(committed).values()) == {2}


def test_a_group_is_deleted_and_then_unknown(shell: Shell, committed: str) -> None:
    assert shell.out("groups", "delete", "-g", committed) == (
        f"Deletion of requested consumer groups ('{committed}') was successful.\n"
    )
    code, out, err = shell.run("groups", "describe", "-g", committed)
    assert (code, out) == (1, "")
    assert err == f"kafka-actors: error: GROUP_ID_NOT_FOUND (69): group '{committed}' does not exist\n"


def test_an_empty_group_says_that_it_has_no_members(shell: Shell, committed: str, topic: str) -> None:
    code, out, err = shell.run("groups", "describe", "-g", committed)
    assert (code, err) == (0, f"Consumer group '{committed}' has no active members.\n")
    assert rows(out)[1:] == [
        [committed, topic, "0", "2", "6", "4", "-", "-", "-"],
        [committed, topic, "1", "2", "4", "2", "-", "-", "-"],
    ]


def test_lag_by_partition_topic_and_group(shell: Shell, committed: str, topic: str) -> None:
    assert rows(shell.out("lag", "-g", committed)) == [
        ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"],
        [committed, topic, "0", "2", "6", "4"],
        [committed, topic, "1", "2", "4", "2"],
    ]
    assert rows(shell.out("lag", "-g", committed, "--by", "topic"))[1] == [committed, topic, "2", "6"]
    assert json.loads(shell.out("lag", "-g", committed, "--by", "group", "-o", "json")) == [
        {"group_id": committed, "partitions": 2, "lag": 6}
    ]
    assert [committed, "2", "6"] in rows(shell.out("lag", "--all-groups", "--by", "group"))


# ---------------------------------------------------------------- topics and offsets


@pytest.mark.kafka
@pytest.mark.parametrize(
    "at",
    [[], ["earliest"], ["latest"], ["max-timestamp"], [str(NOW - 6 * HOUR_MS)], ["-1"], ["-2"]],
    ids=["default", "earliest", "latest", "max-timestamp", "six hours ago", "-1", "-2"],
)
def test_offsets_are_those_of_kafkas_tool(shell: Shell, topic: str, at: list[str]) -> None:
    time_ = ["--time", *at] if at else []
    ours = shell.out("offsets", "--topic", topic, *time_)
    assert sorted(ours.split()) == sorted(shell.tool(OFFSETS, "--topic", topic, *time_).split())
    assert ours


def test_offsets_of_some_partitions_and_of_a_date(shell: Shell, topic: str) -> None:
    assert shell.out("offsets", "-t", f"{topic}:1") == f"{topic}:1:4\n"
    found = json.loads(shell.out("offsets", "-t", topic, "--time", _date(5.5), "-o", "json"))
    assert [(o["partition"], o["offset"]) for o in found] == [(0, 5), (1, 0)]
    assert found[0]["timestamp"] == NOW - 5 * HOUR_MS
    code, out, err = shell.run("offsets", "-t", f"{topic}:2")
    assert (code, out) == (1, "")
    assert err == f"kafka-actors: error: UNKNOWN_TOPIC_OR_PARTITION (3) for {topic}-2\n"


@pytest.mark.kafka
def test_a_topic_is_created_and_described_as_by_kafkas_tool(shell: Shell, group_id: str) -> None:
    name = f"made-{group_id}"
    create = ["topics", "create", "--topic", name, "--partitions", "2", "--replication-factor", "1"]
    settings = ["--config", "retention.ms=86400000", "--config", "cleanup.policy=compact"]
    assert shell.out(*create, *settings, "--validate-only") == f"Topic {name} could be created.\n"
    assert shell.out(*create, *settings) == f"Created topic {name}.\n"
    shell.kafka.wait_for_leaders(name, 2)
    assert _described(shell.out("topics", "describe", "--topic", name)) == _described(
        shell.tool(TOPICS, "--describe", "--topic", name)
    )
    assert sorted(shell.out("topics", "list").split()) == sorted(shell.tool(TOPICS, "--list").split())
    assert shell.out("topics", "list", "--topic", f"mad.*{group_id}") == f"{name}\n"
    [document] = json.loads(shell.out("topics", "describe", "-t", name, "-o", "json"))
    assert document["configs"]["cleanup.policy"] == "compact"
    assert [p["leader"] for p in document["partitions"]] == [1, 1]

    code, _, err = shell.run(*create)
    assert code == 1
    assert err == (
        f"kafka-actors: error: TOPIC_ALREADY_EXISTS (36) in answer to CreateTopics for {name}: "
        f"Topic '{name}' already exists.\n"
    )
    code, out, err = shell.run(*create, "--if-not-exists", "-o", "yaml")
    assert (code, yaml.safe_load(out)) == (0, {"name": name, "created": False})
    assert shell.out("topics", "describe", "-t", name, "--under-replicated-partitions") == ""


@pytest.mark.kafka
def test_a_topic_is_grown_and_deleted_and_its_settings_changed_as_by_kafkas_tools(
    shell: Shell, group_id: str
) -> None:
    name = f"made-{group_id}"
    shell.out("topics", "create", "-t", name, "--partitions", "1")
    shell.kafka.wait_for_leaders(name, 1)
    grow = ["topics", "alter", "-t", name, "--partitions", "3"]
    assert shell.out(*grow, "--validate-only") == f"Topic {name} could have 3 partitions.\n"
    assert shell.out(*grow) == f"Topic {name} has 3 partitions.\n"
    shell.kafka.wait_for_leaders(name, 3)
    code, _, err = shell.run(*grow)
    assert (code, err.count("\n")) == (1, 1)
    assert err.startswith(
        f"kafka-actors: error: INVALID_PARTITIONS (37) in answer to CreatePartitions for {name}: Topic already has 3"
    )

    alter = ["configs", "alter", "-t", name, "--add-config", "min.compaction.lag.ms=1000"]
    assert (
        shell.out(*alter, "--append-config", "cleanup.policy=compact")
        == f"Settings of TOPIC {name} changed.\n"
    )

    def described() -> dict[str, str]:
        [found] = json.loads(shell.out("configs", "describe", "-t", name, "-o", "json"))
        return {entry["name"]: entry["value"] for entry in found["configs"]}

    until(lambda: described().get("cleanup.policy") == "delete,compact", 20, "the broker to know the change")
    kafkas = shell.tool(CONFIGS, "--describe", "--entity-type", "topics", "--entity-name", name)
    assert "min.compaction.lag.ms=1000" in kafkas
    assert "cleanup.policy=delete,compact" in kafkas
    brokers = rows(shell.out("configs", "describe", "--broker", "1"))
    assert ["BROKER", "1", "broker.id", "1", "STATIC_BROKER_CONFIG"] in brokers or any(
        row[2] == "node.id" for row in brokers
    )

    assert shell.out("topics", "delete", "-t", name) == f"Deleted topic {name}.\n"
    until(lambda: name not in shell.out("topics", "list").split(), 20, "the topic to be gone")
    code, _, err = shell.run("topics", "delete", "-t", name)
    assert (code, "UNKNOWN_TOPIC_OR_PARTITION (3)" in err, name in err) == (1, True, True)
    code, out, err = shell.run("topics", "delete", "-t", name, "--if-exists", "-o", "json")
    assert (code, json.loads(out), err) == (
        0,
        [{"name": name, "deleted": False}],
        f"Topic {name} does not exist.\n",
    )


def _described(text: str) -> list[dict[str, str]]:
    """Lines of `Name: value` pairs; our protocol has no ELR (KIP-966), and the order of settings is nobody's."""
    lines = []
    for line in filter(None, text.splitlines()):
        pairs = dict(pair.partition(":")[::2] for pair in line.strip().split("\t"))
        found = {key.strip(): ",".join(sorted(value.strip().split(","))) for key, value in pairs.items()}
        lines.append({k: v for k, v in found.items() if k not in ("Elr", "LastKnownElr")})
    return lines


# ---------------------------------------------------------------- the command as a process


def test_no_broker_is_one_line_and_a_traceback_only_with_debug() -> None:
    command = [Path(sys.executable).with_name("kafka-actors"), "topics", "list", "-b", "127.0.0.1:1"]
    command += ["-X", "request.timeout.ms=500"]
    plain = subprocess.run(command, capture_output=True, text=True, check=False, timeout=slow_s(60))
    assert (plain.returncode, plain.stdout) == (1, "")
    (line,) = without_notices(plain.stderr)
    assert line.startswith(
        "kafka-actors: error: none of the bootstrap_servers answered within 0.5 s: 127.0.0.1:1"
    )
    debug = subprocess.run(
        [*command, "--debug"], capture_output=True, text=True, check=False, timeout=slow_s(60)
    )
    first, *_, last = without_notices(debug.stderr)
    assert first.startswith("Traceback")
    assert last.startswith("kafka-actors: error: none of the bootstrap_servers")


def without_notices(err: str) -> list[str]:
    """Lines of stderr but for notices of what takes long, as everything does on a busy machine."""
    return [line for line in err.splitlines() if not line.startswith("waiting for ")]


def test_kafkas_own_file_for_command_config_works_for_both(
    secure: tuple[KafkaCluster, Files], group_id: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kafka, files = secure
    file = tmp_path / "client.properties"
    login = "org.apache.kafka.common.security.scram.ScramLoginModule required \\\n"
    escaped = PASSWORD.replace("ä", "\\u00e4")
    file.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n"
        f'sasl.jaas.config={login}    username="{USER}" password="{escaped}";\n'
        f"ssl.truststore.type=PEM\nssl.truststore.location={files.ca}\n"
    )
    topic = kafka.create_topic(group_id)
    at = kafka.bootstrap("SECURE")
    theirs = kafka.tool(TOPICS, "--bootstrap-server", at, "--command-config", str(file), "--list").stdout
    assert topic in theirs.split()
    assert run_command_line(["topics", "list", "-b", at, "--command-config", str(file)]) == 0
    assert topic in capsys.readouterr().out.split()
    wrong = ["-X", "sasl_plain_password=hunter2"]
    assert run_command_line(["topics", "list", "-b", at, "--command-config", str(file), *wrong]) == 1
    err = capsys.readouterr().err
    assert err.startswith("kafka-actors: error: SASL_AUTHENTICATION_FAILED (58)")
    assert err.count("\n") == 1
    assert "hunter2" not in err

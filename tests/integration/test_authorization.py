"""Errors of a principal without rights, at a broker that checks them (`StandardAuthorizer`)."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pyarrow as pa
import pytest
from waiting import slow_s, until

import kafka_actors as ka
from kafka_actors import TopicPartition
from kafka_actors.admin import AclBinding, AclBindingFilter, AlterConfigOp, ConfigResource, NewTopic
from kafka_actors.cli.main import run_command_line
from kafka_actors.errors import GroupAuthorizationFailedError, KafkaActorsError, TopicAuthorizationFailedError
from kafka_actors.testing import KafkaCluster

pytestmark = pytest.mark.kafka

USERS = ("alice", "bob")
JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required " + " ".join(
    f'user_{user}="{user}-pass"' for user in USERS
)
BROKER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",  # brokers, the controller, and the test itself: they log in nowhere
    "listener.name.login.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.login.plain.sasl.jaas.config": f"{JAAS};",
}


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaCluster]:
    with KafkaCluster(broker_config=BROKER, listeners={"LOGIN": "SASL_PLAINTEXT"}) as cluster:
        cluster.create_topic("orders", partitions=1)
        with ka.Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            producer.send("orders", b"1", partition=0)
        for topic, operation in (("orders", "Read"),):
            grant(cluster, "--topic", topic, "--operation", operation)
        with ka.Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            admin.alter_consumer_group_offsets("others", {("orders", 0): 1})
        yield cluster


def grant(cluster: KafkaCluster, *what: str) -> None:
    """Allows something to bob, and waits until the broker knows it; alice may do nothing."""
    main = "org.apache.kafka.tools.AclCommand"
    servers = ("--bootstrap-server", cluster.bootstrap_servers)
    of_bob = AclBindingFilter(principal="User:bob")
    with ka.Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        before = len(admin.describe_acls(of_bob))
        cluster.tool(main, *servers, "--add", "--allow-principal", "User:bob", *what)
        until(lambda: len(admin.describe_acls(of_bob)) > before, 20, "the ACL to be known")


def login(kafka: KafkaCluster, user: str) -> dict[str, str]:
    return {
        "bootstrap_servers": kafka.bootstrap("LOGIN"),
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": user,
        "sasl_plain_password": f"{user}-pass",
    }


def test_who_may_not_read_a_topic_is_told_which_right_is_missing(kafka: KafkaCluster) -> None:
    with ka.Consumer(**login(kafka, "alice")) as consumer:
        consumer.assign([("orders", 0)])
        with pytest.raises(TopicAuthorizationFailedError) as caught:
            consumer.poll_batch(timeout_ms=100_000)
    error = caught.value
    assert error.right == "Describe (Read to consume it, Write to write to it) on topic 'orders'"
    assert str(error).endswith(f"the principal needs the right {error.right}")


def test_who_may_read_the_topic_and_not_join_the_group_is_told_so(kafka: KafkaCluster) -> None:
    with (
        ka.Consumer(topics=["orders"], group_id="scorer", **login(kafka, "bob")) as consumer,
        pytest.raises(GroupAuthorizationFailedError) as caught,
    ):
        consumer.poll_batch(timeout_ms=100_000)
    assert caught.value.right == "Describe (Read to join it) on group 'scorer'"


def test_who_may_not_write_is_told_so(kafka: KafkaCluster) -> None:
    with (
        ka.Producer(**login(kafka, "bob"), enable_idempotence=False) as producer,
        pytest.raises(KafkaActorsError, match="the principal needs the right Write on topic 'orders'"),
    ):
        producer.send("orders", b"x", partition=0).result()


def test_an_admin_is_told_too(kafka: KafkaCluster) -> None:
    with ka.Admin(**login(kafka, "bob")) as admin:
        with pytest.raises(GroupAuthorizationFailedError, match=r"Describe .*on group 'others'"):
            admin.describe_consumer_groups(["others"])
        cluster = admin.describe_cluster(include_authorized_operations=True)
        assert cluster.authorized_operations == frozenset()
        assert [node.node_id for node in cluster.nodes] == [1]
    with ka.Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
        operations = admin.describe_cluster(include_authorized_operations=True).authorized_operations
        assert operations is not None
        assert {"DESCRIBE", "CREATE", "IDEMPOTENT_WRITE"} <= operations
        assert admin.describe_cluster().authorized_operations is None


def test_all_groups_without_the_right_to_see_them_is_an_error_or_says_that_some_are_missing(
    kafka: KafkaCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [f"-X{name}={value}" for name, value in login(kafka, "bob").items()]
    for command in (["lag", "--all-groups"], ["groups", "list"], ["groups", "describe", "--all-groups"]):
        assert run_command_line([*command, *given]) == 1
        assert "the principal needs the right Describe on cluster" in capsys.readouterr().err
    grant(kafka, "--group", "others", "--operation", "Describe")
    for command in (["lag", "--all-groups", "-o", "json"], ["groups", "list", "-o", "json"]):
        assert run_command_line([*command, *given]) == 0
        shown = capsys.readouterr()
        assert {row["group_id"] for row in json.loads(shown.out)} == {"others"}
        assert "groups that you may not describe are left out" in shown.err


def test_acls_are_created_listed_and_deleted_and_count_for_the_principal(kafka: KafkaCluster) -> None:
    read = AclBinding("TOPIC", "shipments-", "User:alice", "READ", pattern_type="PREFIXED")
    describe = AclBinding("TOPIC", "shipments-1", "User:alice", "DESCRIBE")
    of_alice = AclBindingFilter(principal="User:alice")
    with ka.Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("shipments-1", 1)])
        with ka.Admin(**login(kafka, "alice")) as alice:
            admin.create_acls([read, describe])
            admin.create_acls([read])  # one that is there stays
            until(
                lambda: "shipments-1" in {t.name for t in alice.list_topics()}, 20, "alice to see the topic"
            )
        # The broker takes on one of them after the other.
        until(lambda: len(admin.describe_acls(of_alice)) == 2, 20, "the other ACL to be known")
        assert admin.describe_acls(of_alice) == sorted([read, describe])
        assert admin.describe_acls(AclBindingFilter("TOPIC", "shipments-1", pattern_type="LITERAL")) == [
            describe
        ]
        concerned = AclBindingFilter("TOPIC", "shipments-1", "User:alice", pattern_type="MATCH")
        assert admin.describe_acls(concerned) == sorted([read, describe])
        assert admin.delete_acls([AclBindingFilter(pattern_type="PREFIXED"), of_alice]) == sorted(
            [read, describe]
        )
        until(lambda: not admin.describe_acls(of_alice), 20, "the ACLs to be gone")
        assert "User:bob" in {acl.principal for acl in admin.describe_acls()}


def test_acls_are_added_listed_and_removed_from_the_command_line(
    kafka: KafkaCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*arguments: str) -> str:
        capsys.readouterr()
        code = run_command_line(["acls", *arguments, "-b", kafka.bootstrap_servers])
        out, err = capsys.readouterr()
        assert code == 0, err
        return out

    choice = ["--allow-principal", "User:carol", "--operation", "read", "--topic", "refunds"]
    added = run("add", *choice).splitlines()
    assert added[1].split() == ["TOPIC", "refunds", "LITERAL", "User:carol", "*", "READ", "ALLOW"]
    until(lambda: run("list", "--topic", "refunds").splitlines() == added, 20, "the ACL to be known")
    kafkas = kafka.tool(
        "org.apache.kafka.tools.AclCommand",
        "--bootstrap-server",
        kafka.bootstrap_servers,
        "--list",
        "--topic",
        "refunds",
    ).stdout
    assert "principal=User:carol, host=*, operation=READ, permissionType=ALLOW" in kafkas
    [document] = json.loads(run("remove", "--allow-principal", "User:carol", "-o", "json"))
    assert (document["resource_name"], document["operation"]) == ("refunds", "READ")
    until(lambda: len(run("list", "--topic", "refunds").splitlines()) == 1, 20, "the ACL to be gone")


def test_who_may_not_change_the_cluster_is_told_the_right_for_each_call(kafka: KafkaCluster) -> None:
    acl = AclBinding("TOPIC", "orders", "User:bob", "WRITE")
    change = {ConfigResource("TOPIC", "orders"): [AlterConfigOp("retention.ms", "1")]}
    with ka.Admin(**login(kafka, "bob")) as admin:
        for call, right in (
            (lambda: admin.delete_topics(["orders"]), "Delete on topic 'orders'"),
            (lambda: admin.create_partitions({"orders": 2}), "Alter on topic 'orders'"),
            (lambda: admin.delete_records({TopicPartition("orders", 0): 1}), "Delete on topic 'orders'"),
            (lambda: admin.incremental_alter_configs(change), "AlterConfigs on topic 'orders'"),
            (lambda: admin.describe_configs([ConfigResource("BROKER", "1")]), "DescribeConfigs on cluster"),
            (lambda: admin.create_acls([acl]), "Alter on cluster"),
            (lambda: admin.delete_acls([AclBindingFilter()]), "Alter on cluster"),
            (admin.describe_acls, "Describe on cluster"),
        ):
            with pytest.raises(KafkaActorsError) as caught:
                call()
            assert str(caught.value).endswith(f"the principal needs the right {right}")


@pytest.mark.ray
def test_a_job_that_delivers_exactly_once_needs_one_right_more_by_its_groups_prefix(
    kafka: KafkaCluster, ray_local: None
) -> None:
    """Rights to read as its group and to write its results are granted; the one that is missing is that of its transactional ids."""

    def values_and_partitions(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.select(["value", "partition"])

    kafka.create_topic("plain", partitions=2)
    kafka.create_topic("scored", partitions=2)
    with ka.Producer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        for number in range(40):
            producer.send("plain", b"%d" % number, partition=number % 2)
    for what in (("--topic", "plain", "--operation", "Read"), ("--group", "exact", "--operation", "Read")):
        grant(kafka, *what)
    grant(kafka, "--topic", "scored", "--operation", "Write")
    access = login(kafka, "bob")
    job = ka.Job(
        topics=["plain"],
        group_id="exact",
        bootstrap_servers=access.pop("bootstrap_servers"),
        process=values_and_partitions,
        sink=ka.KafkaSink("scored"),
        delivery="exactly_once",
        until="latest",
        config={**access, "start_timeout_s": 600},
    )
    with pytest.raises(KafkaActorsError) as refused, job.start() as running:
        running.wait(timeout=slow_s(60))
    told = str(refused.value) + str(refused.value.__cause__)
    assert "needs the right Describe (Write to write with it) on transactional-id 'exact-" in told
    grant(
        kafka, "--transactional-id", "exact-", "--resource-pattern-type", "prefixed", "--operation", "Write"
    )
    with job.start() as running:
        running.wait(timeout=slow_s(60))
    with ka.Consumer(
        topics=["scored"],
        bootstrap_servers=kafka.bootstrap_servers,
        group_id="readers",
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as reader:
        found: list[int] = []
        while len(found) < 40:
            batch = reader.poll_batch(timeout_ms=100_000)
            assert batch is not None, found
            found += map(int, batch["value"].to_pylist())
    assert sorted(found) == list(range(40))

"""`Admin` and `AsyncAdmin`; the other side is confluent-kafka and the test kit's own requests."""

import asyncio
import time
from collections.abc import Callable, Iterator

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, ConfigResource
from fakes.refusing import refusing_address
from pace import this_run
from waiting import at_pace_s, slow_s, until

import kafka_actors as ka
from kafka_actors.admin import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    AclBinding,
    Admin,
    AlterConfigOp,
    AsyncAdmin,
    NewPartitions,
    NewTopic,
    OffsetTarget,
)
from kafka_actors.admin import ConfigResource as OurResource
from kafka_actors.errors import (
    GroupIdNotFoundError,
    InvalidConfigError,
    InvalidPartitionsError,
    InvalidReplicationFactorError,
    NoBrokersAvailable,
    NonEmptyGroupError,
    OffsetOutOfRangeError,
    SecurityDisabledError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
    UsageError,
)
from kafka_actors.testing import FakeKafka, KafkaCluster
from kafka_actors.testing.produce import Produce
from kafka_actors.types import OffsetAndMetadata, TopicPartition

PROTOCOLS = ["classic", pytest.param("consumer", marks=pytest.mark.kafka)]

T0 = int(time.time() * 1000) - 3_600_000
"""Time of the first record, milliseconds: no retention takes it yet, and no broker says that it is too new."""


@pytest.fixture
def admin(cluster: KafkaCluster | FakeKafka) -> Iterator[Admin]:
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as made:
        yield made


@pytest.fixture
def confluents(cluster: KafkaCluster | FakeKafka) -> AdminClient:
    """The admin of confluent-kafka."""
    return AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})


@pytest.fixture
def topic(kafka_topic: Callable[..., str], produce: Produce) -> str:
    """Two partitions with 6 and 4 records, a second apart."""
    name = kafka_topic(partitions=2)
    where = [0] * 6 + [1] * 4
    produce(name, [b"x"] * 10, partition=where, timestamps=[T0 + 1000 * n for n in range(10)])
    return name


@pytest.fixture
def join(
    cluster: KafkaCluster | FakeKafka, group_id: str
) -> Iterator[Callable[..., confluent_kafka.Consumer]]:
    """Joins the group with a confluent-kafka consumer that reads all ten records and commits them."""
    open_: list[confluent_kafka.Consumer] = []

    def make(topic: str, protocol: str = "classic", **more: object) -> confluent_kafka.Consumer:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "group.id": group_id,
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "client.id": "the-other-side",
                **more,
            }
        )
        open_.append(consumer)
        consumer.subscribe([topic])
        assert len(consumer.consume(10, timeout=slow_s(30))) == 10
        consumer.commit(asynchronous=False)
        return consumer

    yield make
    for consumer in open_:
        consumer.close()


def _has_leaders(cluster: KafkaCluster | FakeKafka, name: str, partitions: int) -> None:
    """A broker answers before all know of a topic or a partition, and of its leader."""

    def leaders() -> list[int]:
        try:
            return list(cluster.leaders(name).values())
        except KeyError:
            return []

    until(lambda: len(leaders()) == partitions and min(leaders()) >= 0, 20, f"{name} to have leaders")


def _left(admin: Admin, group: str) -> None:
    """A group is empty a moment after its last member has said goodbye."""
    until(lambda: not admin.describe_consumer_groups([group])[group].members, 20, "the group to be left")


# ---------------------------------------------------------------- groups


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_group_is_listed_and_described_as_confluents_admin_sees_it(
    admin: Admin, confluents: AdminClient, topic: str, group_id: str, join: Callable, protocol: str
) -> None:
    join(topic, protocol)
    [listed] = [group for group in admin.list_groups() if group.group_id == group_id]
    assert (listed.state, listed.type.lower(), listed.protocol_type) == ("Stable", protocol, "consumer")
    assert listed in admin.list_groups(states=["stable"], types=[protocol])
    assert listed not in admin.list_groups(states=["Empty"])
    assert listed not in admin.list_groups(types=["share"])

    described = admin.describe_consumer_groups([group_id])[group_id]
    theirs = confluents.describe_consumer_groups([group_id])[group_id].result()
    assert described.state == "Stable"
    assert described.type.lower() == theirs.type.name.lower() == protocol
    assert described.assignor == theirs.partition_assignor
    assert described.coordinator.node_id == theirs.coordinator.id
    [member], [their_member] = described.members, theirs.members
    assert (member.member_id, member.client_id, member.host) == (
        their_member.member_id,
        their_member.client_id,
        their_member.host,
    )
    assigned = {(tp.topic, tp.partition) for tp in their_member.assignment.topic_partitions}
    assert set(member.assignment) == assigned == {(topic, 0), (topic, 1)}
    if protocol == "consumer":
        assert set(member.target_assignment or ()) == assigned
        assert member.member_epoch == described.group_epoch == described.target_assignment_epoch


def test_a_static_member_shows_its_instance_id(
    admin: Admin, topic: str, group_id: str, join: Callable
) -> None:
    join(topic, **{"group.instance.id": "desk-1"})
    [member] = admin.describe_consumer_groups([group_id])[group_id].members
    assert member.group_instance_id == "desk-1"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_lag_is_what_is_between_commit_and_end(
    admin: Admin,
    cluster: KafkaCluster | FakeKafka,
    topic: str,
    group_id: str,
    join: Callable,
    produce: Produce,
    protocol: str,
) -> None:
    join(topic, protocol)
    produce(topic, [b"y"] * 3, partition=1)
    rows = {row.partition: row for row in admin.lag(group_id)}
    assert {(topic, p): row.current_offset for p, row in rows.items()} == cluster.committed(group_id)
    assert {(topic, p): row.log_end_offset for p, row in rows.items()} == cluster.end_offsets(topic)
    assert {p: row.lag for p, row in rows.items()} == {0: 0, 1: 3}
    assert {row.client_id for row in rows.values()} == {"the-other-side"}


def test_a_deleted_topic_does_not_hide_the_lag_of_others(
    admin: Admin,
    cluster: KafkaCluster | FakeKafka,
    kafka_topic: Callable[..., str],
    topic: str,
    group_id: str,
) -> None:
    gone = kafka_topic()
    admin.alter_consumer_group_offsets(
        group_id, {TopicPartition(gone, 0): 0, TopicPartition(topic, 0): OffsetAndMetadata(2, "why", 0)}
    )
    begun = time.monotonic()
    before = {row.topic: row.lag for row in admin.lag(group_id)}
    cluster.delete_topic(gone)
    after = {row.topic: row.lag for row in admin.lag(group_id)}
    assert before == {gone: 0, topic: 4}
    assert after in ({topic: 4}, {gone: None, topic: 4})  # the broker forgets its offsets in its own time
    assert this_run().quiet_s(begun, time.monotonic()) < 10  # nothing waited for the request timeout of 30 s


def test_offsets_go_in_with_metadata_and_come_back(
    admin: Admin, cluster: KafkaCluster | FakeKafka, topic: str, group_id: str
) -> None:
    given = {TopicPartition(topic, 0): OffsetAndMetadata(2, "by hand", 0), TopicPartition(topic, 1): 3}
    admin.alter_consumer_group_offsets(group_id, given)
    assert cluster.committed(group_id) == {(topic, 0): 2, (topic, 1): 3}
    assert admin.list_consumer_group_offsets(group_id) == {
        TopicPartition(topic, 0): OffsetAndMetadata(2, "by hand", 0),
        TopicPartition(topic, 1): OffsetAndMetadata(3),
    }


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_active_group_is_neither_reset_nor_committed_for_nor_deleted(
    admin: Admin, cluster: KafkaCluster | FakeKafka, topic: str, group_id: str, join: Callable, protocol: str
) -> None:
    consumer = join(topic, protocol)
    for execute in (False, True):
        with pytest.raises(NonEmptyGroupError, match=f"group '{group_id}' is Stable with 1 member"):
            admin.reset_offsets(group_id, OffsetTarget.earliest(), execute=execute)
    with pytest.raises(NonEmptyGroupError, match=f"group '{group_id}' has members"):
        admin.alter_consumer_group_offsets(group_id, {TopicPartition(topic, 0): 0})
    with pytest.raises(NonEmptyGroupError, match=f"group '{group_id}' has members"):
        admin.delete_consumer_groups([group_id])
    assert cluster.committed(group_id) == {(topic, 0): 6, (topic, 1): 4}

    consumer.close()
    _left(admin, group_id)
    admin.reset_offsets(group_id, OffsetTarget.earliest(), execute=True)
    assert cluster.committed(group_id) == {(topic, 0): 0, (topic, 1): 0}
    admin.delete_consumer_groups([group_id])
    assert cluster.committed(group_id) == {}


def test_a_plan_changes_nothing_and_a_consumer_goes_on_from_what_was_executed(
    admin: Admin, cluster: KafkaCluster | FakeKafka, topic: str, group_id: str
) -> None:
    admin.alter_consumer_group_offsets(group_id, {TopicPartition(topic, p): 4 for p in (0, 1)})
    scope = {topic: [0]}
    plan = admin.reset_offsets(group_id, OffsetTarget.shift_by(-2), scope)
    assert [(r.partition, r.current_offset, r.new_offset) for r in plan] == [(0, 4, 2)]
    assert cluster.committed(group_id) == {(topic, 0): 4, (topic, 1): 4}
    assert admin.reset_offsets(group_id, OffsetTarget.shift_by(-2), scope, execute=True) == plan
    with ka.Consumer(
        topics=[topic], group_id=group_id, bootstrap_servers=cluster.bootstrap_servers
    ) as consumer:
        batch = None
        while batch is None:
            batch = consumer.poll_batch(timeout_ms=1000)
    assert batch["partition"].to_pylist() == [0] * 4
    assert batch["offset"].to_pylist() == [2, 3, 4, 5]


def test_a_reset_by_time_takes_the_first_record_from_then_on(admin: Admin, topic: str, group_id: str) -> None:
    plan = admin.reset_offsets(group_id, OffsetTarget.timestamp(T0 + 2500), {topic: None}, execute=True)
    assert [(r.partition, r.new_offset, r.note) for r in plan] == [(0, 3, None), (1, 0, None)]
    late = admin.reset_offsets(group_id, OffsetTarget.timestamp(T0 + 7000), {topic: None})
    assert [(r.partition, r.current_offset, r.new_offset) for r in late] == [(0, 3, 6), (1, 0, 1)]
    assert late[0].note == "no record is as young as that: the end of the log"


def test_what_cannot_be_reset_is_named(admin: Admin, topic: str, group_id: str) -> None:
    with pytest.raises(UsageError, match=f"group '{group_id}' has committed nothing"):
        admin.reset_offsets(group_id, OffsetTarget.earliest())
    with pytest.raises(UnknownTopicOrPartitionError, match=f"for {topic}-7"):
        admin.reset_offsets(group_id, OffsetTarget.earliest(), {topic: [0, 7]})
    with pytest.raises(UnknownTopicOrPartitionError, match="for no-such-topic"):
        admin.reset_offsets(group_id, OffsetTarget.earliest(), {"no-such-topic": None}, execute=True)
    target = OffsetTarget.explicit({TopicPartition("no-such-topic", 1): 5})
    with pytest.raises(UnknownTopicOrPartitionError, match="for no-such-topic-1"):
        admin.reset_offsets(group_id, target, execute=True)
    assert admin.list_consumer_group_offsets(group_id) == {}


def test_of_many_groups_all_are_dealt_with_and_the_first_error_names_the_others(
    admin: Admin, cluster: KafkaCluster | FakeKafka, topic: str, group_id: str
) -> None:
    admin.alter_consumer_group_offsets(group_id, {TopicPartition(topic, 0): 1})
    with pytest.raises(GroupIdNotFoundError, match="group 'none-") as caught:
        admin.delete_consumer_groups(["none-1", group_id, "none-2"])
    assert {str(caught.value), caught.value.__notes__[0].removeprefix("and ")} == {
        f"GROUP_ID_NOT_FOUND (69): group 'none-{n}' does not exist" for n in (1, 2)
    }
    assert cluster.committed(group_id) == {}
    with pytest.raises(GroupIdNotFoundError, match=f"group '{group_id}' does not exist"):
        admin.describe_consumer_groups([group_id])
    with pytest.raises(GroupIdNotFoundError):
        admin.lag(group_id)


# ---------------------------------------------------------------- topics and offsets


def test_a_topic_is_created_and_described_as_confluents_admin_sees_it(
    admin: Admin, cluster: KafkaCluster | FakeKafka, confluents: AdminClient, group_id: str
) -> None:
    name = f"made-{group_id}"
    new = NewTopic(name, num_partitions=3, replication_factor=1, configs={"retention.ms": "86400000"})
    admin.create_topics([new], validate_only=True)
    assert name not in {topic.name for topic in admin.list_topics()}
    admin.create_topics([new])
    _has_leaders(cluster, name, 3)
    [listed] = [topic for topic in admin.list_topics() if topic.name == name]
    described = admin.describe_topics([name])[name]
    theirs = confluents.describe_topics(confluent_kafka.TopicCollection([name]))[name].result()
    # Kafka writes ids in the alphabet that is safe in URLs, librdkafka in the other one.
    their_id = str(theirs.topic_id).translate(str.maketrans("+/", "-_"))
    assert listed.topic_id == described.topic_id == their_id
    assert [(p.partition, p.leader, p.replicas, p.isr) for p in described.partitions] == [
        (p.id, p.leader.id, tuple(r.id for r in p.replicas), tuple(r.id for r in p.isr))
        for p in theirs.partitions
    ]
    resource = ConfigResource(ConfigResource.Type.TOPIC, name)
    their_config = confluents.describe_configs([resource])[resource].result()
    assert admin.topic_configs([name])[name] == {
        entry.name: entry.value for entry in their_config.values() if not entry.is_default
    }
    with pytest.raises(TopicAlreadyExistsError, match=f"for {name}: Topic '{name}' already exists"):
        admin.create_topics([new])


def test_what_a_topic_lacks_the_broker_chooses_and_what_it_cannot_have_is_said(
    admin: Admin, cluster: KafkaCluster | FakeKafka, group_id: str
) -> None:
    name = f"made-{group_id}"
    with pytest.raises(InvalidReplicationFactorError, match=f"for {name}: .*replication factor"):
        admin.create_topics([NewTopic(name, 1, 5)])
    admin.create_topics([NewTopic(name), NewTopic(f"{name}-2", replica_assignment=[[1], [1]])])
    _has_leaders(cluster, f"{name}-2", 2)
    assert len(admin.describe_topics([name])[name].partitions) == 1
    with pytest.raises(UnknownTopicOrPartitionError, match="for no-such-topic"):
        admin.describe_topics([name, "no-such-topic"])


@pytest.mark.kafka
def test_internal_topics_are_known_as_such(admin: Admin, topic: str, group_id: str) -> None:
    admin.alter_consumer_group_offsets(group_id, {TopicPartition(topic, 0): 1})
    assert {t.name: t.is_internal for t in admin.list_topics()}["__consumer_offsets"]
    ours = {t.name for t in admin.list_topics(exclude_internal=True)}
    assert "__consumer_offsets" not in ours
    assert topic in ours


def test_offsets_of_the_ends_of_a_time_and_of_the_youngest_record(
    admin: Admin, cluster: KafkaCluster | FakeKafka, topic: str
) -> None:
    cluster.delete_records(topic, 0, 2)
    tps = [TopicPartition(topic, p) for p in (0, 1)]
    starts, ends = (admin.list_offsets(dict.fromkeys(tps, at)) for at in (EARLIEST, LATEST))
    assert {tp: o.offset for tp, o in starts.items()} == cluster.beginning_offsets(topic)
    assert {tp: o.offset for tp, o in ends.items()} == cluster.end_offsets(topic)
    found = admin.list_offsets(dict.fromkeys(tps, T0 + 5000))
    assert {tp: (o.offset, o.timestamp) for tp, o in found.items()} == {
        tps[0]: (5, T0 + 5000),
        tps[1]: (0, T0 + 6000),
    }
    assert admin.list_offsets({tps[0]: T0 + 5001})[tps[0]].offset == -1
    youngest = admin.list_offsets({tps[1]: MAX_TIMESTAMP})[tps[1]]
    assert (youngest.offset, youngest.timestamp) == (3, T0 + 9000)
    with pytest.raises(UnknownTopicOrPartitionError, match=f"for {topic}-2"):
        admin.list_offsets({tps[0]: LATEST, TopicPartition(topic, 2): LATEST})


@pytest.mark.kafka
def test_a_topic_grows_and_is_deleted(
    admin: Admin, cluster: KafkaCluster | FakeKafka, confluents: AdminClient, group_id: str
) -> None:
    name = f"made-{group_id}"
    admin.create_topics([NewTopic(name, 1)])
    _has_leaders(cluster, name, 1)
    admin.create_partitions({name: 3}, validate_only=True)
    assert len(admin.describe_topics([name])[name].partitions) == 1
    admin.create_partitions({name: 3})
    admin.create_partitions({name: NewPartitions(4, [[1]])})
    _has_leaders(cluster, name, 4)
    with pytest.raises(InvalidPartitionsError, match=rf"for {name}: The topic .*currently has 4 partition"):
        admin.create_partitions({name: 2})
    with pytest.raises(
        UnknownTopicOrPartitionError, match=r"for no-such-topic: .*list_topics names the topics"
    ):
        admin.create_partitions({"no-such-topic": 2})

    with pytest.raises(
        UnknownTopicOrPartitionError, match=r"for no-such-topic: .*list_topics names the topics"
    ):
        admin.delete_topics([name, "no-such-topic"])
    until(lambda: name not in {topic.name for topic in admin.list_topics()}, 20, "the topic to be gone")
    assert name not in confluents.list_topics(timeout=slow_s(10)).topics


def test_records_are_deleted_before_an_offset_and_all_of_them(
    admin: Admin, cluster: KafkaCluster | FakeKafka, topic: str
) -> None:
    tps = [TopicPartition(topic, p) for p in (0, 1)]
    assert admin.delete_records({tps[0]: 2, tps[1]: LATEST}) == {tps[0]: 2, tps[1]: 4}
    assert cluster.beginning_offsets(topic) == {(topic, 0): 2, (topic, 1): 4}
    with pytest.raises(
        OffsetOutOfRangeError, match=f"for {topic}-0: give an offset from the start of the log"
    ):
        admin.delete_records({tps[0]: 7})
    with pytest.raises(UnknownTopicOrPartitionError, match=f"for {topic}-9"):
        admin.delete_records({TopicPartition(topic, 9): 1})


# ---------------------------------------------------------------- settings


@pytest.mark.kafka
def test_settings_are_described_as_confluents_admin_sees_them(
    admin: Admin, confluents: AdminClient, topic: str
) -> None:
    asked = {
        OurResource("TOPIC", topic): ConfigResource(ConfigResource.Type.TOPIC, topic),
        OurResource("BROKER", "1"): ConfigResource(ConfigResource.Type.BROKER, "1"),
    }
    found = admin.describe_configs(asked, include_synonyms=True)
    for ours, theirs in asked.items():
        their_config = confluents.describe_configs([theirs])[theirs].result()
        assert {
            name: (entry.value, entry.is_read_only, entry.is_sensitive, entry.is_default)
            for name, entry in found[ours].items()
        } == {
            name: (entry.value, entry.is_read_only, entry.is_sensitive, entry.is_default)
            for name, entry in their_config.items()
        }
    lag = found[OurResource("TOPIC", topic)]["min.compaction.lag.ms"]
    assert (lag.type, lag.source) == ("LONG", "DEFAULT_CONFIG")
    logs = found[OurResource("BROKER", "1")]["log.dirs"]
    assert logs.synonyms[0].name == "log.dirs"


def test_settings_are_changed_one_by_one(admin: Admin, topic: str) -> None:
    resource = OurResource("TOPIC", topic)
    before = admin.topic_configs([topic])[topic]

    def is_now(name: str, value: str | None) -> None:
        until(lambda: admin.topic_configs([topic])[topic].get(name) == value, 20, f"{name} to be {value}")

    lag, compact = (
        AlterConfigOp("min.compaction.lag.ms", "1000"),
        AlterConfigOp("cleanup.policy", "compact", "APPEND"),
    )
    admin.incremental_alter_configs({resource: [lag, compact]}, validate_only=True)
    admin.incremental_alter_configs({resource: [lag, compact]})
    is_now("min.compaction.lag.ms", "1000")
    is_now("cleanup.policy", "delete,compact")
    delete = AlterConfigOp("cleanup.policy", "delete", "SUBTRACT")
    admin.incremental_alter_configs({resource: [AlterConfigOp("min.compaction.lag.ms", op="DELETE"), delete]})
    is_now("min.compaction.lag.ms", None)
    is_now("cleanup.policy", "compact")
    admin.incremental_alter_configs({resource: [AlterConfigOp("cleanup.policy", op="DELETE")]})
    is_now("cleanup.policy", None)
    assert admin.topic_configs([topic])[topic] == before


def test_a_setting_that_cannot_be_is_refused_by_name(admin: Admin, topic: str) -> None:
    for change, says in (
        (AlterConfigOp("retention.sm", "1"), "Unknown topic config name: retention.sm"),
        (AlterConfigOp("retention.ms", "long"), "Invalid value long for configuration retention.ms"),
    ):
        with pytest.raises(InvalidConfigError, match=f"for {topic}: {says}"):
            admin.incremental_alter_configs({OurResource("TOPIC", topic): [change]})
    with pytest.raises(UnknownTopicOrPartitionError, match="for no-such-topic"):
        admin.describe_configs([OurResource("TOPIC", "no-such-topic")])
    with pytest.raises(UsageError, match="the cluster has no broker 99 now: give the id of one of 1"):
        admin.describe_configs([OurResource("BROKER", "99")])


@pytest.mark.kafka
def test_a_cluster_without_an_authorizer_says_what_it_lacks(admin: Admin) -> None:
    with pytest.raises(SecurityDisabledError, match=r"set authorizer\.class\.name on the brokers"):
        admin.describe_acls()
    with pytest.raises(SecurityDisabledError, match="ALLOW READ on TOPIC t to User:a"):
        admin.create_acls([AclBinding("TOPIC", "t", "User:a", "READ")])


# ---------------------------------------------------------------- life


def test_the_async_twin_answers_at_the_same_time(
    cluster: KafkaCluster | FakeKafka, topic: str, group_id: str
) -> None:
    async def main() -> None:
        async with AsyncAdmin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            await admin.alter_consumer_group_offsets(group_id, {TopicPartition(topic, 0): 1})
            groups, topics, rows = await asyncio.gather(
                admin.list_groups(), admin.list_topics(), admin.lag(group_id)
            )
        assert group_id in {group.group_id for group in groups}
        assert topic in {t.name for t in topics}
        assert [row.lag for row in rows] == [5]

    asyncio.run(main())


def test_groups_are_answered_for_while_their_coordinator_moves(
    kafka_cluster_3: KafkaCluster, kafka_topic: Callable[..., str], group_id: str
) -> None:
    topic = kafka_topic(1, cluster=kafka_cluster_3, replication_factor=3)
    with Admin(bootstrap_servers=kafka_cluster_3.bootstrap_servers) as admin:
        admin.alter_consumer_group_offsets(group_id, {TopicPartition(topic, 0): 0})
        killed = kafka_cluster_3.coordinator_of(group_id)
        kafka_cluster_3.kill(killed)
        deadline = time.monotonic() + slow_s(30)
        while True:  # a new coordinator answers from below its high watermark, which lags for a moment
            try:
                described = admin.describe_consumer_groups([group_id])[group_id]
                break
            except GroupIdNotFoundError:
                assert time.monotonic() < deadline
        assert described.coordinator.node_id != killed
        assert [row.current_offset for row in admin.lag(group_id)] == [0]


def test_a_closed_admin_says_so_and_closes_again(cluster: KafkaCluster | FakeKafka) -> None:
    admin = Admin(bootstrap_servers=cluster.bootstrap_servers)
    admin.close()
    admin.close()
    with pytest.raises(UsageError, match="this Admin is closed"):
        admin.list_topics()


def test_without_a_broker_the_error_names_the_address() -> None:
    with (
        refusing_address() as address,
        Admin(bootstrap_servers=address) as admin,
        pytest.raises(NoBrokersAvailable, match=f"{address}.*refused"),
    ):
        admin.list_topics(timeout_ms=1000 * at_pace_s(3))

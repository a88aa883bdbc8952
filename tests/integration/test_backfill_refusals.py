"""Refusals of a hand-over, with real Kafka and a checkpoint's real files: before the history is read, or after."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from fakes.spark import spark_session
from waiting import within

import kafka_actors as ka
from kafka_actors.admin import Admin
from kafka_actors.backfill import HandoverPlan
from kafka_actors.backfill.checkpoint_files import HadoopFiles
from kafka_actors.errors import (
    ConfigError,
    DataLossError,
    HandoverError,
    JobFailed,
    NonEmptyGroupError,
    StartLostError,
    TopicRecreatedError,
    UnknownTopicOrPartitionError,
)
from kafka_actors.types import OffsetAndMetadata, TopicPartition

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


@pytest.fixture(scope="module")
def spark(tmp_path_factory):
    with spark_session(tmp_path_factory.mktemp("warehouse")) as session:
        yield session


class Place:
    """A topic of two partitions with ten records each, a group, and a checkpoint."""

    def __init__(self, spark, cluster, topic, group, directory):
        self.spark = spark
        self.cluster = cluster
        self.topic = topic
        self.group = group
        self.directory = directory
        self.first, self.second = TopicPartition(topic, 0), TopicPartition(topic, 1)

    def backfill(self, topics=None, group=None, **options):
        pipeline = (
            ka.Pipeline.read_kafka(
                topics or self.topic,
                group_id=group or self.group,
                bootstrap_servers=self.cluster.bootstrap_servers,
                request_timeout_ms=20_000,
            )
            .raw()
            .write_parquet(str(self.directory / "out"))
        )
        return pipeline.backfill(self.spark, checkpoint=str(self.directory / "c"), progress=False, **options)

    def commit(self, offset):
        with self.admin() as admin:
            admin.alter_consumer_group_offsets(self.group, {self.first: offset})

    def committed(self):
        with self.admin() as admin:
            return admin.list_consumer_group_offsets(self.group)

    def admin(self):
        return Admin(bootstrap_servers=self.cluster.bootstrap_servers)

    def nothing_was_read(self):
        return not (self.directory / "c" / "offsets").exists()


@pytest.fixture
def place(spark, kafka_cluster, kafka_topic, produce, group_id, tmp_path):
    topic = kafka_topic(2)
    produce(topic, [b"%d" % n for n in range(20)], partition=[n % 2 for n in range(20)])
    yield Place(spark, kafka_cluster, topic, group_id, tmp_path)
    for query in spark.streams.active:
        query.stop()


def test_the_plan_is_asked_for_once_and_the_group_begins_at_its_ends(place, produce):
    plan = place.backfill().plan()
    assert plan.ends == {place.first: 10, place.second: 10}
    produce(place.topic, [b"later"], partition=0)
    assert place.backfill().plan() == plan
    assert HandoverPlan.from_json((place.directory / "c" / "handover.json").read_text(), "") == plan
    place.backfill().run()
    note = f"kafka-actors handover {plan.id}"
    found = place.committed()
    assert {tp: (o.offset, o.metadata) for tp, o in found.items()} == {
        place.first: (10, note),
        place.second: (10, note),
    }
    assert all(offset.leader_epoch >= 0 for offset in found.values())
    (place.directory / "c" / "metadata").write_text("no query could start here")
    place.backfill().run()  # all is done: nothing is started


def test_a_partition_at_or_past_its_end_is_left_alone(place):
    place.commit(OffsetAndMetadata(10, "mine"))
    place.backfill().run()
    assert place.committed()[place.first].metadata == "mine"
    assert place.committed()[place.second].offset == 10


def test_a_lower_commit_of_others_is_refused_before_the_history_is_read(place):
    place.commit(4)
    with pytest.raises(HandoverError, match=f"{place.topic}-0 at 4, not 10; .*overwrite_offsets=True"):
        place.backfill().run()
    assert place.nothing_was_read()
    place.backfill(overwrite_offsets=True).run()
    assert place.committed()[place.first].offset == 10


def test_a_group_whose_offsets_are_gone_is_not_quietly_put_back(place):
    place.backfill().run()
    with place.admin() as admin:
        admin.delete_consumer_groups([place.group])
    with pytest.raises(HandoverError, match="has no offset any more for 2 partitions"):
        place.backfill().run()
    assert place.committed() == {}
    place.backfill(overwrite_offsets=True).run()
    assert place.committed()[place.first].offset == 10


def test_nor_is_it_behind_a_plan_that_was_made_again(place):
    for _ in range(2):
        place.backfill().run()
        (place.directory / "c" / "handover.json").rename(place.directory / "plan.json")
    (place.directory / "plan.json").rename(place.directory / "c" / "handover.json")
    with place.admin() as admin:
        admin.delete_consumer_groups([place.group])
    with pytest.raises(HandoverError, match="has no offset any more for 2 partitions"):
        place.backfill().run()


def test_the_history_starts_where_start_said_when_it_was_planned(place, produce, caplog):
    plan = place.backfill(start={place.topic: {0: 3, 1: -2}}).plan()
    assert plan.starts == {place.first: 3, place.second: 0}
    later = datetime.now(UTC)
    place.backfill(start=later).run()
    assert f"start is {later}, and the plan in " in caplog.text
    rows = place.spark.read.parquet(str(place.directory / "out")).select("value").collect()
    assert sorted(int(row.value) for row in rows) == sorted([*range(6, 20, 2), *range(1, 20, 2)])
    assert place.committed()[place.first].offset == 10


def test_a_start_that_cannot_be_leaves_no_plan(place):
    place.cluster.delete_records(place.topic, 0, 4)
    with pytest.raises(DataLossError, match=f"{place.topic}-0 at offset 3: the start of the range is gone"):
        place.backfill(start={place.topic: {0: 3, 1: 0}}).plan()
    with pytest.raises(ConfigError, match=f"startingTimestamp: no record of {place.topic}-0 is at or after"):
        place.backfill(start=datetime.now(UTC) + timedelta(hours=1)).plan()
    assert place.backfill().plan().starts == {place.first: 4, place.second: 0}


def test_a_group_with_members_is_refused_before_the_history_is_read_and_by_the_broker_after_it(
    place, monkeypatch
):
    with ka.Consumer(
        place.topic,
        group_id=place.group,
        bootstrap_servers=place.cluster.bootstrap_servers,
        enable_auto_commit=False,
    ) as consumer:
        consumer.poll_batch(timeout_ms=100)
        while not consumer.assignment():
            consumer.poll_batch(timeout_ms=100)
        with pytest.raises(NonEmptyGroupError, match=f"group '{place.group}' has members"):
            place.backfill().run()
        assert place.nothing_was_read()
        monkeypatch.setattr("kafka_actors.backfill.handover_brokers.HandoverBrokers.check_empty", _passes)
        with pytest.raises(NonEmptyGroupError, match="the hand-over was not made"):
            place.backfill().run()
        assert place.committed() == {}
    place.backfill().run()
    assert place.committed()[place.first].offset == 10


async def _passes(brokers):
    pass


def test_a_topic_made_anew_is_named_before_the_history_is_read_and_after(place, produce):
    before = place.backfill()
    before.plan()
    _anew(place, produce)
    with pytest.raises(TopicRecreatedError, match="the topic was recreated"):
        before.run()
    assert place.nothing_was_read()
    (place.directory / "c" / "handover.json").unlink()
    place.backfill().run()
    with place.admin() as admin:
        admin.alter_consumer_group_offsets(place.group, {place.first: 15, place.second: 15})
    _anew(place, produce)
    with pytest.raises(TopicRecreatedError):
        place.backfill().run()


def _anew(place, produce):
    place.cluster.delete_topic(place.topic)
    place.cluster.create_topic(place.topic, partitions=2)
    produce(place.topic, [b"new"] * 20, partition=[n % 2 for n in range(20)])


def test_a_start_that_retention_took_is_named_with_the_count(place, produce):
    place.backfill().run()
    produce(place.topic, [b"later"] * 5, partition=[0] * 5)
    place.cluster.delete_records(place.topic, 0, 13)
    with pytest.raises(StartLostError, match=f"{place.topic}-0 at offset 10: .* 3 records lost") as lost:
        place.backfill().run()
    assert lost.value.lost == 3
    with place.admin() as admin:  # as the error says
        admin.alter_consumer_group_offsets(place.group, {place.first: 13})
    place.backfill().run()


def test_a_query_that_was_stopped_is_not_handed_over(place, monkeypatch):
    monkeypatch.setattr("kafka_actors.spark.OnSpark.run", lambda self: None)
    with pytest.raises(HandoverError, match="the query ended 20 offsets before the end of the history"):
        place.backfill().run()
    assert place.committed() == {}


def test_another_pipelines_plan_and_topics_that_are_not_there_are_refused(place):
    with pytest.raises(UnknownTopicOrPartitionError, match="not-there"):
        place.backfill(topics="not-there").plan()
    place.backfill().plan()
    with pytest.raises(ConfigError, match="group_id: is 'other'"):
        place.backfill(group="other").plan()
    with pytest.raises(ConfigError, match="topics: are not-there"):
        place.backfill(topics="not-there").run()


@pytest.mark.parametrize("misspelt", ["the sink's topic", "the dead-letter topic"])
def test_a_topic_that_is_written_to_and_is_not_there_is_named_before_the_history_is_read(place, misspelt):
    source = ka.Pipeline.read_kafka(
        place.topic, group_id=place.group, bootstrap_servers=place.cluster.bootstrap_servers
    )
    if misspelt == "the sink's topic":
        pipeline = source.raw().write_kafka("misspelt")
    else:
        there = place.cluster.create_topic(f"{place.topic}-there")
        pipeline = source.dead_letters("misspelt").on_error("dead_letter").raw().write_kafka(there)
    with within(60), pytest.raises(JobFailed, match=f"for misspelt: {misspelt} is not there on"):
        pipeline.backfill(place.spark, checkpoint=str(place.directory / "c"), progress=False).run()
    assert not any((place.directory / "c" / "commits").glob("[0-9]*"))
    assert place.committed() == {}


_NO_OPTIONS = {"end": "latest", "trigger": "once", "commitOffsets": True, "startingOffsets": "latest"}


def test_what_is_wrong_is_said_before_anything_connects(place):
    for name, value in _NO_OPTIONS.items():
        with pytest.raises(ConfigError, match=f"^{name}: is no option of a backfill: "):
            place.backfill(**{name: value})
    with pytest.raises(ConfigError, match="start: is 'latest': there would be no history"):
        place.backfill(start="latest")
    with pytest.raises(ConfigError, match="auto_offset_reset: is 'none' behind a backfill"):
        place.backfill().then_live(auto_offset_reset="earliest")
    with pytest.raises(ConfigError, match="auto_offset_reset: is 'none' behind a backfill"):
        place.backfill().then_live(config={"auto.offset.reset": "earliest"})
    with pytest.raises(
        ConfigError, match="group_id: is the pipeline's: the hand-over commits for that group"
    ):
        place.backfill().then_live(config={"group.id": "another"})
    with pytest.raises(ConfigError, match=r"\.sql|sql"):
        ka.Pipeline.read_kafka("t", group_id="g", bootstrap_servers="a:1").sql("select * from {this}").write(
            print
        ).backfill(place.spark, checkpoint="/c")
    with pytest.raises(ConfigError, match="checkpoint: is 'nosuch://x': Spark can't reach it"):
        ka.Pipeline.read_kafka("t", group_id="g", bootstrap_servers="a:1").raw().write(print).backfill(
            place.spark, checkpoint="nosuch://x"
        )


def test_an_end_that_cannot_be_reached_ends_the_query_in_one_line(place, produce):
    place.backfill().plan()
    path = place.directory / "c" / "handover.json"
    plan = json.loads(path.read_text())
    plan["topics"][place.topic]["partitions"]["1"]["end_offset"] = 12
    path.write_text(json.dumps(plan))
    with pytest.raises(JobFailed, match=f"{place.topic}-1 at offset 0: the log ends at 10, before 12"):
        place.backfill().run()
    assert place.committed() == {}


def test_the_files_of_other_file_systems_are_made_once_too(spark, tmp_path):
    jvm, configuration = spark._jvm, spark._jsc.hadoopConfiguration()
    directory = jvm.org.apache.hadoop.fs.Path(f"file:{tmp_path}/not/there")
    files = HadoopFiles(jvm, directory.getFileSystem(configuration), directory, configuration)
    assert files.read("handover.json") is None
    assert files.names("commits") == []
    assert files.create("handover.json", "ä\n")
    assert not files.create("handover.json", "two")
    files._system.create(files._path("raced"), False).close()
    with pytest.raises(Exception, match="FileAlreadyExistsException"):
        files._rename(files._path("raced"), files._path("handover.json"))
    assert files.read("handover.json") == "ä\n"
    assert sorted(files.names(".")) == ["handover.json", "raced"]


def test_records_that_retention_took_between_the_plan_and_the_first_read_are_an_error(place):
    plan = place.backfill().plan()
    place.cluster.delete_records(place.topic, 0, 4)
    with pytest.raises(JobFailed, match=f"{place.topic}-0 at offset 0: .*the log has 4 to 10"):
        place.backfill().run()
    assert place.committed() == {}
    assert plan.starts == {place.first: 0, place.second: 0}
    place.backfill(failOnDataLoss=False).run()
    assert place.committed()[place.first].offset == 10

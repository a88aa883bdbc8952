"""`transactional(df)`: the options that it returns, and the DataFrames that it refuses."""

from types import SimpleNamespace

import pytest
from pyspark.sql.types import BinaryType, StringType, StructType

from kafka_actors.errors import ConfigError
from kafka_actors.spark import transactional
from kafka_actors.spark.source.machines.task_markers import splits_digest
from kafka_actors.spark.source.sink_options import parse_sink

SCHEMA = StructType().add("key", StringType()).add("value", BinaryType())
PLAN = """\
== Physical Plan ==
* Project (2)
+- {leaf} (1)


(1) {leaf}
Output [1]: [value#0]
Arguments: kafka_actors, [value#0]
"""


class Leaves(list):
    """A sequence of Scala's."""

    apply = list.__getitem__

    def size(self):
        return len(self)


class Pairs(list):
    """A map of Scala's, and its iterator."""

    def iterator(self):
        left = [SimpleNamespace(_1=lambda k=k: k, _2=lambda v=v: v) for k, v in self]
        return SimpleNamespace(hasNext=lambda: bool(left), next=lambda: left.pop(0))


def classic(text, *leaves, streaming=True):
    """A DataFrame whose plans are in a JVM."""
    execution = SimpleNamespace(analyzed=lambda: SimpleNamespace(collectLeaves=lambda: Leaves(leaves)))
    strings = SimpleNamespace(
        explainString=lambda of, mode: text if (of, mode) == (execution, "formatted") else ""
    )
    jvm = SimpleNamespace(_jvm=SimpleNamespace(PythonSQLUtils=strings))
    return SimpleNamespace(
        isStreaming=streaming,
        schema=SCHEMA,
        sparkSession=SimpleNamespace(sparkContext=jvm),
        _jdf=SimpleNamespace(queryExecution=lambda: execution),
    )


def leaf_of_version_2(**options):
    given = SimpleNamespace(asCaseSensitiveMap=lambda: options)
    return SimpleNamespace(nodeName=lambda: "StreamingRelationV2", extraOptions=lambda: given)


def leaf_of_version_1(**options):
    source = SimpleNamespace(options=lambda: Pairs(options.items()))
    return SimpleNamespace(nodeName=lambda: "StreamingRelation", dataSource=lambda: source)


def splits_of(df):
    return transactional(df)["transactional.plan"].split(":")[1]


STREAM = PLAN.format(leaf="StreamingRelation")


def test_the_options_have_a_digest_of_the_split_options_and_of_the_columns():
    df = classic(STREAM, leaf_of_version_2(minPartitions="3", subscribe="orders"))
    given = transactional(df)
    assert given.keys() == {"transactional", "transactional.plan"}
    base = {"kafka.bootstrap.servers": "a:1", "topic": "scored"}
    parsed = parse_sink({**base, **given}, SCHEMA)
    assert parsed.transactional.splits == splits_digest([{"minPartitions": "3"}])
    with pytest.raises(ConfigError, match=r"transactional\.plan: is of a DataFrame with other columns"):
        parse_sink({**base, **given}, StructType().add("value", BinaryType()))


def test_the_digest_follows_the_options_of_sources_of_both_kinds_and_their_order():
    one = splits_of(classic(STREAM, leaf_of_version_2(minPartitions="3")))
    assert one != splits_of(classic(STREAM, leaf_of_version_2(minPartitions="4")))
    assert one == splits_of(classic(STREAM, leaf_of_version_1(minPartitions="3")))
    both = [leaf_of_version_1(maxRecordsPerPartition="9"), leaf_of_version_2(minPartitions="3")]
    assert splits_of(classic(STREAM, *both)) != splits_of(classic(STREAM, *reversed(both)))
    assert splits_of(classic(STREAM, leaf_of_version_1(a="1"))) == splits_of(
        classic(STREAM, leaf_of_version_1())
    )


def test_the_plan_is_that_of_a_stream_or_of_a_batch():
    transactional(classic(PLAN.format(leaf="BatchScan orders"), streaming=False))
    with pytest.raises(ConfigError, match="transactional: BatchScan orders is beside a stream"):
        transactional(classic(PLAN.format(leaf="BatchScan orders")))
    with pytest.raises(ConfigError, match="transactional: Exchange is a shuffle"):
        transactional(classic(STREAM.replace("* Project", "Exchange")))


@pytest.mark.parametrize(("frame", "said"), [(None, "None"), ("orders", "a str")])
def test_what_is_no_dataframe_is_refused(frame, said):
    with pytest.raises(
        ConfigError, match=f"transactional: is given {said}: accepts the DataFrame that is written"
    ):
        transactional(frame)


def test_over_connect_the_server_explains_and_the_client_has_the_sources():
    proto = pytest.importorskip("pyspark.sql.connect.proto")

    def read(**options):
        source = proto.Read.DataSource(format="kafka_actors", options=options)
        return proto.Relation(read=proto.Read(data_source=source, is_streaming=True))

    both = proto.Relation(
        set_op=proto.SetOperation(
            left_input=read(minPartitions="3"), right_input=read(maxRecordsPerPartition="9")
        )
    )
    wanted = splits_digest([{"minPartitions": "3"}, {"maxRecordsPerPartition": "9"}])
    assert splits_of(over_connect(proto.Plan(root=both))) == wanted
    text = proto.Relation(sql=proto.SQL(query="select * from {this}"))
    with_sources = proto.Relation(with_relations=proto.WithRelations(root=text, references=[both]))
    assert splits_of(over_connect(proto.Plan(root=with_sources))) == wanted


@pytest.mark.parametrize("behind", ["a view", "a query"])
def test_over_connect_a_source_behind_a_name_is_refused_because_its_options_are_not_to_be_seen(behind):
    proto = pytest.importorskip("pyspark.sql.connect.proto")
    if behind == "a view":
        table = proto.Read.NamedTable(unparsed_identifier="v")
        found = proto.Relation(read=proto.Read(named_table=table, is_streaming=True))
    else:
        found = proto.Relation(sql=proto.SQL(query="select * from v"))
    with pytest.raises(ConfigError, match="can't be seen behind a view or a table in Spark Connect"):
        transactional(over_connect(proto.Plan(root=found)))


def over_connect(plan):
    return SimpleNamespace(
        isStreaming=True,
        schema=SCHEMA,
        sparkSession=SimpleNamespace(client="the client"),
        _explain_string=lambda mode: STREAM if mode == "formatted" else "",
        _plan=SimpleNamespace(to_proto=lambda client: plan),
    )

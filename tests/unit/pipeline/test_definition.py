"""A pipeline is a value: composed, pickled, shown and checked before anything starts."""

import functools
import pickle

import pyarrow.compute as pc
import pytest
from fakes.definitions import JSON, READ, Enrich, double

import kafka_actors as ka
from kafka_actors.errors import ConfigError


def test_every_method_gives_a_new_value():
    filtered = JSON.filter(pc.field("amount") > 0)
    assert len(JSON.stages) == 1
    assert len(filtered.stages) == 2
    with pytest.raises(AttributeError):
        filtered.stages = ()


def test_repr_is_one_line_and_holds_no_secrets():
    pipeline = (
        ka.Pipeline.read_kafka(
            ["orders", "returns"],
            bootstrap_servers="b:9092",
            security_protocol="SASL_SSL",
            sasl_mechanism="PLAIN",
            sasl_plain_username="u",
            config={"sasl.plain.password": "sesame"},
        )
        .decode_json("id BIGINT, amount DOUBLE")
        .filter(pc.field("amount") > 0)
        .map_batches(Enrich, schema="id BIGINT")
        .with_key("id")
        .write_kafka("scored", config={"sasl.plain.password": "sesame", "sasl.plain.username": "u"})
    )
    assert repr(pipeline) == (
        "<Pipeline orders, returns → decode_json → filter(amount > 0) → map_batches(Enrich) → with_key(id) → "
        "write_kafka(scored)>"
    )
    assert "sesame" not in repr((pipeline, pipeline.source, pipeline.stages, pipeline.source.options))
    assert b"sesame" in pickle.dumps(pipeline), "it has to travel, though"
    assert repr(ka.Pipeline()) == "<Pipeline of nothing>"


def test_several_sinks_are_named_side_by_side():
    pipeline = JSON.write_kafka("scored").write_parquet("/data").with_key("id").write_kafka("by-id")
    assert repr(pipeline) == (
        "<Pipeline orders → decode_json → write_kafka(scored), write_parquet, with_key(id) → write_kafka(by-id)>"
    )
    assert pipeline.title == "orders → scored, /data, by-id"
    assert (JSON.title, JSON.write(double).title) == ("orders → …", "orders → write(double)")


def test_it_is_picklable():
    pipeline = (
        JSON.filter((pc.field("amount") > 0) & pc.field("_kafka", "offset").is_valid())
        .select("id", total=pc.field("amount") * 2)
        .map_batches(Enrich, schema="id BIGINT", fn_constructor_kwargs={"rate": 2.0}, on_error="dead_letter")
        .dead_letters("dead", linger_ms=1)
        .write_parquet("/tmp/x")
    )
    again = pickle.loads(pickle.dumps(pipeline))
    assert repr(again) == repr(pipeline)
    assert again.check("ray").columns == pipeline.check("ray").columns
    assert again.stages[3].arguments == {"rate": 2.0}
    assert (again.dead_letter_topic, again.dead_letter_options) == ("dead", {"linger_ms": 1})


def test_fragments_are_put_behind_one_another():
    clean = ka.Pipeline().filter(pc.field("amount") > 0).filter(pc.field("amount") > 0)
    write = ka.Pipeline().write_kafka("scored").on_error("skip", retries=1).dead_letters("dead")
    joined = JSON | clean | write
    assert [s.name for s in joined.stages] == [
        "decode_json",
        "filter(amount > 0)",
        "filter(amount > 0) #2",
        "write_kafka(scored)",
    ]
    assert (joined.policy, joined.retries, joined.dead_letter_topic) == ("skip", 1, "dead")
    assert (JSON.on_error("dead_letter") | write).policy == "dead_letter"
    with pytest.raises(ConfigError, match="has a source of its own"):
        JSON | READ


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: JSON.filter("amount > 0"), "accepts expressions"),
        (lambda: JSON.select(pc.field("id")), "has no name: give it one"),
        (lambda: JSON.select("id", "country", "id"), "names a column twice"),
        (lambda: JSON.select("id", id=pc.field("id") + 1), "names a column twice"),
        (lambda: JSON.select("_kafka"), "'_kafka' can't be a column's name"),
        (lambda: JSON.select(), "names no column"),
        (lambda: JSON.with_columns(x="country"), r"pc\.scalar\('country'\)"),
        (lambda: JSON.map_batches(7, schema="id INT"), "is given 7: accepts a function"),
        (lambda: JSON.map_batches(object, schema="id INT"), r"has no __call__\(self, batch\)"),
        (lambda: JSON.map_batches(lambda: 1, schema="id INT"), "too many positional arguments"),
        (lambda: JSON.map_batches(double, fn_constructor_kwargs={"a": 1}), "are for a class"),
        (
            lambda: JSON.map_batches(Enrich, fn_constructor_kwargs={"rat": 1}),
            "unexpected keyword argument 'rat'",
        ),
        (lambda: JSON.map_batches(double, schema="id INT", num_gpus=-1), "num_gpus is -1"),
        (
            lambda: JSON.map_batches(double, ordering="keys"),
            r"map_batches\(double\): ordering is 'keys': accepts 'partition', 'key' or 'unordered'",
        ),
        (
            lambda: READ.map_messages(double, concurrency=0),
            r"map_messages\(double\): concurrency is 0: must be a whole number of 1 or more",
        ),
        (lambda: READ.map_messages(double, concurrency=True), "concurrency is True: must be a whole number"),
        (lambda: JSON.map_batches(double, on_error="ignore"), "on_error is 'ignore': accepts 'fail', 'skip'"),
        (
            lambda: JSON.map_batches(double, schema="idd"),
            r"map_batches\(double\): schema: 'idd': expected a type",
        ),
        (
            lambda: JSON.write_kafka("x", format="xml"),
            "format is 'xml': accepts 'json', 'columns', 'avro', 'json_schema'",
        ),
        (lambda: JSON.write_kafka("x", delivery="once"), "delivery is 'once': accepts 'at_least_once' or"),
        (lambda: JSON.write_kafka("x", marker_topic="m"), "marker_topic is for delivery='exactly_once'"),
        (
            lambda: JSON.write_kafka(format="columns", delivery="exactly_once"),
            "rows name their topics: say with marker_topic=",
        ),
        (
            lambda: JSON.write_kafka("x", delivery="exactly_once", marker_topic="a b"),
            r"write_kafka\(x\): has 'a b': a topic's name",
        ),
        (
            lambda: JSON.write_kafka("x", delivery="exactly_once", acks="1"),
            r"write_kafka\(x\): acks is '1': must be 'all' with delivery='exactly_once'",
        ),
        (
            lambda: JSON.write_kafka("x", delivery="exactly_once", enable_idempotence=False),
            "enable_idempotence is False: must be True",
        ),
        (
            lambda: JSON.write_kafka("x", compresion_type="zstd"),
            r"write_kafka\(x\): compresion_type: .*compression_type",
        ),
        (
            lambda: JSON.write_kafka("large orders"),
            r"write_kafka\(large orders\): has 'large orders': a topic's name",
        ),
        (
            lambda: ka.Pipeline.read_kafka(["a", "b c"], bootstrap_servers="b:1"),
            "topics: has 'b c': a topic's name",
        ),
        (lambda: JSON.write(7), "is given 7"),
        (lambda: JSON.write(Enrich), "which has no write"),
        (lambda: JSON.dead_letters(""), "dead_letters: has '': a topic's name has 1 to 249"),
        (lambda: JSON.dead_letters("dead letters"), "dead_letters: has 'dead letters'"),
        (lambda: JSON.on_error("skip", retries=-1), "retries: is -1"),
        (lambda: JSON.spark(3), "accepts a function from a DataFrame"),
        (lambda: ka.Pipeline.read_kafka(bootstrap_servers="b:1"), "exactly one of topics and pattern"),
        (lambda: ka.Pipeline.read_kafka("t", bootstrap_servers="b:x"), "bootstrap_servers: "),
        (
            lambda: ka.Pipeline.read_kafka("t", bootstrap_servers="b:1", grup_id="g"),
            "did you mean 'group_id'",
        ),
        (
            lambda: ka.Pipeline.read_kafka("t", bootstrap_servers="b:1", retries=1),
            r"\.on_error\(…, retries=…\)",
        ),
        (lambda: JSON.filter(pc.field("id") > 0, name=" "), "name: is ' '"),
    ],
)
def test_wrong_arguments_are_refused_at_once(make, said):
    with pytest.raises(ConfigError, match=said):
        make()


async def later(batch):
    return batch


class Slow:
    def write(self, batch):
        """Takes it."""

    async def close(self):
        """Nobody would await it."""


def several(batch):
    yield batch


async def one_after_another(batch):
    yield batch


class Session:
    async def __call__(self, batch):
        return batch

    async def close(self):
        """Is awaited."""


def test_only_map_batches_and_map_messages_take_async_functions():
    for function in (later, Session, Session(), functools.partial(later)):
        for pipeline in (
            JSON.map_batches(function, schema="id INT"),
            READ.map_messages(function, schema="id INT"),
        ):
            assert pipeline.is_async
            assert pipeline.stages[-1].is_async
    assert not JSON.map_batches(double, schema="id INT").is_async
    with pytest.raises(
        ConfigError,
        match=r"^flat_map\(later\): is async: only map_batches and map_messages await their function",
    ):
        JSON.flat_map(later, schema="id INT")
    with pytest.raises(ConfigError, match="is async: only map_batches"):
        JSON.write(later)
    with pytest.raises(ConfigError, match="is an async generator: return the batches, or a list of them"):
        JSON.map_batches(one_after_another, schema="id INT")
    for yields in (one_after_another, several):
        with pytest.raises(ConfigError, match="is a generator: make it a plain function"):
            JSON.write(yields)
    assert JSON.map_batches(several, schema="id INT").stages[-1].target is several
    with pytest.raises(
        ConfigError, match="is given the class Slow, whose close is async: make it a plain method"
    ):
        JSON.write(Slow)


def test_functions_of_all_kinds_have_names():
    pipeline = (
        JSON.map_batches(double, schema="id INT")
        .map_batches(Enrich(), schema="id INT")
        .map_batches(functools.partial(double), schema="id INT")
        .map_batches(lambda b: b, schema="id INT", name="mine")
    )
    names = ["map_batches(double)", "map_batches(Enrich)", "map_batches(partial)", "mine"]
    assert [s.name for s in pipeline.stages[1:]] == names


def test_stages_have_names_of_their_own_whatever_users_call_them():
    given = ["a", "a #3", "a", "a", "a"]
    pipeline = functools.reduce(lambda made, name: made.raw(name=name), given, READ)
    assert [stage.name for stage in pipeline.stages] == ["a", "a #3", "a #2", "a #4", "a #5"]


def test_exactly_once_of_a_sink_is_for_spark_and_a_copy_without_it_runs_on_ray_too():
    exact = JSON.write_kafka("scored", delivery="exactly_once", marker_topic="markers").write_parquet("/data")
    exact.check("spark")
    with pytest.raises(
        ConfigError, match=r"write_kafka\(scored\): delivery is 'exactly_once', which is for Spark's tasks"
    ):
        exact.check("ray")
    plain = exact.at_least_once()
    plain.check("ray")
    assert [getattr(stage, "delivery", None) for stage in plain.stages] == [None, "at_least_once", None]

"""Plans from which a task gets the same rows again, and those that are refused by an operator's name."""

import pytest

from kafka_actors.errors import ConfigError
from kafka_actors.spark.source.machines.plan_operators import check_repeatable_rows, operators_of

STREAM = """\
== Physical Plan ==
* Project (5)
+- ArrowEvalPython (4)
   +- * Project (3)
      +- * Filter (2)
         +- StreamingRelation (1)


(1) StreamingRelation
Output [2]: [value#0, n#1]
Arguments: kafka_actors, [value#0, n#1]

(2) Filter [codegen id : 1]
Input [2]: [value#0, n#1]
Condition : (isnotnull(n#1) AND (n#1 > 0))

(3) Project [codegen id : 1]
Output [1]: [value#0]
Input [2]: [value#0, n#1]

(4) ArrowEvalPython
Input [1]: [value#0]
Arguments: [<lambda>(value#0)#4], [pythonUDF0#37], 101

(5) Project [codegen id : 2]
Output [2]: [value#0, pythonUDF0#37 AS v#5]
Input [2]: [value#0, pythonUDF0#37]
"""


def plan(*operators, source="kafka_actors"):
    """A plan of these operators, the first on top, above a streaming source."""
    count = len(operators) + 1
    names = [*operators, "StreamingRelation"]
    lines = ["== Physical Plan =="]
    lines += [f"{'   ' * at}{'+- ' if at else ''}{name} ({count - at})" for at, name in enumerate(names)]
    lines += ["", "", "(1) StreamingRelation", "Output [1]: [value#0]", f"Arguments: {source}, [value#0]", ""]
    return "\n".join(lines)


def check(text, *, streaming=True):
    check_repeatable_rows(text, streaming=streaming, option="transactional")


def test_operators_are_read_with_what_is_said_of_them():
    found = list(operators_of(STREAM))
    assert [operator.name for operator in found] == [
        "Project",
        "ArrowEvalPython",
        "Project",
        "Filter",
        "StreamingRelation",
    ]
    assert found[-1].source == "kafka_actors"
    assert "isnotnull" in found[3].about


@pytest.mark.parametrize(
    "text",
    [
        STREAM,
        plan(),
        plan("MapInArrow", "* Generate", "EventTimeWatermark"),
        plan("* Filter", source="kafka_actors_pipeline_0f_3"),
    ],
)
def test_stages_that_work_row_by_row_keep_each_row_in_its_task(text):
    check(text)


@pytest.mark.parametrize(
    ("operators", "named"),
    [
        (["AdaptiveSparkPlan", "Exchange"], "Exchange is a shuffle"),
        (["* HashAggregate", "StateStoreSave", "Exchange", "* HashAggregate"], "Exchange is a shuffle"),
        (["StreamingDeduplicate", "Exchange"], "Exchange is a shuffle"),
        (["Coalesce", "* Filter"], "Coalesce joins partitions"),
        (["StreamingGlobalLimit", "* LocalLimit"], "StreamingGlobalLimit takes the rows that come first"),
        (["CollectLimit"], "CollectLimit takes the rows"),
        (["TakeOrderedAndProject"], "TakeOrderedAndProject takes the rows"),
        (["* Sample"], "Sample takes rows at random"),
        (["* BroadcastHashJoin Inner BuildRight"], "BroadcastHashJoin Inner BuildRight joins"),
        (["FlatMapGroupsInPandas"], "FlatMapGroupsInPandas is not known to keep"),
    ],
)
def test_operators_after_which_a_row_may_be_in_another_task_are_refused_by_name(operators, named):
    with pytest.raises(ConfigError) as caught:
        check(plan(*operators))
    assert str(caught.value).startswith(f"transactional: {named}")


@pytest.mark.parametrize("source", ["rate", "FileSource[/data]", "RateStreamV2[rowsPerSecond=1"])
def test_streams_that_are_split_by_the_number_of_cores_are_refused_by_name(source):
    with pytest.raises(
        ConfigError, match=r"transactional: StreamingRelation of .* is a source that may split"
    ):
        check(plan("* Project", source=source))


def test_sparks_own_kafka_source_is_refused_because_it_deals_few_partitions_to_other_tasks_after_a_restart():
    """Ranges are in the order of a Scala map: of up to four entries that is the order of insertion, another one for offsets that were read
    from the log than for those that were just asked for (KafkaOffsetReaderAdmin, 4.2.0)."""
    with pytest.raises(
        ConfigError, match=r"StreamingRelation of kafka is Spark's own .*: read with kafka_actors"
    ):
        check(plan("* Filter", source="kafka"))


@pytest.mark.parametrize("leaf", ["* Scan ExistingRDD", "BatchScan orders", "* Range", "LocalTableScan"])
def test_the_splits_of_a_batch_are_planned_once_and_those_beside_a_stream_are_not(leaf):
    text = f"== Physical Plan ==\n* Filter (2)\n+- {leaf} (1)\n\n\n(1) X\nOutput [1]: [a#1]\n"
    check(text, streaming=False)
    with pytest.raises(ConfigError, match="is beside a stream"):
        check(text)


@pytest.mark.parametrize(
    "call",
    [
        *("rand(-12)", "random(-12)", "randn(-12)", "randstr(1, -12)", "uuid(Some(-12))"),
        *("reflect(java.util.UUID, randomUUID)", "java_method(java.util.UUID, randomUUID)"),
    ],
)
def test_rows_that_are_chosen_by_random_numbers_are_refused(call):
    name = call.partition("(")[0]
    with pytest.raises(ConfigError, match=rf"Filter has {name}\(\), which is another value then"):
        check(STREAM.replace("(n#1 > 0)", f"({call} > 0.5)"))
    check(STREAM.replace("(n#1 > 0)", "(operand(n#1) > 0.5)"))


RANDOM = """\
== Physical Plan ==
* Filter (4)
+- * Project (3)
   +- * Project (2)
      +- StreamingRelation (1)


(1) StreamingRelation
Output [1]: [value#0]
Arguments: kafka_actors, [value#0]

(2) Project [codegen id : 1]
Output [2]: [value#0, rand(-12) AS r#5]
Input [1]: [value#0]

(3) Project [codegen id : 1]
Output [3]: [value#0, (r#5 * 2.0) AS twice#51, length(value#0) AS n#6]
Input [2]: [value#0, r#5]

(4) Filter [codegen id : 1]
Input [3]: [value#0, twice#51, n#6]
Condition : (CHOSEN > 1)
"""


@pytest.mark.parametrize("column", ["r#5", "twice#51"])
def test_rows_that_are_chosen_by_a_column_of_random_numbers_are_refused(column):
    name = column.partition("#")[0]
    with pytest.raises(
        ConfigError, match=rf"Filter chooses rows by {name}, which is of rand\(\), another value"
    ):
        check(RANDOM.replace("CHOSEN", column))


@pytest.mark.parametrize("column", ["n#6", "value#0", "m#52"])
def test_a_random_column_that_no_row_is_chosen_by_stays(column):
    check(RANDOM.replace("CHOSEN", column))


def test_a_plan_in_a_form_that_is_not_known_is_refused():
    with pytest.raises(ConfigError, match="the plan is not readable: 'something else'"):
        check("something else")

"""Check of a plan, by Spark's own description of it: whether a task of it gets the same rows when it is run again.

A transactional write relies on that: a task that was committed before a crash isn't written again, and another one is, so a row must not be in
the one the first time and in the other the second time. What is read is `explain(mode="formatted")`, which is there in every kind of
session: a tree of operators, then a paragraph about each. Operators that keep each row in its task are known; all others are refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from kafka_actors.errors import ConfigError

PIPELINE_SOURCE = "kafka_actors_pipeline_"
"""Begin of the names of pipelines' data sources."""
_SOURCES = ("kafka_actors", "kafka")
"""Streaming sources that split the same offsets into the same tasks whatever the cluster is."""
_ROW_BY_ROW = frozenset(
    {
        "AdaptiveSparkPlan",  # around a shuffle, which is named
        "ArrowEvalPython",
        "BatchEvalPython",
        "CollectMetrics",
        "ColumnarToRow",
        "DeserializeToObject",
        "EventTimeWatermark",
        "Expand",
        "Filter",
        "Generate",
        "InMemoryRelation",
        "InMemoryTableScan",
        "MapElements",
        "MapInArrow",
        "MapInPandas",
        "MapPartitions",
        "Project",
        "PythonMapInArrow",
        "SerializeFromObject",
        "Sort",  # within a partition; a global one has a shuffle below
        "Union",
    }
)
"""Operators that keep each row in the task that has read it, in any order."""
_BATCH_SOURCES = ("BatchScan", "FileScan", "LocalTableScan", "Range", "Scan")
"""Leaves of a batch, whose splits are planned once for all tries of its tasks."""
_WHY = (
    (re.compile(r".*Join|CartesianProduct"), "joins, and the other side may have other rows then"),
    (
        re.compile(r".*Exchange|ShuffledRowRDD|AQEShuffleRead"),
        "is a shuffle, which may deal rows to other tasks then",
    ),
    (re.compile(r"Coalesce"), "joins partitions by where they are, which may be others then"),
    (re.compile(r".*Limit|TakeOrdered.*|Offset"), "takes the rows that come first, which may be others then"),
    (re.compile(r"Sample"), "takes rows at random"),
)
_ELSE = "is not known to keep each row in the task that has read it"
_NODE = re.compile(r"^[ :]*(?:[+:]- )?(?:\* )?(?P<name>[A-Za-z].*?) \((?P<number>\d+)\)$")
_RANDOM = re.compile(r"(?<![\w.`])(rand|randn|uuid|shuffle|monotonically_increasing_id|spark_partition_id)\(")


class PlanOperator(NamedTuple):
    """Operator of a physical plan, with the paragraph about it."""

    name: str
    about: str

    @property
    def kind(self) -> str:
        """The first word of its name: `Scan` of `Scan ExistingRDD`."""
        return self.name.partition(" ")[0]

    @property
    def source(self) -> str:
        """The name of a streaming source."""
        found = re.search(r"^Arguments: ([^,\n]*)", self.about, re.MULTILINE)
        return found[1].strip() if found else ""


def operators_of(explained: str) -> Iterator[PlanOperator]:
    """The operators of a plan in the text of `explain(mode="formatted")`, from top to bottom, subqueries included."""
    about = dict(re.findall(r"^\((\d+)\) [^\n]*\n((?:[^\n]+\n?)*)", explained, re.MULTILINE))
    for line in explained.splitlines():
        if (node := _NODE.match(line)) is not None:
            yield PlanOperator(node["name"], about.get(node["number"], ""))


def check_repeatable_rows(explained: str, *, streaming: bool, option: str) -> None:
    """Raises `ConfigError` about `option` for a plan that may give a task other rows when it is run again, naming the operator."""
    operators = list(operators_of(explained))
    if not operators:
        raise ConfigError(option, f"the plan is not readable: {explained.strip()[:200]!r}")
    problems = [
        (operator, why) for operator in operators if (why := _problem(operator, streaming)) is not None
    ]
    if not problems:
        return
    named = [problem for problem in problems if problem[1] is not _ELSE]
    operator, why = (named or problems)[0]
    raise ConfigError(
        option,
        f"{operator.name} {why}: a task that is run again must have the same rows, so the plan may have stages that work row by row only; "
        "write to a topic before it, or deliver at least once",
    )


def _problem(operator: PlanOperator, streaming: bool) -> str | None:
    if operator.kind == "StreamingRelation":
        name = operator.source
        if name in _SOURCES or name.startswith(PIPELINE_SOURCE):
            return None
        return f"of {name} is a source that may split the same data otherwise then, such as by the number of cores"
    if operator.kind in _ROW_BY_ROW:
        found = _RANDOM.search(operator.about) if operator.kind in ("Filter", "Generate") else None
        return None if found is None else f"has {found[1]}(), which is another value then"
    if operator.kind in _BATCH_SOURCES:
        return "is beside a stream: its splits may be others then" if streaming else None
    return next((why for pattern, why in _WHY if pattern.fullmatch(operator.kind)), _ELSE)

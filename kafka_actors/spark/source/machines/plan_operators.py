"""Check of a plan, by Spark's own description of it: whether a task of it gets the same rows when it is run again.

A transactional write relies on that: a task that was committed before a crash isn't written again, and another one is, so a row must not be in
the one the first time and in the other the second time. What is read is `explain(mode="formatted")`, which is there in every kind of
session: a tree of operators, then a paragraph about each. Operators that keep each row in its task are known; all others are refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from kafka_actors.errors import ConfigError

PIPELINE_SOURCE = "kafka_actors_pipeline_"
"""Begin of the names of pipelines' data sources."""
_SOURCE = "kafka_actors"
"""The streaming source that splits the same offsets into the same tasks whatever the cluster is."""
_SPARKS_KAFKA = (
    "is Spark's own source, which may deal up to four partitions to other tasks after a restart (in the order of its log then, of a "
    "Scala map before): read with kafka_actors, which has the same options"
)
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
_ALIAS = re.compile(r"(.*?) AS ([^\s,\]]+#\d+)", re.DOTALL)
"""An expression of a Project, and the column that it is."""
_RANDOM = re.compile(
    r"(?<![\w.`])(rand|random|randn|randstr|uuid|shuffle|reflect|try_reflect|java_method|monotonically_increasing_id|spark_partition_id)\("
)
"""Functions that Spark says are not deterministic, as plans name them: `uniform` is made of `rand`; `reflect` calls any method of Java's."""


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
    random = _random_columns(operators)
    problems = [
        (operator, why)
        for operator in operators
        if (why := _problem(operator, streaming) or _chooses_by(random, operator)) is not None
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


def _random_columns(operators: Iterable[PlanOperator]) -> dict[str, str]:
    """The columns that have other values when a task is run again, each with the function that makes them so."""
    found: dict[str, str] = {}
    for operator in reversed([*operators]):  # from the sources on
        for expression, column in _ALIAS.findall(operator.about) if operator.kind == "Project" else ():
            made = _RANDOM.search(expression)
            known = next((found[c] for c in found if _mentions(expression, c)), None)
            if made is not None or known is not None:
                found[column] = made[1] if made is not None else str(known)
    return found


def _chooses_by(random: Mapping[str, str], operator: PlanOperator) -> str | None:
    """Why rows of an operator are others when a task is run again, because of a column that it chooses them by."""
    if operator.kind not in ("Filter", "Generate"):
        return None
    condition = operator.about.partition("Condition")[2] or operator.about.partition("Arguments")[2]
    column = next((c for c in random if _mentions(condition, c)), None)
    if column is None:
        return None
    return f"chooses rows by {column.partition('#')[0]}, which is of {random[column]}(), another value then"


def _mentions(text: str, column: str) -> bool:
    return re.search(rf"{re.escape(column)}(?!\d)", text) is not None


def _problem(operator: PlanOperator, streaming: bool) -> str | None:
    if operator.kind == "StreamingRelation":
        name = operator.source
        if name == _SOURCE or name.startswith(PIPELINE_SOURCE):
            return None
        if name == "kafka":
            return f"of {name} {_SPARKS_KAFKA}"
        return f"of {name} is a source that may split the same data otherwise then, such as by the number of cores"
    if operator.kind in _ROW_BY_ROW:
        found = _RANDOM.search(operator.about) if operator.kind in ("Filter", "Generate") else None
        return None if found is None else f"has {found[1]}(), which is another value then"
    if operator.kind in _BATCH_SOURCES:
        return "is beside a stream: its splits may be others then" if streaming else None
    return next((why for pattern, why in _WHY if pattern.fullmatch(operator.kind)), _ELSE)

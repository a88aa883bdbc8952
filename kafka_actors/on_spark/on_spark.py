"""`OnSpark`: a pipeline bound to a Spark session."""

from __future__ import annotations

import uuid
from typing import Any

from kafka_actors.batches import SCHEMA
from kafka_actors.errors import ConfigError
from kafka_actors.pipeline import Pipeline
from kafka_actors.pipeline.checking import Step
from kafka_actors.pipeline.explain import placed
from kafka_actors.pipeline.stages import DataFrames

from .plan import SparkPlan, source_options
from .source import source_of


class OnSpark:
    """The stages before the first DataFrame stage run in the data source's own Python worker, before rows enter the JVM.

    `start` and `end` are the data source's `startingOffsets` and `endingOffsets`: by default all that there is.
    """

    def __init__(
        self, pipeline: Pipeline, spark: Any, *, start: str = "earliest", end: str = "latest"
    ) -> None:
        self.pipeline = pipeline
        self._spark = spark
        self._offsets = {"startingOffsets": start, "endingOffsets": end}

    def dataframe(self, *, streaming: bool = False, kafka: bool = False) -> Any:
        """The rows as a DataFrame, the sink left out. `kafka`: with the column `_kafka`.

        Where a fused stage has on_error="dead_letter" there is a column `_error`: failed records are rows in which
        only it (and `_kafka`) is not null. A stage may run more than once for a record: it must have no side effect.

        Raises `ConfigError` before anything starts, naming the stage.
        """
        if streaming:
            raise ConfigError("streaming", "is not built yet: dataframe(streaming=False)")
        checked = self.pipeline.check("spark")
        steps = placed(checked, "spark")
        fused = tuple(step for step, place in steps if place == "source")
        for step, place in steps:
            if place == "mapInArrow":
                raise ConfigError(
                    step.stage.name,
                    "would run as mapInArrow, which is not built yet: put it before DataFrame stages",
                )
        source = self.pipeline.source
        assert source is not None
        plan = SparkPlan(
            uuid.uuid4().hex,
            self.pipeline,
            fused,
            fused[-1].behind if fused else SCHEMA,
            kafka,
            {**source_options(source), **self._offsets},
        )
        plan.schema()
        made = source_of(plan)
        self._spark.dataSource.register(made)
        df = self._spark.read.format(made.name()).load()
        for step, place in steps:
            if place == "DataFrame":
                df = self._transformed(step, df)
        return df

    def _transformed(self, step: Step, df: Any) -> Any:
        stage = step.stage
        assert isinstance(stage, DataFrames)
        if stage.sql is not None:
            return self._spark.sql(stage.sql, this=df)
        assert stage.transform is not None
        return stage.transform(df)

    def explain(self) -> str:
        """What runs where."""
        return self.pipeline.explain("spark")

    def __repr__(self) -> str:
        return f"<OnSpark {self.pipeline!r}>"

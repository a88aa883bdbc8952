"""`Backfill`: the history of a pipeline's topics on Spark, then the same pipeline live on Ray, from the next offset."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from kafka_actors.base.io_thread import IoThread
from kafka_actors.config import JobConfig, build
from kafka_actors.errors import ConfigError
from kafka_actors.pipeline import Pipeline
from kafka_actors.pipeline.engines import engine
from kafka_actors.spark.source.checkpoint import as_before
from kafka_actors.spark.source.machines.stream_offsets import StreamOffsets

from .checkpoint_files import files_of, finished_offsets
from .handover_brokers import HandoverBrokers
from .machines.handover import Handover, HandoverCommit, HandoverStep
from .machines.handover_plan import HandoverPlan, PlannedRead, plan_of

if TYPE_CHECKING:
    from kafka_actors.job import Autoscale

T = TypeVar("T")

PLAN = "handover.json"


def done_file(plan: HandoverPlan) -> str:
    """Name of the file that says that this plan's offsets were committed: a group that has none then has lost them. A
    plan that was made anew, because its file was deleted, has a file of its own."""
    return f"handover-{plan.id}.done"


_RESET = "auto_offset_reset"
_HANDED_OVER = {"group_id", "bootstrap_servers"}
_SET_BY_THE_PLAN = {
    "end": "it ends where its plan says",
    "ends": "it ends where its plan says",
    "startingoffsets": "say start=",
    "startingtimestamp": "say start=",
    "trigger": "it reads up to its plan's ends, and stops",
    "commitoffsets": "the group's offsets are committed when the history is read",
}

logger = logging.getLogger(__name__)


class Backfill:
    """Reads history up to the offsets at which the logs ended when the backfill was first started, and begins live there.

        live = orders.backfill(spark, checkpoint="/data/orders").then_live(workers=8)
        live.wait()

    1. The plan: topics with their ids, and where the history of each partition starts and ends (at its last stable offset
       under read_committed), to `handover.json` in the checkpoint, once.
    2. The history: a streaming query from exactly there to exactly there, with this checkpoint.
    3. The hand-over: a commit of these offsets for the pipeline's group, with a note that names the plan. A partition
       for which the group is already at the plan's offset, or further, is left alone. Partitions that are not in the
       plan begin at 0.
    4. Live: the pipeline as a job on Ray, in that group, with auto_offset_reset="none".

    If it is killed, start the same program again: it goes on with the step that isn't done. History that was read
    isn't read again, and live goes on from the group's offsets.

    Arguments:
        checkpoint: a directory for the plan and for Spark's own checkpoint, on any file system of Spark's.
        start: where the history starts, as for `on_spark`: by default at the earliest offsets. It is resolved when the
            plan is made, and changes nothing later.
        overwrite_offsets: go on even if the group has committed offsets lower than the plan's, which are overwritten.
        options: other options of `Pipeline.on_spark`.

    Raises `ConfigError`, as `Pipeline.check` for both engines, before anything connects.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        spark: Any,
        *,
        checkpoint: str,
        start: Any = None,
        overwrite_offsets: bool = False,
        **options: Any,
    ) -> None:
        if not isinstance(checkpoint, str) or not checkpoint:
            raise ConfigError("checkpoint", f"is {checkpoint!r}: accepts the name of a directory")
        pipeline = as_before(pipeline, spark, checkpoint).ready()
        pipeline.check("spark")
        pipeline.at_least_once().check("ray")
        for name in options:
            if name.lower() in _SET_BY_THE_PLAN:
                raise ConfigError(name, f"is no option of a backfill: {_SET_BY_THE_PLAN[name.lower()]}")
        if start == "latest":
            raise ConfigError(
                "start", "is 'latest': there would be no history; on_ray(…) begins there by itself"
            )
        source = pipeline.source
        assert source is not None
        # Live starts at the offsets of the hand-over, whatever this option says.
        source_options = {name: value for name, value in source.options.items() if name != _RESET}
        self.pipeline: Pipeline = msgspec.structs.replace(
            pipeline, source=msgspec.structs.replace(source, options=source_options)
        )
        self.checkpoint = checkpoint
        self._config = build(JobConfig, None, **source_options)
        assert self._config.group_id is not None  # checked for Ray
        self._read = PlannedRead(
            self._config.group_id, self._config.isolation_level, source.topics, source.pattern
        )
        self._overwrite = overwrite_offsets
        self._spark = spark
        self._start = start
        self._options = options
        self._files = files_of(spark, checkpoint)

    # ------------------------------------------------------------ what users call

    def plan(self) -> HandoverPlan:
        """The plan: made at the first call, and read from its file ever after, also by other processes.

        Raises `ConfigError` for the plan of another pipeline and for an impossible start; `HandoverError` for a file that
        is not a plan, `UnknownTopicOrPartitionError`, `NoBrokersAvailable`, `DataLossError` for start offsets that are no longer
        in the log, a `KafkaError`.
        """
        return self._planned().plan

    def run(self) -> None:
        """Reads the history and hands over: then another program may start live, with
        `on_ray(auto_offset_reset="none")`.

        Raises as `plan` and as `OnSpark.run`; `NonEmptyGroupError` for a group with members; `HandoverError` for offsets
        that others committed, and where the query was stopped; `TopicRecreatedError`, `StartLostError` (which counts
        the lost records) or another `DataLossError` where the records with which live, or the history, begins are gone.
        """
        handover = self._planned()
        done_name = done_file(handover.plan)
        again = self._files.read(done_name) is not None
        handover.read(self._finished(handover.plan))
        if handover.step is HandoverStep.READ_HISTORY:
            self._with_brokers(lambda brokers: _check(handover, brokers, again))
            logger.info("reading the history of %s up to the ends in %s", self.pipeline.title, self._where)
            self._history(handover.plan).run()
            handover.read(self._finished(handover.plan), ended=True)
        self._with_brokers(lambda brokers: _hand_over(handover, brokers, again))
        if not again:
            self._files.create(done_name, handover.plan.metadata + "\n")

    def then_live(self, workers: int | Autoscale = 1, **options: Any) -> Any:
        """Does all of `run`, then starts the job and returns it, as `on_ray(…).start()` does. Options are those of
        `Pipeline.on_ray`. Raises as `run` and as `Job.start`."""
        config = options.get("config")
        more = config if isinstance(config, Mapping) else ()
        named = {str(name).replace(".", "_") for name in (*options, *more)}
        if _RESET in named:
            raise ConfigError(_RESET, "is 'none' behind a backfill: the hand-over says where live starts")
        for name in sorted(_HANDED_OVER & named):
            raise ConfigError(
                name, "is the pipeline's: the hand-over commits for that group, at those brokers"
            )
        live = engine("ray")(
            self.pipeline.at_least_once(), workers=workers, auto_offset_reset="none", **options
        )
        self.run()
        return live.start()

    def __repr__(self) -> str:
        return f"<Backfill {self.pipeline!r}, checkpoint {self.checkpoint}>"

    # ------------------------------------------------------------ the steps

    @property
    def _where(self) -> str:
        return f"{self._files!r}/{PLAN}"

    def _planned(self) -> Handover:
        handover = Handover(self._read, self._where, overwrite_offsets=self._overwrite)
        text = self._files.read(PLAN)
        if text is None:
            made = self._with_brokers(self._made_plan)
            starts = self._history(made).initial_offsets().by_partition
            self._files.create(PLAN, made.with_starts(starts, self._start_text).to_json())
            text = self._files.read(PLAN)  # another driver may have made it first
        assert text is not None
        plan = HandoverPlan.from_json(text, self._where)
        handover.planned(plan)
        if plan.starts and plan.start != self._start_text:
            logger.warning(
                "start is %s, and the plan in %s was made with %s: the history starts where the plan says",
                self._start_text,
                self._where,
                plan.start,
            )
        return handover

    @property
    def _start_text(self) -> str | None:
        return None if self._start is None else str(self._start)

    async def _made_plan(self, brokers: HandoverBrokers) -> HandoverPlan:
        now = datetime.now(UTC)  # wall clock: for people who read the file
        return plan_of(
            self._read, await brokers.cluster(), uuid.uuid4().hex, now.isoformat(timespec="seconds")
        )

    def _finished(self, plan: HandoverPlan) -> Any:
        return finished_offsets(self._files, plan.topics)

    def _history(self, plan: HandoverPlan) -> Any:
        return engine("spark")(
            self.pipeline.reading({"delivery": None}),  # which is the job's
            self._spark,
            checkpoint=self.checkpoint,
            trigger="availableNow",
            start=self._start,
            begin=StreamOffsets(plan.starts, plan.topic_ids, initial=True) if plan.starts else None,
            ends=StreamOffsets(plan.ends, plan.topic_ids),
            **self._options,
        )

    def _with_brokers(self, work: Callable[[HandoverBrokers], Awaitable[T]]) -> T:
        """Runs a coroutine in a thread of its own: in a notebook the caller's thread has a running event loop."""

        async def connected() -> T:
            async with HandoverBrokers(self._config, self._read) as brokers:
                return await work(brokers)

        io = IoThread("kafka-handover")
        try:
            return io.run(connected())
        finally:
            io.stop()


async def _check(handover: Handover, brokers: HandoverBrokers, again: bool) -> None:
    """Raises, before the history is read, what would keep the hand-over from being committed after it."""
    commit = await _commit_of(handover, brokers, again)
    if commit.takes_over:
        await brokers.check_empty()


async def _hand_over(handover: Handover, brokers: HandoverBrokers, again: bool) -> None:
    commit = await _commit_of(handover, brokers, again)
    if commit.offsets:
        # A driver that was killed while live leaves a member in the group for a while.
        await brokers.commit(commit.offsets, patient=not commit.takes_over)
        logger.info(
            "group %s: %d partitions handed over, %s",
            handover.plan.group_id,
            len(commit.offsets),
            handover.plan.metadata,
        )
    handover.handed_over()


async def _commit_of(handover: Handover, brokers: HandoverBrokers, again: bool) -> HandoverCommit:
    cluster = await brokers.cluster()
    return handover.commit(await brokers.committed(), cluster, again=again)

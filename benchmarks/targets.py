"""The targets, as data: what is compared with what, and what has to come out.

A figure is a ratio of two medians of one section, or one median where there is nothing to compare with. So it hardly
depends on the machine, unlike what it is made of.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from benchmarks import ordering, schemas, spark, telemetry
from benchmarks.batches import LARGE_NAME, SMALL_NAME
from benchmarks.common import OURS
from benchmarks.consumer import FLOOR
from benchmarks.exactly_once import AT_LEAST_ONCE, EXACTLY_ONCE
from benchmarks.job import ONE_WORKER, TWO_PROCESSES, TWO_WORKERS
from benchmarks.memory import FULL_WINDOW
from benchmarks.peers import CONFLUENT, JAVA
from benchmarks.producer import PRODUCER
from benchmarks.ray_data import READ_KAFKA
from benchmarks.scale import PARTITIONS, name_of
from benchmarks.start import WORKERS
from benchmarks.transactions import COPIER

BEST = "the best"
"""In place of a client to compare with: the one of the section with the highest median."""
TOLERANCE = 0.15
"""How far a figure may fall behind the baseline: more than the ratios of alternating runs differ on a quiet machine."""
WIDE = 0.5
"""The same where single events decide, as for a p99, or where little is measured, as for an idle process."""


class Sense(StrEnum):
    AT_LEAST = "at least"
    AT_MOST = "at most"
    REPORTED = "reported"
    """No bound; larger is worse, as with what has to be at most something."""


@dataclass(frozen=True)
class Target:
    """`metric` of `client` in `section`, divided by that of `against` if one is named.

    `bounded_by` says, from a profile, what keeps it from being reached; shown where it isn't.
    """

    what: str
    section: str
    client: str
    metric: str
    sense: Sense
    bound: float
    against: str | None = None
    unit: str = "x"
    tolerance: float = TOLERANCE
    bounded_by: str = ""

    @property
    def key(self) -> str:
        """How the baseline names it."""
        against = f" / {self.against}" if self.against else ""
        return f"{self.section}: {self.metric} of {self.client}{against}"

    @property
    def larger_is_better(self) -> bool:
        return self.sense is Sense.AT_LEAST

    def reached(self, figure: float) -> bool | None:
        """None where there is no bound."""
        if self.sense is Sense.REPORTED:
            return None
        return figure >= self.bound if self.larger_is_better else figure <= self.bound

    def text(self, figure: float) -> str:
        """With its unit."""
        if self.unit == "%":
            return f"{figure * 100:.0f} %"
        if self.unit == "x":
            return f"{figure:.2f} x"
        return f"{figure:.3g} {self.unit}"


def _rate(
    what: str,
    section: str,
    client: str,
    against: str | None,
    bound: float,
    unit: str = "x",
    bounded_by: str = "",
) -> Target:
    return Target(what, section, client, "rate", Sense.AT_LEAST, bound, against, unit, bounded_by=bounded_by)


def _most(
    what: str,
    section: str,
    client: str,
    metric: str,
    bound: float,
    unit: str,
    tolerance: float = TOLERANCE,
    bounded_by: str = "",
) -> Target:
    return Target(what, section, client, metric, Sense.AT_MOST, bound, None, unit, tolerance, bounded_by)


def _latency(
    what: str,
    client: str,
    metric: str,
    sense: Sense,
    bound: float = 0,
    bounded_by: str = "",
    section: str = "latency",
) -> Target:
    return Target(
        what, section, client, metric, sense, bound, CONFLUENT, tolerance=WIDE, bounded_by=bounded_by
    )


A_RECORD_ALONE = (
    "the CPU of a record that comes alone, which the next one has to wait for: 2.6 times that of librdkafka and its caller (0.204 ms against 0.078; "
    "0.31 against 0.139 on a slow machine, of which 0.06 is the thread that fetches, which runs without the interpreter, and 0.25 the "
    "user's). By perf three quarters of that are "
    "Python's interpreter, some 120 calls that keep positions, memory and offsets for a batch of any size, 7 % the kernel, 9 % Arrow. With nothing but a "
    "decoder behind the same thread, a sketch took 0.15"
)
A_RECORD_OF_A_JOB = (
    "the CPU of a record that comes alone, over three processes (a third of it in the connection actor, two thirds in the worker), and waiting for one of the two "
    "cores, on which broker and producer work, too: 0.75 ms for each millisecond's record, and 1.1 on a slow machine, so there both cores are full"
)
BOTH_CORES = (
    "both cores: 0.13 of the two are idle. By perf, in 5 s with the start of a pass in them, ZSTD_decompressSequences has 31 % of the samples, "
    "the rest of zstd 4, building the columns 6, zeroing fresh memory 5, the checksum of the benchmark 3"
)
OF_A_STREAM = (
    "what a stream costs before it reads: with 800 records it takes 1.4 s and 1.6 s of CPU, where a batch takes 0.16 s, and Spark's own stream "
    "0.35 s more than its batch. Spark starts a process for each stream that plans it: times noted along the way say 0.93 s from there to the first "
    "trigger, and of them 0.15 s are ours. The rest is Python and PySpark, which those processes import out of pyspark.zip, where nothing is compiled: "
    "0.65 s, and 0.19 from a directory. The trigger takes 0.6 s, half of it planning and logs, as with Spark's own source"
)
OF_A_COPY = (
    "the broker's part of a transaction. Of 2.26 s for 20 transactions, noted along the way, 0.7 s are reading and sending, and 1.54 s are waiting: "
    "0.59 s for the offsets, 0.95 s for the last acknowledgements and EndTxn. The broker, which handles the requests of one connection one after "
    "another, has 1.1 to 1.7 s of CPU in that time for these bytes; our process has 1.2 s, in four threads"
)
OF_TWO_COLUMNS = (
    "1.4 of two cores are busy, and it isn't decoding that keeps them: when it was done ahead in two threads, a query took 2.16 s instead of "
    "2.22, and 3.34 s of CPU instead of 3.08. By perf 0.8 of these are zstd and 0.16 building the columns"
)
THE_START = (
    "the start of the job: 2.0 s to the first record in a topic of 800,000, where what it reads it reads at the rate of job/none. Five processes of Ray come "
    "up meanwhile with 0.42 to 0.57 s of CPU each, 2.5 s together on two cores; 0.1 to 0.3 of each is what we import"
)


TARGETS: tuple[Target, ...] = (
    _rate("Consumer against confluent-kafka, plain", "consumer/none", OURS, CONFLUENT, 12),
    _rate("Consumer against confluent-kafka, lz4", "consumer/lz4", OURS, CONFLUENT, 8),
    _rate("Consumer against confluent-kafka, zstd", "consumer/zstd", OURS, CONFLUENT, 5),
    _rate("Consumer against Java's ConsumerPerformance, plain", "consumer/none", OURS, JAVA, 3),
    _rate("Consumer against Java's ConsumerPerformance, zstd", "consumer/zstd", OURS, JAVA, 1.8),
    _rate("Consumer against the floor, plain", "consumer/none", OURS, FLOOR, 0.45, "%"),
    _rate("Consumer against the floor, 1 KB records", "consumer/1KB", OURS, FLOOR, 0.65, "%"),
    _rate("Consumer against the floor, 50 KB records", "consumer/50KB", OURS, FLOOR, 0.65, "%"),
    _rate("16 KiB batches against large ones, plain", "batches/none", SMALL_NAME, LARGE_NAME, 0.6, "%"),
    _rate("16 KiB batches against large ones, lz4", "batches/lz4", SMALL_NAME, LARGE_NAME, 0.6, "%"),
    _rate("16 KiB batches against large ones, zstd", "batches/zstd", SMALL_NAME, LARGE_NAME, 0.6, "%"),
    _rate("message at a time against confluent-kafka", "messages/none", OURS, CONFLUENT, 1.5),
    _rate("Job, 2 workers, against 2 confluent-kafka, plain", "job/none", TWO_WORKERS, TWO_PROCESSES, 5),
    _rate("Job, 2 workers, against 2 confluent-kafka, zstd", "job/zstd", TWO_WORKERS, TWO_PROCESSES, 7, bounded_by=BOTH_CORES),
    _rate("Job, 1 worker, against Consumer, plain", "job/none", ONE_WORKER, OURS, 0.4, "%"),
    _rate("Job, 1 worker, against Consumer, zstd", "job/zstd", ONE_WORKER, OURS, 0.8, "%"),
    _latency("latency p99: Consumer against confluent-kafka", OURS, "p99_ms", Sense.AT_MOST, 1.2,
             A_RECORD_ALONE),
    _latency("latency p50: Consumer against confluent-kafka", OURS, "p50_ms", Sense.REPORTED),
    _latency("latency p99: Job against confluent-kafka", TWO_WORKERS, "p99_ms", Sense.AT_MOST, 2.5,
             A_RECORD_OF_A_JOB),
    _latency("latency p50: Job against confluent-kafka", TWO_WORKERS, "p50_ms", Sense.REPORTED),
    _latency("the same with both cores half busy, p99: Consumer", OURS, "p99_ms", Sense.AT_MOST, 1.5, A_RECORD_ALONE, "latency/busy"),
    _latency("the same with both cores half busy, p99: Job", TWO_WORKERS, "p99_ms", Sense.AT_MOST, 4, A_RECORD_OF_A_JOB, "latency/busy"),
    _most("CPU of a record that comes alone: Consumer", "latency", OURS, "cpu_ms", 0.10, "ms", bounded_by=A_RECORD_ALONE),
    _most("CPU of a record that comes alone: Job", "latency", TWO_WORKERS, "cpu_ms", 0.25, "ms", bounded_by=A_RECORD_OF_A_JOB),
    _most("idle with 1,000 partitions: Consumer", "idle", OURS, "busiest_percent", 3, "% of a core", WIDE),
    _most("idle: busiest process of a Job", "idle", TWO_WORKERS, "busiest_percent", 3, "% of a core", WIDE),
    *(
        _rate(f"the same bytes in {name_of(n)} against the best", "scale", name_of(n), BEST, 0.8, "%")
        for n in PARTITIONS
    ),
    _most("memory over the imports: Consumer", "memory", OURS, "over_imports_mb", 300, "MB"),
    _most("memory over the imports / limits: Job", "memory", TWO_WORKERS, "over_limits", 1.2, "x"),
    _most("memory of a full window of a job by key, against its records", "memory/window", FULL_WINDOW, "over_window", 1.5, "x"),
    _most("start of a Job, 4 workers", "start/0", WORKERS, "first_record_s", 4, "s"),
    Target("the same with Kafka's 3 s of waiting for members", "start/3000", WORKERS, "first_record_s",
           Sense.REPORTED, 0, unit="s"),
    _rate("Producer, Arrow, against confluent-kafka, plain", "producer/none", PRODUCER, CONFLUENT, 3),
    _rate("Producer, Arrow, against confluent-kafka, zstd", "producer/zstd", PRODUCER, CONFLUENT, 3),
    _rate("copy in transactions against confluent-kafka", "transactions/copy", COPIER, CONFLUENT, 5, bounded_by=OF_A_COPY),
    _rate("transactions of one record against confluent-kafka", "transactions/one", PRODUCER, CONFLUENT, 1),
    _rate("Job exactly once against at least once, plain", "exactly_once/none", EXACTLY_ONCE, AT_LEAST_ONCE, 0.9, "%"),
    _rate("Job exactly once against at least once, zstd", "exactly_once/zstd", EXACTLY_ONCE, AT_LEAST_ONCE, 0.9, "%"),
    _most("without results when a worker is killed", "exactly_once/killed", EXACTLY_ONCE, "without_s", 2, "s"),
    _most("without results when a worker freezes, after it was noticed", "exactly_once/frozen", EXACTLY_ONCE, "after_s", 2, "s"),
    *(
        _rate(f"calls by key, {ms} ms of work", f"ordering/{ms}ms", ordering.ASYNC, None, bound, "records/s")
        for ms, bound in ((0, 300_000), (1, 55_000), (10, 40_000), (100, 8_000))
    ),
    _rate("calls by key, 100 ms of work, 1,000 keys", "ordering/few-keys", ordering.ASYNC, None, 4_000, "records/s"),
    _rate("calls of a plain function, 10 ms, 100 threads", "ordering/threads-1", ordering.THREADS, None, 8_000, "records/s"),
    _rate("the same in two workers of 50 threads", "ordering/threads-2", ordering.THREADS, None, 9_000, "records/s"),
    _rate("16 workers on 2 partitions, against 2 workers", "ordering/shared", ordering.SIXTEEN, ordering.TWO, 6.4),
    _rate("Consumer that nobody measures, against one without the calls", "telemetry/consumer", OURS, telemetry.UNTOLD, 0.97, "%"),
    _rate("Avro to columns, a core", "schemas/avro", schemas.AVRO, None, 2_000_000, "rows/s"),
    _rate("Avro to columns against confluent-kafka's deserializer", "schemas/avro", schemas.AVRO, CONFLUENT, 20),
    _rate("Avro resolved to another schema, a core", "schemas/resolved", schemas.AVRO, None, 1_500_000, "rows/s"),
    _rate("Protobuf to columns, a core", "schemas/protobuf", schemas.PROTOBUF, None, 1_500_000, "rows/s"),
    _rate("Protobuf to columns against confluent-kafka's deserializer", "schemas/protobuf", schemas.PROTOBUF, CONFLUENT, 10),
    _rate("Avro decoded and summed on Spark, against from_avro", "schemas/spark", schemas.OPTION, schemas.FROM_AVRO, 1.5),
    _rate("Avro decoded and summed on Ray, 2 workers, against two processes", "schemas/ray", schemas.RAY_PIPELINE, schemas.TWO_PROCESSES, 30),
    _rate("the same by a pipeline", "schemas/spark", schemas.PIPELINE, schemas.FROM_AVRO, 1.5),
    _rate("Spark, batch, against its own source, plain", "spark/none", spark.OURS, spark.THEIRS, 3),
    _rate("Spark, batch, against its own source, zstd", "spark/zstd", spark.OURS, spark.THEIRS, 2.5),
    _rate("the same with a .schema() of two columns, plain", "spark/none", spark.TWO_COLUMNS, spark.THEIRS, 4),
    _rate("the same with a .schema() of two columns, zstd", "spark/zstd", spark.TWO_COLUMNS, spark.THEIRS, 4, bounded_by=OF_TWO_COLUMNS),
    _rate("Spark, a fused JSON stage, against mapInArrow", "spark/json", spark.FUSED, spark.MAP_IN_ARROW, 4),
    _rate("Spark, a fused JSON stage, against from_json", "spark/json", spark.FUSED, spark.FROM_JSON, 5),
    _rate("Spark, stream, against its own source", "spark/stream", spark.OURS, spark.THEIRS, 2.5, bounded_by=OF_A_STREAM),
    _rate("Spark, sink, against its own sink", "spark/sink", spark.OURS, spark.THEIRS, 1),
    _rate("Spark, transactional sink, against the plain one", "spark/transactional", spark.TRANSACTIONAL, spark.OURS, 0.85, unit="%"),
    _rate("Job, 2 workers, against ray.data.read_kafka", "ray_data", TWO_WORKERS, READ_KAFKA, 25, bounded_by=THE_START),
)  # fmt: skip

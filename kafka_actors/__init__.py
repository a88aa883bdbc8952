"""Kafka consumer groups as actors on Ray, beside Spark: a function of yours processes Arrow batches, its offsets are committed.

    import kafka_actors as ka

    job = ka.Job(topics=["orders"], group_id="scorer", bootstrap_servers="localhost:9092", process=score, workers=4)
    with job.start() as running:
        running.wait()

`Job` runs on Ray (`pip install "kafka-actors[ray]"`). `Consumer`, `Producer` and `Admin`, and their asyncio variants
`AsyncConsumer`, `AsyncProducer` and `AsyncAdmin`, need neither Ray nor Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_actors.lazy import lazily

__version__ = "0.1.0"

if TYPE_CHECKING:
    from kafka_actors import errors, ray, schemas, spark
    from kafka_actors.admin import Admin, AsyncAdmin, NewTopic
    from kafka_actors.base.backoff import Backoff
    from kafka_actors.consumer import AsyncConsumer, Consumer, ConsumerRebalanceListener, Message
    from kafka_actors.errors import JobFailed, KafkaActorsError, KafkaError, ProcessError
    from kafka_actors.job import Autoscale, JobStatus, RetryTopics
    from kafka_actors.pipeline import Pipeline
    from kafka_actors.producer import AsyncProducer, Producer, RecordMetadata
    from kafka_actors.ray import Job, RunningJob
    from kafka_actors.registry import SchemaRegistry
    from kafka_actors.sinks import KafkaSink, ParquetSink
    from kafka_actors.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

# Imported at their first use: `import kafka_actors` stays cheap, and Ray is imported only where a job is started.
_HOMES = {
    "Admin": "admin",
    "AsyncAdmin": "admin",
    "AsyncConsumer": "consumer",
    "AsyncProducer": "producer",
    "Autoscale": "job",
    "Backoff": "base.backoff",
    "Consumer": "consumer",
    "ConsumerGroupMetadata": "types",
    "ConsumerRebalanceListener": "consumer",
    "Job": "ray",
    "JobFailed": "errors",
    "JobStatus": "job",
    "KafkaActorsError": "errors",
    "KafkaError": "errors",
    "KafkaSink": "sinks",
    "Message": "consumer",
    "NewTopic": "admin",
    "OffsetAndMetadata": "types",
    "ParquetSink": "sinks",
    "Pipeline": "pipeline",
    "ProcessError": "errors",
    "Producer": "producer",
    "RecordMetadata": "producer",
    "RetryTopics": "job",
    "RunningJob": "ray",
    "SchemaRegistry": "registry",
    "TopicPartition": "types",
    "errors": "errors",
    "ray": "ray",
    "schemas": "schemas",
    "spark": "spark",
}

__all__ = [
    "Admin",
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncProducer",
    "Autoscale",
    "Backoff",
    "Consumer",
    "ConsumerGroupMetadata",
    "ConsumerRebalanceListener",
    "Job",
    "JobFailed",
    "JobStatus",
    "KafkaActorsError",
    "KafkaError",
    "KafkaSink",
    "Message",
    "NewTopic",
    "OffsetAndMetadata",
    "ParquetSink",
    "Pipeline",
    "ProcessError",
    "Producer",
    "RecordMetadata",
    "RetryTopics",
    "RunningJob",
    "SchemaRegistry",
    "TopicPartition",
    "__version__",
    "errors",
    "ray",
    "schemas",
    "spark",
]


__getattr__ = lazily(__name__, _HOMES)


def __dir__() -> list[str]:
    return __all__

"""Kafka consumer groups as actors: Arrow batches in, committed offsets out.

    import kafka_actors as ka

    job = ka.Job(topics=["orders"], group_id="scorer", bootstrap_servers="localhost:9092", process=score, workers=4)
    with job.start() as running:
        running.wait()

`Job` runs on Ray (`pip install "kafka-actors[ray]"`); `Consumer`, `Producer` and `Admin`, and their asyncio
twins `AsyncConsumer`, `AsyncProducer` and `AsyncAdmin`, need neither Ray nor Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .lazy import lazily

__version__ = "0.1.0"

if TYPE_CHECKING:
    from .actors import Autoscale, Job, JobStatus, RunningJob
    from .admin import Admin, AsyncAdmin
    from .consumer import AsyncConsumer, Consumer, Message
    from .errors import JobFailed, KafkaActorsError, ProcessError
    from .pipeline import Pipeline
    from .producer import AsyncProducer, Producer, RecordMetadata
    from .protocol.types import OffsetAndMetadata, TopicPartition
    from .sinks import KafkaSink, ParquetSink

# Loaded when first used: `import kafka_actors` stays cheap, and Ray is imported only by who starts a job.
_HOMES = {
    "Admin": "admin",
    "AsyncAdmin": "admin",
    "AsyncConsumer": "consumer",
    "AsyncProducer": "producer",
    "Autoscale": "actors",
    "Consumer": "consumer",
    "Job": "actors",
    "JobFailed": "errors",
    "JobStatus": "actors",
    "KafkaActorsError": "errors",
    "KafkaSink": "sinks",
    "Message": "consumer",
    "OffsetAndMetadata": "protocol.types",
    "ParquetSink": "sinks",
    "Pipeline": "pipeline",
    "ProcessError": "errors",
    "Producer": "producer",
    "RecordMetadata": "producer",
    "RunningJob": "actors",
    "TopicPartition": "protocol.types",
}

__all__ = [
    "Admin",
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncProducer",
    "Autoscale",
    "Consumer",
    "Job",
    "JobFailed",
    "JobStatus",
    "KafkaActorsError",
    "KafkaSink",
    "Message",
    "OffsetAndMetadata",
    "ParquetSink",
    "Pipeline",
    "ProcessError",
    "Producer",
    "RecordMetadata",
    "RunningJob",
    "TopicPartition",
    "__version__",
]


__getattr__ = lazily(__name__, _HOMES)


def __dir__() -> list[str]:
    return __all__

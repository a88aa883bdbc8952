"""Where Spark finds the data source `kafka_actors`: it imports each top-level package named `pyspark_…` at its first
look-up and takes its `DefaultSource`. A failure here would make Spark pass over every such package, so nothing is
imported that the look-up doesn't need."""

from kafka_actors.spark.source.data_source import KafkaDataSource as DefaultSource

__all__ = ["DefaultSource"]

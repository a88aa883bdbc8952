"""Kafka for Spark through PySpark, with no JAR: `spark.read.format("kafka_actors")`.

Spark finds the source by the package `pyspark_kafka_actors`. What decides (options, offsets, how ranges become tasks)
is pure; `planner` and `reading` are the shells that talk to brokers, the one where the query is planned, the other
in the executors' Python workers.
"""

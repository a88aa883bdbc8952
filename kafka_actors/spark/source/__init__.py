"""Data source for Spark in PySpark, without a JAR: `spark.read.format("kafka_actors")`.

Spark finds the source by the package `pyspark_kafka_actors`. Options and `machines` (offsets, ranges, tasks) are pure;
`planning`, `stream_brokers` and `task_reader` talk to brokers, the first two where the query is planned, the last in the
executors' Python workers.
"""

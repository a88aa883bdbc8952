"""The Spark engine of pipelines: a pipeline as a data source, DataFrame stages and a sink in one query."""

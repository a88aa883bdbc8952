"""Spark engine of pipelines: runs a pipeline as one query of a data source, DataFrame stages and a sink."""

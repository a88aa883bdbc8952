"""The Ray engine of pipelines: a pipeline as the function of a job's workers."""

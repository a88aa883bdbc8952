"""Ray engine of pipelines: all stages of a pipeline run as the function of a job's workers."""

"""Ray actors of a job: thin shells, each over a class of `kafka_actors.job` without Ray."""
